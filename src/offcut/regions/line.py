"""A region of numbers in a picture: a shaded band for each interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from offcut.regions.intervals import Intervals, intervals
from offcut.regions.region import Region
from offcut.regions.view import Limits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Grid points where intervals are not known: more than a picture has pixels.
FINE = 4001
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
    grid = np.linspace(*view, FINE)
    points = grid if region.dimension is None else grid[:, None]
    with jax.enable_x64(True):
        inside = np.asarray(jax.jit(jax.vmap(region))(jnp.asarray(points)))
    # A change happens between two grid points; at the view's ends it goes on.
    changes = np.flatnonzero(np.diff(inside))
    ends = list(0.5 * (grid[changes] + grid[changes + 1]))
    ends = ([-np.inf] if inside[0] else []) + ends + ([np.inf] if inside[-1] else [])
    return list(zip(map(float, ends[::2]), map(float, ends[1::2]), strict=True))
