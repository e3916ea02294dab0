"""The paper's numbers beside ours."""

from __future__ import annotations

import math
from typing import NamedTuple

from offcut.pages import Section

#: How a comparison ends, in a word.
SAME, CLOSE, OTHER = "as in the paper", "close", "differs"
FASTER, SIMULATED, UNKNOWN = "faster", "simulated", "not told apart"
NOT_RUN = "not in the quick version"
COLUMNS = ("Quantity", "Paper", "Here", "Difference", "Why")


class Beside(NamedTuple):
    """One number or claim of the paper, and what was found here.

    ``verdict`` is one of the words above; ``why`` says where a difference comes from.
    """

    quantity: str
    paper: str
    here: str
    difference: str
    verdict: str
    why: str = ""


def tabulate(section: Section, rows: list[Beside], caption: str = "Beside the paper") -> None:
    """A table of comparisons."""
    section.table(
        COLUMNS,
        [[r.quantity, r.paper, r.here, f"{r.difference} **{r.verdict}**", r.why] for r in rows],
        caption,
        cards=True,
    )


def timed(quantity: str, paper: float, here: float, why: str, *, limit: bool = False) -> Beside:
    """A time of the paper in minutes (or an upper limit of it) beside ours in CPU-minutes."""
    told = f"less than {paper:g} minutes" if limit else f"{paper:g} minutes"
    if math.isnan(here):
        return Beside(quantity, told, "not known", "", UNKNOWN, "The run was killed and resumed.")
    verdict = OTHER if here >= paper else SAME if limit else FASTER
    spent = f"{60 * here:.2g} CPU-seconds, compiling included"
    return Beside(quantity, told, spent, "" if limit else ratio(here, paper), verdict, why)


def ratio(ours: float, theirs: float) -> str:
    """How many times as much.

    >>> ratio(2.0, 4.0), ratio(4.0, 2.0)
    ('0.5 times', '2 times')
    """
    return f"{ours / theirs:.2g} times"
