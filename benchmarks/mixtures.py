"""The truncated Dirichlet process mixture: a sweep against plain NumPy, and where its time goes.

1. Time for a sweep on the GvHD control sample, K = 50, both priors, with splits and merges and
   without, against ``numpy_mixture`` in the same state.
2. The same at a million events, each in a process of its own, with its largest memory.
3. Parts of a sweep, each in a program of its own.
4. scikit-learn's variational mixture, which knows of no window, for scale.

All on one core, and all in processes of their own: BLAS and XLA count cores when they start.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

K = 50
WARMUP = 300
CASES = [("latent", 0), ("latent", 2), ("window", 0), ("window", 2)]


class Fit(NamedTuple):
    """A state as measured, to be taken up by any of the samplers."""

    weights: np.ndarray
    means: np.ndarray
    roots: np.ndarray


class Ours:
    """A chain of Offcut that can be timed, through the very program that the driver runs."""

    def __init__(
        self, x: np.ndarray, prior: str, moves: int, fit: Fit | None = None, block: int = 16
    ) -> None:
        import jax

        import offcut
        from offcut import keys
        from offcut.driver.block import CompiledBlock
        from offcut.regions import Box

        self.jax, self.block, self.done = jax, block, 0
        model = offcut.TruncatedMixture(Box(0, 1), K, prior=prior, split_merge=moves)
        with jax.enable_x64(True):
            self.sampler, self.data, _ = model.prepare(x, None, None)
            state = self.sampler.start(keys.from_seed(1), self.data, 2**30)
            self.state = state if fit is None else self.taken_up(state, fit)
            self.key = keys.from_seed(2)
        self.program = CompiledBlock(self.sampler, block)

    def taken_up(self, state: Any, fit: Fit) -> Any:
        """The state with the weights and components of a fit."""
        import jax.numpy as jnp

        from offcut import keys
        from offcut.mixtures.allocation import allocate, event_chunk, label_coefficients
        from offcut.mixtures.base import Components

        sampler, data = self.sampler, self.data
        components = Components(
            jnp.asarray((fit.means - data.shift) / data.scale),
            jnp.asarray(fit.roots / np.asarray(data.scale)[:, None]),
        )
        weights = state.weights._replace(log_weights=jnp.log(jnp.asarray(fit.weights))[None])
        state = state._replace(weights=weights, components=components)
        if not sampler.in_window:
            return state
        w = label_coefficients(components, weights.log_weights, sampler.layout.groups)
        draw = self.jax.jit(
            lambda data: allocate(
                sampler.layout, keys.from_seed(3), w, lambda c: event_chunk(sampler.layout, data, c)
            )[0]
        )
        return state._replace(labels=draw(data))

    def run(self, sweeps: int, adapting: bool = False) -> float:
        """Seconds for a sweep, without those in which the buffer grew."""
        from offcut.augmentation.layout import MOST_REJECTED
        from offcut.sampler import FULL

        spent, left, timed = 0.0, sweeps, 0
        with self.jax.enable_x64(True):
            while left:
                count = min(left, self.block)
                started = time.perf_counter()
                result = self.program(
                    self.key,
                    self.state,
                    np.int32(self.done),
                    np.int32(count),
                    np.int32(MOST_REJECTED),
                    np.bool_(False),
                    np.bool_(adapting),
                    np.zeros((self.block, 3), bool),
                    self.data,
                )
                self.jax.block_until_ready(result)
                seconds, done = time.perf_counter() - started, int(result.done)
                self.state, self.done, left = result.state, self.done + done, left - done
                if int(result.status) == FULL:
                    room = 2 * self.sampler.capacity(self.state)
                    self.state = self.sampler.resized(self.state, room)
                else:
                    spent, timed = spent + seconds, timed + done
        return spent / max(timed, 1)

    def fit(self) -> Fit:
        """The present state, as measured."""
        scale, shift = np.asarray(self.data.scale), np.asarray(self.data.shift)
        weights = np.exp(np.asarray(self.state.weights.log_weights)[0])
        means, roots = (np.asarray(a) for a in self.state.components)
        return Fit(weights, means * scale + shift, roots * scale[:, None])

    @property
    def rejected(self) -> int:
        return self.sampler.rejected(self.state)


class Plain:
    """The same in NumPy."""

    def __init__(self, x: np.ndarray, fit: Fit, by_component: bool) -> None:
        from benchmarks import numpy_mixture

        self.module, self.base = numpy_mixture, numpy_mixture.base_of(x)
        self.phi = numpy_mixture.features(x)
        self.rng, self.rejected = np.random.default_rng(0), 0
        self.by_component, self.state = by_component, numpy_mixture.State(*fit)
        self.lower, self.upper = np.zeros(x.shape[1]), np.ones(x.shape[1])

    def run(self, sweeps: int) -> float:
        started = time.perf_counter()
        for _ in range(sweeps):
            self.state, self.rejected = self.module.sweep(
                self.rng, self.phi, self.base, 1.0, self.lower, self.upper, self.state,
                self.by_component,
            )  # fmt: skip
        return (time.perf_counter() - started) / sweeps


def control() -> np.ndarray:
    from offcut import datasets

    return np.asarray(datasets.gvhd("control").values, float)


def a_million() -> np.ndarray:
    """Events of the control sample drawn again and again, each moved a little, within the cube."""
    rng = np.random.default_rng(5)
    x = control()
    x = x[rng.integers(len(x), size=10**6)]
    x += rng.normal(scale=0.01, size=x.shape)
    np.abs(x, out=x)
    return np.minimum(x, 2 - x)


def ratio(theirs: list[float], ours: list[float]) -> str:
    """Median of the ratios of alternating rounds, and the middle half of them."""
    low, middle, high = np.quantile(np.array(theirs) / np.array(ours), [0.25, 0.5, 0.75])
    return f"{middle:5.1f}x ({low:.1f} to {high:.1f})"


def against_numpy(folder: Path) -> None:
    """Rounds of all samplers in turn; leaves the fit for the other parts."""
    x = control()
    chains = {case: Ours(x, *case) for case in CASES}
    compiled = {}
    for case, chain in chains.items():
        started = time.perf_counter()
        chain.run(1, adapting=True)
        compiled[case] = time.perf_counter() - started
        chain.run(WARMUP, adapting=True)
    fit = chains["latent", 2].fit()
    np.savez(folder / "latent.npz", **fit._asdict())
    np.savez(folder / "window.npz", **chains["window", 2].fit()._asdict())
    plain = {True: Plain(x, fit, True), False: Plain(x, fit, False)}
    everyone: dict[Any, Ours | Plain] = {**chains, **plain}
    seconds: dict[Any, list[float]] = {name: [] for name in everyone}
    rejected: dict[Any, list[int]] = {name: [] for name in everyone}
    for chain in everyone.values():
        chain.run(16)
    for _ in range(15):
        for name, chain in everyone.items():
            seconds[name].append(chain.run(16))
            rejected[name].append(chain.rejected)
    print(f"{'':34}ms for a sweep (middle half)    |Y|   NumPy, one by one   NumPy, features")
    for name in everyone:
        low, middle, high = np.quantile(seconds[name], [0.25, 0.5, 0.75]) * 1e3
        if name in chains:
            title = f"Offcut, prior {name[0]!r}, split_merge={name[1]}"
            rest = f"   {ratio(seconds[True], seconds[name]):17}   "
            rest += f"{ratio(seconds[False], seconds[name])}  (first call {compiled[name]:.0f} s)"
        else:
            title = "NumPy, one component by one" if name else "NumPy, features"
            rest = ""
        print(
            f"{title:37}{middle:7.2f} ({low:.2f} to {high:.2f})   {np.median(rejected[name]):7,.0f}"
            f"{rest}",
            flush=True,
        )


def one_at_a_million(folder: Path, name: str) -> None:
    """A few sweeps of one sampler, and the largest memory of this process."""
    from benchmarks.__main__ import peak_memory

    kind, _, moves = name.partition("-")
    with np.load(folder / f"{'window' if kind == 'window' else 'latent'}.npz") as stored:
        fit = Fit(**stored)
    x = a_million()
    chain = Plain(x, fit, kind == "one") if not moves else Ours(x, kind, int(moves), fit, block=4)
    del x
    chain.run(2)
    seconds = [chain.run(1) for _ in range(4)]
    print(
        f"{name:12} {np.median(seconds):8.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
        f" {chain.rejected:12,} {peak_memory() / 1024:10,.0f} MB",
        flush=True,
    )


def parts() -> None:
    """Each part of a sweep in a loop of its own, in the state that a chain has reached."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    from offcut import keys
    from offcut.mixtures import allocation, rejections, split_merge
    from offcut.mixtures.base import draw_all
    from offcut.mixtures.features import size
    from offcut.mixtures.units import Units

    x = control()
    for prior in ("latent", "window"):
        ours = Ours(x, prior, 2)
        ours.run(WARMUP, adapting=True)
        whole = min(ours.run(16) for _ in range(7))
        with jax.enable_x64(True):
            sampler, state, data = ours.sampler, ours.state, ours.data
            layout, key, width = sampler.layout, keys.from_seed(4), size(data.x.shape[0])
            held = state.rejected
            w = allocation.label_coefficients(
                state.components, state.weights.log_weights, layout.groups
            )
            own = None
            if sampler.in_window:
                own = jax.jit(
                    lambda data, held, layout=layout: allocation.with_own_rejections(
                        layout, data, held
                    )
                )(data, held)

            def phi_of(chunk, own=own, layout=layout, data=data):
                if own is None:
                    return allocation.event_chunk(layout, data, chunk)
                return lax.dynamic_slice_in_dim(own, chunk * layout.chunk, layout.chunk).T

            labels, totals = jax.jit(
                lambda: allocation.allocate(layout, key, w, phi_of)  # noqa: B023
            )()
            if own is None:
                totals = jax.jit(lambda t: allocation.add_rejected(layout, t, held))(totals)  # noqa: B023

            def repeat(body, start, times=64):
                started = time.perf_counter()
                program = jax.jit(lambda s: lax.fori_loop(0, times, body, s))
                program = program.lower(start).compile()
                compiled = time.perf_counter() - started
                best = np.inf
                for _ in range(7):
                    started = time.perf_counter()
                    jax.block_until_ready(program(start))
                    best = min(best, time.perf_counter() - started)
                return best / times * 1e3, compiled

            # ruff: disable[B023]
            def draw_rejections(i, rejected):
                own_key = jax.random.fold_in(key, i)
                spare = rejected._replace(count=jnp.int32(0))
                most = jnp.int32(10**6)
                if sampler.in_window:
                    run = rejections.run_window(
                        layout, own_key, sampler._passes, state.components, labels, data, spare, most
                    )
                else:
                    run = rejections.run_latent(
                        layout,
                        own_key,
                        sampler._passes,
                        state.weights.log_weights,
                        state.components,
                        data,
                        spare,
                        most,
                    )
                return run.rejected

            def draw_labels(i, labels):
                own_key = jax.random.fold_in(key, i)

                def one(chunk, labels):
                    uniform = jax.random.uniform(
                        jax.random.fold_in(own_key, chunk), (layout.chunk,)
                    )
                    label = allocation.choose(w @ phi_of(chunk), uniform)
                    return lax.dynamic_update_slice_in_dim(labels, label, chunk * layout.chunk, 0)

                return lax.fori_loop(0, layout.chunks, one, labels)

            def add_up(i, totals):
                def one(chunk, totals):
                    label = lax.dynamic_slice_in_dim(labels, chunk * layout.chunk, layout.chunk)
                    return allocation.add_by_label(totals, label, phi_of(chunk))

                totals = lax.fori_loop(0, layout.chunks, one, totals)
                if sampler.in_window:
                    phi = allocation.with_own_rejections(layout, data, held._replace(
                        count=held.count + (totals[0, 0] > 1e300)))
                    return totals + phi[0, 0] * 1e-9
                return allocation.add_rejected(layout, totals, held)

            def split_and_merge(i, carry):
                units, totals = carry
                moved = split_merge.split_merge(
                    layout,
                    jax.random.fold_in(key, i),
                    2,
                    units,
                    totals,
                    lambda counts: sampler.weights.log_labels(state.weights, counts),
                    data,
                )
                return moved.units, moved.totals

            def draw_weights(i, weights):
                return sampler.weights.update(
                    jax.random.fold_in(key, i), weights, totals[:K, width:].T
                )[0]

            def draw_components(i, components):
                return draw_all(jax.random.fold_in(key, i), data.base, totals[:K, :width])

            def masses(i, log_mass):
                return sampler.log_masses(
                    jax.random.fold_in(key, i), state.components, state.weights.log_weights, data
                )

            units = Units(labels, held, own)
            table = {
                "rejections with labels": repeat(draw_rejections, held),
                "labels of events": repeat(draw_labels, labels),
                "statistics": repeat(add_up, totals),
                "two splits or merges": repeat(split_and_merge, (units, totals)),
                "weights": repeat(draw_weights, state.weights),
                "components": repeat(draw_components, state.components),
                "masses in the window": repeat(masses, state.log_mass),
            }
            # ruff: enable[B023]
        print(f"\nWhere a sweep goes, prior {prior!r} (|Y| = {ours.rejected:,}):")
        for name, (milliseconds, compiled) in table.items():
            print(f"  {name:26} {milliseconds:8.3f} ms   compiled in {compiled:5.1f} s")
        spent = sum(milliseconds for milliseconds, _ in table.values())
        print(f"  {'together, and whole sweep':26} {spent:8.3f} ms   {whole * 1e3:.3f} ms", flush=True)


