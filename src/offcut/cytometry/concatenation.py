"""Several files side by side, each a group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offcut.cytometry.events import Events
from offcut.errors import DataError
from offcut.regions import Box, ByGroup, Region
from offcut.tables.spillover import Compensation


def concatenate(parts: Sequence[Events], names: Sequence[str] | None = None) -> Events:
    """Several files as one, each a group; parts that have groups keep them, by name.

    Where the windows differ, the result's region is a ``ByGroup`` that takes the group as its
    covariate.

    Parameters
    ----------
    parts : sequence of Events
        With the same channels (in any order), transforms and compensation.
    names : sequence of str, optional
        One for each part; by default their sources.

    Returns
    -------
    Events

    Examples
    --------
    >>> from offcut.cytometry import concatenate, read
    >>> first = read([[1.0], [2.0]], ["CD4"], window=(0, 10))
    >>> second = read([[3.0]], ["CD4"], window=(0, 12))
    >>> both = concatenate([first, second], names=["before", "after"])
    >>> both.group, both.group_names
    (array([0, 0, 1]), ('before', 'after'))
    >>> both.region
    ByGroup([Box([0], [10]), Box([0], [12])])
    """
    parts = list(parts)
    if not parts:
        raise DataError("concatenate needs at least one Events, got an empty list")
    first = parts[0]
    parts = [first, *(_like(first, part) for part in parts[1:])]
    labelled = _labelled(parts, names)
    group_names = tuple(dict.fromkeys(name for part in labelled for name in part))
    codes = [
        np.array([group_names.index(name) for name in own], dtype=np.int64)[_groups(part)]
        for own, part in zip(labelled, parts, strict=True)
    ]
    faces = {
        channel: (
            sum(part.at_limit.get(channel, (0, 0))[0] for part in parts),
            sum(part.at_limit.get(channel, (0, 0))[1] for part in parts),
        )
        for channel in first.channels
    }
    return Events(
        np.concatenate([part.values for part in parts]),
        first.channels,
        _window(parts, labelled, group_names),
        first.transform,
        np.concatenate(codes),
        group_names,
        ", ".join(dict.fromkeys(part.source for part in parts if part.source)),
        faces,
        sum(part.dropped for part in parts),
        first.compensation,
    )


def _like(first: Events, other: Events) -> Events:
    """The other in the first one's order of channels, or an error that says how they differ."""
    if set(other.channels) != set(first.channels):
        raise DataError(
            f"{first.source or 'one part'} has the channels {', '.join(first.channels)}, "
            f"{other.source or 'another'} {', '.join(other.channels)}; select() the same from each"
        )
    if other.channels != first.channels:
        other = other.select(first.channels)
    if other.transforms != first.transforms:
        raise DataError(
            f"transforms differ: {first.transforms} and {other.transforms}; read all files with "
            "the same one"
        )
    if not _same_compensation(first.compensation, other.compensation):
        raise DataError(
            "one of the parts is compensated and another is not, or with another spillover "
            "matrix: give all of them the same, read(..., compensate=matrix)"
        )
    return other


def _same_compensation(one: Compensation | None, other: Compensation | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.detectors == other.detectors and np.array_equal(one.spillover, other.spillover)


def _labelled(parts: Sequence[Events], names: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Names of each part's groups; a part without groups is one."""
    with_groups = sum(part.group is not None for part in parts)
    if with_groups and (with_groups < len(parts) or names is not None):
        raise DataError(
            f"{with_groups} of {len(parts)} parts have groups of their own; then all of them must, "
            "and names= cannot rename them"
        )
    if with_groups:
        return [part.group_names for part in parts]
    if names is None:
        names = [part.source or f"part {number}" for number, part in enumerate(parts)]
    names = [str(name) for name in names]
    if len(names) != len(parts) or len(set(names)) < len(names):
        raise DataError(
            f"names must be {len(parts)} different ones, one for each part; got {names}. Give them "
            "with names=[...]"
        )
    return [(name,) for name in names]


def _groups(part: Events) -> np.ndarray:
    return np.zeros(len(part), dtype=np.int64) if part.group is None else part.group


def _window(
    parts: Sequence[Events], labelled: Sequence[tuple[str, ...]], group_names: tuple[str, ...]
) -> Region | None:
    """The window that all share, or one for each group."""
    size = len(parts[0].channels)
    found: dict[int, Region | None] = {}
    for own, part in zip(labelled, parts, strict=True):
        for number, name in enumerate(own):
            region = part.region
            if isinstance(region, ByGroup):
                region = region.windows[number]
            code = group_names.index(name)
            if found.setdefault(code, region) != region:
                raise DataError(f"the group {name!r} has different windows in different parts")
    regions = [found[code] for code in range(len(group_names))]
    if all(region == regions[0] for region in regions):
        return regions[0]
    everything = Box([None] * size, [None] * size)
    return ByGroup([everything if region is None else region for region in regions])
