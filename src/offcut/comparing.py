"""``compare_samplers``: effective draws per CPU-second of several samplers, with intervals.

Each repeat is one chain with a seed of its own. Programs are compiled before anything is timed, and
the clock runs during the draws only, not during warm-up. The interval of a rate is a
t-interval of its logarithm over the repeats: it says how far repeats on this machine differ.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from offcut.budget import certify, warmup_budget
from offcut.driver.chain import Chain, Phase, most_in_memory
from offcut.driver.machine import one_blas_thread
from offcut.driver.progress import Progress
from offcut.driver.run import Drawn, Settings, after_warmup, collect, make_chains
from offcut.errors import OffcutError, SettingsError
from offcut.kernels.tuning import warmup_schedule
from offcut.precision import in_float64
from offcut.programs import blocks_of
from offcut.result.diagnostics import Table, parameter_table
from offcut.result.tree import make_tree
from offcut.sampling import prepare

#: Draws of the run that compiles.
REHEARSED = 20
#: A repeat in which something was compiled is timed again, so often.
MOST_AGAIN = 3


@dataclass(frozen=True)
class Contender:
    """A sampler in a comparison.

    Attributes
    ----------
    name : str
    model : any model of this library
    kernel : optional
        As of ``offcut.sample``.
    approximate : bool
        Whether its draws are not those of the posterior.
    target : str
        Contenders with different targets have different posteriors and need not agree.
    """

    name: str
    model: Any
    kernel: Any = None
    approximate: bool = False
    target: str = ""


@dataclass(frozen=True)
class Rate:
    """Effective draws per CPU-second, with a 95% interval."""

    middle: float
    low: float
    high: float


def rate_of(repeats: Any) -> Rate:
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
    """What was measured of one contender; arrays are (repeat, quantity)."""

    contender: Contender
    quantities: list[str] = field(default_factory=list)
    ess: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    mean: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    mcse: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    seconds: np.ndarray = field(default_factory=lambda: np.zeros(0))
    refusal: str = ""

    def rate(self, quantity: str) -> Rate:
        """Of one quantity."""
        return rate_of(self.ess[:, self.quantities.index(quantity)] / self.seconds)

    @property
    def worst(self) -> str:
        """The quantity that mixes most slowly."""
        with np.errstate(divide="ignore"):
            return self.quantities[int(np.log(self.ess).mean(axis=0).argmin())]

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

    def disagreement(self, one: Measured) -> tuple[float, str]:
        """Largest |z| between this contender's means and those of the best exact one, and of what.

        NaN where there is none to compare with.
        """
        reference = self.reference(one.contender.target)
        if reference is None or reference is one:
            return float("nan"), ""
        found = {}
        for quantity in one.quantities:
            (a, error_a), (b, error_b) = one.estimate(quantity), reference.estimate(quantity)
            both = np.hypot(error_a, error_b)
            found[quantity] = abs(a - b) / both if both > 0 else 0.0
        largest = max(found, key=lambda name: found[name])
        return float(found[largest]), largest

    def reference(self, target: str = "") -> Measured | None:
        """The exact contender with the smallest errors."""
        exact = [
            one
            for one in self.ran
            if one.contender.target == target and not one.contender.approximate
        ]
        return max(exact, key=lambda one: float(one.ess.mean(axis=0).min()), default=None)

    def limit(self) -> float:
        """What |z| stays below in 99.9% of comparisons of samplers that agree."""
        tests = sum(len(one.quantities) for one in self.ran) or 1
        return float(stats.norm.ppf(1 - 0.001 / (2 * tests)))


@in_float64
def compare_samplers(
    contenders: Sequence[Contender],
    data: Any,
    *,
    covariates: Any = None,
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
    >>> from offcut.comparing import Contender, compare_samplers
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     inside=lambda x: x > 0,
    ... )
    >>> x = np.array([0.1, 0.5, 0.7, 1.2, 2.0])
    >>> kernels = {"HMC": offcut.HMC(0.3, 5), "Direct": offcut.Direct()}
    >>> both = [Contender(name, model, kernel) for name, kernel in kernels.items()]
    >>> found = compare_samplers(both, x, draws=50, warmup=50, repeats=2)
    >>> [one.contender.name for one in found.ran], found.ran[0].worst
    (['HMC'], 'loc')
    """
    if repeats < 1:
        raise SettingsError(f"repeats must be at least 1, got {repeats}")
    measured, tables = [], []
    for contender in contenders:
        one = Measured(contender)
        try:
            runs = _Runs(
                contender, data, covariates, Settings(draws, warmup, 1, seed, budget, False)
            )
            tell(contender.name, -1)
            runs.rehearse()
            found = []
            for repeat in range(repeats):
                tell(contender.name, repeat)
                found.append(runs.timed(seed + repeat))
            one.seconds = np.array([seconds for seconds, _ in found])
            tables.append((one, [table for _, table in found]))
        except OffcutError as error:
            one.refusal = str(error)
        measured.append(one)
    names = _shared([rows[0] for _, rows in tables], quantity)
    for one, rows in tables:
        one.quantities = names
        one.ess, one.mean, one.mcse, sd = (
            np.array([[row[name][key] for name in names] for row in rows])
            for key in ("ess", "mean", "mcse", "sd")
        )
        one.ess = np.where(sd > 0, one.ess, 1.0)  # a chain that stood still is worth one draw
    return Comparison(measured)


