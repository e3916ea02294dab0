"""Looks around every run: at the data and the prior before it, at what it left out after it.

Cheap ones, which decide whether a costly one is worth it (``prior_rates.py``, ``unvisited.py``).

Many observations with exactly the same extreme value: censored, or just so? Values *beyond* a limit
that were never recorded are truncated: that is what a window says. Values beyond a limit that were
recorded *as the limit* are censored: they are there, and they pile up. The two need different
models, and data cannot say which is meant; but a pile can be seen, and asked about.
"""

from __future__ import annotations

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, PyTree

from offcut.base import Doubt, Prepared
from offcut.checks import unvisited
from offcut.checks.prior_rates import FEW
from offcut.driver.budget import warmup_budget
from offcut.driver.chains import Drawn
from offcut.models.data import Observed
from offcut.models.recording import Clamped
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import from_seed
from offcut.regions.region import Region
from offcut.samplers.algorithm2 import ModelSampler

#: A pile has at least so many values, and so many times the largest tie elsewhere: rounded data
#: have ties everywhere.
SMALLEST_PILE = 3
ABOVE_OTHER_TIES = 3
#: What a look before every run may cost.
QUICK_DRAWS, QUICK_REJECTIONS = 100, 2048
#: Sweeps of all chains from which on that look is worth its second.
LONG_RUN = 4000
#: With less missing information than this a chain forgets within twenty sweeps where it was:
#: there is nothing to get stuck in. (Runs that were stuck had 0.97 and more.)
WORTH_A_LOOK = 0.9
#: A shorter run is a trial; a look would take longer than the run.
ENOUGH_DRAWS = 1000


def pile_ups(model: RejectionModel, data: Observed, n: int) -> list[Doubt]:
    """A question about each pile-up at the end of a column, or at limits given as covariates."""
    recorded = jax.tree.map(lambda a: np.asarray(a)[:n], model.recorded(data.points))
    known = np.ones(n, bool)
    if data.hidden is not None and data.hidden.whole is not None:
        known[data.hidden.whole.rows[: int(data.hidden.whole.count)]] = False
    edges = model.inside.edges() if isinstance(model.inside, Region) else []
    doubts = []
    for leaf in jax.tree.leaves(recorded):
        if leaf.dtype.kind != "f":
            continue
        columns = leaf.reshape(n, -1)
        for index in range(columns.shape[1]):
            values = columns[known, index]
            if isinstance(model.censored, Clamped) and _is_hidden(data, index):
                continue
            name = "" if leaf.ndim == 1 else f" in coordinate {index}"
            limits = [limit for where, limit in edges if where in (None, index)]
            for value, count in piles(values, limits):
                doubts.append(_question(value, count, n, name, bool(value >= np.median(values))))
    return doubts + _at_own_limits(model, recorded, data.covariates, known, n)


def _is_hidden(data: Observed, index: int) -> bool:
    """Whether the model knows that this coordinate is clamped."""
    parts = None if data.hidden is None else data.hidden.parts
    return parts is not None and bool(np.asarray(parts.free)[:, index].any())


def piles(values: Float[np.ndarray, " n"], limits: list[float]) -> list[tuple[float, int]]:
    """Extreme values, or limits of the window, that occur far more often than others do.

    >>> piles(np.array([0.1, 0.2, 0.3, 1.0, 1.0, 1.0, 1.0]), [])
    [(1.0, 4)]
    >>> piles(np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0]), [])  # rounded
    []
    """
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size < 2:
        return []
    suspects = [v for v in {distinct[0], distinct[-1], *limits} if v in distinct]
    elsewhere = counts[~np.isin(distinct, suspects)]
    ties = int(elsewhere.max()) if elsewhere.size else 1
    least = max(SMALLEST_PILE, ABOVE_OTHER_TIES * ties)
    found = [(float(v), int(counts[distinct == v][0])) for v in sorted(suspects)]
    return [(value, count) for value, count in found if count >= least]


def _question(value: float, count: int, n: int, place: str, upper: bool) -> Doubt:
    side, beyond = ("upper", "above") if upper else ("lower", "below")
    return Doubt(
        "pile-up",
        f"{count} of {n} observations are exactly {value:g}{place}. Is {value:g} what was written "
        f"down for every value {beyond} it? Then these are censored: say "
        f"censored=offcut.Clamped({side}={value:g}) in the model, with a window that includes what "
        f"lies {beyond}. (Values that were lost without a trace are truncated; that is what the "
        "window is for.) If it is their true value, all is well.",
    )


