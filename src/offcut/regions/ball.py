"""Round regions: balls and spherical shells."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from offcut.errors import ModelError
from offcut.numerics.written import written
from offcut.regions.region import (
    Edge,
    Shape,
    common_length,
    identity,
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

    def __init__(self, centre: Any, radius: Any) -> None:
        self.centre = _centre(centre)
        self.radius = _number(radius, "radius")
        self.dimension = common_length(centre=self.centre)
        if not is_traced(self.radius) and not 0 < self.radius < np.inf:
            raise ModelError(f"radius must be positive and finite, got {written(self.radius)}")

    def contains(self, x: Any) -> Any:
        """|x - centre| <= radius."""
        return _distance(x, self.centre) <= self.radius

    def edges(self) -> list[Edge]:
        """The ends of an interval where the centre is a number; else a ball has none."""
        return _ends(self.centre, self.radius)

    def _key(self) -> Hashable:
        return ("Ball", identity(self.centre), identity(self.radius))

    def __repr__(self) -> str:
        return f"Ball({written(self.centre)}, {written(self.radius)})"


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

    def __init__(self, centre: Any, inner: Any, outer: Any = None) -> None:
        self.centre = _centre(centre)
        self.inner = _number(inner, "inner")
        self.outer = _number(outer, "outer", missing=np.inf)
        self.dimension = common_length(centre=self.centre)
        if not is_traced(self.inner, self.outer) and not 0 <= self.inner < self.outer:
            raise ModelError(
                f"a shell needs 0 <= inner < outer, got inner {written(self.inner)} and outer "
                f"{written(self.outer)}"
            )

    def contains(self, x: Any) -> Any:
        """inner <= |x - centre| <= outer."""
        away = _distance(x, self.centre)
        return (away >= self.inner) & (away <= self.outer)

    def edges(self) -> list[Edge]:
        """The ends of two intervals where the centre is a number; else a shell has none."""
        return _ends(self.centre, self.inner, self.outer)

    def _key(self) -> Hashable:
        return ("Shell", identity(self.centre), identity(self.inner), identity(self.outer))

    def __repr__(self) -> str:
        return f"Shell({written(self.centre)}, {written(self.inner)}, {written(self.outer)})"


def _distance(x: Any, centre: Any) -> Any:
    """|x - centre|; the root of a square is exact, so that intervals end where they say."""
    xp = namespace(x, centre)
    return xp.sqrt(xp.sum((xp.asarray(x) - centre) ** 2))


def _ends(centre: Any, *radii: Any) -> list[Edge]:
    if centre.ndim or is_traced(centre, *radii):
        return []
    ends = {float(centre + sign * radius) for radius in radii for sign in (-1, 1)}
    return [(None, end) for end in sorted(ends) if np.isfinite(end)]


def _centre(value: Any) -> Any:
    centre = parameter(value, "centre")
    if not is_traced(centre) and not np.isfinite(centre).all():
        raise ModelError(f"centre must be finite, got {written(centre)}")
    return centre


def _number(value: Any, name: str, missing: float | None = None) -> Any:
    return parameter(value, name, missing=missing, rank=0)
