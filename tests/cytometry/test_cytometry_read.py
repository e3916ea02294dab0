"""Events from arrays, tables and FCS files, and the window they came through."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offcut.cytometry import (
    Asinh,
    Compensation,
    Events,
    Identity,
    Linear,
    Log,
    Logicle,
    concatenate,
    from_anndata,
    read,
    to_anndata,
)
from offcut.errors import DataError, SettingsError, TrustWarning
from offcut.regions import Box, ByGroup, Polytope, Predicate
from offcut.tables.read import COMMAND_LINE, read_table

COUNTS = np.array([[5.0, 100.0], [200.0, 1020.0], [37.0, 512.0], [900.0, 3.0]])
NAMES = ["CD4", "CD8"]
SPILL = np.array([[1.0, 0.2], [0.05, 1.0]])


def fcs(path: Path, values: Any, names: Any = ("FL1-H", "FL2-H"), **keywords: str) -> Path:
    """A floating-point FCS 3.1 file, written by flowio."""
    flowio = pytest.importorskip("flowio")
    values = np.asarray(values, dtype=float)
    labels = keywords.pop("labels", None)
    with path.open("wb") as file:
        flowio.create_fcs(file, values.ravel().tolist(), list(names), labels, keywords)
    return path


def integer_fcs(path: Path, values: Any, version: str = "FCS2.0", **keywords: Any) -> Path:
    """A 16-bit integer FCS file, big-endian as the old ones were; keywords change its text."""
    pytest.importorskip("flowio")
    values = np.asarray(values)
    data = values.astype(">u2").tobytes()
    text = {
        "BYTEORD": "2,1",
        "DATATYPE": "I",
        "MODE": "L",
        "NEXTDATA": 0,
        "PAR": values.shape[1],
        "TOT": len(values),
    }
    for number in range(1, values.shape[1] + 1):
        text |= {f"P{number}B": 16, f"P{number}R": 1024, f"P{number}E": "0,0"}
        text |= {f"P{number}N": f"FL{number}-H"}
    text |= {key.upper(): value for key, value in keywords.items()}
    segment = "/" + "".join(f"${key}/{value}/" for key, value in text.items() if value != "")
    begin = 58 + len(segment)
    offsets = (58, begin - 1, begin, begin + len(data) - 1, 0, 0)
    header = f"{version:<10}" + "".join(f"{offset:>8}" for offset in offsets)
    path.write_bytes((header + segment).encode() + data)
    return path


# Arrays and tables


def test_an_array_is_what_it_is() -> None:
    events = read(COUNTS, NAMES)
    assert np.array_equal(events.values, COUNTS)
    assert events.values.dtype == np.float64
    assert events.channels == ("CD4", "CD8")
    assert events.region is None
    assert events.transform == Identity()
    assert events.at_limit == {}
    assert len(events) == 4


@pytest.mark.parametrize("source", [COUNTS.tolist(), jnp.asarray(COUNTS), COUNTS.astype(object)])
def test_whatever_holds_numbers(source: Any) -> None:
    assert np.array_equal(read(source).values, COUNTS)
    assert read(source, [1]).channels == ("channel 1",)


def test_one_channel() -> None:
    assert read(COUNTS[:, 0]).values.shape == (4, 1)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet", ".npy"])
def test_files(tmp_path: Path, suffix: str) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / f"events{suffix}"
    frame = pandas.DataFrame(COUNTS, columns=NAMES)
    if suffix == ".npy":
        np.save(path, COUNTS)
    elif suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    events = read(path, NAMES, window=(0, 1023))
    assert np.array_equal(events.values, COUNTS)
    assert events.channels == ("CD4", "CD8")
    assert events.source == path.name
    assert events.region == Box([0, 0], [1023, 1023])
    assert np.array_equal(read(str(path)).values, COUNTS)


def test_groups_of_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(COUNTS, columns=NAMES).assign(patient=["b", "a", "b", "b"])
    events = read(frame, group="patient")
    assert events.channels == ("CD4", "CD8")
    assert events.group.tolist() == [1, 0, 1, 1]
    assert events.group_names == ("a", "b")
    assert len(events.of_group("b")) == 3
    assert "groups a (1), b (3)" in repr(events)
    assert read(COUNTS, group=[3, 1, 3, 3]).group_names == ("1", "3")
    with pytest.raises(DataError, match="no group 'c'; groups are: a, b"):
        events.of_group("c")
    with pytest.raises(DataError, match="holds text"):
        read(frame)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "CD4,CD8\n1,2\n3,oops\n4,5\n",
            r"'CD8' of bad.csv holds text: 1 of 3 .* line 3 .*'oops'",
        ),
        ("CD4,CD8\n1,2\n3,\n4,n/a\n", r"2 of 3 rows of bad.csv .* in CD8: lines 3 and 4 of"),
        ("CD4,CD8\n1,2\n3,inf\n", "1 of 2 rows of bad.csv have a missing or infinite"),
        ("1,2\n3,4\n", "first line of .* holds numbers"),
        ("CD4;CD8\n1;2\n", "commas"),
        ("CD4,CD8\n", "no events"),
        ("", "cannot be read as a table"),
        ("CD4,CD8\n1,2\n1,2,3\n", "line 3 of .* has 3 fields"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, says: str) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        read(path)


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".fcs"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    for module in ("pandas", "pyarrow", "flowio"):
        pytest.importorskip(module)
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(b"neither this nor that")
    with pytest.raises(DataError, match=r"bad\."):
        read(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"source": "nowhere.fcs"}, "nowhere.fcs does not exist"),
        ({"source": Path(__file__).parent}, "is a directory"),
        ({"source": __file__}, r"of no known kind \(.py\)"),
        ({"source": np.zeros((2, 2, 2))}, "holds an array of shape"),
        ({"source": [[1.0, 2.0], [3.0]]}, "same number of entries"),
        ({"source": np.zeros((0, 2))}, "no events"),
        ({"source": [["a", "b"]]}, "holds text"),
        ({"channels": ["CD4"]}, "2 different names"),
        ({"channels": [2]}, "there are 2, from 0"),
        ({"channels": [0, 0]}, "names 0 more than once"),
        ({"channels": []}, "channels is empty"),
        ({"group": "patient"}, "group: there is no such column: 'patient'"),
        ({"group": [1, 2]}, "label for each of the 4 events"),
        ({"group": ["a", None, "b", "b"]}, "1 events have no group"),
        (
            {"window": (0, 500)},
            r"3 of 4 .*: rows 1, 2 and 3, counted from 0; .*: channel 0: .*; channel .* window=\{",
        ),
        ({"window": (0,)}, r"must be \(lower, upper\)"),
        ({"window": ([0, 0, 0], 1)}, r"must be \(lower, upper\)"),
        ({"window": Box([0], [1])}, "is for 1 channels, but 2"),
        ({"window": {"CD3": (0, 1)}}, "not chosen: 'CD3'; the channels are channel 0, channel 1"),
        ({"transform": "asinh"}, "transform must be one of"),
        ({"transform": [Asinh()]}, "for all 2 channels"),
        ({"compensate": True}, "no spillover matrix"),
        ({"compensate": np.ones((2, 2))}, "no inverse"),
        ({"compensate": np.eye(3)}, r"shape \(2, 2\), got \(3, 3\)"),
    ],
)
def test_bad_arguments(arguments: dict, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(**{"source": COUNTS} | arguments)


def test_unknown_setting() -> None:
    with pytest.raises(SettingsError, match="at_limits must be"):
        read(COUNTS, at_limits="mark")


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = integer_fcs(tmp_path / "a.fcs", [[1, 2]])
    monkeypatch.setitem(sys.modules, "flowio", None)
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"needs flowio: pip install 'offcut\[cytometry\]'$"):
        read(path)
    with pytest.raises(ImportError, match=r"pip install 'offcut\[cytometry\]' anndata"):
        to_anndata(read(COUNTS))


# The window and its faces


@pytest.mark.parametrize(
    ("window", "box"),
    [
        ((0, 1023), Box([0, 0], [1023, 1023])),
        ((0, None), Box([0, 0], [None, None])),
        (([0, -5], [1000, 1023]), Box([0, -5], [1000, 1023])),
        ({"cd8": (0, 1023)}, Box([None, 0], [None, 1023])),
        (Box(0, 1023), Box([0, 0], [1023, 1023])),
        (Box([0, 0], [1023, 1023], "left"), Box([0, 0], [1023, 1023], "left")),
        ((None, None), None),
    ],
)
def test_ways_to_give_a_window(window: Any, box: Box | None) -> None:
    assert read(COUNTS, NAMES, window=window).region == box


@pytest.mark.parametrize("scale", [Asinh(10), Linear(0.01, 2), Logicle(1023), Log(1023, 3)])
def test_the_window_moves_with_the_data(scale: Any) -> None:
    events = read(COUNTS, NAMES, window=(1, 1023), transform=scale)
    expected = Box(scale([1.0, 1.0]), scale([1023.0, 1023.0]))
    assert events.region == expected
    assert np.allclose(events.values, scale(COUNTS), rtol=1e-14)
    assert np.allclose(events.original(), COUNTS, rtol=1e-10)
    assert jax.vmap(events.region)(events.values).all()


def test_a_transform_for_each_channel() -> None:
    events = read(COUNTS, NAMES, window=(0, 1023), transform={"CD8": Asinh(5)})
    assert events.transforms == (Identity(), Asinh(5))
    assert events.region == Box([0, 0], [1023, float(Asinh(5)(1023.0))])
    assert np.allclose(events.original(), COUNTS)
    assert events.select("CD8").transforms == (Asinh(5),)
    assert read(COUNTS, NAMES, transform=[Identity(), Asinh(5)]).transforms == events.transforms


def test_a_logarithm_opens_the_face_at_zero() -> None:
    counts = np.vstack([COUNTS, [[0.0, 7.0]]])
    with pytest.raises(DataError, match="no value for 1 of 5 events in CD4"):
        read(counts, NAMES, window=(0, 1023), transform=Log(1023, 3))
    events = read(counts, NAMES, window=(0, 1023), transform=Log(1023, 3), at_limits="drop")
    assert np.isneginf(events.region.lower).all()
    assert np.allclose(events.region.upper, 1.0)


@pytest.fixture
def clamped() -> np.ndarray:
    """Normal values, with what lies beyond 0 and 10 recorded there."""
    values = np.random.default_rng(3).normal(5.0, 2.5, size=(4000, 2))
    return np.clip(values, 0.0, 10.0)


@pytest.mark.parametrize("scale", [Identity(), Asinh(0.7), Logicle(11, 0.3, 3, 0.1)])
def test_events_on_faces(clamped: np.ndarray, scale: Any) -> None:
    with pytest.warns(TrustWarning, match=r"sit exactly on the (lower|upper) face .* CD") as seen:
        kept = read(clamped, NAMES, window=(0, 10), transform=scale)
    assert len(seen) == 4
    assert all(warning.filename == __file__ for warning in seen)
    low, high = (clamped == 0).sum(axis=0), (clamped == 10).sum(axis=0)
    assert kept.at_limit == {"CD4": (low[0], high[0]), "CD8": (low[1], high[1])}
    assert ((kept.values == kept.region.lower).sum(axis=0) == low).all()
    assert ((kept.values == kept.region.upper).sum(axis=0) == high).all()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left = read(clamped, NAMES, window=(0, 10), transform=scale, at_limits="drop")
    inner = ((clamped > 0) & (clamped < 10)).all(axis=1)
    assert len(left) == inner.sum()
    assert left.dropped == (~inner).sum()
    assert not left.region.closed_lower.any()
    assert not left.region.closed_upper.any()
    assert left.at_limit == {"CD4": (0, 0), "CD8": (0, 0)}
    assert jax.vmap(left.region)(left.values).all()


def test_few_events_on_a_face_are_no_pile(clamped: np.ndarray) -> None:
    values = np.clip(clamped, 0.1, 9.9) + np.random.default_rng(4).uniform(0, 0.05, clamped.shape)
    values[:20, 0] = 0.0  # 0.5 %
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        events = read(values, NAMES, window=(0, 10))
    assert events.at_limit == {"CD4": (20, 0), "CD8": (0, 0)}


def test_saturation_below_the_stated_limit(clamped: np.ndarray) -> None:
    """A digital instrument says 262144 and saturates at 262143."""
    with pytest.warns(TrustWarning, match=r"exactly 10, the largest .*window=\{'CD4': \(0, 10\)\}"):
        read(clamped[clamped[:, 0] > 0][:, :1], ["CD4"], window=(0, 11))


def test_groups_go_with_dropped_events(clamped: np.ndarray) -> None:
    labels = np.where(clamped[:, 0] > 5, "high", "low")
    events = read(clamped, NAMES, window=(0, 10), group=labels, at_limits="drop")
    assert ((events.values[:, 0] > 5) == (events.group == 0)).all()


def test_nothing_left() -> None:
    with pytest.raises(DataError, match="all 2 rows of the source sit exactly on a limit"):
        read([[0.0], [0.0]], window=(0, 1), at_limits="drop")


# FCS


def test_floating_point_fcs(tmp_path: Path) -> None:
    path = fcs(tmp_path / "a.fcs", COUNTS, p1r="1024", p2r="2048", p2g="2.0")
    events = read(path)
    assert events.channels == ("FL1-H", "FL2-H")
    assert np.array_equal(events.values, COUNTS / [1, 2])
    assert events.region == Box([0, 0], [1024, 1024])
    assert events.source == "a.fcs"


def test_integer_fcs(tmp_path: Path) -> None:
    path = integer_fcs(tmp_path / "a.fcs", COUNTS)
    events = read(path)
    assert np.array_equal(events.values, COUNTS)
    assert events.region == Box([0, 0], [1023, 1023])


def test_logarithmic_amplifiers(tmp_path: Path) -> None:
    counts = np.vstack([COUNTS, [[0, 0], [1023, 1023]]])
    path = integer_fcs(tmp_path / "a.fcs", counts, p1e="4.0,1.0", p2e="4,0")
    events = read(path)
    assert np.allclose(events.values, 10 ** (4 * counts / 1024), rtol=1e-14)
    assert np.allclose(events.region.lower, 1.0)
    assert np.allclose(events.region.upper, 10 ** (4 * 1023 / 1024))
    assert events.at_limit == {"FL1-H": (1, 1), "FL2-H": (1, 1)}
    flowio = pytest.importorskip("flowio")
    with path.open("rb") as file:
        assert np.array_equal(events.values, flowio.FlowData(file).as_array())


def test_channels_by_either_name(tmp_path: Path) -> None:
    names = ["FSC-H", "FL1-H", "FL2-H", "Time"]
    values = np.arange(1.0, 13.0).reshape(3, 4)
    path = fcs(tmp_path / "a.fcs", values, names, labels=["", "CD4", "CD8", ""], timestep="0.5")
    assert read(path).channels == ("FSC-H", "FL1-H", "FL2-H")
    events = read(path, ["cd8", "fsc-h"])
    assert events.channels == ("CD8", "FSC-H")
    assert np.array_equal(events.values, values[:, [2, 0]])
    assert np.array_equal(read(path, "time").values, values[:, 3:] * 0.5)
    with pytest.raises(DataError, match=r"'CD3'; the channels are FSC-H, FL1-H \(CD4\), FL2-H"):
        read(path, ["CD3"])
    with pytest.raises(DataError, match=r"FCS files have no column with groups.*concatenate"):
        read(path, group="patient")


def test_channels_in_another_order_and_what_spills_into_them(tmp_path: Path) -> None:
    spill = "2,FL1-H,FL2-H," + ",".join(map(str, SPILL.ravel()))
    ranges = {"p1r": "1024", "p2r": "2048"}
    path = fcs(tmp_path / "a.fcs", COUNTS, labels=["CD4", "CD8"], spill=spill, **ranges)
    events = read(path, ["cd8", "FL1-H"])
    assert events.channels == ("CD8", "FL1-H")
    assert np.array_equal(events.values, COUNTS[:, ::-1])
    assert events.region == Box([0, 0], [2048, 1024])
    table = read_table(path, ["CD8", "0"], interface=COMMAND_LINE)
    assert table.names == ["CD8", "FL1-H"]
    assert table.spillover.detectors == ("FL1-H", "CD8")
    assert read_table(fcs(tmp_path / "t.fcs", COUNTS, ("a", "Time"))).left_out == {
        "Time": "counts the time"
    }


def test_a_name_that_two_channels_have(tmp_path: Path) -> None:
    path = fcs(tmp_path / "a.fcs", COUNTS, labels=["CD4", "cd4"])
    assert read(path, "CD4").values[0, 0] == 5
    with pytest.raises(DataError, match=r"2 channels are called 'Cd4' \(numbers \[0, 1\]"):
        read(path, "Cd4")


def test_floats_outside_the_stated_range(tmp_path: Path) -> None:
    path = fcs(tmp_path / "a.fcs", [[-20.0, 5.0], [300.0, 5.0]], p1r="256", p2r="256")
    with pytest.raises(DataError, match=r"2 of 2 .*1 below 0, 1 above 256.*\$PnR, which is only"):
        read(path)
    events = read(path, window={"fl1-h": (-111, None)})
    assert events.region == Box([-111, 0], [None, 256])
    assert read(path, window=(None, None)).region is None


def test_fcs_by_content(tmp_path: Path) -> None:
    path = integer_fcs(tmp_path / "tube.001", COUNTS, version="FCS3.0", begindata="", enddata="")
    with pytest.raises(DataError, match="begindata"):  # 3.0 must say in its text where data are
        read(path)
    assert len(read(fcs(tmp_path / "tube.002", COUNTS))) == 4


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"tot": 9}, "says 9 events of 2 channels, 18 numbers, but holds 8"),
        ({"tot": 0}, "no events"),
        ({"tot": "many"}, "cannot be read as FCS"),
        ({"par": ""}, "cannot be read as FCS"),
        ({"p1r": ""}, "cannot be read as FCS"),
        ({"par": 4}, "names 2 channels|cannot be read"),
        ({"nextdata": 400}, "more than one data set"),
        ({"byteord": "3,4,1,2"}, "byte order"),
        ({"mode": "C"}, r"\$MODE C"),
        ({"datatype": "A"}, "cannot be read as FCS"),
        ({"p1b": 10, "p2b": 10}, "bit width"),
        ({"p1datatype": "F"}, "several data types"),
        ({"spill": "2,FL1-H,FL2-H,1,0,0"}, "spillover matrix of .* cannot be read"),
        ({"spill": "1,FL9-H,1"}, "names a channel that the file has not: 'FL9-H'"),
    ],
)
def test_bad_fcs(tmp_path: Path, keywords: dict, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read(integer_fcs(tmp_path / "bad.fcs", COUNTS, **keywords))


def test_fcs_cut_short(tmp_path: Path) -> None:
    """At every length the error is one of Offcut's, and no file stays open."""
    path = integer_fcs(tmp_path / "a.fcs", COUNTS)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"a\.fcs"):
            read(path)


