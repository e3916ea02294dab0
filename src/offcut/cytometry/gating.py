"""Gates: regions on the transformed scale that stand for populations, for other programs.

Each is drawn for its own population and knows nothing of the others. A normal population holds 95 %
of itself within its gate, and whatever of its neighbours lies there too, so that counts by gates
add up to more than there is: ``overlap`` says by how much.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from offcut.cytometry.gate_shapes import (
    EllipsoidGate,
    Gate,
    Inside,
    Points,
    PolygonGate,
    check_names,
    distance_square,
)
from offcut.errors import DataError, TrustWarning
from offcut.tables.columns import place_of
from offcut.tables.table import Frame

#: Of the events, how many may lie in more than one gate without a word.
MOST_SHARED = 0.01
#: Points that stand for a population.
POINTS = 1000


class Overlap(NamedTuple):
    """What gates hold of some points, as shares of all of them.

    held : in each gate, summed over gates. several : in more than one. none : in no gate. pairs :
    by the names of two gates, what lies in both, the largest first.
    """

    held: float
    several: float
    none: float
    pairs: dict[tuple[str, str], float]


def overlap_of(
    names: Sequence[str], inside: Sequence[Inside], weights: np.ndarray | None = None
) -> Overlap:
    """From what lies in the gates with these names; the points may have weights."""
    flags = np.array(inside, dtype=float).reshape(len(names), -1)
    weights = np.ones(flags.shape[1]) if weights is None else weights
    total = max(float(weights.sum()), np.finfo(float).tiny)
    number = flags.sum(0)
    both = (flags * weights) @ flags.T / total
    pairs = {
        (one, other): float(both[i, j])
        for (i, one), (j, other) in combinations(enumerate(names), 2)
        if both[i, j] > 0
    }
    return Overlap(
        float(number @ weights / total),
        float((number > 1) @ weights / total),
        float((number == 0) @ weights / total),
        dict(sorted(pairs.items(), key=lambda item: -item[1])),
    )


def expected_overlap(
    gates: Sequence[Gate],
    means: Float[np.ndarray, "populations d"],
    covariances: Float[np.ndarray, "populations d d"],
    proportions: Float[np.ndarray, " populations"],
) -> Overlap:
    """Of events from normal populations, on the channels of the gates."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((len(means), POINTS, means.shape[1]))
    roots = np.linalg.cholesky(covariances)
    points = (means[:, None] + np.einsum("pij,pmj->pmi", roots, noise)).reshape(-1, means.shape[1])
    weights = np.repeat(proportions, POINTS)
    names, inside = [gate.name for gate in gates], [gate.contains(points) for gate in gates]
    return overlap_of(names, inside, weights)


def warn_of_overlap(found: Overlap, number: int, of: str) -> None:
    """Say what the gates share, where it is more than a little."""
    if found.several <= MOST_SHARED:
        return
    (one, other), share = next(iter(found.pairs.items()))
    warnings.warn(
        f"the {number} gates hold {found.held:.0%} {of} between them: {found.several:.0%} lie in "
        f"more than one ({share:.0%} in both {one!r} and {other!r}), {found.none:.0%} in none. To "
        "count every event once take the populations' labels; gates with a smaller probability= "
        "share less",
        TrustWarning,
        stacklevel=3,
    )


def as_table(populations: object) -> dict[str, np.ndarray]:
    """Columns as arrays, a row for each population.

    >>> as_table([{"name": "a", "mean": [0, 1]}, {"name": "b", "mean": [2, 3]}])["mean"]
    array([[0, 1],
           [2, 3]])
    """
    if isinstance(populations, Sequence) and not isinstance(populations, str):
        rows = [_as_row(row) for row in populations]
        keys = list(dict.fromkeys(key for row in rows for key in row))
        lacking = [key for key in keys if any(key not in row for row in rows)]
        if lacking:
            raise DataError(
                f"some populations have no {lacking[0]!r}; give every row the same keys"
            )
        populations = {key: [row[key] for row in rows] for key in keys}
    if not isinstance(populations, Mapping | Frame) or not len(list(populations)):
        raise DataError(
            "populations must be a table: a dict of columns, a list of dicts or a DataFrame; got "
            f"{type(populations).__name__}"
        )
    return {
        str(name): np.stack([np.asarray(one) for one in populations[name]]) for name in populations
    }


def _as_row(row: object) -> Mapping[str, object]:
    """A row by the names of its columns; of a mixture's without what is None there."""
    if is_dataclass(row):
        return {name: value for name, value in vars(row).items() if value is not None}
    if not isinstance(row, Mapping):
        raise DataError(
            "a population must be a dict or a row of model.populations(labels), got "
            f"{type(row).__name__}"
        )
    return row


def gates(
    populations: object,
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
    # Rows of model.populations may lack names, and a mean where no component stands for them.
    fitted = isinstance(populations, Sequence) and all(map(is_dataclass, populations))
    made: list[Gate] = []
    shapes: list[tuple[np.ndarray, np.ndarray, float]] = []
    shares = np.asarray(table.get("proportion", np.ones(len(table["name"]))), dtype=float)
    for row, name in enumerate(map(str, table["name"])):
        mean, covariance = table["mean"][row], table["covariance"][row]
        if fitted and not np.isfinite(mean).all():
            continue
        known = [str(one) for one in table["channels"][row]] if "channels" in table else channels
        if known is None and fitted:
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
        mean, covariance = mean[places], covariance[np.ix_(places, places)]
        limit = distance_square(probability, len(places))
        make = EllipsoidGate if kind == "ellipsoid" else PolygonGate.ellipse
        made.append(make(name, wanted, mean, covariance, limit))
        shapes.append((mean, covariance, float(shares[row].mean())))  # by group, if there are any
    if len({gate.channels for gate in made}) == 1 and any(share > 0 for *_, share in shapes):
        found = expected_overlap(made, *map(np.stack, zip(*shapes, strict=True)))
        warn_of_overlap(found, len(made), "of normal populations")
    return made


def overlap(gates: Sequence[Gate], points: Points) -> Overlap:
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


def membership(gates: Sequence[Gate], points: Points) -> dict[str, Inside]:
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


def _inside(gates: Sequence[Gate], points: Points) -> dict[str, Inside]:
    """Whether each point lies within each gate."""
    contained = (gate.contains(points) for gate in gates)
    return dict(zip(check_names(gates), contained, strict=True))
