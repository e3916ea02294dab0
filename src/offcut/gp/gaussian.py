r"""f given Pólya-Gamma variables: a normal, in whitened coordinates.

With G = Phiᵀ Omega Phi, b = Phiᵀ kappa (kappa = ½ at X, -½ at Y), D = diag(√S) and w = D beta,

    beta | omega ~ N(A⁻¹ D b, A⁻¹),   A = I + D G D,
    log p(omega, X, Y | D) = ½ bᵀ D A⁻¹ D b - ½ log|A| + what does not depend on D,

the latter with f integrated out: hyperparameters move by it, free of f (Polson, Scott & Windle
2013; never K⁻¹, whose entries overflow for smooth kernels).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular


def _factored(G: jax.Array, b: jax.Array, D: jax.Array) -> tuple[jax.Array, jax.Array]:
    """L with L Lᵀ = A, and L⁻¹ D b."""
    A = jnp.eye(b.shape[0]) + D[:, None] * G * D[None, :]
    L = jnp.linalg.cholesky((A + A.T) / 2)
    return L, solve_triangular(L, D * b, lower=True)


def log_evidence(G: jax.Array, b: jax.Array, D: jax.Array) -> jax.Array:
    """log p(omega, X, Y | D) up to a constant."""
    L, v = _factored(G, b, D)
    return 0.5 * v @ v - jnp.sum(jnp.log(jnp.diagonal(L)))


def draw(key: jax.Array, G: jax.Array, b: jax.Array, D: jax.Array) -> jax.Array:
    """beta given omega."""
    L, v = _factored(G, b, D)
    noise = jax.random.normal(key, v.shape)
    return solve_triangular(L, v + noise, lower=True, trans="T")
