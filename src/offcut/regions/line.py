"""A region of numbers as disjoint intervals, exact up to their ends.

Only ends are compared and none is computed from others, so unions, intersections and complements
have exactly the ends that their parts have.
"""

from __future__ import annotations

import numpy as np

from offcut.errors import ModelError
from offcut.regions.region import Intervals, Region


def intervals(region: object) -> Intervals | None:
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
    return region.pieces() if region.dimension in (None, 1) else None


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
