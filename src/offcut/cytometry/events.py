"""Events: what a cytometer recorded, on the scale that a mixture sees, with its window.

Several files can be put side by side, each a group (``concatenate``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Int

from offcut.cytometry.transforms import Identity, Transform
from offcut.errors import DataError
from offcut.regions import Box, ByGroup, Region
from offcut.tables.columns import Wanted, chosen
from offcut.tables.spillover import Compensation
from offcut.tables.table import Values
from offcut.tables.windows import sided

#: Events on the lower and on the upper face of a channel's window.
Faces = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """Transformed events, a row each, and the window that they came through.

    Made by ``cytometry.read``; ``len(events)`` is their number.

    Attributes
    ----------
    values : array of shape (events, channels)
        On the transformed scale, in float64.
    channels : tuple of str
    region : Region or None
        The window on the transformed scale: a ``Box``; a ``Polytope`` or ``Predicate`` where the
        data are compensated; a ``ByGroup`` where files with different windows were put together.
        None where everything is in.
    transform : Transform or tuple of them
        A shared one, or one for each channel; ``transforms`` is always a tuple.
    group : integer array or None
        The group of each event.
    group_names : tuple of str
    source : str
        Where they come from, such as a file's name.
    at_limit : dict from channel to (lower, upper)
        How many events sit exactly on each face of the window.
    dropped : int
        How many were removed because they did.
    compensation : Compensation or None
        What was undone before the transform.

    Examples
    --------
    >>> from offcut.cytometry import Asinh, read
    >>> events = read([[0.0, 5.0], [300.0, 10.0]], ["CD4", "CD8"], transform=Asinh(5))
    >>> events
    Events(2 events of 2 channels: CD4, CD8; no window; transform Asinh(cofactor=5))
    >>> events.original().round(9)
    array([[  0.,   5.],
           [300.,  10.]])
    >>> events.select(["CD8"]).values.shape
    (2, 1)
    """

    values: Values
    channels: tuple[str, ...]
    region: Region | None = None
    transform: Transform | tuple[Transform, ...] = field(default_factory=Identity)
    group: Int[np.ndarray, " rows"] | None = None
    group_names: tuple[str, ...] = ()
    source: str = ""
    at_limit: Faces = field(default_factory=dict)
    dropped: int = 0
    compensation: Compensation | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.values)
        if len(shape) != 2 or shape[1] != len(self.channels):
            raise DataError(
                f"values must have a row for each event and a column for each of the "
                f"{len(self.channels)} channels, got shape {shape}"
            )
        if self.group is not None and np.shape(self.group) != shape[:1]:
            raise DataError(f"group has shape {np.shape(self.group)} for {shape[0]:,} events")
        if isinstance(self.transform, tuple) and len(self.transform) != len(self.channels):
            raise DataError(
                f"{len(self.transform)} transforms for {len(self.channels)} channels: give one for "
                "each, or one for all"
            )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The transform of each channel."""
        if isinstance(self.transform, tuple):
            return self.transform
        return (self.transform,) * len(self.channels)

    def original(self, compensated: bool = False) -> Values:
        """Values on the instrument's scale.

        Parameters
        ----------
        compensated : bool
            Whether to undo only the transform and leave the compensation, if there was any.

        Returns
        -------
        array of shape (events, channels)
        """
        columns = zip(self.transforms, self.values.T, strict=True)
        values = np.stack([transform.inverse(column) for transform, column in columns], axis=1)
        if compensated or self.compensation is None:
            return values
        return values @ self.compensation.among(self.channels)

    def select(self, channels: Wanted) -> Events:
        """The same events in fewer channels, or in another order.

        The windows of channels that are left out are forgotten.

        Parameters
        ----------
        channels : str, int, or a sequence of them

        Returns
        -------
        Events
        """
        places, names = chosen(channels, [self.channels])
        transform = self.transform
        if isinstance(transform, tuple):
            transform = tuple(transform[place] for place in places)
        return replace(
            self,
            values=self.values[:, places],
            channels=tuple(names),
            region=_narrowed(self.region, places),
            transform=transform,
            at_limit={name: self.at_limit[name] for name in names if name in self.at_limit},
        )

    def of_group(self, name: str) -> Events:
        """The events of one group.

        Parameters
        ----------
        name : str

        Returns
        -------
        Events
            Without groups. ``at_limit`` is counted anew, where the window is a box.
        """
        if self.group is None or name not in self.group_names:
            known = ", ".join(self.group_names) or "none"
            raise DataError(f"there is no group {name!r}; groups are: {known}")
        code = self.group_names.index(name)
        values = self.values[self.group == code]
        region = self.region.windows[code] if isinstance(self.region, ByGroup) else self.region
        return replace(
            self,
            values=values,
            region=region,
            group=None,
            group_names=(),
            source=f"{self.source} ({name})" if self.source else name,
            at_limit=on_faces(values, region, self.channels) if isinstance(region, Box) else {},
        )

    @staticmethod
    def concatenate(parts: Sequence[Events], names: Sequence[str] | None = None) -> Events:
        """Several files as one, each a group; see ``cytometry.concatenate``."""
        return concatenate(parts, names)

    def __repr__(self) -> str:
        shared = len(set(self.transforms)) == 1
        parts = [
            f"{len(self):,} events of {len(self.channels)} channels: {', '.join(self.channels)}",
            "no window" if self.region is None else f"window {self.region!r}",
            f"transform {self.transforms[0]!r}" if shared else f"transforms {self.transforms!r}",
        ]
        if self.compensation is not None:
            parts.append("compensated")
        if self.group is not None:
            sizes = np.bincount(self.group, minlength=len(self.group_names))
            pairs = zip(self.group_names, sizes, strict=True)
            parts.append("groups " + ", ".join(f"{name} ({size:,})" for name, size in pairs))
        piled = sum(map(sum, self.at_limit.values()))
        if piled:
            parts.append(f"{piled:,} values on faces of the window")
        if self.dropped:
            parts.append(f"{self.dropped:,} dropped")
        if self.source:
            parts.append(f"from {self.source}")
        return f"Events({'; '.join(parts)})"


