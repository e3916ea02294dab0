"""Checkpoints: whatever happens to the process or to the directory, never a wrong draw."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import kill_me
import offcut
from conftest import assert_same_draws, contents
from offcut.app.fit.folder import Folder
from offcut.driver import chain as chain_module
from offcut.driver import chains as run_module
from offcut.driver.checkpoints import Segment, Store, _sealed, refuse_in_use
from offcut.errors import CheckpointError
from offcut.samplers.choice import observe

SHORT = kill_me.SHORT
SEGMENT = re.compile(r"chain-(\d)-(draws|state)-(\d)-(\d+)(?:-(\d+))?\.seg")


@pytest.fixture(scope="module")
def checkpoint(
    tmp_path_factory: pytest.TempPathFactory, truncated_normal: Any, observations: np.ndarray
) -> Path:
    """The checkpoint of a complete run, in many segments."""
    path = tmp_path_factory.mktemp("finished") / "checkpoint"
    with pytest.MonkeyPatch.context() as patch:
        # Saved after every block of 16 steps, however slow the disk is.
        patch.setattr(run_module, "longest_block", lambda sampler, state: 16)
        patch.setattr(chain_module.Chain, "_save_interval", lambda chain: 0.0)
        offcut.sample(truncated_normal, observations, checkpoint=path, **SHORT)
    return path


@pytest.fixture
def finished(tmp_path: Path, checkpoint: Path) -> Path:
    """A copy of it to spoil."""
    return shutil.copytree(checkpoint, tmp_path / "checkpoint")


def resume(path: Path, model: Any, x: np.ndarray, **changed: Any) -> Any:
    return offcut.sample(model, x, checkpoint=path, **{**SHORT, **changed})


# The process dies.


def steps_saved(path: Path) -> dict[int, tuple[int, int]]:
    """(phase, steps) of each chain's newest state."""
    found: dict[int, tuple[int, int]] = {}
    for file in path.glob("*.seg") if path.exists() else ():
        chain, kind, phase, first, _ = SEGMENT.fullmatch(file.name).groups()
        if kind == "state":
            place = (int(phase), int(first))
            found[int(chain)] = max(place, found.get(int(chain), place))
    return found


