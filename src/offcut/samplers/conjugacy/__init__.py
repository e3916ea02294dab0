"""Conjugate updates: theta given X and Y from its exact conditional, where prior and base allow it.

Under truncation, and under selection that does not involve theta, the density of X and Y is that
of independent draws from the base,

    p(theta | X, Y) ∝ p(theta) prod_{z in X ∪ Y} q(z | theta),

so a prior that is conjugate to the base stays conjugate however odd the window is. ``match`` says
whether it is; what it finds, a ``Match``, needs only sums over the points to draw theta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from offcut.models.data import HostPoints
from offcut.models.prior import Theta
from offcut.numerics.types import KeyArray, Point, Points

#: Sums over points of whatever a family needs of each, the number of these points, and where they
#: are measured from.
Statistic: TypeAlias = PyTree[Float[Array, "..."]]
Count = int | Int[Array, ""]
Centre = Float[Array, "..."]


class Unmatched(Exception):  # noqa: N818 # an answer, not an error; never leaves this package
    """Raised where a family finds that it does not apply; its text is the reason."""


@dataclass(frozen=True)
class NoMatch:
    """Theta has no known exact conditional, and why."""

    reason: str


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

    def centre(self, points: Points | HostPoints) -> np.ndarray | np.floating:
        """Where to measure from, once from the data on the host: keeps squares from cancelling."""
        return np.zeros(())

    @abstractmethod
    def statistic(self, point: Point, centre: Centre) -> Statistic:
        """The sufficient statistic of one draw of the base; the caller sums it over X and Y."""

    @abstractmethod
    def draw(
        self, key: KeyArray, theta: Theta, statistics: Statistic, count: Count, centre: Centre
    ) -> Theta:
        """New values of ``sites`` given the summed statistics of ``count`` points."""
