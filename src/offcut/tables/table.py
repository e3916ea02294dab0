"""What a source holds, on the instrument's scale, and whether it can be what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.regions import Box
from offcut.tables.columns import told_rows
from offcut.tables.spillover import Compensation


@dataclass
class Recorded:
    """Columns of a source, on the instrument's scale.

    ``values`` and ``names`` are about all columns that may be of use, ``places`` says which of
    these were chosen; ``limits`` (a box, if the source knows one) is about the chosen ones, and
    ``limits_note`` says how far to trust it.
    """

    values: np.ndarray
    names: list[str]
    places: list[int]
    labels: Any = None
    limits: Box | None = None
    limits_note: str = ""
    spillover: Compensation | None = None
    source: str = ""


def check_finite(recorded: Recorded, detectors: Sequence[str]) -> None:
    """Refuse missing values in chosen columns, and in those that spill into them."""
    used = list(dict.fromkeys([*recorded.places, *map(recorded.names.index, detectors)]))
    values = recorded.values[:, used]
    if not len(values):
        raise DataError(f"{recorded.source or 'the source'} has no events: nothing to learn from")
    bad = ~np.isfinite(values)
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        names = [recorded.names[used[column]] for column in np.flatnonzero(bad.any(axis=0))]
        raise DataError(
            f"{len(rows):,} of {len(values):,} events have a missing or infinite value in "
            f"{', '.join(names)} ({told_rows(rows)}); leave these rows out: a value that was not "
            "recorded is not an event"
        )


def check_inside(observed: np.ndarray, box: Box, channels: Sequence[str], note: str) -> None:
    """Refuse events that the instrument could not record."""
    below = np.where(box.closed_lower, observed < box.lower, observed <= box.lower)
    above = np.where(box.closed_upper, observed > box.upper, observed >= box.upper)
    rows = np.flatnonzero((below | above).any(axis=1))
    if not len(rows):
        return
    told = [
        f"{name} (window {low:g} to {high:g}, data {column.min():g} to {column.max():g}: "
        f"{under:,} below, {over:,} above)"
        for name, low, high, under, over, column in zip(
            channels, box.lower, box.upper, below.sum(0), above.sum(0), observed.T, strict=True
        )
        if under or over
    ]
    raise DataError(
        f"{len(rows):,} of {len(observed):,} events lie outside the window ({told_rows(rows)}): in "
        f"{'; '.join(told)}. A window is what could be recorded, on the instrument's scale, so no "
        f"event lies outside. {note}Give the true limits with window={{{channels[0]!r}: "
        "(lower, upper), ...}, None for no limit; or leave these rows out, if they were to be cut "
        "off"
    )
