"""``read``: events from whatever holds them, with the window they came through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from offcut.cytometry.assemble import assemble
from offcut.cytometry.events import Events
from offcut.cytometry.fcs import is_fcs, read_fcs
from offcut.cytometry.recorded import Recorded
from offcut.cytometry.tables import (
    read_array,
    read_delimited,
    read_frame,
    read_npy,
    read_parquet,
)
from offcut.errors import DataError

READERS = {
    ".csv": read_delimited,
    ".tsv": read_delimited,
    ".parquet": read_parquet,
    ".npy": read_npy,
}


def read(
    source: Any,
    channels: Any = None,
    *,
    transform: Any = None,
    window: Any = None,
    group: Any = None,
    at_limits: str = "keep",
    compensate: Any = False,
) -> Events:
    """Events, checked, compensated and transformed, and the window on the transformed scale.

    Parameters
    ----------
    source : array, pandas.DataFrame, AnnData, or path
        A path to an FCS (2.0 to 3.1), CSV, TSV, Parquet, NPY or H5AD file; FCS files are
        recognised whatever they are called.
    channels : sequence of str or int, optional
        Which, by name in any case (in FCS files $PnN or $PnS) or by number. By default all, except
        the time of an FCS file and names of rows (a first column without a name, as R and pandas
        write it). For a plain array with a column for each: their names.
    transform : Transform, sequence, or dict by channel, optional
        The scale that the mixture will see; by default the instrument's.
    window : (lower, upper), dict of these by channel, or Box, optional
        What could be recorded, on the instrument's scale: before compensation and transform. None
        among the limits for none. By default the range of an FCS file (integers from 0 to
        $PnR - 1, floating-point numbers from 0 to $PnR); for other sources no window.
    group : str, or a label for each event, optional
        The name of a column (in an AnnData of ``obs``), or labels.
    at_limits : "keep" or "drop"
        Events exactly on a face of the window are usually clamped there (censored) rather than
        true values. Kept, with a warning where they are more than 0.5 %; or removed, which
        leaves data that are truncated at open faces.
    compensate : bool, Compensation, or matrix
        Undo spillover: with the matrix of the FCS file, or a given one (a row for each dye and a
        column for each detector, for the chosen channels). The window is then no box: a
        ``Polytope`` where all transforms are linear, else a ``Predicate``.

    Returns
    -------
    Events

    Examples
    --------
    >>> from offcut.cytometry import Asinh, read
    >>> counts = [[0, 511], [130, 1020], [257, 80]]
    >>> events = read(counts, ["CD4", "CD8"], window=(0, 1023), transform=Asinh(100))
    >>> events.region
    Box([0, 0], [3.020852095014173, 3.020852095014173])
    >>> events.at_limit
    {'CD4': (1, 0), 'CD8': (0, 0)}
    >>> read(counts, ["CD4", "CD8"], window=(0, 1023), at_limits="drop")
    Events(2 events of 2 channels: CD4, CD8; window Box([0, 0], [1023, 1023], closed='neither'); \
transform Identity(); 1 dropped)
    """
    if hasattr(source, "obs") and hasattr(source, "var_names"):
        from offcut.cytometry.annotated import recorded_from

        recorded = recorded_from(source, channels, group)
    elif isinstance(source, str | os.PathLike):
        recorded = _from_path(Path(source), channels, group)
    elif hasattr(source, "columns") and hasattr(source, "iloc"):
        recorded = read_frame(source, channels, group)
    else:
        recorded = read_array(source, channels, group)
    return assemble(
        recorded,
        transform=transform,
        window=window,
        group=group,
        at_limits=at_limits,
        compensate=compensate,
    )


def _from_path(path: Path, channels: Any, group: Any) -> Recorded:
    kind = file_kind(path)
    if kind == ".fcs":
        if isinstance(group, str):
            raise DataError(
                f"group={group!r} names a column, but FCS files have no labels; give one for each "
                "event, or read file by file and put them together with concatenate"
            )
        return read_fcs(path, channels)
    if kind == ".h5ad":
        from offcut.cytometry.annotated import recorded_from, stored

        return recorded_from(stored(path), channels, group)
    return READERS[kind](path, channels, group)


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
    if suffix != ".h5ad" and suffix not in READERS:
        raise DataError(
            f"{path} is of no known kind ({suffix or 'no suffix'}); known are .fcs, .h5ad, "
            f"{', '.join(READERS)}. Anything else as an array: read(array, channels)"
        )
    return suffix
