"""FCS files, read with flowio; what the instrument could record is their window.

The range of a channel, $PnR = R, means different things (FCS 3.1):

- Integers lie in 0 ... R - 1, and that is the window.
- Floating-point values are said to lie in 0 ... R, but the standard lets them lie outside: there R
  is a hint for axes, and values below zero are common after the instrument subtracts a background.
  The window is 0 ... R unless told otherwise, and an event outside is an error, not a guess.

Stored numbers become linear values as in flowio: 10^(f1 x / R) f2 where $PnE = f1,f2 says that an
amplifier was logarithmic, then divided by the gain $PnG; time is multiplied by $TIMESTEP instead.
Limits go through the same function as the events, so that they stay comparable to the last bit.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from offcut.errors import DataError
from offcut.files import first_line
from offcut.numerics.extras import needed
from offcut.tables.columns import place_of
from offcut.tables.spillover import Compensation
from offcut.tables.table import Contents, Origin, Values, reading

MAGIC = re.compile(rb"FCS[23]\.\d")
FLOAT_NOTE = (
    "Floating-point FCS data may lie outside $PnR, which is only a hint there (values below zero, "
    "for example, where a background was subtracted). "
)


@runtime_checkable
class FlowData(Protocol):
    """What is used of a file that flowio has parsed; channels are numbered from 1."""

    text: Mapping[str, str]
    channels: Mapping[int, Mapping[str, Any]]
    events: Sequence[float] | None
    event_count: int
    channel_count: int
    data_type: str
    pnn_labels: Sequence[str]
    pns_labels: Sequence[str]
    time_index: int | None


def is_fcs(path: Path) -> bool:
    """Whether the file begins like one."""
    with path.open("rb") as file:
        return MAGIC.fullmatch(file.read(6)) is not None


def read_fcs(path: Path) -> Contents:
    """All channels of the file on the linear scale, with their limits and the spillover."""
    flow = _parsed(path)
    try:
        return _contents(flow, path)
    except DataError:
        raise
    except Exception as error:  # keywords may hold anything
        said = first_line(error)
        raise DataError(
            f"the text of {path}, which says what its numbers mean, is damaged ({said}); export "
            "the file again"
        ) from error


def _contents(flow: FlowData, path: Path) -> Contents:
    stored = _stored(flow, path)
    names, markers = ([name.strip() for name in n] for n in (flow.pnn_labels, flow.pns_labels))
    whole_numbers = flow.data_type.upper() == "I"
    ranges = np.array([float(flow.channels[n + 1]["pnr"]) for n in range(stored.shape[1])])
    wrong = np.flatnonzero(~((ranges > 0) & np.isfinite(ranges)))
    if len(wrong):
        raise DataError(
            f"{path} says $P{wrong[0] + 1}R = {ranges[wrong[0]]:g}, but the range of a channel is "
            "a positive number; export it again"
        )
    limits = np.stack([np.zeros_like(ranges), ranges - 1 if whole_numbers else ranges])
    values = _linear(stored, flow)
    return Contents(
        Origin(path.name, path),
        len(values),
        names,
        lambda places: [values[:, place] for place in places],
        markers=markers,
        aside={} if flow.time_index is None else {flow.time_index: "counts the time"},
        groups={},
        limits=_linear(limits, flow),
        limits_note="" if whole_numbers else FLOAT_NOTE,
        spillover=_spillover(flow, [names, markers], path),
    )


def _parsed(path: Path) -> FlowData:
    """flowio's view of the file; whatever it stumbles over, as one kind of error."""
    flowio = needed("flowio", f"reading {path.name}")
    if not is_fcs(path):
        raise DataError(
            f"{path} is no FCS file: it does not begin with FCS2.0, FCS3.0 or FCS3.1. Is it "
            "damaged, or of another kind?"
        )
    advice = (
        f": it is damaged, cut short (it has {path.stat().st_size:,} bytes), or of a kind that "
        "flowio does not know; export it again"
    )
    # Opened here, because flowio leaves a file open where it fails.
    with reading(path, "FCS", advice), path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # such as an unknown byte order
        warnings.filterwarnings("ignore", ".*reported incorrect data offset")  # counted below
        try:
            return flowio.FlowData(file, ignore_offset_error=True)
        except flowio.exceptions.MultipleDataSetsError as error:
            raise DataError(
                f"{path} holds more than one data set ($NEXTDATA is not 0), and it is not known "
                "which is meant; get them with flowio.read_multiple_data_sets and read one as an "
                "array: read(data_set.as_array(), data_set.pnn_labels, window=...)"
            ) from error


def _stored(flow: FlowData, path: Path) -> Values:
    """Numbers as they are in the file, a row for each event, as many as it says."""
    mode = flow.text.get("mode", "L").upper()
    mixed = [key for key in flow.text if re.fullmatch(r"p\d+datatype", key)]
    if mode != "L" or mixed or flow.events is None:
        kind = (
            f"$MODE {mode}" if mode != "L" else "several data types" if mixed else "odd bit widths"
        )
        raise DataError(
            f"{path} is stored with {kind}, which is not supported; export it as floats"
        )
    rows, columns = flow.event_count, flow.channel_count
    if rows == 0:
        raise DataError(f"{path} has no events ($TOT is 0): nothing to learn from")
    if len(flow.pnn_labels) != columns:
        raise DataError(f"{path} says $PAR = {columns}, but names {len(flow.pnn_labels)} channels")
    if len(flow.events) != rows * columns:
        raise DataError(
            f"{path} says {rows:,} events of {columns} channels, {rows * columns:,} numbers, but "
            f"holds {len(flow.events):,}: it is damaged or cut short; export it again"
        )
    return np.array(flow.events, dtype=np.float64).reshape(rows, columns)


def _linear(stored: Values, flow: FlowData) -> Values:
    """Stored numbers on the linear scale."""
    values = stored.copy()
    for number, channel in flow.channels.items():
        decades, at_zero = channel["pne"]
        column = values[:, number - 1]
        if number - 1 == flow.time_index:
            step = flow.text.get("timestep", "").strip()
            column *= float(step) if step else 1.0
        if decades > 0:
            column[:] = 10 ** (decades * column / channel["pnr"]) * at_zero
        if channel["png"] not in (0.0, 1.0):
            column /= channel["png"]
    return values


def _spillover(flow: FlowData, labels: list[list[str]], path: Path) -> Compensation | None:
    """$SPILLOVER or $SPILL: the number of channels, their names, and the matrix by rows."""
    text = flow.text.get("spillover") or flow.text.get("spill")
    if not text or not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        count = int(parts[0])
        matrix = np.array([float(part) for part in parts[1 + count :]]).reshape(count, count)
    except ValueError as error:
        raise DataError(
            f"the spillover matrix of {path} cannot be read: {text[:60]!r}...; expected the number "
            "of channels, their names and a square matrix, with commas"
        ) from error
    problem = f"the spillover matrix of {path.name} names a channel that the file has not"
    places = [place_of(name, labels, problem) for name in parts[1 : 1 + count]]
    return Compensation([labels[0][place] for place in places], matrix)
