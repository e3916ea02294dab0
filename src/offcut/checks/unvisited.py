"""The share of the posterior where a run has not been.

A sweep moves the parameters as far as its rejections allow, so a chain is slow where |Y| is large,
and a budget keeps it away from there. If the prior allows such places and the data do not exclude
them, a run looks healthy and is wrong: every number in it is about the part that it visited. But
one can look there without going, where Z is known anywhere from points that were drawn elsewhere.
With f = q a and points x_j drawn from the model at references theta_k, a share p_k of them at each,

    Z(theta) = mean over j of f(x_j, theta) / r(x_j),   r = sum_k p_k f(., theta_k) / Z_k,

where the Z_k solve the same equation at the references (Meng & Wong 1996; Shirts & Chodera 2008).
No proposals at theta are needed, so an acceptance rate of 1e-20 is no obstacle. What counts is that
the *accepted* points look alike, and where data cannot tell two places apart, they do.

With Z comes the likelihood prod f(x_i, theta) / Z(theta)^n, at candidates from the prior and from
around the run at several spreads; importance sampling gives the share of the posterior where the
model would reject more than twice as often as the run ever saw.

It is an estimate with two errors. Candidates may miss what is there: then the share is too low, and
in many dimensions nothing is found. And Z has noise, n times as much in the likelihood: candidates
where its standard deviation exceeds one are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped
from scipy import stats
from scipy.special import logsumexp

from offcut.driver.chains import Drawn
from offcut.models.prior import HostTheta, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics import keys
from offcut.numerics.ess import effective_size
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Points

#: Positions of the run, of candidates, and one number for each.
Run = Float[np.ndarray, "draws d"]
Positions = Float[np.ndarray, "m d"]
Each = Float[np.ndarray, " m"]
CANDIDATES, PRIOR_CANDIDATES = 4096, 1638
SPREADS = (1.0, 3.0, 10.0, 30.0)  # of those around the run, in units of its covariance root
TAIL = 5.0  # degrees of freedom
#: Candidates of the second round, at the most, on either side of the edge.
SECOND_ROUND = 512
#: A weight smaller than the largest by this factor, in logs, is none.
NEGLIGIBLE = 15.0


def prior_candidates(
    model: RejectionModel, key: KeyArray
) -> tuple[dict[str, np.ndarray], Positions]:
    """Draws of theta from the prior, and where they are in unconstrained space."""

    def draw(key: KeyArray) -> tuple:
        theta = model.prior.sample(key)
        return theta, model.prior.unconstrain(theta)

    program = model.compiled("unvisited prior", jax.vmap(draw))
    theta, position = program(jax.random.split(key, PRIOR_CANDIDATES))
    return jax.tree.map(np.asarray, theta), np.asarray(position)


def _shape(run: Run) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Mean and covariance of the run; directions that did not move get a little."""
    size = run.shape[1]
    covariance = np.cov(run.T).reshape(size, size)
    return run.mean(axis=0), covariance + np.diag(1e-9 * np.diag(covariance) + 1e-300)


def around(run: Run, rng: np.random.Generator) -> Positions:
    """Candidates around the run, Student's t at several spreads."""
    mean, covariance = _shape(run)
    root = np.linalg.cholesky(covariance)
    count = (CANDIDATES - PRIOR_CANDIDATES) // len(SPREADS)
    parts = []
    for spread in SPREADS:
        heavy = np.sqrt(TAIL / rng.chisquare(TAIL, size=(count, 1)))
        parts.append(mean + spread * heavy * (rng.normal(size=(count, len(mean))) @ root.T))
    return np.concatenate(parts)


def log_density(log_prior: Each, positions: Positions, run: Run) -> Each:
    """log of the density that all candidates together were drawn from."""
    mean, covariance = _shape(run)
    parts = [log_prior + np.log(PRIOR_CANDIDATES)]
    count = (CANDIDATES - PRIOR_CANDIDATES) // len(SPREADS)
    for spread in SPREADS:
        student = stats.multivariate_t(mean, spread**2 * covariance, df=TAIL, allow_singular=True)
        parts.append(student.logpdf(positions).reshape(-1) + np.log(count))
    return logsumexp(parts, axis=0)


