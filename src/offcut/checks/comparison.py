"""``compare_samplers``: effective draws per CPU-second of several samplers, with intervals.

Each repeat is one chain with a seed of its own; all repeats of a sampler have one budget, as the
chains of a run have. Programs are compiled before anything is timed, and the clock runs during the
draws only, not during warm-up.

Effective draws are those of all repeats together, so that chains which stay in different places
count for little however well each seems to mix. Where chains disagree (R-hat) or one never moved,
a rate means nothing: the sampler is marked, comes last, and is no reference for others. The
interval of a rate is a t-interval of its logarithm over the repeats: it says how far repeats on
this machine differ.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from jaxtyping import Float, PyTree
from numpy.typing import ArrayLike
from scipy import stats

from offcut.base import Kernel, Model
from offcut.driver.budget import warmup_budget
from offcut.driver.chain import Chain, Phase, most_in_memory
from offcut.driver.chains import (
    Drawn,
    Settings,
    after_warmup,
    collect,
    make_chains,
    warmup_phase,
)
from offcut.driver.machine import one_blas_thread
from offcut.errors import OffcutError, SettingsError
from offcut.methods import AUTO, MethodSettings
from offcut.numerics.ess import effective_size
from offcut.programs.cache import blocks_of
from offcut.programs.precision import in_float64
from offcut.result.diagnostics import MOST_PARAMETERS, label, r_hat
from offcut.result.overview import R_HAT_LIMIT
from offcut.samplers.choice import prepare

#: Draws of the run that compiles.
REHEARSED = 20
#: A repeat in which something was compiled is timed again, so often.
MOST_AGAIN = 3
#: Draws (repeat, draw) of every quantity.
Series = dict[str, np.ndarray]


@dataclass(frozen=True)
class Contender:
    """A sampler in a comparison.

    Attributes
    ----------
    name : str
    model : any model of this library
    method, kernel : optional
        As of ``offcut.sample``.
    approximate : bool
        Whether its draws are not those of the posterior.
    target : str
        Contenders with different targets have different posteriors and need not agree.
    """

    name: str
    model: Model
    kernel: Kernel | None = None
    approximate: bool = False
    target: str = ""
    method: str | MethodSettings = AUTO


@dataclass(frozen=True)
class Rate:
    """Effective draws per CPU-second, with a 95% interval."""

    middle: float
    low: float
    high: float


def rate_of(repeats: ArrayLike) -> Rate:
    """The geometric mean over repeats, with a t-interval on the scale of logarithms.

    >>> rate_of([100.0, 200.0, 400.0]).middle.__round__(9)
    200.0
    """
    logs = np.log(np.asarray(repeats, float))
    middle = float(logs.mean())
    if len(logs) < 2:
        return Rate(float(np.exp(middle)), float("nan"), float("nan"))
    error = float(logs.std(ddof=1)) / np.sqrt(len(logs))
    wide = float(stats.t.ppf(0.975, len(logs) - 1)) * error
    return Rate(*(float(np.exp(middle + side * wide)) for side in (0, -1, 1)))


@dataclass
class Measured:
    """What was measured of one contender; arrays are (repeat, quantity).

    ``pooled`` and ``r_hat`` are (quantity,), of all repeats together. ``trouble`` says in a few
    words why the repeats cannot all be right, if so.
    """

    contender: Contender
    quantities: list[str] = field(default_factory=list)
    ess: Float[np.ndarray, "repeat quantity"] = field(default_factory=lambda: np.zeros((0, 0)))
    mean: Float[np.ndarray, "repeat quantity"] = field(default_factory=lambda: np.zeros((0, 0)))
    mcse: Float[np.ndarray, "repeat quantity"] = field(default_factory=lambda: np.zeros((0, 0)))
    seconds: Float[np.ndarray, " repeat"] = field(default_factory=lambda: np.zeros(0))
    pooled: Float[np.ndarray, " quantity"] = field(default_factory=lambda: np.zeros(0))
    r_hat: Float[np.ndarray, " quantity"] = field(default_factory=lambda: np.zeros(0))
    trouble: str = ""
    refusal: str = ""

    def rate(self, quantity: str) -> Rate:
        """Of one quantity: effective draws of all repeats together, by their CPU-seconds.

        Repeats that disagree have no interval: what differs between them is not their speed.
        """
        place = self.quantities.index(quantity)
        middle = float(self.pooled[place] / self.seconds.sum())
        if self.trouble:
            return Rate(middle, float("nan"), float("nan"))
        apart = rate_of(self.ess[:, place] / self.seconds)
        return Rate(middle, middle * apart.low / apart.middle, middle * apart.high / apart.middle)

    @property
    def worst(self) -> str:
        """The quantity that mixes most slowly."""
        return self.quantities[int(self.pooled.argmin())]

    def estimate(self, quantity: str) -> tuple[float, float]:
        """Posterior mean and its Monte Carlo error.

        The error is the larger of what the autocorrelation within runs and what the spread between
        runs says.
        """
        place, repeats = self.quantities.index(quantity), len(self.seconds)
        within = np.sqrt((self.mcse[:, place] ** 2).mean() / repeats)
        between = self.mean[:, place].std(ddof=1) / np.sqrt(repeats) if repeats > 1 else 0.0
        return float(self.mean[:, place].mean()), float(max(within, between))


@dataclass
class Comparison:
    """What ``compare_samplers`` returns: ``measured``, in the order asked for."""

    measured: list[Measured]

    @property
    def ran(self) -> list[Measured]:
        """Contenders that were not refused."""
        return [one for one in self.measured if not one.refusal]

    @property
    def ranked(self) -> list[Measured]:
        """Contenders that ran, the fastest first; last those whose chains disagree."""
        return sorted(self.ran, key=lambda one: (bool(one.trouble), -one.rate(one.worst).middle))

    def disagreement(self, one: Measured) -> tuple[float, str]:
        """Largest |z| between this contender's means and those of the best exact one, and of what.

        NaN where there is none to compare with, and where its own chains disagree.
        """
        reference = self.reference(one.contender.target)
        if reference is None or reference is one or one.trouble:
            return float("nan"), ""
        found = {}
        for quantity in one.quantities:
            (a, error_a), (b, error_b) = one.estimate(quantity), reference.estimate(quantity)
            both = np.hypot(error_a, error_b)
            found[quantity] = abs(a - b) / both if both > 0 else 0.0
        largest = max(found, key=lambda name: found[name])
        return float(found[largest]), largest

    def reference(self, target: str = "") -> Measured | None:
        """The exact contender with the most effective draws, of those whose chains agree."""
        exact = [
            one
            for one in self.ran
            if one.contender.target == target and not one.contender.approximate and not one.trouble
        ]
        return max(exact, key=lambda one: float(one.pooled.min()), default=None)

    def without_reference(self) -> list[str]:
        """Targets of which several samplers ran, and none whose chains agree is exact."""
        targets = [one.contender.target for one in self.ran]
        several = [target for target in dict.fromkeys(targets) if targets.count(target) > 1]
        return [target for target in several if self.reference(target) is None]

    def limit(self) -> float:
        """What |z| stays below in 99.9% of comparisons of samplers that agree."""
        tests = sum(len(one.quantities) for one in self.ran) or 1
        return float(stats.norm.ppf(1 - 0.001 / (2 * tests)))


@in_float64
def compare_samplers(
    contenders: Sequence[Contender],
    data: PyTree,
    *,
    covariates: PyTree = None,
    draws: int = 1000,
    warmup: int = 500,
    repeats: int = 5,
    seed: int = 0,
    quantity: str | None = None,
    budget: int | str | None = "auto",
    tell: Callable[[str, int], None] = lambda name, repeat: None,
) -> Comparison:
    """Effective draws per CPU-second of several samplers of one posterior.

    Parameters
    ----------
    contenders : sequence of Contender
        Models or kernels; what does not fit the data is refused, with the reason.
    data, covariates, budget
        As of ``offcut.sample``.
    draws, warmup : int
        Of each repeat.
    repeats : int
        Chains of each contender, each with its own seed.
    seed : int
        Of the first repeat; the others count on.
    quantity : str, optional
        Only this parameter (an array's entries all); by default all that every contender has.
    tell : callable
        Called with the contender's name and the repeat (from 0; -1 for compiling) before each run.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist, offcut
    >>> from offcut.checks.comparison import Contender, compare_samplers
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     inside=lambda x: x > 0,
    ... )
    >>> x = np.array([0.1, 0.5, 0.7, 1.2, 2.0])
    >>> both = [
    ...     Contender("HMC", model, offcut.HMC(0.3, 5)),
    ...     Contender("direct", model, method="direct"),
    ... ]
    >>> found = compare_samplers(both, x, draws=50, warmup=50, repeats=2)
    >>> [one.contender.name for one in found.ran], found.ran[0].worst
    (['HMC'], 'loc')
    """
    if repeats < 1:
        raise SettingsError(f"repeats must be at least 1, got {repeats}")
    measured, drawn = [], []
    for contender in contenders:
        one = Measured(contender)
        try:
            runs = _Runs(
                contender, data, covariates, Settings(draws, warmup, 1, seed, budget, False)
            )
            tell(contender.name, -1)
            runs.rehearse()
            one.seconds, series = runs.timed(repeats, partial(tell, contender.name))
            drawn.append((one, series))
        except OffcutError as error:
            one.refusal = str(error)
        measured.append(one)
    # What moves in no run is no parameter.
    moving = {name for _, series in drawn for name, values in series.items() if np.ptp(values) > 0}
    names = _shared([series for _, series in drawn], moving, quantity)
    for one, series in drawn:
        _diagnose(one, {name: values for name, values in series.items() if name in moving}, names)
    return Comparison(measured)


def _diagnose(one: Measured, series: Series, names: list[str]) -> None:
    """Fill in what the draws say of ``names``, and whether the repeats agree in everything."""
    one.quantities = names
    chosen = [series[name] for name in names]
    one.mean = np.array([values.mean(axis=1) for values in chosen]).T
    one.ess = np.array([[_worth(chain[None]) for chain in values] for values in chosen]).T
    spread = np.array([values.std(axis=1) for values in chosen]).T
    one.mcse = spread / np.sqrt(one.ess)
    one.pooled = np.array([_worth(values, "bulk") for values in chosen])
    found = {name: r_hat(values) for name, values in series.items()}
    one.r_hat = np.array([found[name] for name in names])
    moved = np.array([np.ptp(values, axis=1) > 0 for values in series.values()])
    still = [name for name, values in series.items() if np.ptp(values) == 0]
    # Not a number is no agreement either: there were too few draws to tell.
    apart = [name for name, value in found.items() if not value <= R_HAT_LIMIT]
    if not moved.any(axis=0).all():
        one.trouble = "A CHAIN NEVER MOVED"
    elif still:  # though it moves in other samplers' runs
        one.trouble = f"NEVER MOVED: {still[0]}"
    elif apart:
        furthest = max(apart, key=lambda name: np.nan_to_num(found[name], nan=np.inf))
        one.trouble = f"CHAINS DISAGREE, R-hat {found[furthest]:.2f} ({furthest})"


def _worth(series: Float[np.ndarray, "repeat draw"], method: str = "mean") -> float:
    """Effective draws; a chain that stood still is worth one."""
    if np.all(series == series[:, :1]):
        return float(len(series))
    return effective_size(series, method)


def _shared(tables: list[Series], moving: set[str], quantity: str | None) -> list[str]:
    """Quantities that all tables have and that move, or those asked for."""
    if not tables:
        return []
    common = [name for name in tables[0] if all(name in table for table in tables)]
    common = [name for name in common if name in moving]
    if quantity is not None:
        chosen = [name for name in common if name == quantity or name.startswith(f"{quantity}[")]
        if not chosen:
            raise SettingsError(
                f"there is no quantity {quantity!r} that all samplers have; there are "
                f"{', '.join(common[:20])}"
            )
        return chosen
    if not common:
        raise SettingsError("the samplers have no quantity in common: nothing can be compared")
    return common


class _Runs:
    """Repeats of one contender, one chain each."""

    def __init__(
        self, contender: Contender, data: PyTree, covariates: PyTree, settings: Settings
    ) -> None:
        self.prepared = prepare(
            contender.model, data, covariates, contender.kernel, contender.method
        )
        self.sampler, self.n, self.settings = self.prepared.sampler, self.prepared.n, settings

    def rehearse(self) -> None:
        """Compile, so that no repeat pays for it."""
        chain = self._warmed(self.settings.seed)
        self._timed(chain, min(REHEARSED, self.settings.draws), self._budget([chain]))

    def timed(self, repeats: int, tell: Callable[[int], None]) -> tuple[np.ndarray, Series]:
        """CPU-seconds of the draws of each repeat, and all draws.

        A budget that turns out tight is not grown: the restart would be part of no rate.
        """
        seconds, chains = [], []
        for repeat in range(repeats):
            tell(repeat)
            chains.append(self._warmed(self.settings.seed + repeat))
        budget = self._budget(chains)
        for repeat in range(repeats):
            tell(repeat)
            for attempt in range(MOST_AGAIN):
                if attempt:
                    chains[repeat] = self._warmed(self.settings.seed + repeat)
                before = self._compiled()
                spent = self._timed(chains[repeat], self.settings.draws, budget)
                if self._compiled() == before:
                    break
            seconds.append(spent)
        drawn = collect(chains, budget, 0, False)
        return np.array(seconds), dict(itertools.islice(self._series(drawn), MOST_PARAMETERS))

    def _warmed(self, seed: int) -> Chain:
        """A chain after its warm-up, as ``run_chains`` would run it, in this thread."""
        settings = self.settings._replace(seed=seed)
        with one_blas_thread():
            first = warmup_budget(settings.budget, self.n)
            (chain,) = make_chains(self.prepared, settings, first)
            first = warmup_budget(settings.budget, self.n, self._most(chain))
            self._advance(chain, warmup_phase(settings, first))
        return chain

    def _budget(self, chains: list[Chain]) -> int | None:
        return after_warmup(chains, self.settings, None, self.n, self._most(chains[0]))

    def _most(self, chain: Chain) -> int:
        return most_in_memory(self.sampler, chain.state)

    def _timed(self, chain: Chain, draws: int, budget: int | None) -> float:
        """CPU-seconds of the draws of a chain after warm-up."""
        with one_blas_thread():
            started = time.process_time()
            self._advance(chain, Phase(1, draws, budget, None, 1))
            seconds = time.process_time() - started
        # The clock has steps; a run that is over within one has no rate.
        return max(seconds, 1e-6)

    def _series(self, drawn: Drawn) -> Iterator[tuple[str, np.ndarray]]:
        """Quantities that keep their meaning, and statistics that chains must agree on."""
        known = self.sampler.variables()
        kept = {k: v for k, v in drawn.draws.items() if k not in known or not known[k].exchangeable}
        kept |= {k: v for k, v in drawn.stats.items() if k in known and known[k].diagnosed}
        for name, values in kept.items():
            for index in np.ndindex(values.shape[2:]):
                yield label(name, index), values[(slice(None), slice(None), *index)].astype(float)

    @staticmethod
    def _advance(chain: Chain, phase: Phase) -> None:
        chain.begin(phase)
        chain.run(phase, threading.Event(), math.inf)

    def _compiled(self) -> int:
        return sum(block.compilations for block in blocks_of(self.sampler).values())