def test_fcs_with_noise(tmp_path: Path) -> None:
    """Bytes changed at random: either a reading or an error of Offcut's."""
    path = integer_fcs(tmp_path / "a.fcs", COUNTS)
    whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(150):
        noisy = whole.copy()
        noisy[rng.integers(len(whole), size=3)] = rng.integers(256, size=3)
        path.write_bytes(noisy.tobytes())
        try:
            read(path)
        except DataError:
            failed += 1
    assert failed > 20


def test_off_by_one_end_of_data(tmp_path: Path) -> None:
    """A common flaw: the byte after the last is given; the number of events says what is right."""
    path = integer_fcs(tmp_path / "a.fcs", COUNTS)
    whole = path.read_bytes()
    last = int(whole[34:42])
    path.write_bytes(whole[:34] + f"{last + 1:>8}".encode() + whole[42:] + b"\0")
    assert np.array_equal(read(path).values, COUNTS)


# Compensation


@pytest.fixture
def spilled(tmp_path: Path) -> Path:
    """Dyes of two kinds, seen through spillover by an instrument from 0 to 1024."""
    rng = np.random.default_rng(5)
    dyes = rng.normal([150.0, 500.0], [120.0, 250.0], size=(3000, 2))
    observed = dyes @ SPILL
    observed = observed[((observed > 0) & (observed < 1024)).all(axis=1)]
    spill = "2,FL1-H,FL2-H," + ",".join(map(str, SPILL.ravel()))
    return fcs(tmp_path / "spilled.fcs", observed, p1r="1024", p2r="1024", spill=spill)


