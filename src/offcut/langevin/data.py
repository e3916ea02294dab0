"""Frames as data: checked, and made exactly orthonormal."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from offcut.errors import DataError

#: Columns further than this from orthonormal are not taken for frames with rounded entries.
TOLERANCE = 1e-2


def as_frames(data: ArrayLike) -> Float[np.ndarray, "n d p"]:
    """n frames (n, d, p) in float64: unit vectors (n, d) are frames of one column.

    Entries printed with few digits are not quite orthonormal; each frame is replaced by the nearest
    one that is, its polar factor U Vᵀ.
    """
    if np.iscomplexobj(data) or np.ma.is_masked(data):
        raise DataError("frames must be real numbers, none of them masked; leave such frames out")
    try:
        frames = np.asarray(data, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"frames must be an array of numbers (n, d, p): {error}") from error
    if frames.ndim == 2:
        frames = frames[:, :, None]
    if frames.ndim != 3 or 0 in frames.shape:
        raise DataError(
            f"frames must be an array (n, d, p), or (n, d) for unit vectors, got shape "
            f"{np.shape(data)}"
        )
    n, d, p = frames.shape
    if p > d:
        raise DataError(
            f"got {n} matrices of {d} rows and {p} columns, but no more than {d} columns can be "
            "orthonormal; are rows and columns exchanged? Try data.transpose(0, 2, 1)"
        )
    bad = np.flatnonzero(~np.isfinite(frames).all(axis=(1, 2)))
    if bad.size:
        raise DataError(
            f"{bad.size} of {n} frames have entries that are not finite (frame {bad[0]}, ...); "
            "leave them out"
        )
    gram = np.einsum("nij,nik->njk", frames, frames)
    miss = np.abs(gram - np.eye(p)).max(axis=(1, 2))
    wrong = np.flatnonzero(miss > TOLERANCE)
    if wrong.size:
        first = wrong[0]
        raise DataError(
            f"{wrong.size} of {n} matrices have columns that are not orthonormal; frame {first} "
            f"has XᵀX = {np.round(gram[first], 3).tolist()}. Columns must have length 1 and be "
            "perpendicular to each other (a single frame is data[None], of shape (1, d, p))"
        )
    U, _, Vt = np.linalg.svd(frames, full_matrices=False)
    return U @ Vt
