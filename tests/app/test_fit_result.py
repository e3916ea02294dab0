"""Small parts of results: names, tables, intervals, and directories."""

from __future__ import annotations

import numpy as np
import pytest

from offcut.app.fit.folder import Folder, slug
from offcut.app.fit.mixture import pairs_of
from offcut.app.fit.request import parameters, percent, plural, span
from offcut.errors import SettingsError


def test_names_of_files():
    assert slug("CD4+ / low") == "CD4_low"
    assert slug("../../etc") == "etc"
    assert slug("größe 3") == "größe_3"


def test_every_column_is_drawn():
    for count in range(2, 8):
        assert {place for pair in pairs_of(count) for place in pair} == set(range(count))


def test_words():
    assert [percent(share) for share in (0.0, 0.031, 0.4, np.nan)] == [
        "0.0%", "3.1%", "40%", "not known",
    ]  # fmt: skip
    assert plural(1, "row") == "1 row"
    assert plural(2000, "row") == "2,000 rows"
    assert span(np.arange(101)) == pytest.approx((5.0, 95.0))


def test_parameters_of_groups():
    row = {"mean": 1.0, "sd": 2.0}
    assert parameters({"": {"a": row}}) == (["parameter", "mean", "sd"], [["a", 1.0, 2.0]])
    head, rows = parameters({"x": {"a": row}, "y": {"a": row}})
    assert head[0] == "group"
    assert [entry[0] for entry in rows] == ["x", "y"]


def test_directories(tmp_path):
    told = {"request": {"file": "a.csv", "sampling": {"draws": 5}, "options": {}}, "data": "x"}
    folder = Folder(tmp_path / "out")
    assert not folder.open(told, resume=False, overwrite=False)
    moved = {**told, "request": {**told["request"], "file": "elsewhere/a.csv"}}
    assert not folder.open(moved, resume=True, overwrite=False)
    with pytest.raises(SettingsError, match="content of the file was 'another' and is 'this'"):
        folder.open({**told, "data": "y"}, resume=True, overwrite=False)
    folder.finish(told)
    assert folder.open(told, resume=True, overwrite=False)
    folder.abandon()
    assert folder.open(told, resume=True, overwrite=False)
    other = Folder(tmp_path / "deep" / "other")
    assert not other.open(told, resume=False, overwrite=False)
    other.abandon()
    assert not other.path.exists()
    (tmp_path / "posterior.nc").touch()
    with pytest.raises(SettingsError, match=r"holds posterior.nc already"):
        Folder(tmp_path).open(told, resume=False, overwrite=False)
