"""What a fit was asked for, what came of it, and what the results of all models share.

A ``Request`` becomes a ``Task`` (a model and its data), that a ``Fit`` (posteriors), and that a
``Result``: a headline, tables, and sections of a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from offcut.app.fit.parse import parse_limits, parse_region, split_columns
from offcut.app.html import Page, Section
from offcut.errors import SettingsError
from offcut.methods import AUTO
from offcut.regions import Box
from offcut.result.diagnostics import Table as Parameters
from offcut.result.overview import Summary, summary
from offcut.tables.read import read_table
from offcut.tables.rows import box_of, check_groups, combined, settle_missing, settle_outside
from offcut.tables.table import Table


@dataclass(frozen=True)
class Request:
    """A fit as the command line asks for it.

    ``sampling`` goes to ``offcut.sample``; ``options`` is the dataclass of the model's recipe.
    """

    model: str
    file: Path
    columns: str | None = None
    lower: str | None = None
    upper: str | None = None
    region: str | None = None
    group: str | None = None
    outside: str = "refuse"
    missing: str = "refuse"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    options: Any = None

    def told(self) -> dict[str, Any]:
        """Everything, for ``settings.json``."""
        return {**asdict(self), "file": str(self.file)}


@dataclass
class Task:
    """What a recipe makes of a request: a model, and the data of each run by group.

    Attributes
    ----------
    model : any model of this library
    data : dict from group to array
        One entry, named "", where everything goes into one run.
    covariates : array or None
    method : str
        As of ``offcut.sample``.
    table : Table
        Rows and columns, after rows were left out.
    notes : list of str
        What the report should say of how the data were taken.
    guesses : list of str
        Those of the notes that the answer hangs on and nobody has confirmed.
    extra : Any
        What only this model knows (``Events`` of a mixture).
    """

    model: Any
    data: dict[str, np.ndarray]
    table: Table
    covariates: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)
    extra: Any = None
    method: str = AUTO


@dataclass
class Fit:
    """A finished fit."""

    request: Request
    task: Task
    posteriors: dict[str, xr.DataTree]
    seconds: dict[str, float]
    doubts: list[str]
    command: str = ""

    @property
    def model(self) -> Any:
        """The model that was sampled."""
        return self.task.model

    @property
    def table(self) -> Table:
        """The data."""
        return self.task.table


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

    def write(self, page: Page) -> None:
        """Sections of the report page."""
        raise NotImplementedError

    def write_trust(self, section: Section) -> None:
        """Pictures for the section on how far to trust the runs; by default none."""


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


def read_rows(request: Request, *, frames: bool = False) -> Table:
    """The file's rows, those with missing values refused or left out."""
    columns = split_columns(request.columns)
    table = read_table(request.file, columns, request.group, frames=frames)
    return settle_missing(table, request.missing)


def read_boxed(request: Request) -> tuple[Table, Box | None]:
    """Rows inside of a window that must be a box, and the window."""
    table = read_rows(request)
    size = len(table.names)
    lower = parse_limits(request.lower, "--lower", size)
    upper = parse_limits(request.upper, "--upper", size)
    region = None if request.region is None else parse_region(request.region)
    window = combined(box_of(lower, upper), region, size)
    if window is not None and not isinstance(window, Box):
        raise SettingsError(
            f"--region {request.region}: offcut fit {request.model} takes a box only, because its "
            "functions live on one; give Box(lower, upper), or --lower and --upper"
        )
    table = settle_outside(table, window, request.outside)
    check_groups(table)
    return table, window
