r"""cos(k theta) and sin(k theta), k = 0, ..., K, from one cosine and one sine.

Rows double: cos((k+j) theta) = cos k theta cos j theta - sin k theta sin j theta, and so on. Errors
grow like log2(K) roundings. Each doubling stands behind a wall to fusion, without which XLA
computes the first rows again for every later one: 20 times slower.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from offcut.augmentation.layout import materialised


def waves(theta: jax.Array, count: int, wall: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines (count + 1, P) of the multiples of ``theta`` (P,).

    ``wall`` is any traced number >= 0.
    """

    def first() -> tuple[jax.Array, jax.Array]:
        return (
            jnp.stack([jnp.ones_like(theta), jnp.cos(theta)]),
            jnp.stack([jnp.zeros_like(theta), jnp.sin(theta)]),
        )

    c, s = materialised(wall, first)
    while (k := c.shape[0] - 1) < count:
        more = min(k, count - k)

        def doubled(c: jax.Array = c, s: jax.Array = s, k: int = k, more: int = more) -> tuple:
            cj, sj = c[1 : more + 1], s[1 : more + 1]
            ck, sk = c[k][None, :], s[k][None, :]
            return (
                jnp.concatenate([c, ck * cj - sk * sj]),
                jnp.concatenate([s, sk * cj + ck * sj]),
            )

        c, s = materialised(wall, doubled)
    return c, s


def twice_as_many(c: jax.Array, s: jax.Array, wall: jax.Array) -> jax.Array:
    """Cosines up to 2K from the cosines and sines up to K."""
    K = c.shape[0] - 1
    more = materialised(wall, lambda: c[K][None, :] * c[1:] - s[K][None, :] * s[1:])
    return jnp.concatenate([c, more])
