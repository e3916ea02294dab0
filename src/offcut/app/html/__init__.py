"""Pages that need nothing but a browser: one HTML file with its pictures, style and behaviour.

A ``Page`` has sections, a section has paragraphs, tables, pictures (SVG, in dark and light, with
values under the pointer), an interactive sphere, and the diagnostics of runs. Nothing is fetched
from a network, so pages work from disk and on a phone.
"""

from __future__ import annotations

from offcut.app.html.figures import Hover, Series
from offcut.app.html.page import Page, Section

__all__ = ["Hover", "Page", "Section", "Series"]
