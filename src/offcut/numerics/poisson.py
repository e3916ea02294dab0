"""Poisson numbers, many means at once, in double precision and for keys of any kind.

Means below 10: Knuth's products of uniforms. Others: transformed rejection (Hörmann, *Insurance:
Mathematics and Economics* 1993). ``jax.random.poisson`` does the same in single precision, in which
log probabilities at large means have no correct digit (a mean of a million), and insists on JAX's
own keys, whose hashes are loops: within loops these took longer to compile than anything else in a
mixture's sweep.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from offcut.numerics.types import KeyArray

#: Means from here on by rejection.
LARGE = 10.0
#: A mean for those that rejection is not for: accepted as soon as any.
_ANY = 1e5


def poisson(key: KeyArray, means: Float[Array, " n"]) -> Int[Array, " n"]:
    """Numbers with these means."""
    small = jnp.isnan(means) | (means < LARGE)
    few = _products(key, jnp.where(small, means, 0.0))
    many = _rejection(key, jnp.where(small, _ANY, means))
    return jnp.where(means == 0, 0, jnp.where(small, few, many))


def _products(key: KeyArray, means: Float[Array, " n"]) -> Int[Array, " n"]:
    """How many uniforms it takes for their product to fall below exp(-mean), less one."""

    def going(carry: tuple) -> Bool[Array, ""]:
        return jnp.any(carry[2] > -means)

    def go(carry: tuple) -> tuple:
        number, key, log_product = carry
        key, own = jax.random.split(key)
        number = jnp.where(log_product > -means, number + 1, number)
        return number, key, log_product + jnp.log(jax.random.uniform(own, means.shape))

    start = (jnp.zeros(means.shape, jnp.int32), key, jnp.zeros(means.shape))
    return lax.while_loop(going, go, start)[0] - 1


def _rejection(key: KeyArray, means: Float[Array, " n"]) -> Int[Array, " n"]:
    """Hörmann's PTRS, in his letters."""
    log_mean = jnp.log(means)
    b = 0.931 + 2.53 * jnp.sqrt(means)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def going(carry: tuple) -> Bool[Array, ""]:
        return ~jnp.all(carry[1])

    def go(carry: tuple) -> tuple:
        number, done, key = carry
        key, key_u, key_v = jax.random.split(key, 3)
        u = jax.random.uniform(key_u, means.shape) - 0.5
        v = jax.random.uniform(key_v, means.shape)
        us = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / us + b) * u + means + 0.43)
        s = jnp.log(v * inverse_alpha / (a / (us * us) + b))
        t = -means + k * log_mean - gammaln(k + 1)
        refused = (k < 0) | ((us < 0.013) & (v > us))
        accepted = ((us >= 0.07) & (v <= v_r)) | (~refused & (s <= t))
        return jnp.where(accepted & ~done, k, number), done | accepted, key

    start = (jnp.full(means.shape, -1.0), jnp.zeros(means.shape, bool), key)
    return lax.while_loop(going, go, start)[0].astype(jnp.int32)
