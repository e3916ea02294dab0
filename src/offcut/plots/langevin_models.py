"""Pictures of matrix Langevin models: frames with circles around the modes, and concentrations.

Observed frames in three dimensions are drawn on a globe or on maps; the posterior of the
concentrations kappa has a row for each column, and a panel of two of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError
from offcut.langevin.evaluation import as_draws, caps, draws_of, modal_frames
from offcut.plots.frame_maps import Scene, draw_maps, draw_sphere
from offcut.plots.style import (
    CHAIN_COLOURS,
    GREY,
    INK,
    checked_names,
    figure_of,
    halo,
    interval,
    note,
    picture,
    some,
    subplots,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PROJECTIONS = ("sphere", "equal-area")
#: Observed frames drawn; more only make a blot.
MOST_POINTS = 2000
ORDINALS = ("first column", "second column", "third column")
#: Draws in the joint panel.
MOST_DRAWS = 2000
#: The concentrations share a logarithmic axis where they differ by more than this factor.
FAR_APART = 20.0
DASHES = ("--", ":", "-.")


@picture
def frames(
    posterior: xr.DataTree,
    predictive: ArrayLike | None = None,
    probability: float = 0.9,
    *,
    projection: str = "sphere",
    view: tuple[float, float] | None = None,
    names: Sequence[str] | None = None,
    axes_names: Sequence[str] = ("x", "y", "z"),
    ax: Axes | Sequence[Axes] | None = None,
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
    ``posterior`` is that of frames of two columns, with ``G`` and the observed data:

    >>> figure = offcut.plots.frames(posterior, projection="equal-area")
    >>> [panel.get_title(loc="center") for panel in figure.axes]
    ['first column: mode ±6.2°', 'second column: mode ±6.2°']
    """
    if projection not in PROJECTIONS:
        raise SettingsError(f'projection must be "sphere" or "equal-area", got {projection!r}')
    x = _observed(posterior)
    p = x.shape[2]
    names = ORDINALS[:p] if names is None else checked_names(names, p)
    modes = caps(modal_frames(posterior), probability)
    ahead = None
    if predictive is not None:
        new = as_draws(predictive, "predictive")
        if new.shape[1:] != x.shape[1:]:
            raise DataError(
                f"predictive frames are {new.shape[1:]}, the observed ones {x.shape[1:]}"
            )
        ahead = caps(new, probability)
    scene = Scene(some(x, MOST_POINTS), modes, ahead, names, axes_names)
    return draw_sphere(ax, scene, view) if projection == "sphere" else draw_maps(ax, scene)


def _observed(posterior: xr.DataTree) -> np.ndarray:
    x = np.asarray(posterior["observed_data"].dataset["x"].values, float)
    if x.ndim != 3 or x.shape[1] != 3:
        raise DataError(
            "plots.frames draws frames in three dimensions, (n, 3, p) with p from 1 to 3; the "
            f"observed data are {x.shape}. offcut.langevin.evaluation.caps has the same in numbers"
        )
    return as_draws(x, "observed frames")


