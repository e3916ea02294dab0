"""A region of the plane in a picture: a patch where there is one, else the outline on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.regions.line import ALPHA
from offcut.regions.outlines import View, patch_of
from offcut.regions.region import Region
from offcut.regions.view import Limits, around

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    return _part(x, inside.any(axis=0)), _part(y, inside.any(axis=1))


def _part(grid: np.ndarray, seen: Any) -> Limits:
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
