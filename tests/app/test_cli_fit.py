"""``offcut fit`` from end to end: each model, each kind of file, and what is left behind."""

from __future__ import annotations

import csv
import functools
import json
import warnings
from pathlib import Path

import flowio
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import offcut
from cli import CURVE, TINY, refused, run, told
from offcut.app.fit.recipes import RECIPES, LangevinOptions
from offcut.app.fit.request import Request

#: Numbers that fit into single precision, so that an FCS file holds the very same.
X = np.round(np.random.default_rng(0).gamma(3.0, size=40) * 64) / 64
N = len(X)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of its own, and small pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("offcut.app.fit.mixture.GRID", 12)
    monkeypatch.setattr("offcut.app.fit.mixture.MOST_DRAWS", 6)
    monkeypatch.setattr("offcut.app.fit.langevin.PREDICTED", 200)
    return tmp_path


@pytest.fixture
def few_pictures(monkeypatch):
    """Only those of the answer, where others are tested beside."""
    monkeypatch.setattr("offcut.app.fit.curve_pictures.foundations", lambda *_: None)


def write(kind):
    """The same numbers in files of all kinds, with text beside them where there is room."""
    frame = pd.DataFrame({"who": [f"p{i}" for i in range(N)], "x": X})
    if kind == "csv":
        frame.to_csv("t.csv", index=False)
    elif kind == "tsv.gz":
        frame.to_csv("t.tsv.gz", index=False, sep="\t")
    elif kind == "parquet":
        frame.to_parquet("t.parquet")
    elif kind == "npy":
        np.save("t.npy", X)
    else:
        with open("t.fcs", "wb") as file:
            flowio.create_fcs(file, X.tolist(), ["x"])
    return f"t.{kind}"


def sheet(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check_page(path, *words):
    """A whole page that needs nothing else, with these words."""
    page = path.read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert 'src="http' not in page
    missing = [word for word in words if word not in page]
    assert not missing
    return page


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "parquet", "npy", "fcs"])
def test_density_of_every_kind_of_file(folder, kind, monkeypatch):
    if kind != "csv":
        monkeypatch.setattr("offcut.app.fit.curve_pictures.foundations", lambda *_: None)
    result = run("fit", "density", write(kind), "--lower", "0", *CURVE, "-o", "out")
    assert result.exit_code == 0, told(result)
    assert "The density is highest at" in result.stdout
    with xr.open_datatree(folder / "out" / "posterior.nc", engine="h5netcdf") as tree:
        model = offcut.GPDensity(support=(0, np.inf), length_scale=2.0, variance=1.0)
        short = {"draws": 24, "warmup": 20, "chains": 1, "progress": False}
        own = offcut.sample(model, X, method="collapsed", **short)
        np.testing.assert_array_equal(
            tree["posterior"]["weights"].values, own["posterior"]["weights"].values
        )
    rows = sheet(folder / "out" / "tables" / "density.csv")
    places = np.array([float(next(iter(row.values()))) for row in rows])
    means = np.array([float(row["mean"]) for row in rows])
    assert 0.9 < np.trapezoid(means, places) < 1.01
    assert all(float(row["lower"]) <= float(row["median"]) <= float(row["upper"]) for row in rows)
    assert sheet(folder / "out" / "tables" / "parameters.csv")[0]["parameter"] == "base_mean"
    page = check_page(
        folder / "out" / "report.html", "The answer", "highest at", f"{N} of {N}", "offcut",
        "R-hat", "The density lives on",
    )  # fmt: skip
    assert page.count("<svg") == (3 if kind == "csv" else 1)
    if kind in ("csv", "parquet"):
        assert "who holds text" in page
        assert "who holds text" in told(result)
    told_settings = json.loads((folder / "out" / "settings.json").read_text())
    assert told_settings["state"] == "finished"
    assert told_settings["request"]["sampling"]["draws"] == 24
    assert told_settings["versions"]["offcut"] == offcut.__version__
    assert not (folder / "out" / "checkpoint").exists()
    assert {path.name for path in (folder / "out").iterdir()} == {
        "posterior.nc", "tables", "figures", "report.html", "settings.json", "offcut-manifest.json",
    }  # fmt: skip


@pytest.mark.usefixtures("few_pictures")
def test_groups_of_densities_are_compared(folder):
    """Groups of the same size as above, so that nothing compiles again."""
    pd.DataFrame({"x": [*X, *(X + 1)], "g": np.repeat(["a b", "c"], N)}).to_csv("t.csv")
    result = run("fit", "density", "t.csv", "--lower", "0", "--group", "g", *CURVE, "-o", "out")
    assert result.exit_code == 0, told(result)
    assert (folder / "out" / "posterior-a_b.nc").is_file()
    rows = sheet(folder / "out" / "tables" / "difference.csv")
    assert {row["first"] for row in rows} == {"a b"}
    assert all(0 <= float(row["probability_first_greater"]) <= 1 for row in rows)
    assert {row["group"] for row in sheet(folder / "out" / "tables" / "density.csv")} == {
        "a b",
        "c",
    }
    check_page(folder / "out" / "report.html", "Groups compared", "counts the rows", "less that of")


