"""How long from exposure to disease? A registry that knows only those who fell ill in time.

Patients were exposed on a known day (a transfusion, a needle, a holiday), some of them fell ill,
and the study closed within a year. The registry holds a patient if the disease showed before the
study closed: of somebody exposed three months before the end it can tell only that the incubation
was shorter than three months. The others are not in the registry as "still healthy"; nobody knows
that they were exposed at all. That is right truncation, with a limit for each patient. (Had all
the exposed been followed, the healthy would be censored: see censored.py.)

The trap: the incubation times in the registry are short because long ones had no time to happen.
Their mean is an underestimate, and more so in a growing epidemic, where most exposures are
recent.

The answer: the same lognormal for everybody (Sartwell's model of 1950 for incubation periods),
seen only below each patient's follow-up. What lies beyond the longest follow-up is extrapolation:
the data say nothing about it, the shape of the lognormal and the prior on its spread say it all.
Of the spread one knows something: Sartwell's dispersion factor, the exponential of the
lognormal's sigma, is rarely above 2. Whether the shape is right the registry cannot tell; with
data of your own, try another (``dist.Weibull``, ``dist.Gamma``) and see what changes.

In one dimension the share that is recorded is known, a normal distribution function, so the exact
posterior can be computed on a grid. We do both.

Run it with  python docs/examples/time_to_infection.py  and look at results/time_to_infection.png.
"""

import sys
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import special, stats

import offcut
from offcut.plots import BLUE, INK, NAIVE, PALE, STYLE, TRUTH

MEDIAN, DISPERSION = 7.0, 1.6  # months; a factor
LOG_MEDIAN_PRIOR = (np.log(6), 0.7)  # from 2 to 19 months
VARIANCE_PRIOR = (6.0, 1.2)  # dispersion factors from 1.4 to 2.0


