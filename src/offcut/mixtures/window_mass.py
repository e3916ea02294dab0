r"""The mass of a normal component in the window: Z_k = ∫ a(x) N(x; mu_k, Sigma_k) dx.

For a box with limits l and u, Genz's (1992) separation of variables: with Sigma = L Lᵀ the
coordinates are drawn one after the other within their limits,

    Z = E prod_i [Phi(b_i) - Phi(a_i)],  a_i = (l_i - mu_i - sum_{j<i} L_ij t_j) / L_ii, b_i alike,
    t_i = Phi⁻¹(Phi(a_i) + U_i [Phi(b_i) - Phi(a_i)]),

a smooth integrand, so that a rank-1 lattice in d - 1 dimensions gives many digits also where Z is
tiny; d = 1 is exact. For any other window see ``importance``. The lattice is shifted at random for
every draw, so each estimate is unbiased (Cranley & Patterson 1976). The heaviest components get
many points, the others, which together hold little, a few.

A density divides by Z, so an estimate of 0 must not be used: a mass that the points did not resolve
is -inf here, and its component is left out of densities in the window, the others' weights being
raised to sum to one. How much was left out is recorded with every draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri

from offcut.mixtures.base import Components
from offcut.regions import Box

#: The heaviest components, and lattice points for each of them and for each of the others; for
#: boxes, and for windows of which nothing is known but what lies inside.
HEAVY = 16
BOX_POINTS = (64, 8)
OTHER_POINTS = (2048, 256)
#: A smaller mass is not resolved: it could not be recorded as a number.
LEAST = 1e-300


class Masses(NamedTuple):
    """log Z_k, -inf where it was not resolved, and its relative standard error."""

    log: jax.Array
    error: jax.Array


def lattice(points: int, d: int) -> np.ndarray:
    """Richtmyer's rank-1 lattice: multiples of square roots of primes, modulo 1."""
    primes = [p for p in range(2, 8 * d + 20) if all(p % q for q in range(2, int(p**0.5) + 1))][:d]
    return np.arange(1, points + 1)[:, None] * np.sqrt(np.array(primes, float))[None, :] % 1.0


def shifted(key: jax.Array, points: np.ndarray) -> jax.Array:
    """The lattice shifted at random, folded so that its ends meet (the baker's transformation)."""
    moved = (jnp.asarray(points) + jax.random.uniform(key, (points.shape[1],))[None, :]) % 1.0
    folded = 1.0 - jnp.abs(2.0 * moved - 1.0)
    return jnp.clip(folded, 1e-15, 1.0 - 1e-15)


def log_masses(
    key: jax.Array,
    components: Components,
    log_weights: jax.Array,
    mass: Callable[[jax.Array, Components, int], Masses],
    points: tuple[int, int],
) -> Masses:
    """Of all components, where ``mass(key, components, points)`` takes so many points for each."""
    order = jnp.argsort(-log_weights)
    found = Masses(jnp.zeros(order.shape[0]), jnp.zeros(order.shape[0]))
    for part, number in zip((order[:HEAVY], order[HEAVY:]), points, strict=True):
        if part.shape[0]:
            own = mass(key, Components(components.means[part], components.roots[part]), number)
            found = Masses(found.log.at[part].set(own.log), found.error.at[part].set(own.error))
    return found


def as_masses(z: jax.Array) -> Masses:
    """Masses that are known to many digits."""
    return Masses(jnp.where(z > LEAST, jnp.log(z), -jnp.inf), jnp.zeros_like(z))


def box_mass(
    key: jax.Array, components: Components, points: int, lower: jax.Array, upper: jax.Array
) -> jax.Array:
    """Z_k, (K,), in the box from ``lower`` to ``upper``."""
    K, d = components.means.shape
    uniforms = shifted(key, lattice(points if d > 1 else 1, max(d - 1, 1)))
    uniforms = jnp.pad(uniforms, ((0, 0), (0, d - uniforms.shape[1])), constant_values=0.5)

    def coordinate(state: tuple, at: tuple) -> tuple:
        mass, drawn = state
        i, mean, row, uniform, limits = at
        centre = mean[:, None] + jnp.einsum("kj,kjm->km", row, drawn)  # later drawn are still 0
        width = row[:, i, None]
        low, high, flipped = _towards_the_tail(*((limit - centre) / width for limit in limits))
        p_low, p_high = _phi(low), _phi(high)
        share = jnp.where(flipped, 1.0 - uniform, uniform)
        p = jnp.clip(p_low + share * (p_high - p_low), LEAST, 1.0 - 1e-16)
        t = jnp.where(flipped, -1.0, 1.0) * ndtri(p)
        return (mass * (p_high - p_low), drawn.at[:, i].set(t)), None

    # A loop over coordinates rather than its unrolling: compiled once, not d times.
    rows = jnp.moveaxis(components.roots, 1, 0)
    start = (jnp.ones((K, uniforms.shape[0])), jnp.zeros((K, d, uniforms.shape[0])))
    sites = (jnp.arange(d), components.means.T, rows, uniforms.T, (lower, upper))
    (mass, _), _ = lax.scan(coordinate, start, sites)
    return jnp.mean(mass, axis=1)


def _phi(x: jax.Array) -> jax.Array:
    """The normal distribution function, a fifth of the time of ``ndtr``."""
    return 0.5 * lax.erfc(-x * np.sqrt(0.5))


def _towards_the_tail(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The interval or its mirror image, whichever has the precise Phi; whether mirrored."""
    flipped = a > 0
    return jnp.where(flipped, -b, a), jnp.where(flipped, -a, b), flipped


def any_mass(
    key: jax.Array,
    components: Components,
    points: int,
    probability: Callable[[jax.Array], jax.Array],
) -> jax.Array:
    """Z_k, (K,), as the mean over normal points; ``probability(points (m, d))`` says what passes.

    Nothing to divide by: where no point passes it is 0.
    """
    K, d = components.means.shape
    normals = ndtri(shifted(key, lattice(points, d)))
    drawn = components.means[:, None, :] + jnp.einsum("kij,mj->kmi", components.roots, normals)
    return jnp.mean(probability(drawn.reshape(-1, d)).reshape(K, -1), axis=1)


def as_box(region: Any, d: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Limits of a region that is a box, else None."""
    if not isinstance(region, Box):
        return None
    lower = np.broadcast_to(np.asarray(region.lower, float), (d,))
    upper = np.broadcast_to(np.asarray(region.upper, float), (d,))
    return lower, upper
