"""Truncation against what people use today, and where they have nothing.

1. A doubly truncated normal, mean and variance unknown: time to 1,000 effective draws, against
   NumPyro's TruncatedNormal sampled by NumPyro's NUTS with the same prior.
2. A normal in ten dimensions seen in a box, mean and covariance unknown.
"""

from __future__ import annotations

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import offcut
from benchmarks.cases import in_numpyro
from offcut.numerics.ess import effective_size
from offcut.regions import Box

WANTED = 1000
CHAINS = 2
WARMUP = 1000
LOC, VARIANCE = dist.Normal(0.5, 1.0), dist.InverseGamma(3.0, 0.5)


def doubly_truncated(n: int) -> np.ndarray:
    """Normal(0.6, 0.4) seen between 0 and 1."""
    z = np.random.default_rng(1).normal(0.6, 0.4, 2 * n + 200)
    return z[(z > 0) & (z < 1)][:n]


def our_model():
    return offcut.truncated(
        prior={"loc": LOC, "variance": VARIANCE},
        base=lambda theta: dist.Normal(theta["loc"], jnp.sqrt(theta["variance"])),
        inside=Box(0, 1),
    )


def numpyro_run(x: np.ndarray, draws: int) -> tuple[float, float, dict]:
    """Seconds for warm-up and for draws (compiled before), and the draws."""

    def model(recorded: jax.Array) -> None:
        loc = numpyro.sample("loc", LOC)
        variance = numpyro.sample("variance", VARIANCE)
        passed = dist.TruncatedNormal(loc, jnp.sqrt(variance), low=0.0, high=1.0)
        numpyro.sample("x", passed, obs=recorded)

    run = in_numpyro(model, CHAINS, WARMUP, draws)
    run(0, x)
    started = time.perf_counter()
    chains = run(1, x)  # the same program again: nothing is compiled
    total = time.perf_counter() - started
    warm = total * WARMUP / (WARMUP + draws)  # warm-up by itself would be compiled anew
    return warm, total - warm, {name: np.stack([c[name] for c in chains]) for name in chains[0]}


def our_run(model, how: dict, x: np.ndarray, draws: int) -> tuple[float, float, dict]:
    def run(draws: int):
        return offcut.sample(
            model, x, **how, draws=draws, warmup=WARMUP, chains=CHAINS, progress=False
        )

    run(10)
    started = time.perf_counter()
    run(10)
    warm = time.perf_counter() - started
    started = time.perf_counter()
    posterior = run(draws)
    seconds = time.perf_counter() - started - warm
    return warm, seconds, {k: v.values for k, v in posterior["posterior"].data_vars.items()}


def against_numpyro() -> None:
    print("\nTime to 1,000 effective draws (the worse of loc and variance), normal seen in (0, 1),")
    print("two chains on one core, 1,000 warm-up sweeps each, compilation left out; NumPyro's NUTS")
    print("on its TruncatedNormal has the same prior.\n")
    print("      n  sampler       warm-up   draws   seconds    ESS    time to 1,000   mean of loc")
    for n in (100, 10_000):
        x = doubly_truncated(n)
        model = our_model()
        plan = {
            "NumPyro NUTS": (None, 4000),
            "direct": ({"method": "direct"}, 4000),
            "Conjugate": ({"kernel": offcut.Conjugate()}, 20_000 if n < 1000 else 4000),
            "NUTS": ({"kernel": offcut.NUTS()}, 8000 if n < 1000 else 2000),
            "exchange": ({"method": "exchange"}, 20_000 if n < 1000 else 4000),
        }
        for name, (how, draws) in plan.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = numpyro_run(x, draws) if how is None else our_run(model, how, x, draws)
            warm, seconds, drawn = result
            ess = min(effective_size(np.asarray(v)) for v in drawn.values())
            needed = warm + WANTED * seconds / ess
            print(
                f"{n:7,}  {name:12} {warm:7.2f} s {CHAINS * draws:7,} {seconds:7.2f} s {ess:7,.0f} "
                f"{needed:12.2f} s {np.asarray(drawn['loc']).mean():15.4f}",
                flush=True,
            )


def ten_dimensions() -> None:
    """Nobody else has an exact sampler for this: the mass of a box in ten dimensions."""
    d, n = 10, 2000
    rng = np.random.default_rng(3)
    root = np.tril(rng.normal(scale=0.25, size=(d, d)), -1) + np.eye(d)
    covariance, mean = root @ root.T, rng.normal(scale=0.3, size=d)
    z = rng.multivariate_normal(mean, covariance, size=20 * n)
    lower, upper = np.full(d, -1.6), np.full(d, 2.0)
    x = z[((z > lower) & (z < upper)).all(axis=1)][:n]

    def prior() -> None:
        spread = numpyro.sample("covariance", dist.InverseWishart(d + 2.0, scale_matrix=np.eye(d)))
        numpyro.sample("mean", dist.MultivariateNormal(np.zeros(d), covariance_matrix=spread * 4))

    model = offcut.truncated(
        prior=prior,
        base=lambda theta: dist.MultivariateNormal(
            theta["mean"], covariance_matrix=theta["covariance"]
        ),
        inside=Box(lower, upper),
    )
    print(f"\nA normal in {d} dimensions seen in a box, mean and covariance unknown, n = {n:,},")
    print(f"two chains on two cores, kernel chosen by itself: {offcut.kernel_for(model)}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        offcut.sample(model, x, draws=5, warmup=5, chains=2, progress=False)
        started = time.perf_counter()
        posterior = offcut.sample(model, x, draws=4000, warmup=500, chains=2, progress=False)
        seconds = time.perf_counter() - started
    draws = posterior["posterior"]
    lower_half = np.tril_indices(d)
    columns = np.concatenate(
        [draws["mean"].values, draws["covariance"].values[:, :, *lower_half]], axis=-1
    )
    truth = np.concatenate([mean, covariance[lower_half]])
    naive = np.concatenate([x.mean(axis=0), np.cov(x.T)[lower_half]])
    ess = [effective_size(columns[..., i]) for i in range(columns.shape[-1])]
    centre, spread = columns.mean(axis=(0, 1)), columns.std(axis=(0, 1))
    low, high = np.quantile(columns, [0.05, 0.95], axis=(0, 1))
    rejected = posterior["sample_stats"]["rejected"].values
    print(f"  {2 * 4500:,} sweeps in {seconds:.1f} s, |Y| {rejected.mean():,.0f} beside {n:,}")
    print(f"  ESS of 65 parameters: least {min(ess):,.0f}, median {np.median(ess):,.0f}")
    print(f"  90% intervals that hold the truth: {np.mean((low < truth) & (truth < high)):.0%}")
    print(f"  mean |z| of the truth: ours {np.mean(np.abs(centre - truth) / spread):.2f}, ", end="")
    print(f"moments of the recorded data {np.mean(np.abs(naive - truth) / spread):.1f}")
