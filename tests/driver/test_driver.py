"""The driver: the same bits whatever the machine, no needless compiling, Ctrl-C, progress."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import kill_me
import offcut
from conftest import TESTS, assert_same_draws
from offcut.base import Sampler
from offcut.driver import chain as chain_module
from offcut.driver.chains import Settings
from offcut.errors import MemoryLimitError
from offcut.programs.cache import blocks_of
from offcut.sampling import run

SHORT = kill_me.SHORT
NAMES = ("draws", "warmup", "chains", "seed", "budget")


def run_with(model: Any, data: Any, covariates: Any, changed: dict, **inner: Any) -> Any:
    short = {**SHORT, **changed}
    settings = Settings(*(short[name] for name in NAMES), False, **inner)
    with jax.enable_x64(True):
        return run(model, data, covariates, short["kernel"], settings)


@pytest.fixture(scope="module", params=["shared", "covariates"])
def case(request: Any) -> tuple[Any, Any, Any, Any]:
    """A model, data, covariates, and the draws of the default driver."""
    if request.param == "shared":
        model = request.getfixturevalue("truncated_normal")
        data, covariates = request.getfixturevalue("observations"), None
    else:
        model = request.getfixturevalue("truncated_regression")
        data, covariates = request.getfixturevalue("regression_data")
    return model, data, covariates, offcut.sample(model, data, covariates=covariates, **SHORT)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bits_do_not_depend_on_threads(case: tuple, threads: int) -> None:
    model, data, covariates, expected = case
    assert_same_draws(run_with(model, data, covariates, {}, threads=threads), expected)


def test_bits_do_not_depend_on_how_long_a_block_takes(
    case: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data, covariates, expected = case
    monkeypatch.setattr(chain_module, "BLOCK_SECONDS", 0.0)  # one step at a time
    assert_same_draws(run_with(model, data, covariates, {}, threads=1), expected)


@pytest.mark.parametrize(
    ("inner", "grows"),
    [({"block": 16, "capacity": 1}, True), ({"block": 16, "capacity": 20_000}, False)],
)
def test_bits_do_not_depend_on_block_and_buffer(
    case: tuple, inner: dict, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data, covariates, expected = case
    grown = []
    original = chain_module.Chain._grow

    def counting(chain: Any, phase: Any) -> None:
        grown.append(phase.number)
        original(chain, phase)

    monkeypatch.setattr(chain_module.Chain, "_grow", counting)
    assert_same_draws(run_with(model, data, covariates, {}, **inner), expected)
    assert bool(grown) == grows


def test_bits_depend_on_the_seed(case: tuple) -> None:
    model, data, covariates, expected = case
    other = run_with(model, data, covariates, {"seed": SHORT["seed"] + 2**32})
    with pytest.raises(AssertionError):
        assert_same_draws(other, expected)
    for name, values in other["posterior"].data_vars.items():
        assert np.all(values.values != expected["posterior"][name].values), name
        assert np.all(values.values[0] != values.values[1]), "chains differ, too"


def test_a_second_call_compiles_nothing(truncated_normal: Any, observations: np.ndarray) -> None:
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    offcut.sample(truncated_normal, observations, **SHORT)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        offcut.sample(truncated_normal, observations, **SHORT)
        offcut.sample(truncated_normal, observations[::-1], **{**SHORT, "draws": 99, "seed": 6})
        offcut.sample(kill_me.truncated_normal(), observations, **SHORT)
        assert not compiled
        offcut.sample(kill_me.truncated_normal(prior_scale=0.7), observations, **SHORT)
        assert compiled, "another model is compiled, and the counter counts"
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_one_program_serves_warmup_sampling_and_all_chains(
    truncated_normal: Any, observations: np.ndarray
) -> None:
    model = kill_me.truncated_normal(prior_scale=0.4)
    offcut.sample(model, observations, **SHORT)
    blocks = [
        block.compilations
        for sampler in model.programs.values()
        if isinstance(sampler, Sampler)
        for block in blocks_of(sampler).values()
    ]
    capacities = [256 * 2**i for i in range(4)]
    assert len(blocks) == 1
    assert 1 <= blocks[0] <= len(capacities), "one for each capacity"


def test_the_memory_limit_ends_a_run_without_budget(
    truncated_normal: Any, observations: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "MEMORY_LIMIT", 5000)
    with pytest.raises(
        MemoryLimitError,
        match=r"(?s)chain \d: one sweep has more than \d+ rejected proposals.*GiB.*budget=None.*"
        r'use budget="auto" or a number',
    ):
        run_with(truncated_normal, observations, None, {"budget": None}, block=16, capacity=1)


# Ctrl-C.


@pytest.fixture(scope="module")
def on_one_core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``kill_me.py pinned`` leaves: a whole run, and interrupted ones."""
    from conftest import Child

    directory = tmp_path_factory.mktemp("pinned")
    child = Child("pinned", directory / "checkpoint", directory)
    try:
        ended = child.finish()
    finally:
        child.close()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "", "silent where there is no terminal"
    assert ended.stderr == ""
    return directory


