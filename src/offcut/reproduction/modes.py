"""Modes of a density on a grid, and how far each stands out."""

from __future__ import annotations

import numpy as np


def modes(log_density: np.ndarray, least: float = 0.2) -> list[tuple[tuple[int, ...], float]]:
    """Peaks that stand out, the highest first.

    A peak's prominence is how far one must go down (in log density) on the best way from it to
    a higher one; of the highest peak it is infinite. Found by flooding from above: cells in falling
    order, each joined to the basins beside it.

    Parameters
    ----------
    log_density : array
        On a grid of one or two dimensions; -inf where there is nothing.
    least : float
        Smallest prominence.

    Returns
    -------
    list of (index, prominence)

    Examples
    --------
    >>> [(at, round(high, 1)) for at, high in modes(np.array([0.0, 2.0, 1.0, 3.0, 0.0]))]
    [((3,), inf), ((1,), 1.0)]
    """
    shape = log_density.shape
    values = log_density.ravel()
    basin = np.full(values.size, -1)
    parent: dict[int, int] = {}
    prominence: dict[int, float] = {}

    def root(cell: int) -> int:
        while parent[cell] != cell:
            cell = parent[cell]
        return cell

    for cell in np.argsort(-values, kind="stable"):
        if values[cell] == -np.inf:
            break
        cell = int(cell)
        place = np.unravel_index(cell, shape)
        beside = {root(int(basin[k])) for k in _neighbours(place, shape) if basin[k] >= 0}
        if not beside:
            parent[cell], prominence[cell], basin[cell] = cell, np.inf, cell
            continue
        highest = max(beside, key=lambda peak: (values[peak], -peak))
        basin[cell] = highest
        for peak in beside - {highest}:
            prominence[peak] = float(values[peak] - values[cell])
            parent[peak] = highest
    found = [(peak, high) for peak, high in prominence.items() if high >= least]
    found.sort(key=lambda one: -values[one[0]])
    return [(tuple(map(int, np.unravel_index(peak, shape))), high) for peak, high in found]


def _neighbours(place: tuple, shape: tuple[int, ...]) -> list[int]:
    """Flat indices of the cells around, diagonals included."""
    around = np.stack(np.meshgrid(*[[-1, 0, 1]] * len(shape), indexing="ij"), axis=-1)
    cells = np.asarray(place) + around.reshape(-1, len(shape))
    kept = cells[((cells >= 0) & (cells < shape)).all(axis=1) & (cells != place).any(axis=1)]
    return [int(k) for k in np.ravel_multi_index(kept.T, shape)]
