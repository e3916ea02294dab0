"""The paper's numbers beside ours, and how long the runs are that ours come from.

Runs are quick, for a first look within minutes, or full, as in the paper. A ``PartReport`` is what
a part shows, from the process that ran it to the one that writes the page.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from offcut.app.html import Page, Section
from offcut.app.html.markup import number
from offcut.files import made, write

#: How a comparison ends, in a word.
SAME, CLOSE, OTHER = "as in the paper", "close", "differs"
FASTER, SIMULATED, UNKNOWN = "faster", "simulated", "not told apart"
NOT_RUN = "not in the quick version"
COLUMNS = ("Quantity", "Paper", "Here", "Difference", "Why")


class Claim(NamedTuple):
    """One number or claim of the paper, and what was found here.

    ``verdict`` is one of the words above; ``why`` says where a difference comes from.
    """

    quantity: str
    paper: str
    here: str
    difference: str
    verdict: str
    why: str = ""


def tabulate(section: Section, rows: list[Claim], caption: str = "Beside the paper") -> None:
    """A table of comparisons."""
    section.table(
        COLUMNS,
        [[r.quantity, r.paper, r.here, f"{r.difference} **{r.verdict}**", r.why] for r in rows],
        caption,
        cards=True,
    )


def checked(
    quantity: str, paper: str, here: str, holds: bool, why: str = "", *, difference: str = ""
) -> Claim:
    """A claim that holds here or does not; ``why`` is said where it does not."""
    return Claim(quantity, paper, here, difference, SAME if holds else OTHER, "" if holds else why)


def counted(quantity: str, paper: int, here: int, why: str = "") -> Claim:
    """A number of things, here as many as in the paper or not."""
    difference = number(here - paper)
    return checked(quantity, number(paper), number(here), here == paper, why, difference=difference)


def timed(quantity: str, paper: float, here: float, why: str, *, limit: bool = False) -> Claim:
    """A time of the paper in minutes (or an upper limit of it) beside ours in CPU-minutes."""
    theirs = f"less than {paper:g} minutes" if limit else f"{paper:g} minutes"
    if math.isnan(here):
        return Claim(quantity, theirs, "not known", "", UNKNOWN, "The run was killed and resumed.")
    verdict = OTHER if here >= paper else SAME if limit else FASTER
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
    """Sections as (title, anchor, level, parts), comparisons, and runs of an earlier call."""

    sections: list[tuple[str, str, int, list[dict[str, Any]]]]
    rows: list[Claim]
    again: list[str]

    @staticmethod
    def of(page: Page, rows: list[Claim], again: list[str]) -> PartReport:
        """From a page that has this part alone."""
        return PartReport(
            [(s.title, s.anchor, s.level, s.parts) for s in page.sections], rows, again
        )

    def save(self, folder: Path, part: str) -> None:
        write(made(folder) / f"{part}.json", json.dumps(self))

    @staticmethod
    def load(folder: Path, part: str) -> PartReport:
        sections, rows, again = json.loads((folder / f"{part}.json").read_text("utf-8"))
        return PartReport([tuple(s) for s in sections], [Claim(*row) for row in rows], again)

    def add_to(self, page: Page) -> None:
        """At the end of another page."""
        for title, anchor, level, parts in self.sections:
            page.section(title, anchor, level).parts += parts
