"""The paper's first application: flow cytometry of graft-versus-host disease, cut off at zero.

Control and positive group, four markers within the unit cube, K = 50: the paper's two pictures
(scatter of CD4 and CD8b with contours of the log posterior-mean density), the number of rejections,
the acceptance rate, whether four chains that start apart agree, and how much of it depends on the
prior, which the paper does not state.

    python docs/studies/gvhd.py              # results/ gets the pictures; about half an hour
    python docs/studies/gvhd.py --quick      # a fraction of the sweeps, no prior sensitivity
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

import offcut
from offcut.result.diagnostics import r_hat

GROUPS = ("control", "positive")
#: Name; prior on which weights; the base's strength, degrees beyond d, scale over the covariance
PRIORS = {
    "latent": ("latent", 0.3, 4, 1.0),
    "window": ("window", 0.3, 4, 1.0),
    "latent, wider": ("latent", 1.0, 2, 1.0),
    "latent, smaller": ("latent", 0.3, 4, 0.1),
}
FIRST = "latent"
#: Draws, warm-up and thinning, for each of four chains.
FULL, SENSITIVITY, QUICK = (1000, 6000, 20), (150, 1500, 10), (200, 500, 2)


def build(events, name):
    """The model with one of the priors."""
    weights, strength, degrees, share = PRIORS[name]
    d = events.values.shape[1]
    scale = share * np.cov(events.values, rowvar=False)
    base = offcut.NormalInverseWishart(strength=strength, degrees=d + degrees, scale=scale)
    return offcut.TruncatedMixture(events.region, components=50, prior=weights, base=base)


def run(events, name, draws, warmup, thin, seed=0):
    """A model, its posterior, and how long it took."""
    model = build(events, name)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = offcut.sample(
            model, events.values, draws=draws, warmup=warmup, thin=thin, chains=4, seed=seed
        )
    return model, posterior, time.perf_counter() - started


def report(group, name, posterior, seconds):
    """One line of the table."""
    stats = posterior["sample_stats"].dataset
    rejected = stats["rejected"].values
    density = stats["log_density"].values
    worst = max(r_hat(density[..., i]) for i in range(density.shape[-1]))
    n = posterior.attrs["n_observations"]
    print(
        f"{group:9} {name:25} {np.median(rejected):8,.0f} {rejected.max():9,.0f} "
        f"{n / (n + rejected.mean()):10.0%} {stats['occupied'].values.mean():9.1f} "
        f"{stats['ghost_share'].values.mean():8.1e} {r_hat(rejected):7.2f} {worst:9.2f} "
        f"{posterior.attrs['tv_halving_limit']:8.1%} {seconds:8.0f}",
        flush=True,
    )
    return {"r_hat_rejected": r_hat(rejected), "r_hat_density": worst}


def picture(results, folder):
    """The paper's figure: both groups, first two markers."""
    import matplotlib.pyplot as plt

    with plt.rc_context(offcut.plots.STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.2), layout="constrained")
        for ax, group in zip(axes, GROUPS, strict=True):
            model, posterior, events, labels = results[group]
            offcut.plots.mixture(
                posterior, model, labels=labels, names=events.channels[:2], grid=80, ax=ax,
                limits=((0, 0.65), (0, 0.8)),
            )  # fmt: skip
            large = int(np.sum(np.bincount(labels.labels) >= 0.01 * len(events)))
            ax.set_title(f"{group}: {len(events):,} events, {large} populations above 1%")
    figure.savefig(folder / "gvhd.png", dpi=110)
    plt.close(figure)


def main(folder: Path | str = "results", quick: bool = False):
    """Run everything; returns the R-hats by group and prior."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [FIRST] if quick else list(PRIORS)
    found, results = {}, {}
    print(
        "group     prior                      |Y| median      most  acceptance  occupied   ghosts  "
        "R-hat|Y|  R-hat f  halving  seconds"
    )
    for group in GROUPS:
        events = offcut.datasets.gvhd(group)
        for name in names:
            length = QUICK if quick else FULL if name == FIRST else SENSITIVITY
            model, posterior, seconds = run(events, name, *length)
            found[group, name] = report(group, name, posterior, seconds)
            if name == FIRST:
                results[group] = (model, posterior, events, model.labels(posterior))
    picture(results, folder)
    for group in GROUPS:
        model, _, events, labels = results[group]
        print(f"\n{group}: {labels}")
        print("population        events   in the window (90%)       lost (90%)      mean")
        for row in model.populations(labels)[:8]:
            low, high = row.proportion_interval
            lost_low, lost_high = row.lost_interval
            mean = ", ".join(f"{m:.2f}" for m in row.mean)
            print(
                f"{row.name:15} {row.events:8,}   {row.proportion:5.1%} "
                f"({low:.1%} to {high:.1%})   "
                f"{row.lost:4.0%} ({lost_low:.0%} to {lost_high:.0%})   {mean}"
            )
    return found


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
