"""Regions: the window of ``truncated``, written as a shape instead of a function.

``Box``, ``Orthant``, ``Ball``, ``Shell``, ``Simplex``, ``Polytope`` and any function as a
``Predicate``, combined with ``&``, ``|`` and ``~``; ``ByGroup`` where groups differ. A region is
called with one point, is drawn with ``draw`` and, where it is about numbers, knows its
``intervals``.
"""

from __future__ import annotations

from offcut.regions.ball import Ball, Shell
from offcut.regions.box import Box, Orthant
from offcut.regions.line import intervals
from offcut.regions.polytope import Polytope, Simplex
from offcut.regions.region import Region
from offcut.regions.sets import ByGroup, Complement, Intersection, Predicate, Union

__all__ = [
    "Ball",
    "Box",
    "ByGroup",
    "Complement",
    "Intersection",
    "Orthant",
    "Polytope",
    "Predicate",
    "Region",
    "Shell",
    "Simplex",
    "Union",
    "intervals",
]


def __dir__() -> list[str]:
    return sorted(__all__)