@pytest.mark.usefixtures("few_pictures")
def test_rows_and_the_directory(folder):
    """Rows left out are counted; a finished run is not overwritten unless asked."""
    pd.DataFrame({"x": [*X, -1.0, np.nan, -2.0]}).to_csv("t.csv", index=False)
    words = ["fit", "density", "t.csv", "--lower", "0", *CURVE, "-o", "out"]
    drop = ["--outside", "drop", "--missing", "drop"]
    result = run(*words, *drop)
    assert result.exit_code == 0, told(result)
    assert "2 rows left out that lie outside the window Box([0], [inf])" in told(result)
    check_page(folder / "out" / "report.html", f"{N} of {N + 3}", "1 row that have a missing value")
    refused(run(*words, *drop), "out holds a finished run already", "--resume writes its report")
    refused(run(*words, *drop, "--seed", "1", "--resume"), "seed was 0 and is 1", "--overwrite")
    (folder / "out" / "report.html").unlink()
    (folder / "out" / "mine.txt").touch()
    again = run(*words, *drop, "--resume")
    assert again.exit_code == 0
    assert "is finished; its report is new" in told(again)
    assert (folder / "out" / "report.html").is_file()
    before = (folder / "out" / "posterior.nc").stat().st_mtime_ns
    quiet = run(*words, *drop, "--overwrite", "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert (folder / "out" / "posterior.nc").stat().st_mtime_ns > before
    assert (folder / "out" / "mine.txt").exists()
    (folder / "t.csv").write_text("x\n" + "\n".join(map(str, X)))
    refused(run(*words, *drop, "--resume"), "content of the file")


@pytest.mark.usefixtures("few_pictures")
@pytest.mark.parametrize("when", ["warm-up", "draws"])
def test_interrupted_runs_go_on(folder, monkeypatch, when):
    import offcut.sampling

    genuine = offcut.sampling.sample

    def stopped(*arguments, **named):
        if when == "warm-up":
            raise KeyboardInterrupt
        posterior = genuine(*arguments, **named)
        posterior.attrs["interrupted"] = 1
        return posterior

    words = ["fit", "density", write("npy"), "--lower", "0", *CURVE]
    with monkeypatch.context() as patch:
        patch.setattr("offcut.sampling.sample", stopped)
        result = run(*words)
    assert result.exit_code == 130
    assert "The same command with --resume goes on" in told(result)
    assert not (folder / "t-density" / "posterior.nc").exists()
    refused(run(*words), "t-density holds an unfinished run already: --resume goes on with it")
    assert run(*words, "--resume").exit_code == 0
    assert (folder / "t-density" / "report.html").is_file()


def test_a_run_that_cannot_begin_leaves_nothing(folder, monkeypatch):
    def refuse(*_, **__):
        raise offcut.errors.StartError("nowhere to start")

    monkeypatch.setattr("offcut.sampling.sample", refuse)
    result = run("fit", "density", write("npy"), *CURVE, "-o", "out")
    refused(result, "nowhere to start", code=1)
    assert not (folder / "out").exists()


def test_intensity_and_its_guessed_window(folder):
    result = run("fit", "intensity", write("csv"), "--lower", "0", *CURVE, "-o", "out")
    assert result.exit_code == 0, told(result)
    assert "Events are most frequent at x =" in result.stdout
    page = check_page(folder / "out" / "report.html", "was <strong>guessed</strong> from the data")
    assert page.count("<svg") == 3
    rows = sheet(folder / "out" / "tables" / "intensity.csv")
    places, means = (np.array([float(row[key]) for row in rows]) for key in ("x", "mean"))
    assert 0.6 * N < np.trapezoid(means, places) < 1.5 * N


def test_langevin(folder):
    """Directions are fitted; frames as an array and as columns of a table are the same."""
    random = np.random.default_rng(0)
    frames = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(30, 3, 2))).Q
    np.save("t.npy", frames[:, :, 0])
    result = run("fit", "langevin", "t.npy", "--method", "collapsed", *TINY, "-o", "out")
    assert result.exit_code == 0, told(result)
    assert "The first column points to" in result.stdout
    rows = sheet(folder / "out" / "tables" / "regions.csv")
    assert [row["kind"] for row in rows] == ["credible", "predictive"]
    centre = [float(rows[0][f"centre_{i}"]) for i in (1, 2, 3)]
    assert abs(np.linalg.norm(centre) - 1) < 1e-9
    check_page(folder / "out" / "report.html", "<canvas", "turn the sphere", "concentrations")

    for order, axes in (("columns", (0, 2, 1)), ("rows", (0, 1, 2))):
        entries = frames.transpose(axes).reshape(30, 6)
        pd.DataFrame(entries, columns=list("abcdef")).to_parquet("t.parquet")
        options = LangevinOptions(order=order, method="collapsed")
        request = Request("langevin", Path("t.parquet"), options=options)
        task = RECIPES["langevin"].prepared(request)
        np.testing.assert_allclose(task.data[""], frames, atol=1e-14)


