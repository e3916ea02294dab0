r"""Quadratic features: a normal log density is one inner product.

With P = Sigma⁻¹,

    log N(x; mu, Sigma) = -½ xᵀPx + (P mu)ᵀx - ½ muᵀP mu + ½ log|P| - (d/2) log 2 pi,

linear in phi(x) = (x_i x_j for i <= j, x_i, 1). The same features, summed over points, are the
sufficient statistics. So log densities of many points under many components are one matrix
product, statistics another, and a set of points that moves as one is the sum of their features.

The squares of far points lose all digits of the rest, so features are for data on the sampler's own
scale. Wherever the user chooses the points, ``log_normals`` subtracts each mean first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

#: Squares of coordinates beyond this overflow, and densities there are 0.
FAR = 1e150


def size(d: int) -> int:
    """Number of features of a point with d coordinates."""
    return d * (d + 1) // 2 + d + 1


def features(x: jax.Array) -> jax.Array:
    """phi of points (d, m), one column each: (features, m)."""
    first, second = np.triu_indices(x.shape[0])
    products = [x[i] * x[j] for i, j in zip(first, second, strict=True)]
    return jnp.stack([*products, *x, jnp.ones_like(x[0])])


def coefficients(mean: jax.Array, root: jax.Array) -> jax.Array:
    """w with log N(x; mean, root rootᵀ) = w·phi(x); ``root`` is lower triangular."""
    d = mean.shape[0]
    inverse = solve_triangular(root, jnp.eye(d), lower=True)
    P = inverse.T @ inverse
    first, second = np.triu_indices(d)
    quadratic = jnp.where(first == second, -0.5, -1.0) * P[first, second]
    whitened = inverse @ mean
    constant = (
        -0.5 * whitened @ whitened
        - jnp.sum(jnp.log(jnp.diagonal(root)))
        - 0.5 * d * np.log(2 * np.pi)
    )
    return jnp.concatenate([quadratic, P @ mean, constant[None]])


def log_normals(x: jax.Array, means: jax.Array, roots: jax.Array) -> jax.Array:
    """log N(x; mean, root rootᵀ) of points (d, m) under components, (K, m): -½ |root⁻¹(x - mean)|².

    What a point gets does not depend on the others. At a coordinate that is infinite, or beyond
    ``FAR``, it is -inf; at one that is NaN, NaN.
    """
    d = x.shape[0]
    near = jnp.all(jnp.abs(x) < FAR, axis=0)
    known = jnp.where(near[None, :], x, 0.0)

    def of_component(component: tuple[jax.Array, jax.Array]) -> jax.Array:
        mean, root = component
        whitened = solve_triangular(root, jnp.eye(d), lower=True) @ (known - mean[:, None])
        return -0.5 * jnp.sum(whitened**2, axis=0) - jnp.sum(jnp.log(jnp.diagonal(root)))

    values = jax.lax.map(of_component, (means, roots)) - 0.5 * d * np.log(2 * np.pi)
    elsewhere = jnp.where(jnp.any(jnp.isnan(x), axis=0), jnp.nan, -jnp.inf)
    return jnp.where(near[None, :], values, elsewhere[None, :])


def moments(total: jax.Array, d: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Count, sum and sum of outer products from a sum of features."""
    first, second = np.triu_indices(d)
    pairs = d * (d + 1) // 2
    upper = jnp.zeros((d, d)).at[first, second].set(total[:pairs])
    outer = upper + jnp.triu(upper, 1).T
    return total[pairs + d], total[pairs : pairs + d], outer
