"""Section 5 of the paper: flow cytometry of graft-versus-host disease, cut off at zero.

Its figures are read by their modes: those of a density on a grid, and how far each stands out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

import offcut
from offcut.app.html import Section
from offcut.app.html.markup import number, percent
from offcut.app.reproduce.finished import FinishedRun, RunStore
from offcut.app.reproduce.versus_paper import (
    Claim,
    Plan,
    Verdict,
    checked,
    counted,
    graded,
    ratio,
    tabulate,
    timed,
)
from offcut.cytometry.events import Events
from offcut.mixtures.populations import ByGroup

#: CD4, CD8b and prominence (as a factor) of a mode.
Mode = tuple[float, float, float]


def modes(log_density: np.ndarray, least: float = 0.2) -> list[tuple[tuple[int, ...], float]]:
    """Peaks that stand out, the highest first.

    A peak's prominence is how far one must go down (in log density) on the best way from it to
    a higher one; of the highest peak it is infinite. Found by flooding from above: cells in falling
    order, each joined to the basins beside it. The density is on a grid of one or two dimensions,
    -inf where there is nothing; ``least`` is the smallest prominence of the (index, prominence)
    returned.

    >>> [(at, round(high, 1)) for at, high in modes(np.array([0.0, 2.0, 1.0, 3.0, 0.0]))]
    [((3,), inf), ((1,), 1.0)]
    """
    shape = log_density.shape
    values = log_density.ravel()
    basin = np.full(values.size, -1)
    parent: dict[int, int] = {}
    prominence: dict[int, float] = {}

    def root(cell: int) -> int:
        while parent[cell] != cell:
            cell = parent[cell]
        return cell

    for cell in np.argsort(-values, kind="stable"):
        if values[cell] == -np.inf:
            break
        cell = int(cell)
        place = np.unravel_index(cell, shape)
        beside = {root(int(basin[k])) for k in _neighbours(place, shape) if basin[k] >= 0}
        if not beside:
            parent[cell], prominence[cell], basin[cell] = cell, np.inf, cell
            continue
        highest = max(beside, key=lambda peak: (values[peak], -peak))
        basin[cell] = highest
        for peak in beside - {highest}:
            prominence[peak] = float(values[peak] - values[cell])
            parent[peak] = highest
    found = [(peak, high) for peak, high in prominence.items() if high >= least]
    found.sort(key=lambda one: -values[one[0]])
    return [(tuple(map(int, np.unravel_index(peak, shape))), high) for peak, high in found]


def _neighbours(place: tuple[np.integer, ...], shape: tuple[int, ...]) -> list[int]:
    """Flat indices of the cells around, diagonals included."""
    around = np.stack(np.meshgrid(*[[-1, 0, 1]] * len(shape), indexing="ij"), axis=-1)
    cells = np.asarray(place) + around.reshape(-1, len(shape))
    kept = cells[((cells >= 0) & (cells < shape)).all(axis=1) & (cells != place).any(axis=1)]
    return [int(k) for k in np.ravel_multi_index(kept.T, shape)]


TITLE = "Flow cytometry (section 5)"
GROUPS = ("control", "positive")
#: What the paper reports: events, mean |Y|, and an upper limit of minutes for 1,000 iterations.
PAPER_EVENTS = {"control": 6809, "positive": 9083}
PAPER_REJECTED = {"control": 3960, "positive": 4608}
PAPER_MINUTES = 2.0
#: The part of the picture, CD4 by CD8b, and the grid on which modes are counted.
LIMITS, GRID = ((0.0, 0.65), (0.0, 0.8)), 80
#: A mode is clear where one must go down by this factor in density to reach a higher one.
CLEAR = 3.0
#: A mode is near the lower edge of CD8b below this.
NEAR_EDGE = 0.2
#: A population is shown from this share of the events on.
LEAST_SHARE = 0.01


class Fit(NamedTuple):
    """A model, its events and its run."""

    model: offcut.TruncatedMixture
    events: Events
    finished: FinishedRun


def model_of(events: Events, truncated: bool = True) -> offcut.TruncatedMixture:
    """50 sticks, alpha = 1, as in the paper; it does not state its normal-inverse-Wishart prior."""
    d = events.values.shape[1]
    base = offcut.NormalInverseWishart(
        strength=0.3, degrees=d + 4, scale=np.cov(events.values, rowvar=False)
    )
    return offcut.TruncatedMixture(
        events.region if truncated else None, components=50, alpha=1.0, base=base
    )


def run(store: RunStore, plan: Plan, data: Path | None = None) -> dict[str, Fit]:
    """Both groups and, where planned, the control group as if nothing had been cut off."""
    found = {}
    for name in GROUPS if plan.ignored is None else (*GROUPS, "ignored"):
        truncated = name != "ignored"
        events = offcut.datasets.gvhd(name if truncated else "control")
        model = model_of(events, truncated)
        length = plan.mixture if truncated or plan.ignored is None else plan.ignored
        label = f"gvhd {name}" if truncated else "gvhd control, truncation ignored"
        finished = store.sample(f"gvhd-{name}", model, events.values, length, label=label)
        found[name] = Fit(model, events, finished)
    return found


def show(section: Section, found: dict[str, Fit], plan: Plan) -> list[Claim]:
    """The figure of section 5, its numbers, and what else the runs say."""
    section.text(
        "Four markers of two blood samples, recorded from 0 to 1,024: what lies below zero was "
        "lost. Each sample is a Dirichlet process mixture of normals seen through that window, "
        "α = 1 and 50 sticks as in the paper. Data: Brinkman et al. (2007), bundled with Offcut."
    )
    peaks = {name: _modes(fit) for name, fit in found.items()}
    for name in GROUPS:
        _picture(section, name, found[name], len([p for p in peaks[name] if p[2] >= CLEAR]))
    rows = [row for name in GROUPS for row in _rejections(name, found[name])]
    rows += _claims(peaks)
    tabulate(section, rows)
    _mode_table(section, peaks)
    return rows


def _modes(fit: Fit) -> list[Mode]:
    """Of the density of CD4 and CD8b."""
    across, up = (np.linspace(*ends, GRID) for ends in LIMITS)
    mesh = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    density = fit.model.marginal(fit.finished.posterior, mesh, (0, 1), most=60)
    with np.errstate(divide="ignore"):
        peaks = modes(np.log(density.reshape(GRID, GRID)), np.log(1.1))
    return [(across[j], up[i], float(np.exp(high))) for (i, j), high in peaks]


def _picture(section: Section, name: str, fit: Fit, clear: int) -> None:
    """Events coloured by population, contours of the log posterior-mean density."""
    posterior = fit.finished.posterior
    labels = fit.model.labels(posterior, most=100)
    names = fit.events.channels[:2]
    figure = offcut.plots.mixture(
        posterior, fit.model, labels=labels, names=names, grid=GRID, limits=LIMITS
    )
    large = [p for p in fit.model.populations(labels) if p.events >= LEAST_SHARE * len(fit.events)]
    section.figure(
        figure,
        f"gvhd-{name}",
        f"**Figure 1, {name} group.** {len(fit.events):,} events in CD4 and CD8b, coloured by "
        f"population, with contours of the log posterior-mean density: {clear} clear "
        f"mode{'' if clear == 1 else 's'}. Look at the lower edges: what was lost lies beyond "
        "them, and a density that knows of the window need not fall towards them.",
        alt=f"Scatter of CD4 and CD8b of the {name} group with density contours",
    )
    section.table(
        ["Population", "Events", "Share in the window (90%)", "Lost beyond it (90%)", "Mean"],
        [
            [
                p.name,
                p.events,
                _with_interval(p.proportion, p.proportion_interval),
                _with_interval(p.lost, p.lost_interval),
                ", ".join(f"{m:.2f}" for m in p.mean),
            ]
            for p in large
        ],
        f"Populations of the {name} group with at least {LEAST_SHARE:.0%} of the events",
    )


def _with_interval(share: ByGroup, ends: tuple[ByGroup, ByGroup]) -> str:
    """Of the one group that was fitted."""
    middle, low, high = (percent(float(one)) for one in (share, *ends))
    return f"{middle} ({low} to {high})"


def _rejections(name: str, fit: Fit) -> list[Claim]:
    """Events, the number of rejections and the time of one group."""
    rejected = fit.finished.rejected
    paper, ours = PAPER_REJECTED[name], float(rejected.mean())
    by_chain = ", ".join(f"{mean:,.0f}" for mean in rejected.mean(axis=1))
    return [
        counted(f"Events, {name}", PAPER_EVENTS[name], len(fit.events)),
        Claim(
            f"Rejected points a sweep, {name}",
            f"{paper:,} on average",
            f"{ours:,.0f} on average (chains: {by_chain})",
            ratio(ours, paper),
            graded(False, close=0.8 < ours / paper < 1.25),
            "The paper does not state its normal–inverse-Wishart prior, and |Y| hangs on it: mass "
            "beyond the edge is poorly identified. How far chains agree on |Y| is in the "
            "diagnostics below.",
        ),
        timed(
            f"1,000 sweeps, {name}",
            PAPER_MINUTES,
            fit.finished.minutes(1000),
            "Another machine, a decade later; our sweep also splits, merges and reshapes clusters.",
            limit=True,
        ),
    ]


def _claims(peaks: dict[str, list[Mode]]) -> list[Claim]:
    """What the paper says of modes."""
    clear = {name: [p for p in found if p[2] >= CLEAR] for name, found in peaks.items()}
    count = {name: len(found) for name, found in clear.items()}
    above = {
        name: sorted((p[2] for p in found if np.isfinite(p[2])), reverse=True)
        for name, found in peaks.items()
    }
    faint = {name: above[name][0] if above[name] else 1.0 for name in GROUPS}
    return [
        checked(
            "Modes, control",
            "three clear ones",
            f"{count['control']} from which density falls by a factor of {CLEAR:g} and more",
            count["control"] == 3,
            "What is clear is a matter of the factor; the table below has them all.",
            difference=number(count["control"] - 3),
        ),
        checked(
            "Modes, positive",
            "much less pronounced",
            f"{count['positive']} clear; beside the highest, the one that stands out most does so "
            f"by a factor of {faint['positive']:.2g}, against {faint['control']:.2g} in the "
            "control group",
            faint["positive"] < faint["control"] / 2,
            "See the table below.",
        ),
        *_ignored(clear),
    ]


def _ignored(clear: dict[str, list[Mode]]) -> list[Claim]:
    """What the paper says of a mixture that knows of no window."""
    claims = (
        ("Truncation ignored, control: modes", "obscured"),
        ("Truncation ignored, control: edges", "modes forced away from the edges"),
    )
    if "ignored" not in clear:
        return [Claim(quantity, paper, "", "", Verdict.NOT_RUN) for quantity, paper in claims]
    ours, theirs = len(clear["ignored"]), len(clear["control"])
    rows = [
        checked(
            *claims[0],
            f"{ours} clear ones, against {theirs}",
            ours < theirs,
            "Ignoring the window does not hide the modes here; the paper does not say how many "
            "components or which prior it had there.",
        )
    ]
    moved = [_lift(place, clear["ignored"]) for place in clear["control"] if place[1] < NEAR_EDGE]
    if moved:
        up, step = float(np.mean(moved)), LIMITS[1][1] / (GRID - 1)
        rows.append(
            Claim(
                *claims[1],
                f"modes near the lower edge of CD8b move by {up:+.3f} (the grid's step is "
                f"{step:.3f})",
                "",
                graded(up > 0, unclear=abs(up) < step),
                "A normal that must keep its mass in the window cannot lean on the edge.",
            )
        )
    return rows


def _lift(place: Mode, others: list[Mode]) -> float:
    """How far up in CD8b the nearest of other modes is."""
    near = min(others, key=lambda p: (p[0] - place[0]) ** 2 + (p[1] - place[1]) ** 2)
    return near[1] - place[1]


def _mode_table(section: Section, peaks: dict[str, list[Mode]]) -> None:
    names = {"control": "control", "positive": "positive", "ignored": "control, ignored"}
    section.table(
        ["Group", "CD4", "CD8b", "Stands out by a factor of"],
        [
            [names[name], f"{x:.2f}", f"{y:.2f}", "highest" if np.isinf(high) else f"{high:.2g}"]
            for name, found in peaks.items()
            for x, y, high in found
        ],
        "Modes of the posterior-mean density of CD4 and CD8b, others integrated out",
    )
