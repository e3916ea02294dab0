r"""Gibbs steps for frames where rejection sampling is hopeless.

Given the other columns, column r of X ~ etr(Fᵀ X) is von Mises-Fisher along F_r among the unit
vectors orthogonal to them. In a square matrix that leaves a sign only, so columns move in pairs:
[x_i x_j] = B Q with B an orthonormal basis of their plane and Q in O(2), density ∝ etr(Aᵀ Q),
A = Bᵀ [F_i F_j]; Q is a rotation or a reflection,

    tr(Aᵀ Q) = r cos(theta - phi),   r e^{i phi} = (A11 ± A22) + i (A21 ∓ A12),

with probabilities proportional to I_0(r) of either, and theta is von Mises. Both are exact draws of
conditional distributions; a sweep of them is not an independent draw.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from offcut.langevin.hypergeometric import log_h
from offcut.langevin.von_mises_fisher import deviations, unit, without
from offcut.numerics.types import KeyArray


def sweep(
    key: KeyArray, F: Float[Array, "d p"], frames: Float[Array, "n d p"]
) -> Float[Array, "n d p"]:
    """All columns once, for many frames and one F."""
    d, p = F.shape
    if d == p and p > 1:
        return _pairs(key, F, frames)
    for r in range(p):
        frames = _one_column(jax.random.fold_in(key, r), F, frames, r)
    return frames


def _one_column(
    key: KeyArray, F: Float[Array, "d p"], frames: Float[Array, "n d p"], r: int
) -> Float[Array, "n d p"]:
    n, d, p = frames.shape
    key_angle, key_around = jax.random.split(key)
    others = jnp.concatenate([frames[:, :, :r], frames[:, :, r + 1 :]], axis=2)
    left = without(others, jnp.broadcast_to(F[:, r][None, :], (n, d)))
    kappa = jnp.linalg.norm(left, axis=1)
    towards = jnp.where((kappa > 0)[:, None], unit(left), frames[:, :, r])
    towards = unit(without(others, towards))
    e = deviations(key_angle, d - p + 1, kappa)
    column = (1.0 - e)[:, None] * towards
    if d > p:
        normals = jax.random.normal(key_around, (n, d))
        around = unit(without(jnp.concatenate([others, towards[:, :, None]], 2), normals))
        column = column + jnp.sqrt(e * (2.0 - e))[:, None] * around
    return frames.at[:, :, r].set(column)


def _pairs(
    key: KeyArray, F: Float[Array, "d p"], frames: Float[Array, "n d p"]
) -> Float[Array, "n d p"]:
    """Every pair of columns once, the same order in each sweep."""
    p = F.shape[1]
    pairs = jnp.asarray([(i, j) for i in range(p) for j in range(i + 1, p)])

    def move(t: Int[Array, ""], frames: Float[Array, "n d p"]) -> Float[Array, "n d p"]:
        i, j = pairs[t, 0], pairs[t, 1]
        basis = jnp.stack([frames[:, :, i], frames[:, :, j]], axis=2)
        target = jnp.stack([F[:, i], F[:, j]], axis=1)
        Q = orthogonal(jax.random.fold_in(key, t), jnp.einsum("nda,db->nab", basis, target))
        moved = jnp.einsum("nda,nab->ndb", basis, Q)
        return frames.at[:, :, i].set(moved[:, :, 0]).at[:, :, j].set(moved[:, :, 1])

    return lax.fori_loop(0, len(pairs), move, frames)


def orthogonal(key: KeyArray, A: Float[Array, "n 2 2"]) -> Float[Array, "n 2 2"]:
    """Draws of Q in O(2) with density ∝ etr(Aᵀ Q)."""
    key_kind, key_angle, key_side = jax.random.split(key, 3)
    even, odd = A[:, 0, 0] + A[:, 1, 1], A[:, 1, 0] - A[:, 0, 1]
    even_r, odd_r = A[:, 0, 0] - A[:, 1, 1], A[:, 1, 0] + A[:, 0, 1]
    size, size_r = jnp.hypot(even, odd), jnp.hypot(even_r, odd_r)
    log_size, log_size_r = log_h(2, jnp.stack([size, size_r]))
    log_odds = log_size_r - log_size
    reflected = jax.random.uniform(key_kind, size.shape) < jax.nn.sigmoid(log_odds)
    e = deviations(key_angle, 2, jnp.where(reflected, size_r, size))
    side = jnp.where(jax.random.bernoulli(key_side, 0.5, size.shape), 1.0, -1.0)
    away = side * 2.0 * jnp.arcsin(jnp.sqrt(0.5 * e))
    centre = jnp.where(reflected, jnp.arctan2(odd_r, even_r), jnp.arctan2(odd, even))
    cosine, sine = jnp.cos(centre + away), jnp.sin(centre + away)
    last = jnp.where(reflected, -1.0, 1.0)
    first = jnp.stack([cosine, sine], axis=1)
    return jnp.stack([first, jnp.stack([-sine * last, cosine * last], axis=1)], axis=2)