@pytest.mark.calibrate
def test_killed_three_times_it_ends_with_the_draws_of_an_uninterrupted_run(
    tmp_path: Path, start_child: Any, truncated_normal: Any, observations: np.ndarray
) -> None:
    path, output = tmp_path / "checkpoint", tmp_path
    rng = random.Random(20)
    long = kill_me.LONG
    moments = [
        (0, rng.randrange(1, long["warmup"] // 2)),
        (1, rng.randrange(1, long["draws"] // 3)),
        (1, rng.randrange(long["draws"] // 3, 2 * long["draws"] // 3)),
    ]
    uninterrupted = offcut.sample(truncated_normal, observations, **long)
    before: dict[Path, int] = {}
    stood: dict[int, tuple[int, int]] = {}
    killed_in = []
    for moment in moments:
        child = start_child("checkpointed", path, output)
        child.wait_until(
            lambda moment=moment: len(now := steps_saved(path)) == 2 and min(now.values()) > moment
        )
        time.sleep(rng.uniform(0.0, 0.05))  # so that it dies anywhere, not just after a save
        child.kill()
        assert not (output / "resumed.npz").exists()
        check_went_on(path, before, stood)
        before = {file: file.stat().st_mtime_ns for file in path.glob("*-draws-*.seg")}
        stood = steps_saved(path)
        killed_in += [phase for phase, _ in stood.values()]
    assert set(killed_in) == {0, 1}, "a kill in warm-up and one in sampling"
    assert all(steps < long["draws"] for phase, steps in stood.values())

    finished = start_child("checkpointed", path, output).finish()
    assert finished.returncode == 0, finished.stderr
    check_went_on(path, before, stood)
    with np.load(output / "resumed.npz") as file:
        resumed = dict(file)
    assert_same_draws(resumed, uninterrupted)
    attrs = json.loads((output / "resumed.json").read_text())
    assert attrs["budget"] == uninterrupted.attrs["budget"]
    assert attrs["interrupted"] == 0


def check_went_on(path: Path, before: dict[Path, int], stood: dict[int, tuple[int, int]]) -> None:
    """Old segments are untouched, and nothing that was saved was drawn again."""
    for file, written in before.items():
        assert file.stat().st_mtime_ns == written
    for file in set(path.glob("*-draws-*.seg")) - set(before):
        chain, _, phase, start, _ = SEGMENT.fullmatch(file.name).groups()
        assert (int(phase), int(start)) >= stood.get(int(chain), (0, 0))


class DiedError(BaseException):
    """Stands for the end of the process."""


def test_dying_at_any_write_loses_nothing(
    tmp_path: Path,
    truncated_normal: Any,
    observations: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Too small a budget to begin with, so that "auto" restarts the draws: phase after phase.
    monkeypatch.setattr(run_module, "budget_after_warmup", lambda rejected, held, n, most: held)
    monkeypatch.setattr(run_module, "MOST_RESTARTS", 1)
    monkeypatch.setattr(chain_module, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(chain_module.Chain, "_save_interval", lambda chain: 0.0)
    settings = {"draws": 7, "warmup": 3, "chains": 2, "seed": 5, "budget": "auto"}
    settings["kernel"] = offcut.RandomWalk(0.3)
    uninterrupted = offcut.sample(truncated_normal, observations, **settings)
    assert uninterrupted.attrs["budget_restarts"] == 1
    assert np.unique(uninterrupted["posterior"]["loc"]).size > 4
    write = Store._write

    def run(path: Path, last: float) -> Any:
        writes = 0

        def dying(store: Store, name: str, content: bytes) -> None:
            nonlocal writes
            writes += 1
            if writes > last:
                if writes % 2:  # in the middle of it
                    (store.path / f"{name}.tmp").write_bytes(content[: len(content) // 2])
                raise DiedError
            write(store, name, content)

        monkeypatch.setattr(Store, "_write", dying)
        # One chain after the other, so that a number of writes is a moment of the run.
        return run_sequentially(truncated_normal, observations, settings, path)

    deaths = 0
    complete = None
    while complete is None:
        path = tmp_path / str(deaths)
        try:
            complete = run(path, deaths)
        except DiedError:
            deaths += 1
            assert_same_draws(run(path, np.inf), uninterrupted)
    assert_same_draws(complete, uninterrupted)
    assert deaths > 30


def run_sequentially(model: Any, x: np.ndarray, settings: dict[str, Any], path: Path) -> Any:
    import jax

    from offcut.driver.chains import Settings
    from offcut.sampling import run

    names = ("draws", "warmup", "chains", "seed", "budget")
    with jax.enable_x64(True):
        return run(
            model,
            x,
            None,
            settings["kernel"],
            Settings(*(settings[name] for name in names), False, threads=1),
            path,
        )


@pytest.mark.parametrize("stray", [12, 18, 25])
def test_draws_without_their_state_are_no_part_of_the_run(tmp_path: Path, stray: int) -> None:
    """A process died between draws and state; the resumed one wrote other bounds."""
    store = Store(tmp_path / "c", {})
    rows = {"stat:rejected": np.arange(30)}

    def part(start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: values[start:stop] for name, values in rows.items()}

    store.save(0, 1, 0, 10, part(0, 10), [np.array(1.0)])
    store._write_segment(Segment(0, "draws", 1, (10, stray)), part(10, stray))
    store.save(0, 1, 10, 18, part(10, 18), [np.array(2.0)])
    store.save(0, 1, 18, 20, part(18, 20), [np.array(3.0)])
    saved = store.load(0)
    store.close()
    assert (saved.phase, saved.done, float(saved.state[0])) == (1, 20, 3.0)
    assert np.array_equal(saved.rows["stat:rejected"], np.arange(20))


def test_a_finished_checkpoint_gives_the_same_draws_and_takes_no_step(
    finished: Path,
    truncated_normal: Any,
    observations: np.ndarray,
    short_run: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = contents(finished)

    def no_step(*_: Any) -> None:
        raise AssertionError("a finished run took a step")

    monkeypatch.setattr(chain_module.Chain, "_advance", no_step)
    started = time.monotonic()
    again = resume(finished, truncated_normal, observations)
    assert time.monotonic() - started < 2.0
    assert_same_draws(again, short_run)
    assert contents(finished) == before


def test_a_run_with_covariates_resumes(
    tmp_path: Path,
    truncated_regression: Any,
    regression_data: tuple[np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    y, covariates = regression_data
    uninterrupted = offcut.sample(truncated_regression, y, covariates=covariates, **SHORT)
    monkeypatch.setattr(chain_module, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(chain_module, "SAVE_SECONDS", 0.0)
    original, calls = chain_module.Chain._advance, iter(range(1000))

    def dying(*arguments: Any) -> Any:
        if next(calls) == 250:
            raise DiedError
        return original(*arguments)

    monkeypatch.setattr(chain_module.Chain, "_advance", dying)
    path = tmp_path / "c"
    with pytest.raises(DiedError):
        offcut.sample(truncated_regression, y, covariates=covariates, checkpoint=path, **SHORT)
    assert steps_saved(path)
    resumed = offcut.sample(
        truncated_regression, y, covariates=covariates, checkpoint=path, **SHORT
    )
    assert_same_draws(resumed, uninterrupted)


# The directory is not what it should be: an error, and nothing changes.


def assert_refused(path: Path, said: str, call: Callable[[], Any]) -> None:
    before = contents(path) if path.is_dir() else path.read_bytes()
    with pytest.raises(CheckpointError, match=said):
        call()
    assert (contents(path) if path.is_dir() else path.read_bytes()) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 6}, r"belongs to another run \(seed: 5 there, 6 now\); nothing was changed"),
        ({"draws": 200}, "draws: 150 there, 200 now"),
        ({"warmup": 70}, "warmup: 60 there, 70 now"),
        ({"chains": 2}, "chains: 3 there, 2 now"),
        ({"budget": None}, "budget: 3000 there, None now"),
        (
            {"kernel": offcut.RandomWalk(0.3)},
            r"kernel: 'HMC\(.* there, 'RandomWalk\(scale=0.3.* now",
        ),
    ],
)
def test_other_settings_are_named(
    finished: Path, truncated_normal: Any, observations: np.ndarray, changed: dict, said: str
) -> None:
    assert_refused(
        finished, said, lambda: resume(finished, truncated_normal, observations, **changed)
    )


def test_other_data_or_another_model_are_named(
    finished: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    moved = observations.copy()
    moved[7] += 1e-12
    assert_refused(
        finished,
        r"\(data: '\w+' there, '\w+' now\)",
        lambda: resume(finished, truncated_normal, moved),
    )
    for scale in (0.6, 0.5 + 1e-12):
        assert_refused(
            finished,
            r"\(model: '\w+' there, '\w+' now\)",
            lambda scale=scale: resume(
                finished, kill_me.truncated_normal(prior_scale=scale), observations
            ),
        )
    window = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 0.5)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda x: x > 0.99,
    )
    assert_refused(finished, r"\(model: ", lambda: resume(finished, window, observations))


def test_an_equal_model_made_anew_resumes(
    finished: Path, observations: np.ndarray, short_run: Any
) -> None:
    assert_same_draws(resume(finished, kill_me.truncated_normal(), observations), short_run)


def newest(path: Path, pattern: str) -> Path:
    return max(path.glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
@pytest.mark.parametrize("kind", ["draws", "state"])
def test_a_torn_segment(
    finished: Path,
    truncated_normal: Any,
    observations: np.ndarray,
    kind: str,
    damage: Callable[[Path], None],
) -> None:
    torn = newest(finished, f"chain-1-{kind}-1-*.seg")
    damage(torn)
    assert_refused(
        finished,
        f"{torn.name} is damaged: its checksum does not match. Nothing was changed; restore",
        lambda: resume(finished, truncated_normal, observations),
    )


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_of_draws(
    finished: Path, truncated_normal: Any, observations: np.ndarray, which: int
) -> None:
    segments = sorted(
        finished.glob("chain-2-draws-1-*.seg"), key=lambda file: int(file.stem.split("-")[-1])
    )
    assert len(segments) > 2
    segments[which].unlink()
    assert_refused(
        finished,
        "chain 2 stands at step 150 of phase 1, but no draws end at step .* a segment is missing",
        lambda: resume(finished, truncated_normal, observations),
    )


def test_a_missing_state(finished: Path, truncated_normal: Any, observations: np.ndarray) -> None:
    newest(finished, "chain-0-state-*.seg").unlink()
    assert_refused(
        finished,
        "chain 0 has draws, but the segment with its state is missing. Nothing was changed",
        lambda: resume(finished, truncated_normal, observations),
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "manifest.json is damaged"),
        (b'{"format": 2, "seed"', "manifest.json is damaged"),
        (b"[1, 2]", "manifest.json is damaged"),
        (b"\xff\xfe\x00", "manifest.json is damaged"),
        (b"{}", "manifest.json is damaged"),
        (b'{"format": 99}', "has checkpoint format 99, this version writes 2"),
        (b'{"format": 2}', "manifest.json is damaged"),
        (_sealed({"format": 2}), "belongs to another run"),
    ],
)
def test_a_damaged_manifest(
    finished: Path, truncated_normal: Any, observations: np.ndarray, content: bytes, said: str
) -> None:
    (finished / "manifest.json").write_bytes(content)
    assert_refused(finished, said, lambda: resume(finished, truncated_normal, observations))


def test_a_missing_manifest(
    finished: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    (finished / "manifest.json").unlink()
    assert_refused(
        finished,
        "is not an Offcut checkpoint .it holds 'chain-0-.*, and no manifest.json",
        lambda: resume(finished, truncated_normal, observations),
    )


def test_a_damaged_budget(tmp_path: Path, truncated_normal: Any, observations: np.ndarray) -> None:
    path = tmp_path / "c"
    resume(path, truncated_normal, observations, budget="auto")
    written = (path / "budget-1.json").read_bytes()
    told = json.loads(written)
    del told["checksum"]
    for content, said in (
        (b"{", "budget-1.json is damaged .*; nothing was changed"),
        (written.replace(b'"budget": ', b'"budget": -'), "damaged .its checksum does not match"),
        (_sealed({**told, "budget": -5}), "the budget -5, which is no number of rejections"),
        (_sealed({**told, "budget": 5.5}), "the budget 5.5, which is no number of rejections"),
        (_sealed({**told, "budget": True}), "the budget True, which is no number"),
        (_sealed({**told, "phase": 2}), "does not belong here: it is of phase 2, and stands for"),
        (_sealed({**told, "run": "x"}), "does not belong here: it is of run x, and stands for"),
    ):
        (path / "budget-1.json").write_bytes(content)
        assert_refused(
            path, said, lambda: resume(path, truncated_normal, observations, budget="auto")
        )
    (path / "budget-1.json").write_bytes(written)
    resume(path, truncated_normal, observations, budget="auto")


def swap(first: Path, second: Path) -> None:
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)


@pytest.mark.parametrize("kind", ["draws", "state"])
def test_segments_swapped_between_chains(
    finished: Path, truncated_normal: Any, observations: np.ndarray, kind: str
) -> None:
    segment = newest(finished, f"chain-0-{kind}-1-*.seg")
    swap(segment, finished / segment.name.replace("chain-0", "chain-1"))
    assert_refused(
        finished,
        f"{segment.name} does not belong here: it is of chain 1, and stands for chain 0. Nothing",
        lambda: resume(finished, truncated_normal, observations),
    )


def test_segments_swapped_between_places(
    finished: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    first, second = sorted(finished.glob("chain-0-draws-1-*.seg"))[:2]
    swap(first, second)
    assert_refused(
        finished,
        r"does not belong here: it is of steps \[\d+, \d+\], and stands for steps ",
        lambda: resume(finished, truncated_normal, observations),
    )


@pytest.mark.parametrize("kind", ["draws", "state"])
def test_a_segment_of_another_seed(
    tmp_path: Path, finished: Path, truncated_normal: Any, observations: np.ndarray, kind: str
) -> None:
    other = Store(tmp_path / "other", {"seed": 6})
    segment = newest(finished, f"chain-0-{kind}-1-*.seg")
    with np.load(io.BytesIO(segment.read_bytes().split(b"\n", 2)[2])) as arrays:
        other._write_segment(Segment.named(segment.name), dict(arrays))
    other.close()
    shutil.copy(tmp_path / "other" / segment.name, segment)
    assert_refused(
        finished,
        r"does not belong here: it is of run \w+, and stands for run \w+",
        lambda: resume(finished, truncated_normal, observations),
    )


@pytest.mark.parametrize("name", ["lock", "manifest.json", "chain-0-state", "chain-0-draws"])
def test_a_directory_in_place_of_a_file(
    finished: Path, truncated_normal: Any, observations: np.ndarray, name: str
) -> None:
    file = newest(finished, f"{name}*")
    file.unlink()
    file.mkdir()
    assert_refused(
        finished,
        f"checkpoint: could not (open|read) .*{file.name} .* a directory stands where a file",
        lambda: resume(finished, truncated_normal, observations),
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (
            errno.ENOSPC,
            r"No space left on device\); the disk is full; make room, .* The same call goes",
        ),
        (errno.EROFS, r"Read-only file system\); nothing can be written there; name"),
        (errno.EACCES, r"Permission denied\); permission is missing"),
        (errno.EIO, r"Input/output error\); is there room on the disk"),
    ],
)
def test_what_the_disk_refuses_is_said_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    store = Store(tmp_path / "c", {})
    rows, state = {"stat:rejected": np.arange(10)}, [np.array(1.0)]
    store.save(0, 1, 0, 10, rows, state)

    def refused(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("offcut.driver.checkpoints.os.fsync", refused)
        with pytest.raises(CheckpointError, match=r"could not write .*chain-0-draws.*" + said):
            store.save(0, 1, 10, 20, rows, state)
    assert store.load(0).done == 10
    store.save(0, 1, 10, 20, rows, state)
    assert store.load(0).done == 20
    store.close()


def test_a_path_below_a_file(
    tmp_path: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(CheckpointError, match=r"could not make .*file/c .*; a file stands where"):
        resume(tmp_path / "file" / "c", truncated_normal, observations)


def test_a_run_whose_checkpoint_was_cleared_stops_and_writes_nothing(tmp_path: Path) -> None:
    """Another run took its place meanwhile, with the same name and another lock."""
    path = tmp_path / "c"
    rows, state = {"stat:rejected": np.arange(10)}, [np.array(1.0)]
    first = Store(path, {"seed": 1})
    first.save(0, 1, 0, 10, rows, state)
    with pytest.raises(CheckpointError, match="is in use by another process"):
        refuse_in_use(tmp_path)
    shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="removed or replaced by another run while this one"):
        first.save(0, 1, 10, 20, rows, state)
    assert not path.exists()
    second = Store(path, {"seed": 2})
    before = contents(path)
    with pytest.raises(CheckpointError, match="removed or replaced by another run while this one"):
        first.save(0, 1, 10, 20, rows, state)
    with pytest.raises(CheckpointError, match="removed or replaced"):
        first.note_budget(1, 5)
    assert contents(path) == before
    first.close()
    second.save(0, 1, 0, 10, rows, state)
    second.close()
    refuse_in_use(tmp_path)


def test_overwriting_a_live_fit_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "fit")
    told = {"request": {"family": "normal"}, "data": "x", "versions": {}}
    folder.open(told, resume=False, overwrite=False)
    live = Store(folder.checkpoint(""), {"seed": 1})
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match="is in use by another process"):
        Folder(tmp_path / "fit").open(told, resume=False, overwrite=True)
    assert contents(tmp_path) == before
    live.close()
    Folder(tmp_path / "fit").open(told, resume=False, overwrite=True)
    assert not folder.checkpoint("").exists()


@pytest.mark.parametrize("name", ["thesis.tex", "notes.tmp", "chain-0-state-0-5.seg"])
def test_a_directory_of_something_else(
    tmp_path: Path, truncated_normal: Any, observations: np.ndarray, name: str
) -> None:
    (tmp_path / name).write_text("precious")
    assert_refused(
        tmp_path,
        f"not an Offcut checkpoint .it holds '{re.escape(name)}'.*; nothing was changed: give an",
        lambda: resume(tmp_path, truncated_normal, observations),
    )


def test_a_path_that_is_a_file(
    tmp_path: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    path = tmp_path / "posterior.nc"
    path.write_text("precious")
    assert_refused(
        path,
        "posterior.nc is a file, not an Offcut checkpoint directory; nothing was changed",
        lambda: resume(path, truncated_normal, observations),
    )


@pytest.mark.usefixtures("unchecked")
def test_a_path_that_is_no_path(truncated_normal: Any, observations: np.ndarray) -> None:
    with pytest.raises(CheckpointError, match="must be the path of a directory, got bool"):
        resume(True, truncated_normal, observations)


def test_a_checkpoint_in_use_by_another_process(
    finished: Path, truncated_normal: Any, observations: np.ndarray, short_run: Any
) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            "lock = open(sys.argv[1], 'a')\n"
            "fcntl.flock(lock, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
            str(finished / "lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        assert_refused(
            finished,
            "is in use by another process; wait for it, or give another path",
            lambda: resume(finished, truncated_normal, observations),
        )
        holder.stdin.close()
    assert_same_draws(resume(finished, truncated_normal, observations), short_run)


def test_the_lock_is_let_go_after_an_error(
    finished: Path, truncated_normal: Any, observations: np.ndarray
) -> None:
    with pytest.raises(CheckpointError):
        resume(finished, truncated_normal, observations, seed=6)
    with open(finished / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Nothing executable.


class Trap:
    """Says so where it is unpickled."""

    def __reduce__(self) -> tuple:
        return (pytest.fail, ("a pickle in a checkpoint was executed",))


def forge(file: Path, arrays: dict[str, Any]) -> None:
    """A segment with a right checksum, in the place of another."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = file.read_bytes().split(b"\n", 2)[1] + b"\n" + buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    file.write_bytes(b"offcut-segment-2 " + digest.encode() + b"\n" + content)


@pytest.mark.parametrize("kind", ["draws", "state"])
def test_a_pickle_with_a_right_checksum_is_not_executed(
    finished: Path, truncated_normal: Any, observations: np.ndarray, kind: str
) -> None:
    file = newest(finished, f"chain-0-{kind}-1-*.seg")
    trap = np.empty(1, object)
    trap[0] = Trap()
    forge(file, {"leaf0": trap, "draw:loc": trap})
    with pytest.raises(pytest.fail.Exception, match="executed"):  # the trap is a real one
        np.load(io.BytesIO(file.read_bytes().split(b"\n", 2)[2]), allow_pickle=True)["leaf0"]
    assert_refused(
        finished,
        f"{file.name} cannot be read: .*allow_pickle",
        lambda: resume(finished, truncated_normal, observations),
    )


def test_a_forgery_of_plain_numbers_is_read(
    finished: Path, truncated_normal: Any, observations: np.ndarray, short_run: Any
) -> None:
    """So the refusal above is about the pickle, not about the forging."""
    file = newest(finished, "chain-0-draws-1-*.seg")
    with np.load(io.BytesIO(file.read_bytes().split(b"\n", 2)[2])) as arrays:
        forged = {
            name: values + 1 if name == "draw:loc" else values for name, values in arrays.items()
        }
    forge(file, forged)
    changed = resume(finished, truncated_normal, observations)["posterior"]["loc"]
    assert float(abs(changed - short_run["posterior"]["loc"]).max()) == pytest.approx(1.0)


def test_the_identity_of_a_model_sees_constants_inside_and_exact_updates():
    """A changed table in an inner jit, or another exact update, is another run."""

    def digest(table, shift):
        table = np.asarray(table)

        @jax.jit
        def log_accept(theta, y):
            return -jnp.asarray(table)[0] * y**2

        model = offcut.selected(
            {"loc": dist.Normal(0, 1), "other": dist.Normal(0, 1)},
            lambda theta: dist.Normal(theta["loc"], 1),
            log_accept,
            exact_updates={"other": lambda key, theta, x: {"other": shift + theta["loc"]}},
        )
        with jax.enable_x64(True):
            arrays, _, _ = observe(model, np.array([0.1, 0.2]), None)
            return model.identify((), arrays.points)

    same = digest([0.5, 1.0], 1.0)
    assert digest([0.5, 1.0], 1.0) == same
    assert digest([0.5, 1.1], 1.0) != same
    assert digest([0.5, 1.0], 1.5) != same
