r"""The box of the basis, and how many functions it takes.

The box must reach where proposals fall, and further by some length-scales, because f is drawn to
zero at its boundary; the functions must oscillate faster than f does. What both leave out is
measured as the largest error of the prior covariance between places among the data, in units of
the variance; the result reports it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcut.gp.basis import Basis
from offcut.gp.covariance import Covariance, distances

#: Beyond data and likely proposals the box reaches this many standard deviations of the data, and
#: length-scales.
BEYOND_DATA, BEYOND_SCALES = 1.0, 3.0
#: Functions at most: in all where they are products, along each axis where they are sums.
MOST_FUNCTIONS = {1: 256, 2: 400, 3: 1000}
LEAST_FUNCTIONS, STEP = 8, 4
#: Points along each axis at which the covariance is compared.
COMPARED = {1: 60, 2: 9, 3: 5}


class Box(NamedTuple):
    """Centre and half-widths (d,), in the units of the data."""

    centre: np.ndarray
    half: np.ndarray

    @property
    def lower(self) -> np.ndarray:
        """Lower corner."""
        return self.centre - self.half

    @property
    def upper(self) -> np.ndarray:
        """Upper corner."""
        return self.centre + self.half

    def inside(self, x: np.ndarray) -> np.ndarray:
        """Points (n, d) in coordinates in which the box is [-1, 1]^d."""
        return (x - self.centre) / self.half


def box_around(
    low: np.ndarray, high: np.ndarray, spread: np.ndarray, length_scale: np.ndarray
) -> Box:
    """The box for proposals mostly between ``low`` and ``high``, and some way beyond."""
    margin = BEYOND_DATA * spread + BEYOND_SCALES * length_scale
    return Box(0.5 * (low + high), 0.5 * (high - low) + margin)


def sizes_for(
    covariance: Covariance, box: Box, shortest: np.ndarray, additive: bool
) -> tuple[int, ...]:
    """Functions along each axis for length-scales down to ``shortest``, as far as allowed."""
    d = len(box.half)
    wanted = np.ceil(covariance.functions * box.half / shortest)
    # In steps of a few, so that data sets of a kind share a program.
    wanted = np.maximum(STEP * np.ceil(wanted / STEP), LEAST_FUNCTIONS)
    if additive:
        most = MOST_FUNCTIONS[1] // 4
        return tuple(int(min(m, most)) for m in wanted)
    most = MOST_FUNCTIONS.get(d, 1000)
    product = float(np.prod(wanted))
    if product > most:
        wanted = np.maximum(np.floor(wanted * (most / product) ** (1 / d)), 2)
    return tuple(int(m) for m in wanted)


def covariance_error(
    covariance: Covariance,
    box: Box,
    basis: Basis,
    length_scale: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> float:
    """Largest error of the prior covariance of f between places from ``low`` to ``high``."""
    d = len(low)
    count = COMPARED.get(d, 3)
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    if basis.additive:  # axis by axis; the sum has the mean of their errors at most
        errors = []
        for axis in range(d):
            own = Basis((basis.sizes[axis],))
            part = slice(axis, axis + 1)
            one = Box(box.centre[part], box.half[part])
            args = (length_scale[part], low[part], high[part])
            errors.append(covariance_error(covariance, one, own, *args))
        return float(np.mean(errors))
    points = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
    exact = covariance.correlation(distances(points, points, length_scale), np)
    log_S = basis.log_spectrum(covariance, np.log(length_scale / box.half), np)
    rows = np.exp(0.5 * log_S)[:, None] * basis.features(box.inside(points).T)
    return float(np.abs(rows.T @ rows - exact).max())