def seen_by_instrument(events: Events, points: np.ndarray) -> np.ndarray:
    """Which transformed, compensated points the instrument could record, the long way."""
    columns = zip(events.transforms, points.T, strict=True)
    observed = np.stack([scale.inverse(column) for scale, column in columns], axis=1) @ SPILL
    return ((observed >= 0) & (observed <= 1024)).all(axis=1)


@pytest.mark.parametrize(
    ("scale", "kind"),
    [
        (None, Polytope),
        (Linear(1 / 1024, 0.3), Polytope),
        (Asinh(50), Predicate),
        ([Linear(0.01), Logicle(1024)], Predicate),
    ],
)
def test_compensated_windows(spilled: Path, scale: Any, kind: type) -> None:
    events = read(spilled, transform=scale, compensate=True)
    raw = read(spilled)
    assert isinstance(events.region, kind)
    assert "compensated" in repr(events)
    assert np.allclose(events.original(), raw.values, rtol=1e-9, atol=1e-9)
    assert np.allclose(events.original(compensated=True) @ SPILL, raw.values, atol=1e-9)
    with jax.enable_x64(True):
        inside = jax.jit(jax.vmap(events.region))
        assert inside(jnp.asarray(events.values)).all()
        rng = np.random.default_rng(6)
        low, high = events.values.min(axis=0), events.values.max(axis=0)
        points = rng.uniform(low - (high - low) / 4, high + (high - low) / 4, size=(4000, 2))
        expected = seen_by_instrument(events, points)
        assert 0.1 < expected.mean() < 0.9
        assert np.array_equal(inside(jnp.asarray(points)), expected)
        assert [bool(events.region(point)) for point in points[:20]] == expected[:20].tolist()


