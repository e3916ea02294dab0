"""How tall were they? Heights from an army that enlisted nobody below a minimum.

Much of what is known about heights in past centuries comes from muster rolls, and recruits had
to be tall enough: the short are missing from the rolls, not from the population. This example
simulates such a roll and recovers the population's mean and standard deviation.

Run it with ``make run``. It writes to results/: summary.txt, posterior.nc and three pictures.
"""

import sys
import time
from pathlib import Path

import numpy as np
import numpyro.distributions as dist

import offcut

MINIMUM = 165.0  # cm
TRUTH = {"mean": 168.0, "sd": 6.8}
RESULTS = Path("results")


def enlist(n: int, seed: int) -> np.ndarray:
    """Measure men from the population until n of them are tall enough."""
    rng = np.random.default_rng(seed)
    men = rng.normal(TRUTH["mean"], TRUTH["sd"], size=10 * n)
    return men[men > MINIMUM][:n]


def main() -> None:
    started = time.monotonic()
    RESULTS.mkdir(exist_ok=True)
    heights = enlist(n=500, seed=0)
    print(f"{len(heights)} recruits, nobody below {MINIMUM:g} cm.")

    # The spread of adult heights differs little between populations: an informative prior. The
    # mean is what we are after: a vague one.
    model = offcut.truncated(
        prior={"mean": dist.Normal(170, 10), "sd": dist.LogNormal(np.log(6.8), 0.05)},
        base=lambda theta: dist.Normal(theta["mean"], theta["sd"]),
        inside=lambda height: height > MINIMUM,
    )
    print("Sampling: 4 chains of 1,000 warm-up sweeps and 5,000 draws, after some compilation.")
    posterior = offcut.sample(model, heights, draws=5000)

    summary = offcut.summary(posterior)
    if not sys.stderr.isatty():  # on a terminal, offcut.sample has printed it
        print(summary)
    (RESULTS / "summary.txt").write_text(f"{summary}\n")
    posterior.to_netcdf(RESULTS / "posterior.nc", engine="h5netcdf")

    naive = {"mean": heights.mean(), "sd": heights.std(ddof=1)}
    pictures = {
        "truncated_normal": offcut.plots.density(
            posterior, model, truth=TRUTH, naive=naive, xlabel="height (cm)"
        ),
        "parameters": offcut.plots.posterior(posterior, truth=TRUTH, naive=naive),
        "rejections": offcut.plots.rejections(posterior),
    }
    for name, figure in pictures.items():
        figure.savefig(RESULTS / f"{name}.png")

    print(f"\n{'':6}{'truth':>8}{'filter ignored':>18}{'posterior mean and 90%':>28}")
    for name, row in summary.table.items():
        interval = f"{row['mean']:.1f} ({row['5%']:.1f} to {row['95%']:.1f})"
        print(f"{name:6}{TRUTH[name]:8.1f}{naive[name]:18.1f}{interval:>28}")
    print(
        f"""
What to look at, in {RESULTS}/:
  truncated_normal.png  the population before the minimum was applied
  parameters.png        the marginal posteriors; the four chains should agree
  rejections.png        |Y| far below its budget, and mixing
  summary.txt           the same in numbers, with the certificate
  posterior.nc          every draw; xarray.open_datatree reads it, ArviZ takes it
Done in {time.monotonic() - started:.0f} seconds."""
    )


if __name__ == "__main__":
    main()
