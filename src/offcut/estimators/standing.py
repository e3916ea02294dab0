"""Populations that new points can belong to: those that a component of some draw stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from offcut.estimators.membership import probabilities
from offcut.mixtures.populations import Labels


def only_standing(found: Labels, x: np.ndarray) -> Labels:
    """Give events of other populations to the most probable one; ``x`` are the events.

    The consensus may set events on a border apart although no component is mostly theirs, Binder's
    loss in particular. Such a population has no mean, and ``predict`` could never name it.
    """
    standing = np.unique(found.matches[found.matches >= 0])
    if len(standing) == found.populations:
        return found
    labels = _renamed(found.labels, standing, found.populations)
    matches = _renamed(found.matches, standing, found.populations)
    certainty = found.certainty.copy()
    homeless = labels < 0
    shares = probabilities(found.draws, matches, len(standing), x[homeless])
    labels[homeless], certainty[homeless] = shares.argmax(1), shares.max(1)
    by_size = np.argsort(-np.bincount(labels), kind="stable")
    return replace(
        found,
        labels=_renamed(labels, by_size, len(standing)),
        certainty=certainty,
        matches=_renamed(matches, by_size, len(standing)),
    )


def _renamed(numbers: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """order[i] becomes i; -1, and of ``count`` numbers those that are not in ``order``, -1."""
    new = np.full(count + 1, -1)  # the last is that of -1
    new[order] = np.arange(len(order))
    return new[numbers]
