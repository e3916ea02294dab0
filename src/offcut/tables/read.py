"""A file as a table for the command line: which columns, which groups, and what was left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.tables.columns import as_groups, as_places, numbered, numeric_columns
from offcut.tables.fcs import read_fcs
from offcut.tables.frames import (
    ARRAY,
    FRAMES,
    file_kind,
    is_number,
    read_frame,
    stored_array,
)
from offcut.tables.table import Rows, Table

#: More groups than this are no groups: the column is taken for a measurement.
MOST_GROUPS = 20
TEXT = (".csv", ".tsv")


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
    if kind == ARRAY:
        return _from_array(path, columns, group, frames)
    if kind in FRAMES:
        return _from_frame(path, kind, columns, group)
    if group is not None and kind == ".fcs":
        raise DataError(
            f"--group {group}: FCS files have no column with groups; fit file by file, or put the "
            "files together into a table (CSV or Parquet) with a column that says which is which"
        )
    if kind == ".fcs":
        return _made(path, read_fcs(path, None if columns is None else numbered(columns)))
    from offcut.tables.anndata import stored, table_from

    table = table_from(stored(path), columns, group)
    return _made(path, replace(table, source=path.name), group or "")


def _from_frame(path: Path, kind: str, columns: list[str] | None, group: str | None) -> Table:
    frame = FRAMES[kind](path)
    rows = Rows(len(frame), path if kind in TEXT else None)
    if not len(frame):
        raise DataError(
            f"{path} has names of columns but no rows; expected a row of numbers for each "
            "observation"
        )
    names = [str(name) for name in frame.columns]
    aside = [] if group is None else as_places([group], names, "--group")
    left_out: dict[str, str] = {}
    if columns is None:
        places, left_out = numeric_columns(frame, aside, path.name)
    else:
        places = as_places(columns, names)
        _refuse_group(names, places, aside)
    table = read_frame(
        frame.iloc[:, places],
        range(len(places)),
        None,
        path.name,
        of=path.name,
        told=rows.told,
        choose="--columns",
    )
    labels = np.asarray(frame.iloc[:, aside[0]]) if aside else None
    table = replace(table, rows=rows, labels=labels, left_out=left_out)
    return _made(path, table, names[aside[0]] if aside else "")


def _refuse_group(names: list[str], places: list[int], aside: list[int]) -> None:
    for place in places:
        if place in aside:
            raise DataError(
                f"column {names[place]!r} is the group and among --columns; take it out there"
            )


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
    _refuse_group(names, places, aside)
    table = Table(
        matrix[:, places],
        [names[place] for place in places],
        list(range(len(places))),
        path.name,
        labels=array[:, aside[0]] if aside else None,
        matrices=matrices,
    )
    return _made(path, table, names[aside[0]] if aside else "")


def _made(path: Path, table: Table, group_name: str = "") -> Table:
    """With the groups that its labels say."""
    count = len(table.all_values)
    if not count:
        raise DataError(f"{path} has no rows: nothing to learn from")
    labels, table = table.labels, replace(table, path=path, labels=None)
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
