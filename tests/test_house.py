"""The house is as CONTRIBUTING says: its folders, its root, its layers, its checks."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import offcut

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "offcut"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
#: Modules at the root that are read by their users' eyes: few enough to know them all.
MOST_AT_ROOT = 7
#: Files that a plain run calls functions of.
MOST_WALKED = 38


def folders() -> set[str]:
    """Every folder of the package that holds something."""
    found = {path.parent for path in SOURCES.rglob("*") if path.is_file() and not hidden(path)}
    return {f"{folder.relative_to(SOURCES)}/" for folder in found} - {"./"}


def hidden(path: Path) -> bool:
    return any(part.startswith(("__pycache__", ".")) for part in path.relative_to(SOURCES).parts)


def test_the_map_names_exactly_the_folders_that_there_are():
    named = re.findall(r"^\| `([\w/]+/)` \|", CONTRIBUTING, re.M)
    assert sorted(named) == sorted(folders())


def test_every_file_that_contributing_names_is_there():
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", CONTRIBUTING))
    assert named
    bases = (SOURCES, SOURCES.parent, ROOT)
    assert not [name for name in named if not any((base / name).exists() for base in bases)]


@cache
def walked() -> list[str]:
    """Files that a plain run calls functions of, in the order of their first calls."""
    walk = [sys.executable, "-W", "ignore", str(ROOT / "tests" / "walk.py")]
    return subprocess.run(walk, capture_output=True, text=True, check=True).stdout.split()


def test_a_plain_run_calls_functions_of_few_files():
    assert len(walked()) <= MOST_WALKED, walked()


def test_the_walk_in_contributing_goes_from_folder_to_folder_as_the_calls_do():
    called = dict.fromkeys(f"{Path(file).parent}/" for file in walked())
    (walk,) = re.findall(r"^\*\*A walk.*?\n\n", CONTRIBUTING, re.M | re.S)
    named = dict.fromkeys(re.findall(r"`((?:\w+/)+)(?:\w+\.py)?`", walk))
    named.pop("tests/", None)
    assert list(named) == [folder for folder in called if folder != "./"]


def test_few_modules_stand_at_the_root():
    loose = {path.name for path in SOURCES.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert len(loose) <= MOST_AT_ROOT
    assert not [name for name in loose if f"`{name}`" not in CONTRIBUTING]


def test_tests_stand_in_the_same_tree():
    tests = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    rooms = {folder.split("/")[0] for folder in folders()}
    assert tests <= rooms


def test_every_folder_has_a_layer():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    layers = {name for layer in contract["layers"] for name in re.findall(r"offcut\.(\w+)", layer)}
    rooms = {folder.split("/")[0] for folder in folders()} - {"data"}
    loose = {path.stem for path in SOURCES.glob("*.py")} - {"__init__", "__main__"}
    assert layers == rooms | loose


def test_pre_commit_runs_what_make_check_runs():
    recipe = (ROOT / "Makefile").read_text().split("\ncheck:")[1].split("\n\n")[0]
    tools = re.findall(r"\$\(BIN\)/([\w-]+ ?(?:check|format|-m pytest)?)", recipe)
    hooks = re.findall(r"entry: \.venv/bin/(.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert len(tools) == len(hooks)
    assert all(hook.startswith(tool) for tool, hook in zip(tools, hooks, strict=True))


def test_citation_has_the_version():
    assert f"\nversion: {offcut.__version__}\n" in (ROOT / "CITATION.cff").read_text()