def simulate(exposed: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Incubation times in months, and from each exposure to the end of the study: 2 to 12."""
    rng = np.random.default_rng(seed)
    follow_up = rng.uniform(2, 12, size=exposed)
    incubation = MEDIAN * np.exp(np.log(DISPERSION) * rng.normal(size=exposed))
    ill = incubation < follow_up
    return incubation[ill], follow_up[ill]


def prior() -> None:
    """Of the lognormal's mu and sigma^2, and what they mean."""
    log_median = numpyro.sample("log_median", dist.Normal(*LOG_MEDIAN_PRIOR))
    variance = numpyro.sample("variance", dist.InverseGamma(*VARIANCE_PRIOR))
    numpyro.deterministic("median", jnp.exp(log_median))
    numpyro.deterministic("dispersion", jnp.exp(jnp.sqrt(variance)))


def exact_posterior(time: np.ndarray, follow_up: np.ndarray) -> tuple[np.ndarray, ...]:
    """Medians, dispersion factors and their joint density, with the normalising constants known."""
    medians, dispersions = np.linspace(3, 25, 400), np.linspace(1.2, 2.6, 300)
    mu, sigma = np.log(medians)[:, None], np.log(dispersions)[None, :]
    log_density = stats.norm.logpdf(mu, *LOG_MEDIAN_PRIOR) - mu  # per median, not per log
    log_density = log_density + stats.invgamma.logpdf(
        sigma**2, VARIANCE_PRIOR[0], scale=VARIANCE_PRIOR[1]
    )
    log_density = log_density + np.log(2 * sigma) - sigma  # per factor, not per variance
    for x, limit in zip(np.log(time), np.log(follow_up), strict=True):
        log_density += stats.norm.logpdf(x, mu, sigma) - special.log_ndtr((limit - mu) / sigma)
    density = np.exp(log_density - log_density.max())
    return medians, dispersions, density / density.sum()


def quantile(values: np.ndarray, weights: np.ndarray, at: list[float]) -> np.ndarray:
    """Of a distribution on an even grid."""
    return np.interp(at, np.cumsum(weights) - weights / 2, values)


def picture(time, follow_up, recorded, draws, naive, exact):
    """The registry; the incubation time before truncation; the median against quadrature."""
    with plt.rc_context(STYLE):
        figure, (registry, density, median) = plt.subplots(
            1, 3, figsize=(10.2, 3.5), width_ratios=(1, 1.15, 1), layout="constrained"
        )
        registry.fill_between([0, 12.5], [0, 12.5], 12.5, color=PALE, linewidth=0)
        registry.plot(follow_up, time, "o", color=BLUE, markersize=3, alpha=0.7, markeredgewidth=0)
        registry.annotate("ill after the end:\nnot in the registry", (1.0, 10.1), color=INK)
        registry.set(xlim=(0, 12.5), ylim=(0, 12.5), xticks=range(0, 13, 3), yticks=range(0, 13, 3))
        registry.set_xlabel("exposure to end of study (months)")
        registry.set_ylabel("exposure to disease (months)")
        registry.set_title(f"{len(time)} patients in the registry")

        month = np.linspace(0.05, 24, 400)
        curves = stats.lognorm.pdf(
            month, np.log(draws["dispersion"])[:, None], scale=draws["median"][:, None]
        )
        low, high = np.quantile(curves, [0.05, 0.95], axis=0)
        band = density.fill_between(month, low, high, color=BLUE, alpha=0.35, linewidth=0)
        (mean,) = density.plot(month, curves.mean(axis=0), color=BLUE, linewidth=1.8)
        (truth,) = density.plot(
            month, stats.lognorm.pdf(month, np.log(DISPERSION), scale=MEDIAN), **TRUTH
        )
        (wrong,) = density.plot(
            month,
            stats.lognorm.pdf(month, np.log(naive["dispersion"]), scale=naive["median"]),
            **NAIVE,
        )
        counts, edges = np.histogram(time, bins=np.arange(0, 13, 0.75))
        bars = density.stairs(
            counts * recorded / (len(time) * 0.75), edges, fill=True, color="#A9C6DD", zorder=0
        )
        density.set(xlim=(0, 24), ylim=(0, None), xticks=range(0, 25, 6))
        density.set_xlabel("incubation time (months)")
        density.set_ylabel("density (per month)")
        density.set_title("all who were exposed, had one waited")

        medians, _, weights = exact
        marginal = weights.sum(axis=1) / (medians[1] - medians[0])
        median.hist(draws["median"], bins=40, density=True, color=BLUE, alpha=0.35, linewidth=0)
        median.plot(medians, marginal, color=BLUE, linewidth=1.8)
        median.axvline(MEDIAN, **TRUTH)
        median.axvline(naive["median"], **NAIVE)
        median.set(xlim=(4.5, np.quantile(draws["median"], 0.999)), yticks=[])
        median.spines["left"].set_visible(False)
        median.set_xlabel("median incubation time (months)")
        median.set_title("histogram: draws; line: exact")
        figure.legend(
            [bars, (band, mean), truth, wrong],
            [f"registry: {recorded:.0%} of them", "all, 90% band", "truth", "truncation ignored"],
            loc="outside upper left",
            ncols=4,
        )
    return figure


def main(directory: Path, draws: int = 4000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample, print and draw; truth, naive value, posterior and exact posterior."""
    time, follow_up = simulate(600, seed=1)
    model = offcut.truncated(
        prior,
        base=lambda theta, c: dist.LogNormal(theta["log_median"], jnp.sqrt(theta["variance"])),
        inside=lambda time, c: time < c["follow_up"],
    )
    covariates = {"follow_up": follow_up}
    print(f"{len(time)} patients. Kernel: {offcut.kernel_for(model, covariates=covariates)}.\n")
    posterior = offcut.sample(model, time, covariates=covariates, draws=draws, **settings)
    print(offcut.summary(posterior))

    medians, dispersions, weights = exact = exact_posterior(time, follow_up)
    logs = np.log(time)
    truth = {"median": MEDIAN, "dispersion": DISPERSION}
    naive = {"median": np.exp(logs.mean()), "dispersion": np.exp(logs.std(ddof=1))}
    grids = {"median": (medians, weights.sum(1)), "dispersion": (dispersions, weights.sum(0))}
    drawn = {name: posterior["posterior"][name].values.ravel() for name in truth}
    results = {}
    print(f"\n{'':12}{'truth':>8}{'naive':>8}   posterior mean and 90%     exact (quadrature)")
    for name, values in drawn.items():
        low, high = np.quantile(values, [0.05, 0.95])
        grid, weight = grids[name]
        exact_low, exact_high = quantile(grid, weight, [0.05, 0.95])
        results[name] = {
            "truth": truth[name],
            "naive": float(naive[name]),
            "mean": float(values.mean()),
            "low": float(low),
            "high": float(high),
            "exact": float(grid @ weight),
            "exact_low": float(exact_low),
            "exact_high": float(exact_high),
        }
        line = (
            "{truth:8.2f}{naive:8.2f}   {mean:.2f} ({low:.2f} to {high:.2f})"
            "       {exact:.2f} ({exact_low:.2f} to {exact_high:.2f})"
        )
        print(f"{name:12}" + line.format(**results[name]))

    directory.mkdir(parents=True, exist_ok=True)
    recorded = float(posterior["sample_stats"]["proposal_acceptance_rate"].mean())
    few = {name: values[:: max(1, len(values) // 4000)] for name, values in drawn.items()}
    figure = picture(time, follow_up, recorded, few, naive, exact)
    figure.savefig(directory / "time_to_infection.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
