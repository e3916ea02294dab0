"""The picture of a region: what to show, and where.

Numbers are a line with a shaded band for each interval. In the plane a region is a patch where
matplotlib has one of its shape, else the outline on a grid. What is shown is the part of line or
plane with the region's finite limits, and some room.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import combinations
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.errors import ModelError, SettingsError
from offcut.plots.style import BLUE, axes_or_new, picture
from offcut.regions.ball import Ball, Shell
from offcut.regions.box import Box
from offcut.regions.line import intervals
from offcut.regions.polytope import Polytope, Simplex
from offcut.regions.region import Edge, Intervals, Region, is_traced
from offcut.regions.sets import ByGroup, Complement, Intersection, Union

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

Limits = tuple[float, float]
View = tuple[Limits, Limits]


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


#: Grid points where intervals are not known: more than a picture has pixels.
FINE_LINE = 4001
#: How opaque the inside is; data may lie behind it.
ALPHA = 0.22


def draw_line(region: Region, ax: Axes, view: Limits, colour: str, label: str | None) -> None:
    """A shaded band for each interval, and a line where it ends within the view."""
    from matplotlib.patches import Rectangle

    pairs = intervals(region)
    if pairs is None:
        pairs = _runs(region, view)
    beyond = view[1] - view[0]  # what is infinite ends out of sight, also after a little zooming
    for low, high in pairs:
        start, end = max(low, view[0] - beyond), min(high, view[1] + beyond)
        if start >= view[1] or end <= view[0]:
            continue
        band = Rectangle(
            (start, 0),
            end - start,
            1,
            transform=ax.get_xaxis_transform(),
            color=colour,
            alpha=ALPHA,
            linewidth=0,
            label=label,
        )
        ax.add_artist(band)  # not add_patch: limits are not to follow it
        label = None  # once in a legend
        for edge in (low, high):
            if view[0] <= edge <= view[1]:
                ax.axvline(edge, color=colour, linewidth=1.4)


def _runs(region: Region, view: Limits) -> Intervals:
    """Intervals of the view that lie inside, to within a step of a fine grid."""
    grid = np.linspace(*view, FINE_LINE)
    points = grid if region.dimension is None else grid[:, None]
    with jax.enable_x64(True):
        inside = np.asarray(jax.jit(jax.vmap(region))(jnp.asarray(points)))
    # A change happens between two grid points; at the view's ends it goes on.
    changes = np.flatnonzero(np.diff(inside))
    ends = list(0.5 * (grid[changes] + grid[changes + 1]))
    ends = ([-np.inf] if inside[0] else []) + ends + ([np.inf] if inside[-1] else [])
    return list(zip(map(float, ends[::2]), map(float, ends[1::2]), strict=True))


#: Grid points along an axis: more than a picture has pixels, so that steps are not seen.
FINE, COARSE = 801, 121


def draw_area(region: Region, ax: Axes, view: View, colour: str, label: str | None) -> None:
    """The inside in a pale colour, and its outline."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    style: dict[str, Any] = {
        "facecolor": to_rgba(colour, ALPHA),
        "edgecolor": colour,
        "linewidth": 1.4,
    }
    patch = patch_of(region, view)
    if patch is not None:
        patch.set(label=label, **style)
        ax.add_artist(patch)
        return
    x, y = (np.linspace(*limits, FINE) for limits in view)
    inside = _grid(region, x, y).astype(float)
    if label is not None:  # contours have no place in a legend
        ax.add_artist(Rectangle((np.nan, np.nan), 0, 0, label=label, **style))
    if inside.min() == inside.max():  # all or nothing: there is no outline
        if inside.all():
            ax.axvspan(*view[0], facecolor=style["facecolor"], linewidth=0)
        return
    ax.contourf(x, y, inside, levels=[0.5, 1.5], colors=[style["facecolor"]])
    ax.contour(x, y, inside, levels=[0.5], colors=[colour], linewidths=1.4)


