"""Pictures of Gaussian process densities and intensities: bands, f, rejections, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError
from offcut.plots.rejection_models import count_histogram
from offcut.plots.style import (
    BLUE,
    CHAIN_COLOURS,
    GREY,
    INK,
    ORANGE,
    TRUTH,
    axes_or_new,
    check_order,
    checked_names,
    figure_of,
    legend_above,
    picture,
    some,
    subplots,
    white_to,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offcut.gp.evaluation import Bands, Comparison
    from offcut.gp.model import GPDensity, GPIntensity

#: A function of places.
Curve = Callable[[np.ndarray], np.ndarray]
#: Observations in a rug or on a map; more only make a blot.
MOST_POINTS = 2000
#: Places at which curves are evaluated, and along each side of a map.
PLACES, SIDE = 501, 80
#: A density is shown where its mean is above this share of its peak, and wherever there are data.
VISIBLE = 0.005
#: Room at both ends, as a share of the range.
MARGIN = 0.015
#: Height of a rug, as a share of what is above it.
RUG = 0.055
#: The sides of a map have one scale unless one is this many times as long.
OBLONG = 4.0


@picture
def density_bands(
    posterior: xr.DataTree | Mapping[str, xr.DataTree],
    model: GPDensity,
    probability: float = 0.9,
    *,
    truth: Curve | None = None,
    grid: ArrayLike | None = None,
    xlabel: str = "x",
    ax: Axes | None = None,
) -> Figure:
    """Posterior densities: median and pointwise band, with the observations as a rug below.

    Parameters
    ----------
    posterior : xarray.DataTree, or dict of them by name
        What ``offcut.sample`` returned, for one group or for several.
    model : GPDensity
        The model that was sampled; its observations are single numbers.
    probability : float
        Of the band at each place.
    truth : callable, optional
        Density to compare with, a function of an array of places (dashed).
    grid : array, optional
        Where to evaluate; by default wherever there is density or data.
    xlabel : str
        What the data are.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    ``posterior`` is that of ``model = offcut.GPDensity(length_scale=1.0, variance=1.0)``:

    >>> figure = offcut.plots.density_bands({"patients": posterior}, model, 0.8)
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['patients: median and 80% band']
    """
    check_order(posterior, model, "density_bands")
    several = isinstance(posterior, Mapping) and not isinstance(posterior, xr.DataTree)
    groups = cast("dict[str, xr.DataTree]", dict(posterior) if several else {"": posterior})
    if not groups:
        raise SettingsError("posterior is an empty dict: there is nothing to draw")
    for one in groups.values():
        _check(one, model, "density", "density_bands")
    places = _visible(model, groups.values()) if grid is None else np.asarray(grid, float)
    words = f"median and {probability:.0%} band"
    figure, ax = axes_or_new(ax, (6.4, 3.6))
    entries: dict[str, Any] = {}
    for row, (name, one) in enumerate(groups.items()):
        bands = model.bands(one, places, probability)
        entries[f"{name}: {words}" if name else words] = _band(ax, bands.median, bands, row)
    entries |= _truth(ax, places, truth)
    _finish(ax, places, [_observed(one)[:, 0] for one in groups.values()], from_zero=True)
    ax.set(xlabel=xlabel, ylabel="density")
    legend_above(ax, entries)
    return figure


@picture
def function_band(
    posterior: xr.DataTree,
    model: GPDensity | GPIntensity,
    probability: float = 0.9,
    *,
    grid: ArrayLike | None = None,
    xlabel: str = "x",
    ax: Axes | None = None,
) -> Figure:
    """The Gaussian process f: median and pointwise band, with the observations as a rug below.

    Above its prior mean, 0, there is more than the base density says, below less (up to a
    constant, for a density is normalised).

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    model : GPDensity or GPIntensity
        The model that was sampled; its observations are single numbers.
    probability : float
        Of the band at each place.
    grid : array, optional
        Where to evaluate; by default wherever there is density or data, or all of the window.
    xlabel : str
        What the data are.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from offcut.gp.evaluation import bands as bands_of

    _check(posterior, model, "function", "function_band")
    places = _visible(model, [posterior]) if grid is None else np.asarray(grid, float)
    bands = bands_of(places, model.function(posterior, places), probability)
    figure, ax = axes_or_new(ax, (6.4, 3.4))
    handle = _band(ax, bands.median, bands)
    mean = ax.axhline(0.0, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), gid="prior")
    _finish(ax, places, [_observed(posterior)[:, 0]])
    ax.set(xlabel=xlabel, ylabel="f")
    legend_above(ax, {f"median and {probability:.0%} band": handle, "prior mean": mean})
    return figure


