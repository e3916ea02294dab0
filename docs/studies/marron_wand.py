"""Gaussian process densities beside kernel estimates, on the 15 densities of Marron & Wand (1992).

Data of n = 200 from each of the 15 normal mixtures of Table 1 of "Exact mean integrated squared
error" (Annals of Statistics 20, 712-736); the posterior mean of ``offcut.GPDensity`` with its
default priors against ``scipy.stats.gaussian_kde`` with its default bandwidth (Scott's), both by
integrated squared error, and how often the pointwise 90% bands hold the true density, over the
mass of the truth.

    python docs/studies/marron_wand.py            # 20 data sets each, about 40 minutes
    python docs/studies/marron_wand.py --quick    # 3 data sets each
    python docs/studies/marron_wand.py --densities 1,2,10 -n 500
"""

from __future__ import annotations

import argparse
import warnings
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.stats import gaussian_kde

import offcut
from offcut.gp.evaluation import Bands
from offcut.samplers.choice import prepare

KERNEL = offcut.HMC(num_steps=16, jitter=0.5)
PROBABILITY = 0.9
#: Basis sizes are rounded up to multiples of this, so that data sets share compiled programs.
ROUND = 16


class Mixture(NamedTuple):
    """Normals, by their weights, means and standard deviations."""

    name: str
    weights: np.ndarray
    means: np.ndarray
    sds: np.ndarray

    def density(self, x: np.ndarray) -> np.ndarray:
        """At points (m,)."""
        z = (x[:, None] - self.means) / self.sds
        return np.exp(-0.5 * z**2) @ (self.weights / self.sds) / np.sqrt(2 * np.pi)

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Random points (size,)."""
        label = rng.choice(len(self.weights), size, p=self.weights)
        return rng.normal(self.means[label], self.sds[label])

    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Points fine enough for the sharpest component, and weights of the trapezoidal rule."""
        low, high = (self.means - 7 * self.sds).min(), (self.means + 7 * self.sds).max()
        near = np.linspace(-7, 7, 281)[:, None] * self.sds
        x = np.unique(np.concatenate([np.linspace(low, high, 4001), (self.means + near).ravel()]))
        gaps = np.diff(x)
        return x, 0.5 * (np.append(gaps, 0.0) + np.append(0.0, gaps))


def _mixture(name: str, *parts: tuple[float, float, float]) -> Mixture:
    """Of (weight, mean, sd) for each component."""
    return Mixture(name, *np.array(parts, float).T)


#: Table 1 of Marron & Wand (1992), by number.
DENSITIES = dict(
    enumerate(
        [
            _mixture("Gaussian", (1, 0, 1)),
            _mixture(
                "Skewed unimodal", (1 / 5, 0, 1), (1 / 5, 1 / 2, 2 / 3), (3 / 5, 13 / 12, 5 / 9)
            ),
            _mixture(
                "Strongly skewed",
                *((1 / 8, 3 * ((2 / 3) ** k - 1), (2 / 3) ** k) for k in range(8)),
            ),
            _mixture("Kurtotic unimodal", (2 / 3, 0, 1), (1 / 3, 0, 1 / 10)),
            _mixture("Outlier", (1 / 10, 0, 1), (9 / 10, 0, 1 / 10)),
            _mixture("Bimodal", (1 / 2, -1, 2 / 3), (1 / 2, 1, 2 / 3)),
            _mixture("Separated bimodal", (1 / 2, -3 / 2, 1 / 2), (1 / 2, 3 / 2, 1 / 2)),
            _mixture("Skewed bimodal", (3 / 4, 0, 1), (1 / 4, 3 / 2, 1 / 3)),
            _mixture(
                "Trimodal", (9 / 20, -6 / 5, 3 / 5), (9 / 20, 6 / 5, 3 / 5), (1 / 10, 0, 1 / 4)
            ),
            _mixture("Claw", (1 / 2, 0, 1), *((1 / 10, k / 2 - 1, 1 / 10) for k in range(5))),
            _mixture(
                "Double claw",
                *((49 / 100, mean, 2 / 3) for mean in (-1, 1)),
                *((1 / 350, (k - 3) / 2, 1 / 100) for k in range(7)),
            ),
            _mixture(
                "Asymmetric claw",
                (1 / 2, 0, 1),
                *((2 ** (1 - k) / 31, k + 1 / 2, 2**-k / 10) for k in (-2.0, -1.0, 0.0, 1.0, 2.0)),
            ),
            _mixture(
                "Asymmetric double claw",
                *((46 / 100, mean, 2 / 3) for mean in (-1, 1)),
                *((1 / 300, -k / 2, 1 / 100) for k in (1, 2, 3)),
                *((7 / 300, k / 2, 7 / 100) for k in (1, 2, 3)),
            ),
            _mixture(
                "Smooth comb",
                *((2 ** (5 - k) / 63, (65 - 96 / 2**k) / 21, 32 / 63 / 2**k) for k in range(6)),
            ),
            _mixture(
                "Discrete comb",
                *((2 / 7, (12 * k - 15) / 7, 2 / 7) for k in (0, 1, 2)),
                *((1 / 21, 2 * k / 7, 1 / 21) for k in (8, 9, 10)),
            ),
        ],
        start=1,
    )
)


