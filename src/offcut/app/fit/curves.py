"""``offcut fit density`` and ``offcut fit intensity``: data, support or window, and the model.

What they say: where the curve is high, and how sure that is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from offcut.app.fit import curve_pictures
from offcut.app.fit.parse import number_or_none
from offcut.app.fit.request import Request, Result, Sheet, Task, by_group, read_boxed, span
from offcut.app.html import Page
from offcut.app.html.markup import literal
from offcut.errors import SettingsError
from offcut.gp.evaluation import Bands, bands
from offcut.regions import Box

#: Places of the table, along a line and along each side of a plane.
PLACES, SIDE = 201, 41
#: Beyond the plane: rows at which the density is told.
MOST_ROWS = 1000
#: Numbers in the table of draws by places; beyond that some draws are left out.
MOST_NUMBERS = 20_000_000
#: Pairs of groups that are compared.
MOST_PAIRS = 3


class CurveResult(Result):
    """A density or an intensity, of each group."""

    value: str

    @property
    def probability(self) -> float:
        """Of the bands."""
        return float(self.fit.request.options.probability)

    @property
    def names(self) -> list[str]:
        """Of the coordinates."""
        return self.fit.table.names

    @cached_property
    def grid(self) -> np.ndarray:
        """Where curves are evaluated, the same for all groups: (place, coordinate)."""
        d = len(self.names)
        low, high = self._ends()
        if d == 1:
            return np.linspace(low[0], high[0], PLACES)[:, None]
        if d == 2:
            axes = [np.linspace(a, b, SIDE) for a, b in zip(low, high, strict=True)]
            return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        rows = self.fit.table.values
        return rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]

    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """From end to end of what there is to see, over all groups."""
        from offcut.plots.gp_models import _reach, _visible

        fit = self.fit
        if len(self.names) == 1:
            line = _visible(fit.model, list(fit.posteriors.values()))
            return line[:1], line[-1:]
        ends = [_reach(fit.model, posterior) for posterior in fit.posteriors.values()]
        low, high = np.min([e[0] for e in ends], axis=0), np.max([e[1] for e in ends], axis=0)
        if self.value == "intensity":
            return low, high
        x = fit.table.values
        room = 0.1 * np.ptp(x, axis=0)
        return np.maximum(low, x.min(0) - room), np.minimum(high, x.max(0) + room)

    @cached_property
    def draws(self) -> dict[str, np.ndarray]:
        """The curve in each draw, (draw, place), by group."""
        evaluate: Callable = getattr(self.fit.model, self.value)
        points = self.grid[:, 0] if len(self.names) == 1 else self.grid
        found = {}
        for name, posterior in self.fit.posteriors.items():
            size = posterior["posterior"].sizes
            step = -(-size["chain"] * size["draw"] * len(points) // MOST_NUMBERS)
            fewer = posterior.isel(draw=slice(None, None, step), missing_dims="ignore")
            values = evaluate(fewer, points, draws=True)
            found[name] = values.reshape(-1, values.shape[-1])
        return found

    @cached_property
    def bands(self) -> dict[str, Bands]:
        """Pointwise bands, by group."""
        return {k: bands(self.grid, v[None], self.probability) for k, v in self.draws.items()}

    def sheets(self) -> dict[str, Sheet]:
        """Parameters, the curve and, with groups of densities, differences."""
        grouped = "" not in self.fit.posteriors
        head = [*(["group"] if grouped else []), *self.names, "mean", "median", "lower", "upper"]
        rows = [
            [*([group] if grouped else []), *point, mean, median, low, high]
            for group, band in self.bands.items()
            for point, mean, median, low, high in zip(
                self.grid, band.mean, band.median, band.lower, band.upper, strict=True
            )
        ]
        return {**super().sheets(), self.value: (head, rows)}

    def peak(self, group: str) -> tuple[float, float, float]:
        """Where the curve is highest: the median over draws, and a central interval."""
        places = self.grid[self.draws[group].argmax(axis=1), 0]
        return float(np.median(places)), *span(places, self.probability)

    def top(self, group: str) -> str:
        """The place with the largest mean, in several coordinates."""
        place = self.grid[int(self.bands[group].mean.argmax())]
        return ", ".join(f"{value:.4g}" for value in place)

    def of(self, group: str) -> str:
        """`` of GROUP``, where there are groups."""
        return f" of {literal(group)}" if group else ""


class DensityResult(CurveResult):
    """A density."""

    title, value = "Density", "density"

    def headline(self) -> list[str]:
        """Where the density is highest."""
        told = []
        if len(self.names) == 1:
            for group in self.fit.posteriors:
                middle, low, high = self.peak(group)
                told.append(
                    f"The density{self.of(group)} is highest at {literal(self.names[0])} = "
                    f"**{middle:.4g}** ({self.probability:.0%} from {low:.4g} to {high:.4g})."
                )
        else:
            for group in self.fit.posteriors:
                told.append(
                    f"The density{self.of(group)} is highest around "
                    f"{literal(', '.join(self.names))} = **({self.top(group)})**."
                )
        for pair in self._pairs():
            told.append(self._difference(*pair))
        return told

    def _pairs(self) -> list[tuple[str, str]]:
        return list(combinations(self.fit.posteriors, 2))[:MOST_PAIRS]

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
        pairs = edges.reshape(-1, 2)
        return [f"{places[a]:.3g} to {places[b - 1]:.3g}" for a, b in pairs]

    def sheets(self) -> dict[str, Sheet]:
        """Differences of groups as well."""
        found = super().sheets()
        if len(self.fit.posteriors) > 1:
            head = ["first", "second", *self.names, "mean", "lower", "upper"]
            head.append("probability_first_greater")
            rows = []
            points = self.grid[:, 0] if len(self.names) == 1 else self.grid
            for first, second in self._pairs():
                ours, theirs = (self.fit.posteriors[name] for name in (first, second))
                c = self.fit.model.compare(ours, theirs, points, probability=self.probability)
                numbers = zip(c.mean, c.lower, c.upper, c.probability_greater, strict=True)
                rows += [
                    [first, second, *point, *four]
                    for point, four in zip(self.grid, numbers, strict=True)
                ]
            found["difference"] = (head, rows)
        return found

    def write(self, page: Page) -> None:
        """The density, the groups' differences, and what it stands on."""
        section = page.section("Density", "curve")
        if len(self.names) == 1:
            curve_pictures.density_line(self, section)
        elif len(self.names) == 2:
            curve_pictures.density_maps(self, section)
        else:
            curve_pictures.predicted_scatter(self, section)
        if len(self.names) == 1 and len(self.fit.posteriors) > 1:
            curve_pictures.differences(
                self, page.section("Groups compared", "groups"), self._pairs()
            )
        curve_pictures.foundations(self, page.section("What it stands on", "foundations"))


