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

import numpy as np
from jaxtyping import Int

from offcut.errors import DataError
from offcut.files import first_line
from offcut.numerics.extras import needed
from offcut.tables.columns import listed
from offcut.tables.table import Frame

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


def separator_of(path: Path) -> str:
    """A tab in TSV files, packed or not; a comma elsewhere."""
    return "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","


def records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each line that is not blank, with its number from 1, the names first.

    A field in quotes may go on over several lines; the number is that of the first.
    """
    names: list[str] = []
    separator = separator_of(path)
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


def delimited_frame(path: Path) -> tuple[Frame, Int[np.ndarray, " rows"]]:
    """All columns of a CSV or TSV file, as pandas has them, and the line of each row.

    Every line must have as many fields as the first. A column without a name is called as pandas
    calls it (``Unnamed: 3``); only the first may hold anything, names of rows.
    """
    pandas = needed("pandas", f"reading {path.name}")
    lines = records(path)
    _, names = next(lines, (0, []))
    if names and all(is_number(name) for name in names):
        raise DataError(
            f"the first line of {path} holds numbers ({listed(names)}), but names of channels are "
            "expected there; add them, or read the file with numpy.loadtxt and give the array"
        )
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise DataError(f"{path} does not have commas between columns: {names[0]!r}; convert it")
    nameless = [place for place, name in enumerate(names) if place and not name.strip()]
    found = []
    for line, fields in lines:
        found.append(line)
        for place in nameless:
            if fields[place].strip():
                raise DataError(
                    f"column {place} of {path} (from 0) has no name in the first line, but holds "
                    f"{fields[place]!r} in line {line}; name it, or leave it out"
                )
    # By default pandas 2 reads some numbers one bit beside what is written; pandas 3 does not.
    exact = {"float_precision": "round_trip"} if pandas.__version__ < "3" else {}
    with opened(path) as file:
        frame = pandas.read_csv(
            file, sep=separator_of(path), low_memory=False, index_col=False, **exact
        )
    here = (len(found), len(names))
    if frame.shape != here:  # it would be a difference in what is a quote or a line
        raise DataError(
            f"{path} has {here[0]:,} lines of {here[1]} fields, but pandas reads {len(frame):,} "
            f"of {len(frame.columns)}; write it again, with quotes around fields that need them"
        )
    while len(names) > 1 and not names[-1].strip():  # a separator behind each line
        names.pop()
    return frame.iloc[:, : len(names)], np.array(found, dtype=np.int64)


def is_number(name: str) -> bool:
    """Whether a name is a number in disguise."""
    try:
        float(name)
    except ValueError:
        return False
    return True
