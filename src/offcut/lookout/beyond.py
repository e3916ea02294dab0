"""The share of the posterior where a run has not been.

A sweep moves the parameters as far as its rejections allow, so a chain is slow where |Y| is large,
and a budget keeps it away from there. If the prior allows such places and the data do not exclude
them, a run looks healthy and is wrong: every number in it is about the part that it visited. But
one can look there without going. ``constants.py`` gives Z, and with it the likelihood
prod f(x_i, theta) / Z(theta)^n, at candidates from the prior and from around the run; importance
sampling gives the share of the posterior where the model would reject more than twice as often as
the run ever saw.

It is an estimate with two errors. Candidates may miss what is there: then the share is too low, and
in many dimensions nothing is found. And Z has noise, n times as much in the likelihood: candidates
where its standard deviation exceeds one are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from offcut import keys
from offcut.augmentation.joint import Observed
from offcut.budget import effective_size
from offcut.driver.run import Drawn
from offcut.lookout.candidates import around, log_density, prior_candidates, thinned
from offcut.lookout.constants import draw_points, likelihoods
from offcut.models.rejection import RejectionModel
from offcut.promises import shown

RUN_REFERENCES, PRIOR_REFERENCES = 12, 8
FIRST_POINTS, MOST_POINTS = 2048, 16384
MOST_DRAWS = 4096
MOST_DIMENSIONS, MOST_OBSERVATIONS = 20, 1000
#: Fewer effective candidates than this say nothing.
FEW = 5.0
MOST_COLUMNS = 50


class Beyond(NamedTuple):
    """What was found; ``share`` is nan where nobody looked, and ``note`` says why."""

    share: float  # of the posterior, where |Y| would be more than twice the largest seen
    shift: float  # of a posterior mean by that share, in its standard errors; the largest
    place: str  # the likeliest theta there
    note: str


def not_looked(note: str) -> Beyond:
    """Nobody looked."""
    return Beyond(float("nan"), float("nan"), "", note)


def look_beyond(model: Any, data: Observed, drawn: Drawn, n: int, seed: int) -> Beyond:
    """Estimate the share of the posterior beyond a run; call it in float64.

    Parameters
    ----------
    model : RejectionModel
        What was sampled from; other models are not looked at.
    data : Observed
        As ``offcut.observations.observe`` gives them.
    drawn : Drawn
        The run.
    n : int
        Observations.
    seed : int
        The estimate depends on it alone, given the run.
    """
    reason = _reason_not_to(model, data, n)
    if reason:
        return not_looked(reason)
    key = keys.from_seed(seed)
    rejected = drawn.stats["rejected"].ravel()
    rows = np.unique(np.linspace(0, rejected.size - 1, MOST_DRAWS).astype(int))
    visited = {k: v.reshape(-1, *v.shape[2:])[rows] for k, v in drawn.draws.items()}
    run = np.asarray(model.compiled("lookout position", jax.vmap(model.prior.unconstrain))(visited))
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
        return not_looked("the model accepts too little where the run was")
    positions = np.concatenate([from_prior, around(run, np.random.default_rng(abs(seed)))])
    most = 2.0 * max(int(rejected.max()), 1)
    edge = np.log(n) - np.log(n + most) - points.log_scale
    program = model.compiled(("lookout likelihoods", n), likelihoods(model, n))
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
        return not_looked("too few points for so many observations")
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    if _effective(weight[~far]) < 10 * FEW:
        return not_looked("the candidates do not cover the run")
    if _effective(weight[far]) < FEW:
        return Beyond(0.0, 0.0, "", "")
    theta = {name: found["theta"][name][far] for name in drawn.draws}
    place = {name: theta[name][np.argmax(weight[far])] for name in model.prior.names}
    return Beyond(float(weight[far].sum()), _shift(drawn, theta, weight[far]), shown(place, 3), "")


def _reason_not_to(model: Any, data: Any, n: int) -> str:
    if not isinstance(model, RejectionModel) or model.prior.exact or model.prior.has_likelihood:
        return "not done for this kind of model"
    if data.covariates or getattr(data, "hidden", None) is not None:
        return "not done with covariates or hidden values"
    if n > MOST_OBSERVATIONS or model.prior.size > MOST_DIMENSIONS:
        return (
            f"not done for more than {MOST_OBSERVATIONS:,} observations or {MOST_DIMENSIONS} "
            "dimensions"
        )
    return ""


def _effective(weight: np.ndarray) -> float:
    total = float(weight.sum())
    return total**2 / float(np.sum(weight**2)) if total > 0 else 0.0


def _shift(drawn: Drawn, theta: dict[str, np.ndarray], weight: np.ndarray) -> float:
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
