"""Spillover: each dye is seen by detectors that are not its own; compensation undoes that.

A detector's value is a sum over dyes, observed_j = sum_i x_i S_ij, with the spillover matrix S (a
row for each dye, a column for each detector, ones on the diagonal). Compensation solves for x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from offcut.errors import DataError


@dataclass(frozen=True, eq=False, init=False)
class Compensation:
    """A spillover matrix and the channels it is about.

    Parameters
    ----------
    detectors : sequence of str
        Channels, in the order of the matrix.
    spillover : square array
        A row for each dye, a column for each detector.

    Examples
    --------
    >>> from offcut.cytometry import Compensation
    >>> compensation = Compensation(["green", "yellow"], [[1.0, 0.2], [0.0, 1.0]])
    >>> compensation.compensated([[100.0, 25.0]])
    array([[100.,   5.]])
    """

    detectors: tuple[str, ...]
    spillover: Float[np.ndarray, "dyes detectors"]

    def __init__(self, detectors: Sequence[str], spillover: ArrayLike) -> None:
        matrix = np.array(spillover, dtype=float)
        object.__setattr__(self, "detectors", tuple(detectors))
        object.__setattr__(self, "spillover", matrix)
        size = len(self.detectors)
        if matrix.shape != (size, size):
            raise DataError(
                f"a spillover matrix for {size} channels ({', '.join(self.detectors)}) has shape "
                f"({size}, {size}), got {matrix.shape}"
            )
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix) < size:
            raise DataError(
                "the spillover matrix has no inverse (or is not finite), so what the dyes emitted "
                "cannot be found from what the detectors saw; check its rows"
            )

    def compensated(self, observed: ArrayLike) -> Float[np.ndarray, "events dyes"]:
        """Rows of detectors' values as rows of dyes' values."""
        return np.linalg.solve(self.spillover.T, np.asarray(observed, float).T).T

    def among(self, channels: Sequence[str]) -> Float[np.ndarray, "channels channels"]:
        """The spillover between the given channels, with ones for those that it is not about.

        What a detector saw can be told from the dyes among ``channels`` only if no other dye
        reaches it; otherwise this is an error.
        """
        matrix = np.eye(len(channels))
        inside = {name: place for place, name in enumerate(channels)}
        for column, detector in enumerate(self.detectors):
            if detector not in inside:
                continue
            for row, dye in enumerate(self.detectors):
                value = self.spillover[row, column]
                if dye in inside:
                    matrix[inside[dye], inside[detector]] = value
                elif value != 0:
                    raise DataError(
                        f"{detector} also sees {value:g} of {dye}, which is not among the channels "
                        f"{', '.join(channels)}; so their compensated values do not say what the "
                        f"instrument saw, and its window cannot be told. Choose {dye} too, do "
                        "without the window (window=(None, None)), or without compensation"
                    )
        return matrix
