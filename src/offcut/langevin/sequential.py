r"""Hoff's (2009) proposal for the matrix Langevin distribution: one column after the other.

For F = G diag(kappa) column r is drawn from the von Mises-Fisher distribution proportional to
exp(kappa_r G_rᵀ x) among unit vectors orthogonal to the columns before it. With g the part of G_r
orthogonal to them, |g|² = 1 - c_r and c_r = sum_{j<r} (X_jᵀ G_r)², the proposal has density

    etr(kappa Gᵀ X) / D(X, kappa),   log D(X, kappa) = sum_r log h_{d-r+1}(kappa_r √(1 - c_r)),

with respect to the uniform distribution, and is accepted with probability D(X, kappa) / D(kappa),
D(kappa) being the same at c = 0 (the largest value). The target etr(kappa Gᵀ X) / Z(kappa) follows,
and Z(kappa) = D(kappa) P(accepted).

The order of columns matters: by decreasing kappa most proposals are accepted. It is part of the
density: where rejections are kept for an update of kappa it must not be frozen at the old kappa.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offcut.langevin.hypergeometric import log_h, log_h_drop
from offcut.langevin.von_mises_fisher import deviations, unit, without
from offcut.numerics.arrays import materialised


class Proposals(NamedTuple):
    """Frames and how much of each mean direction the earlier columns had taken up."""

    frames: jax.Array  # (n, d, p)
    taken: jax.Array  # c, (n, p); the first column's is 0


def propose(key: jax.Array, G: jax.Array, kappa: jax.Array, count: int) -> Proposals:
    """``count`` proposals for G (d, p), kappa (p,), in the order of the columns."""
    d, p = G.shape
    frames = jnp.zeros((count, d, p))
    taken = []
    for r in range(p):
        key_angle, key_around = jax.random.split(jax.random.fold_in(key, r))
        before = frames[:, :, :r]
        overlap = jnp.einsum("nij,i->nj", before, G[:, r])
        c = jnp.clip(jnp.sum(overlap**2, axis=1), 0.0, 1.0)
        left = G[:, r][None, :] - jnp.einsum("nij,nj->ni", before, overlap)
        # Where nothing of G_r is left the column is uniform, and any direction will do.
        shortest = float(jnp.finfo(left.dtype).tiny) ** 0.5
        lost = (jnp.linalg.norm(left, axis=1) < shortest)[:, None]
        left = jnp.where(lost, jnp.cos(jnp.arange(1.0, d + 1.0))[None, :], left)
        towards = unit(without(before, unit(left)))
        e = deviations(key_angle, d - r, kappa[r] * jnp.sqrt(1.0 - c))
        column = (1.0 - e)[:, None] * towards
        if d - r > 1:
            normals = materialised(kappa[r], partial(jax.random.normal, key_around, (count, d)))
            around = unit(without(jnp.concatenate([before, towards[:, :, None]], 2), normals))
            column = column + jnp.sqrt(e * (2.0 - e))[:, None] * around
        frames = frames.at[:, :, r].set(column)
        taken.append(c)
    return Proposals(frames, jnp.stack(taken, axis=1))


def log_accept(d: int, kappa: jax.Array, taken: jax.Array) -> jax.Array:
    """log D(X, kappa) - log D(kappa) of proposals with c = ``taken`` (n, p)."""
    p = taken.shape[1]
    return sum(
        (log_h_drop(d - r, kappa[r], taken[:, r]) for r in range(1, p)), jnp.zeros(taken.shape[0])
    )


def log_envelope(d: int, kappa: jax.Array) -> jax.Array:
    """log D(kappa) = sum_r log h_{d-r+1}(kappa_r)."""
    return sum((log_h(d - r, kappa[r]) for r in range(1, kappa.shape[0])), log_h(d, kappa[0]))
