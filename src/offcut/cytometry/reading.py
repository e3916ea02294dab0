"""``read``: events from whatever holds them, with the window they came through.

A source becomes a table, and that (``assemble``) Events: checks, faces, compensation, transform.
Everything that is about the instrument (what it could record, which events sit on a face) is
decided on its own scale, before anything is rounded by a transform.

Events may pile up, on a face of the window or at another value where a channel ends. An instrument
that saturates writes its limit for everything beyond: such events are censored. A window says that
they were never recorded: truncated. So a pile calls for a decision.
"""

from __future__ import annotations

import itertools
import sys
import traceback
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from offcut.cytometry.events import Events, on_faces
from offcut.cytometry.instrument_window import (
    instrument_window,
    is_bounded,
    transformed_limits,
    transformed_window,
)
from offcut.cytometry.transforms import Transform, as_transforms
from offcut.errors import DataError, SettingsError, TrustWarning
from offcut.regions import Box
from offcut.tables.columns import Wanted, describe_rows, place_of
from offcut.tables.read import read_table
from offcut.tables.spillover import Compensation
from offcut.tables.table import Table, Values, settle_missing
from offcut.tables.windows import settle_outside, without_faces

#: Share of all events above which those at one value are a pile.
PILE = 0.005


def ask_about_piles(observed: Values, box: Box, channels: Sequence[str]) -> None:
    """A warning for each face with a pile, and for each pile at a channel's own end."""
    from offcut.checks.looks import piles

    n = len(observed)
    for name, column, low, high in zip(channels, observed.T, box.lower, box.upper, strict=True):
        for side, limit in (("lower", low), ("upper", high)):
            count = int((column == limit).sum())
            if count > PILE * n:
                _warn(
                    f"{count:,} of {n:,} events ({count / n:.1%}) sit exactly on the {side} face "
                    f"of the window in {name}, at {limit:g}. If the instrument writes {limit:g} "
                    "for everything beyond, they are censored, and a model of truncation takes "
                    "them for true values: at_limits='drop' removes them, and what is left is "
                    "truncated there, as the model says"
                )
        for value, count in piles(column, []):
            if value not in (low, high) and count > PILE * n:
                side, pair = (
                    ("largest", f"({low:g}, {value:g})")
                    if value == column.max()
                    else ("smallest", f"({value:g}, {high:g})")
                )
                _warn(
                    f"{count:,} of {n:,} events ({count / n:.1%}) in {name} are exactly "
                    f"{value:g}, the {side} value there is, within the window from {low:g} to "
                    f"{high:g}. If that is where the instrument saturates, say so: "
                    f"window={{{name!r}: {pair}}} and at_limits='drop'"
                )


def _warn(message: str) -> None:
    """For the line that called us, from however deep (and through jaxtyping, in tests)."""
    frames = (frame.f_globals["__name__"] for frame, _ in traceback.walk_stack(sys._getframe()))
    ours = itertools.takewhile(lambda name: name.startswith(("offcut.", "jaxtyping.")), frames)
    warnings.warn(message, TrustWarning, stacklevel=1 + len(list(ours)))


def assemble(
    table: Table,
    *,
    transform: object = None,
    window: object = None,
    at_limits: str = "keep",
    compensate: object = False,
) -> Events:
    """Checked, compensated and transformed; the parameters are those of ``read``."""
    if at_limits not in ("keep", "drop"):
        raise SettingsError(f"at_limits must be 'keep' or 'drop', got {at_limits!r}")
    channels = tuple(table.names)
    transforms = as_transforms(transform, channels)
    box = instrument_window(window, channels, table.limits)
    compensation = _compensation(compensate, table, channels)
    spillover = None
    if compensation is not None and is_bounded(box):
        spillover = compensation.among(channels)
    settle_missing(
        table,
        beside=() if compensation is None else compensation.detectors,
        advice="Leave these rows out: a value that was not recorded is not an event",
    )
    settle_outside(
        table,
        box,
        note=table.limits_note if window is None else "",
        advice=f"on the instrument's scale, window={{{channels[0]!r}: (lower, upper), ...}}, with "
        "None for no limit; or leave these rows out, if they were to be cut off",
    )
    before = len(table.kept)
    if at_limits == "drop":
        table, box = without_faces(table, box)
    observed = table.values
    faces = on_faces(observed, box, channels)
    ask_about_piles(observed, box, channels)
    linear = observed if compensation is None else _compensated(table, compensation)
    values = _transformed(linear, transforms, channels)
    region = transformed_window(box, transforms, spillover)
    if isinstance(region, Box):
        values = _within(values, observed, box, transforms)
    return Events(
        values,
        channels,
        region,
        transforms[0] if len(set(transforms)) == 1 else transforms,
        table.group,
        table.group_names,
        table.source,
        faces if is_bounded(box) else {},
        before - len(table.kept),
        compensation,
    )


def _compensation(
    compensate: object, table: Table, channels: tuple[str, ...]
) -> Compensation | None:
    """What ``compensate`` asks for: the source's own, a matrix for the chosen channels, or none."""
    if compensate is None or compensate is False:
        return None
    if compensate is True:
        if table.spillover is None:
            raise DataError(
                f"{table.source or 'the source'} has no spillover matrix; give one with "
                f"compensate=matrix, a row and a column for each of {', '.join(channels)}"
            )
        return table.spillover
    if isinstance(compensate, Compensation):
        problem = "the spillover matrix has a channel that the data have not"
        places = [place_of(name, [table.all_names], problem) for name in compensate.detectors]
        return Compensation([table.all_names[place] for place in places], compensate.spillover)
    return Compensation(channels, np.asarray(compensate, dtype=float))


def _compensated(table: Table, compensation: Compensation) -> Values:
    """The chosen columns, after compensation of those that it is about."""
    values = table.all_values.copy()
    about = [table.all_names.index(name) for name in compensation.detectors]
    values[:, about] = compensation.compensated(values[:, about])
    return values[:, table.places]


def _transformed(
    values: Values, transforms: tuple[Transform, ...], channels: tuple[str, ...]
) -> Values:
    columns = zip(transforms, values.T, strict=True)
    moved = np.stack([transform(column) for transform, column in columns], axis=1)
    for place in np.flatnonzero(~np.isfinite(moved).all(axis=0)):
        rows = np.flatnonzero(~np.isfinite(moved[:, place]))
        raise DataError(
            f"{transforms[place]!r} has no value for {len(rows):,} of {len(moved):,} events in "
            f"{channels[place]} ({describe_rows(rows)}; the first is {values[rows[0], place]:g}); "
            "take Asinh or Logicle, which know zero and negative values, or drop events on the "
            "lower face with at_limits='drop'"
        )
    return moved


def _within(
    values: Values, observed: Values, box: Box, transforms: tuple[Transform, ...]
) -> Values:
    """Transformed values with rounding taken off: on a face exactly where they were on it."""
    lower, upper = transformed_limits(box, transforms)
    inner = np.clip(values, np.nextafter(lower, np.inf), np.nextafter(upper, -np.inf))
    return np.where(observed == box.lower, lower, np.where(observed == box.upper, upper, inner))


def read(
    source: object,
    channels: Wanted | None = None,
    *,
    transform: object = None,
    window: object = None,
    group: ArrayLike | None = None,
    at_limits: str = "keep",
    compensate: object = False,
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
    return assemble(
        read_table(source, channels, group),
        transform=transform,
        window=window,
        at_limits=at_limits,
        compensate=compensate,
    )
