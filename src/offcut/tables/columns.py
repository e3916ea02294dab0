"""Channels by name, and columns as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.numerics.text import visible

#: How many names or rows an error writes out.
MOST_LISTED = 20
FEW = 5


def place_of(wanted: Any, labels: Sequence[Sequence[str]], problem: str) -> int:
    """Where a channel is: by position, or by one of its names in any case.

    ``labels`` holds lists of names, such as $PnN and $PnS of an FCS file; the first list wins where
    a name in the same case is in both.

    >>> place_of("cd4", [["FL1-H", "FL2-H"], ["CD4", "CD8"]], "no such channel")
    0
    """
    count = len(labels[0])
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool):
        if 0 <= wanted < count:
            return int(wanted)
        raise DataError(f"channel {wanted} was asked for, but there are {count}, from 0")
    name = str(wanted).strip()
    for names in labels:
        exact = [place for place, label in enumerate(names) if label == name]
        if len(exact) == 1:
            return exact[0]
    alike = {
        place
        for names in labels
        for place, label in enumerate(names)
        if label.strip().lower() == name.lower()
    }
    if len(alike) == 1:
        return alike.pop()
    if alike:
        raise DataError(
            f"{len(alike)} channels are called {name!r} (numbers {sorted(alike)}, from 0); choose "
            "by number, or by a name that only one of them has"
        )
    raise DataError(f"{problem}: {name!r}; the channels are {listed(described(labels))}")


def described(labels: Sequence[Sequence[str]]) -> list[str]:
    """Names with other names of the same channel in parentheses."""
    told = []
    for first, *others in zip(*labels, strict=True):
        more = [other for other in dict.fromkeys(others) if other and other != first]
        told.append(f"{first} ({', '.join(more)})" if more else first)
    return told


def chosen(
    channels: Any, labels: Sequence[Sequence[str]], default: Sequence[int]
) -> tuple[list[int], list[str]]:
    """Places and names of the channels that the user asked for."""
    if channels is None:
        return list(default), [labels[0][place] for place in default]
    wanted = [channels] if isinstance(channels, str | int) else list(channels)
    if not wanted:
        raise DataError("channels is empty; name at least one, or leave it out for all")
    places = [place_of(name, labels, "there is no such channel") for name in wanted]
    if len(set(places)) < len(places):
        raise DataError(f"a channel is chosen twice in {listed(list(map(str, wanted)))}")
    names = []
    for name, place in zip(wanted, places, strict=True):
        spelled = [known[place] for known in labels]
        same = (label for label in spelled if label.strip().lower() == str(name).strip().lower())
        names.append(next(same, spelled[0]))
    return places, names


def as_column(values: Any, name: str) -> np.ndarray:
    """One column as float64, or an error that shows the first entry that is no number."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    numbers = np.empty(len(array))
    bad = []
    for row, value in enumerate(array.tolist()):
        try:
            numbers[row] = np.nan if _is_missing(value) else as_number(value)
        except (TypeError, ValueError):
            bad.append(row)
    if bad:
        raise DataError(
            f"column {name!r} holds text: {len(bad):,} of {len(array):,} entries are no numbers, "
            f"the first in row {bad[0]} (from 0): {array[bad[0]]!r}. Correct them, or choose "
            "other columns with channels=[...]"
        )
    return numbers


def as_number(value: Any) -> float:
    """As ``float``; integers beyond its range are infinite, as they are where they are text.

    >>> as_number(-(10**400)), as_number("1e400")
    (-inf, inf)
    """
    try:
        return float(value)
    except OverflowError:
        return -np.inf if value < 0 else np.inf


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType"


def as_groups(labels: Any, rows: int, what: str = "group") -> tuple[np.ndarray, tuple[str, ...]]:
    """Integers 0, 1, ... and the names they stand for, in sorted order."""
    array = np.asarray(labels)
    if array.shape != (rows,):
        raise DataError(
            f"{what} needs a label for each of the {rows:,} events, got shape {array.shape}"
        )
    missing = [
        row for row, label in enumerate(array.tolist()) if _is_missing(label) or label != label
    ]
    if missing:
        raise DataError(
            f"{len(missing):,} events have no {what} ({told_rows(missing)}); label them or leave "
            "them out"
        )
    kinds, codes = np.unique(
        array.astype(str) if array.dtype == object else array, return_inverse=True
    )
    return codes.astype(np.int64), tuple(map(str, kinds))


def listed(names: Sequence[str]) -> str:
    """Names with commas, not too many."""
    more = len(names) - MOST_LISTED
    return ", ".join(map(visible, names[:MOST_LISTED])) + (f" and {more} more" if more > 0 else "")


def told_rows(rows: Sequence[int] | np.ndarray) -> str:
    """The first few row numbers."""
    first = ", ".join(str(int(row)) for row in rows[:FEW])
    return f"row{'' if len(rows) == 1 else 's'} {first}{', ...' if len(rows) > FEW else ''}, from 0"
