"""A table of populations, however it is given, as named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from offcut.errors import DataError


def as_table(populations: Any) -> dict[str, np.ndarray]:
    """Columns as arrays, a row for each population.

    >>> as_table([{"name": "a", "mean": [0, 1]}, {"name": "b", "mean": [2, 3]}])["mean"]
    array([[0, 1],
           [2, 3]])
    """
    if hasattr(populations, "columns") and hasattr(populations, "iloc"):
        populations = {str(name): list(populations[name]) for name in populations.columns}
    if isinstance(populations, Sequence) and not isinstance(populations, str):
        populations = [_as_row(row) for row in populations]
        keys = list(dict.fromkeys(key for row in populations for key in row))
        lacking = [key for key in keys if any(key not in row for row in populations)]
        if lacking:
            raise DataError(
                f"some populations have no {lacking[0]!r}; give every row the same keys"
            )
        populations = {key: [row[key] for row in populations] for key in keys}
    if not isinstance(populations, Mapping) or not populations:
        raise DataError(
            "populations must be a table: a dict of columns, a list of dicts or a DataFrame; got "
            f"{type(populations).__name__}"
        )
    return {
        str(name): np.stack([np.asarray(one) for one in column])
        for name, column in populations.items()
    }


def of_a_mixture(populations: Any) -> bool:
    """Whether these are rows of ``TruncatedMixture.populations``."""
    listed = isinstance(populations, Sequence) and not isinstance(populations, str)
    return listed and len(populations) > 0 and all(is_dataclass(row) for row in populations)


def _as_row(row: Any) -> Mapping[str, Any]:
    """A row by the names of its columns; of a mixture's without what is None there."""
    if is_dataclass(row):
        values = {field.name: getattr(row, field.name) for field in fields(row)}
        return {name: value for name, value in values.items() if value is not None}
    if not isinstance(row, Mapping):
        raise DataError(
            "a population must be a dict or a row of model.populations(labels), got "
            f"{type(row).__name__}"
        )
    return row
