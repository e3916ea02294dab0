"""Which columns of a table are the data: those asked for, or all that hold numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.cytometry.columns import MOST_LISTED, as_number, listed
from offcut.cytometry.tables import names_rows
from offcut.errors import DataError
from offcut.fitting.lines import Rows

#: No file has a column whose number is longer, and Python makes no integer of very long ones.
MOST_DIGITS = 18
#: A column with text is taken for one of numbers with mistakes in it where less than this is text.
MISTAKES = 0.5


def as_places(wanted: Sequence[str], names: Sequence[str], option: str = "--columns") -> list[int]:
    """Where the columns are: by name, by name in any case, or by number from 0."""
    places = [_place(word, names, option) for word in wanted]
    twice = [word for word, place in zip(wanted, places, strict=True) if places.count(place) > 1]
    if twice:
        raise DataError(f"{option} names {twice[0]!r} more than once; name each column once")
    return places


def _place(word: str, names: Sequence[str], option: str) -> int:
    for spelled in (lambda name: name, lambda name: name.strip().lower()):
        places = [place for place, name in enumerate(names) if spelled(name) == spelled(word)]
        if len(places) == 1:
            return places[0]
        if places:
            raise DataError(
                f"{len(places)} columns are called {word!r}; choose by number (from 0), one of "
                f"{', '.join(map(str, places))}"
            )
    if word.isdecimal():
        if len(word) <= MOST_DIGITS and int(word) < len(names):
            return int(word)
        raise DataError(
            f"{option} asks for column {word}, but there are {len(names)}, numbered from 0"
        )
    raise DataError(f"{option}: there is no column {word!r}; there are {listed(list(names))}")


def numeric_columns(
    frame: Any, aside: Sequence[int], rows: Rows, source: str
) -> tuple[list[int], dict[str, str]]:
    """Columns of a data frame that hold numbers, and the others with the reason."""
    places, left_out = [], {}
    for place, name in enumerate(map(str, frame.columns)):
        if place in aside:
            continue
        series = frame.iloc[:, place]
        why = _why_not(series, name, rows, source)
        if not why and names_rows(place, name):
            why = "names the rows"
        if why:
            left_out[name] = why
        else:
            places.append(place)
    if not places:
        said = "; ".join(f"{name} {why}" for name, why in list(left_out.items())[:MOST_LISTED])
        raise DataError(
            f"{source} has no column of numbers ({said or 'it has no columns'}); expected a line "
            "of names and then a line of numbers for each observation"
        )
    return places, left_out


def _why_not(series: Any, name: str, rows: Rows, source: str) -> str:
    """Why a column is no data, in words; nothing where it is."""
    array = np.asarray(series)
    if array.dtype.kind in "fiub":
        if name.startswith("Unnamed:") and np.array_equal(array, np.arange(len(array)) + array[0]):
            return "counts the rows"
        return "is empty" if array.dtype.kind == "f" and np.isnan(array).all() else ""
    if array.dtype.kind in "mM":
        return "holds dates"
    text, missing = _texts(array)
    if len(text) == 0:
        return "is empty" if missing == len(array) else ""
    if len(text) < MISTAKES * (len(array) - missing):
        check_numbers(array, name, rows, source)
    return "holds text"


def check_numbers(values: Any, name: str, rows: Rows, source: str) -> None:
    """Refuse a column with text in it: how much, where, and which."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return
    if array.dtype.kind in "mM":
        raise DataError(
            f"column {name!r} of {source} holds dates; make numbers of them (days since some day, "
            "for example), or choose other columns with --columns"
        )
    text, _ = _texts(array)
    if text:
        raise DataError(
            f"column {name!r} of {source} holds text: {len(text):,} of {len(array):,} entries are "
            f"no numbers, in {rows.told(text)}; the first is {str(array[text[0]])!r}. Correct "
            "them, or choose other columns with --columns"
        )


def _texts(array: np.ndarray) -> tuple[list[int], int]:
    """Rows whose entry is no number, and how many have none at all."""
    found, missing = [], 0
    for row, value in enumerate(array.tolist()):
        if value is None or value != value or type(value).__name__ == "NAType":
            missing += 1
            continue
        try:
            as_number(value)
        except (TypeError, ValueError):
            found.append(row)
    return found, missing