def thinned(
    hope: Each, far: Bool[np.ndarray, " m"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]:
    """Candidates that may matter, at random where there are many; log of the share kept."""
    chosen, log_kept = [], []
    for side in (far, ~far):
        matters = np.flatnonzero(side & (hope > hope.max() - NEGLIGIBLE))
        kept = rng.permutation(matters)[:SECOND_ROUND]
        chosen.append(kept)
        log_kept.append(np.full(len(kept), np.log(max(len(kept), 1) / max(len(matters), 1))))
    together = np.concatenate(chosen)
    spare = 2 * SECOND_ROUND - len(together)  # one shape for every run; a weight of 0
    padded = np.concatenate([together, np.zeros(spare, int)])
    return padded, np.concatenate([*log_kept, np.full(spare, np.inf)])


BLOCK = 4096
#: References that accept less than this are too costly to draw from.
LOWEST_ACCEPTANCE = 1 / 256
#: Of the points, this share comes from the prior's references: they cover what the run does not.
PRIOR_SHARE = 0.15
ITERATIONS = 100


class Cloud(NamedTuple):
    """Points of the model, log r at each, and log of (true Z / Z by these points)."""

    points: PyTree[Shaped[np.ndarray, "size ..."]]
    log_mixture: Float[np.ndarray, " size"]
    log_scale: float


def draw_points(
    model: RejectionModel,
    key: KeyArray,
    visited: list[HostTheta],
    others: list[HostTheta],
    size: int,
) -> Cloud | None:
    """``size`` accepted points from those references that accept enough; None where none does."""

    def propose(key: KeyArray, theta: Theta) -> tuple:
        proposed = model.propose_block(key, theta, BLOCK)
        return proposed.points, proposed.accepted

    program: Callable[..., tuple] = model.compiled("unvisited propose", propose)

    def accepted_points(theta: HostTheta, own_key: KeyArray, wanted: int) -> tuple[PyTree, float]:
        """``wanted`` points (fewer where they are too costly), and the acceptance rate."""
        parts, count, blocks = [], 0, 0
        while count < wanted and (blocks == 0 or count >= LOWEST_ACCEPTANCE * BLOCK * blocks):
            points, accepted = program(jax.random.fold_in(own_key, blocks), theta)
            chosen = np.asarray(accepted)
            parts.append(jax.tree.map(lambda a, chosen=chosen: np.asarray(a)[chosen], points))
            count, blocks = count + int(chosen.sum()), blocks + 1
        together = jax.tree.map(lambda *a: np.concatenate(a)[:wanted], *parts)
        return together, count / (BLOCK * blocks)

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
        "unvisited log_f",
        lambda theta, points: jax.vmap(model.log_observed, (None, 0))(theta, points),
    )
    table = np.stack([np.asarray(log_f(theta, points)) for theta in thetas])
    start = np.array(log_rates)
    log_z = _consistent(table, log_share, start)
    best = int(np.argmax(start))
    log_mixture = logsumexp(table + (log_share - log_z)[:, None], axis=0)
    return Cloud(points, log_mixture, float(start[best] - log_z[best]))


def _consistent(
    table: Float[np.ndarray, "k m"],
    log_share: Float[np.ndarray, " k"],
    log_z: Float[np.ndarray, " k"],
) -> Float[np.ndarray, " k"]:
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


def likelihoods(model: RejectionModel, n: int) -> Callable[..., dict[str, PyTree]]:
    """``f(positions, data, points, log_mixture)``: densities and Z at each position.

    ``spread`` is the squared coefficient of variation of the terms of Z: over ``size`` points
    log Z has the variance spread / size, the log likelihood n^2 times that.
    """

    def at(
        position: Float[Array, " d"],
        data: Points,
        points: Points,
        log_mixture: Float[Array, " size"],
    ) -> dict[str, PyTree]:
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

    def everywhere(positions: Float[Array, "m d"], *given: PyTree) -> dict[str, PyTree]:
        return jax.lax.map(lambda position: at(position, *given), positions, batch_size=32)

    return everywhere


RUN_REFERENCES, PRIOR_REFERENCES = 12, 8
FIRST_POINTS, MOST_POINTS = 2048, 16384
MOST_DRAWS = 4096
MOST_DIMENSIONS, MOST_OBSERVATIONS = 20, 1000
#: Fewer effective candidates than this say nothing.
FEW = 5.0
MOST_COLUMNS = 50


class Beyond(NamedTuple):
    """What was found; ``share`` is nan where no estimate was made, and ``note`` says why."""

    share: float = nan  # of the posterior, where |Y| would be more than twice the largest seen
    shift: float = nan  # of a posterior mean by that share, in its standard errors; the largest
    place: str = ""  # the likeliest theta there
    note: str = ""


