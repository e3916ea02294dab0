"""A region of numbers as disjoint intervals, exact up to their ends.

Only ends are compared and none is computed from others, so unions, intersections and complements
have exactly the ends that their parts have.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from offcut.errors import ModelError
from offcut.regions.ball import Ball, Shell
from offcut.regions.box import Box
from offcut.regions.polytope import Polytope, Simplex
from offcut.regions.region import Region, is_traced
from offcut.regions.sets import Complement, Intersection, Union

Intervals = list[tuple[float, float]]


def intervals(region: Region) -> Intervals | None:
    """The set of numbers in a region, as sorted and disjoint intervals.

    Whether an end belongs to its interval is left open, and single points are left out: neither
    has a length.

    Parameters
    ----------
    region : Region
        About numbers, or vectors with one coordinate.

    Returns
    -------
    list of (low, high), or None
        None where it cannot be known: a predicate, traced limits, two dimensions or more.

    Examples
    --------
    >>> from offcut.regions import Box, intervals
    >>> intervals(Box(0, 5) & ~Box(1, 2) | Box(lower=4))
    [(0.0, 1.0), (2.0, inf)]
    >>> intervals(Box(0, 1) & (lambda y: y > 0.5)) is None
    True
    """
    if not isinstance(region, Region):
        raise ModelError(f"intervals needs a region, got {type(region).__name__}")
    return pieces(region) if region.dimension in (None, 1) else None


@singledispatch
def pieces(region: Region) -> Intervals | None:
    """The intervals of one kind of region; a new shape registers its own."""
    return None


@pieces.register
def _(region: Box) -> Intervals | None:
    if is_traced(region.lower, region.upper):
        return None
    return merged([(region.lower.item(), region.upper.item())])


@pieces.register
def _(region: Ball) -> Intervals | None:
    if is_traced(region.centre, region.radius):
        return None
    centre, radius = region.centre.item(), region.radius.item()
    return merged([(centre - radius, centre + radius)])


@pieces.register
def _(region: Shell) -> Intervals | None:
    if is_traced(region.centre, region.inner, region.outer):
        return None
    centre, inner, outer = region.centre.item(), region.inner.item(), region.outer.item()
    return merged([(centre - outer, centre - inner), (centre + inner, centre + outer)])


@pieces.register
def _(region: Simplex) -> Intervals | None:
    return None if is_traced(region.total) else [(0.0, region.total.item())]


@pieces.register
def _(region: Polytope) -> Intervals | None:
    if is_traced(region.A, region.b):
        return None
    slope, limit = region.A[:, 0], region.b
    if (limit[slope == 0] < 0).any():
        return []
    low = np.max(limit[slope < 0] / slope[slope < 0], initial=-np.inf)
    high = np.min(limit[slope > 0] / slope[slope > 0], initial=np.inf)
    return merged([(float(low), float(high))])


@pieces.register
def _(region: Union) -> Intervals | None:
    parts = [pieces(part) for part in region.parts]
    known = [part for part in parts if part is not None]
    return merged([pair for part in known for pair in part]) if len(known) == len(parts) else None


@pieces.register
def _(region: Intersection) -> Intervals | None:
    outside = pieces(Union([Complement(part) for part in region.parts]))  # De Morgan
    return None if outside is None else gaps(outside)


@pieces.register
def _(region: Complement) -> Intervals | None:
    inside = pieces(region.part)
    return None if inside is None else gaps(inside)


def merged(pairs: Intervals) -> Intervals:
    """Sorted, those that meet or overlap as one, those without length left out."""
    result: Intervals = []
    for low, high in sorted(pair for pair in pairs if pair[0] < pair[1]):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def gaps(pairs: Intervals) -> Intervals:
    """What disjoint, sorted intervals leave of the line."""
    lows = [-np.inf, *(high for _, high in pairs)]
    highs = [*(low for low, _ in pairs), np.inf]
    return [(float(low), float(high)) for low, high in zip(lows, highs, strict=True) if low < high]
