"""Text with a separator between fields (CSV, TSV): read only where every line has every field.

Readers of tables guess where lines and names do not match, and pandas takes the first fields for
an index where lines have more fields than there are names: each value then stands under the name
of its neighbour. So the lines are counted here before anything else reads them.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from offcut.errors import DataError
from offcut.files import first_line

#: How much of a line an error shows.
MOST_SHOWN = 60


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """The text of a file, unpacked where its name ends in .gz; what fails inside is a DataError."""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                yield file
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield file
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} cannot be read as text ({error.reason} at byte {error.start:,}); expected "
            "UTF-8: save it as that"
        ) from error
    except (OSError, EOFError, zlib.error, ValueError) as error:  # pandas' own are ValueErrors
        said = first_line(error)
        raise DataError(
            f"{path} cannot be read as a table ({said}); expected a line of names and then a line "
            "of numbers for each event. Is it damaged, cut short, or of another kind?"
        ) from error


def records(path: Path, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Each line that is not blank, with its number from 1, the names first.

    A field in quotes may go on over several lines; the number is that of the first.
    """
    names: list[str] = []
    with opened(path) as file:
        raw = ""

        def kept() -> Iterator[str]:
            nonlocal raw
            for raw in file:  # noqa: UP028 - it is looked at below
                yield raw

        reader = csv.reader(kept(), delimiter=separator, strict=True)
        line = 1
        while True:
            try:
                fields = next(reader, None)
            except csv.Error as error:
                raise DataError(
                    f"line {line} of {path} cannot be split into fields ({error}): is a quote not "
                    "closed, or something written behind one? Mend the line"
                ) from error
            if fields is None:
                return
            number, line = line, reader.line_num + 1
            if len(fields) < 2 and not raw.strip():  # but "" is an empty field
                continue
            names = names or fields
            if len(fields) != len(names):
                raise DataError(_uneven(path, separator, number, fields, names))
            yield number, fields


def _uneven(path: Path, separator: str, line: int, fields: list[str], names: list[str]) -> str:
    """What came, what was expected, and what may have happened."""
    came, shown = separator.join(fields), separator.join(names)
    sign = {",": "comma", "\t": "tab"}[separator]
    said = (
        f"line {line} of {path} has {len(fields)} field{'' if len(fields) == 1 else 's'}, but the "
        f"first line names {len(names)}: {came[:MOST_SHOWN]!r} under {shown[:MOST_SHOWN]!r}. "
    )
    if len(fields) < len(names):
        return said + (
            f"It is not known which are missing: leave a field empty between its {sign}s, or "
            "write the file again if it was cut short"
        )
    decimal = ", a decimal comma (write 1.5, not 1,5)" if separator == "," else ""
    return said + (
        f"It is not known which name belongs to which field. A {sign} too many at the end of the "
        f"line{decimal} or names of rows without a name of their own (in R: row.names = FALSE) "
        "would do this: mend the file"
    )
