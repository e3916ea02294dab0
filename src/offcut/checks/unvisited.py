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
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped
from scipy import stats
from scipy.special import logsumexp

from offcut.augmentation.algorithm1 import Block, propose_until
from offcut.augmentation.joint import in_chunks
from offcut.base import MOST_REJECTED, Position
from offcut.driver.chains import Drawn
from offcut.models.data import Observed
from offcut.models.prior import Theta
from offcut.models.rejection import Proposed, RejectionModel
from offcut.numerics import keys
from offcut.numerics.arrays import exclusive_count, write_rows
from offcut.numerics.ess import effective_size
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Points

Count = Int[Array, ""]
Flag = Bool[Array, ""]
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
    return np.concatenate(chosen), np.concatenate(log_kept)


BLOCK = 4096
#: References that accept less than this are too costly to draw from.
LOWEST_ACCEPTANCE = 1 / 256
#: Of the points, this share comes from the prior's references: they cover what the run does not.
PRIOR_SHARE = 0.15
ITERATIONS = 100
RUN_REFERENCES, PRIOR_REFERENCES = 12, 8
FIRST_POINTS, MOST_POINTS = 2048, 16384
MOST_DRAWS = 4096


class Cloud(NamedTuple):
    """Points of the model, log r at each, and log of (true Z / Z by these points).

    The first ``size`` points count, behind them stands padding.
    """

    points: PyTree[Shaped[np.ndarray, "most ..."]]
    log_mixture: Float[np.ndarray, " most"]
    size: int
    log_scale: float


@dataclass(frozen=True)
class WhileItPays:
    """Until ``wanted`` are accepted, or fewer than LOWEST_ACCEPTANCE of what was proposed."""

    wanted: Count

    def start(self) -> tuple[Count, Count]:
        """Accepted and proposed."""
        return jnp.int32(0), jnp.int32(0)

    def unfinished(self, counts: tuple[Count, Count]) -> Flag:
        accepted, proposed = counts
        return (accepted < self.wanted) & (accepted >= LOWEST_ACCEPTANCE * proposed)

    def assign(self, counts: tuple[Count, Count]) -> None:
        return

    def cut(
        self, counts: tuple[Count, Count], turn: None, accepted: Bool[Array, " block"]
    ) -> tuple[Bool[Array, " block"], Int[Array, " block"], tuple[Count, Count]]:
        """None comes too late."""
        rank = counts[0] + exclusive_count(accepted)
        now = counts[0] + jnp.sum(accepted, dtype=jnp.int32)
        return jnp.ones_like(accepted), rank, (now, counts[1] + accepted.shape[0])


class Seen(NamedTuple):
    """What the first of the two programs gives.

    run : positions of the visited draws. prior : draws of theta, and their positions. points :
    accepted ones, from one reference after another. log_f : of all points at each reference.
    used, rates : points that were taken from a reference, and its acceptance rate.
    """

    run: Float[Array, "draws d"]
    prior: Theta
    prior_positions: Float[Array, "candidates d"]
    points: Points
    log_f: Float[Array, "references most"]
    used: Int[Array, " references"]
    rates: Float[Array, " references"]


def seen_from(model: RejectionModel) -> Callable[..., Seen]:
    """``f(key, visited, references, size)``: candidates, and points from references.

    ``visited`` and ``references`` are draws of the run, MOST_DRAWS and RUN_REFERENCES of them.
    """

    def look(key: KeyArray, visited: Theta, references: Theta, size: Count) -> Seen:
        key_prior, key_points = (jax.random.fold_in(keys.rolled(key), k) for k in (1, 2))

        def draw(key: KeyArray) -> tuple[Theta, Position]:
            theta = model.prior.sample(key)
            return theta, model.prior.unconstrain(theta)

        prior, prior_positions = jax.vmap(draw)(jax.random.split(key_prior, PRIOR_CANDIDATES))
        others = {name: prior[name][:PRIOR_REFERENCES] for name in references}
        thetas = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), others, references)
        points, used, rates = _points_from(model, key_points, thetas, size)
        over = jax.vmap(model.log_observed, (None, 0))
        return Seen(
            jax.vmap(model.prior.unconstrain)(visited),
            prior,
            prior_positions,
            points,
            jax.lax.map(lambda theta: over(theta, points), thetas),
            used,
            rates,
        )

    return look


