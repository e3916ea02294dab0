"""The sphere seen from outside, its far side veiled: the paper's picture of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.errors import SettingsError
from offcut.langevin.directions import Cap, circle
from offcut.plots.circles import CREDIBLE, POINTS, PREDICTIVE, ROUND, caption, radii
from offcut.plots.style import CHAIN_COLOURS, GREY, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_sphere(
    plt: Any,
    ax: Any,
    x: np.ndarray,
    modes: list[Cap],
    ahead: list[Cap] | None,
    names: Sequence[str],
    axes_names: Sequence[str],
    view: tuple[float, float] | None,
) -> Figure:
    """Far side, veil, near side, in this order; matplotlib's own order would mix them."""
    if ax is None:
        figure = plt.figure(figsize=(6.6, 4.7))
        ax = figure.add_axes((0.2, 0.0, 0.6, 0.88), projection="3d")
    elif getattr(ax, "name", "") != "3d":
        raise SettingsError(
            'the sphere needs 3-D axes, plt.subplots(subplot_kw={"projection": "3d"}); for flat '
            'ones take projection="equal-area"'
        )
    elevation, azimuth = _between(modes) if view is None else view
    towards, right, up = _screen(elevation, azimuth)
    ax.computed_zorder = False
    ax.set_proj_type("ortho")
    ax.view_init(elevation, azimuth)
    ax.set_box_aspect((1, 1, 1), zoom=1.55)
    ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
    ax.set_axis_off()
    _globe(ax, towards, right, up)
    _coordinates(ax, towards, axes_names)
    for mode in modes:
        j, colour = mode.column, CHAIN_COLOURS[mode.column]
        for near, order in ((False, 1), (True, 6)):
            shown = x[(x[:, :, j] @ towards >= 0) == near, :, j]
            ax.scatter(
                *shown.T,
                color=colour,
                depthshade=False,
                zorder=order,
                gid=f"observed-{j}",
                **POINTS,
            )
        ax.plot(*np.stack([0 * mode.centre, mode.centre]).T, color=colour, linewidth=2.4, zorder=5)
        _on_globe(
            ax, circle(mode, ROUND), towards, 8, color=colour, gid=f"credible-{j}", **CREDIBLE
        )
        if ahead is not None:
            round_new = circle(ahead[j], ROUND)
            line = {**PREDICTIVE, "color": colour, "gid": f"predictive-{j}"}
            _on_globe(ax, round_new, towards, 7, **line)
    texts = ["\n".join([names[mode.column], *radii(mode, ahead)]) for mode in modes]
    _beside(ax, modes, right, up, texts)
    ax.set_title(caption(modes[0].probability, ahead), loc="center", color=GREY, fontsize=9, pad=20)
    return ax.figure


def _between(modes: list[Cap]) -> tuple[float, float]:
    """Elevation and azimuth of a view in which all modal directions are on the near side."""
    middle = np.sum([mode.centre for mode in modes], axis=0)
    # From straight above a globe does not look like one.
    elevation = np.degrees(np.arctan2(middle[2], np.hypot(middle[0], middle[1])))
    return float(np.clip(elevation, -60, 60)), float(np.degrees(np.arctan2(middle[1], middle[0])))


def _screen(elevation: float, azimuth: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors towards the viewer, to the right and up."""
    e, a = np.radians([elevation, azimuth])
    towards = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return towards, right, np.cross(towards, right)


def _globe(ax: Any, towards: np.ndarray, right: np.ndarray, up: np.ndarray) -> None:
    """Meridians and parallels every 30 degrees, the outline, and a veil over the far side."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    z = np.array([0.0, 0.0, 1.0])
    parallels = [Cap(z, np.radians(t), 1.0) for t in range(30, 180, 30)]
    meridians = [
        Cap(np.array([-np.sin(t), np.cos(t), 0.0]), np.pi / 2, 1.0)
        for t in np.radians(range(0, 180, 30))
    ]
    for line in parallels + meridians:
        _on_globe(ax, circle(line, ROUND), towards, 3, color=PALE, linewidth=0.6)
    turn = np.linspace(0, 2 * np.pi, ROUND)[:, None]
    outline = np.cos(turn) * right + np.sin(turn) * up
    ax.add_collection3d(Poly3DCollection([outline], facecolors="white", alpha=0.72, zorder=2))
    ax.plot(*outline.T, color=GREY, linewidth=0.9, zorder=4)


def _on_globe(ax: Any, line: np.ndarray, towards: np.ndarray, order: int, **style: Any) -> None:
    """A line on the sphere: its near part at ``order``, its far part below the veil."""
    near = (line @ towards >= 0)[:, None]
    for part, zorder in ((near, order), (~near, 1)):
        if part.any():
            ax.plot(*np.where(part, line, np.nan).T, zorder=zorder, **style)


def _coordinates(ax: Any, towards: np.ndarray, axes_names: Sequence[str]) -> None:
    """Stubs of the coordinate axes where they leave the sphere."""
    for axis, name in zip(np.eye(3), axes_names, strict=True):
        order = 4 if axis @ towards >= 0 else 0
        ax.plot(*np.stack([axis, 1.07 * axis]).T, color=GREY, linewidth=0.9, zorder=order)
        ax.text(
            *(1.12 * axis), name, color=GREY, ha="center", va="center", fontsize=9, zorder=order
        )


def _beside(ax: Any, modes: list[Cap], right: np.ndarray, up: np.ndarray, texts: list[str]) -> None:
    """Words outside the outline, each on the side where its direction is."""
    stubs = 1.12 * np.stack([right, up], axis=1)
    taken = [(np.sign(across), above, 0.2) for across, above in stubs if abs(across) > 0.9]
    for mode, text in zip(modes, texts, strict=True):
        side = 1.0 if mode.centre @ right > -0.05 else -1.0
        height = _free_height(mode.centre @ up, [(at, r) for s, at, r in taken if s == side])
        taken.append((side, height, 0.4))
        at = side * np.sqrt(1.12**2 - height**2) * right + height * up
        colour, where = CHAIN_COLOURS[mode.column], "left" if side > 0 else "right"
        ax.text(*at, text, color=colour, ha=where, va="center", zorder=9)


def _free_height(wanted: float, taken: list[tuple[float, float]]) -> float:
    """The height nearest to the wanted one that keeps its distance from what is there."""
    heights = np.linspace(-0.95, 0.95, 77)
    free = [h for h in heights if all(abs(h - at) >= room for at, room in taken)]
    return float(min(free or heights, key=lambda h: abs(h - wanted)))
