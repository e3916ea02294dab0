"""Pictures of fitted densities and intensities, with values under the pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from offcut import plots
from offcut.app.html import Hover, Section, Series
from offcut.app.html.markup import literal
from offcut.plots.style import (
    BLUE,
    CHAIN_COLOURS,
    INK,
    STYLE,
    distinct_words,
    pyplot,
    white_to,
    words,
)

if TYPE_CHECKING:
    from offcut.app.fit.curves import CurveResult

RUG = "The marks below are the data."
MOST_POINTS = 2000


def _series(result: CurveResult) -> list[Series]:
    grid = result.grid[:, 0]
    return [
        Series(name or "median", grid, band.median, band.lower, band.upper)
        for name, band in result.bands.items()
    ]


def _axes(result: CurveResult) -> dict[str, str]:
    return {"xlabel": words(result.names[0]), "ylabel": words(result.names[1])}


def density_line(result: CurveResult, section: Section) -> None:
    """Medians and bands of all groups."""
    grid = result.grid[:, 0]
    posteriors = result.fit.posteriors
    drawn: xr.DataTree | dict[str, xr.DataTree] = (
        posteriors[""]
        if "" in posteriors
        else dict(zip(distinct_words(posteriors), posteriors.values(), strict=True))
    )
    figure = plots.density_bands(
        drawn, result.fit.model, result.probability, grid=grid, xlabel=words(result.names[0])
    )
    section.figure(
        figure,
        "density",
        f"Posterior median of the density and, at each place, a band with {result.probability:.0%} "
        f"of the posterior: where the band is wide, few data speak. {RUG}",
        alt=f"Density of {result.names[0]} with a credible band.",
        hover=Hover(figure.axes[0], _series(result)),
    )


def density_maps(result: CurveResult, section: Section) -> None:
    """The mean density in the plane, a map for each group."""
    plt = pyplot()
    side = round(np.sqrt(len(result.grid)))
    axes = [np.unique(result.grid[:, j]) for j in range(2)]
    for name, band in result.bands.items():
        with plt.rc_context(STYLE):
            figure, ax = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
            mean = band.mean.reshape(side, side).T
            image = ax.pcolormesh(*axes, mean, cmap=white_to(BLUE), rasterized=True, vmin=0)
            ax.contour(*axes, mean, colors=INK, linewidths=0.6)
            x = result.fit.task.data[name][:MOST_POINTS]
            ax.plot(*x.T, ".", color=INK, markersize=2, alpha=0.4)
            figure.colorbar(image, ax=ax, label="density")
            ax.set(**_axes(result), title=words(name))
        section.figure(
            figure,
            f"density-{name}" if name else "density",
            f"Posterior mean of the density{result.of(name)}, with contours; points are the data.",
        )


def predicted_scatter(result: CurveResult, section: Section) -> None:
    """Beyond the plane: data beside draws from the posterior predictive distribution."""
    plt = pyplot()
    for name, posterior in result.fit.posteriors.items():
        x = result.fit.task.data[name][:MOST_POINTS]
        new = result.fit.model.predict(posterior, len(x))
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                1, 2, figsize=(8, 3.8), sharex=True, sharey=True, layout="constrained"
            )
            for ax, points, title in zip(panels, (x, new), ("data", "predicted"), strict=True):
                ax.plot(*points[:, :2].T, ".", color=BLUE, markersize=3, alpha=0.5)
                ax.set(**_axes(result), title=title)
        section.figure(
            figure,
            f"predicted-{name}" if name else "predicted",
            "The first two coordinates of the data, and as many new points that the posterior "
            "predicts: both clouds should look alike.",
        )


def differences(result: CurveResult, section: Section, pairs: list[tuple[str, str]]) -> None:
    """Pairs of groups."""
    posteriors = result.fit.posteriors
    for first, second in pairs:
        figure = plots.difference(
            posteriors[first],
            result.fit.model,
            posteriors[second],
            result.probability,
            names=(words(first), words(second)),
            grid=result.grid[:, 0],
            xlabel=words(result.names[0]),
        )
        section.figure(
            figure,
            f"difference-{first}-{second}",
            f"On top the density{result.of(first)} less that{result.of(second)} with its "
            f"{result.probability:.0%} band: where the band does not hold zero, they differ. Below "
            f"the posterior probability that {literal(first)} has the greater density.",
        )


def intensity_line(result: CurveResult, section: Section) -> None:
    """One group as ``plots.intensity`` has it; several in one picture."""
    if "" in result.fit.posteriors:
        figure = plots.intensity(
            result.fit.posteriors[""],
            result.fit.model,
            result.probability,
            grid=result.grid[:, 0],
            names=[words(name) for name in result.names],
        )
    else:
        figure = _overlaid(result)
    section.figure(
        figure,
        "intensity",
        f"Expected number of events in one unit of {literal(result.names[0])}: median, and at each "
        f"place a band with {result.probability:.0%} of the posterior. {RUG}",
        alt=f"Intensity of events over {result.names[0]} with a credible band.",
        hover=Hover(figure.axes[0], _series(result)),
    )


def _overlaid(result: CurveResult) -> Any:
    plt = pyplot()
    grid = result.grid[:, 0]
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
        top = max(band.upper.max() for band in result.bands.values())
        for row, (name, band) in enumerate(result.bands.items()):
            colour = CHAIN_COLOURS[row % len(CHAIN_COLOURS)]
            ax.fill_between(grid, band.lower, band.upper, color=colour, alpha=0.25, linewidth=0)
            ax.plot(grid, band.median, color=colour, label=words(name))
            place = -0.04 * top * (row + 1)
            x = result.fit.task.data[name][:MOST_POINTS]
            ax.plot(x, np.full(len(x), place), "|", color=colour, markersize=5, alpha=0.7)
        ax.set(xlabel=words(result.names[0]), ylabel="intensity")
        ax.legend()
    return figure


def intensity_maps(result: CurveResult, section: Section) -> None:
    """A map for each group."""
    for name, posterior in result.fit.posteriors.items():
        section.figure(
            plots.intensity(
                posterior,
                result.fit.model,
                result.probability,
                names=[words(name) for name in result.names],
            ),
            f"intensity-{name}" if name else "intensity",
            f"Posterior mean of the intensity{result.of(name)}: events in one unit of area. Points "
            "are the data.",
        )


def foundations(result: CurveResult, section: Section) -> None:
    """f and the rejected proposals, of the first groups."""
    d = len(result.names)
    if d > 2:
        section.text("There are no pictures of the rejections beyond two dimensions.")
    for name, posterior in list(result.fit.posteriors.items())[:2]:
        if d == 1:
            section.figure(
                plots.function_band(
                    posterior, result.fit.model, result.probability, xlabel=words(result.names[0])
                ),
                f"function-{name}" if name else "function",
                f"The Gaussian process{result.of(name)} that bends the base: above 0 there is more "
                "than the base says, below less. Far from all data it returns to its prior.",
            )
        if d <= 2:
            section.figure(
                plots.rejected_proposals(
                    posterior, result.fit.model, names=[words(name) for name in result.names]
                ),
                f"rejected-{name}" if name else "rejected",
                f"The offcuts{result.of(name)}: proposals that were rejected, where they lie "
                "(left) and how many there are in a sweep (right).",
            )
