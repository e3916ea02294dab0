"""Polygons on two channels: what people draw by hand, and every program reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.cytometry.ellipsoid import EllipsoidGate
from offcut.cytometry.optional import needed
from offcut.cytometry.points import checked_channels, checked_numbers, coordinates, dimensions
from offcut.errors import DataError

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
