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

_NEWTON_STEPS = 30


def propose(key: jax.Array, kappa: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Unit quaternions (count, 4) for F = [diag(kappa); 0], and log acceptance probabilities."""
    lam = 2.0 * jnp.stack([jnp.zeros(()), kappa[1], kappa[0], kappa[0] + kappa[1]])
    b = envelope(lam)
    omega = 1.0 + 2.0 * lam / b
    normals = jax.random.normal(key, (count, 4)) / jnp.sqrt(omega)[None, :]
    q = normals / jnp.linalg.norm(normals, axis=1, keepdims=True)
    u = jnp.sum(lam[None, :] * q**2, axis=1)
    log_accept = -u + 0.5 * (4.0 - b) + 2.0 * (jnp.log1p(2.0 * u / b) + jnp.log(0.25 * b))
    return q, log_accept


def envelope(lam: jax.Array) -> jax.Array:
    """The b in (0, 4] with sum_i 1 / (b + 2 lambda_i) = 1, by Newton's method on a convex function.

    The function falls and is convex, so steps from the left of the root never overshoot; b = 1 is
    to its left, because the term with lambda = 0 alone is 1 there.
    """

    def step(_: int, b: jax.Array) -> jax.Array:
        inverse = 1.0 / (b + 2.0 * lam)
        return b + (jnp.sum(inverse) - 1.0) / jnp.sum(inverse**2)

    return lax.fori_loop(0, _NEWTON_STEPS, step, jnp.ones(()))


def first_columns(q: jax.Array) -> jax.Array:
    """The first two columns of the rotation matrices of unit quaternions (n, 4)."""
    w, x, y, z = (q[:, i] for i in range(4))
    first = jnp.stack([w**2 + x**2 - y**2 - z**2, 2 * (x * y + w * z), 2 * (x * z - w * y)], 1)
    second = jnp.stack([2 * (x * y - w * z), w**2 - x**2 + y**2 - z**2, 2 * (y * z + w * x)], 1)
    return jnp.stack([first, second], axis=2)
