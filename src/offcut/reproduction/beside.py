"""The paper's numbers beside ours."""

from __future__ import annotations

from typing import NamedTuple

from offcut.pages import Section

#: How a comparison ends, in a word.
SAME, CLOSE, OTHER = "as in the paper", "close", "differs"
FASTER, SIMULATED = "faster", "simulated"
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


def timed(quantity: str, paper: float, here: float, why: str) -> Beside:
    """A time of the paper, in minutes, beside ours in CPU-minutes with compiling."""
    return Beside(
        quantity,
        f"{paper:g} minutes",
        f"{60 * here:.2g} CPU-seconds, compiling included",
        ratio(here, paper),
        FASTER if here < paper else OTHER,
        why,
    )


def ratio(ours: float, theirs: float) -> str:
    """How many times as much.

    >>> ratio(2.0, 4.0), ratio(4.0, 2.0)
    ('0.5 times', '2 times')
    """
    return f"{ours / theirs:.2g} times"
