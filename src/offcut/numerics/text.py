"""Names as text: those from files, which may hold anything, and old ones of arguments.

It is read where nothing is computed; values as text are in ``rendering.py``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from offcut.errors import ModelError

#: Kinds of characters that do something instead of being seen: controls (terminal escapes among
#: them), halves of characters (bytes of file names that are no UTF-8), ends of lines.
_ACTING = ("Cc", "Cs", "Zl", "Zp")
#: They turn the direction of what follows, so that text reads as what it is not.
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: object, *, lines: bool = False) -> str:
    """Text in which every character is seen; those that act are written out.

    Parameters
    ----------
    text : object
    lines : bool
        Whether ends of lines stay as they are.

    Examples
    --------
    >>> print(visible("CD4\\x1b[31m, \\u202eabc"))
    CD4\\x1b[31m, \\u202eabc
    >>> visible("two\\nlines", lines=True)
    'two\\nlines'
    """
    return "".join(
        character
        if (lines and character == "\n") or not _acts(character)
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTING or character in _TURNING


def shortened(text: str, most: int) -> str:
    """The beginning of a text that is too long for its place.

    >>> shortened("forward scatter", 8)
    'forward…'
    """
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Refuse old names of arguments, and say the new ones.

    >>> @renamed(kernel="covariance")
    ... def density(covariance="matern32"): ...
    >>> density(kernel="matern52")
    Traceback (most recent call last):
        ...
    offcut.errors.ModelError: kernel= is called covariance= here: give covariance='matern52'
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def call(*arguments: object, **settings: object) -> R:
            for old, new in names.items():
                if old in settings:
                    raise ModelError(f"{old}= is called {new}= here: give {new}={settings[old]!r}")
            return function(*arguments, **settings)

        return call

    return decorate