@picture
def concentrations(
    posterior: xr.DataTree,
    marks: Mapping[str, Sequence[float]] | None = None,
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Posterior of the concentrations kappa, one row for each column of the frames.

    Each row has the density, scaled to its peak, and below it the mean and the central 90%. With
    two columns a second panel has both at once: draws, and the contours of the smallest regions
    with 50% and 90% of them.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned for a matrix Langevin model.
    marks : dict, optional
        Values to compare with, by what they are: ``{"maximum likelihood": (11.9, 5.9)}``.
    names : sequence of str, optional
        Of the columns.
    ax : matplotlib Axes, optional
        Where to draw the rows (and nothing else); by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    ``posterior`` is that of frames of two columns, with ``kappa``:

    >>> figure = offcut.plots.concentrations(posterior, {"maximum likelihood": (11.9, 5.9)})
    >>> [panel.get_title(loc="left") for panel in figure.axes]
    ['density, mean and 90% interval', 'both together']
    """
    kappa = draws_of(posterior["posterior"].dataset, "kappa")
    if kappa.ndim != 2:
        raise DataError(f"kappa must be (chain, draw, column), got {kappa.ndim} dimensions")
    p = kappa.shape[1]
    names = [rf"$\kappa_{{{j + 1}}}$" for j in range(p)] if names is None else list(names)
    checked_names(names, p)
    marked = _checked_marks(marks or {}, p)
    if ax is not None:
        _rows(ax, kappa, names, marked)
        return figure_of(ax)
    if p != 2:
        figure, left = subplots((5.2, 1.2 + 0.8 * p))
        _rows(left, kappa, names, marked)
        return figure
    figure, (left, right) = subplots((7.6, 3.3), columns=2, apart=0.1, width_ratios=(1.25, 1))
    _rows(left, kappa, names, marked)
    _both(right, kappa, names, marked)
    return figure


def _checked_marks(marks: Mapping[str, Sequence[float]], p: int) -> dict[str, np.ndarray]:
    values = {label: np.asarray(mark, float) for label, mark in marks.items()}
    for label, mark in values.items():
        if mark.shape != (p,):
            raise SettingsError(
                f"marks must have a value for each of the {p} columns, but {label!r} has shape "
                f"{mark.shape}"
            )
    return values


def _rows(
    ax: Axes, kappa: np.ndarray, names: Sequence[str], marks: Mapping[str, np.ndarray]
) -> None:
    """Densities one above the other, the first column on top."""
    p = kappa.shape[1]
    means = kappa.mean(axis=0)
    log = bool(means.max() > FAR_APART * means.min() > 0)
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:,g}")
    for j in range(p):
        base, colour = float(p - 1 - j), CHAIN_COLOURS[j % len(CHAIN_COLOURS)]
        draws = kappa[:, j]
        grid, heights = _density(draws, log)
        top = base + 0.72 * heights / heights.max()
        ax.fill_between(grid, base, top, color=colour, alpha=0.25, linewidth=0)
        ax.plot(grid, top, color=colour, linewidth=1.4, gid=f"density-{j}")
        interval(ax, draws, base - 0.07, gid=f"interval-{j}")
        low, high = np.quantile(draws, [0.05, 0.95])
        words = f"{_figures(means[j])}  ({_figures(low)} to {_figures(high)})"
        note(ax, words, (high, base - 0.07), (6, 0), va="center")
        for (label, values), dashes in zip(marks.items(), cycle(DASHES), strict=False):
            at = [values[j]] * 2
            ax.plot(at, [base, base + 0.8], color=INK, linestyle=dashes, linewidth=1.2, label=label)
            if j == 0:
                note(ax, label, (at[0], base + 0.8), (4, -2))
    ax.set_yticks(np.arange(p)[::-1], names, fontsize=11)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(-0.22, p - 0.1)
    ax.set_xlabel("concentration")
    ax.set_title("density, mean and 90% interval")


def _figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def _density(draws: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    """Kernel density of positive numbers, or of their logarithms; zero is not passed."""
    from scipy.stats import gaussian_kde

    low, high = draws.min(), draws.max()
    if not high > low:  # one value only: a spike
        return low + np.array([-1e-3, 0.0, 1e-3]) * max(abs(low), 1e-3), np.array([0.0, 1.0, 0.0])
    if log:
        logs = np.log(draws[draws > 0.0])
        grid = np.linspace(np.quantile(logs, 0.001), logs.max(), 300)
        return np.exp(grid), gaussian_kde(logs)(grid)
    kde = gaussian_kde(draws)
    room = 2.5 * float(np.sqrt(kde.covariance[0, 0]))
    grid = np.linspace(max(0.0, low - room), high + room, 300)
    return grid, kde(grid) + kde(-grid)  # what spills over zero is folded back


def _both(
    ax: Axes, kappa: np.ndarray, names: Sequence[str], marks: Mapping[str, np.ndarray]
) -> None:
    """Draws of two concentrations, with contours of the smallest regions of 50% and 90%."""
    from scipy.stats import gaussian_kde

    chosen = np.unique(np.linspace(0, len(kappa) - 1, min(MOST_DRAWS, len(kappa))).astype(int))
    shown = kappa[chosen]
    first, second = shown.T
    dots: dict[str, Any] = {"s": 3, "color": GREY, "alpha": 0.3, "linewidths": 0}
    ax.scatter(first, second, rasterized=True, gid="draws", **dots)
    if np.linalg.matrix_rank(np.cov(shown.T)) == 2:
        # A little smoother than Scott's rule: for contours, not for peaks.
        kde = gaussian_kde(shown.T, lambda rule: 1.4 * rule.scotts_factor())
        at_draws = kde(shown.T)
        low, high = shown.min(0), shown.max(0)
        margin = 0.1 * (high - low)
        axes = [
            np.linspace(a, b, 70)
            for a, b in zip(np.maximum(low - margin, 0.0), high + margin, strict=True)
        ]
        mesh = np.stack(np.meshgrid(*axes))
        heights = kde(mesh.reshape(2, -1)).reshape(70, 70)
        levels = np.quantile(at_draws, [0.1, 0.5])
        lines = ax.contour(*axes, heights, levels=levels, colors=INK, linewidths=1.1)
        ax.clabel(lines, fmt=dict(zip(levels, ("90%", "50%"), strict=True)), fontsize=8)
    for label, (first, second) in marks.items():
        ax.plot(first, second, "o", color="none", markeredgecolor=INK, markersize=7)
        note(ax, label, (first, second), (7, -3), path_effects=halo())
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_title("both together")
