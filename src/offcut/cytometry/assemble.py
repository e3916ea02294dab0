"""From numbers on the instrument's scale to Events: checks, faces, compensation, transform.

Everything that is about the instrument (what it could record, which events sit on a face) is
decided on its own scale, before anything is rounded by a transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from offcut.cytometry.columns import as_groups, place_of, told_rows
from offcut.cytometry.compensation import Compensation
from offcut.cytometry.events import Events, on_faces
from offcut.cytometry.faces import ask_about_piles
from offcut.cytometry.recorded import Recorded, check_finite, check_inside
from offcut.cytometry.scale import Transform
from offcut.cytometry.transforms import Identity
from offcut.cytometry.window import (
    instrument_window,
    is_bounded,
    transformed_limits,
    transformed_window,
)
from offcut.errors import DataError, SettingsError
from offcut.regions import Box


def assemble(
    recorded: Recorded, *, transform: Any, window: Any, group: Any, at_limits: str, compensate: Any
) -> Events:
    """Checked, compensated and transformed; the parameters are those of ``read``."""
    if at_limits not in ("keep", "drop"):
        raise SettingsError(f"at_limits must be 'keep' or 'drop', got {at_limits!r}")
    channels = tuple(recorded.names[place] for place in recorded.places)
    transforms = as_transforms(transform, channels)
    box = instrument_window(window, channels, recorded.limits)
    compensation = _compensation(compensate, recorded, channels)
    spillover = None
    if compensation is not None and is_bounded(box):
        spillover = compensation.among(channels)
    check_finite(recorded, () if compensation is None else compensation.detectors)
    observed = recorded.values[:, recorded.places]
    check_inside(observed, box, channels, "" if window is not None else recorded.limits_note)
    labels = recorded.labels if group is None or isinstance(group, str) else group
    codes, group_names = (None, ()) if labels is None else as_groups(labels, len(observed))
    keep = np.ones(len(observed), dtype=bool)
    if at_limits == "drop":
        keep = ((observed != box.lower) & (observed != box.upper)).all(axis=1)
        box = Box(box.lower, box.upper, "neither")
        if not keep.any():
            raise DataError("every event sits on a face of the window: nothing is left after drop")
    observed = observed[keep]
    faces = on_faces(observed, box, channels)
    ask_about_piles(observed, box, channels)
    linear = observed if compensation is None else _compensated(recorded, compensation)[keep]
    values = _transformed(linear, transforms, channels)
    region = transformed_window(box, transforms, spillover)
    if isinstance(region, Box):
        values = _within(values, observed, box, transforms)
    return Events(
        values,
        channels,
        region,
        transforms[0] if len(set(transforms)) == 1 else transforms,
        None if codes is None else codes[keep],
        group_names,
        recorded.source,
        faces if is_bounded(box) else {},
        int((~keep).sum()),
        compensation,
    )


def as_transforms(transform: Any, channels: tuple[str, ...]) -> tuple[Transform, ...]:
    """One for each channel, from None, one, a sequence, or a dict by channel."""
    if transform is None:
        transform = Identity()
    if isinstance(transform, Transform):
        return (transform,) * len(channels)
    if isinstance(transform, Mapping):
        found: list[Any] = [Identity()] * len(channels)
        for name, one in transform.items():
            found[place_of(name, [channels], "a transform is for a channel not chosen")] = one
    else:
        found = list(transform) if isinstance(transform, list | tuple) else [transform]
    if len(found) != len(channels) or not all(isinstance(one, Transform) for one in found):
        raise DataError(
            f"transform must be one of Identity, Linear, Asinh, Log, Logicle for all "
            f"{len(channels)} channels, a list with one for each, or a dict by channel; got "
            f"{transform!r}"
        )
    return tuple(found)


def _compensation(
    compensate: Any, recorded: Recorded, channels: tuple[str, ...]
) -> Compensation | None:
    """What ``compensate`` asks for: the source's own, a matrix for the chosen channels, or none."""
    if compensate is None or compensate is False:
        return None
    if compensate is True:
        if recorded.spillover is None:
            raise DataError(
                f"{recorded.source or 'the source'} has no spillover matrix; give one with "
                f"compensate=matrix, a row and a column for each of {', '.join(channels)}"
            )
        return recorded.spillover
    if isinstance(compensate, Compensation):
        problem = "the spillover matrix has a channel that the data have not"
        places = [place_of(name, [recorded.names], problem) for name in compensate.detectors]
        return Compensation([recorded.names[place] for place in places], compensate.spillover)
    return Compensation(channels, np.asarray(compensate, dtype=float))


def _compensated(recorded: Recorded, compensation: Compensation) -> np.ndarray:
    """The chosen columns, after compensation of those that it is about."""
    values = recorded.values.copy()
    about = [recorded.names.index(name) for name in compensation.detectors]
    values[:, about] = compensation.compensated(values[:, about])
    return values[:, recorded.places]


def _transformed(
    values: np.ndarray, transforms: tuple[Transform, ...], channels: tuple[str, ...]
) -> np.ndarray:
    columns = zip(transforms, values.T, strict=True)
    moved = np.stack([transform(column) for transform, column in columns], axis=1)
    for place in np.flatnonzero(~np.isfinite(moved).all(axis=0)):
        rows = np.flatnonzero(~np.isfinite(moved[:, place]))
        raise DataError(
            f"{transforms[place]!r} has no value for {len(rows):,} of {len(moved):,} events in "
            f"{channels[place]} ({told_rows(rows)}; the first is {values[rows[0], place]:g}); "
            "take Asinh or Logicle, which know zero and negative values, or drop events on the "
            "lower face with at_limits='drop'"
        )
    return moved


def _within(
    values: np.ndarray, observed: np.ndarray, box: Box, transforms: tuple[Transform, ...]
) -> np.ndarray:
    """Transformed values with rounding taken off: on a face exactly where they were on it."""
    lower, upper = transformed_limits(box, transforms)
    inner = np.clip(values, np.nextafter(lower, np.inf), np.nextafter(upper, -np.inf))
    return np.where(observed == box.lower, lower, np.where(observed == box.upper, upper, inner))
