"""``offcut fit mixture``: populations in a window.

What a fitted mixture says: the populations, what was lost, and which group has more of what. Its
pictures have two columns at a time, or one.
"""

from __future__ import annotations

from functools import cached_property, partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from offcut import plots
from offcut.app.fit.parse import parse_limits, parse_region, parse_transform
from offcut.app.fit.request import (
    Fit,
    Request,
    Result,
    Sheet,
    Task,
    of,
    percent,
    plural,
    read_rows,
    span,
)
from offcut.app.html import Hover, Page, Section, Series
from offcut.app.html.markup import literal, plain
from offcut.cytometry.events import Events
from offcut.cytometry.instrument_window import instrument_window
from offcut.cytometry.reading import assemble
from offcut.cytometry.transforms import Identity, Transform
from offcut.errors import SettingsError
from offcut.mixtures.populations import Labels, Population
from offcut.plots.style import BLUE, GREY, ORANGE, STYLE, pyplot, words
from offcut.regions import Box, Region
from offcut.tables.table import Table, check_groups
from offcut.tables.windows import combined, meet, settle_outside, without_faces

#: Populations with a smaller share are in the tables only.
NOTABLE = 0.01
#: Pairs of groups that are compared.
MOST_PAIRS = 6
#: Pairs of columns that are drawn, points along each side of a map and draws to average over.
MOST_MAPS, GRID, MOST_DRAWS = 4, 60, 60
#: Places along a line.
PLACES = 301


def prepare(request: Request) -> Task:
    """Read, check, compensate and transform; the model in the window that comes of it."""
    from offcut.mixtures.model import TruncatedMixture

    options, rows = request.options, request.rows
    transform = parse_transform(options.transform)
    table = read_rows(request)
    size = len(table.names)
    box, region = _windows(request, table, transform)
    from_file = table.limits is not None and rows.lower is None and rows.upper is None
    note = table.limits_note if from_file else ""
    table = settle_outside(table, combined(box, region, size), rows.outside, note=note)
    if options.at_limits == "drop" and box is not None:
        table, box = without_faces(table, box)
    check_groups(table)
    # The faces are settled above and not by assemble, so that rows stay known.
    events = assemble(
        table,
        transform=transform,
        window=Box([None] * size, [None] * size) if box is None else box,
        compensate=options.compensate,
    )
    window = events.region if region is None else combined(box, region, size)
    model = TruncatedMixture(
        window,
        components=options.components,
        weights=options.weights,
        hierarchical=table.group is not None,
    )
    notes = _notes(events, window, from_file)
    result = partial(MixtureResult, events=events)
    data = {"": events.values}
    return Task(model, data, table, result, table.group, notes, method=options.method)


def _windows(
    request: Request, table: Table, transform: Transform
) -> tuple[Box | None, Region | None]:
    """The box of all limits, and a region that is no box."""
    size, rows = len(table.names), request.rows
    known = instrument_window(None, table.names, table.limits)
    box = Box(
        known.lower if rows.lower is None else parse_limits(rows.lower, "--lower", size),
        known.upper if rows.upper is None else parse_limits(rows.upper, "--upper", size),
    )
    region = None if rows.region is None else parse_region(rows.region)
    if region is not None:
        combined(None, region, size)  # says so where it is about other coordinates
    if type(region) is Box:
        box, region = meet(box, region, size), None
    if region is not None and (transform != Identity() or request.options.compensate):
        raise SettingsError(
            f"--region {rows.region} is no box, and its faces would bend under --transform or "
            "--compensate; leave these out (transform the columns beforehand), or give a box with "
            "--lower and --upper"
        )
    bounded = np.isfinite(box.lower).any() or np.isfinite(box.upper).any()
    return (box if bounded else None), region


def _notes(events: Events, window: Region | None, from_file: bool) -> list[str]:
    notes = []
    if window is not None:
        notes.append(f"The window, on the scale of the columns above: {window!r}.")
    if from_file:
        notes.append("It is the range that the FCS file states.")
    elif window is None:
        notes.append(
            "No window was given (`--lower`, `--upper`, `--region`), so nothing is taken for lost: "
            "this is an ordinary mixture."
        )
    if events.transforms[0] != Identity():
        notes.append(
            f"Columns were transformed by `{events.transforms[0]!r}`, and the window with them."
        )
    if events.compensation is not None:
        notes.append("Spillover was undone with the matrix of the file.")
    return notes


