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
#: weights, splits and merges, exchange moves; the first is what the NumPy versions do.
CASES = [
    ("latent", 0, False),
    ("latent", 2, False),
    ("latent", 2, True),
    ("window", 0, False),
    ("window", 2, False),
    ("window", 2, True),
]


class Fit(NamedTuple):
    """A state as measured, to be taken up by any of the samplers."""

    weights: np.ndarray
    means: np.ndarray
    roots: np.ndarray


class Ours:
    """A chain of Offcut that can be timed, through the very program that the driver runs."""

    def __init__(
        self,
        x: np.ndarray,
        weights: str,
        moves: int,
        reshape: bool,
        fit: Fit | None = None,
        block: int = 16,
    ) -> None:
        import jax

        import offcut
        from offcut.driver.chain import CompiledBlock
        from offcut.numerics import keys
        from offcut.regions import Box
        from offcut.samplers.choice import prepare

        self.jax, self.block, self.done = jax, block, 0
        # About what budget="auto" finds for these data.
        self.budget = 4 * len(x)
        self.in_window = weights == "window"
        model = offcut.TruncatedMixture(
            Box(0, 1), K, weights=weights, split_merge=moves, reshape=reshape
        )
        with jax.enable_x64(True):
            self.sampler, self.data, _ = prepare(model, x)
            state = self.sampler.start(keys.from_seed(1), self.data, self.budget)
            self.state = state if fit is None else self.taken_up(state, fit)
            self.key = keys.from_seed(2)
        self.program = CompiledBlock(self.sampler, block)

    def taken_up(self, state: Any, fit: Fit) -> Any:
        """The state with the weights and components of a fit."""
        import jax.numpy as jnp

        from offcut.mixtures.allocation import allocate, event_chunk, label_coefficients
        from offcut.numerics import keys
        from offcut.numerics.normal import Components

        sampler, data = self.sampler, self.data
        components = Components(
            jnp.asarray((fit.means - data.shift) / data.scale),
            jnp.asarray(fit.roots / np.asarray(data.scale)[:, None]),
        )
        log_weights = jnp.log(jnp.asarray(fit.weights))[None]
        weights = state.mixture.weights._replace(log_weights=log_weights)
        mixture = state.mixture._replace(weights=weights, components=components)
        state = state._replace(mixture=mixture)
        if not self.in_window:
            return state
        layout = sampler.layout
        w = label_coefficients(components, weights.log_weights, layout.groups)

        def labels(data: Any) -> Any:
            key = keys.from_seed(3)
            return allocate(layout, key, w, data.n, lambda c: event_chunk(layout, data, c))[0]

        return state._replace(labels=self.jax.jit(labels)(data))

    def run(self, sweeps: int, adapting: bool = False) -> float:
        """Seconds for a sweep, without those in which the buffer grew."""
        from offcut.base import FULL

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
                    np.int32(self.budget),
                    np.bool_(True),
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
        weights = np.exp(np.asarray(self.state.mixture.weights.log_weights)[0])
        means, roots = (np.asarray(a) for a in self.state.mixture.components)
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


def title(case: tuple) -> str:
    weights, moves, reshape = case
    return f"Offcut, {weights}, {moves} split-merge{', exchange' if reshape else ''}"


def against_numpy(folder: Path) -> None:
    """Rounds of all samplers in turn; leaves the fits for the other parts."""
    x = control()
    chains = {case: Ours(x, *case) for case in CASES}
    compiled = {}
    for case, chain in chains.items():
        started = time.perf_counter()
        chain.run(1, adapting=True)
        compiled[case] = time.perf_counter() - started
        chain.run(WARMUP, adapting=True)
    for weights in ("latent", "window"):
        np.savez(folder / f"{weights}.npz", **chains[weights, 0, False].fit()._asdict())
    fit = chains[CASES[0]].fit()
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
    print(f"{'':40}  ms for a sweep       |Y|   NumPy by component   NumPy, features   first call")
    for name in everyone:
        if name in chains:
            line = f"{title(name):40}"
            rest = f"{ratio(seconds[True], seconds[name]):>21} "
            rest += f"{ratio(seconds[False], seconds[name]):>21}  {compiled[name]:5.0f} s"
        else:
            line = f"{'NumPy, by component' if name else 'NumPy, features':40}"
            rest = ""
        low, middle, high = np.quantile(seconds[name], [0.25, 0.5, 0.75]) * 1e3
        line += f"{middle:6.2f} ({low:.2f} to {high:.2f}) {np.median(rejected[name]):7,.0f}"
        print(line + rest, flush=True)


def one_at_a_million(folder: Path, name: str) -> None:
    """A few sweeps of one sampler, and the largest memory of this process.

    Before it starts, the memory that the imports and a small problem have taken.
    """
    from benchmarks.__main__ import peak_memory

    case = CASES[int(name)] if name.isdigit() else None
    with np.load(folder / f"{case[0] if case else 'latent'}.npz") as stored:
        fit = Fit(**stored)

    def start(x: np.ndarray) -> Ours | Plain:
        return Ours(x, *case, fit, block=4) if case else Plain(x, fit, name == "component")

    start(control()).run(2)
    before = peak_memory()
    chain = start(a_million())
    chain.run(2)
    seconds = [chain.run(1) for _ in range(4)]
    line = f"{title(case) if case else f'NumPy, {name}':40}"
    line += f"{np.median(seconds):6.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"
    largest = peak_memory()
    line += (
        f" {chain.rejected:10,} {largest / 1024:10,.0f} MB {(largest - before) / 1024:14,.0f} MB"
    )
    print(line, flush=True)


