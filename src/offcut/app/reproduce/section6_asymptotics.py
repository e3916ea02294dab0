"""Section 6.5 of the paper: how far an asymptotic normaliser is off, by dimension."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

import offcut
from offcut.app.html import Hover, Section, Series
from offcut.app.reproduce.finished import FinishedRun, RunStore
from offcut.app.reproduce.section6_vectorcardiograms import model_of_the_paper
from offcut.app.reproduce.versus_paper import Claim, Plan, Verdict, checked, graded, tabulate
from offcut.plots.style import BLUE, GREY, ORANGE, STYLE, pyplot

TITLE = "An approximate sampler, measured (section 6.5)"
#: Posterior means of kappa and their Monte Carlo errors, by dimension and method.
Means = dict[int, dict[str, tuple[np.ndarray, np.ndarray]]]
#: The paper's setting: 50 frames of three columns.
KAPPA, FRAMES = np.array([1.0, 5.0, 10.0]), 50
METHODS = ("exchange", "augment", "asymptotic")
#: Those compared with an exact one: colours of the picture and of the page, and the line.
LINES = {"augment": (BLUE, "blue", "-"), "asymptotic": (ORANGE, "orange", "--")}
PAPER_DIMENSIONS = (3, 4, 5, 8, 10)
#: Monte Carlo errors that a sign takes.
TOLD_APART = 2.0
#: A mean is off where it is further away than so many of its Monte Carlo errors.
ERRORS = 4.0


def simulate(d: int, n: int = FRAMES, seed: int = 0) -> np.ndarray:
    """n frames (n, d, 3) around a random G."""
    G = np.linalg.qr(np.random.default_rng((seed, d)).normal(size=(d, 3)))[0]
    with jax.enable_x64(True):
        there = offcut.MatrixLangevin.from_svd(G, KAPPA)
        return np.asarray(there.sample(jax.random.key(seed), (n,)))


def run(store: RunStore, plan: Plan, data: Path | None = None) -> dict[int, dict[str, FinishedRun]]:
    """Every method in every dimension."""
    methods = METHODS if plan.approximate_exchange else METHODS[1:]
    return {
        d: {
            method: store.sample(
                f"approximate-{d}-{method}",
                model_of_the_paper(),
                simulate(d),
                (plan.approximate_exchange if method == "exchange" else None) or plan.approximate,
                label=f"d = {d}, {method}",
                method=method,
            )
            for method in methods
        }
        for d in plan.dimensions
    }


def show(section: Section, found: dict[int, dict[str, FinishedRun]], plan: Plan) -> list[Claim]:
    """Figure 4: errors of the posterior mean by dimension."""
    section.text(
        f"{FRAMES} simulated frames of three columns in d dimensions, κ = (1, 5, 10), as in the "
        "paper. The exchange sampler is exact and taken for the truth (in the quick version "
        "augmentation, which is exact too); the approximate one replaces Z by Khatri & Mardia's "
        "asymptotic formula. Lines are one data set for "
        "each d, as in the paper, so their bends mean little; their signs are the point."
    )
    means = {d: {m: _mean(one) for m, one in runs.items()} for d, runs in found.items()}
    _picture(section, means)
    rows = _rows(means)
    tabulate(section, rows)
    section.table(
        ["d", "Method", "κ = 1", "κ = 5", "κ = 10"],
        [
            [d, method, *(f"{m:.2f} ± {e:.2f}" for m, e in zip(*mean, strict=True))]
            for d, by_method in means.items()
            for method, mean in by_method.items()
        ],
        "Posterior means with Monte Carlo errors",
    )
    return rows


def _mean(finished: FinishedRun) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean of kappa and its Monte Carlo error."""
    table = offcut.summary(finished.posterior).table
    rows = [table[f"kappa[{r}]"] for r in range(len(KAPPA))]
    return np.array([row["mean"] for row in rows]), np.array([row["mcse"] for row in rows])


