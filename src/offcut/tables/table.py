"""The table that every source becomes, for cytometry and for the command line.

A source is looked at as it is (``Contents``: names, and columns in which text is still text), and
then columns are chosen and made numbers of (``Table``), which is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from offcut.errors import DataError
from offcut.files import first_line
from offcut.regions import Box
from offcut.tables.columns import describe_rows
from offcut.tables.spillover import Compensation

#: Numbers, a row for each event or observation and a column for each channel.
Values = Float[np.ndarray, "rows columns"]
#: A group with fewer rows says nothing about itself.
LEAST_IN_GROUP = 2
#: What to do about missing values, at the command line.
DROP_MISSING = (
    "Leave them out with --missing drop if the reason has nothing to do with the value; or choose "
    "other columns with --columns"
)


@runtime_checkable
class Frame(Protocol):
    """What is used of a data frame."""

    columns: Any
    iloc: Any
    shape: tuple[int, int]

    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, name: Any) -> Any: ...


@runtime_checkable
class AnnDataLike(Protocol):
    """What is used of an AnnData."""

    X: Any
    obs: Any
    var_names: Any
    layers: Any
    obsm: Any


@dataclass(frozen=True, eq=False)
class Origin:
    """Where rows come from, and how to speak of them."""

    name: str = ""  # of the file, or what else it is
    path: Path = field(default_factory=Path)
    lines: Int[np.ndarray, " rows"] | None = None  # of each row, where the file has lines

    def describe(self, rows: Sequence[int] | np.ndarray) -> str:
        """The first few, ``lines 3 and 20 of the file`` or ``rows 1 and 18, counted from 0``."""
        return describe_rows(rows, self.lines)


@contextmanager
def reading(path: Path, kind: str, advice: str) -> Iterator[None]:
    """Whatever a library stumbles over in here, as one kind of error that names the file."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # a damaged file can fail at any byte
        said = first_line(error)
        raise DataError(f"{path} cannot be read as {kind} ({said}){advice}") from error


@dataclass(frozen=True, eq=False)
class Contents:
    """What a source holds, as it holds it: no column is chosen, and text is still text."""

    origin: Origin
    count: int  # of rows
    names: list[str]  # all "" where columns have none
    columns: Callable[[Sequence[int]], Sequence[ArrayLike]]  # by their places
    markers: list[str] = field(default_factory=list)  # other names of columns: $PnS of FCS files
    aside: Mapping[int, str] = field(default_factory=dict)  # places that are no data, and why
    groups: Mapping[str, ArrayLike] | None = None  # what can be the group; None: any column
    limits: Float[np.ndarray, "2 columns"] | None = None  # of what an instrument could record
    limits_note: str = ""  # how far to trust them
    spillover: Compensation | None = None
    frame: tuple[int, int] | None = None  # shape of the matrix whose entries the columns are


@dataclass(frozen=True, eq=False)
class Table:
    """Rows and columns of a source as numbers, on its own scale.

    All columns that may be of use are here: those that are not chosen may spill into those that
    are. Whatever rows are left out, those that stay know their place in the source (``kept``).
    """

    all_values: Values
    all_names: list[str]
    places: list[int]  # of the chosen columns among these
    origin: Origin
    kept: Int[np.ndarray, " rows"]  # the number, in the source, of each row that is still here
    limits: Box | None = None  # what could be recorded in the chosen columns, where it is known
    limits_note: str = ""  # how far to trust that
    spillover: Compensation | None = None
    group: Int[np.ndarray, " rows"] | None = None  # of each row, numbers from 0
    group_name: str = ""
    group_names: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns that are no data, and why
    dropped: Mapping[str, int] = field(default_factory=dict)  # reasons, and how many rows for each
    frame: tuple[int, int] | None = None  # shape of the matrix whose entries the columns are

    @property
    def source(self) -> str:
        return self.origin.name

    @property
    def called(self) -> str:
        """For errors."""
        return self.origin.name or "the source"

    @property
    def path(self) -> Path:
        return self.origin.path

    @property
    def names(self) -> list[str]:
        """Of the chosen columns."""
        return [self.all_names[place] for place in self.places]

    @property
    def values(self) -> Values:
        """The chosen columns."""
        return self.all_values[:, self.places]

    @property
    def rows_read(self) -> int:
        """How many there were before any were left out."""
        return len(self.kept) + sum(self.dropped.values())

    @property
    def matrices(self) -> Float[np.ndarray, "rows d p"] | None:
        """Rows as matrices, where the source has them; the columns are then their entries."""
        return None if self.frame is None else self.values.reshape(-1, *self.frame)

    def without(self, rows: Int[np.ndarray, " some"], why: str) -> Table:
        """The table without some of its rows, and a note of it."""
        keep = np.ones(len(self.kept), dtype=bool)
        keep[rows] = False
        if not keep.any():
            raise DataError(
                f"all {len(keep):,} rows of {self.called} {why}: nothing is left to learn from"
            )
        return replace(
            self,
            all_values=self.all_values[keep],
            kept=self.kept[keep],
            group=None if self.group is None else self.group[keep],
            dropped={**self.dropped, why: len(rows)},
        )

    def describe(self, rows: Int[np.ndarray, " some"]) -> str:
        """The first few of some rows, by their place in the source."""
        return self.origin.describe(self.kept[rows])


def settle_missing(
    table: Table, what: str = "refuse", beside: Sequence[str] = (), advice: str = DROP_MISSING
) -> Table:
    """Refuse rows with a missing or infinite value, or leave them out (``what`` is "drop").

    They are looked for in the chosen columns, and in those ``beside`` that spill into them.
    """
    places = list(dict.fromkeys([*table.places, *map(table.all_names.index, beside)]))
    bad = ~np.isfinite(table.all_values[:, places])
    rows = np.flatnonzero(bad.any(axis=1))
    if not len(rows):
        return table
    if what == "drop":
        return table.without(rows, "have a missing value")
    names = [table.all_names[places[int(column)]] for column in np.flatnonzero(bad.any(axis=0))]
    raise DataError(
        f"{len(rows):,} of {len(table.kept):,} rows of {table.called} have a missing or infinite "
        f"value in {', '.join(names)}: {table.describe(rows)}. {advice}"
    )


def check_groups(table: Table) -> None:
    """Refuse groups that are too small, and a single one."""
    if table.group is None:
        return
    sizes = np.bincount(table.group, minlength=len(table.group_names))
    if len(table.group_names) < 2:
        raise DataError(
            f"--group: column {table.group_name!r} has one value only, {table.group_names[0]!r}; "
            "leave --group out, or name a column that tells groups apart"
        )
    small = [
        f"{name!r} ({size} row{'' if size == 1 else 's'})"
        for name, size in zip(table.group_names, sizes, strict=True)
        if size < LEAST_IN_GROUP
    ]
    if small:
        raise DataError(
            f"--group: in column {table.group_name!r} there is too little in {', '.join(small)}; "
            f"expected at least {LEAST_IN_GROUP} rows in each group. Is the name misspelt? Correct "
            "it, or leave these rows out of the file"
        )
