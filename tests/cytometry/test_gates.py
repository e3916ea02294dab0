"""Gates from populations, and what FlowKit makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from offcut.cytometry import (
    Asinh,
    Compensation,
    EllipsoidGate,
    Identity,
    Linear,
    Log,
    Logicle,
    PolygonGate,
    distance_square,
    gates,
    membership,
    overlap,
    read,
    write_gating_ml,
)
from offcut.errors import DataError, SettingsError, TrustWarning
from offcut.mixtures.populations import Population

CHANNELS = ["CD4", "CD8", "CD3"]
MEAN = np.array([3.0, 2.0, 4.0])
COVARIANCE = np.array([[1.0, 0.6, 0.2], [0.6, 0.8, 0.1], [0.2, 0.1, 0.5]])
POPULATIONS = [
    {"name": "CD4+ helper", "channels": CHANNELS, "mean": MEAN, "covariance": COVARIANCE},
    {"name": "2nd", "channels": CHANNELS, "mean": MEAN - 2, "covariance": COVARIANCE / 2},
]


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    """Of a normal population and all around it, on the transformed scale."""
    rng = np.random.default_rng(0)
    inside = rng.multivariate_normal(MEAN, COVARIANCE, size=20_000)
    return np.concatenate([inside, rng.uniform(-1, 7, size=(20_000, 3))])


@pytest.mark.parametrize("probability", [0.5, 0.95])
@pytest.mark.parametrize(
    ("kind", "channels"),
    [("ellipsoid", None), ("ellipsoid", ["CD3", "CD4"]), ("polygon", ["CD8", "CD3"])],
)
def test_a_gate_holds_its_probability(
    points: np.ndarray, kind: str, channels: Any, probability: float
) -> None:
    """20,000 draws: five standard errors, an alarm in a million."""
    gate = gates(POPULATIONS, kind, probability, channels)[0]
    share = gate.contains(dict(zip(CHANNELS, points[:20_000].T, strict=True))).mean()
    assert abs(share - probability) < 5 * np.sqrt(probability * (1 - probability) / 20_000) + 1e-3


def test_an_ellipse_as_polygon(points: np.ndarray) -> None:
    ellipsoid = gates(POPULATIONS, channels=CHANNELS[:2])[0]
    polygon = gates(POPULATIONS, "polygon", channels=CHANNELS[:2])[0]
    x, y = polygon.vertices.T
    area = abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
    determinant = np.linalg.det(COVARIANCE[:2, :2])
    assert area == pytest.approx(np.pi * distance_square(0.95, 2) * np.sqrt(determinant))
    same = ellipsoid.contains(points[:, :2]) == polygon.contains(points[:, :2])
    assert same.mean() > 0.998


def test_points_in_any_form(points: np.ndarray) -> None:
    pandas = pytest.importorskip("pandas")
    gate = gates(POPULATIONS, channels=["CD3", "CD4"])[0]
    expected = gate.contains(points[:, [2, 0]])
    assert 0.2 < expected.mean() < 0.8
    events = read(points, CHANNELS)
    frame = pandas.DataFrame(points, columns=CHANNELS)
    for form in (events, frame, dict(zip(CHANNELS, points.T, strict=True))):
        assert np.array_equal(gate.contains(form), expected)
    table = membership(gates(POPULATIONS), events)
    assert list(table) == ["CD4+ helper", "2nd"]
    assert all(column.dtype == bool for column in table.values())
    assert len(pandas.DataFrame(table)) == len(points)


def test_tables_of_populations() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {key: [row[key] for row in POPULATIONS] for key in POPULATIONS[0]}
    for form in (POPULATIONS, columns, pandas.DataFrame(columns)):
        assert [gate.name for gate in gates(form)] == ["CD4+ helper", "2nd"]
    del columns["channels"]
    assert gates(columns, channels=CHANNELS)[1].channels == tuple(CHANNELS)


def test_hull(points: np.ndarray) -> None:
    gate = PolygonGate.hull("all", CHANNELS[:2], read(points[:500], CHANNELS))
    inner = points[:500, :2].mean(axis=0) + 0.999 * (
        points[:500, :2] - points[:500, :2].mean(axis=0)
    )
    assert gate.contains(inner).all()
    assert not gate.contains([[50.0, 50.0]]).any()
    with pytest.raises(DataError, match="enclose no area"):
        PolygonGate.hull("line", CHANNELS[:2], [[0, 0], [1, 1], [2, 2]])


def test_a_polygon_that_is_not_convex() -> None:
    gate = PolygonGate("L", ["x", "y"], [[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]])
    assert gate.contains([[0.5, 1.5], [1.5, 0.5], [1.5, 1.5]]).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: EllipsoidGate("g", ["x"], [0], [[1]], 1), "2 different channels or more"),
        (lambda: EllipsoidGate("g", ["x", "x"], [0, 0], np.eye(2), 1), "2 different channels"),
        (lambda: EllipsoidGate("g", ["x", "y"], [0], np.eye(2), 1), r"mean .* shape \(2,\)"),
        (lambda: EllipsoidGate("g", ["x", "y"], [0, np.nan], np.eye(2), 1), "finite"),
        (lambda: EllipsoidGate("g", ["x", "y"], [0, 0], -np.eye(2), 1), "positive definite"),
        (lambda: EllipsoidGate("g", ["x", "y"], [0, 0], [[1, 2], [0, 1]], 1), "positive definite"),
        (lambda: EllipsoidGate("g", ["x", "y"], [0, 0], np.eye(2), 0), "must be positive"),
        (lambda: PolygonGate("g", ["x", "y"], [[0, 0], [1, 1]]), "shape"),
        (lambda: PolygonGate("g", ["x", "y", "z"], np.zeros((3, 2))), "two channels"),
        (lambda: distance_square(1.0, 2), "between 0 and 1"),
        (lambda: gates(POPULATIONS, "circle"), "kind must be"),
        (lambda: gates(POPULATIONS, "polygon"), "a polygon is about two channels"),
        (lambda: gates(POPULATIONS, channels=["CD4", "CD99"]), "no such channel: 'CD99'"),
        (lambda: gates([{"name": "a", "mean": [0, 0]}]), "populations have no covariance"),
        (lambda: gates([{"name": "a"}, {"mean": [0, 0]}]), "give every row the same keys"),
        (lambda: gates("all"), "must be a table"),
        (
            lambda: gates([{"name": "a", "mean": [0, 0], "covariance": np.eye(2)}]),
            "2 coordinates; name them all",
        ),
        (lambda: gates(POPULATIONS)[0].contains(np.zeros((4, 2))), "a column for each of CD4"),
        (lambda: gates(POPULATIONS)[0].contains(read(np.zeros((1, 1)), ["CD4"])), "'CD8'"),
        (lambda: membership(gates(POPULATIONS) * 2, np.zeros((1, 3))), "the same name"),
    ],
)
def test_bad_gates(make: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        make()


# Gating-ML

#: What pandas 3 says to a FlowKit made for pandas 2.
OLD_KEYWORD = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")

SCALES = [
    {"CD4": Asinh(150), "CD8": Asinh(5), "CD3": Identity()},
    {"CD4": Logicle(262144, 0.5, 4.5, 0.2), "CD8": Log(1e5, 5), "CD3": Linear(0.001, -0.5)},
]


def on_scale(points: np.ndarray, scales: dict) -> tuple[np.ndarray, list]:
    """Points on the instrument's scale, and populations around the transformed ones."""
    rng = np.random.default_rng(2)
    raw = np.exp(rng.uniform(1, 10, size=(3000, 3)))
    moved = np.stack([scales[name](raw[:, i]) for i, name in enumerate(CHANNELS)], axis=1)
    covariance = np.cov(moved.T)
    return raw, [
        {
            "name": "CD4+ helper",
            "channels": CHANNELS,
            "mean": moved.mean(0),
            "covariance": covariance,
        },
        {
            "name": "CD4- helper",
            "channels": CHANNELS,
            "mean": moved[0],
            "covariance": covariance / 3,
        },
        {"name": "2nd", "channels": CHANNELS, "mean": moved[1], "covariance": covariance},
    ]


