"""Pictures of rejection models: what was there before the filter, parameters, rejections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError
from offcut.numerics.ess import effective_size
from offcut.plots.style import (
    BLUE,
    CHAIN_COLOURS,
    INK,
    NAIVE,
    PALE,
    TRUTH,
    check_order,
    interval,
    note,
    picture,
    subplots,
    white_to,
)
from offcut.result.diagnostics import r_hat

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from offcut.models.rejection import RejectionModel

#: Values of parameters to compare with, by name.
Reference = Mapping[str, ArrayLike]
BEFORE = "before the filter, 90% band"
#: ``posterior`` draws no more panels than this unless it is told their names.
MOST_PANELS = 12


@picture
def posterior(
    posterior: xr.DataTree,
    truth: Reference | None = None,
    naive: Reference | None = None,
    *,
    names: Sequence[str] | None = None,
) -> Figure:
    """Marginal posterior of each parameter.

    A histogram of all draws, one thin line for each chain (they should lie on one another), and
    a bar below for the mean and the central 90%.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    truth, naive : dict, optional
        Values to compare with, by parameter: dashed for the truth of a simulation, dotted for an
        estimate that ignores the filter. Either may lack parameters.
    names : sequence of str, optional
        Parameters to draw; by default all, if they make no more than 12 panels.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    ``posterior`` is that of a truncated normal distribution, given ``x``:

    >>> figure = offcut.plots.posterior(posterior, naive={"loc": x.mean()})
    >>> figure.axes[0].get_xlabel()
    'loc'
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    panels = _panels(posterior["posterior"].dataset, names)
    references = _references(truth, naive)
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    size = (max(3.2 * columns, 4.2), 2.4 * rows + 0.4)
    figure, grid = subplots(size, rows, columns, apart=0.12, squeeze=False)
    for axes, (label, name, index, series) in zip(grid.flat, panels, strict=False):
        _marginal(axes, series)
        for reference, _, line in references:
            if name in reference:
                axes.axvline(float(np.asarray(reference[name])[index]), **line)
        axes.set_xlabel(label)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    handles: list[Patch | Line2D] = [
        Rectangle((0, 0), 1, 1, color=BLUE, alpha=0.25, linewidth=0, label="all draws"),
        Line2D([], [], color=BLUE, linewidth=1, label="each chain"),
        Line2D([], [], color=INK, linewidth=3, marker="o", markersize=5, label="mean, 90%"),
        *(Line2D([], [], label=label, **line) for _, label, line in references),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=3 if columns == 1 else 5)
    return figure


def _references(
    truth: Reference | None, naive: Reference | None
) -> list[tuple[Reference, str, dict[str, Any]]]:
    """What there is to compare with, its label and its line."""
    known = ((truth, "truth", TRUTH), (naive, "filter ignored", NAIVE))
    return [(values, label, line) for values, label, line in known if values is not None]


@picture
def rejections(posterior: xr.DataTree) -> Figure:
    """The number of rejected proposals |Y|: has it room below the budget, and does it mix?

    On the left its histogram (logarithmic axis) with the budget and half the budget: draws beyond
    half the budget are what ``tv_halving_limit`` counts. On the right its trace by chain, pale,
    with a moving average: |Y| is often the slowest thing in the run, so look here first.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    ``posterior`` was drawn with ``budget=500``:

    >>> figure = offcut.plots.rejections(posterior)
    >>> [line.get_label() for line in figure.axes[0].get_lines()]
    ['half the budget', 'budget 500']
    """
    rejected = posterior["sample_stats"].dataset["rejected"].values
    figure, (left, right) = subplots((8.4, 3.0), columns=2, width_ratios=(1, 1.5))
    count_histogram(left, rejected, posterior.attrs["budget"])
    _traces(right, rejected)
    right.set(xlim=(0, max(rejected.shape[1] - 1, 1)), xlabel="draw", ylabel="|Y|")
    right.yaxis.set_major_formatter("{x:,.0f}")
    effective = effective_size(rejected.astype(float))
    right.set_title(f"each chain: ESS {effective:,.0f}, R-hat {r_hat(rejected):.2f}")
    return figure


