"""The worked examples of docs/examples run, draw their pictures and find what they simulated.

With so few draws the interval is rough, so the truth may lie outside it by half its width; that the
full runs cover it is what the examples print.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import matplotlib as mpl
import pytest

mpl.use("Agg")

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = sorted(path.stem for path in (DOCS / "examples").glob("*.py"))
#: Methods that compile in less time than NUTS; the others choose a quick one themselves.
METHODS = {"regression": "exchange", "survey": "exchange"}
#: What the naive analysis gets wrong, more than the short run does.
TRAPS = {
    "censored": ["sd"],
    "measurement_error": ["mu", "tau"],
    "regression": ["slope", "level"],
    "simplex": ["silt", "sd of silt"],
    "survey": ["mean", "sd"],
    "time_to_infection": ["median"],
}
#: They compile for most of a minute each, and other tests show the same: with make calibrate.
LONG = ("censored", "measurement_error", "simplex")
LARGEST = 60_000  # bytes of a picture in docs/images/examples


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def naive_of(name, result):
    if name == "censored":
        return result["at face value"]["mean"]
    return result["selection ignored"]["mean"] if name == "measurement_error" else result["naive"]


@pytest.mark.documentation
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.calibrate] if n in LONG else []) for n in EXAMPLES],
)
def test_example(name, tmp_path, capsys):
    settings = {"draws": 300, "warmup": 600, "chains": 2, "progress": False}
    if name in METHODS:
        settings["method"] = METHODS[name]
    results = load(name).main(tmp_path, **settings)
    out = capsys.readouterr().out
    assert "Certificate" in out
    if name == "censored":
        assert "censored=offcut.Clamped(upper=10)" in re.sub(r"\s+", " ", out)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for quantity, result in results.items():
        margin = (result["high"] - result["low"]) / 2
        assert result["low"] - margin < result["truth"] < result["high"] + margin, quantity
    for quantity in TRAPS[name]:
        result = results[quantity]
        error = abs(result["mean"] - result["truth"])
        assert error < abs(naive_of(name, result) - result["truth"]), quantity


def test_every_example_is_in_the_index():
    index = (DOCS / "examples" / "README.md").read_text()
    assert set(TRAPS) == set(EXAMPLES)
    for name in EXAMPLES:
        assert f"({name}.py)" in index
        assert f"(../images/examples/{name}.png)" in index
    for link in re.findall(r"\]\(([^)#]+)\)", index):
        assert link.startswith("https://") or (DOCS / "examples" / link).exists(), link


def test_pictures_of_the_index_are_small():
    pictures = sorted((DOCS / "images" / "examples").glob("*.png"))
    assert [path.stem for path in pictures] == EXAMPLES
    assert all(path.stat().st_size < LARGEST for path in pictures)