def all_kinds(populations: list) -> list:
    polygons = gates(populations, "polygon", 0.6, ["CD3", "CD8"])
    polygons = [PolygonGate(f"{gate.name}?", gate.channels, gate.vertices) for gate in polygons]
    return [*gates(populations, probability=0.7), *polygons]


@OLD_KEYWORD
@pytest.mark.parametrize("scales", SCALES)
def test_flowkit_reads_back_the_same_membership(
    points: np.ndarray, scales: dict, tmp_path: Path
) -> None:
    flowkit = pytest.importorskip("flowkit", exc_type=ImportError)
    raw, populations = on_scale(points, scales)
    drawn = all_kinds(populations)
    events = read(raw, CHANNELS, transform=scales)
    ids = write_gating_ml(tmp_path / "gates.xml", drawn, events)
    assert len(set(ids.values())) == len(drawn)
    strategy = flowkit.parse_gating_xml(str(tmp_path / "gates.xml"))
    sample = flowkit.Sample(raw, sample_id="sample", channel_labels=CHANNELS)
    result = strategy.gate_sample(sample)
    for gate in drawn:
        ours = gate.contains(events)
        assert 0.02 < ours.mean() < 0.98
        assert np.array_equal(ours, result.get_gate_membership(ids[gate.name]))


