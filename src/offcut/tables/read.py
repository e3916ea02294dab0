"""A file as a table of numbers: which columns, which rows, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.tables.columns import as_groups
from offcut.tables.fcs import read_fcs
from offcut.tables.frames import (
    delimited_frame,
    file_kind,
    is_number,
    parquet_frame,
    read_frame,
    stored_array,
)
from offcut.tables.selection import MOST_DIGITS, Rows, as_places, check_numbers, numeric_columns
from offcut.tables.table import Recorded

#: More groups than this are no groups: the column is taken for a measurement.
MOST_GROUPS = 20
TEXT = (".csv", ".tsv")


@dataclass(frozen=True)
class Table:
    """Rows and columns of a file.

    Attributes
    ----------
    path : Path
    recorded : Recorded
        All columns that may be of use, and which were chosen.
    rows : Rows
        How to speak of rows.
    kept : array
        The number, in the file, of each row that is still here.
    group : array or None
        The group of each row, numbers from 0.
    group_name : str
    group_names : tuple of str
    left_out : dict from column to reason
    dropped : dict from reason to number of rows
    matrices : array (n, d, p) or None
        Frames of an NPY file with three axes; ``recorded`` then has their entries.
    """

    path: Path
    recorded: Recorded
    rows: Rows
    kept: np.ndarray
    group: np.ndarray | None = None
    group_name: str = ""
    group_names: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    matrices: np.ndarray | None = None

    @property
    def names(self) -> list[str]:
        """Names of the chosen columns."""
        return [self.recorded.names[place] for place in self.recorded.places]

    @property
    def values(self) -> np.ndarray:
        """The chosen columns, (n, columns)."""
        return self.recorded.values[:, self.recorded.places]

    def without(self, rows: np.ndarray, why: str) -> Table:
        """The table without some of its rows, and a note of it."""
        keep = np.ones(len(self.kept), dtype=bool)
        keep[rows] = False
        if not keep.any():
            raise DataError(
                f"all {len(keep):,} rows of {self.path.name} {why}: nothing is left to learn from"
            )
        return replace(
            self,
            recorded=replace(self.recorded, values=self.recorded.values[keep]),
            kept=self.kept[keep],
            group=None if self.group is None else self.group[keep],
            dropped={**self.dropped, why: len(rows)},
            matrices=None if self.matrices is None else self.matrices[keep],
        )

    def told(self, rows: np.ndarray) -> str:
        """The first few of some rows, by their place in the file."""
        return self.rows.told(self.kept[rows])


def read_table(
    path: Path, columns: list[str] | None, group: str | None, *, frames: bool = False
) -> Table:
    """A CSV, TSV, Parquet, NPY, FCS or H5AD file.

    Parameters
    ----------
    path : Path
    columns : list of str, optional
        Names or numbers from 0; by default all columns of numbers but the group.
    group : str, optional
        The column that has the group of each row.
    frames : bool
        Whether an NPY file may have three axes.

    Returns
    -------
    Table
    """
    kind = file_kind(path)
    if kind == ".npy":
        return _from_array(path, columns, group, frames)
    if kind in (".csv", ".tsv", ".parquet"):
        return _from_frame(path, kind, columns, group)
    if group is not None and kind == ".fcs":
        raise DataError(
            f"--group {group}: FCS files have no column with groups; fit file by file, or put the "
            "files together into a table (CSV or Parquet) with a column that says which is which"
        )
    if kind == ".fcs":
        recorded, labels = read_fcs(path, _numbered(columns)), None
    else:
        from offcut.tables.anndata import recorded_from, stored

        recorded = recorded_from(stored(path), columns, group)
        labels = recorded.labels
    return _made(path, recorded, kind, labels, group or "", {})


def _numbered(columns: list[str] | None) -> list[str | int] | None:
    """Names that are numbers, as numbers."""
    if columns is None:
        return None
    return [int(c) if c.isdecimal() and len(c) <= MOST_DIGITS else c for c in columns]


def _from_frame(path: Path, kind: str, columns: list[str] | None, group: str | None) -> Table:
    frame = parquet_frame(path) if kind == ".parquet" else delimited_frame(path)
    rows = Rows(path, len(frame), kind in TEXT)
    if not len(frame):
        raise DataError(
            f"{path} has names of columns but no rows; expected a row of numbers for each "
            "observation"
        )
    names = [str(name) for name in frame.columns]
    aside = [] if group is None else as_places([group], names, "--group")
    left_out: dict[str, str] = {}
    if columns is None:
        places, left_out = numeric_columns(frame, aside, rows, path.name)
    else:
        places = as_places(columns, names)
        for place in places:
            if place in aside:
                raise DataError(
                    f"column {names[place]!r} is the group and among --columns; take it out there"
                )
            check_numbers(frame.iloc[:, place], names[place], rows, path.name)
    recorded = read_frame(frame.iloc[:, places], range(len(places)), None, path.name)
    labels = np.asarray(frame.iloc[:, aside[0]]) if aside else None
    return _made(path, recorded, kind, labels, names[aside[0]] if aside else "", left_out)


def _from_array(path: Path, columns: list[str] | None, group: str | None, frames: bool) -> Table:
    array = stored_array(path)
    if array.dtype.names is not None or array.dtype.kind not in "fiub":
        raise DataError(
            f"{path} holds an array of {array.dtype}; expected real numbers, a row for each "
            "observation and a column for each coordinate"
        )
    matrices = None
    if array.ndim == 3 and frames:
        if columns is not None or group is not None:
            raise DataError(
                f"{path} holds matrices, an array of shape {array.shape}: there are no columns to "
                "choose with --columns or --group; leave these out, or save a table"
            )
        matrices = array.astype(float)
        array = matrices.reshape(len(array), -1)
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        expected = " or, for frames, (n, rows, columns)" if frames else ""
        raise DataError(
            f"{path} holds an array of shape {array.shape}; expected a row for each observation "
            f"and a column for each coordinate, (n, columns) or (n,){expected}"
        )
    if not len(array):
        raise DataError(f"{path} holds an array with no rows: nothing to learn from")
    matrix = array.reshape(len(array), -1).astype(float)
    names = [f"column {number}" for number in range(matrix.shape[1])]
    names = ["value"] if len(names) == 1 else names
    aside = [] if group is None else as_places([group], names, "--group")
    default = [place for place in range(len(names)) if place not in aside]
    places = default if columns is None else as_places(columns, names)
    if not places:
        raise DataError(f"{path} has no column left beside the group; expected at least one")
    if set(places) & set(aside):
        raise DataError(f"column {group} is the group and among --columns; take it out there")
    chosen = [names[place] for place in places]
    recorded = Recorded(matrix[:, places], chosen, list(range(len(places))), source=path.name)
    labels = array[:, aside[0]] if aside else None
    table = _made(path, recorded, ".npy", labels, names[aside[0]] if aside else "", {})
    return replace(table, matrices=matrices)


def _made(
    path: Path,
    recorded: Recorded,
    kind: str,
    labels: Any,
    group_name: str,
    left_out: dict[str, str],
) -> Table:
    count = len(recorded.values)
    if not count:
        raise DataError(f"{path} has no rows: nothing to learn from")
    rows = Rows(path, count, kind in TEXT)
    table = Table(path, recorded, rows, np.arange(count), left_out=left_out)
    if labels is None:
        return table
    codes, names = as_groups(_whole(labels), count, f"group (column {group_name!r})")
    if len(names) > MOST_GROUPS:
        raise DataError(
            f"--group: column {group_name!r} has {len(names):,} different values, such as "
            f"{', '.join(names[:4])}; expected the names of at most {MOST_GROUPS} groups. Is it a "
            "measurement?"
        )
    if all(map(is_number, names)):  # "the density of 0" is no sentence
        names = tuple(f"{group_name} = {name}" for name in names)
    return replace(table, group=codes, group_name=group_name, group_names=names)


def _whole(labels: Any) -> np.ndarray:
    """Numbers without decimals as whole ones, so that groups are called 0 and 1, not 0.0."""
    array = np.asarray(labels)
    whole = array.dtype.kind == "f" and np.isfinite(array).all() and (array == array.round()).all()
    return array.astype(np.int64) if whole else array
