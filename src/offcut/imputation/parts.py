r"""Hidden coordinates beside known ones: slice sampling, one coordinate at a time.

Given theta and the known coordinates, a hidden one has density proportional to q(y) a(y) between
its limits. No proposal will ever match the known coordinates, so rejection cannot help; a
univariate slice sampler needs nothing but the density. All observations move at once.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from offcut.imputation.flat import log_possible
from offcut.imputation.hidden import Parts
from offcut.models.recording import Clamped
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.slice_sampling import LogDensity, slice_sample


def draw_parts(
    model: RejectionModel,
    key: jax.Array,
    theta: Theta,
    parts: Parts,
    columns: tuple[int, ...],
    covariates: tuple,
    held: Any,
) -> tuple[Any, jax.Array]:
    """One slice update of every hidden coordinate, and which coordinates it has moved.

    ``columns`` are those that may be hidden.
    """
    one = jax.tree.map(lambda a: a[0], held)
    _, unravel = ravel_pytree(one)
    flat = jax.vmap(lambda point: ravel_pytree(point)[0])(held)
    own = jax.tree.map(lambda a: a[parts.rows], covariates)

    def log_density(flat: jax.Array) -> jax.Array:
        def at(row: jax.Array, *covariate: Any) -> jax.Array:
            return log_possible(model, theta, unravel(row), *covariate)

        return jax.vmap(at)(flat, *own)

    before = flat
    for column in columns:
        flat = slice_column(jax.random.fold_in(key, column), log_density, flat, column, parts)
    return jax.vmap(unravel)(flat), flat != before


def slice_column(
    key: jax.Array, log_density: LogDensity, flat: jax.Array, column: int, parts: Parts
) -> jax.Array:
    """Update one coordinate of all rows where it is hidden."""
    free, low, high = (a[:, column] for a in (parts.free, parts.low, parts.high))

    def at(value: jax.Array) -> jax.Array:
        allowed = (value >= low) & (value <= high)
        log_p = log_density(flat.at[:, column].set(value))
        return jnp.where(allowed, log_p, -jnp.inf)

    chosen = slice_sample(key, at, flat[:, column], low, high, parts.width[column], free)
    return flat.at[:, column].set(chosen)


def hidden_columns(model: RejectionModel, like: Any, clamp: Clamped | None) -> tuple[int, ...]:
    """Coordinates of the flat vector that may be hidden, known without looking at data."""
    flags = jax.tree.map(lambda a: np.zeros(a.shape, bool), like)
    for name in model.latent:
        flags[name] = jax.tree.map(np.ones_like, flags[name])
    if clamp is not None:
        has_limit = np.array(True)
        if not callable(clamp.lower) and not callable(clamp.upper):
            low, high = clamp.limits()
            has_limit = np.isfinite(low) | np.isfinite(high)
        marked = jax.tree.map(lambda a: np.broadcast_to(has_limit, a.shape), model.recorded(flags))
        flags = _with_recorded(model, flags, marked)
    flat = np.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(flags)])
    return tuple(int(i) for i in np.flatnonzero(flat))


def _with_recorded(model: RejectionModel, tree: Any, recorded: Any) -> Any:
    """The tree with its recorded part replaced."""
    if not model.latent:
        return recorded
    if isinstance(recorded, dict):
        return {**tree, **recorded}
    (name,) = (k for k in tree if k not in model.latent)
    return {**tree, name: recorded}
