"""What a fit was asked for, what came of it, and what the results of all models share.

A ``Request`` becomes a ``Task`` (a model and its data), that a ``Fit`` (posteriors), and that a
``Result``: a headline, tables, and sections of a page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from offcut.app.fit.parse import parse_limits, parse_region, split_columns
from offcut.app.fit.recipes import Rows
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal
from offcut.base import Model
from offcut.errors import SettingsError
from offcut.methods import AUTO
from offcut.regions import Box
from offcut.result.diagnostics import Table as Parameters
from offcut.result.overview import Summary, summary
from offcut.tables.read import COMMAND_LINE, read_table
from offcut.tables.table import Table, check_groups, settle_missing
from offcut.tables.windows import box_of, combined, settle_outside


@dataclass(frozen=True)
class Request:
    """A fit as the command line asks for it.

    ``options`` is the dataclass of the model's recipe; ``sampling`` goes to ``offcut.sample``.
    """

    model: str
    file: Path
    rows: Rows = field(default_factory=Rows)
    options: Any = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def as_settings(self) -> dict[str, Any]:
        """Everything, for ``settings.json``."""
        return {
            "model": self.model,
            "file": str(self.file),
            **asdict(self.rows),
            "sampling": dict(self.sampling),
            "options": asdict(self.options),
        }


@dataclass
class Task:
    """What a recipe makes of a request: a model, and the data of each run by group.

    Attributes
    ----------
    model : Model
    data : dict from group to array
        One entry, named "", where everything goes into one run.
    table : Table
        Rows and columns, after rows were left out.
    result : callable
        Makes the ``Result`` of the finished fit: a subclass with words, tables and pictures.
    covariates : array or None
    method : str
        As of ``offcut.sample``.
    notes : list of str
        What the report should say of how the data were taken.
    guesses : list of str
        Those of the notes that the answer hangs on and nobody has confirmed.
    """

    model: Model
    data: dict[str, np.ndarray]
    table: Table
    result: Callable[[Fit], Result]
    covariates: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    method: str = AUTO


@dataclass
class Fit:
    """A finished fit."""

    request: Request
    task: Task
    posteriors: dict[str, xr.DataTree] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    command: str = ""


def by_group(table: Table, values: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of each group, or all of them under the name ""."""
    if table.group is None:
        return {"": values}
    return {name: values[table.group == code] for code, name in enumerate(table.group_names)}


#: Column names and rows.
Sheet = tuple[Sequence[str], Sequence[Sequence[Any]]]


class Result:
    """A fit, read: subclasses have the words, tables and pictures of their model."""

    title = ""

    def __init__(self, fit: Fit) -> None:
        self.fit, self.table, self.posteriors = fit, fit.task.table, fit.posteriors

    @property
    def model(self) -> Any:
        """The model that was sampled; subclasses know which it is."""
        return self.fit.task.model

    @property
    def probability(self) -> float:
        """Of bands and circles, where the model has that option."""
        return float(self.fit.request.options.probability)

    @cached_property
    def summaries(self) -> dict[str, Summary]:
        """``offcut.summary`` of each run."""
        return {name: summary(posterior) for name, posterior in self.posteriors.items()}

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

    def write(self, page: Page) -> None:
        """Sections of the report page."""
        raise NotImplementedError

    def write_trust(self, section: Section) -> None:
        """Pictures for the section on how far to trust the runs; by default none."""


def grouped(head: Sequence[str], rows: Mapping[str, Iterable[Sequence[Any]]]) -> Sheet:
    """One table of the rows of each group, with a column of its name where there are groups."""
    if "" in rows:
        return head, list(rows[""])
    return ["group", *head], [[group, *row] for group, some in rows.items() for row in some]


def parameters(tables: Mapping[str, Parameters]) -> Sheet:
    """The table of ``offcut.summary``, of all groups."""
    keys = [key for table in tables.values() for numbers in table.values() for key in numbers]
    return grouped(
        ["parameter", *dict.fromkeys(keys)],
        {
            group: [[name, *numbers.values()] for name, numbers in table.items()]
            for group, table in tables.items()
        },
    )


def of(group: str) -> str:
    """`` of GROUP``, where there are groups."""
    return f" of {literal(group)}" if group else ""


def named(what: str, group: str) -> str:
    """The name of a picture, of each group where there are groups."""
    return f"{what}-{group}" if group else what


def percent(share: float) -> str:
    """A share in words, with a digit more where it is small."""
    if not np.isfinite(share):
        return "not known"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def span(values: ArrayLike, probability: float = 0.9) -> tuple[float, float]:
    """Ends of a central interval of draws."""
    tail = (1 - probability) / 2
    low, high = np.nanquantile(np.asarray(values, float), [tail, 1 - tail])
    return float(low), float(high)


def plural(count: int, one: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def read_rows(request: Request, *, frames: bool = False) -> Table:
    """The file's rows, those with missing values refused or left out."""
    rows = request.rows
    columns = split_columns(rows.columns)
    table = read_table(request.file, columns, rows.group, interface=COMMAND_LINE, frames=frames)
    return settle_missing(table, rows.missing)


def read_boxed(request: Request) -> tuple[Table, Box | None]:
    """Rows inside of a window that must be a box, and the window."""
    table, rows = read_rows(request), request.rows
    size = len(table.names)
    lower = parse_limits(rows.lower, "--lower", size)
    upper = parse_limits(rows.upper, "--upper", size)
    region = None if rows.region is None else parse_region(rows.region)
    window = combined(box_of(lower, upper), region, size)
    if window is not None and not isinstance(window, Box):
        raise SettingsError(
            f"--region {rows.region}: offcut fit {request.model} takes a box only, because its "
            "functions live on one; give Box(lower, upper), or --lower and --upper"
        )
    table = settle_outside(table, window, rows.outside)
    check_groups(table)
    return table, window
