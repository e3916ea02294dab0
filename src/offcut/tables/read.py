"""The one reader: a file, an array, a data frame or an AnnData becomes a table.

What a source holds is found by its kind (``Contents``); then columns and groups are chosen from it
in the same way whatever it was. Python and the command line ask in different words.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from offcut.errors import DataError, ModelError
from offcut.numerics.extras import needed
from offcut.regions import Box
from offcut.tables.columns import (
    Wanted,
    as_column,
    as_groups,
    chosen,
    listed,
    numbered,
    place_of,
    why_no_data,
)
from offcut.tables.delimited import delimited_frame, is_number
from offcut.tables.fcs import is_fcs, read_fcs
from offcut.tables.spillover import Compensation
from offcut.tables.table import AnnDataLike, Contents, Frame, Origin, Table, reading

#: More groups than this are no groups: the column is taken for a measurement.
MOST_GROUPS = 20
KNOWN = (".fcs", ".h5ad", ".csv", ".tsv", ".parquet", ".npy")


@dataclass(frozen=True)
class Interface:
    """How a user asks for columns and groups.

    Where everything comes as text, numbers may stand for columns; columns that hold no numbers are
    left out with the reason, and groups get names that make sense in a sentence.
    """

    column: str  # what a column is called
    columns: str  # the argument that chooses columns
    group: str  # and the one for the group
    separately: str  # what to do with files that have no column for groups
    is_typed: bool  # whether everything comes as text


PYTHON = Interface(
    "channel",
    "channels",
    "group",
    "give a label for each event, or read file by file and put them together with concatenate",
    is_typed=False,
)
COMMAND_LINE = Interface(
    "column",
    "--columns",
    "--group",
    "fit file by file, or put the files together into a table (CSV or Parquet) with a column that "
    "says which is which",
    is_typed=True,
)


def read_table(
    source: object,
    columns: Wanted | None = None,
    group: ArrayLike | None = None,
    *,
    interface: Interface = PYTHON,
    frames: bool = False,
) -> Table:
    """A table from a CSV, TSV, Parquet, NPY, FCS or H5AD file, or from what is in memory.

    Columns come by name or by number from 0, by default all that are data but the group; names for
    all columns of an array name them. The group is a column, or a label for each row. Where models
    are of ``frames``, an array may have three axes.
    """
    return choose(_contents(source, frames), columns, group, interface)


def choose(
    contents: Contents,
    columns: Wanted | None = None,
    group: ArrayLike | None = None,
    interface: Interface = PYTHON,
) -> Table:
    """Columns as numbers, and groups; the parameters are those of ``read_table``."""
    origin = contents.origin
    if not contents.count:
        kind = "has names of columns but" if any(contents.names) else "holds an array with"
        raise DataError(
            f"{origin.name or 'the source'} {kind} no rows; expected a row of numbers for each "
            "observation: there are no events to learn from"
        )
    if contents.frame is not None and (columns is not None or group is not None):
        raise DataError(
            f"{origin.name} holds matrices, each of shape {contents.frame}: there are no columns "
            f"to choose with {interface.columns} or {interface.group}; leave these out, or save a "
            "table"
        )
    names, columns = _names(contents, columns, interface)
    labels, group_name, aside = _labels(contents, names, group, interface)
    known = [names, contents.markers] if contents.markers else [names]
    left_out: dict[str, str] = {}
    if columns is None:
        columns, left_out = _data_columns(contents, names, aside, interface)
    elif interface.is_typed and not isinstance(columns, str | int):
        columns = numbered(list(map(str, columns)), [name for kind in known for name in kind])
    places, spelled = chosen(columns, known, interface.column, interface.columns)
    if aside in places:
        raise DataError(
            f"column {group_name!r} is the group and among {interface.columns}; take it out there"
        )
    renamed = names.copy()
    for place, name in zip(places, spelled, strict=True):
        renamed[place] = name
    used, at = places, list(range(len(places)))
    if contents.limits is not None:  # other channels of an instrument may spill into the chosen
        used, at = list(range(len(names))), places
    advice = interface.columns if interface.is_typed else f"{interface.columns}=[...]"
    numbers = [
        as_column(column, renamed[place], of=origin.name, describe=origin.describe, choose=advice)
        for place, column in zip(used, contents.columns(used), strict=True)
    ]
    spillover = contents.spillover
    if spillover is not None:
        detectors = [renamed[names.index(name)] for name in spillover.detectors]
        spillover = Compensation(detectors, spillover.spillover)
    table = Table(
        np.stack(numbers, axis=1),
        [renamed[place] for place in used],
        at,
        origin,
        np.arange(contents.count),
        limits=_limits(contents, places),
        limits_note=contents.limits_note,
        spillover=spillover,
        left_out=left_out,
        frame=contents.frame,
    )
    return table if labels is None else _grouped(table, labels, group_name, interface)


def _names(
    contents: Contents, columns: Wanted | None, interface: Interface
) -> tuple[list[str], Wanted | None]:
    """Names of all columns, and the columns that are still to be chosen."""
    if any(contents.names):
        return contents.names, columns
    size = len(contents.names)
    names = [f"{interface.column} {number}" for number in range(size)]
    if interface.is_typed:
        return (["value"] if size == 1 else names), columns
    given = [] if columns is None or isinstance(columns, str | int) else list(columns)
    words = [name for name in given if isinstance(name, str)]
    if not words or len(words) < len(given):
        return names, columns
    if len(words) != size or len(set(words)) < size:
        raise DataError(
            f"an array with {size} columns needs {size} different names, got {len(words)}: "
            f"{listed(words)}. To choose columns give their numbers, channels=[0, 2]"
        )
    return words, None


def _labels(
    contents: Contents, names: list[str], group: ArrayLike | None, interface: Interface
) -> tuple[ArrayLike | None, str, int | None]:
    """A label for each row, the name of their column, and its place if it is among the columns."""
    if not isinstance(group, str):
        return group, "", None
    problem = f"{interface.group}: there is no such column"
    if contents.groups is None:
        [wanted] = numbered([group], names) if interface.is_typed else [group]
        place = place_of(wanted, [names], problem, "column")
        return contents.columns([place])[0], names[place], place
    if not contents.groups:
        raise DataError(
            f"{interface.group} {group!r}: FCS files have no column with groups, and "
            f"{contents.origin.name} has none; {interface.separately}"
        )
    known = list(contents.groups)
    name = known[place_of(group, [known], f"{problem} in obs", "column")]
    return contents.groups[name], name, None


def _data_columns(
    contents: Contents, names: list[str], group: int | None, interface: Interface
) -> tuple[list[int], dict[str, str]]:
    """Columns that are data, and the others with the reason."""
    reasons = dict(contents.aside)
    if interface.is_typed:
        columns = map(np.asarray, contents.columns(range(len(names))))
        found = enumerate(map(why_no_data, columns, names))
        reasons |= {place: why for place, why in found if why}
    beside = {} if group is None else {group: "is the group"}
    aside = reasons | beside
    if len(aside) == len(names):
        said = listed([f"{names[place]} {why}" for place, why in aside.items()])
        raise DataError(
            f"{contents.origin.name or 'the source'} has no column of numbers "
            f"({said or 'it has no columns'}); expected a line of names and then a line of numbers "
            "for each observation"
        )
    places = [place for place in range(len(names)) if place not in aside]
    return places, {names[place]: why for place, why in reasons.items() if place not in beside}


def _limits(contents: Contents, places: Sequence[int]) -> Box | None:
    """What could be recorded in these columns."""
    if contents.limits is None:
        return None
    try:
        return Box(*contents.limits[:, places])
    except ModelError as error:
        raise DataError(
            f"{contents.origin.name} states limits between which nothing could be recorded "
            f"({error}); export it again"
        ) from error


def _grouped(table: Table, labels: ArrayLike, name: str, interface: Interface) -> Table:
    """With the groups that the labels say."""
    array = np.asarray(labels)
    if interface.is_typed and array.dtype.kind == "f" and np.isfinite(array).all():
        whole = array.astype(np.int64)  # so that groups are called 0 and 1, not 0.0
        array = whole if (whole == array).all() else array
    what = f"group (column {name!r})" if name else "group"
    codes, names = as_groups(array, len(table.kept), what)
    if interface.is_typed and len(names) > MOST_GROUPS:
        raise DataError(
            f"{interface.group}: column {name!r} has {len(names):,} different values, such as "
            f"{', '.join(names[:4])}; expected the names of at most {MOST_GROUPS} groups. Is it a "
            "measurement?"
        )
    if interface.is_typed and all(map(is_number, names)):  # "the density of 0" is no sentence
        names = tuple(f"{name} = {one}" for one in names)
    return replace(table, group=codes, group_name=name, group_names=names)


def _contents(source: object, frames: bool) -> Contents:
    """What the source holds, by its kind."""
    if isinstance(source, str | os.PathLike):
        return _file(Path(source), frames)
    if isinstance(source, AnnDataLike):
        from offcut.tables.anndata import annotated_contents

        return annotated_contents(source)
    if isinstance(source, Frame):
        return _frame(source, Origin())
    try:
        return _array(np.asarray(source), Origin(), frames)
    except ValueError as error:
        raise DataError(
            f"the rows cannot be put into one array ({error}); give all the same number of entries"
        ) from error


def _file(path: Path, frames: bool) -> Contents:
    """FCS by what a file begins with, else by its suffix; an error where it cannot be read."""
    if not path.is_file():
        kind = "is a directory" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {kind} (from {Path.cwd()}); give the path of a file")
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    suffix = suffix.lower()
    try:
        begins_like_fcs = is_fcs(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be opened ({error.strerror}); are you allowed to read it?"
        ) from error
    if suffix == ".fcs" or begins_like_fcs:
        return read_fcs(path)
    if suffix not in KNOWN:
        raise DataError(
            f"{path} is of no known kind ({suffix or 'no suffix'}); known are {', '.join(KNOWN)}. "
            "Anything else as an array: read(array, channels)"
        )
    if suffix == ".h5ad":
        from offcut.tables.anndata import annotated_contents, stored

        return annotated_contents(stored(path), path=path)
    if suffix == ".npy":
        return _array(_stored_array(path), Origin(path.name, path), frames)
    if suffix == ".parquet":
        pandas = needed("pandas", f"reading {path.name}")
        needed("pyarrow", f"reading {path.name}")
        with reading(path, "Parquet", "; is it damaged, or of another kind? Write it again"):
            frame = pandas.read_parquet(path, engine="pyarrow")
        return _frame(frame, Origin(path.name, path))
    frame, lines = delimited_frame(path)
    return _frame(frame, Origin(path.name, path, lines))


def _stored_array(path: Path) -> np.ndarray:
    """The array of an NPY file."""
    # Opened here, because NumPy leaves a file open where it fails.
    with (
        reading(path, "an array of numbers", "; is it damaged? Save one array with numpy.save"),
        path.open("rb") as file,
    ):
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError(f"it is an NPZ file with {', '.join(array.files) or 'nothing'}")
    if array.dtype.kind not in "fiub":
        raise DataError(
            f"{path} holds an array of {array.dtype}; expected real numbers, a row for each "
            "observation and a column for each coordinate"
        )
    return array


def _frame(frame: Frame, origin: Origin) -> Contents:
    """A data frame; names of rows, which R and pandas write in front of a table, are no data."""
    names = [str(name) for name in frame.columns]

    def columns(places: Sequence[int]) -> list[np.ndarray]:
        return [np.asarray(frame.iloc[:, place]) for place in places]

    aside = {0: "names the rows"} if names[:1] == ["Unnamed: 0"] else {}
    return Contents(origin, frame.shape[0], names, columns, aside=aside)


def _array(array: np.ndarray, origin: Origin, frames: bool) -> Contents:
    """A matrix with a row for each event; or, of frames, matrices."""
    shape = array.shape
    fine = len(shape) in ((1, 2, 3) if frames else (1, 2)) and 0 not in shape[1:]
    if not fine or array.dtype.names is not None:
        kind = "structured" if array.dtype.names else f"of shape {shape}"
        beside = " or, for frames, (n, rows, columns)" if frames else ""
        raise DataError(
            f"{origin.name or 'the source'} holds an array {kind}; expected a row for each "
            f"observation and a column for each coordinate, (n, columns) or (n,){beside}"
        )
    matrix = array.reshape(len(array), int(np.prod(shape[1:])))
    return Contents(
        origin,
        len(array),
        [""] * matrix.shape[1],
        lambda places: [matrix[:, place] for place in places],
        frame=(shape[1], shape[2]) if len(shape) == 3 else None,
    )
