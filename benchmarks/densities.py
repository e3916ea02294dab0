"""Gaussian process densities: time for a sweep, and effective draws per second.

1. Time for a sweep at n = 150, 10³, 10⁴, 10⁵, for the exact process and for the basis, length-scale
   and variance fixed; a NumPy/Numba reference took 19 ms (exact, 150) and 0.56, 2.0, 11.8, 200 ms.
2. Effective draws per CPU-second of the log density at five places and of log Z, on the shimmer of
   147 recordings (Parkinsons): the paper's sweep, with moves that sum Y out, with local updates of
   Y (Adams et al. 2009), and without rejections.

All on one core, in a process of its own, compiled before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

REFERENCE = {150: 0.56, 1000: 2.0, 10_000: 11.8, 100_000: 200.0}
REFERENCE_EXACT = 19.0
ROUNDS = 5


def paper_base() -> Any:
    """The prior of the paper's section 6, normal-inverse-gamma (0, .1, 1, 10)."""
    import offcut

    return offcut.NormalInverseWishart([0.0], 0.1, 2.0, [[20.0]])


def shimmer() -> np.ndarray:
    """The disease group, scaled to 0...5 as in the paper."""
    import offcut

    voices = offcut.datasets.parkinsons()
    x = voices["MDVP:Shimmer"]
    x = 5 * (x - x.min()) / (x.max() - x.min())
    return x[voices.status == 1]


def data_of(n: int) -> np.ndarray:
    """A smooth skewed density between 0 and about 5, like that of the shimmer."""
    return np.random.default_rng(n).gamma(2.5, 0.55, size=n)


class Chain:
    """A chain of a model, through the very program that the driver runs."""

    def __init__(self, model: Any, x: np.ndarray, block: int) -> None:
        import jax

        from offcut.driver.chain import CompiledBlock
        from offcut.numerics import keys
        from offcut.samplers.choice import prepare

        self.jax, self.block, self.done = jax, block, 0
        with jax.enable_x64(True):
            self.sampler, self.data, _ = prepare(model, x)
            self.key = keys.from_seed(1)
            state = self.sampler.start(self.key, self.data, 10**7)
            room = 2 ** int(np.ceil(np.log2(max(6 * len(x), 2**12))))
            if model.basis is None:
                room = 1500
            self.state = self.sampler.resized(state, room)
        self.program = CompiledBlock(self.sampler, block)

    def run(self, count: int) -> tuple[float, float]:
        """Seconds for a sweep, and the mean of |Y|."""
        from threadpoolctl import threadpool_limits

        jnp = self.jax.numpy
        with self.jax.enable_x64(True), threadpool_limits(1, user_api="blas"):
            started = time.perf_counter()
            budget = 1400 if self.sampler.redraws is False else 10**7
            result = self.program(
                self.key, self.state, jnp.int32(self.done), jnp.int32(count), jnp.int32(budget),
                jnp.array(True), jnp.array(False), jnp.zeros((self.block, 3), bool), self.data,
            )  # fmt: skip
            self.jax.block_until_ready(result.draws)
            seconds = time.perf_counter() - started
            assert int(result.done) == count
            self.state, self.done = result.state, self.done + count
            return seconds / count, float(np.mean(np.asarray(result.stats["rejected"])[:count]))


def sweeps() -> None:
    import offcut

    print("Time for a sweep, length-scale and variance 1, milliseconds (best of 5 rounds)\n")
    print("       n     |Y|   the paper's sweep   with joint moves   reference   exact   reference")
    settings = {"base": paper_base(), "length_scale": 1.0, "variance": 1.0}
    for n in REFERENCE:
        x = shimmer() if n == 150 else data_of(n)
        count = int(np.clip(20_000 // n, 3, 100))
        best, rejected = {}, 0.0
        for name, joint in (("plain", False), ("joint", True)):
            chain = Chain(offcut.GPDensity(**settings, joint_moves=joint), x, count)
            chain.run(min(count, 50))
            rounds = [chain.run(count) for _ in range(ROUNDS)]
            best[name] = 1e3 * min(seconds for seconds, _ in rounds)
            rejected = float(np.mean([y for _, y in rounds]))
        exact = ""
        if n == 150:
            chain = Chain(offcut.GPDensity(**settings, basis=None), x, 20)
            chain.run(20)
            seconds, held = zip(*(chain.run(20) for _ in range(ROUNDS)), strict=True)
            exact = f"{1e3 * min(seconds):7.1f} {REFERENCE_EXACT:9.1f}   (|Y| {np.mean(held):.0f})"
        print(
            f"{len(x):8,} {rejected:8,.0f} {best['plain']:15.2f} {best['joint']:18.2f} "
            f"{REFERENCE[n]:13.2f}   {exact}",
            flush=True,
        )


def effective() -> None:
    import offcut
    from benchmarks.birth_death import LocalDensity
    from offcut.numerics.ess import effective_size

    x = shimmer()
    fixed = {"base": paper_base(), "length_scale": 1.0, "variance": 1.0}
    plain = {**fixed, "joint_moves": False}
    table: list[tuple[str, dict, Any, int]] = [
        ("the paper's (fresh Y)", plain, None, 8000),
        ("local Y, 100 moves", {**plain, "moves": 100}, None, 8000),
        ("fresh Y, elliptical slice", plain, offcut.EllipticalSlice(), 8000),
        ("with joint moves (default)", fixed, None, 8000),
        ("collapsed", fixed, None, 8000),
        ("learned, with joint moves", {}, None, 4000),
        ("learned, collapsed", {}, None, 4000),
    ]  # fmt: skip
    print("\nEffective draws per CPU-second (and for each sweep), shimmer of 147 recordings\n")
    print("sampler                       ms a sweep  log density, least     log Z          |Y|")
    for name, settings, kernel, draws in table:
        model = (LocalDensity if "moves" in settings else offcut.GPDensity)(**settings)
        method = "collapsed" if name.endswith("collapsed") else "augment"
        run = {"chains": 2, "method": method, "kernel": kernel, "progress": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            offcut.sample(model, x, draws=20, warmup=500, **run)
            started = time.process_time()
            offcut.sample(model, x, draws=20, warmup=500, **run)
            before = time.process_time()
            posterior = offcut.sample(model, x, draws=draws, warmup=500, **run)
            seconds = (time.process_time() - before) - (before - started)
        stats = posterior["sample_stats"].dataset
        places = [effective_size(stats["log_density"].values[..., i]) for i in range(5)]
        sizes = [min(places), effective_size(stats["log_normaliser"].values)]
        if posterior.attrs["draws_rejections"]:
            sizes.append(effective_size(stats["rejected"].values.astype(float)))
        written = "".join(f"{size / seconds:8,.0f} ({size / (2 * draws):6.2%})" for size in sizes)
        print(f"{name:29} {1e3 * seconds / (2 * draws):10.2f} {written}", flush=True)


def child() -> None:
    """Both tables, in this process."""
    sweeps()
    effective()


def main() -> None:
    """Both tables, on one core."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "benchmarks", "--densities"], check=True, env=environment)
