"""Observed frames in three dimensions, on a globe or on maps, with circles around the modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from offcut.errors import DataError, SettingsError
from offcut.langevin.evaluation import as_draws, caps, modal_frames
from offcut.plots.frame_maps import draw_maps, draw_sphere
from offcut.plots.style import STYLE, checked_names, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure


PROJECTIONS = ("sphere", "equal-area")
#: Observed frames drawn; more only make a blot.
MOST_POINTS = 2000
ORDINALS = ("first column", "second column", "third column")


def frames(
    posterior: xr.DataTree,
    predictive: Any = None,
    probability: float = 0.9,
    *,
    projection: str = "sphere",
    view: tuple[float, float] | None = None,
    names: Sequence[str] | None = None,
    axes_names: Sequence[str] = ("x", "y", "z"),
    ax: Any = None,
) -> Figure:
    """Observed frames in three dimensions, with circles around the modal directions.

    Each column is a point on the sphere, in a colour of its own. The solid circle holds a share of
    the posterior of the modal direction (that column of G Hᵀ), the dashed one the same share of
    new observations; each is the smallest around its mean direction, and for its column alone.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned; frames of 1 to 3 columns in three dimensions.
    predictive : array (size, 3, p), optional
        New frames, from ``model.predict(posterior, size)``; some thousands make a steady circle.
    probability : float
        The share within the circles.
    projection : "sphere" or "equal-area"
        The sphere seen from outside, its far side veiled; or a map for each column (Lambert's
        azimuthal projection), centred at its mean modal direction, which hides nothing and shows
        equal areas as equal.
    view : (elevation, azimuth), optional
        In degrees: where the sphere is seen from; by default from between the modal directions.
    names : sequence of str, optional
        Of the columns.
    axes_names : sequence of str
        Of the three coordinates.
    ax : matplotlib Axes or sequence of them, optional
        Where to draw: 3-D axes for the sphere, one for each column for the maps.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    With a posterior made up, in place of what ``offcut.sample`` returns:

    >>> import numpy as np, xarray as xr, offcut.plots
    >>> random = np.random.default_rng(0)
    >>> x = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(50, 3, 2))).Q
    >>> G = np.linalg.qr(np.eye(3, 2) + 0.05 * random.normal(size=(4, 100, 3, 2))).Q
    >>> posterior = xr.DataTree.from_dict(
    ...     {
    ...         "posterior": xr.Dataset({"G": (("chain", "draw", "row", "column"), G)}),
    ...         "observed_data": xr.Dataset({"x": (("n", "row", "column"), x)}),
    ...     }
    ... )
    >>> figure = offcut.plots.frames(posterior, projection="equal-area")
    >>> [panel.get_title(loc="center") for panel in figure.axes]
    ['first column: mode ±6.2°', 'second column: mode ±6.2°']
    """
    plt = pyplot()
    if projection not in PROJECTIONS:
        raise SettingsError(f'projection must be "sphere" or "equal-area", got {projection!r}')
    x = _observed(posterior)
    p = x.shape[2]
    names = ORDINALS[:p] if names is None else checked_names(names, p)
    modes = caps(modal_frames(posterior), probability)
    ahead = None
    if predictive is not None:
        predictive = as_draws(predictive, "predictive")
        if predictive.shape[1:] != x.shape[1:]:
            raise DataError(
                f"predictive frames are {predictive.shape[1:]}, the observed ones {x.shape[1:]}"
            )
        ahead = caps(predictive, probability)
    if len(x) > MOST_POINTS:
        x = x[np.sort(np.random.default_rng(0).choice(len(x), MOST_POINTS, replace=False))]
    with plt.rc_context(STYLE):
        if projection == "sphere":
            return draw_sphere(plt, ax, x, modes, ahead, names, axes_names, view)
        return draw_maps(plt, ax, x, modes, ahead, names, axes_names)


def _observed(posterior: xr.DataTree) -> np.ndarray:
    x = np.asarray(posterior["observed_data"].dataset["x"].values, float)
    if x.ndim != 3 or x.shape[1] != 3:
        raise DataError(
            "plots.frames draws frames in three dimensions, (n, 3, p) with p from 1 to 3; the "
            f"observed data are {x.shape}. offcut.langevin.evaluation.caps has the same in numbers"
        )
    return as_draws(x, "observed frames")
