"""What does a truncated mixture recover that the window has cut off?

Fifty simulated populations, each a mixture of three normals in the plane of which a box shows only
a part. For each: the share of the population that the window loses, and the density at places
beyond its edge, as 90% intervals against the truth; and the density inside, near the edge, against
the same mixture without truncation and scikit-learn's BayesianGaussianMixture, by integrated
squared error.

    python docs/studies/mixture_recovery.py            # 50 data sets, several minutes
    python docs/studies/mixture_recovery.py 10 window  # fewer, and the other weights
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

import numpy as np
from scipy.stats import multivariate_normal

import offcut
from offcut.regions import Box

EVENTS = 400
LOWER, UPPER = np.zeros(2), np.full(2, 3.0)
#: How far from the window's sides is "near the edge".
EDGE = 0.4
#: Shares of the latent density's peak below which nobody could see anything.
VISIBLE = 0.02


class Truth(NamedTuple):
    """A mixture of normals."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def density(self, points):
        """At points (m, 2)."""
        parts = [
            w * multivariate_normal(m, S).pdf(points)
            for w, m, S in zip(self.weights, self.means, self.covariances, strict=True)
        ]
        return np.sum(parts, axis=0)

    def draw(self, size, rng):
        """Random points (size, 2)."""
        label = rng.choice(len(self.weights), size, p=self.weights)
        roots = np.linalg.cholesky(self.covariances)[label]
        return self.means[label] + np.einsum("nij,nj->ni", roots, rng.standard_normal((size, 2)))


def random_truth(rng) -> Truth:
    """Three clusters, their centres up to half a unit outside the window."""
    means = rng.uniform(-0.3, 3.3, (3, 2))
    angles, axes = rng.uniform(0, np.pi, 3), rng.uniform(0.25, 0.7, (3, 2))
    turn = np.array([[[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]] for a in angles])
    covariances = turn @ (axes[:, :, None] ** 2 * np.eye(2)) @ turn.transpose(0, 2, 1)
    return Truth(rng.dirichlet([4.0, 4.0, 4.0]), means, covariances)


def simulate(seed):
    """A truth, events in the window, and the share that the window loses."""
    rng = np.random.default_rng(seed)
    while True:
        truth = random_truth(rng)
        y = truth.draw(200_000, rng)
        inside = np.all((y >= LOWER) & (y <= UPPER), axis=1)
        if 0.4 < inside.mean() < 0.9:
            return truth, y[inside][:EVENTS], 1 - inside.mean()


def grid(low, high, size=80):
    """Centres of cells of a square."""
    axis = low + (np.arange(size) + 0.5) / size * (high - low)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


class Outcome(NamedTuple):
    """One data set: intervals that held, and errors."""

    lost: float
    lost_mean: float
    lost_held: bool
    beyond_held: float
    r_hat: float
    edge_error: tuple[float, float, float]  # ours, without truncation, scikit-learn


def one(seed: int, weights: str, compare: bool, **settings) -> Outcome:
    """Simulate a data set and fit it."""
    truth, x, lost = simulate(seed)
    model = offcut.TruncatedMixture(Box(LOWER, UPPER), components=12, weights=weights)
    posterior = offcut.sample(model, x, seed=seed, progress=False, **settings)
    estimate = 1 - posterior["posterior"]["window_share"].values.ravel()
    low, high = np.quantile(estimate, [0.05, 0.95])

    around = grid(-1.2, 4.2, 40)
    latent = truth.density(around)
    outside = np.any((around < LOWER) | (around > UPPER), axis=1)
    near = np.all((around > LOWER - EDGE) & (around < UPPER + EDGE), axis=1)
    places = around[outside & near & (latent > VISIBLE * latent.max())][::3]
    curves = model.density(posterior, places, draws=True, truncated=False, most=400)
    curves = curves.reshape(-1, len(places))
    at = truth.density(places)
    ends = np.quantile(curves, [0.05, 0.95], axis=0)

    inner = grid(0.0, 3.0)
    edge = np.any((inner < LOWER + EDGE) | (inner > UPPER - EDGE), axis=1)
    exact = truth.density(inner[edge]) / (1 - lost)

    def error(density):
        return float(np.sum((density - exact) ** 2) * (3 / 80) ** 2)

    errors = [error(model.density(posterior, inner[edge], most=200)), np.nan, np.nan]
    if compare:
        plain = offcut.TruncatedMixture(None, components=12)
        other = offcut.sample(plain, x, seed=seed, progress=False, **settings)
        errors[1] = error(plain.density(other, inner[edge], most=200))
        errors[2] = error(_sklearn(x, inner[edge]))
    return Outcome(
        lost,
        float(estimate.mean()),
        bool(low <= lost <= high),
        float(np.mean((ends[0] <= at) & (at <= ends[1]))),
        offcut.summary(posterior).table["window_share"]["r_hat"],
        tuple(errors),
    )


def _sklearn(x, points):
    from sklearn.mixture import BayesianGaussianMixture

    fit = BayesianGaussianMixture(n_components=12, max_iter=1000, random_state=0).fit(x)
    return np.exp(fit.score_samples(points))


def main(datasets: int = 50, weights: str = "latent", compare: bool = True, **settings):
    """Run the study and print its table; returns the outcomes."""
    chosen = {"draws": 400, "warmup": 1000, "thin": 8, "chains": 2} | settings
    outcomes = []
    print(f"{datasets} data sets of {EVENTS} events, weights {weights!r}, {chosen}")
    print(" set   lost  estimated  held  beyond held  R-hat    edge: ours / plain / scikit-learn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(datasets):
            outcome = one(seed, weights, compare, **chosen)
            outcomes.append(outcome)
            ours, plain, other = (1e3 * e for e in outcome.edge_error)
            print(
                f"{seed:4d}  {outcome.lost:5.2f}  {outcome.lost_mean:9.2f}  "
                f"{'yes' if outcome.lost_held else 'NO':>4}  {outcome.beyond_held:11.0%}  "
                f"{outcome.r_hat:5.2f}    {ours:8.1f} / {plain:5.1f} / {other:5.1f}",
                flush=True,
            )
    held = np.mean([o.lost_held for o in outcomes])
    beyond = np.mean([o.beyond_held for o in outcomes])
    errors = np.array([o.edge_error for o in outcomes])
    print(f"\n90% intervals hold: share lost {held:.0%}, density beyond the edge {beyond:.0%}")
    if compare:
        print(
            "Integrated squared error within the window near its edge (x 1000, mean): "
            f"{1e3 * errors[:, 0].mean():.1f}; without truncation {1e3 * errors[:, 1].mean():.1f}; "
            f"scikit-learn {1e3 * errors[:, 2].mean():.1f}. Smaller than without truncation in "
            f"{np.mean(errors[:, 0] < errors[:, 1]):.0%} of the data sets, than scikit-learn in "
            f"{np.mean(errors[:, 0] < errors[:, 2]):.0%}."
        )
    return outcomes


if __name__ == "__main__":
    main(*(int(a) if a.isdigit() else a for a in sys.argv[1:]))
