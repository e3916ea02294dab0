"""CSV and TSV files whose lines and names do not match: refused with the line, never shifted."""

from __future__ import annotations

import csv
import gzip
import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.cytometry import read
from offcut.errors import DataError
from offcut.tables.read import COMMAND_LINE
from offcut.tables.read import read_table as read_any

#: As the command line reads.
read_table = partial(read_any, interface=COMMAND_LINE)
KINDS = (".csv", ".tsv", ".csv.gz", ".TSV")


def written(folder: Path, kind: str, text: str) -> Path:
    """Text with commas as a file of this kind."""
    path = folder / f"t{kind}"
    text = text.replace(",", "\t") if "tsv" in kind.lower() else text
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    return path


def all_readings(path: Path) -> list[tuple[list[str], list[list[float]]]]:
    """Names and values as every reader has them."""
    table, events = read_table(path, None, None), read(path)
    return [(table.names, table.values.tolist()), (list(events.channels), events.values.tolist())]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2,3\n", "line 2 of .* has 3 fields, but the first line names 2"),  # a was 2
        ("a,b\n1,2,\n3,4,\n", "line 2 of .* has 3 fields"),  # a trailing separator
        ("a,b\n1,2\n\n3,4,\n", "line 4 of .* has 3 fields"),
        ("a,b\n1,5,2,5\n", "line 2 of .* has 4 fields"),  # decimal commas
        ('"a","b"\n"1",2,3\n"2",4,5\n', r"line 2 of .*row\.names = FALSE"),  # R's write.table
        ("# made on Monday\na,b\n1,2\n", "line 2 of .* has 2 fields, but the first line names 1"),
        ("a,b,c\n1,2,3\n4,5\n", "line 3 of .* has 2 fields.*not known which are missing"),
        ("a,,c\n1,2,3\n", "column 1 of .* has no name in the first line, but holds '2' in line 2"),
        ('a,b\n1,2\n"3,4\n5,6\n', "line 3 of .* cannot be split into fields"),
        ('a,b\n"1"2,3\n', "line 2 of .* cannot be split into fields"),
    ],
)
def test_lines_that_do_not_match_the_names(tmp_path, kind, text, says):
    path = written(tmp_path, kind, text)
    for reader in (lambda: read_table(path, None, None), lambda: read(path)):
        with pytest.raises(DataError, match=says):
            reader()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a,b,\n1,2,\n3,4,\n",  # a separator behind every line
        '"","a","b"\n"1",1,2\n"7",3,4\n',  # R's write.csv
        ",a,b\n5,1,2\n9,3,4\n",  # some rows of a data frame, by pandas
        "\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n",
        "a,b\r1,2\r  \r3,4",
        '"a",b\n"1",2\n3,"4"',
    ],
)
def test_lines_that_match(tmp_path, kind, text):
    for names, values in all_readings(written(tmp_path, kind, text)):
        assert (names, values) == (["a", "b"], [[1, 2], [3, 4]])


def test_names_of_rows_are_told_and_can_be_asked_for(tmp_path):
    path = written(tmp_path, ".csv", ",a\n5,1\n9,3\n")
    table = read_table(path, None, None)
    assert table.left_out == {"Unnamed: 0": "names the rows"}
    assert read_table(path, ["0", "a"], None).values.tolist() == [[5, 1], [9, 3]]


def test_a_missing_value_alone_in_its_line(tmp_path):
    values = read_table(written(tmp_path, ".csv", 'a\n1\n""\n\n3\n'), None, None).values
    np.testing.assert_array_equal(values[:, 0], [1, np.nan, 3])


def test_integers_of_many_digits_are_too_large_and_no_crash(tmp_path):
    for digits in (30, 400, 5000):
        path = written(tmp_path, ".csv", f"a,b\n{'9' * digits},1\n-{'9' * digits},2\n")
        largest = float("9" * digits)
        np.testing.assert_array_equal(
            read_table(path, None, None).values, [[largest, 1], [-largest, 2]]
        )
        for wanted in ("9" * digits, "²"):
            with pytest.raises(DataError, match="--columns"):
                read_table(path, [wanted], None)


CELLS = st.one_of(
    st.floats(-1e6, 1e6).map(repr), st.integers(-99, 99).map(str), st.sampled_from(["", "NA"])
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_any_line_with_a_field_too_many_or_too_few(tmp_path_factory, data):
    """What the lines say is what is read; with one line spoilt, that line is named."""
    width = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1))
    path = tmp_path_factory.mktemp("any") / "t.csv"

    def write(lines: list[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        path.write_text(text.getvalue())

    names = [f"x{number}" for number in range(width)]
    chosen = data.draw(st.integers(0, width - 1))
    write([names, *rows])
    values = read_table(path, [str(chosen)], None).values[:, 0]
    expected = [float(row[chosen]) if row[chosen] not in ("", "NA") else np.nan for row in rows]
    np.testing.assert_array_equal(values, expected)
    which = data.draw(st.integers(0, len(rows) - 1))
    more = data.draw(st.sampled_from([1, 2, -1] if width > 2 else [1, 2]))
    rows[which] = rows[which][:more] if more < 0 else rows[which] + ["7"] * more
    write([names, *rows])
    with pytest.raises(DataError, match=f"line {which + 2} of .* fields?, but"):
        read_table(path, [str(chosen)], None)