def on_faces(values: Values, box: Box, channels: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many values are exactly at the lower and the upper limit of each channel."""
    lower = (values == box.lower).sum(axis=0).tolist()
    upper = (values == box.upper).sum(axis=0).tolist()
    return dict(zip(channels, zip(lower, upper, strict=True), strict=True))


def _narrowed(region: Region | None, places: Sequence[int]) -> Region | None:
    """The window of some of the channels."""
    if region is None:
        return None
    if isinstance(region, ByGroup):
        windows = {key: _narrowed(window, places) for key, window in region.windows.items()}
        return ByGroup(windows, group=region.group)
    if not isinstance(region, Box):
        raise DataError(
            f"{region!r} ties the channels of compensated data together, so there is no window for "
            "some of them alone; choose the channels in read(...)"
        )
    sides = sided(region.closed_lower[places], region.closed_upper[places])
    return Box(region.lower[places], region.upper[places], sides)


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
    codes = []
    for own, part in zip(labelled, parts, strict=True):
        numbers = np.array([group_names.index(name) for name in own], dtype=np.int64)
        codes.append(numbers[np.zeros(len(part), dtype=int) if part.group is None else part.group])
    lower, upper = (
        [sum(part.at_limit.get(name, (0, 0))[side] for part in parts) for name in first.channels]
        for side in (0, 1)
    )
    return replace(
        first,
        values=np.concatenate([part.values for part in parts]),
        region=_window(parts, labelled, group_names),
        group=np.concatenate(codes),
        group_names=group_names,
        source=", ".join(dict.fromkeys(part.source for part in parts if part.source)),
        at_limit=dict(zip(first.channels, zip(lower, upper, strict=True), strict=True)),
        dropped=sum(part.dropped for part in parts),
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
    spilled = [
        one.compensation and (one.compensation.detectors, one.compensation.spillover.tolist())
        for one in (first, other)
    ]
    if spilled[0] != spilled[1]:
        raise DataError(
            "one of the parts is compensated and another is not, or with another spillover "
            "matrix: give all of them the same, read(..., compensate=matrix)"
        )
    return other


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
