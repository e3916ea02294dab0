r"""Wishart matrices by Bartlett's decomposition, given the inverse of their scale.

With Psi = L Lᵀ and A upper triangular, A_ii² ~ chi²(nu - (d - 1 - i)), i = 0, 1, ..., d - 1,
A_ij ~ N(0, 1) for j > i,

    Phi = L⁻ᵀ A Aᵀ L⁻¹ ~ Wishart(nu, Psi⁻¹),    Phi⁻¹ = L A⁻ᵀ A⁻¹ Lᵀ ~ InverseWishart(nu, Psi).

(Upper, with the degrees of freedom in reverse, so that L A⁻ᵀ is lower triangular: the Cholesky
factor of Phi⁻¹, without another decomposition.)
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular


class Wishart(NamedTuple):
    """Phi through two of its square roots."""

    precision_root: jax.Array  # Phi = R Rᵀ, R upper triangular
    covariance_root: jax.Array  # Phi⁻¹ = R Rᵀ, R lower triangular

    @property
    def precision(self) -> jax.Array:
        """Phi."""
        return _square(self.precision_root)

    @property
    def covariance(self) -> jax.Array:
        """Phi⁻¹."""
        return _square(self.covariance_root)


def draw_wishart(key: jax.Array, nu: jax.Array, Psi: jax.Array) -> Wishart:
    """Phi ~ Wishart(nu, Psi⁻¹), density ∝ |Phi|^((nu - d - 1)/2) exp(-tr(Psi Phi) / 2)."""
    key_diagonal, key_above = jax.random.split(key)
    d = Psi.shape[0]
    gammas = jax.random.gamma(key_diagonal, gamma_shapes(nu, d))
    return wishart_from(gammas, jax.random.normal(key_above, (d, d)), Psi)


def gamma_shapes(nu: jax.Array, d: int) -> jax.Array:
    """Shapes of the d gamma variables that ``wishart_from`` needs: halves of chi-squares."""
    return (nu - np.arange(d)[::-1]) / 2


def wishart_from(gammas: jax.Array, normals: jax.Array, Psi: jax.Array) -> Wishart:
    """Phi from its random numbers: d gammas and d x d standard normals."""
    A = jnp.triu(normals, 1) + jnp.diag(jnp.sqrt(2 * gammas))
    L = jnp.linalg.cholesky(Psi)
    return Wishart(
        precision_root=solve_triangular(L, A, trans="T", lower=True),
        covariance_root=solve_triangular(A, L.T).T,
    )


def _square(root: jax.Array) -> jax.Array:
    product = root @ root.T
    return (product + product.T) / 2
