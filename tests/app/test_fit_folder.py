"""Directories that commands write to: only what Offcut wrote is removed or written over."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from cli import CURVE, refused, run, told
from offcut.app.fit.folder import MANIFEST, Folder, OwnedFolder
from offcut.driver.checkpoints import Store, forget
from offcut.errors import CheckpointError, SettingsError

X = np.round(np.random.default_rng(0).gamma(3.0, size=40) * 64) / 64
REQUEST = {"request": {"file": "a.csv", "sampling": {"draws": 5}, "options": {}}, "data": "x"}
OTHER = {**REQUEST, "request": {**REQUEST["request"], "sampling": {"draws": 6}}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of its own; the answer is the only section of reports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("offcut.app.fit.curve_pictures.foundations", lambda *_: None)
    np.save("t.npy", X)
    return tmp_path


def state(root: Path) -> dict[str, str]:
    """Every file and link below a directory, with its content."""
    return {
        str(path.relative_to(root)): os.readlink(path)
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def mine(out: Path) -> dict[str, str]:
    """Things of the user's own in all places where Offcut writes."""
    for name in ("figures/mine.png", "tables/mine.txt", "checkpoint/mine.bin", "notes.txt"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(f"my own {name}")
    return state(out)


def test_a_fit_leaves_what_others_put_there(folder):
    """Fresh, resumed and overwritten: the user's files stay, the run's own come and go."""
    out = folder / "out"
    theirs = mine(out)
    words = ["fit", "density", "t.npy", "--lower", "0", *CURVE, "-o", "out"]

    def all_there() -> bool:
        return theirs.items() <= state(out).items()

    result = run(*words)
    assert result.exit_code == 0, told(result)
    assert all_there()
    made = state(out)
    assert {"figures/density.svg", "tables/density.csv", "report.html"} <= set(made)
    assert not (out / "checkpoint" / "run").exists()
    # Refused for its settings: nothing is removed, with and without --overwrite.
    before = state(out)
    for extra in (["--seed", "1"], ["--seed", str(2**70), "--overwrite"]):
        refused(run(*words, *extra))
        assert state(out) == before
    (out / "figures" / "late.png").write_text("mine too")
    assert run(*words, "--resume").exit_code == 0
    assert all_there()
    # What the manifest lists and is not written again goes; what was changed since stays.
    manifest = OwnedFolder(out, "offcut fit")
    manifest.put("figures/stale.svg", "old")
    manifest.put("figures/edited.svg", "old")
    (out / "figures" / "edited.svg").write_text("new")
    refused(run(*words, "--resume"), "figures/edited.svg already", "changed since offcut wrote it")
    assert run(*words, "--seed", "1", "--overwrite").exit_code == 0
    assert all_there()
    assert not (out / "figures" / "stale.svg").exists()
    assert (out / "figures" / "edited.svg").read_text() == "new"
    assert (out / "figures" / "late.png").exists()
    assert set(state(out)) - {"figures/late.png", "figures/edited.svg"} == set(made)


@pytest.mark.parametrize(
    "name", ["report.html", "posterior.nc", "tables/mine.csv", "figures/mine.svg"]
)
def test_what_might_be_written_over_is_refused_first(folder, monkeypatch, name):
    path = folder / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    monkeypatch.setattr("offcut.sampling.sample", lambda *_, **__: pytest.fail("it ran"))
    before = state(folder)
    refused(run("fit", "density", "t.npy", *CURVE, "-o", "out"), name, "--overwrite")
    assert state(folder) == before


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda out: (out / "report.html").mkdir(), "report.html is a directory"),
        (lambda out: (out / "posterior.nc").mkdir(), "posterior.nc is a directory"),
        (lambda out: (out / MANIFEST).mkdir(), "is damaged"),
        (lambda out: (out / "tables").write_text(""), "tables is a file"),
        (lambda out: (out / "figures").symlink_to(out.parent), "figures is a link"),
        (lambda out: (out / "checkpoint").symlink_to(out.parent), "checkpoint is a link"),
    ],
)
@pytest.mark.parametrize("extra", [[], ["--overwrite"]])
def test_things_of_another_kind_in_the_way(folder, make, says, extra):
    (folder / "out").mkdir()
    make(folder / "out")
    before = state(folder)
    refused(run("fit", "density", "t.npy", *CURVE, "-o", "out", *extra), says)
    assert state(folder) == before


@pytest.mark.parametrize(
    "name", ["../victim", "/tmp/victim", "figures/../../victim", "a//b", ".", "", "link/victim"]
)
def test_a_manifest_reaches_nothing_outside(folder, name):
    """However it is edited, also by a link in the directory."""
    (folder / "victim").write_text("keep me")
    digest = hashlib.sha256(b"keep me").hexdigest()
    out = Folder(folder / "out")
    out.open(REQUEST, resume=False, overwrite=False)
    (out.path / "link").symlink_to(folder)
    manifest = json.loads((out.path / MANIFEST).read_text())
    for kind, value in (("files", {name: [digest]}), ("folders", [name]), ("checkpoints", [name])):
        spoilt = {**manifest, kind: value}
        (out.path / MANIFEST).write_text(json.dumps(spoilt))
        try:
            again = Folder(out.path)
            again.open(REQUEST, resume=False, overwrite=True)
            again.remove(list(again.earlier))
            again.finish(REQUEST)
        except SettingsError as error:
            assert "is damaged" in str(error)  # noqa: PT017 - or it does nothing
        assert (folder / "victim").read_text() == "keep me"


