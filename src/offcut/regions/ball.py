"""Round regions: balls and spherical shells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from offcut.errors import ModelError
from offcut.numerics.rendering import written
from offcut.regions.line import merged
from offcut.regions.region import (
    Edge,
    Intervals,
    Numbers,
    Shape,
    common_length,
    is_traced,
    namespace,
    parameter,
)


class Ball(Shape):
    """Points within a distance of a centre, the sphere included.

    Parameters
    ----------
    centre : number or vector
        A number holds for points that are numbers and for all coordinates of a vector.
    radius : number
        Positive and finite.

    Examples
    --------
    >>> from offcut.regions import Ball
    >>> beam = Ball([0, 0], 1.5)
    >>> bool(beam([1.0, 1.0])), bool((~beam)([1.0, 1.0]))
    (True, False)
    """

    parameters = ("centre", "radius")

    def __init__(self, centre: ArrayLike, radius: ArrayLike) -> None:
        self.centre = _centre(centre)
        self.radius = parameter(radius, "radius", rank=0)
        self.dimension = common_length(centre=self.centre)
        if not is_traced(self.radius) and not 0 < self.radius < np.inf:
            raise ModelError(f"radius must be positive and finite, got {written(self.radius)}")

    def contains(self, x: Numbers) -> Any:
        return _distance(x, self.centre) <= self.radius

    def edges(self) -> list[Edge]:
        """The ends of an interval where the centre is a number; else a ball has none."""
        return _ends(self.centre, self.radius)

    def pieces(self) -> Intervals | None:
        if is_traced(self.numbers()):
            return None
        centre, radius = self.centre.item(), self.radius.item()
        return merged([(centre - radius, centre + radius)])


class Shell(Shape):
    """Points between two spheres around one centre, both included.

    Parameters
    ----------
    centre : number or vector
        As in ``Ball``.
    inner, outer : number
        Distances from the centre; ``outer`` may be None or infinite.

    Examples
    --------
    >>> from offcut.regions import Shell
    >>> ring = Shell([0, 0], 1, 2)
    >>> bool(ring([0.0, 1.5])), bool(ring([0.0, 0.5]))
    (True, False)
    """

    parameters = ("centre", "inner", "outer")

    def __init__(self, centre: ArrayLike, inner: ArrayLike, outer: ArrayLike | None = None) -> None:
        self.centre = _centre(centre)
        self.inner = parameter(inner, "inner", rank=0)
        self.outer = parameter(outer, "outer", missing=np.inf, rank=0)
        self.dimension = common_length(centre=self.centre)
        if not is_traced(self.inner, self.outer) and not 0 <= self.inner < self.outer:
            raise ModelError(
                f"a shell needs 0 <= inner < outer, got inner {written(self.inner)} and outer "
                f"{written(self.outer)}"
            )

    def contains(self, x: Numbers) -> Any:
        away = _distance(x, self.centre)
        return (away >= self.inner) & (away <= self.outer)

    def edges(self) -> list[Edge]:
        """The ends of two intervals where the centre is a number; else a shell has none."""
        return _ends(self.centre, self.inner, self.outer)

    def pieces(self) -> Intervals | None:
        if is_traced(self.numbers()):
            return None
        centre, inner, outer = (numbers.item() for numbers in self.numbers())
        return merged([(centre - outer, centre - inner), (centre + inner, centre + outer)])


def _distance(x: Numbers, centre: Numbers) -> Any:
    """|x - centre|; the root of a square is exact, so that intervals end where they say."""
    xp = namespace(x, centre)
    return xp.sqrt(xp.sum((xp.asarray(x) - centre) ** 2))


def _ends(centre: Numbers, *radii: Numbers) -> list[Edge]:
    if centre.ndim or is_traced(centre, *radii):
        return []
    ends = {float(centre + sign * radius) for radius in radii for sign in (-1, 1)}
    return [(None, end) for end in sorted(ends) if np.isfinite(end)]


def _centre(value: ArrayLike) -> Any:
    centre = parameter(value, "centre")
    if not is_traced(centre) and not np.isfinite(centre).all():
        raise ModelError(f"centre must be finite, got {written(centre)}")
    return centre