@OLD_KEYWORD
def test_flowkit_with_compensation(points: np.ndarray, tmp_path: Path) -> None:
    flowkit = pytest.importorskip("flowkit", exc_type=ImportError)
    spill = np.array([[1.0, 0.2, 0.0], [0.1, 1.0, 0.0], [0.0, 0.3, 1.0]])
    raw, populations = on_scale(points, SCALES[0])
    events = read(raw @ spill, CHANNELS, transform=SCALES[0], compensate=spill)
    drawn = gates(populations)
    ids = write_gating_ml(tmp_path / "gates.xml", drawn, events, Compensation(CHANNELS, spill))
    strategy = flowkit.parse_gating_xml(str(tmp_path / "gates.xml"))
    sample = flowkit.Sample(raw @ spill, sample_id="sample", channel_labels=CHANNELS)
    result = strategy.gate_sample(sample)
    for gate in drawn:
        assert np.array_equal(gate.contains(events), result.get_gate_membership(ids[gate.name]))


@OLD_KEYWORD
def test_flowkit_objects(points: np.ndarray, tmp_path: Path) -> None:
    """By way of the file, as the words for the old spelling say."""
    flowkit = pytest.importorskip("flowkit", exc_type=ImportError)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(points, columns=CHANNELS)
    drawn = all_kinds(POPULATIONS)
    ids = write_gating_ml(tmp_path / "gates.xml", drawn, {n: SCALES[0][n] for n in CHANNELS}, "FCS")
    strategy = flowkit.parse_gating_xml(str(tmp_path / "gates.xml"))
    for gate in drawn:
        theirs = strategy.get_gate(ids[gate.name])
        assert isinstance(theirs, getattr(flowkit.gates, type(gate).__name__))
        assert [axis.id for axis in theirs.dimensions] == list(gate.channels)
        assert {axis.id: axis.transformation_ref for axis in theirs.dimensions}["CD3"] is None
        assert theirs.dimensions[0].compensation_ref == "FCS"
        assert np.array_equal(theirs.apply(frame), gate.contains(frame))
        with pytest.raises(SettingsError, match=r"flowkit.parse_gating_xml.*get_gate\(ids"):
            gate.to_flowkit({"CD3": "scale_1"}, "FCS")


