"""The kinds of gates: polygons on two channels, and ellipsoids; and what they share.

People draw polygons by hand, and every program reads them. An ellipsoid is a normal population up
to a probability: with mean m and covariance C it has, within (x - m)' C^-1 (x - m) <= q, the
probability P(chi-square with d degrees of freedom <= q). Gates are drawn at such a q.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from offcut.cytometry.events import Events
from offcut.errors import DataError, SettingsError
from offcut.tables.columns import as_column, place_of
from offcut.tables.table import Frame, Values

#: Vertices of the polygon that stands for an ellipse.
VERTICES = 64
#: Whether each point lies within a gate.
Inside = Bool[np.ndarray, " rows"]
#: What points can be: with names, or a column for each channel of a gate.
Points = Events | Frame | Mapping[str, ArrayLike] | ArrayLike


def coordinates(points: Points, channels: Sequence[str]) -> Values:
    """The columns of points that a gate is about."""
    if isinstance(points, Events):
        problem = "the gate is about a channel that the events have not"
        return points.values[:, [place_of(name, [points.channels], problem) for name in channels]]
    if isinstance(points, Mapping | Frame):
        named = {str(name): points[name] for name in points}
        problem = "the gate is about a column that the points have not"
        names = [list(named)[place_of(name, [list(named)], problem)] for name in channels]
        return np.stack([as_column(named[name], name) for name in names], axis=1)
    array = np.asarray(points, dtype=float)
    if array.ndim != 2 or array.shape[1] != len(channels):
        raise DataError(
            f"points need a column for each of {', '.join(channels)}, got shape {array.shape}; or "
            "give Events, a DataFrame or a dict, from which columns are taken by name"
        )
    return array


def distance_square(probability: float, dimension: int) -> float:
    """The squared Mahalanobis distance within which a normal variable has this probability.

    >>> round(distance_square(0.95, 2), 4)
    5.9915
    """
    from scipy.stats import chi2

    if not 0 < probability < 1:
        raise DataError(f"probability must be between 0 and 1, got {probability}")
    return float(chi2.ppf(probability, dimension))


@dataclass(frozen=True, eq=False, init=False)
class Gate:
    """What all gates have: a name, different channels, and points that lie within."""

    name: str
    channels: tuple[str, ...]

    def __init__(self, name: str, channels: Sequence[str]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "channels", tuple(map(str, channels)))
        if len(set(self.channels)) < max(2, len(self.channels)):
            raise DataError(
                f"gate {name!r} needs 2 different channels or more, got {self.channels}"
            )

    def _set_numbers(self, name: str, numbers: ArrayLike, shape: tuple[int, ...]) -> None:
        """An attribute, a finite array of the given shape."""
        array = np.array(numbers, dtype=float)
        if array.shape != shape or not np.isfinite(array).all():
            raise DataError(
                f"{name} of gate {self.name!r} must be finite numbers of shape {shape}, got shape "
                f"{array.shape}"
            )
        object.__setattr__(self, name, array)

    def contains(self, points: Points) -> Inside:
        """Whether each point lies within.

        Parameters
        ----------
        points : array with a column for each of the gate's channels, Events, DataFrame or dict

        Returns
        -------
        boolean array
        """
        return self._holds(coordinates(points, self.channels))

    def _holds(self, x: Values) -> Inside:
        raise NotImplementedError

    def to_flowkit(self, *_: object, **__: object) -> NoReturn:
        """Gone: FlowKit reads the files of ``write_gating_ml``."""
        raise SettingsError(
            f"gate {self.name!r}: to_flowkit is gone, because FlowKit reads Gating-ML: "
            "ids = write_gating_ml('gates.xml', [gate], transforms), then "
            "flowkit.parse_gating_xml('gates.xml').get_gate(ids[gate.name]) is the gate"
        )


@dataclass(frozen=True, eq=False, init=False)
class EllipsoidGate(Gate):
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

    mean: Float[np.ndarray, " channels"]
    covariance: Float[np.ndarray, "channels channels"]
    distance_square: float

    def __init__(
        self,
        name: str,
        channels: Sequence[str],
        mean: ArrayLike,
        covariance: ArrayLike,
        distance_square: float,
    ) -> None:
        super().__init__(name, channels)
        size = len(self.channels)
        self._set_numbers("mean", mean, (size,))
        self._set_numbers("covariance", covariance, (size, size))
        symmetric = np.allclose(self.covariance, self.covariance.T, rtol=1e-8, atol=0)
        if not symmetric or np.linalg.eigvalsh(self.covariance).min() <= 0:
            raise DataError(f"the covariance of gate {name!r} is not positive definite")
        if not 0 < distance_square < np.inf:
            raise DataError(
                f"distance_square of gate {name!r} must be positive, got {distance_square}"
            )
        object.__setattr__(self, "distance_square", distance_square)

    def _holds(self, x: Values) -> Inside:
        away = x - self.mean
        squares = np.einsum("ni,ni->n", away, np.linalg.solve(self.covariance, away.T).T)
        return np.asarray(squares <= self.distance_square)


@dataclass(frozen=True, eq=False, init=False)
class PolygonGate(Gate):
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

    vertices: Float[np.ndarray, "vertices 2"]

    def __init__(self, name: str, channels: Sequence[str], vertices: ArrayLike) -> None:
        super().__init__(name, channels)
        if len(self.channels) != 2:
            raise DataError(
                f"a polygon is about two channels, gate {name!r} has {len(self.channels)}"
            )
        count = np.shape(vertices)[0] if np.ndim(vertices) == 2 else 0
        self._set_numbers("vertices", vertices, (max(count, 3), 2))

    @classmethod
    def hull(cls, name: str, channels: Sequence[str], points: Points) -> PolygonGate:
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
        cls,
        name: str,
        channels: Sequence[str],
        mean: ArrayLike,
        covariance: ArrayLike,
        distance_square: float,
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
        vertices = gate.mean + radius * circle @ np.linalg.cholesky(gate.covariance).T
        return cls(name, channels, vertices)

    def _holds(self, x: Float[np.ndarray, "rows 2"]) -> Inside:
        inside = np.zeros(len(x), dtype=bool)
        # A ray to the right crosses sides an odd number of times from a point that is within.
        ends = np.roll(self.vertices, -1, axis=0)
        for (x0, y0), (x1, y1) in zip(self.vertices, ends, strict=True):
            if y0 != y1:
                crosses = (y0 <= x[:, 1]) != (y1 <= x[:, 1])
                inside ^= crosses & (x[:, 0] < x0 + (x[:, 1] - y0) * ((x1 - x0) / (y1 - y0)))
        return inside


def check_names(gates: Sequence[Gate]) -> list[str]:
    """Names of the gates, all different."""
    names = [gate.name for gate in gates]
    if len(set(names)) < len(names):
        raise DataError(f"two gates have the same name among {', '.join(names)}; rename one")
    return names
