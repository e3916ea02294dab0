"""The picture of a region: what to show, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offcut.errors import ModelError, SettingsError
from offcut.plots.style import BLUE, STYLE, pyplot
from offcut.regions.area import closer, draw_area
from offcut.regions.by_group import ByGroup
from offcut.regions.intervals import intervals
from offcut.regions.line import draw_line
from offcut.regions.region import Region
from offcut.regions.view import Limits, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    plt = pyplot()
    dimension = _drawn_dimension(region, dimension, ylim)
    colour = color or BLUE
    with plt.rc_context(STYLE):
        used = ax is not None and ax.has_data()
        shown = (ax.get_xlim(), ax.get_ylim()) if ax is not None and used else (None, None)
        limits = (xlim or shown[0], ylim or shown[1])
        view = view_of(region, dimension, limits)
        if dimension == 2 and limits == (None, None):
            view = closer(region, (view[0], view[1]))
        fresh = ax is None
        if ax is None:
            size = (6.4, 1.3) if dimension == 1 else (4.6, 4.2)
            _, ax = plt.subplots(figsize=size, layout="constrained")
        if dimension == 1:
            draw_line(region, ax, view[0], colour, label)
        else:
            draw_area(region, ax, (view[0], view[1]), colour, label)
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
