"""The paper's third application: shimmer of voices with and without Parkinson's disease.

The Gaussian process density of Adams, Murray & MacKay, with the paper's settings: MDVP:Shimmer,
scaled to go from 0 to 5 over both groups together; a normal base with a normal-inverse-gamma
(0, .1, 1, 10) prior; a squared-exponential kernel with variance and length-scale 1. Both groups are
sampled, printed as a table and drawn as in the paper; added are the difference of the groups and
how far to trust the runs.

    python docs/studies/parkinsons.py                # results/ gets the pictures

The 195 recordings come from 32 people and are not independent; the paper and this study take them
as if they were, so that all bands are narrower than they should be.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import xarray as xr

import offcut
from offcut.result.diagnostics import rejection_numbers

#: Where the groups are compared, on the scale of 0 to 5.
PLACES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
XLABEL = "shimmer, scaled to 0–5"
#: What the paper says of the disease group's |Y|.
PAPER = "100 to 150, at most 668"


def groups() -> dict[str, np.ndarray]:
    """Scaled shimmer of the two groups."""
    voices = offcut.datasets.parkinsons()
    shimmer = voices["MDVP:Shimmer"]
    scaled = 5 * (shimmer - shimmer.min()) / np.ptp(shimmer)
    return {"disease": scaled[voices.status == 1], "control": scaled[voices.status == 0]}


def model_of_the_paper(method: str = "augment") -> offcut.GPDensity:
    """Normal-inverse-gamma (0, .1, 1, 10) is this normal-inverse-Wishart in one dimension."""
    base = offcut.NormalInverseWishart(mean=[0.0], strength=0.1, degrees=2.0, scale=[[20.0]])
    return offcut.GPDensity(base=base, length_scale=1.0, variance=1.0, method=method)


def run(
    model: offcut.GPDensity, x: np.ndarray, draws: int, warmup: int, chains: int
) -> tuple[xr.DataTree, float, float]:
    """The posterior, CPU-seconds without compiling, and seconds of the first call."""
    settings = {"chains": chains, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says it
        started = time.perf_counter()
        offcut.sample(model, x, draws=draws, warmup=warmup, **settings)
        first = time.perf_counter() - started
        started = time.process_time()
        posterior = offcut.sample(model, x, draws=draws, warmup=warmup, **settings)
    return posterior, time.process_time() - started, first


def report(name: str, posterior: xr.DataTree, seconds: float, first: float) -> None:
    """Rejections, log Z, mixing and the certificate of one group."""
    attrs, numbers = posterior.attrs, rejection_numbers(posterior)
    rejected = posterior["sample_stats"]["rejected"].values
    table = offcut.summary(posterior).table
    log_Z = table["log_normaliser"]
    followed = [row for key, row in table.items() if key.startswith("log_density")]
    rows = {
        "|Y|, quantiles 5 25 50 75 95%": np.quantile(rejected, [0.05, 0.25, 0.5, 0.75, 0.95]),
        "|Y|, mean and largest": np.array([rejected.mean(), rejected.max()]),
        "log Z, mean and sd": np.array([log_Z["mean"], log_Z["sd"]]),
        "base mean, mean and sd": np.array([table["base_mean"][key] for key in ("mean", "sd")]),
        "base sd, mean and sd": np.array([table["base_sd"][key] for key in ("mean", "sd")]),
    }
    print(f"\n{name}: {attrs['n_observations']} recordings, {attrs['chains']} chains of "
          f"{attrs['draws']:,} draws after {attrs['warmup']:,}")  # fmt: skip
    for label, values in rows.items():
        digits = 0 if label.startswith("|Y|") else 2
        print(f"  {label:31s} " + " ".join(f"{value:8,.{digits}f}" for value in values))
    mixing = {"|Y|": numbers, "log Z": log_Z, "base mean": table["base_mean"]}
    mixing["log density, worst of 5"] = {
        "ess": min(row["ess"] for row in followed),
        "r_hat": max(row["r_hat"] for row in followed),
    }
    print(
        f"  {seconds:.1f} CPU-seconds with warm-up; the first call, which compiles, {first:.0f} s"
    )
    for label, row in mixing.items():
        rate = row["ess"] / seconds
        print(f"  ESS {row['ess']:7,.0f} ({rate:6,.0f}/s)  R-hat {row['r_hat']:.3f}  {label}")
    print(
        f"  certificate: budget {attrs['budget']:,}; halving it would change the posterior by at "
        f"most {attrs['tv_halving_limit']:.2%}, against none {attrs['tv_estimate']:.2%} (estimate)"
    )
    print(
        f"  basis: {attrs['basis_functions'][0]} functions, error {attrs['basis_error']:.0e}; "
        f"proposals outside the box {attrs['proposals_outside_box']:.2%}; quadrature of log Z "
        f"{attrs['quadrature_error']:.0e}"
    )
    for line in offcut.summary(posterior).trouble:
        print(f"  DOUBT: {line}")


def beside_the_paper(model: offcut.GPDensity, posterior: xr.DataTree) -> None:
    """What the paper says of the disease group, and what is found here."""
    rejected = posterior["sample_stats"]["rejected"].values
    low, high = np.quantile(rejected, [0.25, 0.75])
    within = float(((rejected >= 100) & (rejected <= 150)).mean())
    grid = np.linspace(0.0, 5.0, 501)
    above = grid[np.median(model.function(posterior, grid), axis=(0, 1)) > 0]
    places = np.concatenate(model.rejections(posterior, 400))
    print(
        f"""
