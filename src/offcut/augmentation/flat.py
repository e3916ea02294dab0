"""Points as vectors of floats, and the density that a coordinate of one has at theta."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel


class Flat:
    """How points of one shape become vectors of floats and come back."""

    def __init__(self, one: Any) -> None:
        flat, self._unravel = ravel_pytree(one)
        self._dtype = flat.dtype
        leaves = jax.tree.leaves(one)
        #: Which coordinates are whole numbers.
        self.discrete = np.concatenate(
            [np.full(leaf.size, not jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves]
        )

    @property
    def size(self) -> int:
        """Numbers in one point."""
        return self.discrete.size

    def vector(self, point: Any) -> jax.Array:
        """One point as floats."""
        return ravel_pytree(point)[0].astype(float)

    def point(self, vector: jax.Array) -> Any:
        """Back again; whole numbers are cut off to what their dtype holds."""
        return self._unravel(vector.astype(self._dtype))

    def vectors(self, points: Any) -> jax.Array:
        """Rows of points as rows of floats."""
        return jax.vmap(self.vector)(points)

    def points(self, vectors: jax.Array) -> Any:
        """Rows of floats as rows of points."""
        return jax.vmap(self.point)(vectors)

    def is_point(self, vector: jax.Array) -> jax.Array:
        """Whether a vector stands for a point: 1.5 is no count, and 2 no flag."""
        return jnp.all(self.vector(self.point(vector)) == vector)


def log_possible(model: RejectionModel, theta: Theta, point: Any, *covariate: Any) -> jax.Array:
    """log q + log a of one point, -inf wherever the model cannot have produced it."""
    value = model.log_observed(theta, point, *covariate)
    possible = model.possible(theta, point, *covariate) & ~jnp.isnan(value)
    # log_observed may leave out log a where it is 0 or -inf.
    possible &= model.inside_at(theta, point, *covariate) > -jnp.inf
    return jnp.where(possible, value, -jnp.inf)