def closer(region: Region, view: View) -> View:
    """Where the inside is, if that is a part of the view: ``a & ~b`` may leave most of b empty."""
    if patch_of(region, view) is not None:
        return view
    x, y = (np.linspace(*limits, COARSE) for limits in view)
    inside = _grid(region, x, y)
    if not inside.any():
        return view
    return _part(x, np.any(inside, axis=0)), _part(y, np.any(inside, axis=1))


def _part(grid: np.ndarray, seen: np.ndarray) -> Limits:
    """What is seen with room around it, but no more than the grid has."""
    low, high = around([float(grid[seen][0]), float(grid[seen][-1])])
    return max(low, float(grid[0])), min(high, float(grid[-1]))


def _grid(region: Region, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether each point of a product grid lies inside, (y, x); row by row, to spare memory."""

    def row(y: jax.Array, x: jax.Array) -> jax.Array:
        return jax.vmap(lambda one: region(jnp.stack([one, y])))(x)

    with jax.enable_x64(True):
        xs, ys = jnp.asarray(x), jnp.asarray(y)
        return np.asarray(jax.jit(lambda xs, ys: jax.lax.map(lambda y: row(y, xs), ys))(xs, ys))


@picture
def draw(
    region: Region,
    ax: Axes | None,
    *,
    dimension: int | None,
    xlim: Limits | None,
    ylim: Limits | None,
    color: str | None,
    label: str | None,
) -> Axes:
    """See ``Region.draw``."""
    dimension = _drawn_dimension(region, dimension, ylim)
    used = ax is not None and ax.has_data()
    shown = (ax.get_xlim(), ax.get_ylim()) if ax is not None and used else (None, None)
    limits = (xlim or shown[0], ylim or shown[1])
    view = view_of(region, dimension, limits)
    if dimension == 2 and limits == (None, None):
        view = closer(region, (view[0], view[1]))
    fresh = ax is None
    _, ax = axes_or_new(ax, (6.4, 1.3) if dimension == 1 else (4.6, 4.2))
    if dimension == 1:
        draw_line(region, ax, view[0], color or BLUE, label)
    else:
        draw_area(region, ax, (view[0], view[1]), color or BLUE, label)
    # auto=None: a caller's axes go on adapting to what else is drawn, if they did before.
    # Limits that were asked for stay.
    ax.set_xlim(limits[0] or view[0], auto=False if xlim else None)
    if dimension == 2:
        ax.set_ylim(limits[1] or view[1], auto=False if ylim else None)
    if fresh:
        _dress(ax, dimension, view)
    return ax


def _drawn_dimension(region: Region, asked: int | None, ylim: Limits | None) -> int:
    """1 or 2, from what was asked, what the region is about, or what else is known."""
    if isinstance(region, ByGroup):
        raise ModelError(
            "groups have windows of their own: draw one of them, for example "
            f"region.windows[{next(iter(region.windows))}].draw()"
        )
    if asked is not None and region.dimension is not None and asked != region.dimension:
        raise SettingsError(f"dimension={asked}, but the region has {region.dimension}: {region!r}")
    dimension = asked or region.dimension
    if dimension is None and ylim is not None:
        dimension = 2
    if dimension is None and intervals(region) is not None:
        dimension = 1
    if dimension is None:
        raise SettingsError(f"is this a line or an area? say dimension=1 or 2 to draw {region!r}")
    if dimension > 2:
        raise ModelError(
            f"a region of {dimension} dimensions cannot be drawn; draw a slice of it, for example "
            "Predicate(lambda y: region([y[0], y[1], 0.0])).draw(dimension=2, xlim=..., ylim=...)"
        )
    return dimension


def _dress(ax: Axes, dimension: int, view: tuple[Limits, ...]) -> None:
    """Axes of our own: no second axis on a line; round balls where the two are comparable."""
    if dimension == 1:
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        return
    ax.set_xlabel("coordinate 0")
    ax.set_ylabel("coordinate 1")
    width, height = (high - low for low, high in view)
    if max(width, height) < 3 * min(width, height):
        ax.set_aspect("equal")
