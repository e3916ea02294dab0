"""Frames on a sphere that can be turned: the numbers that the page's script draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offcut.langevin.directions import Cap

#: Frames that a page carries; more only make a blot.
MOST_FRAMES = 2000
COLOURS = ("blue", "orange", "green")


def sphere_data(
    x: Any,
    modes: Sequence[Cap],
    ahead: Sequence[Cap] | None,
    names: Sequence[str],
    axes_names: Sequence[str],
) -> dict[str, Any]:
    """Points of each column, its modal direction and its circles (angles in radians)."""
    x = np.asarray(x, float)
    if len(x) > MOST_FRAMES:
        x = x[np.sort(np.random.default_rng(0).choice(len(x), MOST_FRAMES, replace=False))]
    columns = []
    for mode in modes:
        j = mode.column
        columns.append(
            {
                "name": names[j],
                "colour": COLOURS[j],
                "points": np.round(x[:, :, j], 4).tolist(),
                "mode": np.round(mode.centre, 4).tolist(),
                "credible": round(float(mode.angle), 5),
                "predictive": None if ahead is None else round(float(ahead[j].angle), 5),
                "centre": None if ahead is None else np.round(ahead[j].centre, 4).tolist(),
            }
        )
    return {
        "columns": columns,
        "axes": list(axes_names),
        "share": float(modes[0].probability),
    }
