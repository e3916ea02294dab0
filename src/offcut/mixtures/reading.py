"""From what the user has to events, groups and probes."""

from __future__ import annotations

from typing import Any

import numpy as np

from offcut.errors import DataError
from offcut.observations import as_arrays, count_rows

#: Events at which the log density is followed, for R-hat.
PROBES = 12


def as_events(data: Any, taker: str = "a mixture") -> tuple[np.ndarray, bool]:
    """(n, d) floats, and whether the data are single numbers."""
    # Data frames and offcut.cytometry.Events carry their numbers in ``values``.
    carries = hasattr(data, "columns") or hasattr(data, "channels")
    values = as_arrays(data.values if carries else data, "data")
    if isinstance(values, dict | tuple):
        raise DataError(f"{taker} takes one array (events, channels), got a dict or tuple")
    count_rows(values, "data")
    if values.ndim > 2:
        raise DataError(f"data must be (events, channels), got shape {values.shape}")
    scalar = values.ndim == 1
    return np.asarray(values, float).reshape(len(values), -1), scalar


def as_groups(covariates: Any, n: int) -> tuple[np.ndarray, list[str]]:
    """Group number of each event, and the groups' names; whole numbers from 0 are kept."""
    if covariates is None:
        return np.zeros(n, np.int32), ["all"]
    group = np.asarray(covariates)
    if group.shape != (n,):
        raise DataError(
            f"covariates must name the group of each of the {n} events, got shape {group.shape}"
        )
    if group.dtype.kind in "iu" and group.min() >= 0:
        return group.astype(np.int32), [str(g) for g in range(int(group.max()) + 1)]
    if group.dtype.kind == "f":
        raise DataError("covariates must be group numbers or names, got real numbers")
    names, codes = np.unique(group.astype(str), return_inverse=True)
    return codes.astype(np.int32), list(names)


def probes(n: int) -> np.ndarray:
    """Events at which the log density is followed: a fixed random choice."""
    chosen = np.sort(np.random.default_rng(n).choice(n, min(n, PROBES), replace=False))
    return np.resize(chosen, PROBES)  # always as many, for compiled code depends on it
