"""Plain Metropolis beside augmentation: Xi'an's toy of 2014, measured again.

On 1 July 2014 Christian Robert tried the paper's algorithm on his blog ("recycling accept-reject
rejections (#2)"): n = 25 observations from Student's t with four degrees of freedom and unknown
location, proposals from a Cauchy distribution of scale sqrt(nu), a random walk. For 10,000
iterations in R the augmented sampler took 53.8 CPU-seconds, Metropolis on the known density 1.2.

    python docs/studies/student_t.py          # seven minutes on two busy cores
    python docs/studies/student_t.py --short  # what the documentation runs

Three questions, answered in one run:

1. ``location``: his toy. What does a draw, and what does an effective draw cost by each sampler?
2. ``location_and_nu``: the degrees of freedom unknown too, so that the envelope's constant depends
   on parameters, with more and more observations.
3. ``window``: t in d dimensions of which only a ball was recorded. Now no density is known, and
   Metropolis needs a d-dimensional integral in every step.

Effective draws are those of a parameter or of its square, whichever are fewer: a chain that jumps
from one side to the other knows the mean well and the spread not at all.

All times are CPU-seconds of this process, every thread counted. Compilation is not in them: every
sampler runs once before it is timed, and ``compile_seconds`` is how much longer that first run took
(little, where JAX's cache on disk has the program). Times of Offcut are those of a whole call of
``offcut.sample``, warm-up, certificate and all; plain Metropolis is given the best scale and starts
at the posterior mean, so it needs no warm-up.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from scipy import stats

import offcut

NU = 4.0
CHAINS = 4
PRIOR_SD = 10.0  # of the location; his prior was flat, ours must be proper
NU_RANGE = (1.2, 8.0)
#: What the blog reported, in CPU-seconds for 10,000 iterations.
REPORTED = {"plain": 1.156, "augmented": 53.751}


@dataclass
class Run:
    """One sampler on one data set; parameters by name."""

    name: str
    sweeps: int
    cpu_seconds: float
    compile_seconds: float
    mean: dict[str, float]
    error: dict[str, float]
    effective: dict[str, float]
    z: dict[str, float]
    passes: float = math.nan  # share of proposals accepted

    @property
    def effective_per_second(self) -> float:
        """Of the parameter that mixes worst."""
        return min(self.effective.values()) / self.cpu_seconds

    @property
    def seconds_for_10000(self) -> float:
        """CPU-seconds for 10,000 draws, as the blog counted them."""
        return 1e4 * self.cpu_seconds / self.sweeps


def run_of(
    name: str,
    draws: dict[str, np.ndarray],
    exact: dict[str, float],
    cpu_seconds: float,
    compile_seconds: float = 0.0,
    passes: float = math.nan,
) -> Run:
    """Summarise draws (chain, draw) by name; z is the error of the mean in standard errors."""
    data = xr.Dataset({k: (("chain", "draw"), np.asarray(v)) for k, v in draws.items()})
    of_mean = arviz_stats.ess(data, method="mean")
    of_square = arviz_stats.ess((data - data.mean()) ** 2, method="mean")
    effective = {k: min(float(of_mean[k]), float(of_square[k])) for k in draws}
    mean = {k: float(data[k].mean()) for k in draws}
    error = {k: float(data[k].std()) / math.sqrt(float(of_mean[k])) for k in draws}
    z = {k: (mean[k] - exact[k]) / error[k] for k in exact}
    sweeps = next(iter(draws.values())).size
    return Run(name, sweeps, cpu_seconds, compile_seconds, mean, error, effective, z, passes)


def timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """The value, CPU-seconds of a second call, and how much longer the first one took."""
    started = time.perf_counter()
    function()
    first = time.perf_counter() - started
    started, began = time.process_time(), time.perf_counter()
    value = function()
    spent = time.process_time() - started
    return value, spent, max(first - (time.perf_counter() - began), 0.0)


# ---------------------------------------------------------------------------------------------
# Plain Metropolis on a known log density, interpreted and compiled.


def plain_numpy(
    log_density: Callable, start: np.ndarray, scale: np.ndarray, draws: int
) -> np.ndarray:
    """(chain, draw, parameter); a Python loop, the density vectorised over the data by NumPy."""
    rng = np.random.default_rng(0)
    kept = np.empty((CHAINS, draws, len(start)))
    for chain in kept:
        here, level = start, log_density(start)
        for i in range(draws):
            there = here + scale @ rng.normal(size=len(start))
            new = log_density(there)
            if math.log(rng.uniform()) < new - level:
                here, level = there, new
            chain[i] = here
    return kept


def plain_jax(
    log_density: Callable, arrays: Any, start: np.ndarray, scale: np.ndarray, draws: int
) -> Callable:
    """The same compiled, for log_density(theta, arrays): a function that returns the draws."""

    @jax.jit
    def chain(key: jax.Array, arrays: Any) -> jax.Array:
        def step(state: tuple, key: jax.Array) -> tuple:
            here, level = state
            key_walk, key_accept = jax.random.split(key)
            there = here + scale @ jax.random.normal(key_walk, here.shape)
            new = log_density(there, arrays)
            moved = jnp.log(jax.random.uniform(key_accept)) < new - level
            here, level = jnp.where(moved, there, here), jnp.where(moved, new, level)
            return (here, level), here

        first = jnp.asarray(start)
        keys = jax.random.split(key, draws)
        return jax.lax.scan(step, (first, log_density(first, arrays)), keys)[1]

    def run() -> np.ndarray:
        with jax.enable_x64(True):
            held = jax.tree.map(jnp.asarray, arrays)
            return np.stack([np.asarray(chain(jax.random.key(i), held)) for i in range(CHAINS)])

    return run


# ---------------------------------------------------------------------------------------------
# Offcut.


def offcut_run(
    model: Any, x: np.ndarray, how: dict, exact: dict[str, float], draws: int, warmup: int = 1000
) -> Run:
    """Timed like the others; warm-up, certificate and diagnostics count as time, not as draws."""
    settings = {"chains": CHAINS, "progress": False, **how}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", offcut.errors.TrustWarning)  # the table has what they say
        posterior, spent, compiling = timed(
            lambda: offcut.sample(model, x, draws=draws, warmup=warmup, **settings)
        )
    kept = {}
    for name, values in posterior["posterior"].data_vars.items():
        flat = values.values.reshape(*values.shape[:2], -1)
        labels = [name] if values.ndim == 2 else [f"{name}[{j}]" for j in range(flat.shape[2])]
        kept |= {label: flat[..., j] for j, label in enumerate(labels)}
    rejected = float(posterior["sample_stats"]["rejected"].mean())
    passes = len(x) / (len(x) + rejected)
    route, kernel = posterior.attrs["method"], posterior.attrs["kernel_kind"]
    name = f"Offcut, {kernel if route == 'augment' else route}"
    return run_of(name, kept, exact, spent, compiling, passes)


# ---------------------------------------------------------------------------------------------
# 1. Location only.


def location_model() -> offcut.RejectionModel:
    """f/(M q) = (1 + z^2/nu)^(-(nu-1)/2) with a Cauchy envelope of scale sqrt(nu)."""
    scale = math.sqrt(NU)
    return offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, PRIOR_SD)},
        propose=lambda key, theta: theta["loc"] + scale * jax.random.cauchy(key),
        log_proposal=lambda theta, y: dist.Cauchy(theta["loc"], scale).log_prob(y),
        log_accept=lambda theta, y: -0.5 * (NU - 1) * jnp.log1p(((y - theta["loc"]) / scale) ** 2),
    )


def augmented_one_by_one(x: np.ndarray, start: float, scale: float, draws: int) -> np.ndarray:
    """Algorithm 2 as one would write it down: one proposal at a time, interpreted."""
    rng = np.random.default_rng(1)
    spread = math.sqrt(NU)

    def log_joint(loc: float, rejected: np.ndarray) -> float:
        of_data = -0.5 * (NU + 1) * np.log1p((x - loc) ** 2 / NU).sum()
        z2 = ((rejected - loc) / spread) ** 2
        of_rejected = (-np.log1p(z2) + np.log1p(-((1 + z2) ** (-0.5 * (NU - 1))))).sum()
        return of_data + of_rejected - 0.5 * (loc / PRIOR_SD) ** 2

    kept = np.empty((CHAINS, draws))
    for chain in kept:
        loc = start
        for i in range(draws):
            rejected = []
            for _ in x:
                while True:
                    y = loc + spread * rng.standard_cauchy()
                    if rng.uniform() < (1 + (y - loc) ** 2 / NU) ** (-0.5 * (NU - 1)):
                        break
                    rejected.append(y)
            offcuts, there = np.array(rejected), loc + scale * rng.normal()
            if math.log(rng.uniform()) < log_joint(there, offcuts) - log_joint(loc, offcuts):
                loc = there
            chain[i] = loc
    return kept


def location(n: int = 25, draws: int = 2500) -> list[Run]:
    """His toy. All walks have the same step, 2.4 posterior standard deviations."""
    x = np.random.default_rng(0).standard_t(NU, size=n)
    grid = np.linspace(-3, 3, 6001)
    log_p = -0.5 * (NU + 1) * np.log1p((x - grid[:, None]) ** 2 / NU).sum(1)
    weights = np.exp(log_p - 0.5 * (grid / PRIOR_SD) ** 2 - log_p.max())
    weights /= weights.sum()
    exact = {"loc": float(weights @ grid)}
    sd = math.sqrt(weights @ (grid - exact["loc"]) ** 2)
    start, scale = np.array([exact["loc"]]), np.array([[2.4 * sd]])

    def known(theta: Any, x: Any, xp: Any) -> Any:
        terms = xp.log1p((x - theta[0]) ** 2 / NU)
        return -0.5 * (NU + 1) * terms.sum() - 0.5 * (theta[0] / PRIOR_SD) ** 2

    kept, spent, _ = timed(lambda: plain_numpy(lambda t: known(t, x, np), start, scale, draws))
    runs = [run_of("Metropolis, NumPy", by_name(kept, exact), exact, spent)]
    kept, spent, compiling = timed(plain_jax(lambda t, x: known(t, x, jnp), x, start, scale, draws))
    runs.append(run_of("Metropolis, JAX", by_name(kept, exact), exact, spent, compiling))

    began = time.process_time()
    kept = augmented_one_by_one(x, exact["loc"], 2.4 * sd, draws)
    spent = time.process_time() - began
    runs.append(run_of("augmented, one by one", {"loc": kept}, exact, spent))
    model = location_model()
    for how in (
        {"kernel": offcut.RandomWalk(2.4 * sd)},
        {"kernel": offcut.HMC(num_steps=4)},
        {"kernel": offcut.NUTS()},
        {"method": "exchange"},
    ):
        runs.append(offcut_run(model, x, how, exact, draws))
    return runs


# ---------------------------------------------------------------------------------------------
# 2. Location and degrees of freedom: the bound depends on theta.


def student_model() -> offcut.RejectionModel:
    """A Cauchy envelope of scale 1; f/q is largest at z^2 = 1, whatever nu > 1."""

    def log_accept(theta: dict, y: jax.Array) -> jax.Array:
        def log_ratio(z2: Any) -> jax.Array:
            return jnp.log1p(z2) - 0.5 * (theta["nu"] + 1) * jnp.log1p(z2 / theta["nu"])

        return log_ratio((y - theta["loc"]) ** 2) - log_ratio(1.0)

    return offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, PRIOR_SD), "nu": dist.Uniform(*NU_RANGE)},
        propose=lambda key, theta: theta["loc"] + jax.random.cauchy(key),
        log_proposal=lambda theta, y: dist.Cauchy(theta["loc"], 1.0).log_prob(y),
        log_accept=log_accept,
    )


def location_and_nu(n: int = 100, draws: int = 2500) -> list[Run]:
    """Plain Metropolis has the posterior's own covariance for its steps."""
    x = np.random.default_rng(n).standard_t(NU, size=n)
    locs, nus = np.linspace(-1.5, 1.5, 301), np.linspace(*NU_RANGE, 201)
    table = stats.norm.logpdf(locs, 0, PRIOR_SD)[:, None] + np.zeros(len(nus))
    for value in x:
        table += stats.t.logpdf(value - locs[:, None], nus)
    weights = np.exp(table - table.max())
    weights[:, [0, -1]] /= 2  # the trapezoidal rule: nu ends where the prior does
    weights /= weights.sum()
    points = np.stack(np.meshgrid(locs, nus, indexing="ij"), -1)
    mean = np.einsum("ij,ijk->k", weights, points)
    covariance = np.einsum("ij,ijk,ijl->kl", weights, points - mean, points - mean)
    exact = {"loc": float(mean[0]), "nu": float(mean[1])}
    scale = np.linalg.cholesky(covariance) * 2.4 / math.sqrt(2)

    def numpy_density(theta: np.ndarray) -> float:
        loc, nu = theta
        if not NU_RANGE[0] < nu < NU_RANGE[1]:
            return -math.inf
        constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu)
        terms = np.log1p((x - loc) ** 2 / nu).sum()
        return n * constant - 0.5 * (nu + 1) * terms - 0.5 * (loc / PRIOR_SD) ** 2

    def jax_density(theta: jax.Array, x: jax.Array) -> jax.Array:
        loc, nu = theta
        inside = (nu > NU_RANGE[0]) & (nu < NU_RANGE[1])
        safe = jnp.where(inside, nu, NU)
        total = dist.StudentT(safe, loc, 1.0).log_prob(x).sum() - 0.5 * (loc / PRIOR_SD) ** 2
        return jnp.where(inside, total, -jnp.inf)

    kept, spent, _ = timed(lambda: plain_numpy(numpy_density, mean, scale, draws))
    runs = [run_of("Metropolis, NumPy", by_name(kept, exact), exact, spent)]
    kept, spent, compiling = timed(plain_jax(jax_density, x, mean, scale, draws))
    runs.append(run_of("Metropolis, JAX", by_name(kept, exact), exact, spent, compiling))
    model = student_model()
    for how in (
        {"kernel": offcut.RandomWalk()},
        {"kernel": offcut.HMC(num_steps=4)},
        {"kernel": offcut.NUTS()},
        {"method": "exchange"},
    ):
        runs.append(offcut_run(model, x, how, exact, draws))
    return runs


