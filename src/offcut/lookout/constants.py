r"""Z(theta) anywhere, from points that were drawn elsewhere.

With f = q a and points x_j drawn from the model at references theta_k, a share p_k of them at each,

    Z(theta) = mean over j of f(x_j, theta) / r(x_j),   r = sum_k p_k f(., theta_k) / Z_k,

where the Z_k solve the same equation at the references (Meng & Wong 1996; Shirts & Chodera 2008).
No proposals at theta are needed, so an acceptance rate of 1e-20 is no obstacle. What counts is that
the *accepted* points look alike, and where data cannot tell two places apart, they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from offcut.models.rejection import RejectionModel
from offcut.prior import Theta

BLOCK = 4096
#: References that accept less than this are too dear to draw from.
LOWEST_ACCEPTANCE = 1 / 256
#: Of the points, this share comes from the prior's references: they cover what the run does not.
PRIOR_SHARE = 0.15
ITERATIONS = 100


class Points(NamedTuple):
    """Points of the model, log r at each, and log of (true Z / Z by these points)."""

    points: Any
    log_mixture: np.ndarray
    log_scale: float


def draw_points(
    model: RejectionModel, key: jax.Array, visited: list[Theta], others: list[Theta], size: int
) -> Points | None:
    """``size`` accepted points from those references that accept enough; None where none does."""

    def propose(key: jax.Array, theta: Theta) -> tuple:
        proposed = model.propose_block(key, theta, BLOCK)
        return proposed.points, proposed.accepted

    program = model.compiled("lookout propose", propose)

    def accepted_points(theta: Theta, own_key: jax.Array, wanted: int) -> tuple[Any, float]:
        """``wanted`` points (fewer where they are too dear), and the acceptance rate."""
        parts, count, turn = [], 0, 0
        while count < wanted and (turn == 0 or count >= LOWEST_ACCEPTANCE * BLOCK * turn):
            points, accepted = program(jax.random.fold_in(own_key, turn), theta)
            chosen = np.asarray(accepted)
            parts.append(jax.tree.map(lambda a, chosen=chosen: np.asarray(a)[chosen], points))
            count, turn = count + int(chosen.sum()), turn + 1
        together = jax.tree.map(lambda *a: np.concatenate(a)[:wanted], *parts)
        return together, count / (BLOCK * turn)

    groups, thetas, log_rates = [], [], []
    left = size
    for number, theta in enumerate([*others, *visited]):  # the last ones fill up what is left
        if number < len(others):
            wanted = int(PRIOR_SHARE * size / len(others))
        else:
            wanted = -(-left // (len(others) + len(visited) - number))
        points, rate = accepted_points(theta, jax.random.fold_in(key, number), wanted)
        if len(jax.tree.leaves(points)[0]) == wanted > 0:
            groups.append((points, wanted))
            thetas.append(theta)
            log_rates.append(np.log(rate))
            left -= wanted
    if left > 0 or len(groups) < 2:
        return None
    # Shuffled, so that the first few of them are a sample of all.
    mixed = np.random.default_rng(size).permutation(size)
    points = jax.tree.map(lambda *a: np.concatenate(a)[mixed], *[part for part, _ in groups])
    log_share = np.log([count / size for _, count in groups])
    log_f = model.compiled(
        "lookout log_f",
        lambda theta, points: jax.vmap(model.log_observed, (None, 0))(theta, points),
    )
    table = np.stack([np.asarray(log_f(theta, points)) for theta in thetas])
    start = np.array(log_rates)
    log_z = _consistent(table, log_share, start)
    best = int(np.argmax(start))
    log_mixture = logsumexp(table + (log_share - log_z)[:, None], axis=0)
    return Points(points, log_mixture, float(start[best] - log_z[best]))


def _consistent(table: np.ndarray, log_share: np.ndarray, log_z: np.ndarray) -> np.ndarray:
    """The references' log Z, up to a common constant, by fixed-point iteration."""
    relative = np.exp(table - table.max(axis=0))  # f(x_j, theta_k), each x_j in its own units
    for _ in range(ITERATIONS):
        mixture = np.exp(log_share - log_z) @ relative
        new = np.log(relative @ (1 / mixture) / len(mixture))
        new += log_z[0] - new[0]
        done = np.max(np.abs(new - log_z)) < 1e-6
        log_z = new
        if done:
            break
    return log_z


def likelihoods(model: RejectionModel, n: int) -> Callable[..., dict[str, Any]]:
    """``f(positions, data, points, log_mixture)``: densities and Z at each position.

    ``spread`` is the squared coefficient of variation of the terms of Z: over ``size`` points
    log Z has the variance spread / size, the log likelihood n^2 times that.
    """

    def at(position: jax.Array, data: Any, points: Any, log_mixture: jax.Array) -> dict[str, Any]:
        theta = model.prior.constrain(position, {})
        over = jax.vmap(model.log_observed, (None, 0))
        log_terms = over(theta, points) - log_mixture
        largest = jnp.max(log_terms)
        terms = jnp.exp(jnp.maximum(log_terms - largest, -60.0))  # denormal numbers are slow
        mean = jnp.mean(terms)
        return {
            "theta": theta,
            "log_prior": model.prior.log_density(position, {}),
            "log_f": jnp.sum(over(theta, jax.tree.map(lambda a: a[:n], data))),
            "log_z": largest + jnp.log(mean),
            "spread": jnp.var(terms) / mean**2,
        }

    def everywhere(positions: Any, data: Any, points: Any, log_mixture: Any) -> dict[str, Any]:
        one = lambda position: at(position, data, points, log_mixture)  # noqa: E731
        return jax.lax.map(one, positions, batch_size=32)

    return everywhere
