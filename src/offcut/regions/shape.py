"""A region that has a formula: what Box, Ball and Polytope share is the check of the point."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax

from offcut.errors import ModelError
from offcut.regions.arrays import namespace
from offcut.regions.region import Region


class Shape(Region):
    """A region of numbers or vectors.

    A subclass defines ``contains`` for one array, ``_key`` for equality and ``__repr__``, and sets
    ``dimension`` where its parameters are vectors; ``ball.py`` has two short ones. It may register
    itself with ``regions.intervals``.
    """

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether one point lies inside: NumPy's boolean for NumPy and Python numbers, else JAX's.

        A covariate is ignored, so that a fixed window fits into a model that has some.
        """
        return self.contains(as_point(y, self))

    @abstractmethod
    def contains(self, x: Any) -> Any:
        """Whether ``x`` lies inside, an array whose shape has been checked."""


def as_point(y: Any, region: Region) -> Any:
    """One point as an array, a NumPy one where nothing in it is JAX's."""
    if isinstance(y, dict):
        raise ModelError(
            f"{region!r} is about numbers or vectors, but the point is a dict with "
            f"{sorted(map(str, y))}; choose a part of it: inside=lambda y: region(y[name])"
        )
    try:
        x = namespace(*jax.tree.leaves(y)).asarray(y)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{region!r} is about numbers or vectors: {error}") from error
    if region.dimension is not None and x.shape != (region.dimension,):
        many = x.ndim == 2 and x.shape[1] == region.dimension
        hint = "; for many points at once use jax.vmap(region)(points)" if many else ""
        raise ModelError(
            f"{region!r} is for points of shape ({region.dimension},), got a point of shape "
            f"{x.shape}{hint}"
        )
    return x
