"""``offcut fit density`` and ``offcut fit intensity``: data, support or window, and the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from offcut.errors import SettingsError
from offcut.fitting.request import Request, Task, by_group
from offcut.fitting.source import read_boxed
from offcut.fitting.words import number_or_none
from offcut.regions import Box


def prepare_density(request: Request) -> Task:
    """A Gaussian process density; limits are its support."""
    from offcut.gp.density import GPDensity

    table, support = read_boxed(request)
    base = request.options["base"]
    if base == "uniform" and (support is None or not _is_bounded(support)):
        raise SettingsError(
            "--base uniform needs a bounded support: give both --lower and --upper, or take "
            "--base normal"
        )
    model = GPDensity(base=base, support=support, **_shared(request))
    notes = [
        "The density may live anywhere: no limits were given."
        if support is None
        else f"The density lives on {support!r} and is zero elsewhere."
    ]
    return Task(model, by_group(table, _points(table.values)), table, notes=notes)


def prepare_intensity(request: Request) -> Task:
    """A sigmoidal Gaussian Cox process; limits are the window in which events were recorded."""
    from offcut.gp.intensity import GPIntensity

    table, window = read_boxed(request)
    values, size = table.values, len(table.names)
    if size > 2:
        raise SettingsError(
            f"offcut fit intensity is for events on a line or in a plane, but there are {size} "
            f"columns ({', '.join(table.names)}); choose one or two with --columns"
        )
    notes = []
    low, high = np.full(size, -np.inf), np.full(size, np.inf)
    if window is not None:
        low, high = (np.broadcast_to(side, (size,)) for side in (window.lower, window.upper))
    # As GPIntensity does it, but once for all groups: they were watched through the same window.
    spread = np.ptp(values, axis=0)
    gap = np.where(spread > 0, spread, 1.0) / max(len(values) - 1, 1)
    guessed = ~(np.isfinite(low) & np.isfinite(high))
    low = np.where(np.isfinite(low), low, values.min(axis=0) - gap)
    high = np.where(np.isfinite(high), high, values.max(axis=0) + gap)
    window = Box(low, high)
    if guessed.any():
        notes.append(
            f"The window was **guessed** from the data, {window!r}: the first and the last event "
            "and a mean gap beyond them. Where recording began and ended is part of the data: give "
            "it with `--lower` and `--upper` if you know it."
        )
    else:
        notes.append(f"Events were recorded in {window!r}.")
    model = GPIntensity(window, **_shared(request))
    return Task(model, by_group(table, _points(values)), table, notes=notes)


def _shared(request: Request) -> dict[str, Any]:
    options = request.options
    return {
        "kernel": options["kernel"],
        "length_scale": number_or_none(options["length_scale"], "--length-scale"),
        "variance": number_or_none(options["variance"], "--variance"),
        "method": options["method"],
        "joint_moves": options.get("joint_moves", True),
    }


def _points(values: np.ndarray) -> np.ndarray:
    """Single numbers where there is one column."""
    return values[:, 0] if values.shape[1] == 1 else values


def _is_bounded(box: Box) -> bool:
    return bool(np.isfinite(box.lower).all() and np.isfinite(box.upper).all())