def by_name(kept: np.ndarray, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Draws (chain, draw, parameter) as a dict."""
    return {name: kept[..., j] for j, name in enumerate(names)}


# ---------------------------------------------------------------------------------------------
# 3. A window in d dimensions: the density is not known.

CENTRE, RADIUS, N_WINDOW, NODES = 0.5, 2.5, 200, 24


@dataclass
class Window:
    """What one dimension of the third question gave."""

    dimension: int
    nodes: int  # of the integral in every step of Metropolis
    offcut: Run
    plain: Run

    @property
    def difference(self) -> float:
        """Largest difference between the two runs' means, in standard errors."""
        ours, other = self.offcut, self.plain
        return max(
            abs(ours.mean[k] - other.mean[k]) / math.hypot(ours.error[k], other.error[k])
            for k in ours.mean
        )


def window_model(d: int) -> offcut.RejectionModel:
    """t with four degrees of freedom and unknown location; what lies in a ball is recorded."""
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0).expand([d]).to_event(1)},
        base=lambda theta: dist.MultivariateStudentT(NU, theta["loc"], jnp.eye(d)),
        inside=offcut.regions.Ball(np.full(d, CENTRE), RADIUS),
    )


def window(d: int, draws: int = 2500) -> Window:
    """Offcut, and Metropolis with Z by the tensor product of ``NODES`` midpoints a side."""
    rng = np.random.default_rng(d)
    size = 20 * N_WINDOW
    every = rng.normal(size=(size, d)) / np.sqrt(rng.chisquare(NU, (size, 1)) / NU)
    x = every[((every - CENTRE) ** 2).sum(1) < RADIUS**2][:N_WINDOW]
    ours = offcut_run(window_model(d), x, {"kernel": offcut.HMC(num_steps=4)}, {}, draws)

    side = CENTRE + RADIUS * (2 * (np.arange(NODES) + 0.5) / NODES - 1)
    nodes = np.stack(np.meshgrid(*[side] * d, indexing="ij"), -1).reshape(-1, d)
    nodes = nodes[((nodes - CENTRE) ** 2).sum(1) < RADIUS**2]

    def log_density(theta: jax.Array, arrays: tuple) -> jax.Array:
        def log_t(points: jax.Array) -> jax.Array:
            return -0.5 * (NU + d) * jnp.log1p(((points - theta) ** 2).sum(-1) / NU)

        x, nodes = arrays
        log_mass = jax.scipy.special.logsumexp(log_t(nodes))
        return log_t(x).sum() - len(x) * log_mass - 0.5 * (theta**2).sum()

    start = np.array(list(ours.mean.values()))
    spread = [ours.error[k] * math.sqrt(ours.effective[k]) for k in ours.mean]
    scale = np.diag(spread) * 2.4 / math.sqrt(d)
    steps = draws if len(nodes) < 50_000 else draws // 5  # effective draws per second is the same
    kept, spent, compiling = timed(plain_jax(log_density, (x, nodes), start, scale, steps))
    plain = run_of("Metropolis, quadrature", by_name(kept, ours.mean), {}, spent, compiling)
    return Window(d, len(nodes), ours, plain)


