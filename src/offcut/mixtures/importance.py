r"""The mass of a normal component in a window of which nothing is known but what lies inside.

Z = ∫ a(x) N(x) dx by importance sampling. Where little of the component passes, its own points say
nothing, so half of the points come from a second normal q that follows the part that does: with
g = (½ N + ½ q), Z = E_g[a N / g], and no weight N / g exceeds 2 (a defensive mixture, Hesterberg
1995; Owen & Zhou 2000). q begins with the events, which are inside the window, weighted by N, and
is fitted in a few rounds to the points that passed, weighted by a N / g to a power at which enough
of them count (the cross-entropy method with tempering, Rubinstein & Kroese 2004). The last round,
with lattice points of its own, is the estimate: unbiased, whatever q is.

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

from offcut.mixtures.base import Components
from offcut.mixtures.layout import MixtureData
from offcut.mixtures.window_mass import LEAST, Masses, lattice, shifted

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


class Proposal(NamedTuple):
    """Normals: means (K, d) and lower triangular roots (K, d, d)."""

    means: jax.Array
    roots: jax.Array


def anchors(data: MixtureData, group: int | None) -> jax.Array:
    """Some events of a group (None for all), evenly spread over their rows, (ANCHORS, d)."""
    real = jnp.arange(data.x.shape[1]) < data.n
    own = real if group is None else real & (data.group == group)
    number = jnp.cumsum(own)
    wanted = (jnp.arange(ANCHORS) * number[-1]) // ANCHORS + 1
    return data.x[:, jnp.searchsorted(number, wanted)].T


def importance_mass(
    key: jax.Array,
    components: Components,
    points: int,
    probability: Callable[[jax.Array], jax.Array],
    events: jax.Array,
) -> Masses:
    """Of each component; ``probability(points (m, d))`` says what passes, ``events`` (A, d) do."""
    K, d = components.means.shape
    inverse = jax.vmap(lambda root: solve_triangular(root, jnp.eye(d), lower=True))(
        components.roots
    )
    away = events[None, :, :] - components.means[:, None, :]
    standing = jnp.einsum("kij,kaj->kai", inverse, away)
    fewer = max(points // PART, FEWEST, 4 * (d + 1))

    def weigh(key: jax.Array, proposal: Proposal, number: int) -> tuple[jax.Array, jax.Array]:
        """Points (K, m, d), half from the component and half from the proposal, with log aN/g."""
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

    def improve(proposal: Proposal, key: jax.Array) -> tuple[Proposal, None]:
        z, log_w = weigh(key, proposal, fewer)
        return _fitted(z, log_w, proposal), None

    keys = jax.random.split(key, ROUNDS + 1)
    proposal, _ = lax.scan(improve, _begun(standing), keys[:ROUNDS])
    _, log_w = weigh(keys[ROUNDS], proposal, points)
    most = jnp.max(log_w, axis=1)
    weights = jnp.exp(log_w - jnp.where(jnp.isneginf(most), 0.0, most)[:, None])
    log_z = most + jnp.log(jnp.mean(weights, axis=1))
    counting = _counting(weights)
    error = jnp.sqrt(jnp.maximum(1.0 / jnp.maximum(counting, 1.0) - 1.0 / log_w.shape[1], 0.0))
    resolved = (counting >= LEAST_POINTS) & (log_z > np.log(LEAST))
    return Masses(jnp.where(resolved, log_z, -jnp.inf), jnp.where(resolved, error, 0.0))


def _begun(standing: jax.Array) -> Proposal:
    """The events (K, A, d) weighted by the component, with part of the spread of all of them."""
    K, _, d = standing.shape
    fitted = _fitted(standing, -0.5 * jnp.sum(standing**2, axis=2), _standard(K, d))
    spread = jnp.var(standing, axis=1)
    # One event has no spread; a tenth of the component's own is a beginning.
    added = jnp.where(spread > 1e-12, 0.05 * spread, 0.01)
    covariances = jnp.einsum("kij,klj->kil", fitted.roots, fitted.roots) + _diagonal(added)
    return Proposal(fitted.means, jnp.linalg.cholesky(covariances))


def _fitted(z: jax.Array, log_w: jax.Array, before: Proposal) -> Proposal:
    """Mean and covariance of points (K, m, d) with log weights (K, m); as before where none pass.

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
    return Proposal(
        jnp.where(some[:, None], means, before.means),
        jnp.where(some[:, None, None], jnp.linalg.cholesky(covariances), before.roots),
    )


def _counting(weights: jax.Array) -> jax.Array:
    """Effective number of points along the last axis, (sum w)² / sum w²; 0 where all are 0."""
    squares = jnp.sum(weights**2, axis=-1)
    return jnp.where(squares > 0, jnp.sum(weights, axis=-1) ** 2 / squares, 0.0)


def _log_normal(z: jax.Array, normal: Proposal) -> jax.Array:
    """log densities (K, m) of points (K, m, d)."""
    d = z.shape[2]
    inverse = jax.vmap(lambda root: solve_triangular(root, jnp.eye(d), lower=True))(normal.roots)
    away = jnp.einsum("kij,kmj->kmi", inverse, z - normal.means[:, None, :])
    log_root = jnp.sum(jnp.log(jnp.diagonal(normal.roots, axis1=1, axis2=2)), axis=1)
    return -0.5 * jnp.sum(away**2, axis=2) - (log_root + 0.5 * d * np.log(2 * np.pi))[:, None]


def _standard(K: int, d: int) -> Proposal:
    return Proposal(jnp.zeros((K, d)), jnp.broadcast_to(jnp.eye(d), (K, d, d)))


def _diagonal(values: jax.Array) -> jax.Array:
    """(K, d, d) from (K, d)."""
    return values[:, :, None] * jnp.eye(values.shape[1])[None, :, :]