def test_events_on_oblique_faces_are_inside(tmp_path: Path) -> None:
    """Going to the compensated scale and back rounds; the window is wider by that."""
    rng = np.random.default_rng(8)
    observed = np.clip(rng.normal(500, 600, size=(2000, 2)), 0, 1023)
    for scale in (Identity(), Asinh(3), Logicle(1023)):
        events = read(observed, NAMES, window=(0, 1023), compensate=SPILL, transform=scale)
        assert all(events.region(point) for point in events.values)
        assert events.at_limit["CD4"][0] == (observed[:, 0] == 0).sum()
        dropped = read(
            observed, NAMES, window=(0, 1023), compensate=SPILL, transform=scale, at_limits="drop"
        )
        assert len(dropped) == ((observed > 0) & (observed < 1023)).all(axis=1).sum()


def test_compensation_of_some_channels(tmp_path: Path) -> None:
    values = np.random.default_rng(9).uniform(100, 900, size=(50, 3))
    spill = np.array([[1.0, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.0, 1.0]])
    names = ["FL1-H", "FL2-H", "FL3-H"]
    text = "3,FL1-H,FL2-H,FL3-H," + ",".join(map(str, spill.ravel()))
    path = fcs(tmp_path / "a.fcs", values, names, p1r="1024", p2r="1024", p3r="1024", spill=text)
    values = read(path).values  # in single precision
    compensated = np.linalg.solve(spill.T, values.T).T
    whole = read(path, compensate=True)
    assert np.allclose(whole.values, compensated)
    with pytest.raises(DataError, match=r"FL1-H also sees 0.1 of FL3-H, .* Choose FL3-H too"):
        read(path, ["FL1-H", "FL2-H"], compensate=True)
    with pytest.raises(DataError, match=r"ties the channels .* choose the channels in read"):
        whole.select("FL3-H")
    alone = read(path, ["FL3-H"], compensate=True)  # nothing reaches it
    assert isinstance(alone.region, Box)
    free = read(path, ["FL1-H"], compensate=True, window=(None, None))
    assert np.allclose(free.values[:, 0], compensated[:, 0])
    with pytest.raises(DataError, match="also sees"):
        free.original()
    given = read(path, compensate=Compensation(["fl3-h", "FL1-H"], [[1, 0.1], [0, 1]]))
    assert np.allclose(given.values[:, 0], values[:, 0] - 0.1 * values[:, 2])
    assert np.allclose(given.values[:, 1], values[:, 1])


