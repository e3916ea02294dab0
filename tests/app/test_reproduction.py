"""Runs of the reproduction are kept, go on after an interruption, and never pass for others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

import offcut
from offcut.app.reproduce import PARTS, reproduce
from offcut.app.reproduce.finished import RunStore
from offcut.app.reproduce.run import PartError, module_of, run_all, write_page
from offcut.app.reproduce.section5_gvhd import modes
from offcut.app.reproduce.section6_asymptotics import _direction
from offcut.app.reproduce.section6_samplers import _nearness, _rate
from offcut.app.reproduce.section6_vectorcardiograms import (
    by_quadrature,
    frames_from,
    most_likely,
    simulated,
)
from offcut.app.reproduce.section7_parkinsons import _skewness, shimmer
from offcut.app.reproduce.versus_paper import FULL, QUICK, Claim, Length, PartReport, Verdict, timed
from offcut.base import OK, Info, Model, Prepared, Sampler
from offcut.checks.comparison import rate_of
from offcut.driver.timed import Chain, Stretch
from offcut.errors import DataError, SettingsError

SHORT = Length(40, 40, 1, 2)


class Runs:
    """Keeps runs in a folder and what was said."""

    def __init__(self, folder):
        self.said = []
        self.store = RunStore(folder, self.said.append)


def test_a_finished_run_is_not_run_again(tmp_path, truncated_normal, observations, monkeypatch):
    first = Runs(tmp_path)
    kept = first.store.sample("one", truncated_normal, observations, SHORT)
    assert kept.cpu > 0
    assert not first.store.again
    assert not list((tmp_path / "one").glob("checkpoint*"))
    monkeypatch.setattr(offcut, "sample", lambda *_, **__: pytest.fail("it was run again"))
    second = Runs(tmp_path)
    again = second.store.sample("one", truncated_normal, observations, SHORT)
    assert second.store.again == ["one"]
    assert again.seconds == kept.seconds
    for group in ("posterior", "sample_stats", "observed_data"):
        assert again.posterior[group].to_dataset().identical(kept.posterior[group].to_dataset())


def test_other_data_lengths_and_seeds_are_other_runs(tmp_path, truncated_normal, observations):
    store = Runs(tmp_path).store
    first = store.sample("one", truncated_normal, observations, SHORT)
    longer = store.sample("one", truncated_normal, observations, Length(50, 40, 1, 2))
    assert longer.posterior["posterior"].sizes["draw"] == 50
    seeded = store.sample("one", truncated_normal, observations, SHORT, seed=1)
    moved = store.sample("one", truncated_normal, observations + 0.01, SHORT)
    assert not store.again
    for other in (seeded, moved):
        assert not np.array_equal(
            other.posterior["posterior"]["loc"], first.posterior["posterior"]["loc"]
        )


def test_an_interrupted_run_is_not_taken_for_finished(
    tmp_path, truncated_normal, observations, monkeypatch
):
    sample = offcut.sample

    def interrupted(*args, **settings):
        posterior = sample(*args, **settings)
        posterior.attrs["interrupted"] = 1
        return posterior

    with monkeypatch.context() as patch:
        patch.setattr(offcut, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Runs(tmp_path).store.sample("one", truncated_normal, observations, SHORT)
    (spent,) = (tmp_path / "one").glob("checkpoint*.json")
    spent.write_text("[100.0, 50.0]")
    later = Runs(tmp_path)
    kept = later.store.sample("one", truncated_normal, observations, SHORT)
    assert not later.store.again
    assert kept.seconds > 100, "the time before the interruption counts"
    assert 50 < kept.cpu < 100


def test_the_time_of_a_run_that_was_killed_is_not_known(tmp_path, truncated_normal, observations):
    store = Runs(tmp_path).store

    class Killed(BaseException):
        pass

    def killed(*_, checkpoint, **__):
        checkpoint.mkdir(parents=True)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offcut, "sample", killed)
        with pytest.raises(Killed):
            store.sample("one", truncated_normal, observations, SHORT)
    for left in (tmp_path / "one").glob("checkpoint*.json"):
        left.unlink()  # as after kill -9
    assert np.isnan(store.sample("one", truncated_normal, observations, SHORT).cpu)


def test_measurements_are_kept_and_told_apart(tmp_path):
    store = Runs(tmp_path).store
    assert store.measure("speed", {"sweeps": 10}, lambda: [1.5]) == [1.5]
    assert store.measure("speed", {"sweeps": 10}, lambda: pytest.fail("again")) == [1.5]
    assert store.measure("speed", {"sweeps": 20}, lambda: [2.5]) == [2.5]
    (tmp_path / "speed" / "facts.json").write_text("{ torn")
    assert store.measure("speed", {"sweeps": 20}, lambda: [3.5]) == [3.5]


def test_modes_of_two_hills_and_of_a_plain():
    x, y = np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-3, 3, 41))
    hills = np.logaddexp(-((x - 1.5) ** 2 + y**2) / 0.3, -1 - ((x + 1.5) ** 2 + y**2) / 0.3)
    (first, infinite), (second, prominence) = modes(hills, 0.5)
    assert infinite == np.inf
    assert x[first] == pytest.approx(1.5, abs=0.1)
    assert x[second] == pytest.approx(-1.5, abs=0.1)
    assert prominence == pytest.approx(-1 - hills[20, 30], abs=1.5)
    assert modes(hills, 50.0) == [(first, np.inf)]
    assert len(modes(np.zeros((5, 5)))) == 1
    assert modes(np.full((3, 3), -np.inf)) == []


def test_skewness_is_zero_for_a_symmetric_density_and_positive_for_a_long_right_tail():
    grid = np.linspace(-6, 20, 2601)
    both = np.stack([np.exp(-(grid**2) / 2), np.where(grid > 0, np.exp(-grid), 0.0)])
    symmetric, exponential = _skewness(grid, both)
    assert symmetric == pytest.approx(0, abs=0.02)
    quantiles = -np.log([0.9, 0.5, 0.1])
    expected = (quantiles[2] + quantiles[0] - 2 * quantiles[1]) / (quantiles[2] - quantiles[0])
    assert exponential == pytest.approx(expected, abs=0.02)


def test_intervals_hold_the_geometric_mean():
    rate = rate_of([100.0, 200.0, 400.0])
    assert rate.middle == pytest.approx(200.0)
    assert rate.low < 200 < rate.high
    assert rate.low * rate.high == pytest.approx(200.0**2)
    assert np.isnan(rate_of([100.0]).low)


def test_times_are_faster_or_differ():
    assert timed("run", 2.0, 0.5, "").verdict == Verdict.FASTER
    assert timed("run", 2.0, 4.0, "").verdict == Verdict.OTHER
    assert timed("run", 2.0, 0.5, "", limit=True).verdict == Verdict.SAME
    assert timed("run", 2.0, float("nan"), "").verdict == Verdict.UNKNOWN


def test_the_data_are_those_of_the_paper():
    groups = shimmer()
    assert {name: len(x) for name, x in groups.items()} == {"disease": 147, "control": 48}
    together = np.concatenate(list(groups.values()))
    assert (together.min(), together.max()) == (0.0, 5.0)
    x = simulated()
    assert x.shape == (98, 3, 2)
    np.testing.assert_allclose(np.swapaxes(x, 1, 2) @ x, np.tile(np.eye(2), (98, 1, 1)), atol=1e-9)


def test_full_is_as_long_as_in_the_paper():
    assert FULL.mixture.draws * FULL.mixture.thin == 10_000
    assert (FULL.frames.draws, FULL.frames.warmup) == (10_000, 1000)
    assert (FULL.density.draws, FULL.density.warmup) == (2000, 500)
    assert FULL.dimensions == (3, 4, 5, 8, 10)
    assert QUICK.mixture.sweeps < FULL.mixture.sweeps


@pytest.mark.parametrize("problem", ["absent", "no file in it", "not a table"])
def test_data_that_cannot_be_used_are_refused_before_anything_runs(tmp_path, problem):
    data = tmp_path / "data"
    if problem != "absent":
        data.mkdir()
    if problem == "not a table":
        (data / "vcg.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"vcg\.csv|no column"):
        reproduce(["vcg"], data=data, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Counted(Model):
    """A model of counts."""

    def prepare(self, request):
        return Prepared(Counting(), request.data, {"x": request.data})


class Counting(Sampler):
    """Counts its sweeps."""

    def start(self, key, data, budget):
        return jnp.zeros(())

    def step(self, key, state, stage, data):
        return state + 1, Info({"rejected": jnp.int32(0)}, jnp.int32(OK), None)

    def record(self, state):
        return {"x": state}


def test_measured_draws_are_those_behind_the_sweeps():
    chain = Chain(Counted(), np.zeros(3), "x", block=4)
    chain.start()
    np.testing.assert_array_equal(chain.run(6).draws, np.arange(1.0, 7.0))


def test_a_chain_that_stands_still_is_worth_one_draw():
    moving = np.random.default_rng(0).normal(size=(200, 2))
    still = np.ones((200, 2))
    assert _rate(Stretch(2.0, still)) == 0.5
    assert _rate(Stretch(2.0, moving)) > 50


def test_ranges_of_the_paper():
    assert _nearness(np.array([1.2, 5.0]), (1.0, 1.5)) == Verdict.SAME
    assert _nearness(np.array([2.5, 9.0]), (1.0, 1.5)) == Verdict.CLOSE
    assert _nearness(np.array([0.2, 50.0]), (1.0, 1.5)) == Verdict.OTHER


def test_a_direction_needs_to_be_told_apart_from_zero():
    error = np.array([0.1, 0.1])
    assert _direction(np.array([-1.0, -0.5]), error, -1)[0] == Verdict.SAME
    assert _direction(np.array([-1.0, -0.1]), error, -1)[0] == Verdict.UNKNOWN
    assert _direction(np.array([-1.0, 0.5]), error, -1)[0] == Verdict.OTHER


def test_the_posterior_by_quadrature_says_where_its_grid_ends():
    x = simulated()
    near, same = by_quadrature(x, [7.0, 11.0], 60), by_quadrature(x, [8.0, 10.0], 60)
    np.testing.assert_allclose(near, same, rtol=1e-4)
    assert np.isnan(by_quadrature(x, [0.5, 0.5], 60)).all()


def test_maximum_likelihood_with_h_fixed_is_close_to_the_truth_and_to_h_free():
    x = simulated()
    kappa = most_likely(x)
    np.testing.assert_allclose(kappa, [7.0, 12.0], rtol=0.25)
    free = np.sort(np.asarray(offcut.MatrixLangevin.mle(x).kappa))
    np.testing.assert_allclose(np.sort(kappa), free, rtol=0.1)


def test_an_unknown_part_is_refused():
    with pytest.raises(SettingsError, match="at least 1"):
        reproduce(["vcg"], jobs=0)
    with pytest.raises(SettingsError, match="gvhd, vcg, samplers"):
        reproduce(["vgc"])


def test_without_data_frames_are_simulated_and_marked(tmp_path):
    assert list(frames_from(None)) == ["simulated"]
    report = PartReport("Part", [{"kind": "text", "text": "a < b"}], [], [])
    report.save(tmp_path / "runs" / "quick", "vcg")
    text = write_page(["vcg"], QUICK, None, tmp_path, time.time()).read_text()
    assert "<p>a &lt; b</p>" in text
    assert "SIMULATED" in text
    assert "quick version" in text


def test_the_page_counts_what_differs_and_what_was_finished_before(tmp_path):
    rows = [
        Claim("a number", "3", "4", "1", Verdict.OTHER, "because"),
        Claim("a time", "2 minutes", "1 second", "", Verdict.FASTER),
    ]
    rows.append(Claim("an imitation", "3", "3", "0", Verdict.SIMULATED))
    PartReport("Voices", [], rows, ["parkinsons-control"]).save(
        tmp_path / "runs" / "full", "parkinsons"
    )
    text = write_page(
        ["parkinsons"], FULL, None, tmp_path, time.time(), "offcut reproduce"
    ).read_text()
    assert "2 numbers and claims of the paper are compared; <strong>1</strong> differ" in text
    assert "parkinsons-control" in text
    assert "SIMULATED" not in text
    assert 'href="#parkinsons"' in text


def test_a_part_that_fails_says_why(tmp_path):
    said = []
    with pytest.raises(PartError, match=r"there is no file"):
        run_all(["vcg"], QUICK, tmp_path, tmp_path / "out", 1, lambda *line: said.append(line))


def test_ctrl_c_is_kind(tmp_path):
    """Parts end within seconds, which is said, and leave a state to go on from."""
    command = [sys.executable, "-m", "offcut", "reproduce", "parkinsons", "-o"]
    # A shell's background jobs, these tests if they are one, and their children are deaf to it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [*command, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    signal.signal(signal.SIGINT, before)
    try:
        assert "chains of" in process.stdout.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "Interrupted; what was done is kept" in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs" / "quick" / "parkinsons-disease" / "facts.json").exists()


def test_a_part_that_breaks_says_where(tmp_path):
    """An error that nobody expected comes from the other process with its last lines."""
    (tmp_path / "runs").write_text("a file in the way of a folder")
    with pytest.raises(PartError, match=r"runs"):
        run_all(["parkinsons"], QUICK, None, tmp_path, 1, lambda *_: None)


def test_every_part_has_a_module_with_both_functions():
    for part in PARTS:
        module = module_of(part)
        assert callable(module.run)
        assert callable(module.show)
        assert module.TITLE


def test_facts_of_a_run_name_what_it_was_made_of(tmp_path, truncated_normal, observations):
    store = Runs(tmp_path).store
    store.sample("one", truncated_normal, observations, SHORT)
    facts = json.loads((tmp_path / "one" / "facts.json").read_text())
    assert facts["made_of"]["length"] == list(SHORT)
    assert facts["made_of"]["versions"]["offcut"] == offcut.__version__
