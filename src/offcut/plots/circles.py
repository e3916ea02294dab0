"""Circles and points around modal directions, alike on the globe and on the maps."""

from __future__ import annotations

from offcut.langevin.directions import Cap

#: Points along a circle: enough that the ends of its near and far parts meet.
ROUND = 721

CREDIBLE = {"linewidth": 1.8, "solid_capstyle": "butt"}
PREDICTIVE = {"linewidth": 1.6, "linestyle": (0, (4, 2)), "dash_capstyle": "butt"}
POINTS = {"s": 13, "linewidths": 0.5, "edgecolors": "white", "alpha": 0.75}


def caption(probability: float, ahead: list[Cap] | None) -> str:
    """What the circles are, in one line."""
    share = f"{100 * probability:.4g}%"
    solid = f"solid: {share} of the posterior of the modal direction"
    return solid if ahead is None else f"{solid}; dashed: {share} of new observations"


def radii(mode: Cap, ahead: list[Cap] | None) -> list[str]:
    """The radii of the circles of a column, in words."""
    new = [] if ahead is None else [f"new ±{_degrees(ahead[mode.column].degrees)}"]
    return [f"mode ±{_degrees(mode.degrees)}", *new]


def _degrees(value: float) -> str:
    return f"{value:.0f}°" if value >= 10 else f"{value:.2g}°"
