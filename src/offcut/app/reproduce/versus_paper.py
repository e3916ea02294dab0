"""The paper's numbers beside ours, and how long the runs are that ours come from.

Runs are quick, for a first look within minutes, or full, as in the paper. A ``PartReport`` is what
a part shows, from the process that ran it to the one that writes the page.
"""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from offcut.app.html import Section
from offcut.app.html.markup import number
from offcut.files import made, write

COLUMNS = ("Quantity", "Paper", "Here", "Difference", "Why")


class Verdict(StrEnum):
    """How a comparison with the paper ends."""

    SAME = "as in the paper"
    CLOSE = "close"
    OTHER = "differs"
    FASTER = "faster"
    SIMULATED = "simulated"
    UNKNOWN = "not told apart"
    NOT_RUN = "not in the quick version"


class Claim(NamedTuple):
    """One number or claim of the paper, what was found here, and why it may differ."""

    quantity: str
    paper: str
    here: str
    difference: str
    verdict: Verdict
    why: str = ""


def tabulate(section: Section, rows: list[Claim], caption: str = "Beside the paper") -> None:
    """A table of comparisons."""
    section.table(
        COLUMNS,
        [[r.quantity, r.paper, r.here, f"{r.difference} **{r.verdict}**", r.why] for r in rows],
        caption,
        cards=True,
    )


def graded(same: bool, close: bool = False, *, unclear: bool = False) -> Verdict:
    """The verdict where something may be unclear, else the same, else close, else different."""
    if unclear:
        return Verdict.UNKNOWN
    return Verdict.SAME if same else Verdict.CLOSE if close else Verdict.OTHER


def checked(
    quantity: str, paper: str, here: str, holds: bool, why: str = "", *, difference: str = ""
) -> Claim:
    """A claim that holds here or does not; ``why`` is said where it does not."""
    return Claim(
        quantity,
        paper,
        here,
        difference,
        graded(holds),
        "" if holds else why,
    )


def counted(quantity: str, paper: int, here: int, why: str = "") -> Claim:
    """A number of things, here as many as in the paper or not."""
    difference = number(here - paper)
    return checked(quantity, number(paper), number(here), here == paper, why, difference=difference)


def timed(quantity: str, paper: float, here: float, why: str, *, limit: bool = False) -> Claim:
    """A time of the paper in minutes (or an upper limit of it) beside ours in CPU-minutes."""
    theirs = f"less than {paper:g} minutes" if limit else f"{paper:g} minutes"
    if math.isnan(here):
        return Claim(
            quantity, theirs, "not known", "", Verdict.UNKNOWN, "The run was killed and resumed."
        )
    verdict = Verdict.OTHER if here >= paper else Verdict.SAME if limit else Verdict.FASTER
    spent = f"{60 * here:.2g} CPU-seconds, compiling included"
    return Claim(quantity, theirs, spent, "" if limit else ratio(here, paper), verdict, why)


def ratio(ours: float, theirs: float) -> str:
    """How many times as much.

    >>> ratio(2.0, 4.0), ratio(4.0, 2.0)
    ('0.5 times', '2 times')
    """
    return f"{ours / theirs:.2g} times"


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


class PartReport(NamedTuple):
    """What the page shows of a part: its section, its claims, and runs of an earlier call."""

    title: str
    parts: list[dict[str, Any]]
    rows: list[Claim]
    again: list[str]

    def save(self, folder: Path, part: str) -> None:
        write(made(folder) / f"{part}.json", json.dumps(self))

    @staticmethod
    def load(folder: Path, part: str) -> PartReport:
        title, parts, rows, again = json.loads((folder / f"{part}.json").read_text("utf-8"))
        claims = [Claim(*row)._replace(verdict=Verdict(row[4])) for row in rows]
        return PartReport(title, parts, claims, again)
