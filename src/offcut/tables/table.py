"""The table that every source becomes, for cytometry and for the command line."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.regions import Box
from offcut.tables.columns import told_rows
from offcut.tables.spillover import Compensation


class Rows:
    """How to speak of the rows of a source: lines of a text file where they can be told.

    Parameters
    ----------
    count : int
        Rows that were read, without the line of names.
    text : Path, optional
        The file, if it has lines.
    """

    def __init__(self, count: int, text: Path | None = None) -> None:
        self.count, self.text = count, text
        self._lines: list[int] | None = None

    def told(self, rows: Sequence[int] | np.ndarray) -> str:
        """The first few, ``lines 3 and 20 of the file`` or ``rows 1 and 18, counted from 0``."""
        return told_rows(rows, self._line_numbers())

    def _line_numbers(self) -> list[int]:
        """The line of each row, from 1; empty where rows and lines do not correspond."""
        if self._lines is None:
            self._lines = [] if self.text is None else self._found(self.text)
        return self._lines

    def _found(self, path: Path) -> list[int]:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            lines = [number for number, line in enumerate(file, 1) if line.strip()]
        # Not so where an entry in quotes goes on in the next line.
        return lines[1:] if len(lines) == self.count + 1 else []


@dataclass(frozen=True)
class Table:
    """Rows and columns of a source, on its own scale.

    Attributes
    ----------
    all_values : array (n, columns)
        All columns that may be of use: those that are not chosen may spill into those that are.
    all_names : list of str
    places : list of int
        Which of these were chosen.
    source : str
        The name of the file, or what else it came from.
    path : Path
        Of the file, where it is one.
    labels : array or None
        The group of each row as the source has it, where it was asked for.
    limits : Box or None
        What could be recorded in the chosen columns, where the source knows it.
    limits_note : str
        How far to trust that.
    spillover : Compensation or None
    rows : Rows
        How to speak of rows.
    kept : array
        The number, in the source, of each row that is still here.
    group : array or None
        The group of each row, numbers from 0.
    group_name : str
    group_names : tuple of str
    left_out : dict from column to reason
    dropped : dict from reason to number of rows
    matrices : array (n, d, p) or None
        Frames of an NPY file with three axes; the columns are then their entries.
    """

    all_values: np.ndarray
    all_names: list[str]
    places: list[int]
    source: str = ""
    path: Path = field(default_factory=Path)
    labels: Any = None
    limits: Box | None = None
    limits_note: str = ""
    spillover: Compensation | None = None
    rows: Rows = None  # type: ignore[assignment]  # set below, as kept is
    kept: np.ndarray = None  # type: ignore[assignment]
    group: np.ndarray | None = None
    group_name: str = ""
    group_names: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    matrices: np.ndarray | None = None

    def __post_init__(self) -> None:
        count = len(self.all_values)
        if self.rows is None:
            object.__setattr__(self, "rows", Rows(count))
        if self.kept is None:
            object.__setattr__(self, "kept", np.arange(count))

    @property
    def names(self) -> list[str]:
        """Names of the chosen columns."""
        return [self.all_names[place] for place in self.places]

    @property
    def values(self) -> np.ndarray:
        """The chosen columns, (n, columns)."""
        return self.all_values[:, self.places]

    def without(self, rows: np.ndarray, why: str) -> Table:
        """The table without some of its rows, and a note of it."""
        keep = np.ones(len(self.kept), dtype=bool)
        keep[rows] = False
        if not keep.any():
            raise DataError(
                f"all {len(keep):,} rows of {self.source} {why}: nothing is left to learn from"
            )
        return replace(
            self,
            all_values=self.all_values[keep],
            kept=self.kept[keep],
            labels=None if self.labels is None else np.asarray(self.labels)[keep],
            group=None if self.group is None else self.group[keep],
            dropped={**self.dropped, why: len(rows)},
            matrices=None if self.matrices is None else self.matrices[keep],
        )

    def told(self, rows: np.ndarray) -> str:
        """The first few of some rows, by their place in the source."""
        return self.rows.told(self.kept[rows])


def from_columns(columns: Sequence[np.ndarray], names: Sequence[str], **known: Any) -> Table:
    """A table of these columns, all of them chosen."""
    return Table(np.stack(columns, axis=1), list(names), list(range(len(names))), **known)
