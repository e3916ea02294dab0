"""How bright are these galaxies? A survey that selects on what it measured, errors included.

The luminosities of galaxies, in powers of ten (log10 of solar luminosities, unit dex), are
Normal(mu, tau). Each is measured with an error of known size, and the catalogue holds those whose
*measured* luminosity exceeds a limit.

The traps are two, and old. Faint galaxies are missing, so the catalogue is brighter than the sky
(Malmquist 1922). And errors spread the measured values: those that look brightest, or made it
over the limit at all, owe it partly to luck (Eddington 1913). Ignore the selection, and mu is too
large and tau too small. Correct for the selection as if the measured values were the true ones,
and tau is too large, because it contains the errors, and mu too small.

The answer: the base is about true luminosities, ``noise`` about measured ones given the true, and
the window about the measured. Offcut draws the true luminosity of every galaxy in the catalogue,
and of those that are missing. With so much imputed a sweep of the default kernel moves slowly:
its summary says that nearly all of what a sweep knows is imputed, and recommends
``method="exchange"``, which we use.

Everything is normal here, so the truth can be known: the measured value o is Normal(mu,
sqrt(tau^2 + error^2)), truncated at the limit, and the exact posterior is computed on a grid.
Offcut does not know that, and would do the same for any other distribution in place of the two.

Run it with  python docs/examples/measurement_error.py  and see results/measurement_error.png.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import offcut
from offcut.plots import BLUE, GREEN, GREY, INK, NAIVE, ORANGE, PALE, STYLE

TRUE = {"mu": 9.7, "tau": 0.5}  # dex
LIMIT = 9.5
MU_PRIOR, TAU_PRIOR = (10.0, 1.0), (np.log(0.5), 0.4)  # normal; lognormal
AXES = {"mu": np.linspace(8.0, 10.6, 320), "tau": np.linspace(0.1, 1.3, 280)}


def simulate(galaxies: int, seed: int) -> dict[str, np.ndarray]:
    """All galaxies: true, measured, and the error that was stated for each."""
    rng = np.random.default_rng(seed)
    true = rng.normal(TRUE["mu"], TRUE["tau"], size=galaxies)
    error = rng.uniform(0.1, 0.7, size=galaxies)
    return {"true": true, "error": error, "measured": true + error * rng.normal(size=galaxies)}


def on_a_grid(measured: np.ndarray, error: np.ndarray, selection: bool) -> np.ndarray:
    """The posterior of (mu, tau) in closed form, with or without the selection."""
    mu, tau = AXES["mu"][:, None], AXES["tau"][None, :]
    log_density = stats.norm.logpdf(mu, *MU_PRIOR) + stats.norm.logpdf(np.log(tau), *TAU_PRIOR)
    log_density = log_density - np.log(tau)
    for value, e in zip(measured, error, strict=True):
        width = np.sqrt(tau**2 + e**2)
        log_density += stats.norm.logpdf(value, mu, width)
        if selection:
            log_density -= special.log_ndtr((mu - LIMIT) / width)
    density = np.exp(log_density - log_density.max())
    return density / density.sum()


def marginal(density: np.ndarray, name: str) -> dict[str, float]:
    """Mean and central 90% of one parameter."""
    weights = density.sum(axis=1 if name == "mu" else 0)
    low, high = np.interp([0.05, 0.95], np.cumsum(weights) - weights / 2, AXES[name])
    return {"mean": float(weights @ AXES[name]), "low": float(low), "high": float(high)}


def highest(density: np.ndarray, share: float) -> float:
    """The level above which the density holds this share."""
    descending = np.sort(density, axis=None)[::-1]
    return float(descending[np.searchsorted(np.cumsum(descending), share)])


def picture(sky, seen, draws, grids):
    """What the catalogue holds; and the posterior beside the exact one and the two wrong ones."""
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(9.4, 4.3), width_ratios=(1, 1.15), layout="constrained"
        )
        left.axhspan(7, LIMIT, color=PALE, linewidth=0)
        span = [7.0, 12.1]
        left.plot(span, span, color=GREY, linewidth=0.9)
        for where, colour, label in (
            (~seen, GREY, f"{(~seen).sum()} galaxies below the limit"),
            (seen, BLUE, f"{seen.sum()} in the catalogue"),
        ):
            left.plot(
                sky["true"][where],
                sky["measured"][where],
                "o",
                color=colour,
                markersize=3,
                alpha=0.7,
                markeredgewidth=0,
                label=label,
            )
        left.set(xlim=span, ylim=span, aspect="equal")
        left.set_xlabel("true luminosity (dex)")
        left.set_ylabel("measured luminosity (dex)")
        left.legend(loc="lower right", markerscale=1.6, handletextpad=0.1)

        right.plot(draws["mu"], draws["tau"], "o", color=BLUE, markersize=2, alpha=0.3, mew=0)
        lines = {
            "exact": {"colors": INK, "linestyles": "-"},
            "selection ignored": {"colors": ORANGE, "linestyles": [NAIVE["linestyle"]]},
            "errors ignored": {"colors": GREEN, "linestyles": "--"},
        }
        for name, line in lines.items():
            levels = [highest(grids[name], share) for share in (0.9, 0.5)]
            right.contour(AXES["mu"], AXES["tau"], grids[name].T, levels, linewidths=1.6, **line)
        right.plot(*TRUE.values(), "*", color=INK, markersize=14, markeredgecolor="white")
        right.set(xlim=(8.5, 10.3), ylim=(0.1, 1.15))
        right.set_xlabel("mean of the population, mu (dex)")
        right.set_ylabel("spread of the population, tau (dex)")
        handles = [
            plt.Line2D([], [], color=BLUE, marker="o", markersize=4, linestyle=""),
            plt.Line2D([], [], color=INK),
            plt.Line2D([], [], **NAIVE),
            plt.Line2D([], [], color=GREEN, linestyle="--"),
            plt.Line2D([], [], color=INK, marker="*", markersize=10, linestyle=""),
        ]
        labels = ["Offcut", "exact, 50% and 90%", "selection ignored", "errors ignored", "truth"]
        right.legend(handles, labels, loc="upper right")
    return figure


def main(directory: Path, draws: int = 16_000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample, print and draw; truth, posterior, exact posterior, and the wrong ones."""
    sky = simulate(400, seed=1)
    seen = sky["measured"] > LIMIT
    measured, error = sky["measured"][seen], sky["error"][seen]
    model = offcut.truncated(
        prior={"mu": dist.Normal(*MU_PRIOR), "tau": dist.LogNormal(*TAU_PRIOR)},
        base=lambda theta, c: dist.Normal(theta["mu"], theta["tau"]),
        noise=lambda theta, true, c: dist.Normal(true, c["error"]),
        inside=lambda measured, c: measured > LIMIT,
    )
    posterior = offcut.sample(
        model,
        measured,
        covariates={"error": error},
        draws=draws,
        **{"method": "exchange"} | settings,
    )
    print(f"{len(measured)} galaxies in the catalogue.\n\n{offcut.summary(posterior)}")

    grids = {
        "exact": on_a_grid(measured, error, selection=True),
        "selection ignored": on_a_grid(measured, error, selection=False),
        "errors ignored": on_a_grid(measured, np.zeros_like(error), selection=True),
    }
    drawn = {name: posterior["posterior"][name].values.ravel() for name in TRUE}
    results = {}
    line = "{mean:8.3f} ({low:.3f} to {high:.3f})"
    for name, values in drawn.items():
        low, high = np.quantile(values, [0.05, 0.95])
        answers = {"Offcut": {"mean": values.mean(), "low": low, "high": high}}
        answers |= {which: marginal(grid, name) for which, grid in grids.items()}
        print(f"\n{name}, in truth {TRUE[name]} dex:")
        for which, answer in answers.items():
            print(f"  {which:18}" + line.format(**answer))
        results[name] = {"truth": TRUE[name], **answers.pop("Offcut")} | answers

    directory.mkdir(parents=True, exist_ok=True)
    few = {name: values[:: max(1, len(values) // 1500)] for name, values in drawn.items()}
    figure = picture(sky, seen, few, grids)
    figure.savefig(directory / "measurement_error.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
