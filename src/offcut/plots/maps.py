"""Equal-area maps of frames, one for each column, centred at its mean modal direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.errors import SettingsError
from offcut.langevin.directions import Cap, angles, circle, tangents
from offcut.plots.circles import CREDIBLE, POINTS, PREDICTIVE, ROUND, caption, radii
from offcut.plots.style import CHAIN_COLOURS, GREY, INK, PALE
from offcut.plots.words import SMALL, halo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def draw_maps(
    plt: Any,
    ax: Any,
    x: np.ndarray,
    modes: list[Cap],
    ahead: list[Cap] | None,
    names: Sequence[str],
    axes_names: Sequence[str],
) -> Figure:
    """A map for each column, on one scale."""
    p = len(modes)
    if ax is None:
        figure, grid = plt.subplots(
            1, p, figsize=(max(3.7 * p, 4.4), 4.1), squeeze=False, layout="constrained"
        )
        panels = list(grid.flat)
        figure.get_layout_engine().set(w_pad=0.1)
        figure.suptitle(caption(modes[0].probability, ahead), color=GREY, fontsize=9)
    else:
        panels = list(np.ravel(ax))
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
            panel.annotate(
                f"towards {names[(j + 1) % p]}",
                (side * 2 * np.sin(np.radians(rim) / 2), 0),
                (5 * side, 0),
                textcoords="offset points",
                color=GREY,
                fontsize=8.5,
                rotation=90 if side < 0 else -90,
                ha="right" if side < 0 else "left",
                va="center",
            )
        title = f"{names[j]}: {', '.join(radii(mode, ahead))}"
        panel.set_title(title, color=colour, loc="center")
    return panels[0].figure


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


def _rings(panel: Any, step: float, rim: float) -> None:
    """Circles at equal angles from the centre, with their degrees."""
    turn = np.linspace(0, 2 * np.pi, ROUND)
    for degrees in step * np.arange(1, round(rim / step) + 1):
        radius = 2 * np.sin(np.radians(degrees) / 2)
        outermost = degrees > rim - step / 2
        panel.plot(
            radius * np.cos(turn),
            radius * np.sin(turn),
            color=GREY if outermost else PALE,
            linewidth=0.9 if outermost else 0.8,
            zorder=1,
        )
        # Below the points: no ring is worth an observation.
        panel.text(
            radius * np.sqrt(0.5),
            -radius * np.sqrt(0.5),
            f"{degrees:.4g}°",
            color=GREY,
            fontsize=8,
            ha="center",
            va="center",
            zorder=2,
            path_effects=halo(),
        )
    edge = 1.04 * 2 * np.sin(np.radians(rim) / 2)
    panel.plot([-edge, edge], [0, 0], color=PALE, linewidth=0.8, zorder=0)
    panel.plot([0, 0], [-edge, edge], color=PALE, linewidth=0.8, zorder=0)
    panel.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
    panel.set_axis_off()


def _landmarks(
    panel: Any, mode: Cap, right: np.ndarray, rim: float, axes_names: Sequence[str]
) -> None:
    """Where the coordinate axes come through the map."""
    for sign, mark in ((1, ""), (-1, "−")):
        for axis, name in zip(sign * np.eye(3), axes_names, strict=True):
            if np.degrees(angles(axis, mode.centre)) < 0.92 * rim:
                at = equal_area(axis, mode.centre, right)
                panel.plot(*at, "+", color=INK, markersize=5, markeredgewidth=0.8, zorder=5)
                words = {"color": INK, "path_effects": halo(), **SMALL}
                panel.annotate(mark + name, at, (4, 3), textcoords="offset points", **words)