class MixtureResult(Result):
    """Populations of a truncated mixture."""

    title = "Populations"

    def __init__(self, fit: Fit, events: Events) -> None:
        super().__init__(fit)
        self.names, self.transforms = list(events.channels), events.transforms
        self.posterior = fit.posteriors[""]
        self.groups = self.table.group_names or ("",)

    @cached_property
    def labels(self) -> Labels:
        """One partition for all draws."""
        return self.model.labels(self.posterior)

    @cached_property
    def populations(self) -> list[Population]:
        """The largest first."""
        return self.model.populations(self.labels)

    @property
    def windowed(self) -> bool:
        """Whether anything can have been lost."""
        return self.model.window.region is not None

    def passing(self) -> np.ndarray:
        """Share of everything that passes the window, in each draw and group, (draw, group)."""
        shares = self.posterior["posterior"].dataset["window_share"].values
        return shares.reshape(shares.shape[0] * shares.shape[1], -1)

    def headline(self) -> list[str]:
        notable = [p for p in self.populations if np.max(p.proportion) > NOTABLE]
        sentences = [f"**{plural(len(notable), 'population')}** above 1% of what was recorded."]
        if self.windowed:
            for group, lost in zip(self.groups, 1 - self.passing().T, strict=True):
                low, high = span(lost)
                what = f"the group {literal(group)}" if group else "what was there"
                sentences.append(
                    f"The window lost **{percent(float(lost.mean()))}** of {what} (90% from "
                    f"{percent(low)} to {percent(high)})."
                )
        return sentences

    def sheets(self) -> dict[str, Sheet]:
        found = {**super().sheets(), "populations": self._populations(), "labels": self._labels()}
        if self.table.group is not None:
            found["differences"] = self.differences()
        return found

    def _populations(self) -> Sheet:
        with_groups = len(self.groups) > 1
        head = ["population", *(["group"] if with_groups else [])]
        head += ["events", "share", "share_5%", "share_95%"]
        head += ["lost", "lost_5%", "lost_95%", "certainty"]
        head += [f"mean_{name}" for name in self.names]
        head += [f"centre_{name}" for name in self.names]
        codes = np.zeros(len(self.labels.labels), int)
        if self.table.group is not None:
            codes = self.table.group
        rows = []
        for number, row in enumerate(self.populations):
            member = self.labels.labels == number
            numbers = (row.proportion, *row.proportion_interval, row.lost, *row.lost_interval)
            for code, group in enumerate(self.groups):
                first = [number + 1, *([group] if with_groups else [])]
                count = int((member & (codes == code)).sum())
                each = [float(np.ravel(value)[code]) for value in numbers]
                places = [*row.mean, *self.original(row.mean)]
                rows.append([*first, count, *each, row.certainty, *places])
        return head, rows

    def original(self, mean: np.ndarray) -> list[float]:
        """A place on the scale of the file (compensated, where the data are)."""
        pairs = zip(self.transforms, mean, strict=True)
        return [float(transform.inverse(value)) for transform, value in pairs]

    def _labels(self) -> Sheet:
        head, columns = ["row"], [self.table.kept.tolist()]
        if self.table.group is not None:
            head.append("group")
            columns.append([self.groups[code] for code in self.table.group])
        columns += [(self.labels.labels + 1).tolist(), self.labels.certainty.tolist()]
        return [*head, "population", "certainty"], list(zip(*columns, strict=True))

    def differences(self) -> Sheet:
        """Population by population, for pairs of groups."""
        head = ["population", "first", "second", "share_first", "share_second"]
        head += ["ratio", "ratio_5%", "ratio_95%", "probability_second_larger"]
        numbers = {row.name: number for number, row in enumerate(self.populations, 1)}
        rows = []
        for a, b in list(combinations(range(len(self.groups)), 2))[:MOST_PAIRS]:
            for row in self.model.compare(self.labels, a, b):
                shares = (row.first, row.second, row.ratio, *row.ratio_interval)
                names = (numbers[row.name], self.groups[a], self.groups[b])
                rows.append([*names, *shares, row.probability])
        return head, rows

    def write(self, page: Page) -> None:
        section = page.section("Populations", "found")
        if len(self.names) == 1:
            self._draw_line(section)
        else:
            for code, name in enumerate(self.groups):
                self._draw_maps(section, code if name else None, name)
        centre = "centre" if self.windowed else "mean"
        section.table(
            [
                *("population", "events", "share (90%)", "lost (90%)", "certainty"),
                f"{centre} ({literal(', '.join(self.names))})",
            ],
            [
                [
                    row.name,
                    row.events,
                    self._interval(row.proportion, *row.proportion_interval),
                    self._interval(row.lost, *row.lost_interval) if self.windowed else "nothing",
                    percent(row.certainty),
                    ", ".join(f"{value:.4g}" for value in self.original(row.mean)),
                ]
                for row in self.populations
            ],
            "Shares are among what was recorded; “lost” is the part of a population that the "
            "window cuts off. Certainty is how sure an average event is of its population.",
        )
        if self.table.group is not None:
            self._write_differences(page.section("Groups compared", "groups"))

    def _interval(self, *numbers: ArrayLike) -> str:
        """A number with its interval, for each group."""
        found = []
        for name, middle, low, high in zip(self.groups, *map(np.ravel, numbers), strict=True):
            text = f"{percent(middle)} ({percent(low)} to {percent(high)})"
            text = text if np.isfinite(middle) else "not known"
            found.append(f"{literal(name)} {text}" if name else text)
        return "; ".join(found)

    def _write_differences(self, section: Section) -> None:
        _, rows = self.differences()
        section.table(
            ["population", "share", "share", "ratio (90%)", "larger in the second"],
            [
                [
                    f"population {number}",
                    f"{literal(first)}: {percent(a)}",
                    f"{literal(second)}: {percent(b)}",
                    f"{ratio:.2f} ({low:.2f} to {high:.2f})",
                    f"{probability:.3f}",
                ]
                for number, first, second, a, b, ratio, low, high, probability in rows
            ],
            "Which populations differ between groups, the most certain first; the last column is "
            "the posterior probability that the second group has the larger share.",
        )

    def write_trust(self, section: Section) -> None:
        if self.posterior.attrs["draws_rejections"]:
            section.figure(
                plots.rejections(self.posterior),
                "rejections",
                "The number |Y| of rejected proposals in each sweep, and the budget. Chains that "
                "lie on top of each other agree.",
            )

    def _draw_maps(self, section: Section, code: int | None, group: str) -> None:
        """Pairs of columns and, where there is a window, the first pair before it."""
        plt = pyplot()
        pairs = pairs_of(len(self.names))
        views = [(pair, True) for pair in pairs] + ([(pairs[0], False)] if self.windowed else [])
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
                self.posterior,
                self.model,
                pair,
                labels=self.labels,
                group=code,
                truncated=truncated,
                names=[words(self.names[place]) for place in pair],
                grid=GRID,
                most=MOST_DRAWS,
                ax=ax,
            )
            title = "recorded" if truncated else "before the window"
            ax.set_title(f"{words(group)}: {title}" if group else title, fontsize=10)
        before = (
            " The last panel has the density before the window: contours that go on beyond the "
            "points are what was lost there, as far as the data and the prior tell."
        )
        section.figure(
            figure,
            "populations" if code is None else f"populations-{code}",
            f"Events{of(group)} coloured by population (the ten largest; others grey) with "
            f"contours of the log posterior-mean density.{before if self.windowed else ''}",
            alt=f"Scatter plots{plain(of(group))} of {', '.join(self.names)} with density "
            "contours.",
        )

    def _draw_line(self, section: Section) -> None:
        """A histogram, the density in the window and what it was before."""
        plt = pyplot()
        x = self.posterior["observed_data"].dataset["x"].values.ravel()
        room = (0.35 if self.windowed else 0.05) * np.ptp(x)
        grid = np.linspace(x.min() - room, x.max() + room, PLACES)
        codes = self.table.group
        with plt.rc_context(STYLE):
            size = (6.8, 3.4 * len(self.groups))
            figure, axes = plt.subplots(
                len(self.groups), 1, figsize=size, squeeze=False, layout="constrained"
            )
            for code, (group, ax) in enumerate(zip(self.groups, axes.flat, strict=True)):
                own = x if codes is None else x[codes == code]
                density = partial(
                    self.model.density,
                    self.posterior,
                    grid[:, None],
                    group=None if codes is None else code,
                    most=400,
                )
                ax.hist(own, bins="auto", density=True, color=GREY, alpha=0.35, label="recorded")
                if self.windowed:
                    before = density(truncated=False) / self.passing()[:, code].mean()
                    ax.plot(grid, before, color=ORANGE, label="before the window, on one scale")
                inside = density()
                ax.plot(grid, inside, color=BLUE, label="in the window")
                ax.set(xlabel=words(self.names[0]), ylabel="density", title=words(group))
                ax.legend()
            hover = Hover(axes.flat[0], [Series("in the window", grid, inside)])
        section.figure(
            figure,
            "populations",
            "What was recorded, the posterior-mean density in the window and, where there is a "
            "window, what was there before it: where that line leaves the window, data were lost.",
            alt=f"Histogram of {self.names[0]} with the fitted density.",
            hover=hover if len(self.groups) == 1 else None,
        )


def pairs_of(count: int) -> list[tuple[int, int]]:
    """Every column once, two at a time, as far as there is room.

    >>> pairs_of(2), pairs_of(5)
    ([(0, 1)], [(0, 1), (2, 3), (3, 4)])
    """
    pairs = [(first, first + 1) for first in range(0, count - 1, 2)]
    if count % 2:
        pairs.append((count - 2, count - 1))
    return pairs[:MOST_MAPS]
