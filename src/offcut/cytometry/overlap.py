"""How far gates share events: each is drawn for its own population and knows nothing of the others.

A normal population holds 95 % of itself within its gate, and whatever of its neighbours lies there
too: counts by gates add up to more than there is.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from offcut.errors import TrustWarning

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
    names: Sequence[str], inside: Sequence[np.ndarray], weights: np.ndarray | None = None
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
    gates: Sequence[Any], means: np.ndarray, covariances: np.ndarray, proportions: np.ndarray
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
