"""``offcut fit langevin``: frames from columns of a table or from an array of matrices."""

from __future__ import annotations

import numpy as np

from offcut.errors import DataError, SettingsError
from offcut.fitting.reading import Table
from offcut.fitting.request import Request, Task, by_group
from offcut.fitting.rows import check_groups
from offcut.fitting.source import read_rows
from offcut.fitting.words import parse_frame
from offcut.langevin.frames import TOLERANCE, as_frames


def prepare(request: Request) -> Task:
    """Frames from entries, checked; the model with an exponential prior of concentrations."""
    import numpyro.distributions as dist

    from offcut.langevin.model import MatrixLangevinModel

    options = request.options
    mean = options["prior_mean"]
    if not 0 < mean < np.inf:
        raise SettingsError(
            f"--prior-mean {mean:g} is not understood; expected a positive number, the mean of "
            "the prior of the concentrations"
        )
    table = read_rows(request, frames=True)
    frames = _frames(table, request)
    _check_orthonormal(table, frames)
    check_groups(table)
    model = MatrixLangevinModel(dist.Exponential(1.0 / mean), method=options["method"])
    d, p = frames.shape[1:]
    order = "column by column" if options["order"] == "columns" else "row by row"
    written = "" if table.matrices is not None or p == 1 else f", its entries {order}"
    notes = [f"Each row is a frame of {d} by {p}{written}."]
    return Task(model, by_group(table, as_frames(frames)), table, notes=notes)


def _frames(table: Table, request: Request) -> np.ndarray:
    """(n, d, p)."""
    if table.matrices is not None:
        d, p = table.matrices.shape[1:]
        if request.options["frame"] is not None:
            parse_frame(request.options["frame"], d * p)
        return table.matrices
    d, p = parse_frame(request.options["frame"], len(table.names))
    if p > d:
        raise SettingsError(
            f"--frame {d}x{p} has more columns than rows, and no more than {d} can be orthonormal; "
            f"did you mean {p}x{d}?"
        )
    n = len(table.values)
    if request.options["order"] == "columns":
        return table.values.reshape(n, p, d).transpose(0, 2, 1)
    return table.values.reshape(n, d, p)


def _check_orthonormal(table: Table, frames: np.ndarray) -> None:
    """Refuse what is no frame, by its place in the file."""
    n, d, p = frames.shape
    if p > d:
        as_frames(frames)  # has the words for it
    gram = np.einsum("nij,nik->njk", frames, frames)
    wrong = np.flatnonzero(np.abs(gram - np.eye(p)).max(axis=(1, 2)) > TOLERANCE)
    if not len(wrong):
        return
    first = frames[wrong[0]]
    lengths = ", ".join(f"{length:.4g}" for length in np.linalg.norm(first, axis=0))
    angles = "" if p == 1 else f" and XᵀX = {np.round(gram[wrong[0]], 3).tolist()}"
    raise DataError(
        f"{len(wrong):,} of {n:,} rows of {table.path.name} are no frames of {d} by {p}: "
        f"{table.told(wrong)}. Columns must have length 1 and be perpendicular to each other; "
        f"those of the first such row have length {lengths}{angles}. Are entries in another order "
        "(--order rows), of another frame (--frame 3x2), or not the right columns (--columns)?"
    )
