r"""The mass of a window made of intervals, log Z(theta), where the base has a closed form.

Each family gives log F(x) and log(1 - F(x)), both accurate in their far tails. Between a and b

    log {F(b) - F(a)} = log F(b) + log1mexp(log F(a) - log F(b))        below the median,
                      = log S(a) + log1mexp(log S(b) - log S(a)),  S = 1 - F,  above it:

differences of numbers near 1 would lose all digits where a window shows only a tail.
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

Tails = tuple[jax.Array, jax.Array]  # log F, log S
LOG_HALF = float(np.log(0.5))


def _normal(base: Any, x: Any) -> Tails:
    z = (x - base.loc) / base.scale
    return log_ndtr(z), log_ndtr(-z)


def _log_normal(base: Any, x: Any) -> Tails:
    return _positive(x, lambda x: _normal(base, jnp.log(x)))


def _exponential(base: Any, x: Any) -> Tails:
    return _positive(x, lambda x: (log1mexp(-base.rate * x), -base.rate * x))


def _weibull(base: Any, x: Any) -> Tails:
    def tails(x: Any) -> Tails:
        log_s = -((x / base.scale) ** base.concentration)
        return log1mexp(log_s), log_s

    return _positive(x, tails)


def _pareto(base: Any, x: Any) -> Tails:
    above = x > base.scale
    log_s = -base.alpha * jnp.log(jnp.where(above, x, 2 * base.scale) / base.scale)
    return (
        jnp.where(above, log1mexp(log_s), -jnp.inf),
        jnp.where(above, log_s, 0.0),
    )


def _logistic(base: Any, x: Any) -> Tails:
    z = (x - base.loc) / base.scale
    return jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)


def _laplace(base: Any, x: Any) -> Tails:
    z = (x - base.loc) / base.scale
    small = LOG_HALF - jnp.abs(z)
    return (
        jnp.where(z < 0, small, log1mexp(small)),
        jnp.where(z < 0, log1mexp(small), small),
    )


def _positive(x: Any, tails: Callable[[Any], Tails]) -> Tails:
    """Tails of a family on the positive numbers, at a number that may be none."""
    if x <= 0:  # ends of intervals are plain numbers
        return jnp.array(-jnp.inf), jnp.array(0.0)
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

    >>> import numpyro.distributions as dist
    >>> round(float(log_mass(dist.Normal(0.0, 1.0), [(-1.0, 1.0)])), 4)
    -0.3817
    """
    tails = TAILS[type(base)]
    return logsumexp(jnp.stack([_log_between(base, tails, low, high) for low, high in intervals]))


def _log_between(base: Any, tails: Any, low: float, high: float) -> jax.Array:
    if np.isneginf(low) and np.isposinf(high):
        return jnp.array(0.0)
    if np.isneginf(low):
        return tails(base, high)[0]
    if np.isposinf(high):
        return tails(base, low)[1]
    (below_low, above_low), (below_high, above_high) = tails(base, low), tails(base, high)
    upper = below_low > LOG_HALF
    # The form that is not used is given harmless numbers, for the sake of its gradient.
    first = jnp.where(upper, above_low, 0.0)
    second = jnp.where(upper, above_high - above_low, -1.0)
    in_upper = first + log1mexp(second)
    first = jnp.where(upper, 0.0, below_high)
    second = jnp.where(upper, -1.0, below_low - below_high)
    in_lower = first + log1mexp(second)
    return jnp.where(upper, in_upper, in_lower)