def _shared(tables: list[Table], quantity: str | None) -> list[str]:
    """Quantities that all tables have, or those asked for."""
    if not tables:
        return []
    common = [name for name in tables[0] if all(name in table for table in tables)]
    # What moves in no run is no parameter.
    common = [name for name in common if any(table[name]["sd"] > 0 for table in tables)]
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
    """Runs of one contender, one chain each."""

    def __init__(
        self, contender: Contender, data: Any, covariates: Any, settings: Settings
    ) -> None:
        self.model, self.settings = contender.model, settings
        self.sampler, self.arrays, self.observed = prepare(
            contender.model, data, covariates, contender.kernel
        )
        self.programs = blocks_of(self.sampler)
        self.n = next(iter(self.observed.values())).shape[0]

    def rehearse(self) -> None:
        """Compile."""
        self._run(self.settings._replace(draws=min(REHEARSED, self.settings.draws)))

    def timed(self, seed: int) -> tuple[float, Table]:
        """CPU-seconds of the draws of one chain, and its table of parameters."""
        settings = self.settings._replace(seed=seed)
        for _ in range(MOST_AGAIN):
            before = self._compiled()
            seconds, drawn = self._run(settings)
            if self._compiled() == before:
                break
        facts = {
            "kernel": self.sampler.kernel_name,
            "draws_rejections": int(self.sampler.draws_rejections),
        }
        certificate = certify(
            drawn.stats, drawn.budget, self.sampler.draws_rejections, self.sampler.redraws
        )
        tree = make_tree(
            drawn, self.observed, certificate, settings, facts, self.sampler.variables()
        )
        return seconds, parameter_table(tree)

    def _run(self, settings: Settings) -> tuple[float, Drawn]:
        """One chain in this thread, as ``run_chains`` would run it; only its draws are timed.

        A budget that turns out tight is not grown: the restart would be part of no rate.
        """
        schedule = warmup_schedule(settings.warmup)
        never, first = threading.Event(), warmup_budget(settings.budget, self.n)
        with one_blas_thread(), Progress(1, False) as silent:
            chains = make_chains(
                self.sampler, self.arrays, settings, first, None, silent, self.programs
            )
            most = most_in_memory(self.sampler, chains[0].state)
            first = warmup_budget(settings.budget, self.n, most)
            self._advance(chains[0], Phase(0, settings.warmup, first, schedule), never)
            budget = after_warmup(chains, settings, None, self.n, most)
            started = time.process_time()
            self._advance(chains[0], Phase(1, settings.draws, budget, None, 1), never)
            seconds = time.process_time() - started
        # The clock has steps; a run that is over within one has no rate.
        return max(seconds, 1e-6), collect(chains, budget, 0, False)

    @staticmethod
    def _advance(chain: Chain, phase: Phase, never: threading.Event) -> None:
        chain.begin(phase)
        chain.run(phase, never, math.inf)

    def _compiled(self) -> int:
        return sum(block.compilations for block in self.programs.values())
