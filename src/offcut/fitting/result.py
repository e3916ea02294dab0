"""What the results of all worlds share: they have a headline, tables, and sections of a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from offcut.fitting.request import Fit
from offcut.result.diagnostics import Table as Parameters
from offcut.result.summary import Summary, summary

#: Column names and rows.
Sheet = tuple[Sequence[str], Sequence[Sequence[Any]]]


class Result:
    """A fit, read: subclasses have the words, tables and pictures of their world."""

    title = ""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """``offcut.summary`` of each run."""
        return {name: summary(posterior) for name, posterior in self.fit.posteriors.items()}

    @property
    def doubts(self) -> list[str]:
        """All reasons for doubt, with the group's name where there are groups."""
        found = list(self.fit.doubts)
        for name, one in self.summaries.items():
            found += [f"{name}: {line}" if name else line for line in one.trouble]
        return list(dict.fromkeys(found))

    def headline(self) -> list[str]:
        """The answer, a few sentences."""
        raise NotImplementedError

    def sheets(self) -> dict[str, Sheet]:
        """Tables by name, for CSV files."""
        return {"parameters": parameters({k: s.table for k, s in self.summaries.items()})}

    def write(self, page: Any) -> None:
        """Sections of the report page."""
        raise NotImplementedError


def parameters(tables: dict[str, Parameters]) -> Sheet:
    """The table of ``offcut.summary``, of all groups."""
    rows = []
    keys: list[str] = []
    for group, table in tables.items():
        for name, numbers in table.items():
            keys = list(numbers)
            rows.append([*([group] if group else []), name, *numbers.values()])
    grouped = any(tables)
    return ([*(["group"] if grouped else []), "parameter", *keys], rows)


def percent(share: float) -> str:
    """A share in words, with a digit more where it is small."""
    if not np.isfinite(share):
        return "not known"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def span(values: Any, probability: float = 0.9) -> tuple[float, float]:
    """Ends of a central interval of draws."""
    tail = (1 - probability) / 2
    low, high = np.nanquantile(np.asarray(values, float), [tail, 1 - tail])
    return float(low), float(high)


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
