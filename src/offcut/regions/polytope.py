"""Regions with flat sides: polytopes and the simplex."""

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
    is_traced,
    namespace,
    parameter,
)


class Polytope(Shape):
    """Points that satisfy linear inequalities, A x <= b.

    Parameters
    ----------
    A : matrix
        A row for each inequality, a column for each coordinate.
    b : vector or number
        The right-hand sides.

    Examples
    --------
    >>> from offcut.regions import Polytope
    >>> below_diagonal = Polytope([[-1, 1]], [0])
    >>> bool(below_diagonal([2.0, 1.0])), bool(below_diagonal([1.0, 2.0]))
    (True, False)
    """

    parameters = ("A", "b")

    def __init__(self, A: ArrayLike, b: ArrayLike) -> None:
        self.A = parameter(A, "A", rank=2)
        right = parameter(b, "b")
        if self.A.ndim != 2 or 0 in self.A.shape:
            raise ModelError(
                "A must be a matrix with a row for each inequality and a column for each "
                f"coordinate, got shape {self.A.shape}"
            )
        rows, self.dimension = self.A.shape
        if right.shape not in ((), (rows,)):
            raise ModelError(f"A has {rows} rows, so b needs {rows} entries; got {right.shape}")
        self.b = namespace(right).broadcast_to(right, (rows,))
        if not is_traced(self.A, self.b):
            self._check()

    @classmethod
    def from_vertices(cls, points: ArrayLike) -> Polytope:
        """The convex hull of points, one in each row.

        Parameters
        ----------
        points : array of shape (points, dimension)

        Returns
        -------
        Polytope

        Examples
        --------
        >>> from offcut.regions import Polytope
        >>> triangle = Polytope.from_vertices([[0, 0], [4, 0], [0, 3]])
        >>> bool(triangle([1.0, 1.0])), bool(triangle([3.0, 3.0]))
        (True, False)
        """
        from scipy.spatial import ConvexHull, QhullError

        given = parameter(points, "points", rank=2)
        if is_traced(given) or given.ndim != 2 or not np.isfinite(given).all():
            raise ModelError(f"points must be a matrix of finite numbers, got {written(given)}")
        if given.shape[1] == 1:  # Qhull starts at two dimensions
            A = np.array([[-1.0], [1.0]])
        else:
            try:
                hull = ConvexHull(given)
            except (QhullError, ValueError) as error:
                raise ModelError(
                    f"the hull of these {len(given)} points has no volume in "
                    f"{given.shape[1]} dimensions: at least {given.shape[1] + 1} points are "
                    "needed, not all in one plane"
                ) from error
            A = np.unique(hull.equations[:, :-1], axis=0)  # coplanar facets come more than once
        # Limits from the points, and where sums are rounded by so much more that none is left out.
        rounding = given.shape[1] * np.finfo(float).eps * (abs(given) @ abs(A).T).max(axis=0)
        oblique = np.count_nonzero(A, axis=1) > 1
        return cls(A, (given @ A.T).max(axis=0) + np.where(oblique, rounding, 0.0))

    def _check(self) -> None:
        """Refuse what is no polytope, or has no point."""
        from scipy.optimize import linprog

        if not np.isfinite(self.A).all() or np.isneginf(self.b).any():
            raise ModelError("A must be finite, and b must not be -inf")
        limited = np.isfinite(self.b)
        if limited.any():
            nothing = np.zeros(self.A.shape[1])
            found = linprog(nothing, self.A[limited], self.b[limited], bounds=(None, None))
            if found.status == 2:  # infeasible
                raise ModelError(f"no point satisfies A x <= b: {self!r} is empty")

    def contains(self, x: Numbers) -> Any:
        xp = namespace(x, self.A, self.b)
        return (xp.asarray(self.A) @ xp.asarray(x) <= self.b).all()

    def edges(self) -> list[Edge]:
        """Of the rows that are about one coordinate."""
        if is_traced(self.A, self.b):
            return []
        edges: list[Edge] = []
        for row, limit in zip(self.A, self.b, strict=True):
            about = np.flatnonzero(row)
            if len(about) == 1 and np.isfinite(limit):
                edges.append((int(about[0]), float(limit / row[about[0]])))
        return list(dict.fromkeys(edges))

    def pieces(self) -> Intervals | None:
        if is_traced(self.numbers()):
            return None
        slope, limit = self.A[:, 0], self.b
        if (limit[slope == 0] < 0).any():
            return []
        low = np.max(limit[slope < 0] / slope[slope < 0], initial=-np.inf)
        high = np.min(limit[slope > 0] / slope[slope > 0], initial=np.inf)
        return merged([(float(low), float(high))])


class Simplex(Shape):
    """The solid simplex: coordinates that are not negative and sum to at most ``total``.

    Its outer face, where the sum is exactly ``total``, has no volume: no draw from a density over
    all coordinates ever lies on it. For shares that sum to one, drop one of them (it is one minus
    the rest) and let this simplex be the window of the others.

    Parameters
    ----------
    total : number
        Positive and finite.

    Examples
    --------
    >>> from offcut.regions import Simplex
    >>> shares = Simplex()
    >>> bool(shares([0.2, 0.3])), bool(shares([0.8, 0.3]))
    (True, False)
    """

    parameters = ("total",)

    def __init__(self, total: ArrayLike = 1.0) -> None:
        self.total = parameter(total, "total", rank=0)
        if not is_traced(self.total) and not 0 < self.total < np.inf:
            raise ModelError(f"total must be positive and finite, got {written(self.total)}")

    def contains(self, x: Numbers) -> Any:
        return (x >= 0).all() & (x.sum() <= self.total)

    def edges(self) -> list[Edge]:
        """Zero for every coordinate, and the total."""
        totals = [] if is_traced(self.total) else [self.total.item()]
        return [(None, value) for value in (0.0, *totals)]

    def pieces(self) -> Intervals | None:
        return None if is_traced(self.total) else [(0.0, self.total.item())]
