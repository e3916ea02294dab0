"""Gates: regions on the transformed scale that stand for populations, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.cytometry.columns import place_of
from offcut.cytometry.ellipsoid import EllipsoidGate, distance_square
from offcut.cytometry.gating_ml import write_gating_ml
from offcut.cytometry.overlap import Overlap, expected_overlap, overlap_of, warn_of_overlap
from offcut.cytometry.polygon import PolygonGate
from offcut.cytometry.populations import as_table, of_a_mixture
from offcut.errors import DataError

__all__ = [
    "EllipsoidGate",
    "PolygonGate",
    "distance_square",
    "gates",
    "membership",
    "overlap",
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

    Gates of populations that overlap share events, and hold more than all of them between them: a
    ``TrustWarning`` says how much, for normal populations with the table's ``proportion``
    (otherwise as large as each other). ``overlap`` counts given events.

    Parameters
    ----------
    populations : what ``model.populations`` returns, DataFrame, list of dicts, or dict of columns
        With ``name``, ``mean`` and ``covariance`` in each row, on the transformed scale; and
        ``channels``, the names of the mean's coordinates, unless the argument gives them. Those of
        a mixture that have no names are called "channel 0", "channel 1" and so on; and those that
        no component stands for, which have no mean, get no gate.
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
    unnamed = of_a_mixture(populations) and "channels" not in table and channels is None
    made: list[Gate] = []
    rows = []
    for row, name in enumerate(map(str, table["name"])):
        mean, covariance = table["mean"][row], table["covariance"][row]
        if of_a_mixture(populations) and not np.isfinite(mean).all():
            continue
        known = [str(one) for one in table["channels"][row]] if "channels" in table else channels
        if unnamed:
            known = [f"channel {number}" for number in range(len(mean))]
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
        rows.append((row, mean[places], covariance[np.ix_(places, places)]))
    if len({gate.channels for gate in made}) == 1:
        chosen, means, covariances = zip(*rows, strict=True)
        proportions = np.ones(len(made))
        if "proportion" in table:  # by group, where there are groups
            own = np.asarray(table["proportion"], float)[list(chosen)]
            proportions = own.reshape(len(made), -1).mean(1)
        if proportions.sum() > 0:
            found = expected_overlap(made, np.stack(means), np.stack(covariances), proportions)
            warn_of_overlap(found, len(made), "of normal populations")
    return made


def overlap(gates: Sequence[Gate], points: Any) -> Overlap:
    """What gates hold of given events between them, and what they share.

    Parameters
    ----------
    gates, points : as of ``membership``

    Returns
    -------
    Overlap
        Shares of the events: ``held``, in each gate, summed over gates; ``several``, in more than
        one; ``none``, in no gate; ``pairs``, by the names of two gates, in both.

    Examples
    --------
    >>> from offcut.cytometry import EllipsoidGate, overlap
    >>> round_ones = {"low": [0, 0], "high": [1, 0]}
    >>> gates = [
    ...     EllipsoidGate(name, ["a", "b"], mean, [[1, 0], [0, 1]], distance_square=4)
    ...     for name, mean in round_ones.items()
    ... ]
    >>> overlap(gates, [[0.5, 0.0], [-1.5, 0.0], [9.0, 0.0], [2.5, 0.0]])
    Overlap(held=1.0, several=0.25, none=0.25, pairs={('low', 'high'): 0.25})
    """
    found = _inside(gates, points)
    return overlap_of(list(found), list(found.values()))


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
        ``pandas.DataFrame`` makes a table of it. Where points lie in more than one gate, a
        ``TrustWarning`` says how many.
    """
    found = _inside(gates, points)
    warn_of_overlap(overlap_of(list(found), list(found.values())), len(found), "of the points")
    return found


def _inside(gates: Sequence[Gate], points: Any) -> dict[str, np.ndarray]:
    """Whether each point lies within each gate."""
    names = [gate.name for gate in gates]
    if len(set(names)) < len(names):
        raise DataError(f"two gates have the same name among {', '.join(names)}; rename one")
    return {gate.name: gate.contains(points) for gate in gates}