@picture
def density(
    posterior: xr.DataTree,
    model: RejectionModel,
    *,
    truth: Reference | None = None,
    naive: Reference | None = None,
    grid: ArrayLike | None = None,
    draws: int = 400,
    bins: int | str = "auto",
    xlabel: str = "x",
) -> Figure:
    """What was there before the filter: posterior density of the base, beside the recorded data.

    The line is the posterior mean of the density that proposals come from, its band the central
    90%. The histogram holds the data; its area is the share that passes the filter, so that it
    follows the line wherever everything is recorded. Grey is what the filter loses.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.
    model : RejectionModel
        The model that was sampled; its observations are single numbers, without covariates.
    truth, naive : dict, optional
        Values of all parameters: the density at the truth of a simulation (dashed), and at an
        estimate that ignores the filter (dotted).
    grid : array, optional
        Where to evaluate; by default wherever there is density or data.
    draws : int
        Posterior draws to use, evenly spaced through the chains.
    bins : int or str
        Of the histogram, as in ``numpy.histogram_bin_edges``.
    xlabel : str
        What the data are.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    ``posterior`` is that of ``model``, a truncated normal distribution:

    >>> figure = offcut.plots.density(posterior, model, xlabel="response")
    >>> figure.axes[0].get_xlabel()
    'response'
    """
    check_order(posterior, model, "density")
    data = _single_numbers(posterior)
    if model.latent:
        raise DataError(
            "plots.density draws one density, but with measurement error there are two, of true "
            "and of noisy values; evaluate model.base(theta) on a grid instead"
        )
    thetas = _thinned(posterior["posterior"].dataset, draws)
    places = _visible_range(model, thetas, data) if grid is None else np.asarray(grid, float)
    curves, accepted = _curves(model, thetas, places)
    if posterior.attrs["draws_rejections"]:
        passing = float(posterior["sample_stats"].dataset["proposal_acceptance_rate"].mean())
    else:
        passing = float(np.trapezoid((curves * accepted).mean(0), places))
    figure, axes = subplots((6.4, 3.6))
    lost = _shade_loss(axes, places, 1.0 - accepted.mean(0))
    edges = np.histogram_bin_edges(data, bins=bins)
    heights = np.histogram(data, edges)[0] * (passing / (len(data) * np.diff(edges)))
    recorded = f"{len(data):,} recorded values"
    axes.stairs(heights, edges, fill=True, color="#A9C6DD", zorder=1, label=recorded)
    low, high = np.quantile(curves, [0.05, 0.95], axis=0)
    band = axes.fill_between(places, low, high, color=BLUE, alpha=0.35, linewidth=0, zorder=2)
    (mean,) = axes.plot(places, curves.mean(0), color=BLUE, linewidth=1.8, label=BEFORE)
    for reference, label, line in _references(truth, naive):
        curve, _ = _curves(model, {k: np.array([v]) for k, v in reference.items()}, places)
        axes.plot(places, curve[0], label=label, **line)
    axes.set(xlim=(places[0], places[-1]), ylim=(0, 1.06 * _highest(axes)))
    axes.set(xlabel=xlabel, ylabel="density before the filter")
    if lost is not None:
        axes.plot([], [], color=PALE, linewidth=7, label=lost)
    handles, labels = axes.get_legend_handles_labels()
    handles = [(band, mean) if handle is mean else handle for handle in handles]
    figure.legend(handles, labels, loc="outside upper left", ncols=3)
    return figure


def _panels(
    dataset: xr.Dataset, names: Sequence[str] | None
) -> list[tuple[str, str, tuple[int, ...], np.ndarray]]:
    """Of each: label, variable, index in it, draws of (chain, draw)."""
    unknown = [name for name in names or () if name not in dataset]
    if unknown:
        raise SettingsError(f"names has {unknown}, but the posterior has {list(dataset.data_vars)}")
    panels = []
    for name in names or [str(name) for name in dataset.data_vars]:
        values = dataset[name].values
        for index in np.ndindex(values.shape[2:]):
            label = f"{name}[{', '.join(map(str, index))}]" if index else name
            panels.append((label, name, index, values[(slice(None), slice(None), *index)]))
    if names is None and len(panels) > MOST_PANELS:
        raise SettingsError(
            f"the posterior has {len(panels)} parameters, too many for one picture; choose some "
            f"with names=, out of {list(dataset.data_vars)}"
        )
    return panels


