"""The data sets of the paper."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import offcut
from offcut.datasets import gvhd, parkinsons, vectorcardiogram
from offcut.errors import DataError
from offcut.regions import Box

DATA = Path(offcut.__file__).parent / "data"


def test_gvhd() -> None:
    events = gvhd()
    assert events.values.shape == (15_892, 4)
    assert events.channels == ("CD4", "CD8b", "CD3", "CD8")
    assert events.region == Box([0] * 4, [1] * 4)
    assert events.group_names == ("control", "positive")
    assert np.bincount(events.group).tolist() == [6_809, 9_083]
    assert events.original().min() == 1
    assert events.original().max() == 848
    assert np.array_equal(events.original(), np.round(events.original()))
    assert sum(map(sum, events.at_limit.values())) == 0


def test_one_group_of_gvhd() -> None:
    control, positive = gvhd("control"), gvhd("positive")
    assert control.group is None
    assert control.source == "gvhd.csv (control)"
    assert np.array_equal(np.concatenate([control.values, positive.values]), gvhd().values)
    with pytest.raises(DataError, match="'control', 'positive' or None"):
        gvhd("negative")


def test_parkinsons() -> None:
    voices = parkinsons()
    assert len(voices) == 195
    assert len(voices.columns) == 23
    assert list(voices.columns)[:2] == ["MDVP:Fo(Hz)", "MDVP:Fhi(Hz)"]
    assert np.bincount(voices.status).tolist() == [48, 147]
    assert voices["MDVP:Shimmer"][0] == 0.04374
    assert "32 people" in voices.note
    assert "32 people" in repr(voices)
    with pytest.raises(KeyError, match="no column 'Shimmer'"):
        voices["Shimmer"]


def test_only_what_may_be_shipped() -> None:
    assert sorted(path.name for path in DATA.iterdir()) == [
        "README.md",
        "gvhd.csv",
        "parkinsons.csv",
    ]


def made_up(path: Path, rows: int = 5) -> np.ndarray:
    """A file in the form of the vectorcardiograms: orthonormal frames, rounded to four digits."""
    rng = np.random.default_rng(0)
    frames = np.linalg.qr(rng.normal(size=(rows, 2, 3, 2)))[0]  # child, system, axis, vector
    systems, vectors = ("frank", "mcfee"), ("qrs", "perp")
    header = [f"{s}_{v}_{axis}" for s in systems for v in vectors for axis in "xyz"]
    lines = [",".join(["id", "age_sex_group", "sex", "age_band", *header])]
    for row in range(rows):
        numbers = frames[row].transpose(0, 2, 1).ravel()
        lines.append(f"{row},2,boy,11-19," + ",".join(f"{number:.4f}" for number in numbers))
    path.write_text("\n".join(lines) + "\n")
    return frames


def test_vectorcardiograms_are_orthonormal(tmp_path: Path) -> None:
    frames = made_up(tmp_path / "vcg.csv")
    children = vectorcardiogram(tmp_path / "vcg.csv")
    assert len(children) == 5
    for system, found in enumerate((children.frank, children.mcfee)):
        assert found.shape == (5, 3, 2)
        assert np.allclose(found.transpose(0, 2, 1) @ found, np.eye(2), atol=1e-14)
        assert np.allclose(found, frames[:, system], atol=2e-4)
    assert children.age_sex_group.tolist() == [2] * 5
    assert repr(children) == (
        "Vectorcardiograms(5 children, lead systems frank and mcfee; boy 11-19)"
    )


def test_vectorcardiograms_are_not_shipped(tmp_path: Path) -> None:
    for path in (tmp_path / "vcg.csv", None):
        with pytest.raises(DataError, match=r"do not come with Offcut.*Downs, Liebman & Mackay"):
            vectorcardiogram(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("frank_perp_z", "frank_perp_w", "no column frank_perp_z"),
        ("11-19,", "11-19,x", "holds text"),
        (r"11-19,[^,]*", "11-19,nan", "missing values for frank"),
        ("boy", "boy,", "line 2 of .* has 17 fields, but the first line names 16"),
    ],
)
def test_other_files(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "vcg.csv"
    made_up(path)
    path.write_text(re.sub(old, new, path.read_text()))
    with pytest.raises(DataError, match=says):
        vectorcardiogram(path)
