"""Pictures of a page: matplotlib's as SVG in the colours of the theme, and what the script draws.

The page's script shows values under the pointer on pictures of curves (``Hover``), and frames on a
sphere that can be turned (``sphere_data``).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from offcut.langevin.evaluation import Cap
from offcut.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PINK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Places along a curve that a page carries; more only make it heavy.
MOST_PLACES = 240


@dataclass(frozen=True)
class Series:
    """A curve: values ``y`` at increasing places ``x``, and its band where it has one."""

    name: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    colour: str = ""


@dataclass(frozen=True)
class Hover:
    """The curves of one matplotlib ``Axes``, and what their abscissa is called."""

    ax: Axes
    series: Sequence[Series]
    label: str = ""

    def data(self) -> dict[str, Any]:
        """What the page's script needs: where the axes are, their limits, the values."""
        self.ax.figure.canvas.draw()
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


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Five digits; what is not finite becomes null, which JSON knows."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


#: Frames that a page carries; more only make a blot.
MOST_FRAMES = 2000
COLOURS = ("blue", "orange", "green")


def sphere_data(
    x: ArrayLike,
    modes: Sequence[Cap],
    ahead: Sequence[Cap] | None,
    names: Sequence[str],
) -> dict[str, Any]:
    """Points of each column, its modal direction and its circles (angles in radians)."""
    x = np.asarray(x, float)
    if len(x) > MOST_FRAMES:
        x = x[np.sort(np.random.default_rng(0).choice(len(x), MOST_FRAMES, replace=False))]
    columns = [
        {
            "name": names[mode.column],
            "colour": COLOURS[mode.column],
            "points": np.round(x[:, :, mode.column], 4).tolist(),
            "mode": np.round(mode.centre, 4).tolist(),
            "credible": round(float(mode.angle), 5),
            "predictive": None if new is None else round(float(new.angle), 5),
            "centre": None if new is None else np.round(new.centre, 4).tolist(),
        }
        for mode in modes
        for new in [None if ahead is None else ahead[mode.column]]
    ]
    share = float(modes[0].probability)
    return {"columns": columns, "axes": ["x", "y", "z"], "share": share}


#: Colours of our pictures, and the page's own, which differ in the dark.
THEME = {
    INK: "ink",
    "#000000": "ink",
    GREY: "grey",
    PALE: "pale",
    "#ffffff": "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    PINK: "pink",
}
_COLOUR = re.compile("|".join(re.escape(colour.lower()) for colour in THEME), re.IGNORECASE)
_STYLE = re.compile(r'style="[^"]*"')


def themed(svg: str) -> str:
    """The colours in style attributes become variables of the page.

    >>> themed('<path style="fill: #0072b2; stroke: none"/>')
    '<path style="fill: var(--blue); stroke: none"/>'
    """
    names = {colour.lower(): name for colour, name in THEME.items()}

    def variable(found: re.Match[str]) -> str:
        return f"var(--{names[found[0].lower()]})"

    return _STYLE.sub(lambda style: _COLOUR.sub(variable, style.group(0)), svg)


def own_names(svg: str, prefix: str) -> str:
    """All ids get a prefix: several pictures in one page must not share any.

    >>> own_names('<g id="a"/><use href="#a" clip-path="url(#b)"/>', "p-")
    '<g id="p-a"/><use href="#p-a" clip-path="url(#p-b)"/>'
    """
    svg = re.sub(r'(\sid=")', rf"\1{prefix}", svg)
    svg = re.sub(r'(href="#)', rf"\1{prefix}", svg)
    return re.sub(r"(url\(#)", rf"\1{prefix}", svg)


def as_svg(figure: Figure) -> str:
    """A whole SVG file, letters as outlines, the same bytes for the same picture."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "offcut"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "Offcut"})
    return file.getvalue()


def inlined(svg: str, name: str) -> tuple[str, str]:
    """An SVG element for a page, themed, named and sized by the page: its open tag, and the rest.

    The tag is cut before its ``>``, where a template adds a text for the blind.

    >>> inlined('<?xml?><svg width="3pt" viewBox="0"><g id="a"/></svg>', "p")
    ('<svg viewBox="0"', '><g id="p-a"/></svg>')
    """
    element = svg[svg.index("<svg") :]
    end = element.index(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", element[:end])
    return head, own_names(themed(element[end:]), f"{name}-").strip()
