"""Names as text: those from files, which may hold anything, and old ones of arguments.

It is read where nothing is computed; values as text are in ``rendering.py``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from offcut.errors import ModelError, SettingsError

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
        if (lines and character == "\n")
        or (unicodedata.category(character) not in _ACTING and character not in _TURNING)
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def shortened(text: str, most: int) -> str:
    """The beginning of a text that is too long for its place.

    >>> shortened("forward scatter", 8)
    'forward…'
    """
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


#: A function, or a class, whose ``__init__`` is meant.
Called = TypeVar("Called", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[Called], Called]:
    """Refuse old names of arguments, and say the new ones.

    >>> @renamed(kernel="covariance")
    ... def density(covariance="matern32"): ...
    >>> density(kernel="matern52")
    Traceback (most recent call last):
        ...
    offcut.errors.ModelError: kernel= is called covariance= here: give covariance='matern52'
    """

    def answer(old: str, value: object) -> Exception:
        return ModelError(f"{old}= is called {names[old]}= here: give {names[old]}={value!r}")

    return _refusing(tuple(names), answer)


def moved(**answers: Callable[[object], str]) -> Callable[[Called], Called]:
    """Refuse arguments that belong elsewhere now; ``answers`` say what to write for a value.

    >>> @moved(method=lambda value: f"give offcut.sample(model, data, method={value!r})")
    ... def model(prior): ...
    >>> model(1, method="exchange")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    offcut.errors.SettingsError: method='exchange' has another place now: give ...
    """

    def answer(name: str, value: object) -> Exception:
        return SettingsError(f"{name}={value!r} has another place now: {answers[name](value)}")

    return _refusing(tuple(answers), answer)


def _refusing(
    names: tuple[str, ...], answer: Callable[[str, object], Exception]
) -> Callable[[Called], Called]:
    """Raise the answer where one of the names is among the arguments."""

    def decorate(called: Called) -> Called:
        function = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]

        @wraps(function)
        def call(*arguments: object, **settings: object) -> object:
            for name in names:
                if name in settings:
                    raise answer(name, settings[name])
            return function(*arguments, **settings)

        if not isinstance(called, type):
            return call  # type: ignore[return-value]
        called.__init__ = call  # type: ignore[misc]
        return called

    return decorate