# ---------------------------------------------------------------------------------------------


def table(runs: list[Run]) -> str:
    """One line for each sampler."""
    lines = [
        f"{'':22}{'passes':>7}{'CPU-s for':>11}{'effective':>11}{'effective':>11}{'error':>7}"
        f"{'compiled':>10}",
        f"{'':22}{'':>7}{'10,000':>11}{'of 10,000':>11}{'per CPU-s':>11}{'z':>7}{'in s':>10}",
    ]
    for run in runs:
        worst = min(run.effective.values()) * 10_000 / run.sweeps
        z = max(run.z.values(), key=abs)
        passes = "" if math.isnan(run.passes) else f"{run.passes:.0%}"
        lines.append(
            f"{run.name:22}{passes:>7}{run.seconds_for_10000:11.3f}{worst:11,.0f}"
            f"{run.effective_per_second:11,.0f}{z:7.1f}{run.compile_seconds:10.1f}"
        )
    return "\n".join(lines)


def window_table(results: list[Window]) -> str:
    """One line for each dimension."""
    lines = [
        f"{'':3}{'':>8}{'Offcut: CPU-s':>15}{'effective':>11}{'Metropolis:':>13}{'CPU-s for':>11}"
        f"{'effective':>11}{'means':>7}",
        f"{'d':3}{'passes':>8}{'for 10,000':>15}{'per CPU-s':>11}{'nodes':>13}{'10,000':>11}"
        f"{'per CPU-s':>11}{'differ':>7}",
    ]
    for result in results:
        ours, plain = result.offcut, result.plain
        lines.append(
            f"{result.dimension:<3}{ours.passes:8.0%}{ours.seconds_for_10000:15.2f}"
            f"{ours.effective_per_second:11,.0f}{result.nodes:13,}{plain.seconds_for_10000:11.1f}"
            f"{plain.effective_per_second:11,.1f}{result.difference:7.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    print("Location only, n = 25\n")
    print(table(location()))
    for n in (100,) if short else (25, 100, 400, 1600):
        print(f"\nLocation and degrees of freedom, n = {n}\n")
        print(table(location_and_nu(n)))
    print(f"\nt in a ball of d dimensions, n = {N_WINDOW}\n")
    print(window_table([window(d) for d in ((2, 4) if short else (2, 3, 4, 5))]))


if __name__ == "__main__":
    main()