def test_a_manifest_makes_no_checkpoint_of_other_directories(folder):
    out = Folder(folder / "out")
    out.open(REQUEST, resume=False, overwrite=False)
    (out.path / "mine").mkdir()
    manifest = json.loads((out.path / MANIFEST).read_text())
    for name in ("mine", "checkpoint", "checkpoint/a/b"):
        (out.path / MANIFEST).write_text(json.dumps({**manifest, "checkpoints": [name]}))
        with pytest.raises(SettingsError, match="no place for a checkpoint"):
            Folder(out.path)


def a_run(folder: Folder) -> None:
    """Draws and tables of a run, without running."""
    folder.save_posterior("", xr.DataTree(xr.Dataset({"x": ("draw", [1.0, 2.0])})))
    folder.save_table("numbers", ["a"], [[1]])


def test_an_overwritten_run_goes_when_the_new_one_has_drawn(folder):
    out = folder / "out"
    first = Folder(out)
    first.open(REQUEST, resume=False, overwrite=False)
    a_run(first)
    first.finish(REQUEST)
    before = state(out)
    second = Folder(out)
    second.open(OTHER, resume=False, overwrite=True)
    (second.checkpoint("") / "lock").parent.mkdir()
    assert {"posterior.nc", "tables/numbers.csv"} <= set(state(out))
    # Killed here, and resumed: the old draws are not taken for the new run's.
    third = Folder(out)
    assert not third.open(OTHER, resume=True, overwrite=False)
    assert third.load_posterior("") is None
    # Refused here: all is as it was.
    second.abandon()
    assert state(out) == before
    fourth = Folder(out)
    fourth.open(OTHER, resume=False, overwrite=True)
    fourth.save_posterior("", xr.DataTree(xr.Dataset({"x": ("draw", [3.0])})))
    assert not (out / "tables").exists()
    assert Folder(out).load_posterior("")["x"].values.tolist() == [3.0]


def test_an_unfinished_run_comes_back_where_the_new_one_is_refused(folder):
    """With its checkpoint; a live one is not touched at all."""
    words = ["fit", "density", "t.npy", "--lower", "0", *CURVE, "-o", "out"]
    out = Folder(folder / "out")
    out.open(REQUEST, resume=False, overwrite=False)
    checkpoint = out.checkpoint("")
    checkpoint.mkdir()
    (checkpoint / "manifest.json").write_text("{}")
    (checkpoint / "mine.txt").write_text("mine")
    before = state(folder)
    refused(run(*words, "--seed", str(2**70), "--overwrite"))
    assert state(folder) == before
    with open(checkpoint / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = state(folder)
        with pytest.raises(CheckpointError, match="in use by another process"):
            Folder(out.path).open(OTHER, resume=False, overwrite=True)
        assert state(folder) == before
    assert run(*words, "--overwrite").exit_code == 0
    assert (folder / "out" / "checkpoint" / "run.earlier" / "mine.txt").exists()


def test_runs_from_before_there_were_manifests(folder):
    out = Folder(folder / "out")
    out.open(REQUEST, resume=False, overwrite=False)
    a_run(out)
    out.finish(REQUEST)
    (out.path / MANIFEST).unlink()
    for _ in range(2):
        again = Folder(out.path)
        assert again.open(REQUEST, resume=True, overwrite=False)
        assert again.load_posterior("") is not None
        again.finish(REQUEST)
        (out.path / "tables" / "numbers.csv").unlink(missing_ok=True)


def test_a_comparison_writes_over_its_own_only(folder, monkeypatch):
    """And says so before it runs."""
    (folder / "models.py").write_text(
        "import numpyro.distributions as dist, offcut\n"
        "m = offcut.truncated({'a': dist.Normal(0, 1)}, lambda t: dist.Normal(t['a'], 1),\n"
        "                     lambda x: x > 0)\n"
    )
    words = ["compare", "models.py:m", "t.npy", "--samplers", "NUTS", "-o", "out"]
    monkeypatch.setattr(
        "offcut.checks.comparison.compare_samplers", lambda *_, **__: pytest.fail("ran")
    )
    for name in ("report.html", "comparison.csv", "figures/rates.svg"):
        path = folder / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        refused(run(*words), f"out holds {name} already")
        assert path.read_text() == "mine"
        path.unlink()
    Folder(folder / "out").open(REQUEST, resume=False, overwrite=False)
    refused(run(*words), "holds what offcut fit wrote")


def test_a_reproduction_where_none_was_before(folder):
    for name in ("index.html", "figures/mine.svg"):
        path = folder / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        refused(run("reproduce", "gvhd", "-o", "results"), f"results holds {name} already")
        path.unlink()


def test_a_checkpoint_is_removed_without_what_others_put_there(folder):
    """Of the driver's own directory, every file and nothing else."""
    path = folder / "checkpoint"
    store = Store(path, {"seed": 0})
    store.note_budget(1, 100)
    store.save(0, 1, 0, 5, {"x": np.zeros(5)}, [np.zeros(2)])
    with pytest.raises(CheckpointError, match="in use"):
        forget(path)
    store.close()
    (path / "mine.txt").write_text("mine")
    (path / "chain-0-state-1-5.seg.tmp").write_text("torn")
    forget(path)
    assert [found.name for found in path.iterdir()] == ["mine.txt"]
    (path / "mine.txt").unlink()
    forget(path)
    assert not path.exists()
