"""Flow cytometry: events from the files that instruments write, and gates for other programs.

``read`` gives ``Events``: numbers on a scale on which populations look normal (``Asinh``,
``Logicle``, ...), and the window of the instrument on that scale. ``gates`` and ``write_gating_ml``
take populations to other programs, ``from_anndata`` and ``to_anndata`` to other libraries.
"""

from __future__ import annotations

from offcut.cytometry.annotated import from_anndata, to_anndata
from offcut.cytometry.events import Events, concatenate
from offcut.cytometry.gate_shapes import EllipsoidGate, PolygonGate, distance_square
from offcut.cytometry.gating import gates, membership, overlap
from offcut.cytometry.gating_ml import write_gating_ml
from offcut.cytometry.reading import read
from offcut.cytometry.transforms import Asinh, Identity, Linear, Log, Logicle, Transform
from offcut.tables.spillover import Compensation

__all__ = [
    "Asinh",
    "Compensation",
    "EllipsoidGate",
    "Events",
    "Identity",
    "Linear",
    "Log",
    "Logicle",
    "PolygonGate",
    "Transform",
    "concatenate",
    "distance_square",
    "from_anndata",
    "gates",
    "membership",
    "overlap",
    "read",
    "to_anndata",
    "write_gating_ml",
]


def __dir__() -> list[str]:
    return sorted(__all__)
