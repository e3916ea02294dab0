"""``offcut cache`` says where programs are and how many; ``--clear`` removes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cli import run
from offcut.programs import disk

KEYS = ["0" * 64, "1" * 64]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(disk.VARIABLE, str(tmp_path / "programs"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    return tmp_path / "programs"


def lines(*words):
    result = run("cache", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    return dict(line.split(maxsplit=1) for line in result.stdout.splitlines())


def test_an_empty_cache_is_shown_and_not_made(place):
    assert lines() == {"place": str(place), "programs": "0, 0.0 of at most 512 MB"}
    assert lines("--clear") == {"place": str(place), "removed": "0, 0.0 MB"}
    assert not place.exists()


def test_what_is_there_is_shown_and_removed(place):
    for year, key in zip((2001, 2002), KEYS, strict=True):
        disk.write(key, bytes(2**20))
        os.utime(place / f"{key}.program", (0, (year - 1970 + 0.5) * 365.25 * 86400))
    (place / "mine").write_text("")
    shown = lines()
    assert shown["programs"] == "2, 2.0 of at most 512 MB"
    oldest, newest = shown["last"].removeprefix("used").split(" to ")
    assert oldest.strip().startswith("2001-")
    assert newest.startswith("2002-")
    assert lines("--clear")["removed"] == "2, 2.0 MB"
    assert [path.name for path in place.iterdir()] == ["mine"]


def test_a_cache_that_is_not_used_says_why(place, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/elsewhere")
    assert "(JAX_COMPILATION_CACHE_DIR=/elsewhere)" in lines()["not"]
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert lines()["read"] == "only  nothing can be written there"
    disk.write(KEYS[0], b"program")
    place.chmod(0o777)
    assert lines()["not"] == "used   others may write to it (chmod go-w)"
    monkeypatch.setenv(disk.VARIABLE, str(place / f"{KEYS[0]}.program"))
    assert lines()["not"] == "used   it is not a directory"
    monkeypatch.setenv(disk.VARIABLE, "off")
    assert lines("--clear") == {"place": "none: OFFCUT_CACHE is 'off'"}


def test_it_needs_neither_jax_nor_numpy(place):
    code = (
        "import sys\nfrom offcut.app.cli.app import app\napp(['cache'], standalone_mode=False)\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(place) in told.stdout