class Outcome(NamedTuple):
    """Of one data set: integrated squared errors, coverage, and what the sampler says."""

    kde: float
    gp: float
    coverage: float
    log_normaliser: float  # its 1% quantile
    r_hat: float


def simulate(number: int, replicate: int, n: int) -> np.ndarray:
    """Data (n,) from a density."""
    return DENSITIES[number].draw(n, np.random.default_rng((1992, number, replicate)))


def default_model(x: np.ndarray) -> offcut.GPDensity:
    """All by default, with the number of functions rounded up."""
    size = prepare(offcut.GPDensity(), x).sampler.plan.basis.number
    return offcut.GPDensity(basis=-(-size // ROUND) * ROUND)


def fit(x: np.ndarray, points: np.ndarray) -> tuple[Bands, xr.DataTree]:
    """Bands at points, and the posterior."""
    model = default_model(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few effective draws: R-hat is in the table
        how = {"method": "collapsed", "kernel": KERNEL}
        posterior = offcut.sample(model, x, draws=500, warmup=500, chains=2, progress=False, **how)
    return model.bands(posterior, points, PROBABILITY), posterior


def compare(number: int, replicate: int, n: int) -> Outcome:
    """Both estimates from one data set, against the truth."""
    truth, x = DENSITIES[number], simulate(number, replicate, n)
    points, weights = truth.grid()
    g = truth.density(points)
    if abs(weights @ g - 1) > 1e-5:
        raise ArithmeticError(f"density {number} integrates to {weights @ g}")
    bands, posterior = fit(x, points)
    held = (bands.lower <= g) & (g <= bands.upper)
    stats = posterior["sample_stats"].dataset
    return Outcome(
        kde=float(weights @ (gaussian_kde(x)(points) - g) ** 2),
        gp=float(weights @ (bands.mean - g) ** 2),
        coverage=float(weights @ (g * held)),
        log_normaliser=float(np.quantile(stats["log_normaliser"], 0.01)),
        r_hat=r_hat(stats["log_density"].values),
    )


def r_hat(values: np.ndarray) -> float:
    """The largest split R-hat of values (chain, draw, quantity)."""
    halves = np.concatenate(np.array_split(values, 2, axis=1), axis=0)
    within = halves.var(axis=1, ddof=1).mean(0)
    between = halves.mean(1).var(axis=0, ddof=1)
    length = halves.shape[1]
    return float(np.sqrt((length - 1) / length + between / within).max())


def row(number: int, found: list[Outcome]) -> str:
    """One line of the table. The ratio is that of the mean errors, its error by linearisation."""
    kde, gp, coverage, log_Z, r = np.array(found).T
    ratio = gp.mean() / kde.mean()
    error = np.std(gp - ratio * kde, ddof=1) / np.sqrt(len(kde)) / kde.mean()
    return (
        f"| {number} {DENSITIES[number].name} | {1e3 * kde.mean():.2f} | {1e3 * gp.mean():.2f} "
        f"| {ratio:.2f} ± {error:.2f} | {(gp < kde).sum()} of {len(kde)} | {coverage.mean():.0%} "
        f"| {log_Z.mean():.1f} | {r.max():.2f} |"
    )


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=200, help="observations")
    parser.add_argument("--replicates", type=int, default=20, help="data sets for each density")
    parser.add_argument("--quick", action="store_true", help="three data sets for each density")
    parser.add_argument("--densities", default="", help="numbers, such as 1,2,10; by default all")
    chosen = parser.parse_args()
    replicates = 3 if chosen.quick else chosen.replicates
    numbers = [int(part) for part in chosen.densities.split(",") if part] or list(DENSITIES)
    if replicates < 2 or not set(numbers) <= set(DENSITIES):
        parser.error("at least 2 replicates, for their spread, and densities from 1 to 15")
    print(
        "| density | KDE, 1000 ISE | GP, 1000 ISE | ratio | GP better | 90% bands hold "
        "| 1% quantile of log Z | largest R-hat |\n|---|---|---|---|---|---|---|---|"
    )
    for number in numbers:
        found = [compare(number, replicate, chosen.n) for replicate in range(replicates)]
        print(row(number, found), flush=True)


if __name__ == "__main__":
    main()
