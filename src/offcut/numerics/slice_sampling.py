"""Univariate slice sampling (Neal, *Annals of Statistics* 2003, figures 3 and 5), many at once.

It needs nothing but the density, up to a constant. Each loop goes on until the last of the
variables has finished.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from offcut.numerics.types import KeyArray

#: The interval grows at most to so many widths.
MOST_WIDTHS = 64
#: Each turn halves the interval on average: after so many it is narrower than rounding.
MOST_SHRINKS = 200
LogDensity = Callable[[Float[Array, " n"]], Float[Array, " n"]]


def slice_sample(
    key: KeyArray,
    log_density: LogDensity,
    here: Float[Array, " n"],
    low: float | Float[Array, " ..."],
    high: float | Float[Array, " ..."],
    width: float | Float[Array, " ..."],
    free: Bool[Array, " n"],
) -> Float[Array, " n"]:
    """One update of every variable of the vector ``here`` that is ``free``.

    ``log_density`` gives each variable's own, and -inf outside [low, high]; ``width`` is the first
    guess of an interval's length.
    """
    key_level, key_place, key_share, key_shrink = jax.random.split(key, 4)
    level = log_density(here) - jax.random.exponential(key_level, here.shape)

    # Step out: the number of steps to either side is shared at random, so that the interval could
    # as well have been grown from any of its points.
    left = here - width * jax.random.uniform(key_place, here.shape)
    right = left + width
    steps_left = jnp.floor(MOST_WIDTHS * jax.random.uniform(key_share, here.shape))
    steps_right = MOST_WIDTHS - 1 - steps_left

    def grown(edge: jax.Array, steps: jax.Array, step: jax.Array | float) -> jax.Array:
        def going(carry: tuple) -> jax.Array:
            return jnp.any(carry[2])

        def go(carry: tuple) -> tuple:
            edge, steps, active = carry
            edge = jnp.where(active, edge + step, edge)
            steps = jnp.where(active, steps - 1, steps)
            return edge, steps, active & (steps > 0) & (log_density(edge) > level)

        active = free & (steps > 0) & (log_density(edge) > level)
        return lax.while_loop(going, go, (edge, steps, active))[0]

    left, right = grown(left, steps_left, -width), grown(right, steps_right, width)

    def shrinking(carry: tuple) -> jax.Array:
        return jnp.any(carry[4]) & (carry[0] < MOST_SHRINKS)

    def shrink(carry: tuple) -> tuple:
        turn, left, right, chosen, active = carry
        uniform = jax.random.uniform(jax.random.fold_in(key_shrink, turn), here.shape)
        value = left + uniform * (right - left)
        accepted = active & (log_density(value) > level)
        chosen = jnp.where(accepted, value, chosen)
        missed = active & ~accepted
        left = jnp.where(missed & (value < here), value, left)
        right = jnp.where(missed & (value >= here), value, right)
        return turn + 1, left, right, chosen, missed

    carry = (jnp.int32(0), jnp.maximum(left, low), jnp.minimum(right, high), here, free)
    return lax.while_loop(shrinking, shrink, carry)[3]