def test_no_spillover_keeps_the_box(tmp_path: Path) -> None:
    assert read(COUNTS, window=(0, 1023), compensate=np.eye(2)).region == Box([0, 0], [1023, 1023])


# Several files


def test_files_side_by_side(tmp_path: Path) -> None:
    first, second = (fcs(tmp_path / f"{day}.fcs", COUNTS + day) for day in (0, 1))
    both = Events.concatenate([read(first), read(second, ["FL2-H", "FL1-H"])])
    assert both.group.tolist() == [0] * 4 + [1] * 4
    assert both.group_names == ("0.fcs", "1.fcs")
    assert np.array_equal(both.values[4:], COUNTS + 1)
    assert both.region == read(first).region
    thrice = concatenate([both, both])
    assert thrice.group_names == both.group_names
    assert len(thrice) == 16


def test_windows_that_differ() -> None:
    first = read(COUNTS, NAMES, window=(0, 1023))
    second = read(COUNTS, NAMES, window=(0, 4095))
    both = concatenate([first, second, read(COUNTS, NAMES)], names=["a", "b", "c"])
    assert isinstance(both.region, ByGroup)
    point = np.array([2000.0, 2000.0])
    assert [bool(both.region(point, group)) for group in range(3)] == [False, True, True]
    assert both.select("CD8").region.windows[1] == Box([0], [4095])
    assert both.of_group("b").region == second.region
    assert both.of_group("b").at_limit == {"CD4": (0, 0), "CD8": (0, 0)}


