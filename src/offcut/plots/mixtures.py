"""Pictures of truncated mixtures: the paper's figure, and what it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from offcut.errors import DataError
from offcut.mixtures.groups import fitted_names, look_up, place_of_group
from offcut.plots.style import GREY, INK, axes_or_new, check_order, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offcut.mixtures.model import TruncatedMixture
    from offcut.mixtures.populations import Labels

#: Events drawn as points; more only make a blot.
MOST_POINTS = 5000
#: Contours of log density, this far apart and so many.
CONTOURS, STEP = 9, 0.75


@picture
def mixture(
    posterior: xr.DataTree,
    model: TruncatedMixture,
    channels: tuple[int, int] = (0, 1),
    *,
    labels: Labels | None = None,
    group: str | int | None = None,
    truncated: bool = True,
    names: Sequence[str] | None = None,
    grid: int = 60,
    limits: tuple[tuple[float, float], tuple[float, float]] | None = None,
    most: int = 60,
    ax: Axes | None = None,
) -> Figure:
    """Events in two channels with contours of the log posterior-mean density.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    model : TruncatedMixture
        The model that was sampled.
    channels : (int, int)
        Which two; the others are integrated out.
    labels : Labels, optional
        What ``model.labels`` returned: colours the events by population.
    group : str or int, optional
        With groups, which one, by its name.
    truncated : bool
        Density of what passes, or (False) of what was there before the filter.
    names : sequence of str, optional
        Of the two axes.
    grid : int
        Points along each axis.
    limits : ((low, high), (low, high)), optional
        The part to show; by default that of the data, with a margin where ``truncated`` is False.
    most : int
        Draws to average over.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    check_order(posterior, model, "mixture")
    observed = posterior["observed_data"].dataset
    x = observed["x"].values
    if x.ndim != 2 or x.shape[1] < 2:
        raise DataError("plots.mixture draws two channels; the data have one")
    shown = np.ones(len(x), bool)
    if group is not None and "group" in observed:
        names = fitted_names(posterior)
        places = look_up(observed["group"].values, names, len(x))
        shown = places == place_of_group(group, names)
    pair = x[shown][:, list(channels)]
    if limits is None:
        low, high = pair.min(0), pair.max(0)
        margin = (0.02 if truncated else 0.25) * (high - low)
        ends = np.stack([low - margin, high + margin], axis=1)
        limits = ((ends[0, 0], ends[0, 1]), (ends[1, 0], ends[1, 1]))
    axes_x, axes_y = (np.linspace(first, last, grid) for first, last in limits)
    mesh = np.stack(np.meshgrid(axes_x, axes_y), axis=-1).reshape(-1, 2)
    density = model.marginal(
        posterior, mesh, channels, truncated=truncated, group=group, most=most
    ).reshape(grid, grid)
    figure, ax = axes_or_new(ax, (4.6, 4.4))
    _events(ax, pair, None if labels is None else labels.labels[shown])
    with np.errstate(divide="ignore"):
        log_density = np.log(density)
    levels = log_density.max() - STEP * np.arange(CONTOURS, 0, -1) + 0.5 * STEP
    raised = np.maximum(log_density, levels[0] - 10.0)
    lines: dict[str, Any] = {"colors": INK, "linewidths": 0.8, "linestyles": "solid"}
    ax.contour(axes_x, axes_y, raised, levels=levels, **lines)
    label_x, label_y = names or [f"channel {channel}" for channel in channels]
    ax.set(xlim=limits[0], ylim=limits[1], xlabel=label_x, ylabel=label_y)
    return figure


def _events(ax: Axes, pair: np.ndarray, labels: np.ndarray | None) -> None:
    """Points, coloured by population where there are labels; small populations stay grey."""
    from matplotlib import colormaps

    rows = np.arange(len(pair))
    if len(rows) > MOST_POINTS:
        rows = np.random.default_rng(0).choice(len(pair), MOST_POINTS, replace=False)
    colours: Any = GREY
    if labels is not None:
        palette = colormaps["tab10"].colors  # type: ignore[attr-defined]
        colours = [palette[k] if k < len(palette) else GREY for k in labels[rows]]
    x, y = pair[rows].T
    ax.scatter(x, y, s=2.5, c=colours, alpha=0.45, linewidths=0, rasterized=True)
