"""``offcut fit mixture``: populations in a window.

What a fitted mixture says: the populations, what was lost, and which group has more of what.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from offcut.app.fit import mixture_pictures
from offcut.app.fit.parse import parse_limits, parse_region, parse_transform
from offcut.app.fit.request import Request, Result, Sheet, Task, percent, plural, read_rows, span
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal
from offcut.cytometry.events import Events
from offcut.cytometry.instrument_window import instrument_window
from offcut.cytometry.reading import assemble
from offcut.cytometry.transforms import Identity
from offcut.errors import SettingsError
from offcut.mixtures.populations import Labels, Population
from offcut.regions import Box, Region
from offcut.tables.table import Table, check_groups
from offcut.tables.windows import combined, meet, settle_outside, without_faces


def prepare(request: Request) -> Task:
    """Read, check, compensate and transform; the model in the window that comes of it."""
    from offcut.mixtures.model import TruncatedMixture

    options = request.options
    transform = parse_transform(options.transform)
    table = read_rows(request)
    box, region = _windows(request, table, transform)
    known = table.limits is not None and request.lower is None and request.upper is None
    note = table.limits_note if known else ""
    table = settle_outside(
        table, combined(box, region, len(table.names)), request.outside, note=note
    )
    if options.at_limits == "drop" and box is not None:
        table, box = without_faces(table, box)
    check_groups(table)
    events = _events(table, box, transform, options.compensate)
    window = events.region if region is None else combined(box, region, len(table.names))
    model = TruncatedMixture(
        window,
        components=options.components,
        weights=options.weights,
        hierarchical=table.group is not None,
    )
    notes = _notes(table, events, window, known)
    return Task(model, {"": events.values}, table, table.group, notes, extra=events)


def _windows(request: Request, table: Table, transform: Any) -> tuple[Box | None, Region | None]:
    """The box of all limits, and a region that is no box."""
    size = len(table.names)
    known = instrument_window(None, table.names, table.limits)
    limits: list[Any] = []
    for text, option, own in (
        (request.lower, "--lower", known.lower),
        (request.upper, "--upper", known.upper),
    ):
        limits.append(own if text is None else parse_limits(text, option, size))
    box = Box(*limits)
    region = None if request.region is None else parse_region(request.region)
    if region is not None:
        combined(None, region, size)  # says so where it is about other coordinates
    if type(region) is Box:
        box, region = meet(box, region, size), None
    if region is not None and (transform != Identity() or request.options.compensate):
        raise SettingsError(
            f"--region {request.region} is no box, and its faces would bend under --transform or "
            "--compensate; leave these out (transform the columns beforehand), or give a box with "
            "--lower and --upper"
        )
    bounded = np.isfinite(box.lower).any() or np.isfinite(box.upper).any()
    return (box if bounded else None), region


def _events(table: Table, box: Box | None, transform: Any, compensate: bool) -> Events:
    """On the scale of the transform. The faces were settled before, so that rows stay known."""
    size = len(table.names)
    everything = Box([None] * size, [None] * size)
    return assemble(
        table,
        transform=transform,
        window=everything if box is None else box,
        compensate=compensate,
    )


def _notes(table: Table, events: Events, window: Region | None, known: bool) -> list[str]:
    notes = []
    if window is not None:
        notes.append(f"The window, on the scale of the columns above: {window!r}.")
    if known:
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


#: Populations with a smaller share are told in the tables only.
NOTABLE = 0.01
#: Pairs of groups that are compared.
MOST_PAIRS = 6


class MixtureResult(Result):
    """Populations of a truncated mixture."""

    title = "Populations"

    @property
    def posterior(self) -> xr.DataTree:
        """The only run."""
        return self.fit.posteriors[""]

    @cached_property
    def labels(self) -> Labels:
        """One partition for all draws."""
        return self.fit.model.labels(self.posterior)

    @cached_property
    def populations(self) -> list[Population]:
        """The largest first."""
        return self.fit.model.populations(self.labels)

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.fit.task.extra.channels)

    @property
    def windowed(self) -> bool:
        """Whether anything can have been lost."""
        return self.fit.model.window.region is not None

    def passing(self) -> np.ndarray:
        """Share of everything that passes the window, in each draw and group, (draw, group)."""
        shares = self.posterior["posterior"].dataset["window_share"].values
        return shares.reshape(shares.shape[0] * shares.shape[1], -1)

    def headline(self) -> list[str]:
        """How many populations, and how much was lost."""
        notable = [p for p in self.populations if np.max(p.proportion) > NOTABLE]
        told = [f"**{plural(len(notable), 'population')}** above 1% of what was recorded."]
        if self.windowed:
            lost = 1 - self.passing()
            for group, column in enumerate(lost.T):
                low, high = span(column)
                what = "what was there"
                if lost.shape[1] > 1:
                    what = f"the group {literal(self.fit.table.group_names[group])}"
                told.append(
                    f"The window lost **{percent(float(column.mean()))}** of {what} (90% from "
                    f"{percent(low)} to {percent(high)})."
                )
        return told

    def sheets(self) -> dict[str, Sheet]:
        """Parameters, populations, labels and, with groups, differences."""
        found = {**super().sheets(), "populations": self._populations(), "labels": self._labels()}
        if self.fit.table.group is not None:
            found["differences"] = self.differences()
        return found

    def _populations(self) -> Sheet:
        groups = self.fit.table.group_names or ("",)
        named = ["group"] if len(groups) > 1 else []
        head = ["population", *named, "events", "share", "share_5%", "share_95%"]
        head += ["lost", "lost_5%", "lost_95%", "certainty"]
        head += [f"mean_{name}" for name in self.names]
        head += [f"centre_{name}" for name in self.names]
        rows = []
        for number, row in enumerate(self.populations):
            member = self.labels.labels == number
            for code, group in enumerate(groups):
                own = member if self.fit.table.group is None else member & (
                    self.fit.table.group == code
                )  # fmt: skip
                numbers = [row.proportion, *row.proportion_interval, row.lost, *row.lost_interval]
                each = [float(np.ravel(value)[code]) for value in numbers]
                rows.append(
                    [
                        number + 1,
                        *([group] if named else []),
                        int(own.sum()),
                        *each,
                        row.certainty,
                        *row.mean,
                        *self.original(row.mean),
                    ]
                )
        return head, rows

    def original(self, mean: np.ndarray) -> list[float]:
        """A place on the scale of the file (compensated, where the data are)."""
        pairs = zip(self.fit.task.extra.transforms, mean, strict=True)
        return [float(transform.inverse(value)) for transform, value in pairs]

    def _labels(self) -> Sheet:
        table = self.fit.table
        grouped = table.group is not None
        head = ["row", *(["group"] if grouped else []), "population", "certainty"]
        columns = [table.kept.tolist()]
        if table.group is not None:
            columns.append([table.group_names[code] for code in table.group])
        columns += [(self.labels.labels + 1).tolist(), self.labels.certainty.tolist()]
        return head, list(zip(*columns, strict=True))

    def differences(self) -> Sheet:
        """Population by population, for pairs of groups."""
        names = self.fit.table.group_names
        head = ["population", "first", "second", "share_first", "share_second"]
        head += ["ratio", "ratio_5%", "ratio_95%", "probability_second_larger"]
        numbers = {row.name: number for number, row in enumerate(self.populations, 1)}
        rows = []
        for first, second in list(combinations(range(len(names)), 2))[:MOST_PAIRS]:
            for row in self.fit.model.compare(self.labels, first, second):
                rows.append(
                    [
                        numbers[row.name],
                        names[first],
                        names[second],
                        row.first,
                        row.second,
                        row.ratio,
                        *row.ratio_interval,
                        row.probability,
                    ]
                )
        return head, rows

    def write(self, page: Page) -> None:
        """Pictures and tables."""
        section = page.section("Populations", "found")
        mixture_pictures.write(self, section)
        head = ["population", "events", "share (90%)", "lost (90%)", "certainty"]
        centre = "centre" if self.windowed else "mean"
        rows = [
            [
                row.name,
                row.events,
                self._interval(row.proportion, row.proportion_interval),
                self._interval(row.lost, row.lost_interval) if self.windowed else "nothing",
                percent(row.certainty),
                ", ".join(f"{value:.4g}" for value in self.original(row.mean)),
            ]
            for row in self.populations
        ]
        section.table(
            [*head, f"{centre} ({literal(', '.join(self.names))})"],
            rows,
            "Shares are among what was recorded; “lost” is the part of a population that the "
            "window cuts off. Certainty is how sure an average event is of its population.",
        )
        if self.fit.table.group is not None:
            self._write_differences(page)

    def write_trust(self, section: Section) -> None:
        """How many proposals were rejected, where any were."""
        from offcut import plots

        if self.posterior.attrs["draws_rejections"]:
            section.figure(
                plots.rejections(self.posterior),
                "rejections",
                "The number |Y| of rejected proposals in each sweep, and the budget. Chains that "
                "lie on top of each other agree.",
            )

    def _interval(self, value: Any, ends: Any) -> str:
        """A number with its interval, for each group."""
        names = self.fit.table.group_names or ("",)
        triples = zip(names, *map(np.ravel, (value, *ends)), strict=True)
        return "; ".join(
            (f"{literal(name)} " if name else "")
            + (
                f"{percent(middle)} ({percent(low)} to {percent(high)})"
                if np.isfinite(middle)
                else "not known"
            )
            for name, middle, low, high in triples
        )

    def _write_differences(self, page: Page) -> None:
        section = page.section("Groups compared", "groups")
        _, rows = self.differences()
        shown = [
            [
                f"population {number}",
                f"{literal(first)}: {percent(a)}",
                f"{literal(second)}: {percent(b)}",
                f"{ratio:.2f} ({low:.2f} to {high:.2f})",
                f"{probability:.3f}",
            ]
            for number, first, second, a, b, ratio, low, high, probability in rows
        ]
        section.table(
            ["population", "share", "share", "ratio (90%)", "larger in the second"],
            shown,
            "Which populations differ between groups, the most certain first; the last column is "
            "the posterior probability that the second group has the larger share.",
        )
