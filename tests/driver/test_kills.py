"""``kill -9`` at random moments, in warm-up and in draws: every resume ends with the same bits.

The long version, six kills of each kind: ``pytest -m calibrate tests/driver/test_kills.py``.
"""

from __future__ import annotations

import random
import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kill_me
from conftest import assert_same_draws

STATE = re.compile(r"chain-(\d+)-state-(\d+)-(\d+)\.seg")
KINDS = list(kill_me.kinds())


def stands(path: Path) -> list[tuple[int, int]]:
    """(phase, steps) of each chain that has saved something."""
    found: dict[str, tuple[int, int]] = {}
    for file in path.iterdir() if path.exists() else ():
        if match := STATE.fullmatch(file.name):
            found[match[1]] = max((int(match[2]), int(match[3])), found.get(match[1], (0, 0)))
    return list(found.values())


def moments(rng: random.Random, kills: int) -> list[tuple[int, int]]:
    """Places to wait for, in order: a third of them in warm-up."""
    brief, early = kill_me.BRIEF, max(1, kills // 3)
    first = sorted(rng.randrange(1, brief["warmup"] - 5) for _ in range(early))
    later = sorted(rng.randrange(0, brief["draws"] - 30) for _ in range(kills - early))
    return [(0, step) for step in first] + [(1, step) for step in later]


def kill_and_resume(name: str, kills: int, tmp_path: Path, start_child: Any) -> set[int]:
    """Kill so often, let it finish, compare; the phases in which it was killed."""
    path = tmp_path / "checkpoint"
    rng = random.Random(f"{name} {kills}")
    died_in = set()
    for place in moments(rng, kills):
        child = start_child("kind", path, tmp_path, name)
        child.wait_until(
            lambda place=place: len(now := stands(path)) > 0 and max(now) >= place, 600.0
        )
        time.sleep(rng.uniform(0.0, 0.03))
        child.kill()
        assert not (tmp_path / "resumed.npz").exists()
        died_in |= {phase for phase, _ in stands(path)}
    last = start_child("kind", path, tmp_path, name).finish(600.0)
    assert last.returncode == 0, last.stderr
    with np.load(tmp_path / "resumed.npz") as file:
        resumed = dict(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uninterrupted = kill_me.run_kind(name)
    if kill_me.kinds()[name].restarts:
        assert uninterrupted.attrs["budget_restarts"] == 1
    assert_same_draws(resumed, uninterrupted)
    return died_in


def test_killed_three_times(tmp_path: Path, start_child: Any) -> None:
    assert kill_and_resume("censored", 3, tmp_path, start_child) == {0, 1}


@pytest.mark.calibrate
@pytest.mark.parametrize("name", KINDS)
def test_killed_six_times(name: str, tmp_path: Path, start_child: Any) -> None:
    assert {0, 1} <= kill_and_resume(name, 6, tmp_path, start_child)
