"""Arrays and tables: NumPy, pandas, CSV, Parquet and NPY."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.files import first_line
from offcut.numerics.extras import needed
from offcut.tables.columns import as_column, chosen, listed, names_rows
from offcut.tables.delimited import opened, records
from offcut.tables.fcs import is_fcs
from offcut.tables.table import Table, from_columns


def read_array(array: Any, channels: Any, group: Any, source: str = "") -> Table:
    """A matrix with a row for each event; ``channels`` names its columns, or chooses by number."""
    if isinstance(group, str):
        raise DataError(
            f"group={group!r} names a column, but an array's columns have no names; give a label "
            "for each event, group=labels"
        )
    try:
        matrix = np.asarray(array)
    except ValueError as error:
        raise DataError(
            f"the rows cannot be put into one array ({error}); give all the same number of entries"
        ) from error
    if matrix.ndim == 1 and matrix.dtype.names is None:
        matrix = matrix[:, np.newaxis]
    if matrix.ndim != 2:
        kind = "structured" if matrix.dtype.names else f"of shape {matrix.shape}"
        raise DataError(
            f"expected an array with a row for each event and a column for each channel, got one "
            f"{kind}"
        )
    size = matrix.shape[1]
    names = [f"channel {number}" for number in range(size)]
    given = None if channels is None or isinstance(channels, str | int) else list(channels)
    if given and all(isinstance(name, str) for name in given):
        if len(given) != size or len(set(given)) < size:
            raise DataError(
                f"an array with {size} columns needs {size} different names, got {len(given)}: "
                f"{listed(given)}. To choose columns give their numbers, channels=[0, 2]"
            )
        names, channels = given, None
    places, _ = chosen(channels, [names], range(size))
    columns = [as_column(matrix[:, place], names[place]) for place in places]
    if not columns:
        return Table(np.empty((len(matrix), 0)), [], [], source=source)
    return from_columns(columns, [names[place] for place in places], source=source)


def read_frame(frame: Any, channels: Any, group: Any, source: str = "", **said: Any) -> Table:
    """A table whose columns have names; by default all but the group and names of rows.

    ``said`` goes to ``as_column``: how to speak of what is no number.
    """
    names = [str(name) for name in frame.columns]
    labels, aside = None, None
    if isinstance(group, str):
        if group not in names:
            raise DataError(
                f"there is no column {group!r} for the group; there are {listed(names)}"
            )
        aside = names.index(group)
        labels = np.asarray(frame.iloc[:, aside])
    default = [
        place for place, name in enumerate(names) if place != aside and not names_rows(place, name)
    ]
    places, spelled = chosen(channels, [names], default)
    if not places:
        raise DataError(f"no column is left for channels; there are {listed(names)}")
    if len(set(spelled)) < len(spelled):
        raise DataError(f"two columns have the same name among {listed(spelled)}; rename one")
    columns = [
        as_column(frame.iloc[:, place], name, **said)
        for place, name in zip(places, spelled, strict=True)
    ]
    return from_columns(columns, spelled, labels=labels, source=source)


def delimited_frame(path: Path) -> Any:
    """All columns of a CSV or TSV file, as pandas has them.

    Every line must have as many fields as the first. A column without a name is called as pandas
    calls it (``Unnamed: 3``); only the first may hold anything, names of rows.
    """
    pandas = needed("pandas", f"reading {path.name}")
    separator = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    lines = records(path, separator)
    _, names = next(lines, (0, []))
    if names and all(is_number(name) for name in names):
        raise DataError(
            f"the first line of {path} holds numbers ({listed(names)}), but names of channels are "
            "expected there; add them, or read the file with numpy.loadtxt and give the array"
        )
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise DataError(f"{path} does not have commas between columns: {names[0]!r}; convert it")
    nameless = [place for place, name in enumerate(names) if place and not name.strip()]
    count = 0
    for line, fields in lines:
        count += 1
        for place in nameless:
            if fields[place].strip():
                raise DataError(
                    f"column {place} of {path} (from 0) has no name in the first line, but holds "
                    f"{fields[place]!r} in line {line}; name it, or leave it out"
                )
    with opened(path) as file:
        # By default pandas 2 reads some numbers one bit beside what is written; pandas 3 does not.
        exact = {"float_precision": "round_trip"} if pandas.__version__ < "3" else {}
        frame = pandas.read_csv(file, sep=separator, low_memory=False, index_col=False, **exact)
    if frame.shape != (count, len(names)):  # it would be a difference in what is a quote or a line
        raise DataError(
            f"{path} has {count:,} lines of {len(names)} fields, but pandas reads {len(frame):,} "
            f"of {len(frame.columns)}; write it again, with quotes around fields that need them"
        )
    while len(names) > 1 and not names[-1].strip():  # a separator behind each line
        names.pop()
    return frame.iloc[:, : len(names)]


def is_number(name: str) -> bool:
    """Whether a name is a number in disguise."""
    try:
        float(name)
    except ValueError:
        return False
    return True


def parquet_frame(path: Path) -> Any:
    """All columns of a Parquet file, as pandas has them."""
    pandas = needed("pandas", f"reading {path.name}")
    needed("pyarrow", f"reading {path.name}")
    try:
        return pandas.read_parquet(path, engine="pyarrow")
    except Exception as error:  # a damaged file can fail at any byte
        said = first_line(error)
        raise DataError(
            f"{path} cannot be read as Parquet ({said}); is it damaged, or of another kind? Write "
            "it again"
        ) from error


def stored_array(path: Path) -> np.ndarray:
    """The array of an NPY file."""
    try:
        # Opened here, because NumPy leaves a file open where it fails.
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
            if not isinstance(array, np.ndarray):
                raise ValueError(f"it is an NPZ file with {', '.join(array.files) or 'nothing'}")
            return array
    except Exception as error:  # a damaged file can fail at any byte
        said = first_line(error)
        raise DataError(
            f"{path} cannot be read as an array of numbers ({said}); is it damaged? Save one array "
            "with numpy.save"
        ) from error


#: What reads a table of each kind into a data frame.
FRAMES = {".csv": delimited_frame, ".tsv": delimited_frame, ".parquet": parquet_frame}
ARRAY = ".npy"


def file_kind(path: Path) -> str:
    """``.fcs`` by what a file begins with, else its suffix; an error where it cannot be read."""
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
        return ".fcs"
    if suffix != ".h5ad" and suffix not in (*FRAMES, ARRAY):
        raise DataError(
            f"{path} is of no known kind ({suffix or 'no suffix'}); known are .fcs, .h5ad, "
            f"{', '.join((*FRAMES, ARRAY))}. Anything else as an array: read(array, channels)"
        )
    return suffix
