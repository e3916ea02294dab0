"""``make bench``: ratios measured in one run, since machines are noisy.

1. Time for a sweep of the engine against a Numba loop of the same algorithm.
2. How it grows from n = 100 to a million, and memory.
3. Effective draws per second of the five kernels on one truncated problem.
4. Time to 1,000 effective draws against NumPyro's TruncatedNormal; a box in ten dimensions.
5. A sweep of the truncated mixture against plain NumPy, at 7,000 and a million events.
6. Draws of frames against NumPy; samplers of concentrations against Numba and NumPy.
7. Gaussian process densities: time for a sweep, effective draws per second of all samplers.
8. The first answer: import, first and second call, what they compile, with a cache and without, in
   fresh processes, against NumPyro and the targets.
9. What XLA made of a block of sweeps: instructions of each loop, and leaves that it carries.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SECTIONS = (
    *("numba", "growth", "kernels", "truncation", "mixtures", "langevin", "densities"),
    *("answer", "programs"),
)


def timed(function, repeats: int) -> float:
    """The best of a few repeats: the one that the rest of the machine disturbed least."""
    best = np.inf
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - started)
    return best


def against_numba() -> None:
    from benchmarks import engine, numba_loop

    print("Time for a sweep, HMC with 5 leapfrog steps, acceptance about 0.5, one core")
    print("(both at the best of 7 alternating repeats; ratio = ours / Numba)\n")
    print("       n   |Y| (both)       Numba strict   Numba fastmath         ours    ratios")
    strict, fast = numba_loop.make(False), numba_loop.make(True)
    for n, sweeps in ((100, 4000), (1000, 1000), (10_000, 100), (100_000, 12)):
        x = engine.half_normal_data(n)
        step = engine.step_size(n)
        ours = engine.Engine(x, block=min(sweeps, 512))
        rngs = [np.random.default_rng(1), np.random.default_rng(1)]
        strict(rngs[0], x, 2, step, engine.LEAPFROGS)
        fast(rngs[1], x, 2, step, engine.LEAPFROGS)
        best = np.full(3, np.inf)
        seen = [0.0, 0.0]
        for _ in range(7):
            seconds, stats = ours.run(sweeps)
            best[2] = min(best[2], seconds)
            seen[1] = stats["rejected"].mean()
            for index, loop in enumerate((strict, fast)):
                started = time.perf_counter()
                seen[0], _ = loop(rngs[index], x, sweeps, step, engine.LEAPFROGS)
                best[index] = min(best[index], (time.perf_counter() - started) / sweeps)
        micro = best * 1e6
        print(
            f"{n:8,} {seen[0]:8,.0f} {seen[1]:8,.0f}  {micro[0]:10,.1f} us {micro[1]:13,.1f} us "
            f"{micro[2]:10,.1f} us    {micro[2] / micro[0]:.1f}x  {micro[2] / micro[1]:.1f}x"
        )


def where_it_goes() -> None:
    """Parts of one sweep at n = 1,000, each timed in a loop of its own."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    from benchmarks import engine
    from offcut.numerics import keys
    from offcut.numerics.arrays import exclusive_count, materialised

    with jax.enable_x64(True):
        n = 1000
        ours = engine.Engine(engine.half_normal_data(n))
        sampler, state, data = ours.sampler, ours.state, ours.data
        layout, model = sampler.layout, sampler.model
        theta = model.prior.constrain(state.position, {})
        key = keys.from_seed(3)
        blocks = int(np.ceil(2 * n / layout.block))

        def repeat(body, start, times):
            program = jax.jit(lambda s: lax.fori_loop(0, times, body, s))
            jax.block_until_ready(program(start))
            return timed(lambda: jax.block_until_ready(program(start)), 7) / times * 1e6

        def normals(i, total):
            y = materialised(
                i, lambda: jax.random.normal(jax.random.fold_in(key, i), (layout.block,))
            )
            return total + y

        def walk(i, total):
            flags = (total + i) % 2 == 0
            return exclusive_count(flags).astype(float) + total

        def density(i, position):
            def log_density(u):
                t = model.prior.constrain(u, {})
                return model.prior.log_density(u, {}) + sampler._log_joint(t, data, state.rejected)

            return position + 1e-12 * jax.grad(log_density)(position)

        def algorithm_1(i, rejected):
            spare = rejected._replace(count=jnp.int32(0))
            run = sampler.run_sampler(
                jax.random.fold_in(key, i), theta, data, spare, jnp.int32(10**6)
            )
            return run.rejected

        zeros = jnp.zeros(layout.block)
        drawn = repeat(normals, zeros, 2000) * blocks
        counted = repeat(walk, zeros, 2000) * blocks
        whole = repeat(algorithm_1, state.rejected, 500)
        gradient = repeat(density, state.position, 1000)
    print(f"\nWhere a sweep of {n:,} observations goes (microseconds):")
    print(f"  normals for {blocks} blocks of {layout.block} proposals   {drawn:7.1f}")
    print(f"  finding each one's place (prefix counts)      {counted:7.1f}")
    print(f"  the whole of Algorithm 1                      {whole:7.1f}")
    print(f"  six gradients of the joint density            {6 * gradient:7.1f}")


