"""From what the user has to events and probes."""

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


def probes(n: int) -> np.ndarray:
    """Events at which the log density is followed: a fixed random choice."""
    chosen = np.sort(np.random.default_rng(n).choice(n, min(n, PROBES), replace=False))
    return np.resize(chosen, PROBES)  # always as many, for compiled code depends on it
