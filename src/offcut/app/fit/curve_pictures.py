"""Pictures of fitted densities and intensities, with values under the pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from offcut import plots
from offcut.app.fit.request import named, of
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
    from matplotlib.figure import Figure

    from offcut.app.fit.curves import CurveResult

MOST_POINTS = 2000


def _line(result: CurveResult, section: Section, figure: Figure, caption: str) -> None:
    """Medians and bands of all groups."""
    grid, name = result.grid[:, 0], result.names[0]
    curves = [
        Series(group or "median", grid, band.median, band.lower, band.upper)
        for group, band in result.bands.items()
    ]
    what = "Density" if result.value == "density" else "Intensity of events"
    over = "of" if result.value == "density" else "over"
    section.figure(
        figure,
        result.value,
        f"{caption} The marks below are the data.",
        alt=f"{what} {over} {name} with a credible band.",
        hover=Hover(figure.axes[0], curves),
    )


def density_line(result: CurveResult, section: Section) -> None:
    """All groups in one picture."""
    posteriors = result.posteriors
    drawn = dict(zip(distinct_words(posteriors), posteriors.values(), strict=True))
    figure = plots.density_bands(
        posteriors.get("", drawn),
        result.model,
        result.probability,
        grid=result.grid[:, 0],
        xlabel=words(result.names[0]),
    )
    caption = (
        f"Posterior median of the density and, at each place, a band with {result.probability:.0%} "
        "of the posterior: where the band is wide, few data speak."
    )
    _line(result, section, figure, caption)


def intensity_line(result: CurveResult, section: Section) -> None:
    """One group as ``plots.intensity`` has it; several in one picture."""
    if "" in result.posteriors:
        figure = plots.intensity(
            result.posteriors[""],
            result.model,
            result.probability,
            grid=result.grid[:, 0],
            names=[words(name) for name in result.names],
        )
    else:
        figure = _overlaid(result)
    caption = (
        f"Expected number of events in one unit of {literal(result.names[0])}: median, and at each "
        f"place a band with {result.probability:.0%} of the posterior."
    )
    _line(result, section, figure, caption)


def _overlaid(result: CurveResult) -> Figure:
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


def density_maps(result: CurveResult, section: Section) -> None:
    """The mean density in the plane, a map for each group."""
    plt = pyplot()
    side = round(np.sqrt(len(result.grid)))
    axes = [np.unique(result.grid[:, j]) for j in range(2)]
    across, up = map(words, result.names)
    for name, band in result.bands.items():
        with plt.rc_context(STYLE):
            figure, ax = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
            mean = band.mean.reshape(side, side).T
            image = ax.pcolormesh(*axes, mean, cmap=white_to(BLUE), rasterized=True, vmin=0)
            ax.contour(*axes, mean, colors=INK, linewidths=0.6)
            x = result.fit.task.data[name][:MOST_POINTS]
            ax.plot(*x.T, ".", color=INK, markersize=2, alpha=0.4)
            figure.colorbar(image, ax=ax, label="density")
            ax.set(xlabel=across, ylabel=up, title=words(name))
        section.figure(
            figure,
            named("density", name),
            f"Posterior mean of the density{of(name)}, with contours; points are the data.",
        )


def intensity_maps(result: CurveResult, section: Section) -> None:
    """A map for each group."""
    labels = [words(name) for name in result.names]
    for name, posterior in result.posteriors.items():
        section.figure(
            plots.intensity(posterior, result.model, result.probability, names=labels),
            named("intensity", name),
            f"Posterior mean of the intensity{of(name)}: events in one unit of area. Points "
            "are the data.",
        )


def predicted_scatter(result: CurveResult, section: Section) -> None:
    """Beyond the plane: data beside draws from the posterior predictive distribution."""
    plt = pyplot()
    across, up = map(words, result.names[:2])
    for name, posterior in result.posteriors.items():
        x = result.fit.task.data[name][:MOST_POINTS]
        new = result.model.predict(posterior, len(x))
        with plt.rc_context(STYLE):
            figure, panels = plt.subplots(
                1, 2, figsize=(8, 3.8), sharex=True, sharey=True, layout="constrained"
            )
            for ax, points, title in zip(panels, (x, new), ("data", "predicted"), strict=True):
                ax.plot(*points[:, :2].T, ".", color=BLUE, markersize=3, alpha=0.5)
                ax.set(xlabel=across, ylabel=up, title=title)
        section.figure(
            figure,
            named("predicted", name),
            "The first two coordinates of the data, and as many new points that the posterior "
            "predicts: both clouds should look alike.",
        )


def differences(result: CurveResult, section: Section, pairs: list[tuple[str, str]]) -> None:
    """Pairs of groups."""
    for first, second in pairs:
        figure = plots.difference(
            result.posteriors[first],
            result.model,
            result.posteriors[second],
            result.probability,
            names=(words(first), words(second)),
            grid=result.grid[:, 0],
            xlabel=words(result.names[0]),
        )
        section.figure(
            figure,
            f"difference-{first}-{second}",
            f"On top the density{of(first)} less that{of(second)} with its "
            f"{result.probability:.0%} band: where the band does not hold zero, they differ. Below "
            f"the posterior probability that {literal(first)} has the greater density.",
        )


def foundations(result: CurveResult, section: Section) -> None:
    """f and the rejected proposals, of the first groups."""
    labels = [words(name) for name in result.names]
    if len(labels) > 2:
        section.text("There are no pictures of the rejections beyond two dimensions.")
        return
    for name, posterior in list(result.posteriors.items())[:2]:
        if len(labels) == 1:
            section.figure(
                plots.function_band(posterior, result.model, result.probability, xlabel=labels[0]),
                named("function", name),
                f"The Gaussian process{of(name)} that bends the base: above 0 there is more "
                "than the base says, below less. Far from all data it returns to its prior.",
            )
        section.figure(
            plots.rejected_proposals(posterior, result.model, names=labels),
            named("rejected", name),
            f"The offcuts{of(name)}: proposals that were rejected, where they lie "
            "(left) and how many there are in a sweep (right).",
        )