def scikit_learn() -> None:
    import warnings

    from sklearn.mixture import BayesianGaussianMixture

    x = control()
    warnings.simplefilter("ignore")
    for limit in (100, 1000):
        mixture = BayesianGaussianMixture(
            n_components=K,
            weight_concentration_prior_type="dirichlet_process",
            max_iter=limit,
            random_state=0,
        )
        started = time.perf_counter()
        mixture.fit(x)
        seconds = time.perf_counter() - started
        print(
            f"  max_iter={limit:5}: {seconds:6.1f} s, {mixture.n_iter_} iterations, "
            f"converged: {mixture.converged_}",
            flush=True,
        )


def child(name: str, folder: Path) -> None:
    """One part, in this process."""
    if name == "numpy":
        against_numpy(folder)
    elif name == "parts":
        parts()
    elif name == "sklearn":
        scikit_learn()
    else:
        one_at_a_million(folder, name)


def run(folder: Path, *names: str) -> None:
    one_core = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for name in names:
        command = [sys.executable, "-m", "benchmarks", "--mixture", name, str(folder)]
        subprocess.run(command, env=one_core, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        print(f"\nA sweep of the truncated mixture, GvHD control (6,809 x 4), unit cube, K = {K},")
        print("one core, 15 alternating rounds of 16 sweeps; how many times faster than NumPy\n")
        run(folder, "numpy")
        run(folder, "parts")
        print("\nThe same at a million events, each in a process of its own\n")
        print("sampler          time for a sweep              |Y|     largest memory")
        run(folder, "features", "one", "latent-0", "latent-2", "window-0", "window-2")
        print(f"\nscikit-learn, BayesianGaussianMixture({K}), GvHD control, no window:")
        run(folder, "sklearn")
