"""Files as tables: which columns and rows, and how errors speak of them."""

from __future__ import annotations

import gzip
from functools import partial

import numpy as np
import pytest

from offcut.app.fit.parse import parse_budget, parse_frame, parse_limits, parse_transform
from offcut.errors import DataError, SettingsError
from offcut.regions import Ball, Box
from offcut.tables.read import COMMAND_LINE
from offcut.tables.read import read_table as read_any
from offcut.tables.table import settle_missing
from offcut.tables.windows import box_of, combined, is_inside, settle_outside

#: As the command line reads.
read_table = partial(read_any, interface=COMMAND_LINE)
CSV = """,who,a,b,when,note
0,ann,1.0,2,2024-01-01,
1,bob,2.0,3,2024-01-02,
2,eve,3.5,4,2024-01-03,
"""


def test_text_columns_are_left_out_with_the_reason(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    table = read_table(path, None, None)
    assert table.names == ["a", "b"]
    assert table.left_out == {
        "Unnamed: 0": "counts the rows",
        "who": "holds text",
        "when": "holds text",
        "note": "is empty",
    }
    np.testing.assert_array_equal(table.values, [[1, 2], [2, 3], [3.5, 4]])
    assert read_table(path, ["B"], "who").group_names == ("ann", "bob", "eve")
    assert read_table(path, ["3", "a"], None).names == ["b", "a"]


def test_lines_are_those_of_the_file(tmp_path):
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("a,b\n1,2\n\n3,x\n\n5,6\n7,8\n")
    with pytest.raises(
        DataError, match=r"1 of 4 entries .* in line 4 of the file; the first is 'x'"
    ):
        read_table(path, None, None)


def test_lines_where_a_field_goes_on_in_the_next_one(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n"1\n",2\n3,x\n5,6\n')
    with pytest.raises(DataError, match="in line 4 of the file"):
        read_table(path, None, None)


def test_groups_that_are_numbers(tmp_path):
    path = tmp_path / "t.npy"
    np.save(path, np.array([[0.5, 1], [0.7, 0], [0.9, 1]]))
    table = read_table(path, None, "1")
    assert (table.names, table.group_names) == (["column 0"], ("column 1 = 0", "column 1 = 1"))
    np.testing.assert_array_equal(table.group, [1, 0, 1])


def test_rows_left_out_keep_their_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,g\n1,x\n,y\n-4,x\n3,y\n")
    table = settle_missing(read_table(path, ["a"], "g"), "drop")
    table = settle_outside(table, Box(0, None), "drop")
    np.testing.assert_array_equal(table.kept, [0, 3])
    np.testing.assert_array_equal(table.group, [0, 1])
    assert list(table.dropped.values()) == [1, 1]
    with pytest.raises(DataError, match=r"all 2 rows of t.csv lie outside .*nothing is left"):
        settle_outside(table, Box(10, None), "drop")


def test_inside_of_any_region():
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.2, 0.2]])
    np.testing.assert_array_equal(is_inside(Box([0, 0], [1, 1], "left"), points), [1, 0, 1])
    np.testing.assert_array_equal(is_inside(~Ball([0, 0], 0.1), points), [0, 1, 1])


def test_limits_and_region_meet():
    box = box_of([0, None], [None, 5])
    assert repr(combined(box, Box([1, 1], [2, 9], "neither"), 2)) == (
        "Box([1, 1], [2, 5], closed=['neither', 'right'])"
    )
    assert repr(combined(box, Ball([0, 0], 1), 2)) == "Box([0, -inf], [inf, 5]) & Ball([0, 0], 1)"
    assert combined(None, None, 2) is None
    with pytest.raises(SettingsError, match="nothing lies both in"):
        combined(box, Box([-2, 0], [-1, 1]), 2)
    with pytest.raises(SettingsError, match="is about 3 coordinates, but there are 2"):
        combined(box, Ball([0, 0, 0], 1), 2)
    with pytest.raises(SettingsError, match=r"--lower 3 is not below --upper 1"):
        box_of([3.0], [1.0])


def test_words():
    assert parse_limits("0, none,-inf", "--lower", 3) == [0.0, None, None]
    assert parse_budget("none") is None
    assert parse_budget("12") == 12
    assert parse_frame(None, 9) == (3, 3)
    assert repr(parse_transform("asinh:5")) == "Asinh(cofactor=5.0)"
    for text in ("asin", "linear", "log:2", "asinh:x", ""):
        with pytest.raises(SettingsError, match="is not understood; expected none, asinh"):
            parse_transform(text)
    for text in ("3", "3by2", "0x3", "3x2x1"):
        with pytest.raises(SettingsError, match="expected rows x columns"):
            parse_frame(text, 6)
