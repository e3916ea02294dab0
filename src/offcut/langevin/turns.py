r"""Turning G and H together.

Where two concentrations are close, F = G diag(kappa) Hᵀ hardly changes when G and H turn together
in the plane of the two columns, and Gibbs steps of G given H and of H given G creep. The turn
itself has a simple conditional: with M = GᵀSH and (G, H) -> (G R, H R), R a rotation by phi in the
plane (i, j),

    tr(kappa Rᵀ M R) = constant + (kappa_i - kappa_j) [½ (M_ii - M_jj) cos 2phi
                                                      + ½ (M_ij + M_ji) sin 2phi],

so that 2 phi is von Mises. An exact draw for uniform priors on G and H, which do not see the turn.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp

from offcut.langevin.sphere import deviations


def turn(
    key: jax.Array, kappa: jax.Array, S: jax.Array, G: jax.Array, H: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Turn every pair of columns once; S (d, p) is the sum of the frames."""
    for index, (i, j) in enumerate(itertools.combinations(range(kappa.shape[0]), 2)):
        M = G.T @ S @ H
        gap = kappa[i] - kappa[j]
        along, across = 0.5 * gap * (M[i, i] - M[j, j]), 0.5 * gap * (M[i, j] + M[j, i])
        phi = 0.5 * _von_mises(jax.random.fold_in(key, index), along, across)
        G, H = _turned(G, i, j, phi), _turned(H, i, j, phi)
    return G, H


def _von_mises(key: jax.Array, along: jax.Array, across: jax.Array) -> jax.Array:
    """An angle with density ∝ exp(along cos + across sin)."""
    key_size, key_side = jax.random.split(key)
    e = deviations(key_size, 2, jnp.hypot(along, across)[None])[0]
    away = 2.0 * jnp.arcsin(jnp.sqrt(jnp.clip(0.5 * e, 0.0, 1.0)))
    side = jnp.where(jax.random.bernoulli(key_side), 1.0, -1.0)
    return jnp.arctan2(across, along) + side * away


def _turned(columns: jax.Array, i: int, j: int, phi: jax.Array) -> jax.Array:
    first = jnp.cos(phi) * columns[:, i] + jnp.sin(phi) * columns[:, j]
    second = jnp.cos(phi) * columns[:, j] - jnp.sin(phi) * columns[:, i]
    return columns.at[:, i].set(first).at[:, j].set(second)
