"""Ellipsoids: a normal population up to a probability.

A normal population with mean m and covariance C has, within (x - m)' C^-1 (x - m) <= q, the
probability P(chi-square with d degrees of freedom <= q). Gates are drawn at such a q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.cytometry.optional import needed
from offcut.cytometry.points import checked_channels, checked_numbers, coordinates, dimensions
from offcut.errors import DataError


def distance_square(probability: float, dimension: int) -> float:
    """The squared Mahalanobis distance within which a normal variable has this probability.

    >>> round(distance_square(0.95, 2), 4)
    5.9915
    """
    from scipy.stats import chi2

    if not 0 < probability < 1:
        raise DataError(f"probability must be between 0 and 1, got {probability}")
    return float(chi2.ppf(probability, dimension))


@dataclass(frozen=True, eq=False)
class EllipsoidGate:
    """Points within a Mahalanobis distance of a population's mean.

    Parameters
    ----------
    name : str
    channels : sequence of str
        Two or more.
    mean : vector
    covariance : matrix
        Positive definite.
    distance_square : number
        The squared distance of the surface; ``distance_square(0.95, dimension)`` for 95 %.

    Examples
    --------
    >>> from offcut.cytometry import EllipsoidGate
    >>> gate = EllipsoidGate("low", ["CD4", "CD8"], [0, 0], [[1, 0], [0, 4]], distance_square=1)
    >>> gate.contains([[0.0, 1.9], [1.9, 0.0]])
    array([ True, False])
    """

    name: str
    channels: Sequence[str]
    mean: np.ndarray
    covariance: np.ndarray
    distance_square: float

    def __post_init__(self) -> None:
        size = checked_channels(self, least=2)
        checked_numbers(self, "mean", (size,))
        checked_numbers(self, "covariance", (size, size))
        symmetric = np.allclose(self.covariance, self.covariance.T, rtol=1e-8, atol=0)
        if not symmetric or np.linalg.eigvalsh(self.covariance).min() <= 0:
            raise DataError(f"the covariance of gate {self.name!r} is not positive definite")
        if not 0 < self.distance_square < np.inf:
            raise DataError(
                f"distance_square of gate {self.name!r} must be positive, got "
                f"{self.distance_square}"
            )

    def contains(self, points: Any) -> np.ndarray:
        """Whether each point lies within.

        Parameters
        ----------
        points : array with a column for each of the gate's channels, Events, DataFrame or dict

        Returns
        -------
        boolean array
        """
        away = coordinates(points, self.channels) - self.mean
        inside: np.ndarray = (
            np.einsum("ni,ni->n", away, np.linalg.solve(self.covariance, away.T).T)
            <= self.distance_square
        )
        return inside

    def to_flowkit(
        self, transformation_ids: dict[str, str] | None = None, compensation: str = "uncompensated"
    ) -> Any:
        """The gate as ``flowkit.gates.EllipsoidGate``.

        Parameters
        ----------
        transformation_ids : dict, optional
            By channel, what the transform is called in the gating strategy; by default none, for
            data that are transformed already.
        compensation : str
            ``"uncompensated"``, ``"FCS"``, or what the matrix is called there.

        Returns
        -------
        flowkit.gates.EllipsoidGate
        """
        flowkit = needed("flowkit", "to_flowkit")
        axes = dimensions(flowkit, self.channels, transformation_ids, compensation)
        return flowkit.gates.EllipsoidGate(
            self.name, axes, self.mean, self.covariance, self.distance_square
        )
