"""A page: one HTML file that holds everything it shows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import xarray as xr

from offcut.app.html import runs
from offcut.app.html.figures import Hover, as_svg, inlined, sphere_data
from offcut.app.html.markup import anchor_of, cell, escaped, inline, plain
from offcut.files import made, write

NOTICES = ("note", "doubt", "simulated")


class Section:
    """A part of a page, added to by its methods in the order in which it is read."""

    def __init__(self, page: Page, title: str, anchor: str, level: int) -> None:
        self.page, self.title, self.anchor, self.level = page, title, anchor, level
        self.parts: list[str] = []

    def text(self, text: str) -> None:
        """A paragraph; ``code``, **bold** and [links](address) work, all else is as it is."""
        self.parts.append(f"<p>{inline(text)}</p>")

    def notice(self, text: str, kind: str = "note") -> None:
        """A box: a "note", a "doubt", or that data are "simulated"."""
        if kind not in NOTICES:
            raise ValueError(f"kind must be one of {', '.join(NOTICES)}, got {kind!r}")
        self.parts.append(f'<p class="notice {kind}">{inline(text)}</p>')

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        caption: str = "",
        *,
        cards: bool = False,
    ) -> None:
        """A table; with ``cards`` each row becomes a card on a narrow screen."""
        head = "".join(f'<th scope="col">{inline(name)}</th>' for name in columns)
        body = []
        for row in rows:
            entries = []
            for name, value in zip(columns, row, strict=True):
                shown, is_number = cell(value)
                kind = ' class="number"' if is_number else ""
                if cards and shown:  # one box for all of it, beside its label
                    shown = f"<span>{shown}</span>"
                entries.append(f'<td{kind} data-label="{escaped(plain(name))}">{shown}</td>')
            body.append(f"<tr>{''.join(entries)}</tr>")
        told = f"<caption>{inline(caption)}</caption>" if caption else ""
        style = ' class="cards"' if cards else ""
        self.parts.append(
            f'<div class="scroll" tabindex="0"><table{style}>{told}<thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(body)}</tbody></table></div>"
        )

    def figure(
        self,
        figure: Any,
        name: str,
        caption: str,
        *,
        alt: str = "",
        hover: Hover | Sequence[Hover] | None = None,
    ) -> None:
        """A matplotlib picture as SVG, and what to see in it; it is closed afterwards."""
        name = self.page.own_name(name)
        hovers = [hover] if isinstance(hover, Hover) else list(hover or ())
        data = [one.data() for one in hovers]
        svg = as_svg(figure)
        self.page.keep(f"{name}.svg", svg)
        width = figure.get_size_inches()[0]
        picture = inlined(svg, name, alt or plain(caption))
        script, kind = "", "picture"
        if data:
            kind = "picture hovered"
            script = f'<script type="application/json">{_json(data)}</script>'
        self.parts.append(
            f'<figure id="{name}"><div class="{kind}" style="max-width: {width * 120:.0f}px">'
            f"{picture}{script}</div><figcaption>{inline(caption)}</figcaption></figure>"
        )
        _close(figure)

    def globe(
        self,
        x: Any,
        modes: Sequence[Any],
        ahead: Sequence[Any] | None,
        *,
        names: Sequence[str],
        name: str,
        caption: str,
        axes_names: Sequence[str] = ("x", "y", "z"),
    ) -> None:
        """Frames (n, 3, p) on a sphere that the reader turns; circles as from ``model.regions``."""
        name = self.page.own_name(name)
        data = sphere_data(x, modes, ahead, names, axes_names)
        label = escaped(f"{plain(caption)} Arrow keys turn it.")
        self.parts.append(
            f'<figure id="{name}"><div class="globe"><canvas tabindex="0" role="img" '
            f'aria-label="{label}"></canvas><p class="legend"></p>'
            f'<script type="application/json">{_json(data)}</script></div>'
            f"<figcaption>{inline(caption)}</figcaption></figure>"
        )

    def code(self, text: str) -> None:
        """Text as it is, in a fixed width."""
        self.parts.append(f'<pre tabindex="0">{escaped(text)}</pre>')

    def run(self, name: str, posterior: xr.DataTree, seconds: float | None = None) -> None:
        """The diagnostics of a run: R-hat, ESS, certificate, doubts."""
        self.parts.append(runs.describe(name, posterior, seconds))

    def runs(self, found: Iterable[tuple[str, xr.DataTree, float | None]]) -> None:
        """The diagnostics of several runs as a table: (name, posterior, seconds) each."""
        rows, summaries = runs.tabulate(found)
        self.table(runs.COLUMNS, rows, "How far to trust the runs of this section", cards=True)
        self.parts.append(
            f"<details><summary>All summaries</summary>{''.join(summaries)}</details>"
        )

    def machine(self) -> None:
        """The machine and the versions, as a table."""
        self.table(["", ""], runs.machine(), "Where this page was made")

    def html(self) -> str:
        """The section as an element."""
        tag = f"h{self.level}"
        return (
            f'<section id="{self.anchor}"><{tag}><a class="anchor" href="#{self.anchor}">'
            f"{inline(self.title)}</a></{tag}>{''.join(self.parts)}</section>"
        )


class Page:
    """One HTML file with everything in it.

    Parameters
    ----------
    title : str
    lead : str
        What it is about, in one or two sentences.
    figures : path or callable, optional
        A folder that gets each picture as an SVG file as well; or what is called with the name and
        the text of each.

    Examples
    --------
    >>> page = Page("Heights", lead="How tall were they?")
    >>> page.section("Answer").text("About **168 cm**.")
    >>> "<strong>168 cm</strong>" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "", figures: Any = None) -> None:
        self.title, self.lead = title, lead
        self.figures = figures if figures is None or callable(figures) else Path(figures)
        self.sections: list[Section] = []
        self._names: set[str] = {"top"}

    def section(self, title: str, anchor: str | None = None, level: int = 2) -> Section:
        """A new section at the end; it appears in the table of contents."""
        section = Section(self, title, self.own_name(anchor or anchor_of(title)), level)
        self.sections.append(section)
        return section

    def own_name(self, wanted: str) -> str:
        """A name that nothing else on this page has."""
        wanted = anchor_of(wanted)
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}-{count}"
        self._names.add(name)
        return name

    def keep(self, name: str, text: str) -> None:
        """Save a picture beside the page, where there is a folder for it."""
        if callable(self.figures):
            self.figures(name, text)
        elif self.figures is not None:
            write(made(self.figures) / name, text)

    def contents(self) -> str:
        """Links to all sections."""
        entries = "".join(
            f'<li class="level{section.level}"><a href="#{section.anchor}">'
            f"{inline(section.title)}</a></li>"
            for section in self.sections
        )
        return (
            '<nav aria-label="Contents"><details open><summary>Contents</summary>'
            f"<ol>{entries}</ol></details></nav>"
        )

    def html(self) -> str:
        """The whole document."""
        here = files("offcut.app.html")
        style, script = ((here / name).read_text("utf-8") for name in ("page.css", "page.js"))
        body = "".join(section.html() for section in self.sections)
        lead = f'<p class="lead">{inline(self.lead)}</p>' if self.lead else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escaped(plain(self.title))}</title>\n"
            f'<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n'
            f'<body id="top">\n<header><div><h1>{inline(self.title)}</h1>{lead}</div>'
            '<button id="theme" type="button" title="Colours: as the system, light or dark">'
            f"Theme</button></header>\n<div class=frame>{self.contents()}\n<main>{body}</main>"
            f"</div>\n<script>\n{script}</script>\n</body>\n</html>\n"
        )

    def write(self, path: Any) -> Path:
        """Write the file; it is there whole or not at all."""
        path = Path(path)
        made(path.parent)
        return write(path, self.html())


def _json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _close(figure: Any) -> None:
    """Leave no figure open with pyplot, where it came from there."""
    import matplotlib.pyplot as plt

    plt.close(figure)
