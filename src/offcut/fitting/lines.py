"""Which rows are meant: lines of a text file where they can be told, else numbers from 0."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

#: How many rows an error writes out.
FEW = 5


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
        shown = [int(row) for row in rows[:FEW]]
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