The disease group beside the paper (2,000 draws of one chain):
  |Y| typically {PAPER}
    here the middle half is {low:,.0f} to {high:,.0f}, the largest of {rejected.size:,} is \
{rejected.max():,}, and {within:.0%} are from 100 to 150
  f above its prior mean to the right of 0.5
    here the median of f is above 0 from {above.min():.2f} to {above.max():.2f}
  rejections mostly near the origin
    here {(np.abs(places) < 0.5).mean():.0%} are within 0.5 of it, {(places < 0).mean():.0%} are \
below it, {(places > 1).mean():.0%} are above 1"""
    )


def compare(model: offcut.GPDensity, both: dict[str, xr.DataTree]) -> None:
    """Densities of the groups at some places."""
    places = np.array(PLACES)
    found = model.compare(both["disease"], both["control"], places, probability=0.8)
    print("\n  shimmer   disease − control   80% interval      P(disease > control)")
    shown = (found.points, found.mean, found.lower, found.upper, found.probability_greater)
    for row in zip(*shown, strict=True):
        print("  {:7.2f}   {:17.3f}   {:6.3f} to {:6.3f}   {:20.3f}".format(*row))


def draw_pictures(model: offcut.GPDensity, both: dict[str, xr.DataTree], folder: Path) -> None:
    """The paper's two figures, and the difference."""
    disease, plots = both["disease"], offcut.plots
    pictures = {
        "densities": plots.density_bands(model, both, 0.8, xlabel=XLABEL),
        "difference": plots.difference(
            model, disease, both["control"], 0.8, names=list(both), xlabel=XLABEL
        ),
        "function": plots.function_band(model, disease, 0.8, xlabel=XLABEL),
        "rejections": plots.rejected_proposals(model, disease, draws=400, names=[XLABEL]),
    }
    for kind, figure in pictures.items():
        figure.savefig(folder / f"parkinsons_{kind}.png", dpi=150)


def main() -> None:
    """Both groups."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    parser.add_argument("--draws", type=int, default=2000, help="of each chain")
    parser.add_argument("--warmup", type=int, default=500, help="sweeps of each chain")
    parser.add_argument("--chains", type=int, default=4)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    model, both = model_of_the_paper(), {}
    for name, x in groups().items():
        both[name], seconds, first = run(model, x, asked.draws, asked.warmup, asked.chains)
        report(name, both[name], seconds, first)
    beside_the_paper(model, both["disease"])
    compare(model, both)
    draw_pictures(model, both, asked.output)


if __name__ == "__main__":
    main()