def _marginal(axes: Axes, series: np.ndarray) -> None:
    """Histogram of all draws, a line for each chain, mean and 90% below."""
    from scipy.stats import gaussian_kde

    axes.hist(series.ravel(), bins=40, density=True, color=BLUE, alpha=0.25, linewidth=0)
    x = np.linspace(series.min(), series.max(), 200)
    for chain, draws in enumerate(series):
        if draws.size > 1 and np.ptp(draws) > 0:
            colour = CHAIN_COLOURS[chain % len(CHAIN_COLOURS)]
            axes.plot(x, gaussian_kde(draws)(x), color=colour, linewidth=0.9)
    top = axes.get_ylim()[1]
    interval(axes, series, -0.06 * top)
    axes.set_ylim(-0.12 * top, top)
    axes.margins(x=0.08)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def count_histogram(axes: Axes, rejected: np.ndarray, budget: int | str) -> None:
    """|Y| on a logarithmic axis with the budget; 0 has a place of its own."""
    most = rejected.max() if budget == "none" else max(rejected.max(), int(budget))
    # Whole numbers: edges between them, so that no bin is empty by construction.
    edges = np.unique(np.geomspace(max(rejected.min(), 1), max(most, 2) + 1, 60).astype(int)) - 0.5
    if rejected.min() == 0:
        edges = np.concatenate([[-0.5], edges])
        axes.set_xscale("symlog", linthresh=1)
    else:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_xscale("log")
        subs = (1, 2, 5) if edges[-1] < 50 * edges[0] else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
    counts, _ = np.histogram(rejected, edges)
    axes.stairs(counts / rejected.size, edges, fill=True, color=BLUE, alpha=0.55)
    if budget == "none":
        axes.set_title("no budget")
    else:
        beyond = float((rejected > int(budget) // 2).mean())
        said = f"{beyond:.1%}" if beyond else "no draw"
        axes.set_title(f"{said} beyond half the budget")
        marks = {"half the budget": int(budget) // 2, f"budget {int(budget):,}": int(budget)}
        sides = (("--", "right", -3), ("-", "left", 3))
        for (label, at), (line, side, offset) in zip(marks.items(), sides, strict=True):
            axes.axvline(at, color=INK, linewidth=1.4, linestyle=line, label=label)
            words = {"rotation": 90, "ha": side, "va": "top", "fontsize": None}
            note(axes, label, (at, 0.98), (offset, 0), xycoords=axes.get_xaxis_transform(), **words)
        low, high = np.log(max(edges[0], 0.5)), np.log(max(edges[-1], 2.0))
        axes.set_xlim(right=np.exp(high + 0.12 * (high - low)))
    axes.set_xlabel("rejected proposals |Y| in a sweep")
    axes.set_ylabel("share of draws")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _traces(axes: Axes, rejected: np.ndarray) -> None:
    """Every draw in pale, a moving average over a fiftieth of the run on top."""
    window = max(1, rejected.shape[1] // 50)
    centres = np.arange(rejected.shape[1] - window + 1) + (window - 1) / 2
    colours = [CHAIN_COLOURS[c % len(CHAIN_COLOURS)] for c in range(len(rejected))]
    for series, colour in zip(rejected, colours, strict=True):
        axes.plot(series, color=colour, linewidth=0.4, alpha=0.2)
    for series, colour in zip(rejected, colours, strict=True):
        averages = np.convolve(series, np.ones(window) / window, mode="valid")
        axes.plot(centres, averages, color=colour, linewidth=1.3)


def _single_numbers(posterior: xr.DataTree) -> np.ndarray:
    observed = posterior["observed_data"].dataset
    arrays = [observed[name].values for name in observed.data_vars]
    if len(arrays) != 1 or arrays[0].ndim != 1 or arrays[0].dtype.kind != "f":
        shapes = {str(k): (v.dtype.name, v.shape) for k, v in observed.data_vars.items()}
        raise DataError(
            "plots.density draws models whose observations are single real numbers, without "
            f"covariates; the observed data are {shapes}. Draw plots.posterior instead"
        )
    return arrays[0]


def _thinned(dataset: xr.Dataset, draws: int) -> dict[str, np.ndarray]:
    """Draws of every variable with one leading axis, evenly spaced."""
    flat = {str(k): v.values.reshape(-1, *v.shape[2:]) for k, v in dataset.data_vars.items()}
    have = len(next(iter(flat.values())))
    chosen = np.unique(np.linspace(0, have - 1, min(draws, have)).round().astype(int))
    return {name: values[chosen] for name, values in flat.items()}


def _curves(
    model: RejectionModel, thetas: Mapping[str, np.ndarray], grid: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Density of proposals and acceptance probability, (draw, grid)."""
    import jax
    import jax.numpy as jnp

    def at(theta: dict[str, jax.Array], y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.exp(model.log_proposal(theta, y)), jnp.exp(model.log_accept(theta, y))

    with jax.enable_x64(True):
        arrays = {name: jnp.asarray(values, float) for name, values in thetas.items()}
        over_grid = jax.vmap(at, (None, 0))
        curves, accepted = jax.jit(jax.vmap(over_grid, (0, None)))(arrays, jnp.asarray(grid))
        return np.asarray(curves), np.asarray(accepted)


def _visible_range(
    model: RejectionModel, thetas: Mapping[str, np.ndarray], data: np.ndarray
) -> np.ndarray:
    """The data, and around them wherever the density is above 0.5% of its peak."""
    low, high = data.min(), data.max()
    room = 1.5 * max(high - low, 1e-3 * max(abs(high), 1.0))
    wide = np.linspace(low - room, high + room, 400)
    mean = np.nan_to_num(_curves(model, thetas, wide)[0].mean(0))
    seen = wide[mean > 0.005 * mean.max()]
    return np.linspace(min(low, seen.min()), max(high, seen.max()), 1001)


def _highest(axes: Axes) -> float:
    """The top of lines and bars (the shading reaches to the top of any axes)."""
    lines = [np.max(line.get_ydata(), initial=0.0) for line in axes.get_lines()]
    bars = [np.max(patch.get_data().values) for patch in axes.patches]  # type: ignore[attr-defined]
    return max(lines + bars)


def _shade_loss(axes: Axes, grid: np.ndarray, loss: np.ndarray) -> str | None:
    """Grey behind the curve, by the share that is lost there; its label."""
    if not (loss > 0).any():
        return None
    step = grid[1] - grid[0]
    axes.imshow(
        loss[None],
        extent=(grid[0] - step / 2, grid[-1] + step / 2, 0, 1),
        transform=axes.get_xaxis_transform(),
        aspect="auto",
        cmap=white_to(PALE),
        vmin=0,
        vmax=1,
        interpolation="nearest",
        zorder=0,
    )
    return "never recorded" if set(np.unique(loss)) <= {0.0, 1.0} else "not always recorded"