def _away(means: Means, d: int, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Distance of a method's mean from the first one's, which is exact, and its error."""
    (mean, error), (truth, other) = means[d][method], next(iter(means[d].values()))
    return mean - truth, np.hypot(error, other)


def _picture(section: Section, means: Means) -> None:
    plt = pyplot()
    dimensions = list(means)
    truth, *others = means[dimensions[0]]
    hovers = []
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(8.6, 2.9), layout="constrained")
        for r, ax in enumerate(panels):
            ax.axhline(0.0, color=GREY, linewidth=0.8)
            curves = []
            for method, (colour, on_page, style) in LINES.items():
                if method not in others:
                    continue
                away = np.array([_away(means, d, method) for d in dimensions])
                ax.errorbar(
                    dimensions, away[:, 0, r], 2 * away[:, 1, r], color=colour, linestyle=style,
                    marker="o", markersize=4, label=method,
                )  # fmt: skip
                curves.append(Series(method, dimensions, away[:, 0, r], colour=on_page))
            ax.set_title(f"κ = {KAPPA[r]:g}")
            ax.set_xlabel("d")
            hovers.append(Hover(ax, curves, f"κ = {KAPPA[r]:g}, d"))
        panels[0].set_ylabel(f"posterior mean, less {truth}'s")
        panels[0].legend()
    section.figure(
        figure,
        "approximate-errors",
        "**Figure 4.** Error of the posterior mean of each concentration, by dimension; bars are "
        "two Monte Carlo errors. Exact would be a line at zero; point at a panel for the values.",
        alt="Errors of posterior means by dimension, for augmentation and for the approximation",
        hover=hovers,
    )


def _rows(means: Means) -> list[Claim]:
    rows = [_agreement(means)]
    for d in PAPER_DIMENSIONS:
        paper = "close" if d == 5 else "underestimates" if d < 5 else "overestimates"
        if d not in means:
            rows.append(Claim(f"Approximate sampler at d = {d}", paper, "", "", Verdict.NOT_RUN))
            continue
        away, error = _away(means, d, "asymptotic")
        if d == 5:
            verdict, why = _closeness(means, away)
        else:
            verdict, why = _direction(away, error, -1 if d < 5 else 1)
        rows.append(
            Claim(f"Approximate sampler at d = {d}", paper, _signed(away), "", verdict, why)
        )
    return rows


def _agreement(means: Means) -> Claim:
    """Of augmentation and exchange, where both ran."""
    claim = ("Hamiltonian sampler against exchange", "almost no error")
    if not all("exchange" in by_method for by_method in means.values()):
        return Claim(*claim, "", "", Verdict.NOT_RUN)
    z = max(float(np.max(np.abs(a) / e)) for a, e in (_away(means, d, "augment") for d in means))
    here = f"at most {z:.1f} Monte Carlo errors over all d and κ"
    return checked(*claim, here, z < ERRORS, "One of the two ran too briefly.")


def _direction(away: np.ndarray, error: np.ndarray, sign: int) -> tuple[Verdict, str]:
    """Whether all concentrations are off in one direction, as far as errors tell."""
    clear = np.abs(away) > TOLD_APART * error
    right, wrong = clear & (sign * away > 0), clear & (sign * away < 0)
    if right.all():
        return Verdict.SAME, ""
    if wrong.any():
        return Verdict.OTHER, "One data set for each d, as in the paper: not every κ need follow."
    return (
        Verdict.UNKNOWN,
        f"{int(right.sum())} of {len(away)} are off by more than their errors allow.",
    )


def _closeness(means: Means, away: np.ndarray) -> tuple[Verdict, str]:
    """Whether errors at d = 5 are the smallest of all dimensions, for each concentration."""
    others = [np.abs(_away(means, d, "asymptotic")[0]) for d in means if d != 5]
    smallest = np.abs(away) <= np.min(others, axis=0) if others else np.ones(len(away), bool)
    why = f"The smallest error of all d for {int(smallest.sum())} of {len(away)} concentrations."
    return graded(bool(smallest.all()), bool(smallest.any())), why


def _signed(away: np.ndarray) -> str:
    return ", ".join(f"{value:+.2f}" for value in away).replace("-", "−")
