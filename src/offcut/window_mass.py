r"""The mass of a window made of intervals, log Z(theta), where the base has a closed form.

Each family gives log F(x) and log(1 - F(x)), both accurate in their far tails. Between a and b

    log {F(b) - F(a)} = log F(b) + log1mexp(log F(a) - log F(b))        below the median,
                      = log S(a) + log1mexp(log S(b) - log S(a)),  S = 1 - F,  above it:

differences of numbers near 1 would lose all digits where a window shows only a tail. Where the two
ends are so near each other that their logarithms do not tell them apart (a window of 1 under a
scale of 1e20) the mass is the density in the middle times the width.

A piece without mass, because theta's support ends before it or because it is too far out for a
float, is -inf with gradient 0, and does not touch what the others say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr, logsumexp

from offcut.log1mexp import log1mexp

Tails = tuple[jax.Array, jax.Array, jax.Array]  # log F, log S, log density
LOG_HALF = float(np.log(0.5))
LOG_ROOT_TAU = float(0.5 * np.log(2 * np.pi))
#: Standard scores beyond this are cut off there: their squares would overflow.
FARTHEST = 1e100
#: Of a piece whose ends have log F (or log S) within this, the middle stands for all: what that
#: neglects and what the difference of two rounded numbers loses are both below 1e-8.
NARROW = 1e-8


def _normal(base: Any, x: Any) -> Tails:
    z = jnp.clip((x - base.loc) / base.scale, -FARTHEST, FARTHEST)
    density = -0.5 * z**2 - jnp.log(base.scale) - LOG_ROOT_TAU
    return _log_ndtr(z), _log_ndtr(-z), density


@jax.custom_jvp
def _log_ndtr(z: jax.Array) -> jax.Array:
    """log Phi(z), with a slope that stays finite.

    JAX takes the slope for exp(log phi - log Phi), which far out is the exponential of the
    rounding error of two large numbers.
    """
    return log_ndtr(z)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple, tangents: tuple) -> tuple:
    (z,), (dz,) = primals, tangents
    value = log_ndtr(z)
    far = z < -1e3
    near_z = jnp.where(far, -1.0, z)
    near = jnp.exp(-0.5 * near_z**2 - LOG_ROOT_TAU - jnp.where(far, 0.0, value))
    far_z = jnp.where(far, z, -1.0)
    return value, jnp.where(far, -far_z - 1.0 / far_z, near) * dz


def _log_normal(base: Any, x: Any) -> Tails:
    def tails(x: Any) -> Tails:
        log_f, log_s, density = _normal(base, jnp.log(x))
        return log_f, log_s, density - jnp.log(x)

    return _positive(x, tails)


def _exponential(base: Any, x: Any) -> Tails:
    def tails(x: Any) -> Tails:
        log_s = -base.rate * x
        return log1mexp(log_s), log_s, jnp.log(base.rate) + log_s

    return _positive(x, tails)


def _weibull(base: Any, x: Any) -> Tails:
    def tails(x: Any) -> Tails:
        k = base.concentration
        log_ratio = jnp.log(x) - jnp.log(base.scale)
        # Where the power overflows nothing is left, whatever theta is nearby.
        finite = k * log_ratio < np.log(FARTHEST)
        ratio = jnp.where(finite, x / base.scale, 1.0)
        log_s = jnp.where(finite, -(ratio**k), -jnp.inf)
        return log1mexp(log_s), log_s, jnp.log(k) - jnp.log(x) + k * log_ratio + log_s

    return _positive(x, tails)


def _pareto(base: Any, x: Any) -> Tails:
    above = x > base.scale
    safe = jnp.where(above, x, 2 * base.scale)
    log_s = -base.alpha * jnp.log(safe / base.scale)
    return (
        jnp.where(above, log1mexp(log_s), -jnp.inf),
        jnp.where(above, log_s, 0.0),
        jnp.where(above, jnp.log(base.alpha) - jnp.log(safe) + log_s, -jnp.inf),
    )


def _logistic(base: Any, x: Any) -> Tails:
    z = (x - base.loc) / base.scale
    log_f, log_s = jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)
    return log_f, log_s, log_f + log_s - jnp.log(base.scale)


def _laplace(base: Any, x: Any) -> Tails:
    z = (x - base.loc) / base.scale
    small = LOG_HALF - jnp.abs(z)
    return (
        jnp.where(z < 0, small, log1mexp(small)),
        jnp.where(z < 0, log1mexp(small), small),
        small - jnp.log(base.scale),
    )


def _positive(x: Any, tails: Callable[[Any], Tails]) -> Tails:
    """Tails of a family on the positive numbers, at a number that may be none."""
    if x <= 0:  # ends of intervals are plain numbers
        return jnp.array(-jnp.inf), jnp.array(0.0), jnp.array(-jnp.inf)
    return tails(x)


#: Only these very classes: a subclass may have another distribution.
TAILS: dict[type, Callable[[Any, Any], Tails]] = {
    dist.Exponential: _exponential,
    dist.Laplace: _laplace,
    dist.Logistic: _logistic,
    dist.LogNormal: _log_normal,
    dist.Normal: _normal,
    dist.Pareto: _pareto,
    dist.Weibull: _weibull,
}


def log_mass(base: dist.Distribution, intervals: list[tuple[float, float]]) -> jax.Array:
    """log P(x in the intervals) under a base of a known family.

    >>> import jax, numpyro.distributions as dist
    >>> with jax.enable_x64(True):
    ...     round(float(log_mass(dist.Normal(0.0, 1.0), [(-1.0, 1.0)])), 4)
    -0.3817
    """
    tails = TAILS[type(base)]
    pieces = jnp.stack([_log_between(base, tails, low, high) for low, high in intervals])
    some = jnp.any(pieces > -jnp.inf)
    return jnp.where(some, logsumexp(jnp.where(some, pieces, 0.0)), -jnp.inf)


def _log_between(base: Any, tails: Any, low: float, high: float) -> jax.Array:
    if not low < high:
        return jnp.array(-jnp.inf)
    if np.isneginf(low) and np.isposinf(high):
        return jnp.array(0.0)
    if np.isneginf(low):
        return _or_nothing(tails(base, high)[0])
    if np.isposinf(high):
        return _or_nothing(tails(base, low)[1])
    (below_low, above_low, _), (below_high, above_high, _) = tails(base, low), tails(base, high)
    upper = below_low > LOG_HALF
    larger = jnp.where(upper, above_low, below_high)
    smaller = jnp.where(upper, above_high, below_low)
    # Every form is given harmless numbers where it is not used, for the sake of its gradient.
    some = larger > -jnp.inf
    drop = jnp.where(some, smaller - larger, -1.0)
    narrow = drop > -NARROW
    apart = jnp.where(some, larger, 0.0) + log1mexp(jnp.where(narrow, -1.0, drop))
    middle = tails(base, low + 0.5 * (high - low))[2]
    flat = _or_nothing(middle) + np.log(high - low)
    return jnp.where(some, jnp.where(narrow, flat, apart), -jnp.inf)


def _or_nothing(value: jax.Array) -> jax.Array:
    """The same, -inf being a constant."""
    return jnp.where(value > -jnp.inf, value, -jnp.inf)
