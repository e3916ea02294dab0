"""Section 7 of the paper: voice shimmer with and without Parkinson's disease."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

import offcut
from offcut.app.html import Hover, Section, Series
from offcut.app.html.markup import number, percent
from offcut.app.reproduce.finished import FinishedRun, RunStore
from offcut.app.reproduce.versus_paper import Claim, Plan, checked, counted, ratio, tabulate, timed

TITLE = "Voices and Parkinson's disease (section 7.2)"
LABEL = "shimmer, scaled to 0–5"
COLOURS = {"disease": "blue", "control": "orange"}
#: What the paper reports.
PAPER_RECORDINGS = {"disease": 147, "control": 48}
PAPER_MINUTES = {"disease": 26.0, "control": 18.0}
PAPER_ITERATIONS = 2500
PAPER_TYPICAL, PAPER_LARGEST = (100, 150), 668
PAPER_CROSSING = 0.5
#: Of the bands, as in the paper's figures.
BAND = 0.8
#: How many draws get their rejections made again for the picture of their places.
REDRAWN = 400


def shimmer() -> dict[str, np.ndarray]:
    """``MDVP:Shimmer``, both groups together scaled to go from 0 to 5."""
    voices = offcut.datasets.parkinsons()
    values = voices["MDVP:Shimmer"]
    scaled = 5 * (values - values.min()) / np.ptp(values)
    return {"disease": scaled[voices.status == 1], "control": scaled[voices.status == 0]}


def model_of_the_paper() -> offcut.GPDensity:
    """Normal-inverse-gamma (0, .1, 1, 10) is this normal-inverse-Wishart in one dimension."""
    base = offcut.NormalInverseWishart(mean=[0.0], strength=0.1, degrees=2.0, scale=[[20.0]])
    return offcut.GPDensity(base=base, length_scale=1.0, variance=1.0)


def run(store: RunStore, plan: Plan, data: Path | None = None) -> dict[str, FinishedRun]:
    """Both groups."""
    model = model_of_the_paper()
    return {
        name: store.sample(f"parkinsons-{name}", model, x, plan.density, label=f"parkinsons {name}")
        for name, x in shimmer().items()
    }


def show(section: Section, found: dict[str, FinishedRun], plan: Plan) -> list[Claim]:
    """Figures 5 and 6, and their numbers."""
    model, grid = model_of_the_paper(), np.linspace(-1.5, 5.5, 281)
    both = {name: finished.posterior for name, finished in found.items()}
    section.text(
        "Densities of voice shimmer: a normal base bent by a Gaussian process, with the paper's "
        "priors. Data: Little et al. (2007), bundled with Offcut. The paper does not say which "
        "shimmer it used or how it scaled; this is `MDVP:Shimmer`, both groups together scaled to "
        "0–5."
    )
    section.notice(
        "The 195 recordings come from 32 people and are not independent. The paper takes them as "
        "if they were, and so does this page: all bands are narrower than they should be.",
        "doubt",
    )
    _densities(section, model, both, grid)
    _function(section, model, both["disease"], grid)
    places = np.concatenate(model.rejections(both["disease"], REDRAWN))
    section.figure(
        offcut.plots.rejected_proposals(both["disease"], model, draws=REDRAWN, names=[LABEL]),
        "parkinsons-rejections",
        f"**Figure 6.** Left, where rejected proposals of the disease group lie: "
        f"{percent(float((np.abs(places) < 0.5).mean()))} within 0.5 of the origin, "
        f"{percent(float((places > 1).mean()))} above 1. Right, how many there are in a sweep.",
        alt="Histogram of the places of rejected proposals beside the density, and of their number",
    )
    rows = _numbers(model, found, grid, places)
    tabulate(section, rows)
    return rows


def _densities(
    section: Section, model: offcut.GPDensity, both: dict[str, xr.DataTree], grid: np.ndarray
) -> None:
    figure = offcut.plots.density_bands(both, model, BAND, grid=grid, xlabel=LABEL)
    curves = []
    for name, posterior in both.items():
        bands = model.bands(posterior, grid, BAND)
        curves.append(Series(name, grid, bands.median, bands.lower, bands.upper, COLOURS[name]))
    section.figure(
        figure,
        "parkinsons-densities",
        f"**Figure 5, left.** Posterior densities: median and {BAND:.0%} band, recordings as "
        "ticks. Point at a place to read the values.",
        alt="Densities of shimmer of the disease and the control group with bands",
        hover=Hover(figure.axes[0], curves, "shimmer"),
    )
    less = model.compare(both["disease"], both["control"], grid, probability=BAND)
    curve = Series("disease − control", grid, less.mean, less.lower, less.upper)
    figure = offcut.plots.difference(
        both["disease"], model, both["control"], BAND, names=list(both), grid=grid, xlabel=LABEL
    )
    section.figure(
        figure,
        "parkinsons-difference",
        f"Not in the paper: disease less control, with its {BAND:.0%} band. Where the band is off "
        "zero, place by place, the densities differ with that probability.",
        alt="Difference of the two densities with its band",
        hover=Hover(figure.axes[0], [curve], "shimmer"),
    )


def _function(
    section: Section, model: offcut.GPDensity, posterior: xr.DataTree, grid: np.ndarray
) -> None:
    values = model.function(posterior, grid)
    low, middle, high = np.quantile(values, [(1 - BAND) / 2, 0.5, (1 + BAND) / 2], axis=(0, 1))
    figure = offcut.plots.function_band(posterior, model, BAND, grid=grid, xlabel=LABEL)
    section.figure(
        figure,
        "parkinsons-function",
        f"**Figure 5, right.** The Gaussian process f of the disease group: median and {BAND:.0%} "
        "band. Above zero there is more than a normal would have, below less.",
        alt="Posterior of the Gaussian process function with its band",
        hover=Hover(figure.axes[0], [Series("f", grid, middle, low, high)], "shimmer"),
    )


def _numbers(
    model: offcut.GPDensity, found: dict[str, FinishedRun], grid: np.ndarray, places: np.ndarray
) -> list[Claim]:
    recordings = [
        counted(
            f"Recordings, {name}",
            PAPER_RECORDINGS[name],
            finished.posterior.attrs["n_observations"],
        )
        for name, finished in found.items()
    ]
    times = [
        timed(
            f"{PAPER_ITERATIONS:,} iterations, {name}",
            PAPER_MINUTES[name],
            finished.minutes(PAPER_ITERATIONS),
            "A finite basis in place of dense matrices, compiled code, a newer machine.",
        )
        for name, finished in found.items()
    ]
    return [
        *recordings,
        *_rejections(found),
        _crossing(model, found["disease"].posterior, grid),
        _origin(places),
        *_shapes(model, found, grid),
        *times,
    ]


def _rejections(found: dict[str, FinishedRun]) -> list[Claim]:
    """How many there are in a sweep; the paper gives numbers for the positive group."""
    rejected = {name: finished.rejected for name, finished in found.items()}
    half = {name: np.quantile(values, [0.25, 0.75]) for name, values in rejected.items()}
    most = {name: values.max(axis=1) for name, values in rejected.items()}  # of each chain
    low, high = PAPER_TYPICAL

    def typical(name: str) -> bool:
        return bool(half[name][0] <= high and half[name][1] >= low)

    why = (
        "The control group's numbers, below, are the ones in the paper's range: it may have shown "
        "that group."
        if typical("control") and not typical("disease")
        else "The paper does not state column and scaling."
    )
    rows = []
    for name in found:
        inside = float(((rejected[name] >= low) & (rejected[name] <= high)).mean())
        rows.append(
            checked(
                f"Rejected proposals a sweep, {name}",
                f"typically {low} to {high}" + ("" if name == "disease" else " (of the positive)"),
                f"middle half {half[name][0]:,.0f} to {half[name][1]:,.0f}",
                typical(name),
                why,
                difference=f"{percent(inside)} of sweeps in the paper's range",
            )
        )
        lowest, highest = most[name].min(), most[name].max()
        rows.append(
            checked(
                f"The most in a run, {name}",
                number(PAPER_LARGEST),
                f"{lowest:,} to {highest:,} in each of {len(most[name])} chains",
                lowest <= PAPER_LARGEST <= highest,
                why,
                difference=ratio(float(np.median(most[name])), PAPER_LARGEST),
            )
        )
    size = found["disease"].posterior.attrs["n_observations"] + rejected["disease"]
    rows.append(
        checked(
            "Points at which f is evaluated, disease",
            "typically about 100, at most about 600",
            f"typically {np.median(size):,.0f}, at most {size.max():,}",
            bool(np.median(size) < 150),
            "The recordings alone are more than the paper's typical size.",
        )
    )
    return rows


def _crossing(model: offcut.GPDensity, disease: xr.DataTree, grid: np.ndarray) -> Claim:
    """Where f is above its prior mean, among the data."""
    last = float(disease["observed_data"].dataset["x"].values.max())
    grid = grid[(grid >= 0) & (grid <= last)]
    up = np.median(model.function(disease, grid), axis=(0, 1)) > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], up.astype(int), [0]])))
    spans = [f"{grid[a]:.2f} to {grid[b - 1]:.2f}" for a, b in zip(*[iter(edges)] * 2, strict=True)]
    right = up[grid > PAPER_CROSSING]
    return checked(
        "f above its prior mean, disease",
        f"to the right of {PAPER_CROSSING}",
        f"median of f above 0 from {' and '.join(spans)}" if spans else "nowhere",
        bool(right.mean() > 0.8),
        "Base and f share the tail between them: a wider base leaves less of it to f. The paper's "
        "column and scaling are not stated.",
        difference=f"{percent(float(right.mean()))} of the places to the right",
    )


def _origin(places: np.ndarray) -> Claim:
    """Where rejections are."""
    close, right = float((np.abs(places) < 0.5).mean()), float((places > 1).mean())
    return checked(
        "Places of rejections, disease",
        "most near the origin",
        f"{percent(close)} within 0.5 of it, {percent(right)} above 1",
        close > 0.5,
        "The base is wider than the density on both sides, and what it proposes too much there is "
        "rejected.",
    )


def _shapes(
    model: offcut.GPDensity, found: dict[str, FinishedRun], grid: np.ndarray
) -> list[Claim]:
    """Skewness of each group's density by its quantiles, with its interval over draws."""
    rows = []
    for name, paper in (("control", "fairly Gaussian"), ("disease", "skewed to the right")):
        density = model.density(found[name].posterior, grid, draws=True)[:, ::10]
        low, middle, high = np.quantile(_skewness(grid, density), [0.05, 0.5, 0.95])
        rows.append(
            checked(
                f"Shape, {name}",
                paper,
                f"skewness by the 10, 50 and 90% points {middle:.2f} (90% from {low:.2f} to "
                f"{high:.2f})",
                low > 0 if name == "disease" else low < 0 < high,
                "Zero would be symmetric.",
            )
        )
    return rows


def _skewness(grid: np.ndarray, density: np.ndarray) -> np.ndarray:
    """(q90 + q10 - 2 q50) / (q90 - q10): 0 where symmetric, and blind to far tails."""
    share = np.cumsum(density, axis=-1)
    share /= share[..., -1:]
    rows = share.reshape(-1, share.shape[-1])
    points = np.array([np.interp([0.1, 0.5, 0.9], row, grid) for row in rows])
    q10, q50, q90 = points.T.reshape(3, *share.shape[:-1])
    return (q90 + q10 - 2 * q50) / (q90 - q10)
