"""Gates: regions on the transformed scale that stand for populations, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.cytometry.columns import place_of
from offcut.cytometry.ellipsoid import EllipsoidGate, distance_square
from offcut.cytometry.gating_ml import write_gating_ml
from offcut.cytometry.polygon import PolygonGate
from offcut.cytometry.populations import as_table
from offcut.errors import DataError

__all__ = [
    "EllipsoidGate",
    "PolygonGate",
    "distance_square",
    "gates",
    "membership",
    "write_gating_ml",
]

Gate = EllipsoidGate | PolygonGate


def gates(
    populations: Any,
    kind: str = "ellipsoid",
    probability: float = 0.95,
    channels: Sequence[str] | None = None,
) -> list[Gate]:
    """A gate for each population of a table.

    Parameters
    ----------
    populations : DataFrame, list of dicts, or dict of columns
        With ``name``, ``mean`` and ``covariance`` in each row, on the transformed scale; and
        ``channels``, the names of the mean's coordinates, unless the argument gives them.
    kind : "ellipsoid" or "polygon"
        Polygons are ellipses on two channels.
    probability : number
        Of a normal population to lie within its gate.
    channels : sequence of str, optional
        The gates' channels. Where the table does not have ``channels``, the names of all
        coordinates.

    Returns
    -------
    list of EllipsoidGate or PolygonGate

    Examples
    --------
    >>> from offcut.cytometry import gates
    >>> table = [{"name": "helper", "mean": [2.0, 0.0], "covariance": [[1.0, 0.0], [0.0, 1.0]]}]
    >>> [gate] = gates(table, channels=["CD4", "CD8"])
    >>> round(gate.distance_square, 4), gate.contains([[3.0, 1.0], [6.0, 0.0]])
    (5.9915, array([ True, False]))
    """
    if kind not in ("ellipsoid", "polygon"):
        raise DataError(f"kind must be 'ellipsoid' or 'polygon', got {kind!r}")
    table = as_table(populations)
    lacking = [key for key in ("name", "mean", "covariance") if key not in table]
    if lacking:
        raise DataError(f"populations have no {', '.join(lacking)}; they have {', '.join(table)}")
    made: list[Gate] = []
    for row, name in enumerate(map(str, table["name"])):
        mean, covariance = table["mean"][row], table["covariance"][row]
        known = [str(one) for one in table["channels"][row]] if "channels" in table else channels
        if known is None or len(known) != len(mean):
            raise DataError(
                f"population {name!r} has {len(mean)} coordinates; name them all, in a column "
                "'channels' of the table or with channels=[...]"
            )
        wanted = list(known if channels is None else channels)
        if kind == "polygon" and len(wanted) != 2:
            raise DataError(
                f"a polygon is about two channels, not {', '.join(wanted)}: name the coordinates "
                "in a column 'channels' of the table and choose two with channels=[...]"
            )
        places = [place_of(one, [known], "populations have no such channel") for one in wanted]
        limit = distance_square(probability, len(places))
        make = EllipsoidGate if kind == "ellipsoid" else PolygonGate.ellipse
        made.append(make(name, wanted, mean[places], covariance[np.ix_(places, places)], limit))
    return made


def membership(gates: Sequence[Gate], points: Any) -> dict[str, np.ndarray]:
    """Whether each point lies within each gate.

    Parameters
    ----------
    gates : sequence of EllipsoidGate or PolygonGate
        With different names.
    points : as in ``contains``
        Events, a DataFrame or a dict where the gates are about different channels.

    Returns
    -------
    dict from gate's name to boolean array
        ``pandas.DataFrame`` makes a table of it.
    """
    names = [gate.name for gate in gates]
    if len(set(names)) < len(names):
        raise DataError(f"two gates have the same name among {', '.join(names)}; rename one")
    return {gate.name: gate.contains(points) for gate in gates}
