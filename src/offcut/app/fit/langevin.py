"""``offcut fit langevin``: frames from columns of a table or from an array of matrices.

What fitted orientations say: where the columns point, and how closely frames agree.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from offcut import plots
from offcut.app.fit.parse import parse_frame
from offcut.app.fit.request import Request, Result, Sheet, Task, by_group, read_rows, span
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal
from offcut.errors import DataError, SettingsError
from offcut.langevin.data import TOLERANCE, as_frames
from offcut.langevin.evaluation import Cap
from offcut.plots.langevin_models import ORDINALS
from offcut.plots.style import CHAIN_COLOURS, STYLE, pyplot, words
from offcut.tables.table import Table, check_groups


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
    model = MatrixLangevinModel(dist.Exponential(1.0 / mean), method=options.method)
    d, p = frames.shape[1:]
    order = "column by column" if options.order == "columns" else "row by row"
    written = "" if table.matrices is not None or p == 1 else f", its entries {order}"
    notes = [f"Each row is a frame of {d} by {p}{written}."]
    return Task(model, by_group(table, as_frames(frames)), table, notes=notes)


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


PREDICTED = 5000


class LangevinResult(Result):
    """Directions and concentrations of frames."""

    title = "Orientations"

    @cached_property
    def modes(self) -> dict[str, list[Cap]]:
        """Credible caps of the modal directions, by group."""
        model, q = self.fit.model, self.probability
        return {k: model.regions(posterior, q) for k, posterior in self.fit.posteriors.items()}

    @cached_property
    def ahead(self) -> dict[str, list[Cap]]:
        """Caps for new observations, by group."""
        model, q = self.fit.model, self.probability
        return {
            k: model.regions(posterior, q, predictive=True, size=PREDICTED)
            for k, posterior in self.fit.posteriors.items()
        }

    @property
    def probability(self) -> float:
        """Of all caps."""
        return float(self.fit.request.options.probability)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a frame."""
        frames = next(iter(self.fit.task.data.values()))
        return frames.shape[1], frames.shape[2]

    def kappa(self, posterior: xr.DataTree) -> np.ndarray:
        """Draws of the concentrations, (draw, column)."""
        return posterior["posterior"].dataset["kappa"].values.reshape(-1, self.shape[1])

    def ordinals(self) -> list[str]:
        """Names of the columns."""
        return [
            ORDINALS[j] if j < len(ORDINALS) else f"column {j + 1}" for j in range(self.shape[1])
        ]

    def headline(self) -> list[str]:
        """Where each column points, and how concentrated it is."""
        told = []
        for group, posterior in self.fit.posteriors.items():
            kappa = self.kappa(posterior)
            for j, name in enumerate(self.ordinals()):
                mode, new = self.modes[group][j], self.ahead[group][j]
                centre = ", ".join(f"{entry:.3f}" for entry in mode.centre)
                low, high = span(kappa[:, j])
                of = f" of {literal(group)}" if group else ""
                told.append(
                    f"The {name}{of} points to **({centre})**, known to within "
                    f"{mode.degrees:.1f}°; {self.probability:.0%} of new observations fall within "
                    f"**{new.degrees:.1f}°**. Concentration {kappa[:, j].mean():.3g} (90% from "
                    f"{low:.3g} to {high:.3g})."
                )
        return told

    def sheets(self) -> dict[str, Sheet]:
        """Parameters and caps."""
        grouped = "" not in self.fit.posteriors
        head = [*(["group"] if grouped else []), "column", "kind", "probability", "degrees"]
        head += [f"centre_{row + 1}" for row in range(self.shape[0])]
        rows = [
            [
                *([group] if grouped else []),
                *(cap.column + 1, kind, cap.probability, cap.degrees),
                *cap.centre,
            ]
            for group in self.fit.posteriors
            for kind, caps in (("credible", self.modes[group]), ("predictive", self.ahead[group]))
            for cap in caps
        ]
        return {**super().sheets(), "regions": (head, rows)}

    def write(self, page: Page) -> None:
        """Spheres, maps and concentrations, group by group, and the groups together."""
        for group, posterior in self.fit.posteriors.items():
            title = f"Directions of {literal(group)}" if group else "Directions"
            self._write_one(page.section(title), group, posterior)
        if len(self.fit.posteriors) > 1:
            self._write_groups(page.section("Groups together", "together"))

    def _write_one(self, section: Section, group: str, posterior: xr.DataTree) -> None:
        frames = self.fit.task.data[group]
        names, (d, p) = self.ordinals(), self.shape
        what = (
            f"The solid circle holds {self.probability:.0%} of the posterior of a column's modal "
            "direction, the dashed one the same share of new observations."
        )
        if d == 3 and p <= 3:
            section.globe(
                frames,
                self.modes[group],
                self.ahead[group],
                names=names,
                name=f"globe-{group}" if group else "globe",
                caption=f"Every column of the {len(frames):,} frames as a point; turn the sphere. "
                + what,
            )
            predicted = self.fit.model.predict(posterior, PREDICTED)
            section.figure(
                plots.frames(posterior, predicted, self.probability, projection="equal-area"),
                "maps",
                f"The same as equal-area maps, one for each column, centred at its mode. {what}",
            )
        section.table(
            ["column", "direction", f"mode within (°, {self.probability:.0%})", "new within (°)"],
            [
                [name, ", ".join(f"{e:.3f}" for e in mode.centre), mode.degrees, new.degrees]
                for name, mode, new in zip(names, self.modes[group], self.ahead[group], strict=True)
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
        for first, second in combinations(self.fit.posteriors, 2):
            for j, name in enumerate(self.ordinals()):
                a, b = self.modes[first][j], self.modes[second][j]
                apart = np.degrees(np.arccos(np.clip(a.centre @ b.centre, -1, 1)))
                rows.append(
                    [name, literal(first), literal(second), float(apart), a.degrees + b.degrees]
                )
        section.table(
            ["column", "first", "second", "modes apart (°)", "both circles together (°)"],
            rows,
            "How far modal directions are from each other. Further apart than both circles "
            "together is a clear difference.",
        )

    def _groups_figure(self) -> Any:
        plt = pyplot()
        names = self.ordinals()
        with plt.rc_context(STYLE):
            size = (6.4, 0.9 + 0.45 * len(names) * len(self.fit.posteriors))
            figure, ax = plt.subplots(figsize=size, layout="constrained")
            place = 0
            for j, name in enumerate(names):
                for row, (group, posterior) in enumerate(self.fit.posteriors.items()):
                    kappa = self.kappa(posterior)[:, j]
                    colour = CHAIN_COLOURS[row % len(CHAIN_COLOURS)]
                    ax.plot(span(kappa), [-place] * 2, color=colour, linewidth=3)
                    ax.plot([kappa.mean()], [-place], "o", color=colour)
                    ax.annotate(
                        f"{name}, {words(group)}", (kappa.mean(), -place), (0, 6), ha="center",
                        textcoords="offset points", fontsize=8.5,
                    )  # fmt: skip
                    place += 1
            ax.set_ylim(-place + 0.3, 0.8)
            ax.set_yticks([])
            ax.set_xlabel("concentration")
        return figure
