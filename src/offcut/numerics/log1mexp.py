"""log(1 - exp(x)) for x <= 0, with gradients that stay finite at both ends."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def log1mexp(x: float | Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r"""log(1 - e^x), the log probability of rejection when x = log a.

    Accurate at both ends (Maechler 2012): log(-expm1(x)) near 0, log1p(-exp(x)) below -log 2.
    The derivative is -1 / expm1(-x); at x = 0, where the value is -inf, it is set to 0, so that
    a kernel sees an impossible point and not a NaN.

    >>> bool(jnp.isneginf(log1mexp(0.0))), float(jax.grad(log1mexp)(0.0))
    (True, 0.0)
    """
    near = x > -0.6931471805599453
    value = jnp.where(
        near,
        jnp.log(-jnp.expm1(jnp.where(near, x, -1.0))),
        jnp.log1p(-jnp.exp(jnp.where(near, -1.0, x))),
    )
    return jnp.where(x >= 0, -jnp.inf, value)


@log1mexp.defjvp
def _log1mexp_jvp(primals: tuple, tangents: tuple) -> tuple:
    (x,), (dx,) = primals, tangents
    slope = slope_of_log1mexp(x)
    return log1mexp(x), jnp.where(slope == 0, 0.0, slope * dx)


def slope_of_log1mexp(x: Float[Array, "*shape"] | float) -> Float[Array, "*shape"]:
    """The derivative of ``log1mexp``."""
    inside = x < 0
    return jnp.where(inside, -1.0 / jnp.expm1(-jnp.where(inside, x, -1.0)), 0.0)
