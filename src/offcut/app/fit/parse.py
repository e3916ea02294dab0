"""Options of the command line that are more than a number: regions, limits, budgets and so on.

A region is written as regions print themselves, ``Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)``. The
text comes from a command line, so it is taken apart by ``ast`` and never evaluated: what is not a
region, a number, a list or one of & | ~ is refused, and the message shows which part it was.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from operator import and_, or_
from typing import TYPE_CHECKING

from offcut import regions
from offcut.errors import ModelError, SettingsError

if TYPE_CHECKING:
    from offcut.cytometry import Transform

SHAPES: dict[str, Callable[..., regions.Region]] = {
    name: getattr(regions, name)
    for name in ("Box", "Orthant", "Simplex", "Ball", "Shell", "Polytope")
}
NAMES = {"inf": math.inf, "None": None, "none": None, "True": True, "False": False}
EXAMPLE = "Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)"
#: What an argument of a region can be.
Value = str | float | None | list["Value"]


def parse_region(text: str) -> regions.Region:
    """The region that a text describes.

    Parameters
    ----------
    text : str
        In the form that regions print: ``Box``, ``Orthant``, ``Simplex``, ``Ball``, ``Shell`` and
        ``Polytope`` with numbers, lists and ``inf``, combined with ``&``, ``|`` and ``~``.

    Returns
    -------
    Region

    Examples
    --------
    >>> from offcut.app.fit.parse import parse_region
    >>> parse_region("Box([0, 0], [4, inf]) & ~Ball([1, 1], 0.5)")
    Box([0, 0], [4, inf]) & ~Ball([1, 1], 0.5)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "offset", None)
        where = f" at {text.strip()[place - 1 :]!r}" if place else ""
        raise SettingsError(
            f"the region {text!r} cannot be read{where}: it must be written as regions print "
            f"themselves, for example {EXAMPLE}"
        ) from error
    try:
        return _region(tree, text.strip())
    except ModelError as error:
        raise SettingsError(f"the region {text!r} cannot be: {error}") from error
    except (TypeError, RecursionError, OverflowError) as error:
        raise SettingsError(
            f"the region {text!r} cannot be: {error}. For example {EXAMPLE}"
        ) from error


def _region(node: ast.expr, text: str) -> regions.Region:
    match node:
        case ast.BinOp(left, ast.BitAnd() | ast.BitOr() as sign, right):
            combine = and_ if isinstance(sign, ast.BitAnd) else or_
            return combine(_region(left, text), _region(right, text))
        case ast.UnaryOp(ast.Invert(), operand):
            return ~_region(operand, text)
        case ast.Call(ast.Name(name), given, named) if name in SHAPES and all(
            one.arg for one in named
        ):
            return SHAPES[name](
                *(_value(one, text) for one in given),
                **{str(one.arg): _value(one.value, text) for one in named},
            )
    raise _refused(node, text)


def _value(node: ast.expr, text: str) -> Value:
    """A number, a word, or a list of these."""
    match node:
        case ast.Constant(int() | float() | str() | None as value):
            return value
        case ast.Name(name) if name in NAMES:
            return NAMES[name]
        case ast.UnaryOp(ast.USub() | ast.UAdd() as sign, operand):
            number = _value(operand, text)
            if isinstance(number, int | float):
                return -number if isinstance(sign, ast.USub) else number
        case ast.List(parts) | ast.Tuple(parts):
            return [_value(part, text) for part in parts]
    raise _refused(node, text)


def _refused(node: ast.expr, text: str) -> SettingsError:
    part = ast.get_source_segment(text, node) or text
    return SettingsError(
        f"in the region {text!r} the part {part!r} is not understood: known are "
        f"{', '.join(SHAPES)} with numbers, lists and inf, and &, |, ~ between them, for example "
        f"{EXAMPLE}"
    )


def _number(text: str) -> float:
    """NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


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
    if word.lower() in ("none", "", "-"):
        return None
    number = _number(word)
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
        number = int(word)
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


def parse_transform(text: str) -> Transform:
    """``none``, ``asinh``, ``asinh:COFACTOR``, ``logicle``, ``log`` or ``linear:SCALE``."""
    from offcut.cytometry import Asinh, Identity, Linear, Log, Logicle

    name, colon, rest = text.strip().lower().partition(":")
    plain = {"none": Identity, "asinh": Asinh, "logicle": Logicle, "log": Log}
    with_number = {"asinh": Asinh, "linear": Linear, "logicle": Logicle}
    if not colon and name in plain:
        return plain[name]()
    if colon and name in with_number and not math.isnan(_number(rest)):
        return with_number[name](_number(rest))
    raise SettingsError(
        f"--transform {text} is not understood; expected none, asinh, asinh:COFACTOR (such as "
        "asinh:150), logicle, logicle:TOP, log, or linear:SCALE"
    )


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
    number = _number(text)
    if not 0 < number < math.inf:
        raise SettingsError(
            f"{option} {text} is not understood; expected a positive number, or infer"
        )
    return number
