"""What a part shows, from the process that ran it to the one that writes the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from offcut.files import made, write
from offcut.pages import Page
from offcut.reproduction.beside import Beside


class Shown(NamedTuple):
    """Sections as (title, anchor, level, parts), comparisons, and runs of an earlier call."""

    sections: list[tuple[str, str, int, list[str]]]
    rows: list[Beside]
    again: list[str]

    @staticmethod
    def of(page: Page, rows: list[Beside], again: list[str]) -> Shown:
        """From a page that has this part alone."""
        return Shown([(s.title, s.anchor, s.level, s.parts) for s in page.sections], rows, again)

    def save(self, folder: Path, part: str) -> None:
        """Into the folder of the runs."""
        write(_file(made(folder), part), json.dumps(self))

    @staticmethod
    def load(folder: Path, part: str) -> Shown:
        """As saved."""
        sections, rows, again = json.loads(_file(folder, part).read_text("utf-8"))
        return Shown([tuple(s) for s in sections], [Beside(*row) for row in rows], again)

    def add_to(self, page: Page) -> None:
        """At the end of another page."""
        for title, anchor, level, parts in self.sections:
            page.section(title, anchor, level).parts += parts


def _file(folder: Path, part: str) -> Any:
    return folder / f"{part}.json"
