"""Values under the pointer, for pictures of curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Places along a curve that a page carries; more only make it heavy.
MOST_PLACES = 240


@dataclass(frozen=True)
class Series:
    """A curve: values ``y`` at increasing places ``x``, and its band where it has one."""

    name: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    colour: str = ""


@dataclass(frozen=True)
class Hover:
    """The curves of one matplotlib ``Axes``, and what their abscissa is called."""

    ax: Any
    series: Sequence[Series]
    label: str = ""

    def data(self) -> dict[str, Any]:
        """What the page's script needs: where the axes are, their limits, the values."""
        figure = self.ax.figure
        figure.canvas.draw()
        box = self.ax.get_position()
        return {
            "box": _rounded([box.x0, 1 - box.y1, box.width, box.height]),
            "x": _rounded(self.ax.get_xlim()),
            "y": _rounded(self.ax.get_ylim()),
            "log": [self.ax.get_xscale() == "log", self.ax.get_yscale() == "log"],
            "label": self.label or self.ax.get_xlabel(),
            "series": [_thinned(one) for one in self.series],
        }


def _thinned(series: Series) -> dict[str, Any]:
    x = np.asarray(series.x, float)
    step = max(1, int(np.ceil(len(x) / MOST_PLACES)))
    found: dict[str, Any] = {"name": series.name, "colour": series.colour}
    for key in ("x", "y", "low", "high"):
        values = getattr(series, key)
        if values is not None:
            found[key] = _rounded(np.asarray(values, float)[::step])
    return found


def _rounded(values: Any) -> list[float | None]:
    """Five digits; what is not finite becomes null, which JSON knows."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]