def growth() -> None:
    print("\nGrowth with n (each n in a process of its own, one core):\n")
    print("        n     time for a sweep     ns for an observation     memory above the start")
    for exponent in range(2, 7):
        subprocess.run(
            [sys.executable, "-m", "benchmarks", "--grow", str(10**exponent)], check=True
        )


def peak_memory() -> int:
    """Largest resident size of this process so far, in kB (ru_maxrss is inherited)."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def grow_one(n: int) -> None:
    from benchmarks import engine

    small = engine.Engine(engine.half_normal_data(100))
    small.run(10)
    before = peak_memory()
    ours = engine.Engine(engine.half_normal_data(n), block=64)
    sweeps = int(np.clip(2e6 / n, 3, 5000))
    seconds = min(ours.run(sweeps)[0] for _ in range(3))
    middle = peak_memory()
    ours.run(2 * sweeps)
    after = peak_memory()
    print(
        f"{n:9,} {seconds * 1e6:15,.0f} us {seconds / n * 1e9:18,.0f} "
        f"{(middle - before) / 1024:20,.0f} MB ({(after - middle) / 1024:+.0f} MB twice as long)",
        flush=True,
    )


def kernels() -> None:
    import warnings

    import offcut
    from benchmarks import engine
    from offcut.numerics.ess import effective_size

    print(
        "\nEffective draws per second, normal seen above zero, n = 100, four chains, two cores:\n"
    )
    print("sampler           draws   seconds     ESS loc   ESS scale   ESS of |Y|   ESS loc/s")
    x = engine.half_normal_data(100)
    model = engine.model()
    table = {
        "NUTS": ({"kernel": offcut.NUTS()}, 8000),
        "HMC": ({"kernel": offcut.HMC(num_steps=5)}, 8000),
        "RandomWalk": ({"kernel": offcut.RandomWalk()}, 8000),
        "exchange": ({"method": "exchange"}, 8000),
        "pseudo_marginal": ({"method": "pseudo_marginal"}, 2000),
    }
    for name, (how, draws) in table.items():
        settings = {"warmup": 500, "chains": 4, "progress": False, **how}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            offcut.sample(model, x, draws=20, **settings)
            started = time.perf_counter()
            offcut.sample(model, x, draws=20, **settings)
            warm = time.perf_counter() - started
            started = time.perf_counter()
            posterior = offcut.sample(model, x, draws=draws, **settings)
            seconds = time.perf_counter() - started - warm
        sizes = [effective_size(posterior["posterior"][v].values) for v in ("loc", "scale")]
        sizes.append(effective_size(posterior["sample_stats"]["rejected"].values.astype(float)))
        print(
            f"{name:15} {4 * draws:7,} {seconds:9.2f} {sizes[0]:11,.0f} {sizes[1]:11,.0f} "
            f"{sizes[2]:12,.0f} {sizes[0] / seconds:11,.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--mixture", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--langevin", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--densities", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=SECTIONS)
    parser.add_argument("--pictures", type=Path, help="a folder for the curves of section 6")
    parser.add_argument("--cases", nargs="+", help="some rows of section 8; all by default")
    parser.add_argument("--repeats", type=int, default=2, help="of section 8")
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    if options.grow:
        os.sched_setaffinity(0, {min(cores)})
        grow_one(options.grow)
        return
    if options.mixture:
        from benchmarks import mixtures

        os.sched_setaffinity(0, {min(cores)})
        mixtures.child(options.mixture[0], Path(options.mixture[1]))
        return
    if options.langevin:
        from benchmarks import langevin

        os.sched_setaffinity(0, {min(cores)})
        langevin.langevin(options.pictures)
        return
    if options.densities:
        from benchmarks import densities

        os.sched_setaffinity(0, {min(cores)})
        densities.child()
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, {len(cores)} cores\n")
    if options.only in (None, "numba"):
        os.sched_setaffinity(0, {min(cores)})
        against_numba()
        where_it_goes()
        os.sched_setaffinity(0, cores)
    if options.only in (None, "growth"):
        growth()
    if options.only in (None, "kernels"):
        kernels()
    if options.only in (None, "truncation"):
        from benchmarks import truncation

        os.sched_setaffinity(0, {min(cores)})
        truncation.against_numpyro()
        os.sched_setaffinity(0, cores)
        truncation.ten_dimensions()
    if options.only in (None, "mixtures"):
        from benchmarks import mixtures

        mixtures.main()
    if options.only in (None, "langevin"):
        from benchmarks import langevin

        langevin.main(options.pictures)
    if options.only in (None, "densities"):
        from benchmarks import densities

        densities.main()
    if options.only in (None, "answer"):
        from benchmarks import answer

        answer.table(options.cases, options.repeats)
    if options.only in (None, "programs"):
        from benchmarks import programs

        programs.main()


if __name__ == "__main__":
    main()
