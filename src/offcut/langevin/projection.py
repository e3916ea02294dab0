"""Vectors less their projections, and at unit length, for many frames at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def without(columns: jax.Array, vectors: jax.Array) -> jax.Array:
    """Vectors (n, d) less their projections on orthonormal columns (n, d, r), twice."""
    for _ in range(2 if columns.shape[2] else 0):
        inner = jnp.einsum("nij,ni->nj", columns, vectors)
        vectors = vectors - jnp.einsum("nij,nj->ni", columns, inner)
    return vectors


def unit(vectors: jax.Array) -> jax.Array:
    """Vectors (n, d) at length one; those of length zero stay."""
    length = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(length > 0, length, 1.0)
