"""Any function of a point as a region."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from offcut.errors import ModelError
from offcut.regions.arrays import is_traced
from offcut.regions.region import Region


def as_region(value: Any) -> Region:
    """A region as it is, a function as a ``Predicate``."""
    return value if isinstance(value, Region) else Predicate(value)


class Predicate(Region):
    """Any function of a point as a region, for windows that have no shape of their own.

    Parameters
    ----------
    function : callable ``(y[, covariate]) -> bool``
        Written for one point with ``jax.numpy``; the point may also be a dict or a tuple.
    name : str, optional
        What its repr says; by default the function's own name.

    Examples
    --------
    >>> from offcut.regions import Box, Predicate
    >>> window = Box(0, 10) & Predicate(lambda y: y**2 < 50, name="weak")
    >>> window
    Box(0, 10) & Predicate(weak)
    >>> bool(window(3.0)), bool(window(8.0))
    (True, False)
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        if not callable(function):
            raise ModelError(
                f"a window is a region or a function of one point, got {type(function).__name__}"
            )
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """What the function says, as one boolean; a number must be exactly 0 or 1."""
        result = self.function(y, *covariate)
        # Numbers become booleans here: the ~ of an integer is no boolean.
        result = result if isinstance(result, jax.Array) else np.asarray(result)
        if result.shape != ():
            raise ModelError(
                f"{self!r} returned an array of shape {result.shape} for one point; it must "
                "return one boolean: use jax.numpy.all over the point's own axes"
            )
        # Of a compiled function only the type is known; whole numbers count as yes where not 0.
        traced = is_traced(result)
        vague = result.dtype.kind not in "biu" if traced else result not in (0, 1)
        if vague:
            said = f"a number ({result.dtype})" if traced else f"{result}"
            raise ModelError(
                f"{self!r} returned {said} where a region says yes or no: return a boolean, for "
                "example with a comparison. A probability of being recorded is no window: see "
                "offcut.selected"
            )
        return result.astype(bool)[()]

    def _key(self) -> Hashable:
        function = self.function if isinstance(self.function, Hashable) else id(self.function)
        return ("Predicate", function, self.name)

    def __repr__(self) -> str:
        return f"Predicate({self.name})"
