"""Bad files and bad options: exit code 2 and a message that says what came and what to do."""

from __future__ import annotations

import re
import subprocess
import sys

import flowio
import numpy as np
import pandas as pd
import pytest

from cli import TINY, refused, run, told

X = np.linspace(0.5, 3.0, 12)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(**columns):
    pd.DataFrame({"a": X, **columns}).to_csv("t.csv", index=False)
    return "t.csv"


def test_missing_column(folder):
    refused(
        run("fit", "density", table(b=X), "--columns", "c"),
        "--columns: there is no such column: 'c'; the columns are a, b",
    )
    refused(
        run("fit", "density", table(), "--columns", "4"), "column 4 was asked for, but there are 1"
    )
    refused(run("fit", "density", table(), "--columns", "a,,a"), "has an empty name")
    refused(run("fit", "density", table(), "--columns", "a,A"), "names 'a' more than once")
    refused(run("fit", "density", table(), "--group", "g"), "--group: there is no such column: 'g'")


@pytest.mark.parametrize("chosen", [[], ["--columns", "b"]])
def test_text_in_a_number_column(folder, chosen):
    text = ["1.5"] * 12
    text[3], text[7] = "n.d.", "<1"
    refused(
        run("fit", "density", table(b=text), *chosen),
        "column 'b' of t.csv holds text: 2 of 12 entries are no numbers, in lines 5 and 9 of the "
        "file; the first is 'n.d.'",
        "choose other columns with --columns",
    )


def test_files_that_hold_nothing(folder):
    (folder / "empty.csv").write_text("")
    (folder / "head.csv").write_text("a,b\n")
    (folder / "words.csv").write_text("a\nx\ny\n")
    (folder / "numbers.csv").write_text("1,2\n3,4\n")
    (folder / "semicolons.csv").write_text("a;b\n1;2\n")
    np.save("empty.npy", np.zeros((0, 2)))
    np.save("words.npy", np.array(["a", "b"]))
    refused(run("fit", "density", "empty.csv"), "empty.csv cannot be read as a table", "a line of")
    refused(run("fit", "density", "head.csv"), "has names of columns but no rows; expected a row")
    refused(run("fit", "density", "words.csv"), "no column of numbers (a holds text); expected a")
    refused(
        run("fit", "density", "numbers.csv"), "the first line", "names of channels are expected"
    )
    refused(run("fit", "density", "semicolons.csv"), "does not have commas between columns")
    refused(run("fit", "density", "empty.npy"), "an array with no rows")
    refused(run("fit", "density", "words.npy"), "holds an array of <U1; expected real numbers")


def test_missing_values(folder):
    b = X.copy()
    b[[2, 4]] = np.nan, np.inf
    refused(
        run("fit", "density", table(b=b)),
        "2 of 12 rows of t.csv have a missing or infinite value in b: lines 4 and 6 of the file",
        "--missing drop",
    )


def test_rows_outside_the_window(folder):
    refused(
        run("fit", "density", table(), "--lower", "1"),
        "3 of 12 rows of t.csv lie outside the window Box([1], [inf]): lines 2, 3 and 4 of the "
        "file; the first is a 0.5. By column: a: 3 below 1, 0 above inf (data from 0.5 to 3).",
        "--outside drop",
    )
    refused(
        run("fit", "mixture", table(b=X), "--region", "~Ball([0.5, 0.5], 0.1)"),
        "1 of 12 rows of t.csv lie outside the window ~Ball([0.5, 0.5], 0.1): line 2 of the file; "
        "the first is a 0.5, b 0.5.",
    )
    refused(
        run("fit", "density", table(), "--lower", "9", "--outside", "drop"),
        "all 12 rows of t.csv lie outside the window",
    )
    pd.DataFrame({"a": X}).to_parquet("t.parquet")
    refused(
        run("fit", "intensity", "t.parquet", "--upper", "2"),
        "rows 7, 8, 9, 10 and 11, counted from 0",
    )


def test_files_of_other_kinds(folder):
    (folder / "t.xlsx").write_bytes(b"PK")
    (folder / "t.parquet").write_bytes(b"PAR1 and nothing more")
    (folder / "t.npy").write_bytes(b"\x93NUMPY")
    (folder / "sub").mkdir()
    refused(run("fit", "density", "t.xlsx"), "of no known kind (.xlsx); known are .fcs")
    refused(run("fit", "density", "t.parquet"), "cannot be read as Parquet", "Write it again")
    refused(run("fit", "density", "t.npy"), "cannot be read as an array of numbers")
    refused(run("fit", "density", "sub"), "sub is a directory", "give the path of a file")
    refused(run("fit", "density", "none.csv"), "none.csv does not exist (from")


