r"""Frames of two columns in space: exact draws through quaternions.

V_{2,3} is SO(3): X = [x1 x2] becomes R = [x1 x2 x1×x2]. With F = U diag(k1, k2) Vᵀ completed to
rotations U, V of R³ (k3 = 0), R = U M(q) Vᵀ, and the unit quaternion q has a Bingham distribution,

    density ∝ exp(-qᵀ diag(lambda) q),   lambda = 2 (0, k2 + k3, k1 + k3, k1 + k2).

It is drawn from an angular central Gaussian envelope (Kent, Ganeiber & Mardia 2018): q along
N(0, Omega⁻¹), Omega = I + 2 diag(lambda)/b, accepted with probability
exp(-u + (4-b)/2) [(1 + 2u/b) b/4]², u = qᵀ diag(lambda) q, where b solves
sum_i 1 / (b + 2 lambda_i) = 1. About half are accepted, whatever kappa.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from offcut.numerics.arrays import materialised
from offcut.numerics.types import KeyArray

_NEWTON_STEPS = 30
#: w, x, y, z of many quaternions: four vectors, which a processor likes better than rows of four.
Vector = Float[Array, " n"]
Quaternions = tuple[Vector, Vector, Vector, Vector]


def propose(key: KeyArray, kappa: Float[Array, 2], count: int) -> tuple[Quaternions, Vector]:
    """``count`` unit quaternions for F = [diag(kappa); 0], and log acceptance probabilities."""
    lam = 2.0 * jnp.stack([jnp.zeros(()), kappa[1], kappa[0], kappa[0] + kappa[1]])
    b = envelope(lam)
    scales = jnp.sqrt(1.0 + 2.0 * lam / b)[:, None]
    normals = materialised(b, lambda: jax.random.normal(key, (4, count)) / scales)
    w, x, y, z = (normals[i] for i in range(4))
    square = w * w + x * x + y * y + z * z
    u = (lam[1] * x * x + lam[2] * y * y + lam[3] * z * z) / square
    log_accept = -u + 0.5 * (4.0 - b) + 2.0 * (jnp.log1p(2.0 * u / b) + jnp.log(0.25 * b))
    scale = 1.0 / jnp.sqrt(square)
    return (w * scale, x * scale, y * scale, z * scale), log_accept


def envelope(lam: Float[Array, 4]) -> Float[Array, ""]:
    """The b in (0, 4] with sum_i 1 / (b + 2 lambda_i) = 1, by Newton's method on a convex function.

    The function falls and is convex, so steps from the left of the root never overshoot; b = 1 is
    to its left, because the term with lambda = 0 alone is 1 there.
    """

    def step(_: Int[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
        inverse = 1.0 / (b + 2.0 * lam)
        return b + (jnp.sum(inverse) - 1.0) / jnp.sum(inverse**2)

    return lax.fori_loop(0, _NEWTON_STEPS, step, jnp.ones(()))


def first_columns(
    q: Quaternions,
) -> tuple[tuple[Vector, Vector, Vector], tuple[Vector, Vector, Vector]]:
    """The first two columns of their rotation matrices, three vectors each."""
    w, x, y, z = q
    first = w * w + x * x - y * y - z * z, 2 * (x * y + w * z), 2 * (x * z - w * y)
    second = 2 * (x * y - w * z), w * w - x * x + y * y - z * z, 2 * (y * z + w * x)
    return first, second