def look_beyond(
    model: RejectionModel | None, data: PyTree, drawn: Drawn, n: int, seed: int
) -> Beyond:
    """Estimate the share of the posterior beyond a run; call it in float64.

    Parameters
    ----------
    model : RejectionModel or None
        What was sampled from; other models, None here, are not looked at.
    data : Observed
        As ``offcut.samplers.choice.observe`` gives them.
    drawn : Drawn
        The run.
    n : int
        Observations.
    seed : int
        The estimate depends on it alone, given the run.
    """
    reason = _reason_not_to(model, data, n)
    if model is None or reason:
        return Beyond(note=reason)
    key = keys.from_seed(seed)
    rejected = drawn.stats["rejected"].ravel()
    rows = np.unique(np.linspace(0, rejected.size - 1, MOST_DRAWS).astype(int))
    visited = {k: v.reshape(-1, *v.shape[2:])[rows] for k, v in drawn.draws.items()}
    unconstrain = model.compiled("unvisited position", jax.vmap(model.prior.unconstrain))
    run = np.asarray(unconstrain(visited))
    at_prior, from_prior = prior_candidates(model, jax.random.fold_in(key, 1))
    order = np.argsort(rejected[rows], kind="stable")
    last = len(order) - 1
    quantiles = order[np.linspace(last, 0.05 * last, RUN_REFERENCES).astype(int)]
    size = int(np.clip(n * n // 2, FIRST_POINTS, MOST_POINTS))
    points = draw_points(
        model,
        jax.random.fold_in(key, 2),
        [{k: v[i] for k, v in visited.items()} for i in quantiles],
        [{k: v[i] for k, v in at_prior.items()} for i in range(PRIOR_REFERENCES)],
        size,
    )
    if points is None:
        return Beyond(note="the model accepts too little where the run was")
    positions = np.concatenate([from_prior, around(run, np.random.default_rng(abs(seed)))])
    most = 2.0 * max(int(rejected.max()), 1)
    edge = np.log(n) - np.log(n + most) - points.log_scale
    program = model.compiled(("unvisited likelihoods", n), likelihoods(model, n))
    log_proposed = None
    for count in sorted({FIRST_POINTS, size}):  # few points at first, then all where it matters
        few = jax.tree.map(lambda a, count=count: a[:count], (points.points, points.log_mixture))
        found = jax.tree.map(np.asarray, program(positions, data.points, *few))
        if log_proposed is None:
            log_proposed = log_density(found["log_prior"], positions, run)
        with np.errstate(invalid="ignore"):
            noise = n**2 * found["spread"] / count
            log_weight = found["log_prior"] + found["log_f"] - n * found["log_z"] - log_proposed
        far = found["log_z"] < edge
        if count < size:
            hope = np.where(np.isfinite(log_weight), log_weight + 3 * np.sqrt(noise), -np.inf)
            chosen, log_thinned = thinned(hope, far, np.random.default_rng(1))
            positions, log_proposed = positions[chosen], log_proposed[chosen] + log_thinned
    usable = np.isfinite(log_weight) & (noise < 1)
    # Normal noise of that variance raises the mean by exp(variance / 2).
    log_weight = np.where(usable, log_weight - noise / 2, -np.inf)
    if not usable.any():
        return Beyond(note="too few points for so many observations")
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    if _effective(weight[~far]) < 10 * FEW:
        return Beyond(note="the candidates do not cover the run")
    if _effective(weight[far]) < FEW:
        return Beyond(0.0, 0.0)
    theta = {name: found["theta"][name][far] for name in drawn.draws}
    place = {name: theta[name][np.argmax(weight[far])] for name in model.prior.names}
    return Beyond(float(weight[far].sum()), _shift(drawn, theta, weight[far]), shown(place, 3))


def _reason_not_to(model: RejectionModel | None, data: PyTree, n: int) -> str:
    if model is None or model.prior.exact or model.prior.has_likelihood:
        return "not done for this kind of model"
    if data.covariates or data.hidden is not None:
        return "not done with covariates or hidden values"
    if n > MOST_OBSERVATIONS or model.prior.size > MOST_DIMENSIONS:
        return (
            f"not done for more than {MOST_OBSERVATIONS:,} observations or {MOST_DIMENSIONS} "
            "dimensions"
        )
    return ""


def _effective(weight: Each) -> float:
    total = float(weight.sum())
    return total**2 / float(np.sum(weight**2)) if total > 0 else 0.0


def _shift(drawn: Drawn, theta: dict[str, np.ndarray], weight: Each) -> float:
    """How far the mean of a parameter moves if what is far is added, in standard errors."""
    largest, columns = 0.0, 0
    for name, values in drawn.draws.items():
        for index in np.ndindex(values.shape[2:]):
            columns += 1
            if columns > MOST_COLUMNS:
                return largest
            series = values[(slice(None), slice(None), *index)].astype(float)
            error = float(series.std()) / np.sqrt(effective_size(series))
            there = theta[name][(slice(None), *index)]
            moved = float(np.sum(weight * (there - series.mean())))
            if error > 0 and np.isfinite(moved):
                largest = max(largest, abs(moved) / error)
    return largest
