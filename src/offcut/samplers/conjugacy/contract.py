"""What looking for a conjugate family can end with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from offcut.models.prior import Theta
from offcut.models.rejection import Point


@dataclass(frozen=True)
class NoMatch:
    """Theta has no known exact conditional, and why."""

    reason: str


class Unmatched(Exception):  # noqa: N818 # an answer, not an error; never leaves this package
    """Raised where a family finds that it does not apply; its text is the reason."""


@dataclass(frozen=True, eq=False)
class Match(ABC):
    """An exact update of all latent sites, from sums over the points.

    Attributes
    ----------
    description : str
        For people: the family, and what is drawn how.
    sites : tuple of str
        The latent sites that ``draw`` gives.
    """

    description: str
    sites: tuple[str, ...]

    def centre(self, points: Point) -> np.ndarray:
        """Where to measure from, once from the data on the host: keeps squares from cancelling."""
        return np.zeros(())

    @abstractmethod
    def statistic(self, point: Point, centre: jax.Array) -> Any:
        """The sufficient statistic of one draw of the base; the caller sums it over X and Y."""

    @abstractmethod
    def draw(
        self, key: jax.Array, theta: Theta, statistics: Any, count: jax.Array, centre: jax.Array
    ) -> Theta:
        """New values of ``sites`` given the summed statistics of ``count`` points."""
