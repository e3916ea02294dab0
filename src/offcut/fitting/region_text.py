"""A region from the text that regions print, ``Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)``.

The text comes from a command line, so it is taken apart by ``ast`` and never evaluated: what is not
a region, a number, a list or one of & | ~ is refused, and the message shows which part it was.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from operator import and_, or_
from typing import Any

from offcut import regions
from offcut.errors import ModelError, SettingsError

SHAPES: dict[str, Callable[..., Any]] = {
    name: getattr(regions, name)
    for name in ("Box", "Orthant", "Simplex", "Ball", "Shell", "Polytope")
}
NAMES = {"inf": math.inf, "None": None, "none": None, "True": True, "False": False}
EXAMPLE = "Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)"


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
    >>> from offcut.fitting.region_text import parse_region
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
        region = _region(tree, text.strip())
    except ModelError as error:
        raise SettingsError(f"the region {text!r} cannot be: {error}") from error
    except (TypeError, RecursionError, OverflowError) as error:
        raise SettingsError(
            f"the region {text!r} cannot be: {error}. For example {EXAMPLE}"
        ) from error
    return region


def _region(node: ast.expr, text: str) -> regions.Region:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        combine = and_ if isinstance(node.op, ast.BitAnd) else or_
        return combine(_region(node.left, text), _region(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_region(node.operand, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SHAPES:
        if any(keyword.arg is None for keyword in node.keywords):
            raise _refused(node, text)
        given = [_value(argument, text) for argument in node.args]
        named = {str(part.arg): _value(part.value, text) for part in node.keywords}
        return SHAPES[node.func.id](*given, **named)
    raise _refused(node, text)


def _value(node: ast.expr, text: str) -> Any:
    """A number, a word, or a list of these."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str | None):
        return node.value
    if isinstance(node, ast.Name) and node.id in NAMES:
        return NAMES[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _value(node.operand, text)
        if isinstance(number, int | float):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(part, text) for part in node.elts]
    raise _refused(node, text)


def _refused(node: ast.expr, text: str) -> SettingsError:
    part = ast.get_source_segment(text, node) or text
    return SettingsError(
        f"in the region {text!r} the part {part!r} is not understood: known are "
        f"{', '.join(SHAPES)} with numbers, lists and inf, and &, |, ~ between them, for example "
        f"{EXAMPLE}"
    )