@picture
def rejected_proposals(
    posterior: xr.DataTree,
    model: GPDensity | GPIntensity,
    *,
    draws: int = 100,
    seed: int = 0,
    names: Sequence[str] | None = None,
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """Rejected proposals Y of a Gaussian process model: where they are, and how many.

    On the left the places of all rejections of some draws together, beside the posterior mean
    density (for an intensity these are the thinned points, and no line). On the right the
    number |Y| in each sweep; where the sampler drew none (``method="collapsed"``), in the draws
    for which they were made.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    model : GPDensity or GPIntensity
        The model that was sampled, in one or two dimensions.
    draws : int
        Draws for which rejections are made again.
    seed : int
        Of these.
    names : sequence of str, optional
        Of the coordinates.
    ax : sequence of two matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    d = _check(posterior, model, "rejections", "rejected_proposals", most=2)
    names = _coordinates(names, d)
    found = model.rejections(posterior, draws, seed=seed)
    places = np.concatenate(found)
    drawn = bool(posterior.attrs["draws_rejections"])
    counts = np.array([len(each) for each in found])
    if drawn:
        counts = posterior["sample_stats"].dataset["rejected"].values.ravel()
    figure, (left, right) = _two_axes(ax, (8.4, 3.2), columns=2, width_ratios=(3, 2))
    if d == 1:
        _rejected_on_a_line(left, model, posterior, places[:, 0])
    else:
        _rejected_on_a_map(left, posterior, places)
        left.set_ylabel(names[1])
    left.set_title(f"where: {len(places):,} in {len(found)} draws")
    left.set_xlabel(names[0])
    count_histogram(right, counts, "none")
    right.set_title(f"how many: median {np.median(counts):,.0f}, most {counts.max():,}")
    if not drawn:
        right.set_xlabel("rejected proposals |Y| in a draw")
    return figure


@picture
def difference(
    posterior: xr.DataTree,
    model: GPDensity,
    other: xr.DataTree,
    probability: float = 0.9,
    *,
    names: Sequence[str] = ("the first", "the second"),
    other_model: GPDensity | None = None,
    grid: ArrayLike | None = None,
    xlabel: str = "x",
    ax: Sequence[Axes] | None = None,
) -> Figure:
    """How the densities of two groups differ, and how sure that is.

    On top the posterior mean of the difference with its pointwise band, and rugs of both groups;
    below the posterior probability, at each place, that the first density is the greater one (grey
    beyond all data, where the prior decides).

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned for the first group.
    model : GPDensity
        The model of the first group; its observations are single numbers.
    other : xarray.DataTree
        What ``offcut.sample`` returned for the second group.
    probability : float
        Of the band at each place.
    names : two str
        Of the groups.
    other_model : GPDensity, optional
        Of the second group, where it is not the same.
    grid : array, optional
        Where to evaluate; by default wherever either has density or data.
    xlabel : str
        What the data are.
    ax : sequence of two matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.lines import Line2D

    checked_names(names, 2, "groups")
    groups = ((posterior, model), (other, model if other_model is None else other_model))
    for one, each in groups:
        _check(one, each, "density", "difference")
    if grid is None:
        ends = np.array([_visible(each, [one])[[0, -1]] for one, each in groups])
        grid = np.linspace(ends[:, 0].min(), ends[:, 1].max(), PLACES)
    places = np.asarray(grid, float)
    found = model.compare(
        posterior, other, places, probability=probability, other_model=other_model
    )
    data = [_observed(one)[:, 0] for one, _ in groups]
    figure, (top, bottom) = _two_axes(ax, (6.4, 5.0), rows=2, sharex=True, height_ratios=(3, 2))
    entries: dict[str, Any] = {
        f"{names[0]} less {names[1]}: mean and {probability:.0%} band": _band(
            top, found.mean, found, colour=GREY, line=INK
        )
    }
    _finish(top, places, data)
    top.axhline(0.0, color=GREY, linewidth=0.9, zorder=1)
    top.set_ylabel("difference of densities")
    for name, colour in zip(names, CHAIN_COLOURS, strict=False):
        entries[str(name)] = Line2D([], [], color=colour, marker="|", linestyle="none")
    legend_above(top, entries)
    greater, all_data = found.probability_greater, np.concatenate(data)
    among = (places >= all_data.min()) & (places <= all_data.max())
    grey: dict[str, Any] = {"color": GREY, "linewidth": 0.9}
    bottom.plot(places, greater, label="beyond all data", gid="probability", **grey)
    bottom.plot(places, np.where(among, greater, np.nan), color=INK, linewidth=1.7)
    if not among.all():
        bottom.legend(loc="best")
    bottom.axhline(0.5, zorder=1, **grey)
    bottom.set(ylim=(-0.02, 1.02), yticks=[0, 0.25, 0.5, 0.75, 1], ylabel="probability")
    bottom.set_title(f"posterior probability that {names[0]} is denser than {names[1]}")
    bottom.set(xlabel=xlabel, xlim=(places[0], places[-1]))
    return figure


@picture
def intensity(
    posterior: xr.DataTree,
    model: GPIntensity,
    probability: float = 0.9,
    *,
    truth: Curve | None = None,
    grid: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Posterior intensity of events: median and band in one dimension, a map of the mean in two.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    model : GPIntensity
        The model that was sampled.
    probability : float
        Of the band at each place (one dimension).
    truth : callable, optional
        Intensity to compare with, a function of an array of places (one dimension; dashed).
    grid : array, optional
        Where to evaluate (one dimension); by default all of the window.
    names : sequence of str, optional
        Of the coordinates.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    d = _check(posterior, model, "intensity", "intensity", most=2)
    names = _coordinates(names, d)
    events = _observed(posterior)
    low, high = _reach(model, posterior)
    if d == 2:
        figure, ax = axes_or_new(ax, (5.4, 4.2), "compressed")
        _intensity_map(figure, ax, model, posterior, events)
        ax.set_ylabel(names[1])
    else:
        places = np.linspace(low[0], high[0], PLACES) if grid is None else np.asarray(grid, float)
        bands = model.bands(posterior, places, probability)
        figure, ax = axes_or_new(ax, (6.4, 3.4))
        entries: dict[str, Any] = {
            f"median and {probability:.0%} band": _band(ax, bands.median, bands)
        }
        entries |= _truth(ax, places, truth)
        _finish(ax, places, [events[:, 0]], from_zero=True)
        ax.set_ylabel("intensity")
        legend_above(ax, entries)
    ax.set_xlabel(names[0])
    return figure


def _check(posterior: xr.DataTree, model: object, method: str, name: str, most: int = 1) -> int:
    """The number of coordinates; an error where this picture is not for them."""
    from offcut.gp.model import GPDensity, GPIntensity

    check_order(posterior, model, name)
    kinds = {"density": (GPDensity,), "intensity": (GPIntensity,)}.get(
        method, (GPDensity, GPIntensity)
    )
    if not isinstance(model, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise SettingsError(
            f"plots.{name} takes what offcut.sample returned and a {wanted}, got "
            f"{type(model).__name__}"
        )
    d = _observed(posterior).shape[1]
    if d > most:
        dimensions = "one dimension" if most == 1 else "one and two dimensions"
        raise DataError(
            f"plots.{name} is for {dimensions}, the observed data have {d}; evaluate the model at "
            f"points of your choice instead, with its method {method}"
        )
    return d


def _observed(posterior: xr.DataTree) -> np.ndarray:
    """(n, d)."""
    x = np.asarray(posterior["observed_data"].dataset["x"].values, float)
    return x[:, None] if x.ndim == 1 else x


def _coordinates(names: Sequence[str] | None, d: int) -> Sequence[str]:
    if names is None:
        return ("x",) if d == 1 else ("first coordinate", "second coordinate")
    return checked_names(names, d, "coordinates")


def _reach(model: GPDensity | GPIntensity, posterior: xr.DataTree) -> tuple[np.ndarray, np.ndarray]:
    """Box of the basis within the support: of an intensity the window."""
    return model.prepared_for(posterior).limits


def _visible(model: GPDensity | GPIntensity, posteriors: Iterable[xr.DataTree]) -> np.ndarray:
    """Places from end to end of what there is to see."""
    ends = []
    for posterior in posteriors:
        low, high = (edge[0] for edge in _reach(model, posterior))
        if model.process == "density":
            wide, x = np.linspace(low, high, PLACES), _observed(posterior)
            mean = cast("GPDensity", model).density(posterior, wide)
            seen = wide[mean > VISIBLE * mean.max()]
            first, last = min(x.min(), seen[0]), max(x.max(), seen[-1])
            room = MARGIN * (last - first)
            low, high = max(low, first - room), min(high, last + room)
        ends.append((low, high))
    return np.linspace(min(low for low, _ in ends), max(high for _, high in ends), PLACES)


def _two_axes(
    ax: Sequence[Axes] | None, size: tuple[float, float], **settings: Any
) -> tuple[Figure, Sequence[Axes]]:
    if ax is None:
        return subplots(size, apart=0.1, **settings)
    if len(np.ravel(np.asarray(ax, object))) != 2:
        raise SettingsError(f"this picture has two panels: ax must be two axes, got {ax!r}")
    return figure_of(ax[0]), ax


def _band(
    ax: Axes,
    middle: np.ndarray,
    band: Bands | Comparison,
    row: int = 0,
    colour: str | None = None,
    line: str | None = None,
) -> tuple[Artist, Artist]:
    """Line and band, as one entry of a legend; in the colour of the row unless told otherwise."""
    colour = colour or CHAIN_COLOURS[row % len(CHAIN_COLOURS)]
    shade = ax.fill_between(
        band.points,
        band.lower,
        band.upper,
        color=colour,
        alpha=0.25,
        linewidth=0,
        gid=f"band-{row}",
    )
    (curve,) = ax.plot(band.points, middle, color=line or colour, linewidth=1.7, gid=f"line-{row}")
    return shade, curve


def _truth(ax: Axes, grid: np.ndarray, truth: Curve | None) -> dict[str, Artist]:
    """A dashed line and its entry of a legend, where there is a truth."""
    if truth is None:
        return {}
    (line,) = ax.plot(grid, truth(grid), gid="truth", **TRUTH)
    return {"truth": line}


def _finish(
    ax: Axes, grid: np.ndarray, groups: Sequence[np.ndarray], from_zero: bool = False
) -> None:
    """Limits around what is drawn, and a rug for each group in a strip below."""
    low, high = ax.get_ylim()
    if from_zero:
        low, high = 0.0, 1.02 * ax.dataLim.y1 or 1.0
    height = RUG * (high - low)
    for row, x in enumerate(groups):
        top = low - 0.25 * height - row * height
        ax.vlines(
            some(x, MOST_POINTS),
            top - 0.75 * height,
            top,
            colors=CHAIN_COLOURS[row % len(CHAIN_COLOURS)],
            linewidth=0.7,
            alpha=0.7,
            gid=f"rug-{row}",
        )
    ticks = [tick for tick in ax.get_yticks() if low <= tick <= high]
    ax.set_yticks(ticks)
    ax.set_ylim(low - (len(groups) + 0.25) * height, high)
    ax.set_xlim(grid[0], grid[-1])
    if from_zero:
        ax.axhline(0.0, color=GREY, linewidth=0.8)
        ax.spines["left"].set_bounds(0, high)


def _rejected_on_a_line(
    ax: Axes, model: GPDensity | GPIntensity, posterior: xr.DataTree, places: np.ndarray
) -> None:
    """Histogram of rejections, the density of what was accepted, the data."""
    x = _observed(posterior)[:, 0]
    low, high = _nearly_all(places, x)
    edges = np.linspace(low, high, 61)
    share = np.histogram(places, edges)[0] / (max(len(places), 1) * np.diff(edges))
    ax.stairs(share, edges, fill=True, color=ORANGE, alpha=0.45, label="rejected", gid="rejected")
    room = MARGIN * (high - low)
    grid = np.linspace(low - room, high + room, PLACES)
    if model.process == "density":
        mean = cast("GPDensity", model).density(posterior, grid)
        ax.plot(grid, mean, color=BLUE, label="accepted", gid="accepted")
    _finish(ax, grid, [x], from_zero=True)
    ax.set_ylabel("density")
    ax.legend(loc="best", handlelength=1.5)


def _rejected_on_a_map(ax: Axes, posterior: xr.DataTree, places: np.ndarray) -> None:
    """The darker, the more rejections in a small square; the data on top."""
    x = _observed(posterior)
    low, high = _nearly_all(places, x)
    side = int(np.clip(np.sqrt(len(places)) / 8, 8, 40))
    bins = [np.linspace(a, b, side + 1) for a, b in zip(low, high, strict=True)]
    counts, _ = np.histogramdd(places, bins=bins)
    ax.pcolormesh(*bins, counts.T, cmap=white_to(ORANGE), vmin=0, gid="rejected", rasterized=True)
    ax.plot([], [], "s", color=ORANGE, alpha=0.7, label="rejected")
    _points(ax, x, label="observed")
    room = MARGIN * (high - low)
    ax.set_xlim(low[0] - room[0], high[0] + room[0])
    ax.set_ylim(low[1] - room[1], high[1] + room[1])
    ax.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none")


def _nearly_all(places: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Limits around all of x and all but a thousandth of the places; there may be neither."""
    tails = [np.quantile(places, [0.0005, 0.9995], axis=0)] if len(places) else []
    ends = np.concatenate([x, *tails])
    if not len(ends):
        return np.zeros(x.shape[1:]), np.ones(x.shape[1:])
    return ends.min(0), ends.max(0)


def _intensity_map(
    figure: Figure, ax: Axes, model: GPIntensity, posterior: xr.DataTree, events: np.ndarray
) -> None:
    """Posterior mean at the middle of small squares, with the events on top."""
    low, high = _reach(model, posterior)
    steps = (np.arange(SIDE) + 0.5) / SIDE
    middles = [a + (b - a) * steps for a, b in zip(low, high, strict=True)]
    mesh = np.stack(np.meshgrid(*middles), axis=-1).reshape(-1, 2)
    sides = high - low
    image = ax.imshow(
        model.intensity(posterior, mesh).reshape(SIDE, SIDE),
        extent=(low[0], high[0], low[1], high[1]),
        origin="lower",
        aspect="equal" if sides.max() < OBLONG * sides.min() else "auto",
        interpolation="bilinear",
        cmap=white_to(BLUE),
        vmin=0,
        gid="intensity",
    )
    _points(ax, events)
    figure.colorbar(image, ax=ax, label="posterior mean intensity")


def _points(ax: Axes, places: np.ndarray, label: str | None = None) -> None:
    x, y = some(places, MOST_POINTS).T
    dots = ax.scatter(x, y, s=9, color=INK, edgecolors="white", linewidths=0.5, label=label)
    dots.set_gid("observed")
