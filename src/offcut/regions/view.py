"""Which part of the line or plane shows a region: that of its finite limits, with some room."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from offcut.errors import SettingsError
from offcut.regions.arrays import is_traced
from offcut.regions.ball import Ball, Shell
from offcut.regions.outlines import corners
from offcut.regions.polytope import Polytope
from offcut.regions.region import Edge, Region
from offcut.regions.sets import Complement, Intersection, Union

Limits = tuple[float, float]

#: Room on each side, as a share of what is between the limits.
ROOM = 0.25


def view_of(
    region: Region, dimension: int, given: tuple[Limits | None, Limits | None]
) -> tuple[Limits, ...]:
    """Limits for each axis, from low to high: those given, else our own."""
    marks = landmarks(region)
    views: list[Limits | None] = []
    for axis in range(dimension):
        limits = given[axis]
        if limits is not None:
            low, high = sorted(float(limit) for limit in limits)  # an axis may be upside down
            if not (np.isfinite([low, high]).all() and low < high):
                raise SettingsError(f"limits must be finite and different, got {(low, high)}")
            views.append((low, high))
        else:
            values = [value for coordinate, value in marks if coordinate in (None, axis)]
            views.append(around(values) if values else None)
    for axis, view in enumerate(views):
        if view is None:
            other = next((known for known in views if known is not None), None)
            if other is None:
                raise SettingsError(
                    f"{region!r} has no finite limits to show; give xlim=(low, high)"
                    + (" and ylim=(low, high)" if dimension == 2 else "")
                )
            half = 0.5 * (other[1] - other[0])  # nothing happens along this axis
            views[axis] = (-half, half)
    return tuple(view for view in views if view is not None)


def around(values: list[float]) -> Limits:
    """All of the values with room on both sides."""
    low, high = min(values), max(values)
    room = ROOM * (high - low) or max(1.0, 0.1 * abs(low))
    return low - room, high + room


@singledispatch
def landmarks(region: Region) -> list[Edge]:
    """Values that a picture should show, by coordinate: edges, and how far a round region goes."""
    return region.edges()


@landmarks.register
def _(region: Ball) -> list[Edge]:
    return _extent(region, region.radius)


@landmarks.register
def _(region: Shell) -> list[Edge]:
    return _extent(region, region.outer if np.isfinite(region.outer) else region.inner)


def _extent(region: Ball | Shell, radius: np.ndarray) -> list[Edge]:
    if region.dimension is None:
        return [(None, float(region.centre + sign * radius)) for sign in (-1, 1)]
    return [
        (coordinate, float(centre + sign * radius))
        for coordinate, centre in enumerate(region.centre)
        for sign in (-1, 1)
    ]


@landmarks.register
def _(region: Polytope) -> list[Edge]:
    if region.dimension != 2 or is_traced(region.A, region.b):
        return region.edges()
    shown = corners(region.A, region.b)
    if not len(shown):  # parallel sides: where each is nearest to the origin
        sides = np.isfinite(region.b) & region.A.any(axis=1)
        A, b = region.A[sides], region.b[sides]
        shown = A * (b / (A**2).sum(axis=1))[:, None]
    return [(axis, float(value)) for point in shown for axis, value in enumerate(point)]


@landmarks.register(Intersection)
@landmarks.register(Union)
def _(region: Intersection | Union) -> list[Edge]:
    return [mark for part in region.parts for mark in landmarks(part)]


@landmarks.register
def _(region: Complement) -> list[Edge]:
    return landmarks(region.part)