def test_the_file_itself(tmp_path: Path) -> None:
    """Without FlowKit: well-formed, with every number to the last bit and names beside ids."""
    path = tmp_path / "gates.xml"
    ids = write_gating_ml(path, gates(POPULATIONS), Asinh(150))
    assert ids == {"CD4+ helper": "CD4__helper", "2nd": "_2nd"}
    root = ET.parse(path).getroot()
    space = "{http://www.isac-net.org/std/Gating-ML/v2.0/"
    values = [float(e.get(f"{space}datatypes}}value")) for e in root.iter(f"{space}gating}}entry")]
    assert values[:9] == COVARIANCE.ravel().tolist()
    assert [e.text for e in root.iter(f"{space}datatypes}}custom_info")] == ["CD4+ helper", "2nd"]


@pytest.mark.parametrize(
    ("drawn", "scales", "says"),
    [
        ([], None, "no gates to write"),
        (gates(POPULATIONS), {"CD4": Asinh()}, "gates are about CD8, CD3, but"),
        (gates(POPULATIONS), Linear(1.0, 2.0), "offset below 1"),
        (gates(POPULATIONS) * 2, None, "the same name"),
    ],
)
def test_what_gating_ml_cannot_say(tmp_path: Path, drawn: list, scales: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        write_gating_ml(tmp_path / "gates.xml", drawn, scales)


def populations_of_a_mixture(distance: float, channels: Any = None) -> list[Population]:
    """Two round populations, the first with three quarters, and one that nothing stands for."""
    rows = [(0.0, 0.75), (distance, 0.25)]
    sure = {"lost": 0.1, "lost_interval": (0.0, 0.2), "certainty": 0.9, "channels": channels}
    made = [
        Population(
            f"population {n}", 100, share, (0.2, 0.8), np.array([at, 0.0]), np.eye(2), **sure
        )
        for n, (at, share) in enumerate(rows, start=1)
    ]
    nothing = np.full(2, np.nan)
    return [*made, Population("population 3", 2, 0.0, (0.0, 0.0), nothing, np.eye(2), **sure)]


def test_populations_of_a_mixture_become_gates() -> None:
    """As ``model.populations`` returns them; one that no component stands for has no gate."""
    made = gates(populations_of_a_mixture(20.0))
    assert [gate.name for gate in made] == ["population 1", "population 2"]
    assert made[0].channels == ("channel 0", "channel 1")
    assert made[1].contains([[20.0, 1.0], [0.0, 0.0]]).tolist() == [True, False]
    assert gates(populations_of_a_mixture(20.0), channels=["a", "b"])[0].channels == ("a", "b")
    named = populations_of_a_mixture(20.0, ("CD4", "CD8"))
    assert gates(named, "polygon")[0].channels == ("CD4", "CD8")
    with pytest.raises(DataError, match=r"model.populations\(labels\), got int"):
        gates([3])


def test_gates_that_share_events_say_so(recwarn: pytest.WarningsRecorder) -> None:
    """Against the normal distribution: almost all of two populations at one place is in both."""
    gates(populations_of_a_mixture(20.0))
    assert not [one for one in recwarn if issubclass(one.category, TrustWarning)]
    with pytest.warns(TrustWarning, match=r"2 gates hold 1(89|90|91)% of normal populations"):
        made = gates(populations_of_a_mixture(0.0))
    points = np.random.default_rng(1).normal(size=(20_000, 2))
    found = overlap(made, points)
    assert found.held == pytest.approx(1.9, abs=0.01)
    assert found.several == pytest.approx(0.95, abs=0.005)
    assert found.none == pytest.approx(0.05, abs=0.005)
    assert found.pairs == {("population 1", "population 2"): found.several}
    with pytest.warns(TrustWarning, match=r"95% lie in more than one \(95% in both 'population 1'"):
        membership(made, points)
    with pytest.warns(TrustWarning, match="hold 1"):  # where they lie side by side, too
        gates(populations_of_a_mixture(1.5))
