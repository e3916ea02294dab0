"""The data sets of the paper: two that come with Offcut, and one that is read from a path.

Sources and attributions are in ``data/README.md`` beside this file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from offcut.cytometry.events import Events
from offcut.cytometry.reading import read
from offcut.cytometry.transforms import Linear
from offcut.errors import DataError
from offcut.tables.delimited import records

__all__ = ["Recordings", "Vectorcardiograms", "gvhd", "parkinsons", "vectorcardiogram"]

#: The full scale of the instrument of the GvHD data.
FULL_SCALE = 1024


def gvhd(group: str | None = None) -> Events:
    """Flow cytometry of graft-versus-host disease (Brinkman et al. 2007).

    Values are divided by 1024, so that the window is the unit cube. Only its lower faces bind:
    nothing comes near the upper ones.

    Parameters
    ----------
    group : "control" or "positive", optional
        One of the two patients; by default both, as groups.

    Returns
    -------
    Events

    Examples
    --------
    >>> import offcut.datasets
    >>> offcut.datasets.gvhd()
    Events(15,892 events of 4 channels: CD4, CD8b, CD3, CD8; window Box([0, 0, 0, 0], \
[1, 1, 1, 1]); transform Linear(scale=0.0009765625, offset=0.0); groups control (6,809), \
positive (9,083); from gvhd.csv)
    >>> len(offcut.datasets.gvhd("control"))
    6809
    """
    if group not in (None, "control", "positive"):
        raise DataError(f"group is 'control', 'positive' or None for both, got {group!r}")
    names, rows = _table(Path(str(files("offcut") / "data" / "gvhd.csv")))
    events = read(
        np.array([row[1:] for row in rows], dtype=float),
        names[1:],
        transform=Linear(1 / FULL_SCALE),
        window=(0, FULL_SCALE),
        group=[row[0] for row in rows],
    )
    events = replace(events, source="gvhd.csv")
    return events if group is None else events.of_group(group)


@dataclass(frozen=True, eq=False, repr=False)
class Recordings:
    """Voices, a row for each recording.

    Attributes
    ----------
    columns : dict from name to array
        In the order of the UCI repository; ``recordings[name]`` is short for one of them.
    note : str
        What to know before modelling them.
    """

    columns: dict[str, np.ndarray]
    note: str

    @property
    def status(self) -> np.ndarray:
        """1 with Parkinson's disease, 0 without."""
        return self.columns["status"].astype(np.int64)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        return f"Recordings({len(self)} rows of {', '.join(self.columns)}. {self.note})"


def parkinsons() -> Recordings:
    """Measures of voices with and without Parkinson's disease (Little et al. 2007; UCI).

    The 195 rows come from 32 people, about six recordings each, so they are not independent.

    Returns
    -------
    Recordings

    Examples
    --------
    >>> import offcut.datasets
    >>> voices = offcut.datasets.parkinsons()
    >>> voices["MDVP:Shimmer"][voices.status == 1].shape
    (147,)
    >>> voices.note
    'The 195 rows come from 32 people: they are not independent.'
    """
    names, rows = _table(Path(str(files("offcut") / "data" / "parkinsons.csv")))
    values = np.array(rows, dtype=float)
    return Recordings(
        dict(zip(names, values.T, strict=True)),
        f"The {len(rows)} rows come from 32 people: they are not independent.",
    )


@dataclass(frozen=True, eq=False, repr=False)
class Vectorcardiograms:
    """Orientations of the heart's electrical field, a row for each child.

    Attributes
    ----------
    frank, mcfee : arrays of shape (children, 3, 2)
        For each lead system two orthonormal columns: the direction of the QRS loop, and the
        perpendicular.
    age_sex_group : integer array
    sex, age_band : arrays of str
    """

    frank: Float[np.ndarray, "children 3 2"]
    mcfee: Float[np.ndarray, "children 3 2"]
    age_sex_group: Int[np.ndarray, " children"]
    sex: np.ndarray
    age_band: np.ndarray

    def __len__(self) -> int:
        return len(self.frank)

    def __repr__(self) -> str:
        kinds = ", ".join(
            sorted({f"{s} {a}" for s, a in zip(self.sex, self.age_band, strict=True)})
        )
        return f"Vectorcardiograms({len(self)} children, lead systems frank and mcfee; {kinds})"


def vectorcardiogram(path: str | PathLike | None) -> Vectorcardiograms:
    """Vectorcardiograms of 98 children (Downs, Liebman & Mackay 1972), from a file of yours.

    They do not come with Offcut, because no licence for them is known. Printed numbers are
    rounded; each pair of columns is replaced by the orthonormal one nearest to it (its polar
    factor).

    Parameters
    ----------
    path : path
        A CSV file with a line for each child and the columns ``age_sex_group``, ``sex``,
        ``age_band``, and ``frank_qrs_x`` ... ``frank_perp_z``, ``mcfee_qrs_x`` ...
        ``mcfee_perp_z``.

    Returns
    -------
    Vectorcardiograms
    """
    if path is None or not Path(path).is_file():
        raise DataError(
            f"there is no file {str(path)!r}. The vectorcardiograms do not come with Offcut, as no "
            "licence for them is known; they were published by Downs, Liebman & Mackay (1972). "
            "Give the path of a CSV file with the columns age_sex_group, sex, age_band, "
            "frank_qrs_x, frank_qrs_y, ..., mcfee_perp_z"
        )
    names, rows = _table(Path(path))
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    about = ("age_sex_group", "sex", "age_band")
    wanted = [*about, *(name for system in ("frank", "mcfee") for name in _frame_columns(system))]
    lacking = [name for name in wanted if name not in columns]
    if lacking:
        raise DataError(f"{path} has no column {', '.join(lacking)}; it has {', '.join(names)}")
    return Vectorcardiograms(
        _frames(columns, "frank", path),
        _frames(columns, "mcfee", path),
        np.array(columns["age_sex_group"], dtype=np.int64),
        np.array(columns["sex"]),
        np.array(columns["age_band"]),
    )


def _frame_columns(system: str) -> list[str]:
    return [f"{system}_{vector}_{axis}" for vector in ("qrs", "perp") for axis in "xyz"]


def _frames(
    columns: dict[str, tuple[str, ...]], system: str, path: str | PathLike
) -> Float[np.ndarray, "children 3 2"]:
    """Polar factors: U V' of the singular value decomposition U D V'."""
    try:
        numbers = np.array([columns[name] for name in _frame_columns(system)], dtype=float)
    except ValueError as error:
        raise DataError(f"{path} holds text among the numbers of {system}: {error}") from error
    if not np.isfinite(numbers).all():
        raise DataError(f"{path} has missing values for {system}; leave these lines out")
    frames = numbers.T.reshape(-1, 2, 3).transpose(0, 2, 1)
    U, _, V = np.linalg.svd(frames, full_matrices=False)
    return U @ V


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Names and lines of a CSV file."""
    lines = [fields for _, fields in records(path)]
    if len(lines) < 2:
        raise DataError(f"{path} cannot be read as a table: it has no lines")
    return lines[0], lines[1:]


def __dir__() -> list[str]:
    return sorted(__all__)
