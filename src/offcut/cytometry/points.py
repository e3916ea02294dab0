"""What the kinds of gates share: points in any form, channels, and checked numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.cytometry.columns import as_column, place_of
from offcut.cytometry.events import Events
from offcut.errors import DataError


def coordinates(points: Any, channels: Sequence[str]) -> np.ndarray:
    """The columns of points that a gate is about."""
    if isinstance(points, Events):
        problem = "the gate is about a channel that the events have not"
        return points.values[:, [place_of(name, [points.channels], problem) for name in channels]]
    if isinstance(points, dict) or hasattr(points, "columns"):
        names = [str(name) for name in points]
        problem = "the gate is about a column that the points have not"
        keys = [list(points)[place_of(name, [names], problem)] for name in channels]
        return np.stack([as_column(points[key], str(key)) for key in keys], axis=1)
    array = np.asarray(points, dtype=float)
    if array.ndim != 2 or array.shape[1] != len(channels):
        raise DataError(
            f"points need a column for each of {', '.join(channels)}, got shape {array.shape}; or "
            "give Events, a DataFrame or a dict, from which columns are taken by name"
        )
    return array


def checked_channels(gate: Any, least: int) -> int:
    """Channels as a tuple; how many."""
    channels = tuple(map(str, gate.channels))
    object.__setattr__(gate, "channels", channels)
    if isinstance(gate.channels, str) or len(set(channels)) < max(least, len(channels)):
        raise DataError(
            f"gate {gate.name!r} needs {least} different channels or more, got {channels}"
        )
    return len(channels)


def checked_numbers(gate: Any, name: str, shape: tuple[int, ...]) -> None:
    """An attribute as a finite array of the given shape."""
    array = np.array(getattr(gate, name), dtype=float)
    if array.shape != shape or not np.isfinite(array).all():
        raise DataError(
            f"{name} of gate {gate.name!r} must be finite numbers of shape {shape}, got shape "
            f"{array.shape}"
        )
    object.__setattr__(gate, name, array)


def dimensions(
    flowkit: Any, channels: Sequence[str], ids: dict[str, str] | None, compensation: str
) -> list[Any]:
    """The channels as FlowKit's dimensions."""
    ids = ids or {}
    return [flowkit.Dimension(name, compensation, ids.get(name)) for name in channels]