@pytest.mark.parametrize(
    ("parts", "names", "says"),
    [
        ([], None, "empty list"),
        ([read(COUNTS, NAMES), read(COUNTS, ["CD4", "CD3"])], None, r"select\(\) the same"),
        ([read(COUNTS, NAMES), read(COUNTS, NAMES, transform=Asinh())], None, "transforms differ"),
        ([read(COUNTS, NAMES), read(COUNTS, NAMES, compensate=SPILL)], None, "compensated"),
        ([read(COUNTS, NAMES)] * 2, ["a"], "2 different ones"),
        ([read(COUNTS, NAMES), read(COUNTS, NAMES, group=list("abab"))], None, "1 of 2 parts"),
    ],
)
def test_what_does_not_fit_together(parts: list, names: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        concatenate(parts, names)


# AnnData

#: What pandas 3 says to an AnnData made for pandas 2.
OLD_OPTION = pytest.mark.filterwarnings("ignore:.*future.infer_string.*")


@pytest.fixture
def annotated() -> Any:
    anndata = pytest.importorskip("anndata", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame({"patient": list("abab")}, index=list("wxyz"))
    whole = anndata.AnnData(COUNTS, obs=obs, var=pandas.DataFrame(index=NAMES))
    whole.layers["twice"] = 2 * COUNTS
    whole.obsm["pca"] = COUNTS[:, :1] - 1
    return whole


@OLD_OPTION
def test_from_anndata(annotated: Any) -> None:
    events = read(annotated, ["cd8"], group="patient", window=(0, 1023))
    assert np.array_equal(events.values, COUNTS[:, 1:])
    assert events.group.tolist() == [0, 1, 0, 1]
    assert np.array_equal(from_anndata(annotated, layer="twice").values, 2 * COUNTS)
    assert from_anndata(annotated, obsm="pca").channels == ("pca 0",)
    with pytest.raises(DataError, match="no layer 'thrice'; there are: twice"):
        from_anndata(annotated, layer="thrice")
    with pytest.raises(DataError, match="not both"):
        from_anndata(annotated, layer="twice", obsm="pca")
    with pytest.raises(DataError, match="no such column in obs: 'site'; the columns are patient"):
        read(annotated, group="site")


@OLD_OPTION
def test_anndata_at_the_command_line(annotated: Any, tmp_path: Path) -> None:
    annotated.write_h5ad(tmp_path / "a.h5ad")
    table = read_table(tmp_path / "a.h5ad", ["1"], "patient", interface=COMMAND_LINE)
    assert (table.names, table.group_names, table.source) == (["CD8"], ("a", "b"), "a.h5ad")
    assert np.array_equal(table.values, COUNTS[:, 1:])


@OLD_OPTION
def test_sparse_anndata(annotated: Any) -> None:
    scipy_sparse = pytest.importorskip("scipy.sparse")
    annotated.X = scipy_sparse.csr_matrix(COUNTS)
    assert np.array_equal(read(annotated).values, COUNTS)


@OLD_OPTION
def test_to_anndata_and_its_file(annotated: Any, tmp_path: Path) -> None:
    events = read(annotated, window=(0, 1023), transform=Asinh(5), group="patient")
    populations = [
        {"name": "low", "mean": [0.0, 1.0], "covariance": np.eye(2), "weight": 0.25},
        {"name": "high", "mean": [2.0, 3.0], "covariance": 2 * np.eye(2), "weight": 0.75},
    ]
    made = to_anndata(
        events,
        labels=["low", "high", "low", "high"],
        certainty=[0.9, 0.8, 0.7, 0.6],
        populations=populations,
        posterior_density=np.arange(4.0),
    )
    made.write_h5ad(tmp_path / "made.h5ad")
    again = read(tmp_path / "made.h5ad", group="population")
    assert np.array_equal(again.values, events.values)
    assert again.group_names == ("high", "low")
    assert list(made.obs["population"].cat.categories) == ["high", "low"]
    assert list(made.obs["group"]) == list("abab")
    assert made.uns["populations"]["mean"].shape == (2, 2)
    assert made.uns["offcut"]["transform"].tolist() == ["Asinh(cofactor=5)"] * 2
    assert made.uns["offcut"]["window"].startswith("Box([0, 0]")
    assert np.allclose(made.layers["linear"], COUNTS)
    with pytest.raises(DataError, match="labels needs a label for each of the 4 events"):
        to_anndata(events, labels=["low"])


def test_damaged_h5ad(tmp_path: Path) -> None:
    pytest.importorskip("anndata", exc_type=ImportError)
    path = tmp_path / "bad.h5ad"
    path.write_bytes(b"neither this nor that")
    with pytest.raises(DataError, match="cannot be read as H5AD"):
        read(path)
