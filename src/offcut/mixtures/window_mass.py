"""The mass of a normal component in the window: Z_k = ∫ a(x) N(x; mu_k, Sigma_k) dx.

For a box with limits l and u, Genz's (1992) separation of variables: with Sigma = L Lᵀ the
coordinates are drawn one after the other within their limits,

    Z = E prod_i [Phi(b_i) - Phi(a_i)],  a_i = (l_i - mu_i - sum_{j<i} L_ij t_j) / L_ii, b_i alike,
    t_i = Phi⁻¹(Phi(a_i) + U_i [Phi(b_i) - Phi(a_i)]),

a smooth integrand, so that a rank-1 lattice in d - 1 dimensions gives many digits also where Z is
tiny; d = 1 is exact. For any other window see below. The lattice is shifted at random for
every draw, so each estimate is unbiased (Cranley & Patterson 1976). The heaviest components get
many points, the others, which together hold little, a few.

A density divides by Z, so an estimate of 0 must not be used: a mass that the points did not resolve
is -inf here, and its component is left out of densities in the window, the others' weights being
raised to sum to one. How much was left out is recorded with every draw.

Where nothing is known of the window but what lies inside, Z = ∫ a(x) N(x) dx by importance
sampling. Where little of the component passes, its own points say nothing, so half of the points
come from a second normal q that follows the part that does: with g = (½ N + ½ q), Z = E_g[a N / g],
and no weight N / g exceeds 2 (a defensive mixture, Hesterberg 1995; Owen & Zhou 2000). q begins
with the events, which are inside the window, weighted by N, and is fitted in a few rounds to the
points that passed, weighted by a N / g to a power at which enough of them count (the cross-entropy
method with tempering, Rubinstein & Kroese 2004). The last round, with lattice points of its own, is
the estimate: unbiased, whatever q is.

Everything is in coordinates in which the component is standard normal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float

from offcut.mixtures.data import MixtureData
from offcut.numerics.normal import Components
from offcut.numerics.types import KeyArray

#: The heaviest components, and lattice points for each of them and for each of the others; for
#: boxes, and for windows of which nothing is known but what lies inside.
HEAVY = 16
BOX_POINTS = (64, 8)
OTHER_POINTS = (2048, 256)
#: A smaller mass is not resolved: it could not be recorded as a number.
LEAST = 1e-300


class Masses(NamedTuple):
    """log Z_k, -inf where it was not resolved, and its relative standard error."""

    log: Float[Array, "*windows K"]
    error: Float[Array, "*windows K"]


#: Of points, how probably each passes.
Probability = Callable[[Float[Array, "m d"]], Float[Array, " m"]]


def lattice(points: int, d: int) -> Float[np.ndarray, "points d"]:
    """Richtmyer's rank-1 lattice: multiples of square roots of primes, modulo 1."""
    primes = [p for p in range(2, 8 * d + 20) if all(p % q for q in range(2, int(p**0.5) + 1))][:d]
    return np.arange(1, points + 1)[:, None] * np.sqrt(np.array(primes, float))[None, :] % 1.0


def shifted(key: KeyArray, points: Float[np.ndarray, "m d"]) -> Float[Array, "m d"]:
    """The lattice shifted at random, folded so that its ends meet (the baker's transformation)."""
    moved = (jnp.asarray(points) + jax.random.uniform(key, (points.shape[1],))[None, :]) % 1.0
    folded = 1.0 - jnp.abs(2.0 * moved - 1.0)
    return jnp.clip(folded, 1e-15, 1.0 - 1e-15)


