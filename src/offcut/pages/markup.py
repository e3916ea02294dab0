"""Text for a page: escaped, with a little markup; numbers as people write them."""

from __future__ import annotations

import html
import math
import re
from typing import Any

import numpy as np

_CODE = re.compile(r"`([^`]+)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def inline(text: str) -> str:
    """Escaped text with ``code``, **bold** and [links](address).

    >>> inline("a < b, **see** [here](#x) and `y`")
    'a &lt; b, <strong>see</strong> <a href="#x">here</a> and <code>y</code>'
    """
    escaped = html.escape(str(text), quote=True)
    escaped = _CODE.sub(r"<code>\1</code>", escaped)
    escaped = _BOLD.sub(r"<strong>\1</strong>", escaped)
    return _LINK.sub(r'<a href="\2">\1</a>', escaped)


def plain(text: str) -> str:
    """The same without its markup.

    >>> plain("**See** [here](#x) and `y`")
    'See here and y'
    """
    return _LINK.sub(r"\1", _BOLD.sub(r"\1", _CODE.sub(r"\1", text)))


def number(value: Any, digits: int = 3) -> str:
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
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}".replace("-", "−")
    if size and size < 1e-4:
        return f"{value:.2g}".replace("-", "−", 1) if value < 0 else f"{value:.2g}"
    return f"{value:.{digits}g}".replace("-", "−")


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


def cell(value: Any) -> tuple[str, bool]:
    """HTML of a table's cell, and whether it is a number."""
    if value is None:
        return "", False
    if isinstance(value, str):
        return inline(value), False
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return number(value), not isinstance(value, bool | np.bool_)
    return inline(str(value)), False


def anchor_of(title: str) -> str:
    """A short address for a title.

    >>> anchor_of("Flow cytometry (GvHD)")
    'flow-cytometry-gvhd'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
