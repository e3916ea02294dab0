"""``offcut fit density`` and ``offcut fit intensity``: data, support or window, and the model.

What they say: where the curve is high, and how sure that is.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from offcut.app.fit import curve_pictures
from offcut.app.fit.parse import number_or_none
from offcut.app.fit.request import (
    Request,
    Result,
    Sheet,
    Task,
    by_group,
    grouped,
    of,
    read_boxed,
    span,
)
from offcut.app.html import Page
from offcut.app.html.markup import literal
from offcut.errors import SettingsError
from offcut.gp.evaluation import Bands, bands
from offcut.regions import Box

#: Places of the table, along a line and along each side of a plane.
PLACES, SIDE = 201, 41
#: Beyond the plane: rows at which the density is evaluated.
MOST_ROWS = 1000
#: Numbers in the table of draws by places; beyond that some draws are left out.
MOST_NUMBERS = 20_000_000
#: Pairs of groups that are compared.
MOST_PAIRS = 3


class CurveResult(Result):
    """A density or an intensity, of each group."""

    value: str

    @property
    def names(self) -> list[str]:
        """Of the coordinates."""
        return self.table.names

    @cached_property
    def grid(self) -> np.ndarray:
        """Where curves are evaluated, the same for all groups: (place, coordinate)."""
        d = len(self.names)
        if d > 2:
            rows = self.table.values
            return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]
        low, high = self._ends()
        if d == 1:
            return np.linspace(low[0], high[0], PLACES)[:, None]
        axes = [np.linspace(a, b, SIDE) for a, b in zip(low, high, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    @property
    def places(self) -> np.ndarray:
        """The grid as models take it: single numbers along a line."""
        return _points(self.grid)

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """From end to end of what there is to see, over all groups."""
        from offcut.plots.gp_models import _reach, _visible

        if len(self.names) == 1:
            line = _visible(self.model, list(self.posteriors.values()))
            return line[:1], line[-1:]
        ends = [_reach(self.model, posterior) for posterior in self.posteriors.values()]
        low, high = np.min([e[0] for e in ends], axis=0), np.max([e[1] for e in ends], axis=0)
        if self.value == "intensity":
            return low, high
        x = self.table.values
        room = 0.1 * np.ptp(x, axis=0)
        return np.maximum(low, x.min(0) - room), np.minimum(high, x.max(0) + room)

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """The curve in each draw, (draw, place), by group."""
        found = {}
        for name, posterior in self.posteriors.items():
            size = posterior["posterior"].sizes
            step = -(-size["chain"] * size["draw"] * len(self.grid) // MOST_NUMBERS)
            fewer = posterior.isel(draw=slice(None, None, step), missing_dims="ignore")
            values = getattr(self.model, self.value)(fewer, self.places, draws=True)
            found[name] = values.reshape(-1, values.shape[-1])
        return found

    @cached_property
    def bands(self) -> dict[str, Bands]:
        return {k: bands(self.grid, v[None], self.probability) for k, v in self.draws.items()}

    def sheets(self) -> dict[str, Sheet]:
        head = [*self.names, "mean", "median", "lower", "upper"]
        rows = {
            group: np.column_stack(
                [self.grid, band.mean, band.median, band.lower, band.upper]
            ).tolist()
            for group, band in self.bands.items()
        }
        return {**super().sheets(), self.value: grouped(head, rows)}

    def peak(self, group: str) -> str:
        """Where the curve is highest, in words: the median over draws, and a central interval."""
        places = self.grid[self.draws[group].argmax(axis=1), 0]
        low, high = span(places, self.probability)
        return (
            f"{literal(self.names[0])} = **{np.median(places):.4g}** ({self.probability:.0%} from "
            f"{low:.4g} to {high:.4g})"
        )

    def top(self, group: str) -> str:
        """The place with the largest mean, in several coordinates."""
        place = self.grid[int(self.bands[group].mean.argmax())]
        return ", ".join(f"{value:.4g}" for value in place)


class DensityResult(CurveResult):
    """A density."""

    title, value = "Density", "density"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.posteriors, 2))[:MOST_PAIRS]

    def headline(self) -> list[str]:
        one = len(self.names) == 1
        names = literal(", ".join(self.names))
        sentences = [
            f"The density{of(group)} is highest "
            + (f"at {self.peak(group)}." if one else f"around {names} = **({self.top(group)})**.")
            for group in self.posteriors
        ]
        return [*sentences, *(self._difference(*pair) for pair in self.pairs)]

    def _difference(self, first: str, second: str) -> str:
        """Where two groups clearly differ, in words."""
        a, b = self.draws[first], self.draws[second]
        first, second = literal(first), literal(second)
        n = min(len(a), len(b))
        greater = (a[:n] > b[:n]).mean(axis=0)
        # Where hardly anything is, a difference is nobody's business.
        seen = np.maximum(a.mean(0), b.mean(0)) > 0.02 * max(a.mean(0).max(), b.mean(0).max())
        clear = seen & ((greater > 0.95) | (greater < 0.05))
        if not clear.any():
            return f"{first} and {second} differ nowhere with more than 95% probability."
        if len(self.names) > 1:
            share = clear.sum() / max(seen.sum(), 1)
            return (
                f"{first} and {second} differ with more than 95% probability in **{share:.0%}** "
                "of the range where either has density."
            )
        parts = [
            f"**{name}** has more at {' and '.join(self._stretches(clear & more))}"
            for name, more in ((first, greater > 0.5), (second, greater < 0.5))
            if (clear & more).any()
        ]
        return f"With more than 95% probability, place by place: {'; '.join(parts)}."

    def _stretches(self, mask: np.ndarray) -> list[str]:
        """From where to where, in words."""
        places = self.grid[:, 0]
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
        return [f"{places[a]:.3g} to {places[b - 1]:.3g}" for a, b in edges.reshape(-1, 2)]

    def sheets(self) -> dict[str, Sheet]:
        found = super().sheets()
        if self.pairs:
            head = ["first", "second", *self.names, "mean", "lower", "upper"]
            rows = []
            for first, second in self.pairs:
                ours, theirs = self.posteriors[first], self.posteriors[second]
                c = self.model.compare(ours, theirs, self.places, probability=self.probability)
                numbers = np.column_stack(
                    [self.grid, c.mean, c.lower, c.upper, c.probability_greater]
                )
                rows += [[first, second, *row] for row in numbers.tolist()]
            found["difference"] = ([*head, "probability_first_greater"], rows)
        return found

    def write(self, page: Page) -> None:
        section = page.section("Density", "curve")
        if len(self.names) == 1:
            curve_pictures.density_line(self, section)
        elif len(self.names) == 2:
            curve_pictures.density_maps(self, section)
        else:
            curve_pictures.predicted_scatter(self, section)
        if len(self.names) == 1 and self.pairs:
            curve_pictures.differences(self, page.section("Groups compared", "groups"), self.pairs)
        curve_pictures.foundations(self, page.section("What it stands on", "foundations"))


class IntensityResult(CurveResult):
    """An intensity."""

    title, value = "Intensity", "intensity"

    def headline(self) -> list[str]:
        sentences = []
        for group, band in self.bands.items():
            most = f"Events{of(group)} are most frequent"
            recorded = f"{len(self.fit.task.data[group]):,} were recorded."
            if len(self.names) == 1:
                top = int(band.median.argmax())
                sentences.append(
                    f"{most} at {self.peak(group)}, about **{band.median[top]:.3g}** in one unit "
                    f"({band.lower[top]:.3g} to {band.upper[top]:.3g}); {recorded}"
                )
            else:
                sentences.append(f"{most} around **({self.top(group)})**; {recorded}")
        return sentences

    def write(self, page: Page) -> None:
        section = page.section("Intensity", "curve")
        if len(self.names) == 1:
            curve_pictures.intensity_line(self, section)
        else:
            curve_pictures.intensity_maps(self, section)
        curve_pictures.foundations(self, page.section("What it stands on", "foundations"))


def prepare_density(request: Request) -> Task:
    """A Gaussian process density; limits are its support."""
    from offcut.gp.model import GPDensity

    table, support = read_boxed(request)
    base = request.options.base
    bounded = support is not None and np.isfinite([support.lower, support.upper]).all()
    if base == "uniform" and not bounded:
        raise SettingsError(
            "--base uniform needs a bounded support: give both --lower and --upper, or take "
            "--base normal"
        )
    model = GPDensity(base=base, support=support, **_shared(request))
    note = "The density may live anywhere: no limits were given."
    if support is not None:
        note = f"The density lives on {support!r} and is zero elsewhere."
    data = by_group(table, _points(table.values))
    method = request.options.method
    return Task(model, data, table, DensityResult, notes=[note], method=method)


def prepare_intensity(request: Request) -> Task:
    """A sigmoidal Gaussian Cox process; limits are the window in which events were recorded."""
    from offcut.gp.model import GPIntensity

    table, window = read_boxed(request)
    values, size = table.values, len(table.names)
    if size > 2:
        raise SettingsError(
            f"offcut fit intensity is for events on a line or in a plane, but there are {size} "
            f"columns ({', '.join(table.names)}); choose one or two with --columns"
        )
    low, high = np.full(size, -np.inf), np.full(size, np.inf)
    if window is not None:
        low, high = (np.broadcast_to(side, (size,)) for side in (window.lower, window.upper))
    # As GPIntensity does it, but once for all groups: they were watched through the same window.
    spread = np.ptp(values, axis=0)
    gap = np.where(spread > 0, spread, 1.0) / max(len(values) - 1, 1)
    guessed = ~(np.isfinite(low) & np.isfinite(high))
    low = np.where(np.isfinite(low), low, values.min(axis=0) - gap)
    high = np.where(np.isfinite(high), high, values.max(axis=0) + gap)
    window = Box(low, high)
    guesses = [
        f"The window was **guessed** from the data, {window!r}: the first and the last event "
        "and a mean gap beyond them. Where recording began and ended is part of the data: give "
        "it with `--lower` and `--upper` if you know it."
    ]
    notes = guesses if guessed.any() else [f"Events were recorded in {window!r}."]
    model = GPIntensity(window, **_shared(request))
    data = by_group(table, _points(values))
    guesses = guesses if guessed.any() else []
    method = request.options.method
    return Task(model, data, table, IntensityResult, notes=notes, guesses=guesses, method=method)


def _shared(request: Request) -> dict[str, Any]:
    options = request.options
    return {
        "covariance": options.covariance,
        "length_scale": number_or_none(options.length_scale, "--length-scale"),
        "variance": number_or_none(options.variance, "--variance"),
        "joint_moves": options.joint_moves,
    }


def _points(values: np.ndarray) -> np.ndarray:
    """Single numbers where there is one column."""
    return values[:, 0] if values.shape[1] == 1 else values
