"""How much of the flow cytometry application depends on the prior, which the paper does not state.

Control and positive group of the GvHD data, four markers within the unit cube, K = 50, with four
priors: |Y|, the acceptance rate, and whether four chains that start apart agree. The application
itself is ``offcut reproduce gvhd --full``.

    python docs/studies/gvhd_priors.py       # about half an hour
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import offcut
from offcut.result.diagnostics import r_hat

GROUPS = ("control", "positive")
#: Name; process on which weights; the base's strength, degrees beyond d, scale over the covariance
PRIORS = {
    "latent": ("latent", 0.3, 4, 1.0),
    "window": ("window", 0.3, 4, 1.0),
    "latent, wider": ("latent", 1.0, 2, 1.0),
    "latent, smaller": ("latent", 0.3, 4, 0.1),
}
#: Draws, warm-up and thinning, for each of four chains; the first prior's run is longer.
FIRST, OTHERS = (1000, 6000, 20), (150, 1500, 10)


def build(events, name):
    """The model with one of the priors."""
    weights, strength, degrees, share = PRIORS[name]
    d = events.values.shape[1]
    scale = share * np.cov(events.values, rowvar=False)
    base = offcut.NormalInverseWishart(strength=strength, degrees=d + degrees, scale=scale)
    return offcut.TruncatedMixture(events.region, components=50, weights=weights, base=base)


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


def main():
    """Every group with every prior."""
    print(
        "group     prior                      |Y| median      most  acceptance  occupied   ghosts  "
        "R-hat|Y|  R-hat f  halving  seconds"
    )
    for group in GROUPS:
        events = offcut.datasets.gvhd(group)
        for place, name in enumerate(PRIORS):
            draws, warmup, thin = OTHERS if place else FIRST
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table says it
                posterior = offcut.sample(
                    build(events, name), events.values, draws=draws, warmup=warmup, thin=thin
                )
            report(group, name, posterior, time.perf_counter() - started)


if __name__ == "__main__":
    main()
