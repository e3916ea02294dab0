"""``offcut fit mixture``: populations in a window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from offcut.cytometry.assemble import assemble
from offcut.cytometry.events import Events
from offcut.cytometry.transforms import Identity
from offcut.cytometry.window import instrument_window
from offcut.errors import SettingsError
from offcut.fitting.reading import Table
from offcut.fitting.region_text import parse_region
from offcut.fitting.request import Request, Task
from offcut.fitting.rows import check_groups, combined, meet, settle_outside
from offcut.fitting.source import read_rows
from offcut.fitting.words import parse_limits, parse_transform
from offcut.regions import Box, Region


def prepare(request: Request) -> Task:
    """Read, check, compensate and transform; the model in the window that comes of it."""
    from offcut.mixtures.model import TruncatedMixture

    options = request.options
    transform = parse_transform(options["transform"])
    table = read_rows(request)
    box, region = _windows(request, table, transform)
    known = table.recorded.limits is not None and request.lower is None and request.upper is None
    note = table.recorded.limits_note if known else ""
    table = settle_outside(
        table, combined(box, region, len(table.names)), request.outside, note=note
    )
    if options["at_limits"] == "drop" and box is not None:
        table, box = _without_faces(table, box)
    check_groups(table)
    events = _events(table, box, transform, options["compensate"])
    window = events.region if region is None else combined(box, region, len(table.names))
    model = TruncatedMixture(
        window,
        components=options["components"],
        prior=options["prior"],
        hierarchical=table.group is not None,
    )
    return Task(
        model, {"": events.values}, table, table.group, _notes(table, events, window, known), events
    )


def _windows(request: Request, table: Table, transform: Any) -> tuple[Box | None, Region | None]:
    """The box of all limits, and a region that is no box."""
    size = len(table.names)
    known = instrument_window(None, table.names, table.recorded.limits)
    limits: list[Any] = []
    for text, option, own in (
        (request.lower, "--lower", known.lower),
        (request.upper, "--upper", known.upper),
    ):
        limits.append(own if text is None else parse_limits(text, option, size))
    box = Box(*limits)
    region = None if request.region is None else parse_region(request.region)
    if region is not None:
        combined(None, region, size)  # says so where it is about other coordinates
    if type(region) is Box:
        box, region = meet(box, region, size), None
    if region is not None and (transform != Identity() or request.options["compensate"]):
        raise SettingsError(
            f"--region {request.region} is no box, and its faces would bend under --transform or "
            "--compensate; leave these out (transform the columns beforehand), or give a box with "
            "--lower and --upper"
        )
    bounded = np.isfinite(box.lower).any() or np.isfinite(box.upper).any()
    return (box if bounded else None), region


def _without_faces(table: Table, box: Box) -> tuple[Table, Box]:
    """Without rows that sit exactly on a limit, in the open box."""
    values = table.values
    rows = np.flatnonzero(((values == box.lower) | (values == box.upper)).any(axis=1))
    if len(rows):
        table = table.without(rows, "sit exactly on a limit of the window")
    return table, Box(box.lower, box.upper, "neither")


def _events(table: Table, box: Box | None, transform: Any, compensate: bool) -> Events:
    """On the scale of the transform. The faces were settled before, so that rows stay known."""
    size = len(table.names)
    everything = Box([None] * size, [None] * size)
    return assemble(
        replace(table.recorded, labels=None),
        transform=transform,
        window=everything if box is None else box,
        group=None,
        at_limits="keep",
        compensate=compensate,
    )


def _notes(table: Table, events: Events, window: Region | None, known: bool) -> list[str]:
    notes = []
    if window is not None:
        notes.append(f"The window, on the scale of the columns above: {window!r}.")
    if known:
        notes.append("It is the range that the FCS file states.")
    elif window is None:
        notes.append(
            "No window was given (`--lower`, `--upper`, `--region`), so nothing is taken for lost: "
            "this is an ordinary mixture."
        )
    if events.transforms[0] != Identity():
        notes.append(
            f"Columns were transformed by `{events.transforms[0]!r}`, and the window with them."
        )
    if events.compensation is not None:
        notes.append("Spillover was undone with the matrix of the file.")
    return notes
