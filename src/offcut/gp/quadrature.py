r"""Z = ∫ g0(x) sigma(f(x)) dx by Gauss-Legendre nodes in the box, in one and two dimensions.

f is zero outside the box, so that

    Z = ½ P0(support) + sum_q v_q g0(u_q) (sigma(f(u_q)) - ½),

nodes being in the box where it overlaps with the support. f is a finite sum of sines: the error
falls faster than any power of the number of nodes, and is below rounding for the numbers here.

With Z known, Y can be summed out: the number of rejections is negative binomial (density) or
Poisson (intensity), and what a budget B excludes is

    P(|Y| <= B) = I_Z(n, B + 1)   or   Q(B + 1, lambda |T| (1 - Z)).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import betainc, gammaincc

#: Nodes along an axis, for m functions: PER_FUNCTION m + LEAST.
PER_FUNCTION, LEAST = {1: 4, 2: 2}, {1: 96, 2: 40}
#: So many standard deviations from the mean of |Y| the budget excludes nothing, to rounding.
FAR = 45.0


class Quadrature(NamedTuple):
    """Nodes (d, Q) in coordinates u, their weights (Q,), and tables of sines along the axes."""

    nodes: jax.Array
    weights: jax.Array
    tables: tuple[jax.Array, ...]


def rule(
    tables_at: object, sizes: tuple[int, ...], low: np.ndarray, high: np.ndarray, finer: int = 1
) -> Quadrature:
    """Nodes between ``low`` and ``high``; ``tables_at(axes)`` gives the tables of sines."""
    d = len(sizes)
    axes, parts = [], []
    for m, a, b in zip(sizes, low, high, strict=True):
        count = finer * (PER_FUNCTION[d] * m + LEAST[d])
        x, v = np.polynomial.legendre.leggauss(count)
        axes.append(0.5 * (a + b) + 0.5 * (b - a) * x)
        parts.append(0.5 * (b - a) * v)
    nodes = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    weights = parts[0] if d == 1 else np.outer(*parts).ravel()
    return Quadrature(
        jnp.asarray(nodes),
        jnp.asarray(weights),
        tuple(jnp.asarray(table) for table in tables_at(axes)),  # type: ignore[operator]
    )


def normaliser(
    f: jax.Array, log_g0: jax.Array, weights: jax.Array, supported: jax.Array | float
) -> jax.Array:
    """Z from f and log g0 at the nodes; ``supported`` is P0(support)."""
    share = jax.nn.sigmoid(f) - 0.5
    return 0.5 * supported + jnp.sum(weights * jnp.exp(log_g0) * share)


def log_fits_density(n: int, Z: jax.Array, budget: jax.Array) -> jax.Array:
    """log P(|Y| <= B) for a density: |Y| rejections before the n-th acceptance."""
    B = budget.astype(float)
    far = n * (1 - Z) / Z + FAR * jnp.sqrt(n * (1 - Z) + 1.0) / Z
    safe = jnp.clip(Z, 1e-12, 1 - 1e-12)
    return lax.cond(
        far < B, lambda: jnp.zeros(()), lambda: jnp.log(betainc(float(n), B + 1.0, safe))
    )


def log_fits_intensity(mean: jax.Array, budget: jax.Array) -> jax.Array:
    """log P(|Y| <= B) for an intensity: |Y| is Poisson."""
    B = budget.astype(float)
    far = mean + FAR * jnp.sqrt(mean + 1.0)
    return lax.cond(
        far < B,
        lambda: jnp.zeros(()),
        lambda: jnp.log(gammaincc(B + 1.0, jnp.maximum(mean, 1e-300))),
    )
