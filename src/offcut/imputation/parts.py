r"""Hidden coordinates beside known ones: slice sampling, one coordinate at a time.

Given theta and the known coordinates, a hidden one has density proportional to q(y) a(y) between
its limits. No proposal will ever match the known coordinates, so rejection cannot help; a
univariate slice sampler (Neal, *Annals of Statistics* 2003, figures 3 and 5) needs nothing but
the density. All observations move at once: each loop goes on until the last one has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from offcut.imputation.hidden import Parts
from offcut.models.recording import Clamped
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta

#: The interval grows at most to so many widths.
MOST_WIDTHS = 64
#: Each turn halves the interval on average: after so many it is narrower than rounding.
MOST_SHRINKS = 200

LogDensity = Callable[[jax.Array], jax.Array]


def draw_parts(
    model: RejectionModel,
    key: jax.Array,
    theta: Theta,
    parts: Parts,
    columns: tuple[int, ...],
    covariates: tuple,
    held: Any,
) -> Any:
    """One slice update of every hidden coordinate. ``columns`` are those that may be hidden."""
    one = jax.tree.map(lambda a: a[0], held)
    _, unravel = ravel_pytree(one)
    flat = jax.vmap(lambda point: ravel_pytree(point)[0])(held)
    own = jax.tree.map(lambda a: a[parts.rows], covariates)

    def log_density(flat: jax.Array) -> jax.Array:
        def at(row: jax.Array, *covariate: Any) -> jax.Array:
            point = unravel(row)
            value = model.log_observed(theta, point, *covariate)
            possible = model.possible(theta, point, *covariate) & ~jnp.isnan(value)
            # log_observed may leave out log a where it is 0 or -inf.
            possible &= model.inside_at(theta, point, *covariate) > -jnp.inf
            return jnp.where(possible, value, -jnp.inf)

        return jax.vmap(at)(flat, *own)

    for column in columns:
        flat = slice_column(jax.random.fold_in(key, column), log_density, flat, column, parts)
    return jax.vmap(unravel)(flat)


def slice_column(
    key: jax.Array, log_density: LogDensity, flat: jax.Array, column: int, parts: Parts
) -> jax.Array:
    """Update one coordinate of all rows where it is hidden."""
    free, low, high = (a[:, column] for a in (parts.free, parts.low, parts.high))
    width = parts.width[column]
    here = flat[:, column]
    key_level, key_place, key_share, key_shrink = jax.random.split(key, 4)

    def at(value: jax.Array) -> jax.Array:
        allowed = (value >= low) & (value <= high)
        log_p = log_density(flat.at[:, column].set(value))
        return jnp.where(allowed, log_p, -jnp.inf)

    level = at(here) - jax.random.exponential(key_level, here.shape)

    # Step out: the number of steps to either side is shared at random, so that the interval could
    # as well have been grown from any of its points.
    left = here - width * jax.random.uniform(key_place, here.shape)
    right = left + width
    steps_left = jnp.floor(MOST_WIDTHS * jax.random.uniform(key_share, here.shape))
    steps_right = MOST_WIDTHS - 1 - steps_left

    def grown(edge: jax.Array, steps: jax.Array, step: jax.Array) -> jax.Array:
        def going(carry: tuple) -> jax.Array:
            return jnp.any(carry[2])

        def go(carry: tuple) -> tuple:
            edge, steps, active = carry
            edge = jnp.where(active, edge + step, edge)
            steps = jnp.where(active, steps - 1, steps)
            return edge, steps, active & (steps > 0) & (at(edge) > level)

        active = free & (steps > 0) & (at(edge) > level)
        return lax.while_loop(going, go, (edge, steps, active))[0]

    left, right = grown(left, steps_left, -width), grown(right, steps_right, width)

    def shrinking(carry: tuple) -> jax.Array:
        return jnp.any(carry[4]) & (carry[0] < MOST_SHRINKS)

    def shrink(carry: tuple) -> tuple:
        turn, left, right, chosen, active = carry
        uniform = jax.random.uniform(jax.random.fold_in(key_shrink, turn), here.shape)
        value = left + uniform * (right - left)
        accepted = active & (at(value) > level)
        chosen = jnp.where(accepted, value, chosen)
        missed = active & ~accepted
        left = jnp.where(missed & (value < here), value, left)
        right = jnp.where(missed & (value >= here), value, right)
        return turn + 1, left, right, chosen, missed

    carry = (jnp.int32(0), jnp.maximum(left, low), jnp.minimum(right, high), here, free)
    chosen = lax.while_loop(shrinking, shrink, carry)[3]
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
