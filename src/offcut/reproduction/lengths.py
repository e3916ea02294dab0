"""How long runs are: quick, for a first look within minutes, or full, as in the paper."""

from __future__ import annotations

from typing import NamedTuple


class Length(NamedTuple):
    """Sweeps of a run: kept draws and warm-up of each chain, sweeps for each kept draw."""

    draws: int
    warmup: int
    thin: int = 1
    chains: int = 4

    @property
    def sweeps(self) -> int:
        """Of all chains together, warm-up included."""
        return self.chains * (self.draws * self.thin + self.warmup)


class Plan(NamedTuple):
    """The lengths of everything."""

    name: str
    mixture: Length
    #: Of the mixture that ignores the window, where it is run.
    ignored: Length | None
    frames: Length
    #: How concentrations are sampled.
    methods: tuple[str, ...]
    exchange: Length
    density: Length
    #: Sweeps for each point of the samplers' curves, and how often each is measured.
    curve_sweeps: int
    rounds: int
    #: Dimensions of the comparison with the approximate sampler, and its runs.
    dimensions: tuple[int, ...]
    approximate: Length
    #: Of the exchange sampler there, where it is run; else augmentation is taken for the truth.
    approximate_exchange: Length | None


#: What costs most is compiling: a program for every number of observations, dimension and method.
#: The paper's lengths for the vectorcardiograms and the voices are short enough for both plans.
QUICK = Plan(
    name="quick",
    mixture=Length(75, 200, 2),
    ignored=None,
    frames=Length(2500, 1000),
    methods=("augment", "exchange", "asymptotic"),
    exchange=Length(5000, 1000),
    density=Length(2000, 500),
    curve_sweeps=800,
    rounds=4,
    dimensions=(3, 10),
    approximate=Length(4000, 500, chains=2),
    approximate_exchange=None,
)
FULL = Plan(
    name="full",
    mixture=Length(1000, 2500, 10),
    ignored=Length(500, 1000, 5),
    frames=Length(10_000, 1000),
    methods=("augment", "collapsed", "exchange", "asymptotic"),
    exchange=Length(20_000, 1000),
    density=Length(2000, 500),
    curve_sweeps=6000,
    rounds=5,
    dimensions=(3, 4, 5, 8, 10),
    approximate=Length(5000, 1000),
    approximate_exchange=Length(20_000, 1000),
)
