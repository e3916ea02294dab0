"""Pictures of a fitted mixture: two columns at a time, or one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from offcut import plots
from offcut.app.html import Hover, Section, Series
from offcut.app.html.markup import literal, plain
from offcut.plots.style import BLUE, GREY, ORANGE, STYLE, pyplot, words

if TYPE_CHECKING:
    from offcut.app.fit.mixture import MixtureResult

#: Pairs of columns that are drawn, points along each side of a map and draws to average over.
MOST_PAIRS, GRID, MOST_DRAWS = 4, 60, 60
PLACES = 301


def write(result: MixtureResult, section: Section) -> None:
    """All pictures of the populations."""
    if len(result.names) == 1:
        _on_a_line(result, section)
        return
    groups = result.fit.table.group_names
    for code, name in enumerate(groups or ("",)):
        _maps(result, section, code if groups else None, name)


def pairs_of(count: int) -> list[tuple[int, int]]:
    """Every column once, two at a time, as far as there is room.

    >>> pairs_of(2), pairs_of(5)
    ([(0, 1)], [(0, 1), (2, 3), (3, 4)])
    """
    pairs = [(first, first + 1) for first in range(0, count - 1, 2)]
    if count % 2:
        pairs.append((count - 2, count - 1))
    return pairs[:MOST_PAIRS]


def _maps(result: MixtureResult, section: Section, code: int | None, group: str) -> None:
    plt = pyplot()
    model, posterior = result.fit.model, result.posterior
    pairs = pairs_of(len(result.names))
    views = [(pair, True) for pair in pairs] + ([(pairs[0], False)] if result.windowed else [])
    columns = min(len(views), 2 if len(views) in (2, 4) else 3)
    rows = -(-len(views) // columns)
    with plt.rc_context(STYLE):
        size = (4.4 * columns, 4.1 * rows)
        figure, grid = plt.subplots(
            rows, columns, figsize=size, squeeze=False, layout="constrained"
        )
    for ax in grid.flat[len(views) :]:
        ax.set_axis_off()
    for ax, (pair, truncated) in zip(grid.flat, views, strict=False):
        plots.mixture(
            posterior,
            model,
            pair,
            labels=result.labels,
            group=code,
            truncated=truncated,
            names=[words(result.names[place]) for place in pair],
            grid=GRID,
            most=MOST_DRAWS,
            ax=ax,
        )
        title = "recorded" if truncated else "before the window"
        ax.set_title(f"{words(group)}: {title}" if group else title, fontsize=10)
    of = f" of {literal(group)}" if group else ""
    before = (
        " The last panel has the density before the window: contours that go on beyond the points "
        "are what was lost there, as far as the data and the prior tell."
        if result.windowed
        else ""
    )
    section.figure(
        figure,
        f"populations{'-' + str(code) if code is not None else ''}",
        f"Events{of} coloured by population (the ten largest; others grey) with contours of the "
        f"log posterior-mean density.{before}",
        alt=f"Scatter plots{plain(of)} of {', '.join(result.names)} with density contours.",
    )


def _on_a_line(result: MixtureResult, section: Section) -> None:
    """A histogram, the density in the window and what it was before."""
    plt = pyplot()
    model, posterior = result.fit.model, result.posterior
    x = posterior["observed_data"].dataset["x"].values.ravel()
    room = (0.35 if result.windowed else 0.05) * np.ptp(x)
    grid = np.linspace(x.min() - room, x.max() + room, PLACES)
    groups = result.fit.table.group_names or ("",)
    codes = result.fit.table.group
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(groups), 1, figsize=(6.8, 3.4 * len(groups)), squeeze=False, layout="constrained"
        )
        for code, (group, ax) in enumerate(zip(groups, axes.flat, strict=True)):
            own = x if codes is None else x[codes == code]
            which = None if codes is None else code
            points = grid[:, None]
            inside = model.density(posterior, points, group=which, most=400)
            ax.hist(own, bins="auto", density=True, color=GREY, alpha=0.35, label="recorded")
            if result.windowed:
                share = result.passing()[:, code].mean()
                before = model.density(posterior, points, truncated=False, group=which, most=400)
                ax.plot(grid, before / share, color=ORANGE, label="before the window, on one scale")
            ax.plot(grid, inside, color=BLUE, label="in the window")
            ax.set_xlabel(words(result.names[0]))
            ax.set_ylabel("density")
            ax.set_title(words(group))
            ax.legend()
        hover = Hover(axes.flat[0], [Series("in the window", grid, inside)])
    section.figure(
        figure,
        "populations",
        "What was recorded, the posterior-mean density in the window and, where there is a window, "
        "what was there before it: where that line leaves the window, data were lost.",
        alt=f"Histogram of {result.names[0]} with the fitted density.",
        hover=hover if len(groups) == 1 else None,
    )