def fcs(path, values, names=("FSC", "CD4")):
    with open(path, "wb") as file:
        flowio.create_fcs(file, np.asarray(values, float).ravel().tolist(), list(names))


def test_bad_fcs_files(folder):
    fcs("t.fcs", np.stack([X, -X], axis=1))
    (folder / "cut.fcs").write_bytes((folder / "t.fcs").read_bytes()[:-40])
    refused(run("fit", "mixture", "cut.fcs"), "cut.fcs cannot be read as FCS", "export it again")
    refused(run("fit", "mixture", "t.fcs", "--columns", "CD8"), "'CD8'; the columns are FSC, CD4")
    refused(
        run("fit", "mixture", "t.fcs"),
        "12 of 12 rows of t.fcs lie outside the window",
        "only a hint there",
        "CD4: 12 below 0",
        "--outside drop",
    )
    refused(
        run("fit", "mixture", "t.fcs", "--group", "who"), "FCS files have no column with groups"
    )
    refused(
        run("fit", "mixture", "t.fcs", "--lower", "none", "--compensate"), "no spillover matrix"
    )


def test_shapes(folder):
    np.save("cube.npy", np.zeros((5, 3, 2)))
    np.save("wide.npy", np.random.default_rng(0).normal(size=(5, 3)))
    refused(run("fit", "density", "cube.npy"), "an array of shape (5, 3, 2); expected a row for")
    refused(run("fit", "intensity", "wide.npy"), "on a line or in a plane, but there are 3 columns")


def test_frames(folder):
    values = np.random.default_rng(0).normal(size=(5, 6))
    np.save("t.npy", values)
    np.save("wide.npy", np.zeros((4, 2, 3)))
    np.save("five.npy", values[:, :5])
    refused(
        run("fit", "langevin", "t.npy"),
        "5 of 5 rows of t.npy are no frames of 3 by 2: rows 0, 1, 2, 3 and 4, counted from 0.",
        "must have length 1 and be perpendicular",
        "--order rows",
    )
    refused(run("fit", "langevin", "t.npy", "--frame", "4x2"), "has 8 entries, but a row has 6")
    refused(run("fit", "langevin", "t.npy", "--frame", "2x3"), "more columns than rows", "3x2?")
    refused(run("fit", "langevin", "five.npy"), "a row has 5 entries", "--frame 3x2")
    refused(run("fit", "langevin", "wide.npy"), "no more than 2 columns can be orthonormal")
    refused(run("fit", "langevin", "t.npy", "--prior-mean", "-1"), "--prior-mean -1 is not")