@pytest.mark.usefixtures("few_pictures")
def test_doubts_are_told_and_strict_minds_them(folder, monkeypatch):
    import offcut.sampling

    genuine = offcut.sampling.sample

    def doubtful(*arguments, **named):
        warnings.warn("the scale was asleep", offcut.errors.TrustWarning, stacklevel=1)
        return genuine(*arguments, **named)

    monkeypatch.setattr("offcut.sampling.sample", doubtful)
    result = run("fit", "density", write("npy"), "--lower", "0", *CURVE, "--strict", "-o", "out")
    assert result.exit_code == 3
    assert "! the scale was asleep" in result.stdout
    check_page(folder / "out" / "report.html", "Before you trust this: the scale was asleep")
    assert json.loads((folder / "out" / "settings.json").read_text())["state"] == "finished"


def test_mixture_of_an_fcs_file(folder, monkeypatch):
    """The range of the file is the window; clamped events are left out and keep their rows."""
    plain = functools.partial(offcut.TruncatedMixture, split_merge=0, reshape=False)
    monkeypatch.setattr("offcut.mixtures.model.TruncatedMixture", plain)  # compiles faster
    random = np.random.default_rng(0)
    events = np.abs(random.normal(300, 200, size=(60, 2)))
    events[5, 0] = 0.0
    with open("t.fcs", "wb") as file:
        flowio.create_fcs(file, events.ravel().tolist(), ["CD4", "CD8"])
    words = ["--components", "3", "--transform", "asinh:100", "--at-limits", "drop", *TINY]
    result = run("fit", "mixture", "t.fcs", *words, "-o", "out")
    assert result.exit_code == 0, told(result)
    assert "above 1% of what was recorded" in result.stdout
    assert "1 rows left out that sit exactly on a limit" in told(result)
    labels = sheet(folder / "out" / "tables" / "labels.csv")
    assert [int(row["row"]) for row in labels] == [row for row in range(60) if row != 5]
    assert all(int(row["population"]) >= 1 for row in labels)
    rows = sheet(folder / "out" / "tables" / "populations.csv")
    assert abs(sum(float(row["share"]) for row in rows) - 1) < 0.2
    assert float(rows[0]["centre_CD4"]) == pytest.approx(100 * np.sinh(float(rows[0]["mean_CD4"])))
    check_page(
        folder / "out" / "report.html", "before the window", "Asinh(cofactor=100.0)",
        "the range that the FCS file states", "closed=&#39;neither&#39;",
    )  # fmt: skip


@pytest.mark.calibrate
def test_mixture_with_groups_and_a_region(folder):
    random = np.random.default_rng(1)
    x = random.normal(1.0, 0.5, size=(60, 2))
    table = pd.DataFrame(np.abs(x), columns=["x", "y"])
    table["g"] = np.repeat(["a", "b"], 30)
    table.to_parquet("t.parquet")
    result = run(
        "fit", "mixture", "t.parquet", "--lower", "0", "--region", "~Ball([9, 9], 1)", "--group",
        "g", "--components", "3", *TINY, "-o", "out",
    )  # fmt: skip
    assert result.exit_code == 0, told(result)
    assert result.stdout.count("The window lost") == 2
    assert {row["group"] for row in sheet("out/tables/populations.csv")} == {"a", "b"}
    assert sheet("out/tables/differences.csv")[0]["second"] == "b"
    check_page(folder / "out" / "report.html", "Groups compared", "hierarchical=True")


@pytest.mark.calibrate
def test_a_line_of_clusters_and_planes(folder):
    """One column of a mixture, two of a density and of an intensity, three of a density."""
    random = np.random.default_rng(2)
    np.save("t.npy", random.uniform(0, 4, size=(50, 3)))
    one = run("fit", "mixture", "t.npy", "--columns", "0", "--lower", "0", "--components", "3",
              *TINY, "-o", "line")  # fmt: skip
    assert one.exit_code == 0, told(one)
    for model, columns in (("density", "0,1"), ("intensity", "0,1"), ("density", "0,1,2")):
        method = [*CURVE[:4], "--method", "augment" if columns == "0,1,2" else "collapsed", *TINY]
        result = run(
            "fit", model, "t.npy", "--columns", columns, *method, "-o", f"{model}{columns}"
        )
        assert result.exit_code == 0, told(result)


@pytest.mark.calibrate
def test_groups_of_frames_and_of_events(folder):
    random = np.random.default_rng(3)
    frames = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(40, 3, 2))).Q
    entries = list("uvwxyz")
    table = pd.DataFrame(frames.transpose(0, 2, 1).reshape(40, 6), columns=entries)
    table["g"], table["t"] = np.repeat(["a", "b"], 20), random.uniform(0, 9, size=40)
    table.to_csv("t.csv", index=False)
    frames = run(
        "fit", "langevin", "t.csv", "--columns", "u,v,w,x,y,z", "--group", "g", *TINY, "-o", "f"
    )
    assert frames.exit_code == 0, told(frames)
    check_page(folder / "f" / "report.html", "modes apart")
    events = run("fit", "intensity", "t.csv", "--columns", "t", "--group", "g", *CURVE, "-o", "e")
    assert events.exit_code == 0, told(events)
