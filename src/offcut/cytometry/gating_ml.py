"""Gating-ML 2.0: gates and the transforms they are drawn on, as XML that other programs read.

Every transform here is one of the standard's. What it writes as fasinh(x, T, M, A) has a top, and
is asinh(x / cofactor) with M = 1 / ln 10, T = cofactor sinh 1 and A = 0; its flin(x, T, A) is
(x + A) / (T + A).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np

from offcut.cytometry.events import Events
from offcut.cytometry.gate_shapes import EllipsoidGate, Gate, PolygonGate, check_names
from offcut.cytometry.transforms import (
    Asinh,
    Identity,
    Linear,
    Log,
    Logicle,
    Transform,
    as_transforms,
)
from offcut.errors import DataError
from offcut.files import write
from offcut.tables.spillover import Compensation

NAMESPACE = "http://www.isac-net.org/std/Gating-ML/v2.0/"


def write_gating_ml(
    path: str | os.PathLike[str],
    gates: Sequence[Gate],
    transforms: object = None,
    compensation: str | Compensation = "uncompensated",
) -> dict[str, str]:
    """Write gates to a Gating-ML 2.0 file, for FlowKit, Cytobank, flowCore and others.

    Parameters
    ----------
    path : path
    gates : sequence of EllipsoidGate or PolygonGate
    transforms : Events, Transform, dict by channel, or None
        The scale on which the gates are drawn; None for the instrument's.
    compensation : "uncompensated", "FCS" or Compensation
        Whether the gates are about compensated data, with the matrix of the FCS file or a given
        one.

    Returns
    -------
    dict from gate's name to its id in the file
        An id in XML has no spaces, plus signs and so on: they become underscores there. The name
        itself is written beside it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from offcut.cytometry import Asinh, PolygonGate, write_gating_ml
    >>> gate = PolygonGate("CD4+ cells", ["CD4", "CD8"], [[0, 0], [4, 0], [0, 4]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_gating_ml(Path(folder) / "gates.xml", [gate], Asinh(150))
    {'CD4+ cells': 'CD4__cells'}
    """
    channels = tuple(dict.fromkeys(name for gate in gates for name in gate.channels))
    if not channels:
        raise DataError("no gates to write; Gating-ML needs at least one")
    scales = dict(zip(channels, _scales(transforms, channels), strict=True))
    kinds = ("gating", "data-type", "transforms")
    places = {"data-type": "datatypes", "transforms": "transformations"}
    spaces = {f"xmlns:{kind}": NAMESPACE + places.get(kind, kind) for kind in kinds}
    root = ET.Element("gating:Gating-ML", spaces)
    written = list(dict.fromkeys(s for s in scales.values() if not isinstance(s, Identity)))
    names = {scale: f"scale_{number}" for number, scale in enumerate(written, start=1)}
    for scale, name in names.items():
        _add_transform(root, name, scale)
    if isinstance(compensation, Compensation):
        _add_matrix(root, compensation)
        compensation = "spillover"
    ids = _ids(check_names(gates), taken={*names.values(), "spillover"})
    for gate in gates:
        _add_gate(root, gate, ids[gate.name], scales, names, compensation)
    ET.indent(root)
    write(Path(path), ET.tostring(root, encoding="utf-8", xml_declaration=True))
    return ids


def _scales(transforms: object, channels: tuple[str, ...]) -> tuple[Transform, ...]:
    """The transform of each channel that some gate is about."""
    if isinstance(transforms, Events):
        transforms = dict(zip(transforms.channels, transforms.transforms, strict=True))
    if isinstance(transforms, Mapping):
        lacking = [name for name in channels if name not in transforms]
        if lacking:
            raise DataError(
                f"gates are about {', '.join(lacking)}, but transforms are given only for "
                f"{', '.join(transforms)}; say Identity() for the instrument's scale"
            )
        transforms = {name: transforms[name] for name in channels}
    return as_transforms(transforms, channels)


def _ids(names: list[str], taken: set[str]) -> dict[str, str]:
    """For each name what XML takes for an id, all different."""
    ids: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
        number, unique = 2, plain
        while unique in taken:
            unique, number = f"{plain}_{number}", number + 1
        taken.add(unique)
        ids[name] = unique
    return ids


def _add(parent: ET.Element, tag: str, **attributes: str | float) -> ET.Element:
    """An element in the namespace of its tag; attributes as ``space__name``."""
    texts = {
        key.replace("__", ":").replace("_", "-"): value if isinstance(value, str) else repr(value)
        for key, value in attributes.items()
    }
    return ET.SubElement(parent, tag, texts)


def _add_transform(root: ET.Element, name: str, scale: Transform) -> None:
    numbers: dict[str, float]
    if isinstance(scale, Logicle):
        kind = "logicle"
        numbers = {"T": scale.top, "W": scale.width, "M": scale.decades, "A": scale.negative}
    elif isinstance(scale, Asinh):
        kind = "fasinh"
        numbers = {"T": scale.cofactor * np.sinh(1.0), "M": 1 / np.log(10.0), "A": 0.0}
    elif isinstance(scale, Log):
        kind, numbers = "flog", {"T": scale.top, "M": scale.decades}
    elif isinstance(scale, Linear) and scale.offset < 1:
        kind = "flin"
        numbers = {"T": (1 - scale.offset) / scale.scale, "A": scale.offset / scale.scale}
    else:
        raise DataError(
            f"{scale!r} cannot be written in Gating-ML, which knows Identity, Asinh, Log, Logicle, "
            "and Linear with an offset below 1"
        )
    element = _add(root, "transforms:transformation", transforms__id=name)
    texts = {f"transforms__{key}": float(value) for key, value in numbers.items()}
    _add(element, f"transforms:{kind}", **texts)


def _add_matrix(root: ET.Element, compensation: Compensation) -> None:
    matrix = _add(root, "transforms:spectrumMatrix", transforms__id="spillover")
    for kind in ("fluorochromes", "detectors"):
        names = _add(matrix, f"transforms:{kind}")
        for name in compensation.detectors:
            _add(names, "data-type:fcs-dimension", data_type__name=name)
    for row in compensation.spillover.tolist():
        spectrum = _add(matrix, "transforms:spectrum")
        for value in row:
            _add(spectrum, "transforms:coefficient", transforms__value=value)


def _add_gate(
    root: ET.Element,
    gate: Gate,
    identifier: str,
    scales: dict[str, Transform],
    names: dict[Transform, str],
    compensation: str,
) -> None:
    element = _add(root, f"gating:{type(gate).__name__}", gating__id=identifier)
    _add(element, "data-type:custom_info").text = gate.name
    for channel in gate.channels:
        axis = _add(element, "gating:dimension", gating__compensation_ref=compensation)
        if scales[channel] in names:
            axis.set("gating:transformation-ref", names[scales[channel]])
        _add(axis, "data-type:fcs-dimension", data_type__name=channel)
    if isinstance(gate, PolygonGate):
        for vertex in gate.vertices.tolist():
            _add_numbers(element, "vertex", "coordinate", vertex)
    if isinstance(gate, EllipsoidGate):
        _add_numbers(element, "mean", "coordinate", gate.mean.tolist())
        matrix = _add(element, "gating:covarianceMatrix")
        for row in gate.covariance.tolist():
            _add_numbers(matrix, "row", "entry", row)
        _add(element, "gating:distanceSquare", data_type__value=float(gate.distance_square))


def _add_numbers(parent: ET.Element, tag: str, each: str, numbers: list[float]) -> None:
    element = _add(parent, f"gating:{tag}")
    for number in numbers:
        _add(element, f"gating:{each}", data_type__value=number)