def _points_from(
    model: RejectionModel, key: KeyArray, thetas: Theta, size: Count
) -> tuple[Points, Int[Array, " references"], Float[Array, " references"]]:
    """``size`` accepted points, those of a reference side by side; the last ones fill up."""
    references = PRIOR_REFERENCES + RUN_REFERENCES
    first = jax.tree.map(lambda a: a[0], thetas)
    like = jax.eval_shape(lambda: model.propose(key, first))
    rows = MOST_POINTS + 1
    buffer = jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), like)

    def one(carry: tuple[Points, Count], given: tuple[Count, Theta]) -> tuple[tuple, tuple]:
        points, filled = carry
        number, theta = given
        left = size - filled
        share = -(-left // (references - number))
        few = jnp.int32(PRIOR_SHARE * size / PRIOR_REFERENCES)
        wanted = jnp.where(number < PRIOR_REFERENCES, few, share)

        def propose(block: Count, turn: None) -> Proposed:
            own_key = jax.random.fold_in(jax.random.fold_in(key, number), block)
            return model.propose_block(own_key, theta, BLOCK)

        def collect(points: Points, block: Block) -> Points:
            kept = block.accepted & (block.rank < wanted)
            place = jnp.where(kept, filled + block.rank, MOST_POINTS)
            return write_rows(points, place, block.proposed.points)

        done = propose_until(
            propose, WhileItPays(wanted), jnp.int32(MOST_REJECTED), collect, points
        )
        accepted, proposed = done.counts
        # What a costly reference has left behind is written over by the next.
        used = jnp.where((accepted >= wanted) & (wanted > 0), wanted, 0)
        return (done.collected, filled + used), (used, accepted / proposed)

    numbers = jnp.arange(references, dtype=jnp.int32)
    (points, _), (used, rates) = jax.lax.scan(one, (buffer, jnp.int32(0)), (numbers, thetas))
    return jax.tree.map(lambda a: a[:MOST_POINTS], points), used, rates


def cloud_of(seen: Seen, size: int) -> Cloud | None:
    """The points with the density they have together; None where too few references accept."""
    used, rates = np.asarray(seen.used), np.asarray(seen.rates)
    kept = np.flatnonzero(used)
    if used.sum() < size or len(kept) < 2:
        return None
    # Shuffled, so that the first few of them are a sample of all.
    mixed = np.random.default_rng(size).permutation(size)
    mixed = np.concatenate([mixed, np.arange(size, MOST_POINTS)])
    points = jax.tree.map(lambda a: np.asarray(a)[mixed], seen.points)
    table = np.asarray(seen.log_f)[kept][:, mixed[:size]]
    log_share, start = np.log(used[kept] / size), np.log(rates[kept])
    log_z = _consistent(table, log_share, start)
    best = int(np.argmax(start))
    log_mixture = np.zeros(MOST_POINTS)
    log_mixture[:size] = logsumexp(table + (log_share - log_z)[:, None], axis=0)
    return Cloud(points, log_mixture, size, float(start[best] - log_z[best]))


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


class Terms(NamedTuple):
    """Sums over points, relative to the largest term so far: terms and their squares."""

    largest: Float[Array, ""]
    total: Float[Array, ""]
    squares: Float[Array, ""]


def likelihoods(model: RejectionModel) -> Callable[..., dict[str, PyTree]]:
    """``f(positions, count, data, points, log_mixture, size)``: densities and Z at each position.

    Of ``positions`` the first ``count`` are looked at, of the points the first ``size``.
    ``spread`` is the squared coefficient of variation of the terms of Z: over ``size`` points
    log Z has the variance spread / size, the log likelihood n^2 times that.
    """
    over = jax.vmap(model.log_observed, (None, 0))

    def at(
        position: Float[Array, " d"],
        data: Observed,
        points: Points,
        log_mixture: Float[Array, " most"],
        size: Count,
    ) -> dict[str, PyTree]:
        theta = model.prior.constrain(position, {})

        def add(so_far: Terms, start: Count) -> Terms:
            def part(a: Shaped[Array, " most *d"]) -> Shaped[Array, " few *d"]:
                return jax.lax.dynamic_slice_in_dim(a, start, FIRST_POINTS)

            there = start + jnp.arange(FIRST_POINTS) < size
            log_terms = over(theta, jax.tree.map(part, points)) - part(log_mixture)
            log_terms = jnp.where(there, log_terms, -jnp.inf)
            largest = jnp.maximum(so_far.largest, jnp.max(log_terms))
            above = jnp.where(jnp.isfinite(largest), largest, 0.0)
            # Denormal numbers are slow.
            terms = jnp.where(there, jnp.exp(jnp.maximum(log_terms - above, -60.0)), 0.0)
            shrink = jnp.where(so_far.total > 0, jnp.exp(so_far.largest - above), 0.0)
            return Terms(
                largest,
                shrink * so_far.total + jnp.sum(terms),
                shrink**2 * so_far.squares + jnp.sum(terms**2),
            )

        nothing = Terms(jnp.array(-jnp.inf), jnp.zeros(()), jnp.zeros(()))
        found = in_chunks(add, nothing, size, FIRST_POINTS)
        mean = found.total / size
        return {
            "theta": theta,
            "log_prior": model.prior.log_density(position, {}),
            "log_f": jnp.sum(jnp.where(data.there, over(theta, data.points), 0.0)),
            "log_z": found.largest + jnp.log(mean),
            "spread": jnp.maximum(found.squares / size - mean**2, 0.0) / mean**2,
        }

    def everywhere(
        positions: Float[Array, "m d"], count: Count, *given: PyTree
    ) -> dict[str, PyTree]:
        def together(start: Count) -> dict[str, PyTree]:
            few = jax.lax.dynamic_slice_in_dim(positions, start, BATCH)
            return jax.vmap(lambda position: at(position, *given))(few)

        def write(found: PyTree, start: Count) -> PyTree:
            return jax.tree.map(
                lambda a, b: jax.lax.dynamic_update_slice_in_dim(a, b, start, 0),
                found,
                together(start),
            )

        shapes = jax.eval_shape(together, jnp.int32(0))
        blank = jax.tree.map(lambda a: jnp.zeros((len(positions), *a.shape[1:]), a.dtype), shapes)
        return in_chunks(write, blank, count, BATCH)

    return everywhere


#: Candidates that are looked at side by side.
BATCH = 32
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
    rejected = drawn.stats["rejected"].ravel()
    rows = np.linspace(0, rejected.size - 1, MOST_DRAWS).astype(int)
    visited = {k: v.reshape(-1, *v.shape[2:])[rows] for k, v in drawn.draws.items()}
    order = np.argsort(rejected[rows], kind="stable")
    last = len(order) - 1
    quantiles = order[np.linspace(last, 0.05 * last, RUN_REFERENCES).astype(int)]
    size = int(np.clip(n * n // 2, FIRST_POINTS, MOST_POINTS))
    look = model.compiled("beyond points", seen_from(model), quick=True)
    references = {k: v[quantiles] for k, v in visited.items()}
    seen = look(keys.from_seed(seed), visited, references, np.int32(size))
    cloud = cloud_of(seen, size)
    if cloud is None:
        return Beyond(note="the model accepts too little where the run was")
    run = np.asarray(seen.run)[np.unique(rows, return_index=True)[1]]
    there = around(run, np.random.default_rng(abs(seed)))
    positions = np.concatenate([np.asarray(seen.prior_positions), there])
    most = 2.0 * max(int(rejected.max()), 1)
    edge = np.log(n) - np.log(n + most) - cloud.log_scale
    program = model.compiled("beyond likelihoods", likelihoods(model))
    log_proposed = None
    for count in sorted({FIRST_POINTS, size}):  # few points at first, then all where it matters
        padded = np.resize(positions, (CANDIDATES, positions.shape[1]))
        found = program(
            padded,
            np.int32(len(positions)),
            data._replace(covariates=(), hidden=None),
            cloud.points,
            cloud.log_mixture,
            np.int32(count),
        )
        found = jax.tree.map(lambda a: np.asarray(a)[: len(positions)], found)  # noqa: B023
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
