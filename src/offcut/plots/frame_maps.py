"""Frames with circles around their modal directions, on a sphere or on maps.

The sphere is seen from outside, its far side veiled: the paper's picture. Equal-area maps, one for
each column, are centred at its mean modal direction. Circles and points are alike on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from offcut.errors import SettingsError
from offcut.langevin.evaluation import Cap, angles, circle, tangents
from offcut.plots.style import (
    CHAIN_COLOURS,
    GREY,
    INK,
    PALE,
    figure_of,
    halo,
    note,
    pyplot,
    subplots,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d.axes3d import Axes3D


#: Points along a circle: enough that the ends of its near and far parts meet.
ROUND = 721
CREDIBLE: dict[str, Any] = {"linewidth": 1.8, "solid_capstyle": "butt"}
PREDICTIVE: dict[str, Any] = {"linewidth": 1.6, "linestyle": (0, (4, 2)), "dash_capstyle": "butt"}
POINTS: dict[str, Any] = {"s": 13, "linewidths": 0.5, "edgecolors": "white", "alpha": 0.75}


class Scene(NamedTuple):
    """What is drawn: frames, caps of the modes and of new frames, names of columns and axes."""

    x: np.ndarray
    modes: list[Cap]
    ahead: list[Cap] | None
    names: Sequence[str]
    axes_names: Sequence[str]

    @property
    def caption(self) -> str:
        """What the circles are, in one line."""
        share = f"{100 * self.modes[0].probability:.4g}%"
        solid = f"solid: {share} of the posterior of the modal direction"
        return solid if self.ahead is None else f"{solid}; dashed: {share} of new observations"

    def radii(self, mode: Cap) -> list[str]:
        """The radii of the circles of a column, in words."""
        new = [] if self.ahead is None else [f"new ±{_degrees(self.ahead[mode.column].degrees)}"]
        return [f"mode ±{_degrees(mode.degrees)}", *new]


def _degrees(value: float) -> str:
    return f"{value:.0f}°" if value >= 10 else f"{value:.2g}°"


def draw_sphere(
    ax: Axes | Sequence[Axes] | None, scene: Scene, view: tuple[float, float] | None
) -> Figure:
    """Far side, veil, near side, in this order; matplotlib's own order would mix them."""
    if ax is None:
        figure = pyplot().figure(figsize=(6.6, 4.7))
        globe = figure.add_axes((0.2, 0.0, 0.6, 0.88), projection="3d")
    elif getattr(ax, "name", "") == "3d":
        globe = cast("Axes3D", ax)
    else:
        raise SettingsError(
            'the sphere needs 3-D axes, plt.subplots(subplot_kw={"projection": "3d"}); for flat '
            'ones take projection="equal-area"'
        )
    x, modes, ahead, names, axes_names = scene
    elevation, azimuth = _between(modes) if view is None else view
    towards, right, up = _screen(elevation, azimuth)
    globe.computed_zorder = False
    globe.set_proj_type("ortho")
    globe.view_init(elevation, azimuth)
    globe.set_box_aspect((1, 1, 1), zoom=1.55)
    globe.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
    globe.set_axis_off()
    _globe(globe, towards, right, up)
    _coordinates(globe, towards, axes_names)
    for mode in modes:
        j, colour = mode.column, CHAIN_COLOURS[mode.column]
        for near, order in ((False, 1), (True, 6)):
            shown = x[(x[:, :, j] @ towards >= 0) == near, :, j]
            points = {**POINTS, "color": colour, "gid": f"observed-{j}"}
            globe.scatter(*shown.T, depthshade=False, zorder=order, **points)
        globe.plot(
            *np.stack([0 * mode.centre, mode.centre]).T, color=colour, linewidth=2.4, zorder=5
        )
        line = {**CREDIBLE, "color": colour, "gid": f"credible-{j}"}
        _on_globe(globe, circle(mode, ROUND), towards, 8, **line)
        if ahead is not None:
            line = {**PREDICTIVE, "color": colour, "gid": f"predictive-{j}"}
            _on_globe(globe, circle(ahead[j], ROUND), towards, 7, **line)
    texts = ["\n".join([names[mode.column], *scene.radii(mode)]) for mode in modes]
    _beside(globe, modes, right, up, texts)
    globe.set_title(scene.caption, loc="center", color=GREY, fontsize=9, pad=20)
    return figure_of(globe)


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


