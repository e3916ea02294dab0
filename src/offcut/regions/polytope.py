"""Regions with flat sides: polytopes and the simplex."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from offcut.errors import ModelError
from offcut.numerics.written import written
from offcut.regions.region import Edge, Shape, identity, is_traced, namespace, parameter


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

    def __init__(self, A: Any, b: Any) -> None:
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
    def from_vertices(cls, points: Any) -> Polytope:
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

        points = parameter(points, "points", rank=2)
        if is_traced(points) or points.ndim != 2 or not np.isfinite(points).all():
            raise ModelError(f"points must be a matrix of finite numbers, got {written(points)}")
        if points.shape[1] == 1:  # Qhull starts at two dimensions
            A = np.array([[-1.0], [1.0]])
        else:
            try:
                hull = ConvexHull(points)
            except (QhullError, ValueError) as error:
                raise ModelError(
                    f"the hull of these {len(points)} points has no volume in "
                    f"{points.shape[1]} dimensions: at least {points.shape[1] + 1} points are "
                    "needed, not all in one plane"
                ) from error
            A = np.unique(hull.equations[:, :-1], axis=0)  # coplanar facets come more than once
        # Limits from the points, and where sums are rounded by so much more that none is left out.
        rounding = points.shape[1] * np.finfo(float).eps * (abs(points) @ abs(A).T).max(axis=0)
        oblique = np.count_nonzero(A, axis=1) > 1
        return cls(A, (points @ A.T).max(axis=0) + np.where(oblique, rounding, 0.0))

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

    def contains(self, x: Any) -> Any:
        """A x <= b in every row."""
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

    def _key(self) -> Hashable:
        return ("Polytope", identity(self.A), identity(self.b))

    def __repr__(self) -> str:
        return f"Polytope({written(self.A)}, {written(self.b)})"


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

    def __init__(self, total: Any = 1.0) -> None:
        self.total = parameter(total, "total", rank=0)
        if not is_traced(self.total) and not 0 < self.total < np.inf:
            raise ModelError(f"total must be positive and finite, got {written(self.total)}")

    def contains(self, x: Any) -> Any:
        """X >= 0 in every coordinate, and their sum at most total."""
        return (x >= 0).all() & (x.sum() <= self.total)

    def edges(self) -> list[Edge]:
        """Zero for every coordinate, and the total."""
        totals = [] if is_traced(self.total) else [self.total.item()]
        return [(None, value) for value in (0.0, *totals)]

    def _key(self) -> Hashable:
        return ("Simplex", identity(self.total))

    def __repr__(self) -> str:
        return f"Simplex({written(self.total)})"