def _at_own_limits(
    model: RejectionModel,
    recorded: PyTree,
    covariates: tuple,
    known: Bool[np.ndarray, " n"],
    n: int,
) -> list[Doubt]:
    """Observations that equal a covariate: a limit of their own?

    Not where the model says what is censored and the covariate is a part of that: a column of
    exit times equals every time that is known, or those that are censored as well.
    """

    def numbers(tree: PyTree) -> list[np.ndarray]:
        leaves = [np.asarray(leaf[:n]) for leaf in jax.tree.leaves(tree)]
        return [leaf for leaf in leaves if leaf.ndim == 1 and leaf.dtype.kind == "f"]

    doubts = []
    for leaf in numbers(covariates):
        for values in numbers(recorded):
            same = values == leaf
            declared = model.censored is not None and (same[~known].any() or same[known].all())
            count = int((same & known).sum())
            if count >= SMALLEST_PILE and not declared:
                text = (
                    f"{count} of {n} observations are exactly equal to one of their covariates. Is "
                    "that covariate the limit of the recorder, written down for every value "
                    "beyond it? Then these are censored: say censored=offcut.Clamped(upper=lambda "
                    "c: ...) in the model, with the limit, and a window that includes what lies "
                    "beyond. If it is their true value, all is well."
                )
                doubts.append(Doubt("pile-up", text))
    return doubts


def prior_doubts(model: RejectionModel, prepared: Prepared, sweeps: int) -> list[Doubt]:
    """What speaks against a long run, by the prior; said once for each model."""
    if not prepared.sampler.draws_rejections or sweeps < LONG_RUN:
        return []
    name = ("warning before", prepared.n)
    if name in model.programs:
        return []
    said = model.programs.kept(name, lambda: warning_before(prepared))
    return [] if said is None else [Doubt("prior", said)]


def warning_before(prepared: Prepared) -> str | None:
    """A warning where most of the prior lets less than 1% pass; call it in float64.

    Quick enough for every run: at a hundred draws of theta the program of the start, which is there
    anyway, runs Algorithm 1 to n acceptances or two thousand rejections.
    """
    n, sampler = prepared.n, prepared.sampler
    assert isinstance(sampler, ModelSampler)
    accepted, rejected = sampler.rates_by_prior(
        from_seed(0), prepared.arrays, QUICK_DRAWS, QUICK_REJECTIONS
    )
    rates = np.where(accepted > 0, accepted, 3.0) / (accepted + rejected)  # 3: a 95% limit
    share = float(np.mean(rates < FEW))
    if share <= 0.5:
        return None
    middle = int(np.argsort(rates)[len(rates) // 2])
    rate, unseen = float(rates[middle]), accepted[middle] == 0
    needed = n * (1 / rate - 1)
    room = warmup_budget("auto", n) or 0
    about = "more than" if unseen else "about"
    much = f", more than the {room:,} that warm-up has room for" if needed > room else ""
    return (
        f"By the prior next to nothing passes the filter: at {share:.0%} of its draws less than 1 "
        f"proposal in 100, in the median {'less than ' if unseen else ''}{rate:.2g}. A sweep there "
        f"needs {about} {needed:,.0f} rejections for {n:,} observations{much}. If the data do not "
        "lead elsewhere, this run will be slow and mix badly: tighten the prior, or move it to "
        "where the data can come from; offcut.prior_acceptance(model) shows more."
    )


def note_beyond(
    posterior: xr.DataTree, model: RejectionModel | None, data: PyTree, drawn: Drawn
) -> None:
    """Look where a run has not been, if it is worth it, and write what was found into attrs.

    They are ``beyond_share``, ``beyond_shift``, ``beyond_place`` and ``beyond_note``.
    """
    attrs = posterior.attrs
    missing = attrs["missing_information"]
    if not attrs["draws_rejections"]:
        found = unvisited.Beyond(note="this sampler draws no rejections")
    elif drawn.stats["rejected"].size < ENOUGH_DRAWS:
        found = unvisited.Beyond(note=f"fewer than {ENOUGH_DRAWS:,} draws")
    elif np.isfinite(missing) and missing < WORTH_A_LOOK:
        found = unvisited.Beyond(
            note="no need: the chains forget within a few sweeps where they were"
        )
    else:
        try:
            found = unvisited.look_beyond(
                model, data, drawn, attrs["n_observations"], attrs["seed"]
            )
        except Exception as error:  # a finished run is not lost to a look at its neighbourhood
            found = unvisited.Beyond(note=f"failed: {type(error).__name__}: {error}")
    attrs.update({f"beyond_{name}": value for name, value in found._asdict().items()})
