"""Regions with sides parallel to the axes: boxes and orthants."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy.typing import ArrayLike

from offcut.errors import ModelError
from offcut.numerics.rendering import written
from offcut.regions.line import merged
from offcut.regions.region import (
    Edge,
    Intervals,
    Limits,
    Numbers,
    Shape,
    common_length,
    identity,
    is_traced,
    namespace,
    parameter,
)

#: Which ends belong to the interval, in the words of pandas.Interval.
SIDES = {
    "both": (True, True),
    "left": (True, False),
    "right": (False, True),
    "neither": (False, False),
}


class Box(Shape):
    """An interval for each coordinate; for points that are numbers, an interval.

    Parameters
    ----------
    lower, upper : number or vector, optional
        Limits; None or an infinity for none. A number holds for points that are numbers and for
        all coordinates of a vector. Limits may be traced by JAX, as in a window that differs by
        observation; then they are not checked.
    closed : "both", "left", "right" or "neither"
        Which limits belong to the box; one word, or one for each coordinate.

    Examples
    --------
    >>> from offcut.regions import Box
    >>> Box(0, 1, closed="left")
    Box(0, 1, closed='left')
    >>> window = Box([0, 0], [1, None])
    >>> window
    Box([0, 0], [1, inf])
    >>> bool(window([0.5, 20.0])), bool(window([2.0, 20.0]))
    (True, False)

    A window of its own for each observation, given as covariates:

    >>> inside = lambda y, c: Box(c["lower"], c["upper"])(y)
    >>> bool(inside(0.3, {"lower": 0.0, "upper": 0.5}))
    True
    """

    parameters = ("lower", "upper", "closed_lower", "closed_upper")

    def __init__(
        self,
        lower: Limits = None,
        upper: Limits = None,
        closed: str | Sequence[str] = "both",
    ) -> None:
        low = parameter(lower, "lower", missing=-np.inf)
        high = parameter(upper, "upper", missing=np.inf)
        left, right = _sides(closed)
        self.dimension = common_length(lower=low, upper=high, closed=left)
        shape = () if self.dimension is None else (self.dimension,)
        self.lower = namespace(low).broadcast_to(low, shape)
        self.upper = namespace(high).broadcast_to(high, shape)
        self.closed_lower = np.broadcast_to(left, shape)
        self.closed_upper = np.broadcast_to(right, shape)
        if not is_traced(self.lower, self.upper):
            self._check()

    def _check(self) -> None:
        """Refuse what holds no point."""
        low, high = np.atleast_1d(self.lower), np.atleast_1d(self.upper)
        ends = np.atleast_1d(self.closed_lower & self.closed_upper)
        for problem, said in (
            (low > high, "lower exceeds upper"),
            ((low == high) & ~ends, "an interval without its ends is empty"),
            (np.isposinf(low) | np.isneginf(high), "nothing lies beyond infinity"),
        ):
            for i in np.flatnonzero(problem):
                where = "" if self.dimension is None else f" in coordinate {i}"
                raise ModelError(f"{said}{where}: from {written(low[i])} to {written(high[i])}")

    def contains(self, x: Numbers) -> Any:
        """lower <= x <= upper in every coordinate, < where the side is open."""
        xp = namespace(x, self.lower, self.upper)
        x = xp.asarray(x)
        above = xp.where(self.closed_lower, x >= self.lower, x > self.lower)
        below = xp.where(self.closed_upper, x <= self.upper, x < self.upper)
        return (above & below).all()

    def edges(self) -> list[Edge]:
        if is_traced(self.lower, self.upper):
            return []
        limits = np.stack([np.atleast_1d(self.lower), np.atleast_1d(self.upper)], axis=1)
        return [
            (None if self.dimension is None else coordinate, float(value))
            for coordinate, pair in enumerate(limits)
            for value in dict.fromkeys(pair.tolist())
            if np.isfinite(value)
        ]

    def pieces(self) -> Intervals | None:
        if is_traced(self.lower, self.upper):
            return None
        return merged([(self.lower.item(), self.upper.item())])

    def _key(self) -> Hashable:
        return ("Box", *map(identity, self.numbers()))  # an orthant equals the same box

    def __repr__(self) -> str:
        words = {sides: word for word, sides in SIDES.items()}
        pairs = zip(self.closed_lower.flat, self.closed_upper.flat, strict=True)
        used = [words[bool(left), bool(right)] for left, right in pairs]
        closed = used[0] if len(set(used)) == 1 else used
        last = "" if closed == "both" else f", closed={closed!r}"
        return f"Box({written(self.lower)}, {written(self.upper)}{last})"


class Orthant(Box):
    """Everything on one side of a corner, in each coordinate: a box with one limit each.

    Parameters
    ----------
    signs : 1 or -1, or a vector of them
        The side: above the corner or below it.
    corner : number or vector
        By default the origin.
    closed : bool
        Whether the limits belong to it.

    Examples
    --------
    >>> from offcut.regions import Box, Orthant
    >>> quadrant = Orthant([1, -1])
    >>> bool(quadrant([0.2, -3.0])), bool(quadrant([0.2, 3.0]))
    (True, False)
    >>> quadrant == Box([0, None], [None, 0])
    True
    """

    def __init__(self, signs: ArrayLike = 1, corner: ArrayLike = 0.0, closed: bool = True) -> None:
        self.signs = parameter(signs, "signs")
        if is_traced(self.signs) or not np.isin(self.signs, (-1, 1)).all():
            raise ModelError(f"signs are 1 or -1 for each coordinate, got {written(self.signs)}")
        self.corner = parameter(corner, "corner")
        if not is_traced(self.corner) and not np.isfinite(self.corner).all():
            raise ModelError(f"corner must be finite, got {written(self.corner)}; use Box for less")
        common_length(signs=self.signs, corner=self.corner)
        xp = namespace(self.corner)
        super().__init__(
            xp.where(self.signs > 0, self.corner, -np.inf),
            xp.where(self.signs > 0, np.inf, self.corner),
            "both" if closed else "neither",
        )

    def __repr__(self) -> str:
        last = "" if self.closed_lower.all() else ", closed=False"
        return f"Orthant({written(self.signs)}, {written(self.corner)}{last})"


def _sides(
    closed: str | Sequence[str],
) -> tuple[Bool[np.ndarray, " ..."], Bool[np.ndarray, " ..."]]:
    """Whether lower and upper limits belong to the box."""
    words = [closed] if isinstance(closed, str) else list(closed)
    unknown = [word for word in words if word not in SIDES]
    if unknown:
        raise ModelError(f"closed must be one of {', '.join(SIDES)}, got {unknown[0]!r}")
    pairs = np.array([SIDES[word] for word in words], dtype=bool).reshape(-1, 2)
    shape = () if isinstance(closed, str) else (len(words),)
    return pairs[:, 0].reshape(shape), pairs[:, 1].reshape(shape)
