"""Shapes in the plane that matplotlib has a patch for."""

from __future__ import annotations

from functools import singledispatch
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from offcut.regions.ball import Ball, Shell
from offcut.regions.box import Box
from offcut.regions.polytope import Polytope, Simplex
from offcut.regions.region import Region

if TYPE_CHECKING:
    from matplotlib.patches import Patch

View = tuple[tuple[float, float], tuple[float, float]]


@singledispatch
def patch_of(region: Region, view: View) -> Patch | None:
    """The region in the plane as a patch, or None; infinite sides end out of sight."""
    return None


@patch_of.register(Box)
def _(region: Box, view: View) -> Patch | None:
    from matplotlib.patches import Rectangle

    (left, right), (bottom, top) = beyond(view)
    low = np.maximum(np.broadcast_to(region.lower, 2), [left, bottom])
    high = np.minimum(np.broadcast_to(region.upper, 2), [right, top])
    width, height = np.maximum(high - low, 0.0)
    return Rectangle(tuple(low), width, height)


@patch_of.register(Ball)
def _(region: Ball, view: View) -> Patch | None:
    from matplotlib.patches import Circle

    return Circle(tuple(np.broadcast_to(region.centre, 2)), region.radius.item())


@patch_of.register(Shell)
def _(region: Shell, view: View) -> Patch | None:
    from matplotlib.patches import Annulus

    inner, outer = region.inner.item(), region.outer.item()
    if inner == 0 or not np.isfinite(outer):
        return None
    return Annulus(tuple(np.broadcast_to(region.centre, 2)), outer, outer - inner)


@patch_of.register(Simplex)
def _(region: Simplex, view: View) -> Patch | None:
    from matplotlib.patches import Polygon

    total = region.total.item()
    return Polygon([(0, 0), (total, 0), (0, total)], closed=True)


@patch_of.register(Polytope)
def _(region: Polytope, view: View) -> Patch | None:
    from matplotlib.patches import Polygon

    frame = beyond(view)
    A = np.concatenate([region.A, [[-1, 0], [1, 0], [0, -1], [0, 1]]])
    b = np.concatenate([region.b, [-frame[0][0], frame[0][1], -frame[1][0], frame[1][1]]])
    found = corners(A, b)
    if len(found) < 3:
        return None
    away = found - found.mean(axis=0)
    return Polygon(found[np.argsort(np.arctan2(away[:, 1], away[:, 0]))], closed=True)


def corners(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two sides of A x <= b meet in the plane, and no other side cuts the point off."""
    sides = [k for k in range(len(b)) if np.isfinite(b[k]) and A[k].any()]
    found = []
    for i, j in combinations(sides, 2):
        pair = A[[i, j]]
        if abs(np.linalg.det(pair)) > 1e-12 * np.prod(np.linalg.norm(pair, axis=1)):
            point = np.linalg.solve(pair, b[[i, j]])
            slack = 1e-9 * (np.abs(b) + np.abs(A) @ np.abs(point))
            if (A @ point <= b + slack).all():
                found.append(point)
    return np.unique(np.array(found).reshape(-1, 2), axis=0)


def beyond(view: View) -> View:
    """A frame so far out that its sides are not seen."""
    (left, right), (bottom, top) = view
    width, height = right - left, top - bottom
    return (left - width, right + width), (bottom - height, top + height)
