"""What was asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from offcut.fitting.reading import Table

WORLDS = ("mixture", "langevin", "density", "intensity")


@dataclass(frozen=True)
class Request:
    """A fit as the command line asks for it.

    ``sampling`` goes to ``offcut.sample``; ``options`` are those of one world.
    """

    world: str
    file: Path
    columns: str | None = None
    lower: str | None = None
    upper: str | None = None
    region: str | None = None
    group: str | None = None
    outside: str = "refuse"
    missing: str = "refuse"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """Everything, for ``settings.json``."""
        found = asdict(self)
        found["file"] = str(self.file)
        found["sampling"], found["options"] = dict(self.sampling), dict(self.options)
        return found


@dataclass
class Task:
    """What a world makes of a request: a model, and the data of each run by group.

    Attributes
    ----------
    model : any model of this library
    data : dict from group to array
        One entry, named "", where everything goes into one run.
    covariates : array or None
    table : Table
        Rows and columns, after rows were left out.
    notes : list of str
        What the report should say of how the data were taken.
    extra : Any
        What only this world knows (``Events`` of a mixture).
    """

    model: Any
    data: dict[str, np.ndarray]
    table: Table
    covariates: np.ndarray | None = None
    notes: list[str] = field(default_factory=list)
    extra: Any = None


@dataclass
class Fit:
    """A finished fit."""

    request: Request
    task: Task
    posteriors: dict[str, xr.DataTree]
    seconds: dict[str, float]
    doubts: list[str]
    command: str = ""

    @property
    def model(self) -> Any:
        """The model that was sampled."""
        return self.task.model

    @property
    def table(self) -> Table:
        """The data."""
        return self.task.table


def by_group(table: Table, values: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of each group, or all of them under the name ""."""
    if table.group is None:
        return {"": values}
    return {name: values[table.group == code] for code, name in enumerate(table.group_names)}