def load(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as arrays:
        return dict(arrays)


def test_bits_do_not_depend_on_cores(on_one_core: Path, short_run: Any) -> None:
    assert_same_draws(load(on_one_core / "whole.npz"), short_run)
    attrs = json.loads((on_one_core / "whole.json").read_text())
    np.testing.assert_equal(attrs, dict(short_run.attrs))  # nan equals nan here


def test_an_interrupt_in_warmup_says_so(on_one_core: Path) -> None:
    said = (on_one_core / "warm-up.txt").read_text()
    assert said == "interrupted in warm-up: nothing has been drawn yet"


def test_an_interrupt_in_sampling_returns_what_there_is(on_one_core: Path, short_run: Any) -> None:
    drawn = load(on_one_core / "interrupted.npz")
    attrs = json.loads((on_one_core / "interrupted.json").read_text())
    assert attrs["interrupted"] == 1
    chains, length = drawn["posterior/loc"].shape
    assert chains == SHORT["chains"], "all chains, though they share a core"
    assert 5 <= length < SHORT["draws"]
    whole = kill_me.arrays_of(short_run)
    assert_same_draws(drawn, {name: values[:, :length] for name, values in whole.items()})


def test_an_interrupted_run_resumes(
    on_one_core: Path, truncated_normal: Any, observations: np.ndarray, short_run: Any
) -> None:
    checkpoint = on_one_core / "checkpoint"
    length = load(on_one_core / "interrupted.npz")["posterior/loc"].shape[1]
    stops = [int(file.stem.split("-")[-1]) for file in checkpoint.glob("chain-?-state-1-*.seg")]
    assert len(stops) == SHORT["chains"]
    assert min(stops) == length, "everything that was returned was saved"
    resumed = offcut.sample(truncated_normal, observations, checkpoint=checkpoint, **SHORT)
    assert_same_draws(resumed, short_run)
    assert resumed.attrs["interrupted"] == 0


# Progress.


@pytest.mark.parametrize("progress", [True, False])
def test_silent_where_there_is_no_terminal(
    truncated_normal: Any, observations: np.ndarray, progress: bool, capfd: Any
) -> None:
    offcut.sample(truncated_normal, observations, progress=progress, **SHORT)
    assert capfd.readouterr() == ("", "")


def test_silent_at_a_terminal_where_asked(
    truncated_normal: Any, observations: np.ndarray, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    offcut.sample(truncated_normal, observations, progress=False, **SHORT)
    assert capfd.readouterr() == ("", "")
    offcut.sample(truncated_normal, observations, progress=True, **SHORT)
    assert "|Y|" in capfd.readouterr().err


def test_a_terminal_sees_a_bar_and_a_summary() -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, str(TESTS / "kill_me.py"), "watched"],
        env=os.environ | {"PYTHONWARNINGS": "ignore", "TERM": "xterm", "COLUMNS": "150"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    text = shown.decode()
    assert "chain 0 warm-up" in text
    assert "chain 2 sampling" in text
    assert f"{SHORT['draws']}/{SHORT['draws']}" in text
    assert "|Y| " in text
    assert "divergences" in text
    assert "/s" in text
    assert "Certificate: sweeps were limited to 3,000 rejections" in text


def test_without_a_budget_a_hopeless_proposal_comes_back_to_the_host_and_changes_no_bits(
    truncated_normal: Any, observations: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exchange stores no rejections, but its runs are bounded too, and grow from the host."""
    grow, grown = chain_module.Chain._grow, []

    def counted(chain: chain_module.Chain, phase: chain_module.Phase) -> None:
        grown.append(chain.sampler.capacity(chain.state))
        grow(chain, phase)

    monkeypatch.setattr(chain_module.Chain, "_grow", counted)
    runs, growths = [], []
    for capacity in (1, None):
        settings = Settings(60, 10, 2, 3, None, False, capacity=capacity)
        with jax.enable_x64(True):
            walk = offcut.RandomWalk(1.0)
            asked = (truncated_normal, observations, None, walk, settings)
            runs.append(run(*asked, method="exchange"))
        growths.append(len(grown))
    assert growths[0] > growths[1] - growths[0]  # the little patience had to grow more often
    assert_same_draws(*runs)
