"""Matplotlib pictures as SVG inside a page, in the colours of its theme."""

from __future__ import annotations

import io
import re
from typing import Any

from offcut.pages.markup import escaped
from offcut.plots.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, PINK

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

    def variable(found: re.Match) -> str:
        return f"var(--{names[found.group(0).lower()]})"

    return _STYLE.sub(lambda style: _COLOUR.sub(variable, style.group(0)), svg)


def own_names(svg: str, prefix: str) -> str:
    """All ids get a prefix: several pictures in one page must not share any.

    >>> own_names('<g id="a"/><use href="#a" clip-path="url(#b)"/>', "p-")
    '<g id="p-a"/><use href="#p-a" clip-path="url(#p-b)"/>'
    """
    svg = re.sub(r'(\sid=")', rf"\1{prefix}", svg)
    svg = re.sub(r'(href="#)', rf"\1{prefix}", svg)
    return re.sub(r"(url\(#)", rf"\1{prefix}", svg)


def as_svg(figure: Any) -> str:
    """A whole SVG file, letters as outlines, the same bytes for the same picture."""
    import matplotlib as mpl

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "offcut"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": "Offcut"})
    return file.getvalue()


def inlined(svg: str, name: str, alt: str) -> str:
    """An SVG element for a page: themed, named, sized by the page, with a text for the blind."""
    element = svg[svg.index("<svg") :]
    end = element.index(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", element[:end])
    label = escaped(alt)
    return (
        f'{head} role="img" aria-label="{label}"'
        + own_names(themed(element[end:]), f"{name}-").strip()
    )
