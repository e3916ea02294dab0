"""``offcut fit langevin``: frames from columns of a table or from an array of matrices.

What fitted orientations say: where the columns point, and how closely frames agree.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from offcut import plots
from offcut.app.fit.parse import parse_frame
from offcut.app.fit.request import (
    Request,
    Result,
    Sheet,
    Task,
    by_group,
    grouped,
    named,
    of,
    read_rows,
    span,
)
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal
from offcut.errors import DataError, SettingsError
from offcut.langevin.data import TOLERANCE, as_frames
from offcut.langevin.evaluation import Cap
from offcut.plots.langevin_models import ORDINALS
from offcut.plots.style import CHAIN_COLOURS, STYLE, pyplot, words
from offcut.tables.table import Table, check_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: New observations that the predictive circles are of.
PREDICTED = 5000


def prepare(request: Request) -> Task:
    """Frames from entries, checked; the model with an exponential prior of concentrations."""
    import numpyro.distributions as dist

    from offcut.langevin.model import MatrixLangevinModel

    options = request.options
    mean = options.prior_mean
    if not 0 < mean < np.inf:
        raise SettingsError(
            f"--prior-mean {mean:g} is not understood; expected a positive number, the mean of "
            "the prior of the concentrations"
        )
    table = read_rows(request, frames=True)
    frames = _frames(table, request)
    _check_orthonormal(table, frames)
    check_groups(table)
    model = MatrixLangevinModel(dist.Exponential(1.0 / mean))
    d, p = frames.shape[1:]
    order = "column by column" if options.order == "columns" else "row by row"
    written = "" if table.matrices is not None or p == 1 else f", its entries {order}"
    notes = [f"Each row is a frame of {d} by {p}{written}."]
    data = by_group(table, as_frames(frames))
    return Task(model, data, table, LangevinResult, notes=notes, method=options.method)


def _frames(table: Table, request: Request) -> np.ndarray:
    """(n, d, p)."""
    if table.matrices is not None:
        d, p = table.matrices.shape[1:]
        if request.options.frame is not None:
            parse_frame(request.options.frame, d * p)
        return table.matrices
    d, p = parse_frame(request.options.frame, len(table.names))
    if p > d:
        raise SettingsError(
            f"--frame {d}x{p} has more columns than rows, and no more than {d} can be orthonormal; "
            f"did you mean {p}x{d}?"
        )
    n = len(table.values)
    if request.options.order == "columns":
        return table.values.reshape(n, p, d).transpose(0, 2, 1)
    return table.values.reshape(n, d, p)


def _check_orthonormal(table: Table, frames: np.ndarray) -> None:
    """Refuse what is no frame, by its place in the file."""
    n, d, p = frames.shape
    if p > d:
        as_frames(frames)  # has the words for it
    gram = np.einsum("nij,nik->njk", frames, frames)
    wrong = np.flatnonzero(np.abs(gram - np.eye(p)).max(axis=(1, 2)) > TOLERANCE)
    if not len(wrong):
        return
    first = frames[wrong[0]]
    lengths = ", ".join(f"{length:.4g}" for length in np.linalg.norm(first, axis=0))
    angles = "" if p == 1 else f" and XᵀX = {np.round(gram[wrong[0]], 3).tolist()}"
    raise DataError(
        f"{len(wrong):,} of {n:,} rows of {table.path.name} are no frames of {d} by {p}: "
        f"{table.describe(wrong)}. Columns must have length 1 and be perpendicular to each other; "
        f"those of the first such row have length {lengths}{angles}. Are entries in another order "
        "(--order rows), of another frame (--frame 3x2), or not the right columns (--columns)?"
    )


class LangevinResult(Result):
    """Directions and concentrations of frames."""

    title = "Orientations"

    @cached_property
    def modes(self) -> dict[str, list[Cap]]:
        """Credible caps of the modal directions, by group."""
        return {
            k: self.model.regions(tree, self.probability) for k, tree in self.posteriors.items()
        }

    @cached_property
    def ahead(self) -> dict[str, list[Cap]]:
        """Caps for new observations, by group."""
        return {
            k: self.model.regions(tree, self.probability, predictive=True, size=PREDICTED)
            for k, tree in self.posteriors.items()
        }

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a frame."""
        frames = next(iter(self.fit.task.data.values()))
        return frames.shape[1], frames.shape[2]

    @property
    def columns(self) -> list[str]:
        return [
            ORDINALS[j] if j < len(ORDINALS) else f"column {j + 1}" for j in range(self.shape[1])
        ]

    def kappa(self, group: str) -> np.ndarray:
        """Draws of the concentrations, (draw, column)."""
        kappa = self.posteriors[group]["posterior"].dataset["kappa"].values
        return kappa.reshape(-1, self.shape[1])

    def headline(self) -> list[str]:
        return [
            f"The {name}{of(group)} points to **({_entries(mode)})**, known to within "
            f"{mode.degrees:.1f}°; {self.probability:.0%} of new observations fall within "
            f"**{new.degrees:.1f}°**. Concentration {kappa.mean():.3g} (90% from "
            f"{span(kappa)[0]:.3g} to {span(kappa)[1]:.3g})."
            for group in self.posteriors
            for name, mode, new, kappa in zip(
                self.columns,
                self.modes[group],
                self.ahead[group],
                self.kappa(group).T,
                strict=True,
            )
        ]

    def sheets(self) -> dict[str, Sheet]:
        head = ["column", "kind", "probability", "degrees"]
        head += [f"centre_{row + 1}" for row in range(self.shape[0])]
        rows = {
            group: [
                [cap.column + 1, kind, cap.probability, cap.degrees, *cap.centre]
                for kind, caps in (("credible", self.modes), ("predictive", self.ahead))
                for cap in caps[group]
            ]
            for group in self.posteriors
        }
        return {**super().sheets(), "regions": grouped(head, rows)}

    def write(self, page: Page) -> None:
        for group, posterior in self.posteriors.items():
            self._write_one(page.section(f"Directions{of(group)}"), group, posterior)
        if len(self.posteriors) > 1:
            self._write_groups(page.section("Groups together", "together"))

    def _write_one(self, section: Section, group: str, posterior: xr.DataTree) -> None:
        frames = self.fit.task.data[group]
        names, (d, p) = self.columns, self.shape
        modes, ahead = self.modes[group], self.ahead[group]
        what = (
            f"The solid circle holds {self.probability:.0%} of the posterior of a column's modal "
            "direction, the dashed one the same share of new observations."
        )
        if d == 3 and p <= 3:
            section.globe(
                frames,
                modes,
                ahead,
                names=names,
                name=named("globe", group),
                caption=f"Every column of the {len(frames):,} frames as a point; turn the sphere. "
                + what,
            )
            predicted = self.model.predict(posterior, PREDICTED)
            section.figure(
                plots.frames(posterior, predicted, self.probability, projection="equal-area"),
                "maps",
                f"The same as equal-area maps, one for each column, centred at its mode. {what}",
            )
        section.table(
            ["column", "direction", f"mode within (°, {self.probability:.0%})", "new within (°)"],
            [
                [name, _entries(mode), mode.degrees, new.degrees]
                for name, mode, new in zip(names, modes, ahead, strict=True)
            ],
            "The smallest circles around the mean direction; “new” is for a new observation.",
        )
        section.figure(
            plots.concentrations(posterior, names=names),
            "concentrations",
            "Posterior of the concentrations: the larger, the closer frames are to the mode. The "
            "bar is the central 90%.",
        )

    def _write_groups(self, section: Section) -> None:
        section.figure(
            self._groups_figure(),
            "groups",
            "Concentrations of all groups, with central 90% intervals: where intervals do not "
            "overlap, one group agrees more closely than the other.",
        )
        rows = []
        for first, second in combinations(self.posteriors, 2):
            for name, a, b in zip(self.columns, self.modes[first], self.modes[second], strict=True):
                apart = float(np.degrees(np.arccos(np.clip(a.centre @ b.centre, -1, 1))))
                rows.append([name, literal(first), literal(second), apart, a.degrees + b.degrees])
        section.table(
            ["column", "first", "second", "modes apart (°)", "both circles together (°)"],
            rows,
            "How far modal directions are from each other. Further apart than both circles "
            "together is a clear difference.",
        )

    def _groups_figure(self) -> Figure:
        plt = pyplot()
        rows = [
            (j, name, group) for j, name in enumerate(self.columns) for group in self.posteriors
        ]
        with plt.rc_context(STYLE):
            size = (6.4, 0.9 + 0.45 * len(rows))
            figure, ax = plt.subplots(figsize=size, layout="constrained")
            for row, (j, name, group) in enumerate(rows):
                kappa = self.kappa(group)[:, j]
                colour = CHAIN_COLOURS[row % len(self.posteriors) % len(CHAIN_COLOURS)]
                ax.plot(span(kappa), [-row] * 2, color=colour, linewidth=3)
                ax.plot([kappa.mean()], [-row], "o", color=colour)
                ax.annotate(
                    f"{name}, {words(group)}", (kappa.mean(), -row), (0, 6), ha="center",
                    textcoords="offset points", fontsize=8.5,
                )  # fmt: skip
            ax.set_ylim(-len(rows) + 0.3, 0.8)
            ax.set_yticks([])
            ax.set_xlabel("concentration")
        return figure


def _entries(cap: Cap) -> str:
    return ", ".join(f"{entry:.3f}" for entry in cap.centre)
