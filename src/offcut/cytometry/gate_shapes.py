"""The kinds of gates: polygons on two channels, and ellipsoids; and what they share.

People draw polygons by hand, and every program reads them. An ellipsoid is a normal population up
to a probability: with mean m and covariance C it has, within (x - m)' C^-1 (x - m) <= q, the
probability P(chi-square with d degrees of freedom <= q). Gates are drawn at such a q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.cytometry.events import Events
from offcut.errors import DataError
from offcut.numerics.extras import needed
from offcut.tables.columns import as_column, place_of


def coordinates(points: Any, channels: Sequence[str]) -> np.ndarray:
    """The columns of points that a gate is about."""
    if isinstance(points, Events):
        problem = "the gate is about a channel that the events have not"
        return points.values[:, [place_of(name, [points.channels], problem) for name in channels]]
    if isinstance(points, dict) or hasattr(points, "columns"):
        names = [str(name) for name in points]
        problem = "the gate is about a column that the points have not"
        keys = [list(points)[place_of(name, [names], problem)] for name in channels]
        return np.stack([as_column(points[key], str(key)) for key in keys], axis=1)
    array = np.asarray(points, dtype=float)
    if array.ndim != 2 or array.shape[1] != len(channels):
        raise DataError(
            f"points need a column for each of {', '.join(channels)}, got shape {array.shape}; or "
            "give Events, a DataFrame or a dict, from which columns are taken by name"
        )
    return array


def checked_channels(gate: Any, least: int) -> int:
    """Channels as a tuple; how many."""
    channels = tuple(map(str, gate.channels))
    object.__setattr__(gate, "channels", channels)
    if isinstance(gate.channels, str) or len(set(channels)) < max(least, len(channels)):
        raise DataError(
            f"gate {gate.name!r} needs {least} different channels or more, got {channels}"
        )
    return len(channels)


def checked_numbers(gate: Any, name: str, shape: tuple[int, ...]) -> None:
    """An attribute as a finite array of the given shape."""
    array = np.array(getattr(gate, name), dtype=float)
    if array.shape != shape or not np.isfinite(array).all():
        raise DataError(
            f"{name} of gate {gate.name!r} must be finite numbers of shape {shape}, got shape "
            f"{array.shape}"
        )
    object.__setattr__(gate, name, array)


def dimensions(
    flowkit: Any, channels: Sequence[str], ids: dict[str, str] | None, compensation: str
) -> list[Any]:
    """The channels as FlowKit's dimensions."""
    ids = ids or {}
    return [flowkit.Dimension(name, compensation, ids.get(name)) for name in channels]


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


#: Vertices of the polygon that stands for an ellipse.
VERTICES = 64


@dataclass(frozen=True, eq=False)
class PolygonGate:
    """Points within a polygon on two channels.

    Parameters
    ----------
    name : str
    channels : sequence of two str
    vertices : array of shape (three or more, 2)
        In order; where sides cross, what is enclosed an odd number of times is within.

    Examples
    --------
    >>> from offcut.cytometry import PolygonGate
    >>> gate = PolygonGate("corner", ["CD4", "CD8"], [[0, 0], [4, 0], [0, 4]])
    >>> gate.contains([[1.0, 1.0], [3.0, 3.0]])
    array([ True, False])
    """

    name: str
    channels: Sequence[str]
    vertices: np.ndarray

    def __post_init__(self) -> None:
        size = checked_channels(self, least=2)
        if size != 2:
            raise DataError(f"a polygon is about two channels, gate {self.name!r} has {size}")
        count = np.shape(self.vertices)[0] if np.ndim(self.vertices) == 2 else 0
        checked_numbers(self, "vertices", (max(count, 3), 2))

    @classmethod
    def hull(cls, name: str, channels: Sequence[str], points: Any) -> PolygonGate:
        """The convex hull of points.

        Parameters
        ----------
        name : str
        channels : sequence of two str
        points : as in ``contains``

        Returns
        -------
        PolygonGate
        """
        from scipy.spatial import ConvexHull, QhullError

        points = coordinates(points, channels)
        try:
            corners = ConvexHull(points).vertices
        except (QhullError, ValueError) as error:
            raise DataError(
                f"the {len(points):,} points of gate {name!r} enclose no area; at least three are "
                "needed that are not on a line"
            ) from error
        return cls(name, channels, points[corners])

    @classmethod
    def ellipse(
        cls, name: str, channels: Sequence[str], mean: Any, covariance: Any, distance_square: float
    ) -> PolygonGate:
        """A polygon with the shape and the area of an ellipse.

        Parameters
        ----------
        name, channels, mean, covariance, distance_square
            As of ``EllipsoidGate``, on two channels.

        Returns
        -------
        PolygonGate
        """
        gate = EllipsoidGate(name, channels, mean, covariance, distance_square)
        if len(gate.channels) != 2:
            raise DataError(f"a polygon is about two channels, not {', '.join(gate.channels)}")
        step = 2 * np.pi / VERTICES
        angles = step * np.arange(VERTICES)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        radius = np.sqrt(gate.distance_square * step / np.sin(step))  # a polygon inside is smaller
        return cls(
            name, channels, gate.mean + radius * circle @ np.linalg.cholesky(gate.covariance).T
        )

    def contains(self, points: Any) -> np.ndarray:
        """Whether each point lies within; as ``EllipsoidGate.contains``."""
        x, y = coordinates(points, self.channels).T
        inside = np.zeros(len(x), dtype=bool)
        # A ray to the right crosses sides an odd number of times from a point that is within.
        ends = np.roll(self.vertices, -1, axis=0)
        for (x0, y0), (x1, y1) in zip(self.vertices, ends, strict=True):
            if y0 != y1:
                crosses = (y0 <= y) != (y1 <= y)
                inside ^= crosses & (x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0)))
        return inside

    def to_flowkit(
        self, transformation_ids: dict[str, str] | None = None, compensation: str = "uncompensated"
    ) -> Any:
        """The gate as ``flowkit.gates.PolygonGate``; as ``EllipsoidGate.to_flowkit``."""
        flowkit = needed("flowkit", "to_flowkit")
        axes = dimensions(flowkit, self.channels, transformation_ids, compensation)
        return flowkit.gates.PolygonGate(self.name, axes, self.vertices.tolist())
