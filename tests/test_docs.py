"""The code in README and CONTRIBUTING runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest

import offcut
from offcut.models.rejection import RejectionModel

mpl.use("Agg")

ROOT = Path(__file__).parents[1]


def run_blocks(name, monkeypatch, **settings):
    """Run the Python blocks of a document in one namespace, with short chains."""
    sample = offcut.sample
    short = {"draws": 60, "warmup": 60, "chains": 2, "progress": False}

    def briefly(model, *args, **asked):
        own = settings if isinstance(model, RejectionModel) else {"thin": 1}
        return sample(model, *args, **asked | short | own)

    monkeypatch.setattr(offcut, "sample", briefly)
    namespace = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.S | re.M)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    return namespace


def test_readme_runs_as_printed(monkeypatch):
    names = run_blocks("README.md", monkeypatch, kernel=offcut.HMC(num_steps=3))
    assert set(names["posterior"]["posterior"].data_vars) == {"mean", "sd"}
    assert set(names["trend"]["posterior"].data_vars) == {"intercept", "slope", "sd"}
    assert names["labels"].labels.shape == (6809,)
    assert names["detected"]["distance"].shape == (200,)
    assert float(names["lifetime"]["posterior"]["lifetime"].mean()) == pytest.approx(1.0, abs=0.6)


def test_the_sampler_in_contributing_runs_as_printed(monkeypatch, capsys):
    names = run_blocks("CONTRIBUTING.md", monkeypatch)
    assert names["posterior"].attrs["kernel"] == "Gibbs"
    assert "draws no rejections" in capsys.readouterr().out
