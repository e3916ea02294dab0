"""Text for a page, with a little markup; numbers as people write them. Templates escape it."""

from __future__ import annotations

import math
import re
from typing import NamedTuple, SupportsFloat

import numpy as np

from offcut.numerics.text import visible

#: Letters of an address: it becomes the name of a file as well.
MOST_LETTERS = 60
#: Signs of the markup; a backslash makes text of them.
_SIGNS = re.compile(r"[\\`*\[\]]")
_MARKUP = re.compile(
    r"""
    \\(?P<sign>[\\`*\[\]])
    | `(?P<code>[^`]+)`
    | \*\*(?P<bold>(?:\\.|[^*\\])+)\*\*
    | \[(?P<link>(?:\\.|[^\]\\])+)\]\((?P<address>[^)\s]+)\)
    """,
    re.VERBOSE | re.DOTALL,
)
#: Places in the page, pages beside it, and the web; nothing that a browser would run.
_ADDRESS = re.compile(r"#.*|https?://.*|[\w./-]+(#.*)?", re.IGNORECASE)


class Span(NamedTuple):
    """A stretch of text: its kind is "text", "code", "bold" or "link"."""

    kind: str
    text: str
    inside: tuple[Span, ...] = ()
    address: str = ""


def literal(text: object) -> str:
    """A name from a file as markup that shows it as it is, whatever it holds.

    >>> plain(literal("[CD4](javascript:alert(1)) **x** `y`"))
    '[CD4](javascript:alert(1)) **x** `y`'
    """
    return _SIGNS.sub(r"\\\g<0>", visible(text))


def spans(text: object) -> tuple[Span, ...]:
    """Text with ``code``, **bold** and [links](address), taken apart.

    >>> [span.kind for span in spans("a < b, **see** [here](#x) and `y`")]
    ['text', 'bold', 'text', 'link', 'text', 'code']
    >>> spans("[here](javascript:alert)")
    (Span(kind='text', text='[here](javascript:alert)', inside=(), address=''),)
    """
    text, found, place = str(text), [], 0
    for match in _MARKUP.finditer(text):
        found.append(Span("text", text[place : match.start()]))
        place = match.end()
        address = match["address"] or ""
        if match["sign"]:
            found.append(Span("text", match["sign"]))
        elif match["code"]:
            found.append(Span("code", match["code"]))
        elif match["bold"]:
            found.append(Span("bold", "", spans(match["bold"])))
        elif _ADDRESS.fullmatch(address):
            found.append(Span("link", "", spans(match["link"]), address))
        else:
            found.append(Span("text", match[0]))
    found.append(Span("text", text[place:]))
    return tuple(span for span in found if span.text or span.inside)


def plain(text: object) -> str:
    """The same without its markup.

    >>> plain("**See** [here](#x) and `y`")
    'See here and y'
    """
    return "".join(plain_span(span) for span in spans(text))


def plain_span(span: Span) -> str:
    """The words of a stretch."""
    return span.text + "".join(plain_span(one) for one in span.inside)


def number(value: SupportsFloat, digits: int = 3) -> str:
    """A number with about so many significant digits, thousands with commas.

    >>> number(15892), number(0.01234), number(1234.5), number(float("nan")), number(2.0)
    ('15,892', '0.0123', '1,234', 'not known', '2')
    >>> number(0.0), number(3.2e-9), number(True)
    ('0', '3.2e-09', 'yes')
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    value = float(value)
    if math.isnan(value):
        return "not known"
    size, sign = abs(value), "−" if value < 0 else ""
    if math.isinf(value):
        return f"{sign}∞"
    if size >= 10 ** (digits - 1):
        return f"{sign}{size:,.0f}"
    return f"{sign}{size:.2g}" if 0 < size < 1e-4 else f"{sign}{size:.{digits}g}"


def percent(share: float) -> str:
    """A share, with more digits where it is small.

    >>> percent(0.67), percent(0.0123), percent(0.0004), percent(3e-6), percent(0.0)
    ('67%', '1.2%', '0.04%', '<0.01%', '0%')
    """
    if math.isnan(share):
        return "not known"
    if 0 < share < 1e-4:
        return "<0.01%"
    if share == 0 or share >= 0.1:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.01 else f"{100 * share:.2g}%"


def cell(value: object) -> tuple[str, bool]:
    """Text of a table's cell, and whether it is a number."""
    if value is None:
        return "", False
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return number(value), not isinstance(value, bool | np.bool_)
    return str(value), False


def anchor_of(title: str) -> str:
    """A short address for a title.

    >>> anchor_of("Flow cytometry (GvHD)")
    'flow-cytometry-gvhd'
    """
    short = re.sub(r"[^a-z0-9]+", "-", plain(title).lower()).strip("-")[:MOST_LETTERS]
    return short.strip("-") or "part"