def test_groups(folder):
    one = np.array(["x"] * 11 + ["y"])
    refused(
        run("fit", "density", table(g=one), "--group", "g"),
        "too little in 'y' (1 row); expected at least 2 rows in each group",
    )
    refused(run("fit", "density", table(g="x"), "--group", "g"), "has one value only, 'x'")
    many = np.arange(12) * 1.5
    np.save("t.npy", np.stack([np.tile(X, 3), np.tile(many, 3) + np.repeat([0, 50, 99], 12)], 1))
    refused(run("fit", "density", "t.npy", "--group", "1"), "36 different values", "a measurement?")
    refused(run("fit", "density", table(), "--group", "a"), "no column of numbers")
    refused(
        run("fit", "density", table(g=one), "--group", "g", "--columns", "a,g"),
        "column 'g' is the group and among --columns",
    )
    names = np.repeat(["p+", "p*"], 6)
    refused(run("fit", "density", table(g=names), "--group", "g", *TINY), "cannot be told apart")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--region", "Cube(1)"], "the part 'Cube(1)' is not understood: known are Box"),
        (["--region", "Ball(0, 1)"], "offcut fit density takes a box only"),
        (["--region", "Box([0, 0], [1, 1])"], "is about 2 coordinates, but there are 1"),
        (["--budget", "much"], "--budget much is not understood; expected auto, none"),
        (["--budget", "0"], "whole number of at least 1"),
        (["--lower", "zero"], "'zero' is no number; expected a limit"),
        (["--lower", "0,0"], "has 2 limits, but there are 1 columns"),
        (["--lower", "5", "--upper", "1"], "--lower 5 is not below --upper 1"),
        (["--length-scale", "-1"], "--length-scale -1 is not understood; expected a positive"),
        (["--base", "uniform"], "needs a bounded support: give both --lower and --upper"),
        (["--probability", "90"], "--probability 90 must lie between 0 and 1"),
        (["--resume", "--overwrite"], "choose one of them"),
        (
            ["--draws", "0"],
            "Invalid value for '--draws': Input should be greater than or equal to 1",
        ),
        (["--draws", "many"], "Invalid value for '--draws'"),
        (["--covariance", "rbf"], "'rbf' is not one of 'squared_exponential'"),
        (["--no-such"], "No such option: --no-such"),
        (["-o", "t.csv"], "t.csv is a file; give a directory with -o"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options(folder, options, says):
    refused(run("fit", "density", table(), *options), says)


def test_options_that_have_another_name_now(folder):
    kernel = ["--kernel", "matern52"]
    refused(run("fit", "density", table(), *kernel), "--kernel", "chosen with --covariance")
    refused(run("compare", "density", table(), *kernel), "chosen with --covariance")
    refused(run("fit", "langevin", table(), *kernel), "how concentrations move", "--method")
    refused(run("fit", "mixture", table(), "--prior", "window"), "chosen with --weights")
    assert "--kernel" not in run("fit", "density", "--help").stdout


def test_a_region_that_would_bend(folder):
    refused(
        run("fit", "mixture", table(), "--region", "Ball(1, 9)", "--transform", "asinh:1"),
        "is no box, and its faces would bend under --transform",
    )
    refused(run("fit", "mixture", table(), "--transform", "sqrt"), "--transform sqrt is not under")


def test_a_directory_of_somebody_else(folder):
    (folder / "out").mkdir()
    (folder / "out" / "settings.json").write_text("{}")
    refused(run("fit", "density", table(), "-o", "out"), "was not written by offcut fit")
    assert [path.name for path in (folder / "out").iterdir()] == ["settings.json"]


def test_what_offcut_itself_does_not_expect(folder, monkeypatch):
    def broken(*_):
        raise RuntimeError("screw loose")

    monkeypatch.setattr("offcut.app.fit.recipes.Recipe.prepared", broken)
    text = refused(run("fit", "density", table()), "RuntimeError: screw loose", code=1)
    assert "OFFCUT_TRACEBACK=1" in text
    monkeypatch.setenv("OFFCUT_TRACEBACK", "1")
    assert isinstance(run("fit", "density", table()).exception, RuntimeError)


def test_missing_packages(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "flowio", None)
    fcs_like = folder / "t.fcs"
    fcs_like.write_bytes(b"FCS3.1" + b" " * 100)
    refused(run("fit", "mixture", "t.fcs"), "pip install 'offcut[cytometry]'", code=1)


def test_help_version_and_completion(folder):
    assert re.fullmatch(r"offcut \d+\.\d+.*\n", run("--version").stdout)
    whole = run("--help")
    assert whole.exit_code == 0
    for word in ("fit", "compare", "reproduce", "Examples", "Exit codes", "130", "--install-compl"):
        assert word in whole.stdout
    for model in ("mixture", "langevin", "density", "intensity"):
        shown = run("fit", model, "--help")
        assert shown.exit_code == 0
        assert f"offcut fit {model}" in shown.stdout
        assert "Exit codes" in shown.stdout
    assert "models.py:heights" in run("compare", "--help").stdout
    assert run("fit", "densty", "t.csv").exit_code == 2


def test_completion_and_a_quick_start():
    """In a process of its own: ``--help`` must not import JAX, and completion knows the models."""
    code = (
        "import sys, offcut.app.cli.app as a\n"
        "try: a.app(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    script = subprocess.run(
        [sys.executable, "-m", "offcut", "--show-completion", "bash"],
        capture_output=True, text=True, env={"SHELL": "/bin/bash", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert "complete" in script.stdout + script.stderr
    asked = {"_OFFCUT_COMPLETE": "complete_bash", "COMP_WORDS": "offcut fit ", "COMP_CWORD": "2"}
    program = "import sys; sys.argv = ['offcut']; from offcut.app.cli.app import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=asked
    )
    assert found.stdout.split() == ["mixture", "langevin", "density", "intensity"]


def test_told_drops_the_frames():
    class Fake:
        stderr = "╭─ Error ─╮\n│ a    │\n│ b │\n╰──╯"

    assert told(Fake()) == "Error a b"