def parts() -> None:
    """Each part of a sweep in a loop of its own, in the state that a chain has reached."""
    for weights in ("latent", "window"):
        ours = Ours(control(), weights, 2, True)
        ours.run(WARMUP, adapting=True)
        whole = min(ours.run(16) for _ in range(7)) * 1e3
        print(f"\nWhere a sweep goes, weights {weights!r} (|Y| = {ours.rejected:,}):")
        together = 0.0
        with ours.jax.enable_x64(True):
            for name, (body, start) in pieces(ours).items():
                milliseconds, compiled = repeated(body, start)
                together += milliseconds
                print(f"  {name:26} {milliseconds:8.3f} ms   compiled in {compiled:5.1f} s")
        print(f"  {'together':26} {together:8.3f} ms   the whole sweep {whole:.3f} ms", flush=True)


def repeated(body: Any, start: Any, times: int = 64) -> tuple[float, float]:
    """Milliseconds for ``body(i, carry)``, and seconds to compile it."""
    import jax

    started = time.perf_counter()
    program = jax.jit(lambda carry: jax.lax.fori_loop(0, times, body, carry))
    compiled = program.lower(start).compile()
    compiling = time.perf_counter() - started
    best = np.inf
    for _ in range(7):
        started = time.perf_counter()
        jax.block_until_ready(compiled(start))
        best = min(best, time.perf_counter() - started)
    return best / times * 1e3, compiling


def pieces(ours: Ours) -> dict[str, tuple[Any, Any]]:
    """Parts of a sweep by name: ``body(i, carry)`` and what to start from."""
    import jax
    import jax.numpy as jnp

    from offcut.base import Stage
    from offcut.mixtures import allocation
    from offcut.mixtures.split_merge import Units, split_merge
    from offcut.numerics import keys
    from offcut.numerics.normal import draw_all, size

    sampler, state, data = ours.sampler, ours.state, ours.data
    mixture = state.mixture
    layout, width, most = sampler.layout, size(data.x.shape[0]), jnp.int32(ours.budget)
    no = jnp.array(False)
    stage = Stage(most, no, no, no, no, no)
    key = keys.from_seed(4)
    w = allocation.label_coefficients(
        mixture.components, mixture.weights.log_weights, layout.groups
    )

    def own_key(i: Any) -> Any:
        return jax.random.fold_in(key, i)

    def phi_of(chunk: Any) -> Any:
        if ours.in_window:
            return allocation.rows_of(layout, state.own, chunk)
        return allocation.event_chunk(layout, data, chunk)

    def label(i: Any, carry: tuple) -> tuple:
        return allocation.allocate(layout, own_key(i), w, data.n, phi_of)

    labels, totals = jax.jit(label)(0, None)
    if ours.in_window:
        units = Units(labels, None, state.own)
        events = jax.jit(lambda: allocation.all_events(layout, data))()
        cells = jax.jit(sampler._cells)(labels, data)

        def reject(i: Any, run: Any) -> Any:
            return sampler.run(own_key(i), mixture.components, events, cells, most, data)

        def reshape(i: Any, state: Any) -> Any:
            return sampler._reshape(own_key(i), state, events, cells, stage, data)[0]

        rest = {
            "features of all events": (
                lambda i, held: allocation.all_events(
                    layout, data._replace(x=data.x + 1e-300 * held[0, 0])
                ),
                events,
            ),
            "events in order of cells": (
                lambda i, cells: sampler._cells(labels + 0 * cells.order, data),
                cells,
            ),
        }
        runs = jax.jit(reject)(0, None)
    else:
        held = state.rejected
        events_only = totals
        totals = jax.jit(lambda t: allocation.add_rejected(layout, t, held))(totals)
        units = Units(labels, held, None)
        runs = held

        def reject(i: Any, held: Any) -> Any:
            spare = held._replace(count=jnp.int32(0))
            return sampler.run(own_key(i), mixture, spare, most, data).collected

        def reshape(i: Any, held: Any) -> Any:
            yes = jnp.array(True)
            return sampler._reshape(own_key(i), mixture, held, events_only, yes, stage, data)[0]

        rest = {
            "statistics of rejections": (
                lambda i, totals: allocation.add_rejected(layout, totals, held),
                totals,
            )
        }

    def move(i: Any, carry: tuple) -> tuple:
        def log_labels(counts: Any) -> Any:
            return sampler.weights.log_labels(mixture.weights, counts)

        moved = split_merge(layout, own_key(i), 2, *carry, log_labels, data)
        return moved.units, moved.totals

    def weigh(i: Any, weights: Any) -> Any:
        return sampler.weights.update(own_key(i), weights, totals[:K, width:].T)[0]

    def draw(i: Any, components: Any) -> Any:
        return draw_all(own_key(i), data.base, totals[:K, :width])

    def weigh_masses(i: Any, log_mass: Any) -> Any:
        return sampler.log_masses(own_key(i), mixture.components, mixture.weights.log_weights, data)

    return {
        "rejections": (reject, runs),
        "labels and statistics": (label, (labels, totals)),
        **rest,
        "exchange moves": (reshape, state if ours.in_window else runs),
        "two splits or merges": (move, (units, totals)),
        "weights": (weigh, mixture.weights),
        "components": (draw, mixture.components),
        "masses in the window": (weigh_masses, mixture.log_mass),
    }


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
        print("\nThe same at a million events, each in a process of its own:\n")
        print(f"{'':40}  time for a sweep         |Y|   largest memory   above a small problem")
        run(folder, "component", "features", *map(str, range(len(CASES))))
        print(f"\nscikit-learn, BayesianGaussianMixture({K}), GvHD control, no window:")
        run(folder, "sklearn")
