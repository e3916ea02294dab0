"""Columns by name or number, as numbers and as groups; how errors speak of names and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from offcut.errors import DataError
from offcut.numerics.text import visible

#: How many names or rows an error writes out.
MOST_LISTED = 20
FEW = 5
#: No file has a column whose number is longer, and Python makes no integer of very long ones.
MOST_DIGITS = 18
#: A column with text is taken for one of numbers with mistakes in it where less than this is text.
MISTAKES = 0.5

#: One column, or several, by name or number.
Wanted = str | int | Iterable[str | int]


def place_of(
    wanted: object, labels: Sequence[Sequence[str]], problem: str, kind: str = "channel"
) -> int:
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
        raise DataError(f"{kind} {wanted} was asked for, but there are {count}, from 0")
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
            f"{len(alike)} {kind}s are called {name!r} (numbers {sorted(alike)}, from 0); choose "
            "by number, or by a name that only one of them has"
        )
    known = []
    for first, *others in zip(*labels, strict=True):
        more = [other for other in dict.fromkeys(others) if other and other != first]
        known.append(f"{first} ({', '.join(more)})" if more else first)
    raise DataError(f"{problem}: {name!r}; the {kind}s are {listed(known) or 'none'}")


def chosen(
    wanted: Wanted, labels: Sequence[Sequence[str]], kind: str = "channel", option: str = "channels"
) -> tuple[list[int], list[str]]:
    """Places of the columns that the user asked for, and the names by which they were."""
    words = [wanted] if isinstance(wanted, str | int) else list(wanted)
    if not words:
        raise DataError(f"{option} is empty; name at least one, or leave it out for all")
    problem = f"{option}: there is no such {kind}"
    places = [place_of(word, labels, problem, kind) for word in words]
    if len(set(places)) < len(places):
        first = next(number for number, place in enumerate(places) if places.count(place) > 1)
        raise DataError(f"{option} names {words[first]!r} more than once; name each {kind} once")
    names = []
    for word, place in zip(words, places, strict=True):
        spelled = [known[place] for known in labels]
        same = (label for label in spelled if label.strip().lower() == str(word).strip().lower())
        names.append(next(same, spelled[0]))
    if len(set(names)) < len(names):
        raise DataError(f"two {kind}s have the same name among {listed(names)}; rename one")
    return places, names


def numbered(words: Sequence[str], names: Sequence[str]) -> list[str | int]:
    """Words that are numbers as numbers, unless columns are called so."""
    known = {name.strip().lower() for name in names}
    return [
        int(word)
        if word.isdecimal() and len(word) <= MOST_DIGITS and word.lower() not in known
        else word
        for word in words
    ]


def listed(names: Sequence[str]) -> str:
    """Names with commas, not too many."""
    more = len(names) - MOST_LISTED
    return ", ".join(map(visible, names[:MOST_LISTED])) + (f" and {more} more" if more > 0 else "")


def describe_rows(
    rows: Sequence[int] | np.ndarray, lines: Sequence[int] | np.ndarray | None = None
) -> str:
    """The first few rows; by their lines, where ``lines`` has the line of each row.

    >>> describe_rows([1, 15, 18]), describe_rows([0], lines=[2])
    ('rows 1, 15 and 18, counted from 0', 'line 2 of the file')
    """
    numbers = [str(row if lines is None else lines[row]) for row in map(int, rows[:FEW])]
    more = len(rows) - len(numbers)
    if more:
        shown = ", ".join(numbers) + f" and {more:,} more"
    else:
        shown = " and ".join(", ".join(numbers).rsplit(", ", 1))
    what, end = ("row", ", counted from 0") if lines is None else ("line", " of the file")
    return f"{what}{'' if len(rows) == 1 else 's'} {shown}{end}"


def as_column(
    values: ArrayLike,
    name: str,
    *,
    of: str = "",
    describe: Callable[[Sequence[int]], str] = describe_rows,
    choose: str = "channels=[...]",
) -> Float[np.ndarray, " rows"]:
    """One column as float64, or an error that shows the first entry that is no number.

    The error says ``of`` which source it is, where (``describe`` is about rows), and how to
    ``choose`` other columns.
    """
    array = np.asarray(values)
    called = f"column {name!r} of {of}" if of else f"column {name!r}"
    if array.dtype.kind in "mM":
        raise DataError(
            f"{called} holds dates; make numbers of them (days since some day, for example), or "
            f"choose other columns with {choose}"
        )
    numbers, text, _ = parsed(array)
    if text:
        raise DataError(
            f"{called} holds text: {len(text):,} of {len(array):,} entries are no numbers, in "
            f"{describe(text)}; the first is {str(array[text[0]])!r}. Correct them, or choose "
            f"other columns with {choose}"
        )
    return numbers


def why_no_data(array: np.ndarray, name: str) -> str:
    """Why a column is no data, in words; nothing where it is, or would be without mistakes."""
    if array.dtype.kind in "mM":
        return "holds dates"
    numbers, text, missing = parsed(array)
    if text and len(text) >= MISTAKES * (len(array) - missing):
        return "holds text"
    if missing == len(array):
        return "is empty"
    counts = np.arange(len(array)) + numbers[0]
    return "counts the rows" if name.startswith("Unnamed:") and (numbers == counts).all() else ""


def parsed(array: np.ndarray) -> tuple[Float[np.ndarray, " rows"], list[int], int]:
    """Entries as numbers, the rows whose entry is none, and how many entries are missing."""
    if array.dtype.kind in "fiub":
        numbers = array.astype(np.float64)
        return numbers, [], int(np.isnan(numbers).sum())
    numbers, text, missing = np.full(len(array), np.nan), [], 0
    for row, value in enumerate(array.tolist()):
        if _is_missing(value):
            missing += 1
            continue
        try:
            numbers[row] = float(value)
        except OverflowError:  # integers beyond its range are infinite, as they are as text
            numbers[row] = -np.inf if value < 0 else np.inf
        except (TypeError, ValueError):
            text.append(row)
    return numbers, text, missing


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value


def as_groups(
    labels: ArrayLike, rows: int, what: str = "group"
) -> tuple[Int[np.ndarray, " rows"], tuple[str, ...]]:
    """Integers 0, 1, ... and the names they stand for, in sorted order."""
    array = np.asarray(labels)
    if array.shape != (rows,):
        raise DataError(
            f"{what} needs a label for each of the {rows:,} events, got shape {array.shape}"
        )
    missing = [row for row, label in enumerate(array.tolist()) if _is_missing(label)]
    if missing:
        raise DataError(
            f"{len(missing):,} events have no {what} ({describe_rows(missing)}); label them or "
            "leave them out"
        )
    kinds, codes = np.unique(
        array.astype(str) if array.dtype == object else array, return_inverse=True
    )
    return codes.astype(np.int64), tuple(map(str, kinds))
