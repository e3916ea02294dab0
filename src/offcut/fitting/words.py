"""Options of the command line that are more than a number: limits, budgets, frames, scales."""

from __future__ import annotations

import math
from typing import Any

from offcut.errors import SettingsError

NO_LIMIT = ("none", "", "-")


def parse_limits(text: str | None, option: str, size: int) -> list[float | None]:
    """A limit for each of ``size`` columns, None for none.

    >>> parse_limits("0,none", "--lower", 2), parse_limits("0", "--lower", 2)
    ([0.0, None], [0.0, 0.0])
    """
    if text is None:
        return [None] * size
    found = [_limit(word.strip(), text, option) for word in text.split(",")]
    if len(found) == 1:
        return found * size
    if len(found) != size:
        raise SettingsError(
            f"{option} {text} has {len(found)} limits, but there are {size} columns; give one for "
            f"all, or one for each with commas between them ({option} 0,none,...)"
        )
    return found


def _limit(word: str, text: str, option: str) -> float | None:
    if word.lower() in NO_LIMIT:
        return None
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise SettingsError(
            f"{option} {text}: {word!r} is no number; expected a limit for all columns, or one for "
            f"each with commas and none where there is none ({option} 0 or {option} 0,none)"
        )
    if math.isinf(number) and (number > 0) == (option == "--lower"):
        side = "above" if number > 0 else "below"
        raise SettingsError(
            f"{option} {text}: nothing lies {side} {word!r}; expected a limit, or none where there "
            "is none"
        )
    return number if math.isfinite(number) else None


def parse_budget(text: str) -> int | str | None:
    """``auto``, ``none`` or the largest number of rejections.

    >>> parse_budget("auto"), parse_budget("none"), parse_budget("20000")
    ('auto', None, 20000)
    """
    word = text.strip().lower()
    if word in ("auto", "none"):
        return "auto" if word == "auto" else None
    try:
        number = int(word.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise SettingsError(
            f"--budget {text} is not understood; expected auto, none, or a whole number of at "
            "least 1, the largest number of rejections in a sweep"
        )
    return number


def parse_frame(text: str | None, entries: int) -> tuple[int, int]:
    """Rows and columns of the frames whose entries a row of the file holds.

    >>> parse_frame(None, 6), parse_frame("4x1", 4)
    ((3, 2), (4, 1))
    """
    if text is None:
        if entries in (2, 3, 6, 9):
            return (2, 1) if entries == 2 else (3, entries // 3)
        raise SettingsError(
            f"a row has {entries} entries, and it is not known of what frame: give its rows and "
            "columns, for example --frame 3x2 for 6 entries, or choose entries with --columns"
        )
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(
        part.strip().isdecimal() and len(part) < 10 and int(part) > 0 for part in parts
    ):
        raise SettingsError(
            f"--frame {text} is not understood; expected rows x columns, for example 3x2"
        )
    d, p = (int(part) for part in parts)
    if d * p != entries:
        raise SettingsError(
            f"--frame {text} has {d * p} entries, but a row has {entries}; choose the columns that "
            "hold the entries with --columns, or give another frame"
        )
    return d, p


def parse_transform(text: str) -> Any:
    """``none``, ``asinh``, ``asinh:COFACTOR``, ``logicle``, ``log`` or ``linear:SCALE``."""
    from offcut.cytometry import Asinh, Identity, Linear, Log, Logicle

    name, colon, rest = text.strip().lower().partition(":")
    number = None
    if colon:
        try:
            number = float(rest)
        except ValueError:
            number = math.nan
    makers: dict[str, Any] = {
        "none": Identity,
        "asinh": Asinh,
        "logicle": Logicle,
        "log": Log,
        "linear": Linear,
    }
    takes = ("asinh", "linear", "logicle")
    wrong = name not in makers or (number is not None and (name not in takes or number != number))
    if wrong or (name == "linear" and number is None):
        raise SettingsError(
            f"--transform {text} is not understood; expected none, asinh, asinh:COFACTOR (such as "
            "asinh:150), logicle, logicle:TOP, log, or linear:SCALE"
        )
    return makers[name]() if number is None else makers[name](number)


def split_columns(text: str | None) -> list[str] | None:
    """Names or numbers with commas between them.

    >>> split_columns("CD4, CD8")
    ['CD4', 'CD8']
    """
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise SettingsError(
            f"--columns {text!r} has an empty name; expected names or numbers with commas between "
            "them (--columns a,b,c)"
        )
    return words


def number_or_none(text: str | None, option: str) -> float | None:
    """A positive number, or None where nothing was given."""
    if text is None or text.strip().lower() in ("infer", "auto"):
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < math.inf:
        raise SettingsError(
            f"{option} {text} is not understood; expected a positive number, or infer"
        )
    return number
