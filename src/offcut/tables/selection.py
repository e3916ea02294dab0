"""Which columns of a table are the data: those asked for, or all that hold numbers.

Which rows are meant: lines of a text file where they can be told, else numbers from 0.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.tables.columns import MOST_LISTED, as_number, listed
from offcut.tables.frames import names_rows

#: How many rows an error writes out.
FEW_LINES = 5


class Rows:
    """How to speak of the rows of a file.

    Parameters
    ----------
    path : Path
    count : int
        Rows that were read, without the line of names.
    text : bool
        Whether the file has lines.
    """

    def __init__(self, path: Path, count: int, text: bool) -> None:
        self.path, self.count, self.text = path, count, text
        self._lines: list[int] | None = None

    def told(self, rows: Sequence[int] | np.ndarray) -> str:
        """The first few, ``lines 3, 17 and 20 of the file`` or ``rows 1, 15 and 18, from 0``."""
        lines = self._line_numbers()
        shown = [int(row) for row in rows[:FEW_LINES]]
        numbers = [str(lines[row]) if lines else str(row) for row in shown]
        more = len(rows) - len(shown)
        if more:
            words = ", ".join(numbers) + f" and {more:,} more"
        else:
            words = " and ".join(", ".join(numbers).rsplit(", ", 1))
        what = "line" if lines else "row"
        end = " of the file" if lines else ", counted from 0"
        return f"{what}{'' if len(rows) == 1 else 's'} {words}{end}"

    def _line_numbers(self) -> list[int]:
        """The line of each row, from 1; empty where rows and lines do not correspond."""
        if self._lines is None:
            self._lines = self._found() if self.text else []
        return self._lines

    def _found(self) -> list[int]:
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "rt", encoding="utf-8", errors="replace") as file:
            lines = [number for number, line in enumerate(file, 1) if line.strip()]
        # Not so where an entry in quotes goes on in the next line.
        return lines[1:] if len(lines) == self.count + 1 else []


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
