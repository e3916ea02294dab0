"""A page: one HTML file that holds everything it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from offcut.app.html import runs
from offcut.app.html.figures import Hover, as_svg, inlined, sphere_data
from offcut.app.html.markup import anchor_of, cell, plain, spans
from offcut.files import made, write
from offcut.langevin.evaluation import Cap
from offcut.numerics.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTICES = ("note", "doubt", "simulated")


def _seen(value: object) -> str:
    """What a template prints: text from files may hold characters that act."""
    return value if isinstance(value, Markup) else visible(value, lines=True)


#: Escapes everything that it prints, so that text never becomes markup.
TEMPLATES = Environment(
    loader=PackageLoader("offcut.app", "html"),
    autoescape=True,
    finalize=_seen,
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {"spans": spans, "plain": plain}
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}


class Section:
    """A part of a page, added to by its methods in the order in which it is read.

    ``parts`` are data, which JSON can hold; each has the ``kind`` of the macro in ``parts.html``
    that makes an element of it.
    """

    def __init__(self, page: Page, title: str, anchor: str) -> None:
        self.page, self.title, self.anchor = page, title, anchor
        self.parts: list[dict[str, Any]] = []

    def _add(self, kind: str, **part: Any) -> None:
        self.parts.append({"kind": kind, **part})

    def text(self, text: str) -> None:
        """A paragraph; ``code``, **bold** and [links](address) work, all else is as it is."""
        self._add("text", text=text)

    def notice(self, text: str, kind: str = "note") -> None:
        """A box: a "note", a "doubt", or that data are "simulated"."""
        if kind not in NOTICES:
            raise ValueError(f"kind must be one of {', '.join(NOTICES)}, got {kind!r}")
        self._add("notice", text=text, about=kind)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        caption: str = "",
        *,
        cards: bool = False,
    ) -> None:
        """A table; with ``cards`` each row becomes a card on a narrow screen."""
        wrong = [row for row in rows if len(row) != len(columns)]
        if wrong:
            raise ValueError(f"a row has {len(wrong[0])} cells for {len(columns)} columns")
        self._add(
            "table",
            columns=list(columns),
            rows=[[cell(value) for value in row] for row in rows],
            caption=caption,
            cards=cards,
        )

    def figure(
        self,
        figure: Figure,
        name: str,
        caption: str,
        *,
        alt: str = "",
        hover: Hover | Sequence[Hover] | None = None,
    ) -> None:
        """A matplotlib picture as SVG, and what to see in it; it is closed afterwards."""
        import matplotlib.pyplot as plt

        name = self.page.own_name(name)
        hovers = [hover] if isinstance(hover, Hover) else list(hover or ())
        curves = [one.data() for one in hovers]
        svg = as_svg(figure)
        self.page.keep(f"{name}.svg", svg)
        head, drawing = inlined(svg, name)
        self._add(
            "figure",
            name=name,
            head=head,
            drawing=drawing,
            alt=alt or plain(caption),
            caption=caption,
            width=f"{figure.get_size_inches()[0] * 120:.0f}",
            curves=curves,
        )
        plt.close(figure)

    def globe(
        self,
        x: np.ndarray,
        modes: Sequence[Cap],
        ahead: Sequence[Cap] | None,
        *,
        names: Sequence[str],
        name: str,
        caption: str,
    ) -> None:
        """Frames (n, 3, p) on a sphere that the reader turns; circles as from ``model.regions``."""
        sphere = sphere_data(x, modes, ahead, names)
        self._add("globe", name=self.page.own_name(name), sphere=sphere, caption=caption)

    def code(self, text: str) -> None:
        """Text as it is, in a fixed width."""
        self._add("code", text=text)

    def run(self, name: str, posterior: xr.DataTree, seconds: float | None = None) -> None:
        """The diagnostics of a run: R-hat, ESS, certificate, doubts."""
        self._add("run", name=name, **runs.describe(posterior, seconds))

    def runs(self, found: Iterable[tuple[str, xr.DataTree, float | None]]) -> None:
        """The diagnostics of several runs as a table: (name, posterior, seconds) each."""
        rows, summaries = runs.tabulate(found)
        self.table(runs.COLUMNS, rows, "How far to trust the runs of this section", cards=True)
        self._add("summaries", found=summaries)

    def machine(self) -> None:
        self.table(["", ""], runs.machine(), "Where this page was made")


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

    def __init__(
        self,
        title: str,
        lead: str = "",
        figures: Path | Callable[[str, str], object] | None = None,
    ) -> None:
        self.title, self.lead, self.figures = title, lead, figures
        self.sections: list[Section] = []
        self._names: set[str] = {"top"}

    def section(self, title: str, anchor: str | None = None) -> Section:
        """A new section at the end; it appears in the table of contents."""
        section = Section(self, title, self.own_name(anchor or anchor_of(title)))
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
        if isinstance(self.figures, Path):
            write(made(self.figures) / name, text)
        elif self.figures is not None:
            self.figures(name, text)

    def html(self) -> str:
        here = files("offcut.app.html")
        style, script = ((here / name).read_text("utf-8") for name in ("page.css", "page.js"))
        return TEMPLATES.get_template("page.html").render(page=self, style=style, script=script)

    def write(self, path: Path) -> Path:
        """Write the file; it is there whole or not at all."""
        made(path.parent)
        return write(path, self.html())
