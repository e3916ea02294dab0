"""What is in this soil? Readings on a triangle, after the impossible ones were deleted.

A spectrometer reads the share of sand and the share of silt of a soil sample, each with an error;
what is left is clay. For a sandy or silty soil some readings are impossible: a share below zero,
or sand and silt together above one. Somebody has deleted these before the data came to us, quite
reasonably, and did not write down how many there were.

The trap: the mean of what is left is not the composition of the soil. Where readings fall off the
edge of the triangle, those that remain lie too far from it, they spread too little, and the mean
reports clay that is not there.

The answer: the readings are a normal distribution of two dimensions, truncated to a simplex. Its
normalising constant is an integral over a triangle, different for every mean and covariance;
Offcut does without. With a normal-inverse-Wishart prior the parameters are drawn exactly in every
sweep, and ``offcut.kernel_for`` says so.

Run it with  python docs/examples/simplex.py  and look at results/simplex.png.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

import offcut
from offcut.plots import BLUE, INK, NAIVE, STYLE, TRUTH

MEAN = np.array([0.14, 0.70])  # sand, silt; the other 0.16 are clay
SD, CORRELATION = np.array([0.13, 0.18]), -0.6
COVARIANCE = np.outer(SD, SD) * np.array([[1, CORRELATION], [CORRELATION, 1]])
ANGLES = np.linspace(0, 2 * np.pi, 200)
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)])


def simulate(readings: int, seed: int) -> np.ndarray:
    """Readings of the same soil, without the impossible ones."""
    every = np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, size=readings)
    return every[(every >= 0).all(axis=1) & (every.sum(axis=1) <= 1)]


def prior() -> None:
    """Any composition; readings that scatter by 0.08 to 0.3 (90%), as such devices do."""
    covariance = numpyro.sample("covariance", dist.InverseWishart(5.0, 0.06 * np.eye(2)))
    centre = np.full(2, 1 / 3)
    numpyro.sample("mean", dist.MultivariateNormal(centre, covariance_matrix=covariance / 0.25))


def quantities(mean: np.ndarray, covariance: np.ndarray) -> dict[str, np.ndarray]:
    """What the reader of a soil report asks for; the last axes are those of one draw."""
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    return {
        "sand": mean[..., 0],
        "silt": mean[..., 1],
        "clay": 1 - mean.sum(axis=-1),
        "sd of sand": sd[..., 0],
        "sd of silt": sd[..., 1],
        "correlation": covariance[..., 0, 1] / sd.prod(axis=-1),
    }


def outline(centre: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """How far the ellipse that holds 90% of a normal distribution is from a centre inside it.

    One distance for each of ANGLES: the positive root r of |L^-1 (centre + r d - mean)|^2 = c.
    """
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    start, along = root @ (centre - mean), root @ DIRECTIONS
    a, b = (along**2).sum(axis=0), start @ along
    return (np.sqrt(b**2 - a * (start @ start + 2 * np.log(0.1))) - b) / a


def picture(readings: np.ndarray, region: offcut.regions.Region, draws: dict, naive: tuple):
    """The triangle with the readings, and ellipses that hold 90% of what there was."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.6, 5.8), layout="constrained")
        region.draw(axes, xlim=(-0.2, 1.04), ylim=(-0.04, 1.26), color="#A9C6DD")
        axes.plot(*readings.T, "o", color=INK, markersize=2.6, alpha=0.6, markeredgewidth=0)
        centre = draws["mean"].mean(axis=0)
        radii = [outline(centre, *draw) for draw in zip(*draws.values(), strict=True)]
        inner, outer = (
            centre + (radius * DIRECTIONS).T for radius in np.quantile(radii, [0.05, 0.95], axis=0)
        )
        axes.fill(*np.concatenate([inner, outer[::-1]]).T, color=BLUE, alpha=0.35, linewidth=0)
        axes.plot(*centre, "P", color=BLUE, markersize=9, markeredgecolor="white")
        for (mean, covariance), line in (((MEAN, COVARIANCE), TRUTH), (naive, NAIVE)):
            axes.plot(*(mean + (outline(mean, mean, covariance) * DIRECTIONS).T).T, **line)
            axes.plot(*mean, "P", color=line["color"], markersize=9, markeredgecolor="white")
        axes.set(xlim=(-0.2, 1.04), ylim=(-0.04, 1.26), aspect="equal")
        axes.set_xlabel("share of sand")
        axes.set_ylabel("share of silt")
        for corner, name in (((0.02, 0.03), "all clay"), ((0.98, 0.03), "all sand")):
            axes.annotate(name, corner, color=INK, ha="left" if corner[0] < 0.5 else "right")
        handles = [
            plt.Line2D([], [], color=INK, marker="o", markersize=3, linestyle="", alpha=0.6),
            plt.Rectangle((0, 0), 1, 1, color=BLUE, alpha=0.35, linewidth=0),
            plt.Line2D([], [], **TRUTH),
            plt.Line2D([], [], **NAIVE),
        ]
        labels = [
            f"{len(readings)} readings that were kept",
            "before deletion, 90% band",
            "truth",
            "deletion ignored",
        ]
        figure.legend(handles, labels, loc="outside upper left", ncols=2)
        note = "mean (+), and the ellipse that\nholds 90% of the readings"
        axes.annotate(note, (1.02, 1.1), color=INK, ha="right")
    return figure


def main(directory: Path, draws: int = 4000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample, print and draw; each quantity's truth, naive value and posterior."""
    readings = simulate(450, seed=3)
    region = offcut.regions.Simplex()
    model = offcut.truncated(
        prior,
        base=lambda theta: dist.MultivariateNormal(
            theta["mean"], covariance_matrix=theta["covariance"]
        ),
        inside=region,
    )
    print(f"{len(readings)} readings inside {region}.")
    print(f"Kernel, chosen for this prior and base: {offcut.kernel_for(model)}.\n")
    posterior = offcut.sample(model, readings, draws=draws, **settings)
    print(offcut.summary(posterior))

    drawn = {
        name: posterior["posterior"][name].values.reshape(-1, *shape)
        for name, shape in (("mean", (2,)), ("covariance", (2, 2)))
    }
    naive = readings.mean(axis=0), np.cov(readings.T)
    truths, naives = quantities(MEAN, COVARIANCE), quantities(*naive)
    results = {}
    print(f"\n{'':12}{'truth':>8}{'naive':>8}   posterior mean and 90%")
    for name, values in quantities(**drawn).items():
        low, high = np.quantile(values, [0.05, 0.95])
        results[name] = {
            "truth": float(truths[name]),
            "naive": float(naives[name]),
            "mean": float(values.mean()),
            "low": float(low),
            "high": float(high),
        }
        line = "{truth:8.3f}{naive:8.3f}   {mean:.3f} ({low:.3f} to {high:.3f})"
        print(f"{name:12}" + line.format(**results[name]))

    few = {name: values[:: max(1, len(values) // 400)] for name, values in drawn.items()}
    directory.mkdir(parents=True, exist_ok=True)
    figure = picture(readings, region, few, naive)
    figure.savefig(directory / "simplex.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