def _globe(ax: Axes3D, towards: np.ndarray, right: np.ndarray, up: np.ndarray) -> None:
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


def _on_globe(ax: Axes3D, line: np.ndarray, towards: np.ndarray, order: int, **style: Any) -> None:
    """A line on the sphere: its near part at ``order``, its far part below the veil."""
    near = (line @ towards >= 0)[:, None]
    for part, zorder in ((near, order), (~near, 1)):
        if part.any():
            ax.plot(*np.where(part, line, np.nan).T, zorder=zorder, **style)


def _coordinates(ax: Axes3D, towards: np.ndarray, axes_names: Sequence[str]) -> None:
    """Stubs of the coordinate axes where they leave the sphere."""
    for axis, name in zip(np.eye(3), axes_names, strict=True):
        order = 4 if axis @ towards >= 0 else 0
        ax.plot(*np.stack([axis, 1.07 * axis]).T, color=GREY, linewidth=0.9, zorder=order)
        words = {"color": GREY, "ha": "center", "va": "center", "fontsize": 9}
        ax.text(*(1.12 * axis), name, zorder=order, **words)


def _beside(
    ax: Axes3D, modes: list[Cap], right: np.ndarray, up: np.ndarray, texts: list[str]
) -> None:
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


#: Rings are so many degrees apart, as few as leave at most four.
STEPS = (*(m * 10.0**k for k in range(-6, 1) for m in (1, 2, 5)), 10.0, 15.0, 20.0, 30.0, 45.0)