class IntensityResult(CurveResult):
    """An intensity."""

    title, value = "Intensity", "intensity"

    def headline(self) -> list[str]:
        """Where events are most frequent."""
        told = []
        for group in self.fit.posteriors:
            count = len(self.fit.task.data[group])
            if len(self.names) == 1:
                middle, low, high = self.peak(group)
                band = self.bands[group]
                top = int(band.median.argmax())
                told.append(
                    f"Events{self.of(group)} are most frequent at {literal(self.names[0])} = "
                    f"**{middle:.4g}** ({self.probability:.0%} from {low:.4g} to {high:.4g}), "
                    f"about **{band.median[top]:.3g}** in one unit ({band.lower[top]:.3g} to "
                    f"{band.upper[top]:.3g}); {count:,} were recorded."
                )
            else:
                told.append(
                    f"Events{self.of(group)} are most frequent around **({self.top(group)})**; "
                    f"{count:,} were recorded."
                )
        return told

    def write(self, page: Page) -> None:
        """The intensity, and what it stands on."""
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
    if base == "uniform" and (support is None or not _is_bounded(support)):
        raise SettingsError(
            "--base uniform needs a bounded support: give both --lower and --upper, or take "
            "--base normal"
        )
    model = GPDensity(base=base, support=support, **_shared(request))
    notes = [
        "The density may live anywhere: no limits were given."
        if support is None
        else f"The density lives on {support!r} and is zero elsewhere."
    ]
    data = by_group(table, _points(table.values))
    return Task(model, data, table, notes=notes, method=request.options.method)


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
    notes: list[str] = []
    guesses: list[str] = []
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
    if guessed.any():
        guesses.append(
            f"The window was **guessed** from the data, {window!r}: the first and the last event "
            "and a mean gap beyond them. Where recording began and ended is part of the data: give "
            "it with `--lower` and `--upper` if you know it."
        )
    else:
        notes.append(f"Events were recorded in {window!r}.")
    model = GPIntensity(window, **_shared(request))
    data = by_group(table, _points(values))
    notes = [*guesses, *notes]
    return Task(model, data, table, notes=notes, guesses=guesses, method=request.options.method)


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


def _is_bounded(box: Box) -> bool:
    return bool(np.isfinite(box.lower).all() and np.isfinite(box.upper).all())
