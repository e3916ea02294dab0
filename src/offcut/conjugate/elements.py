"""The entries of theta, numbered, so that each can be followed through an array program."""

from __future__ import annotations

import numpy as np

from offcut.conjugate.monomials import OTHER, Monomials, monomials, other


class Elements:
    """The entries of theta, numbered; those of Cholesky factors are added as they turn up."""

    def __init__(self) -> None:
        self.layouts: dict[tuple[str, str], np.ndarray] = {}  # (site, "itself" or "cholesky")
        self.positive = np.zeros(0, bool)

    def add(
        self, site: str, shape: tuple[int, ...], positive: bool, symmetric: bool = False
    ) -> Monomials:
        """The entries of a site; (i, j) and (j, i) are the same one in a symmetric matrix."""
        layout = self._number(shape, positive)
        if symmetric:
            layout = np.minimum(layout, layout.T)
        self.layouts[site, "itself"] = layout
        return monomials(1.0, layout, 1.0)

    def cholesky(self, a: Monomials) -> Monomials:
        """chol(c S) = sqrt(c) chol(S), for a whole symmetric site S; above its diagonal OTHER."""
        for (site, form), layout in list(self.layouts.items()):
            c = a.coefficient
            symmetric = layout.ndim == 2 and np.array_equal(layout, layout.T)
            if form == "itself" and symmetric and np.array_equal(layout, a.element):
                if not ((a.exponent == 1).all() and (c == c.flat[0]).all() and c.flat[0] > 0):
                    break
                if (site, "cholesky") not in self.layouts:
                    root = self._number(a.shape, positive=False)
                    self.layouts[site, "cholesky"] = np.where(np.tri(len(root)), root, OTHER)
                return monomials(np.sqrt(c), self.layouts[site, "cholesky"], 1.0)
        return other(a.shape)

    def _number(self, shape: tuple[int, ...], positive: bool) -> np.ndarray:
        start, size = len(self.positive), int(np.prod(shape, dtype=int))
        self.positive = np.append(self.positive, np.full(size, positive))
        return np.arange(start, start + size).reshape(shape)