def equal_area(vectors: np.ndarray, centre: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Lambert's azimuthal equal-area projection of unit vectors (..., 3), (..., 2).

    A vector at the angle t from the centre lies 2 sin(t/2) from the origin: a hemisphere is a disc
    of radius √2, the sphere one of radius 2. ``right`` is a tangent at the centre; as the sphere is
    seen from outside, the vertical is centre × right. The antipode could be anywhere on the rim.

    Examples
    --------
    >>> import numpy as np
    >>> right, up, centre = np.eye(3)
    >>> equal_area(np.stack([centre, right, up]), centre, right).round(3)
    array([[0.   , 0.   ],
           [1.414, 0.   ],
           [0.   , 1.414]])
    """
    flat = np.stack([vectors @ right, vectors @ np.cross(centre, right)], axis=-1)
    length = np.linalg.norm(flat, axis=-1, keepdims=True)
    flat = np.where(length > 0.0, flat / np.where(length > 0.0, length, 1.0), [1.0, 0.0])
    return flat * np.linalg.norm(vectors - centre, axis=-1, keepdims=True)


def draw_maps(ax: Axes | Sequence[Axes] | None, scene: Scene) -> Figure:
    """A map for each column, on one scale."""
    x, modes, ahead, names, axes_names = scene
    p = len(modes)
    if ax is None:
        figure, grid = subplots((max(3.7 * p, 4.4), 4.1), columns=p, apart=0.1, squeeze=False)
        panels: list[Axes] = list(grid.flat)
        figure.suptitle(scene.caption, color=GREY, fontsize=9)
    else:
        panels = list(np.ravel(np.asarray(ax, object)))
        if len(panels) != p or any(panel.name == "3d" for panel in panels):
            raise SettingsError(
                f"equal-area maps need {p} flat axes, one for each column; got {len(panels)}"
            )
    circles = modes + (ahead or [])
    lines = [circle(each, ROUND) for each in circles]
    farthest = max(
        *(angles(x[:, :, mode.column], mode.centre).max() for mode in modes),
        *(
            angles(line, modes[each.column].centre).max()
            for each, line in zip(circles, lines, strict=True)
        ),
    )
    step = next((s for s in STEPS if 4 * s >= np.degrees(farthest)), STEPS[-1])
    rim = step * max(1, int(np.ceil(np.degrees(farthest) / step)))
    for mode, panel in zip(modes, panels, strict=True):
        j, colour = mode.column, CHAIN_COLOURS[mode.column]
        right, side = _rightwards(modes, j)
        _rings(panel, step, rim)
        points = equal_area(x[:, :, j], mode.centre, right)
        panel.scatter(*points.T, color=colour, zorder=3, gid=f"observed-{j}", **POINTS)
        for each, line in zip(circles, lines, strict=True):
            if each.column == j:
                kind, style = ("credible", CREDIBLE) if each is mode else ("predictive", PREDICTIVE)
                flat = equal_area(line, mode.centre, right)
                panel.plot(*flat.T, color=colour, zorder=4, gid=f"{kind}-{j}", **style)
        _landmarks(panel, mode, right, rim, axes_names)
        if side:
            at = (side * 2 * np.sin(np.radians(rim) / 2), 0)
            words = {"color": GREY, "rotation": -90 * side, "va": "center"}
            words["ha"] = "right" if side < 0 else "left"
            note(panel, f"towards {names[(j + 1) % p]}", at, (5 * side, 0), **words)
        title = f"{names[j]}: {', '.join(scene.radii(mode))}"
        panel.set_title(title, color=colour, loc="center")
    return figure_of(panels[0])


def _rightwards(modes: list[Cap], j: int) -> tuple[np.ndarray, int]:
    """The tangent that points right, and on which side the next column lies (0: nowhere).

    The next column is to the left or to the right, whichever has the third coordinate upwards. Two
    columns then have the same direction upwards, their normal: what is horizontal turns the frame
    in its own plane, what is vertical tilts it.
    """
    centre = modes[j].centre
    if len(modes) > 1:
        other = modes[(j + 1) % len(modes)].centre
        along = other - (other @ centre) * centre
        if np.linalg.norm(along) > 0.1:
            side = 1 if np.cross(centre, along)[2] >= 0 else -1
            return side * along / np.linalg.norm(along), side
    flat = np.cross([0.0, 0.0, 1.0], centre)  # the third coordinate upwards
    length = np.linalg.norm(flat)
    return (flat / length if length > 1e-6 else tangents(centre)[0]), 0


def _rings(panel: Axes, step: float, rim: float) -> None:
    """Circles at equal angles from the centre, with their degrees."""
    turn = np.linspace(0, 2 * np.pi, ROUND)
    for degrees in step * np.arange(1, round(rim / step) + 1):
        radius = 2 * np.sin(np.radians(degrees) / 2)
        outermost = degrees > rim - step / 2
        colour, width = (GREY, 0.9) if outermost else (PALE, 0.8)
        around = radius * np.cos(turn), radius * np.sin(turn)
        panel.plot(*around, color=colour, linewidth=width, zorder=1)
        # Below the points: no ring is worth an observation.
        at, words = radius * np.sqrt(0.5), f"{degrees:.4g}°"
        panel.text(
            at, -at, words, color=GREY, fontsize=8, ha="center", va="center", path_effects=halo()
        ).set_zorder(2)
    edge = 1.04 * 2 * np.sin(np.radians(rim) / 2)
    panel.plot([-edge, edge], [0, 0], color=PALE, linewidth=0.8, zorder=0)
    panel.plot([0, 0], [-edge, edge], color=PALE, linewidth=0.8, zorder=0)
    panel.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
    panel.set_axis_off()


def _landmarks(
    panel: Axes, mode: Cap, right: np.ndarray, rim: float, axes_names: Sequence[str]
) -> None:
    """Where the coordinate axes come through the map."""
    for sign, mark in ((1, ""), (-1, "−")):
        for axis, name in zip(sign * np.eye(3), axes_names, strict=True):
            if np.degrees(angles(axis, mode.centre)) < 0.92 * rim:
                at = equal_area(axis, mode.centre, right)
                panel.plot(*at, "+", color=INK, markersize=5, markeredgewidth=0.8, zorder=5)
                note(panel, mark + name, at, (4, 3), color=INK, path_effects=halo())