def log_masses(
    key: KeyArray,
    components: Components,
    log_weights: Float[Array, " K"],
    mass: Callable[[KeyArray, Components, int], Masses],
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


def as_masses(z: Float[Array, " K"]) -> Masses:
    """Masses that are known to many digits."""
    return Masses(jnp.where(z > LEAST, jnp.log(z), -jnp.inf), jnp.zeros_like(z))


def box_mass(
    key: KeyArray,
    components: Components,
    points: int,
    lower: Float[Array, " d"],
    upper: Float[Array, " d"],
) -> Float[Array, " K"]:
    """Z_k in the box from ``lower`` to ``upper``."""
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


def _phi(x: Float[Array, "K m"]) -> Float[Array, "K m"]:
    """The normal distribution function, a fifth of the time of ``ndtr``."""
    return 0.5 * lax.erfc(-x * np.sqrt(0.5))


def _towards_the_tail(
    a: Float[Array, "K m"], b: Float[Array, "K m"]
) -> tuple[Float[Array, "K m"], Float[Array, "K m"], Bool[Array, "K m"]]:
    """The interval or its mirror image, whichever has the precise Phi; whether mirrored."""
    flipped = a > 0
    return jnp.where(flipped, -b, a), jnp.where(flipped, -a, b), flipped


def any_mass(
    key: KeyArray,
    components: Components,
    points: int,
    probability: Probability,
) -> Float[Array, " K"]:
    """Z_k as the mean over normal points.

    Nothing to divide by: where no point passes it is 0.
    """
    K, d = components.means.shape
    normals = ndtri(shifted(key, lattice(points, d)))
    drawn = components.means[:, None, :] + jnp.einsum("kij,mj->kmi", components.roots, normals)
    return jnp.mean(probability(drawn.reshape(-1, d)).reshape(K, -1), axis=1)


#: Events that a proposal begins with.
ANCHORS = 128
#: Rounds in which it is fitted, each with this part of the points of the last, or so many.
ROUNDS, PART, FEWEST = 5, 8, 64
#: Powers that weights are taken to: the first at which enough points count.
POWERS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
#: The proposal is wider than what it follows, by this factor of the covariance.
WIDER = 1.3
#: With fewer points that count a mass is not resolved.
LEAST_POINTS = 10.0


def anchors(data: MixtureData, group: int | None) -> Float[Array, "m d"]:
    """Some events of a group (None for all), evenly spread over their rows."""
    real = jnp.arange(data.x.shape[1]) < data.n
    own = real if group is None else real & (data.group == group)
    number = jnp.cumsum(own)
    wanted = (jnp.arange(ANCHORS) * number[-1]) // ANCHORS + 1
    return data.x[:, jnp.searchsorted(number, wanted)].T


def importance_mass(
    key: KeyArray,
    components: Components,
    points: int,
    probability: Probability,
    events: Float[Array, "anchors d"],
) -> Masses:
    """Of each component; the ``events`` are some that pass."""
    K, d = components.means.shape
    inverse = jax.vmap(lambda root: solve_triangular(root, jnp.eye(d), lower=True))(
        components.roots
    )
    away = events[None, :, :] - components.means[:, None, :]
    standardised = jnp.einsum("kij,kaj->kai", inverse, away)
    fewer = max(points // PART, FEWEST, 4 * (d + 1))

    def weigh(
        key: KeyArray, proposal: Components, number: int
    ) -> tuple[Float[Array, "K m d"], Float[Array, "K m"]]:
        """Points, half from the component and half from the proposal, with log aN/g."""
        normals = [ndtri(shifted(own, lattice(number // 2, d))) for own in jax.random.split(key, 2)]
        followed = proposal.means[:, None, :] + jnp.einsum(
            "kij,mj->kmi", proposal.roots, normals[1]
        )
        z = jnp.concatenate(
            [jnp.broadcast_to(normals[0], (K, *normals[0].shape)), followed], axis=1
        )
        log_own = _log_normal(z, _standard(K, d))
        log_g = jnp.logaddexp(log_own, _log_normal(z, proposal)) - np.log(2.0)
        x = components.means[:, None, :] + jnp.einsum("kij,kmj->kmi", components.roots, z)
        passed = probability(x.reshape(-1, d)).reshape(K, -1)
        return z, jnp.log(passed) + log_own - log_g

    def improve(proposal: Components, key: KeyArray) -> tuple[Components, None]:
        z, log_w = weigh(key, proposal, fewer)
        return _fitted(z, log_w, proposal), None

    keys = jax.random.split(key, ROUNDS + 1)
    proposal, _ = lax.scan(improve, _begun(standardised), keys[:ROUNDS])
    _, log_w = weigh(keys[ROUNDS], proposal, points)
    most = jnp.max(log_w, axis=1)
    weights = jnp.exp(log_w - jnp.where(jnp.isneginf(most), 0.0, most)[:, None])
    log_z = most + jnp.log(jnp.mean(weights, axis=1))
    counting = _counting(weights)
    error = jnp.sqrt(jnp.maximum(1.0 / jnp.maximum(counting, 1.0) - 1.0 / log_w.shape[1], 0.0))
    resolved = (counting >= LEAST_POINTS) & (log_z > np.log(LEAST))
    return Masses(jnp.where(resolved, log_z, -jnp.inf), jnp.where(resolved, error, 0.0))


def _begun(standardised: Float[Array, "K anchors d"]) -> Components:
    """The events weighted by the component, with part of the spread of all of them."""
    K, _, d = standardised.shape
    fitted = _fitted(standardised, -0.5 * jnp.sum(standardised**2, axis=2), _standard(K, d))
    spread = jnp.var(standardised, axis=1)
    # One event has no spread; a tenth of the component's own is a beginning.
    added = jnp.where(spread > 1e-12, 0.05 * spread, 0.01)
    covariances = jnp.einsum("kij,klj->kil", fitted.roots, fitted.roots) + _diagonal(added)
    return Components(fitted.means, jnp.linalg.cholesky(covariances))


def _fitted(z: Float[Array, "K m d"], log_w: Float[Array, "K m"], before: Components) -> Components:
    """Mean and covariance of points with log weights; as before where none pass.

    Weights are taken to the largest power at which enough points count for a covariance; where
    there are too few even so, part of the covariance from before is kept.
    """
    m, d = z.shape[1:]
    most = jnp.max(log_w, axis=1)
    some = ~jnp.isneginf(most)
    below = log_w - jnp.where(some, most, 0.0)[:, None]
    powers = jnp.array(POWERS)[:, None, None]
    raised = jnp.where(jnp.isneginf(below)[None], 0.0, jnp.exp(powers * below[None]))
    number = _counting(raised)
    enough = jnp.minimum(number[-1] - 0.5, max(m / 8, 2.0 * (d + 1)))
    power = jnp.argmax(number >= enough[None], axis=0)
    chosen = jnp.arange(z.shape[0])
    counting = jnp.maximum(number[power, chosen], 1.0)
    weights = raised[power, chosen]
    weights /= jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1e-300)
    means = jnp.einsum("km,kmi->ki", weights, z)
    away = z - means[:, None, :]
    covariances = WIDER * jnp.einsum("km,kmi,kmj->kij", weights, away, away)
    variances = jnp.diagonal(covariances, axis1=1, axis2=2)
    covariances += _diagonal(variances * ((d + 1) / counting)[:, None] + 1e-12)
    kept = jnp.where(counting < 2.0 * (d + 1), 0.1, 0.0)[:, None, None]
    covariances += kept * jnp.einsum("kij,klj->kil", before.roots, before.roots)
    return Components(
        jnp.where(some[:, None], means, before.means),
        jnp.where(some[:, None, None], jnp.linalg.cholesky(covariances), before.roots),
    )


def _counting(weights: Float[Array, "*sets m"]) -> Float[Array, "*sets"]:
    """Effective number of points along the last axis, (sum w)² / sum w²; 0 where all are 0."""
    squares = jnp.sum(weights**2, axis=-1)
    return jnp.where(squares > 0, jnp.sum(weights, axis=-1) ** 2 / squares, 0.0)


def _log_normal(z: Float[Array, "K m d"], normal: Components) -> Float[Array, "K m"]:
    """log densities of points of each."""
    d = z.shape[2]
    inverse = jax.vmap(lambda root: solve_triangular(root, jnp.eye(d), lower=True))(normal.roots)
    away = jnp.einsum("kij,kmj->kmi", inverse, z - normal.means[:, None, :])
    log_root = jnp.sum(jnp.log(jnp.diagonal(normal.roots, axis1=1, axis2=2)), axis=1)
    return -0.5 * jnp.sum(away**2, axis=2) - (log_root + 0.5 * d * np.log(2 * np.pi))[:, None]


def _standard(K: int, d: int) -> Components:
    return Components(jnp.zeros((K, d)), jnp.broadcast_to(jnp.eye(d), (K, d, d)))


def _diagonal(values: Float[Array, "K d"]) -> Float[Array, "K d d"]:
    """Matrices with these on their diagonals."""
    return values[:, :, None] * jnp.eye(values.shape[1])[None, :, :]
