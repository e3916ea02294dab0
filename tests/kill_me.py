"""Models of the driver's tests, and a script that samples from them until something kills it.

python kill_me.py checkpointed DIRECTORY OUTPUT    the long run, saving all the time
python kill_me.py pinned DIRECTORY OUTPUT          one core; a whole run, then two interrupts
python kill_me.py watched                          a run with its progress bar
python kill_me.py kind DIRECTORY OUTPUT NAME       a run of any kind of model, saved at every step
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__" and sys.argv[1] == "pinned":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import offcut

jax.config.update("jax_numpy_rank_promotion", "raise")

#: Adapts, so that what warm-up learns must survive, and compiles faster than NUTS.
KERNEL = offcut.HMC(num_steps=3)
LONG = {
    "draws": 20_000,
    "warmup": 8_000,
    "chains": 2,
    "seed": 11,
    "budget": "auto",
    "kernel": KERNEL,
}
SHORT = {"draws": 150, "warmup": 60, "chains": 3, "seed": 5, "budget": 3000, "kernel": KERNEL}


def truncated_normal(prior_scale: float = 0.5) -> offcut.RejectionModel:
    """A normal of unknown mean, seen where it exceeds 1."""
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, prior_scale)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda x: x > 1.0,
    )


def truncated_regression() -> offcut.RejectionModel:
    """y = slope . c + noise, seen where it exceeds 0.8."""
    return offcut.truncated(
        prior={"slope": dist.Normal(0.0, 0.3).expand([2]).to_event(1)},
        base=lambda theta, c: dist.Normal(jnp.sum(theta["slope"] * c), 1.0),
        inside=lambda x, c: x > 0.8,
    )


def observations() -> np.ndarray:
    """Fifty values above 1."""
    return _exceeding(1.0, np.zeros(50))


def regression_data() -> tuple[np.ndarray, np.ndarray]:
    """Observations above 0.8 and their covariates."""
    covariates = np.random.default_rng(3).normal(scale=0.5, size=(45, 2))
    return _exceeding(0.8, covariates @ np.array([0.5, -0.3])), covariates


def _exceeding(least: float, means: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(1)
    values = np.full(means.shape, -np.inf)
    while (outside := values <= least).any():
        values[outside] = rng.normal(means[outside])
    return values


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """Every variable of posterior and sample_stats."""
    return {
        f"{group}/{name}": variable.values
        for group in ("posterior", "sample_stats")
        for name, variable in tree[group].data_vars.items()
    }


def _save(output: Path, name: str, tree: Any) -> None:
    np.savez(output / f"{name}.npz", **arrays_of(tree))
    plain = json.dumps(dict(tree.attrs), default=np.ndarray.tolist)
    (output / f"{name}.json").write_text(plain)


def checkpointed(directory: Path, output: Path) -> None:
    from offcut.driver import chain

    chain.BLOCK_SECONDS = 0.02
    chain.Chain._save_interval = lambda chain: 0.05  # however slow the disk is
    tree = offcut.sample(truncated_normal(), observations(), checkpoint=directory, **LONG)
    _save(output, "resumed", tree)


def pinned(directory: Path, output: Path) -> None:
    """Ctrl-C comes from inside, at a moment that the progress of the chains decides."""
    from offcut.driver import chain
    from offcut.driver import chains as run
    from offcut.driver.progress import Progress

    chain.BLOCK_SECONDS, run.TURN_SECONDS = 0.001, 0.002
    model, x = truncated_normal(), observations()
    whole = offcut.sample(model, x, progress=True, **SHORT)
    _save(output, "whole", whole)

    class Interrupting(Progress):
        phase_to_interrupt = ""

        def __init__(self) -> None:
            self.names: dict[int, str] = {}
            self.steps: dict[int, int] = {}

        def __enter__(self) -> Progress:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def phase(self, chain: int, name: str, done: int, total: int) -> None:
            self.names[chain], self.steps[chain] = name, 0

        def advance(self, chain: int, steps: int, seconds: float, stats: dict) -> None:
            self.steps[chain] += steps
            there = set(self.names.values()) == {self.phase_to_interrupt}
            if there and min(self.steps.values()) >= 5:
                Interrupting.phase_to_interrupt = ""
                os.kill(os.getpid(), signal.SIGINT)

    run._watched = lambda settings: Interrupting()
    Interrupting.phase_to_interrupt = "warm-up"
    try:
        offcut.sample(model, x, **SHORT)
    except KeyboardInterrupt as interrupt:
        (output / "warm-up.txt").write_text(str(interrupt))
    Interrupting.phase_to_interrupt = "sampling"
    _save(output, "interrupted", offcut.sample(model, x, checkpoint=directory, **SHORT))


class Kind(NamedTuple):
    """A kind of model with its data, and how it is run."""

    model: Callable[[], Any]
    data: np.ndarray
    covariates: Any = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - never changed
    restarts: bool = False  # "auto" is made to begin with too small a budget


#: Short, because every step is saved; long enough for a kill at any place in it.
BRIEF = {"draws": 120, "warmup": 60, "chains": 2, "seed": 3, "budget": "auto"}
_RNG = np.random.default_rng(4)
_CLOUD = np.abs(_RNG.normal(0.4, 1.0, (25, 2)))
_LINE = _RNG.beta(2.0, 3.0, 15)
_FRAMES = np.linalg.qr(_RNG.normal(size=(8, 3, 2)) + 3 * np.eye(3, 2))[0]


def kinds() -> dict[str, Kind]:
    """Every kind of model, by name."""
    walk = {"kernel": offcut.RandomWalk()}
    orthant = offcut.regions.Orthant([1, 1])

    def mixture(weights: str) -> Any:
        return offcut.TruncatedMixture(orthant, 3, dist.Gamma(2, 2), weights=weights)

    def censored() -> Any:
        return offcut.truncated(
            {"loc": dist.Normal(0.0, 0.5)},
            lambda theta: dist.Normal(theta["loc"], 1.0),
            lambda x: x > 1.0,
            censored=offcut.Clamped(upper=1.8),
        )

    return {
        "covariates": Kind(truncated_regression, *regression_data(), walk),
        "censored": Kind(censored, np.minimum(observations(), 1.8), None, {"kernel": KERNEL}),
        "tight budget": Kind(truncated_normal, observations(), None, walk | {"budget": 260}),
        "restart": Kind(truncated_normal, observations(), None, walk, True),
        "exchange": Kind(truncated_normal, observations(), None, {"method": "exchange"}),
        "mixture": Kind(lambda: mixture("latent"), _CLOUD),
        "mixture in the window": Kind(lambda: mixture("window"), _CLOUD),
        "frames": Kind(lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1)), _FRAMES),
        "density": Kind(lambda: offcut.GPDensity(basis=8), _LINE),
        "intensity": Kind(lambda: offcut.GPIntensity((0, 1), basis=8), _LINE),
        "exact": Kind(lambda: offcut.GPDensity(basis=None, length_scale=1.0, variance=1.0), _LINE),
    }


def run_kind(name: str, checkpoint: Path | None = None) -> Any:
    """A run of a kind of model, to its end."""
    from offcut.driver import chains as run

    kind = kinds()[name]
    decide, most = run.budget_after_warmup, run.MOST_RESTARTS
    if kind.restarts:
        run.budget_after_warmup, run.MOST_RESTARTS = lambda rejected, held, n, most: held, 1
    try:
        return offcut.sample(
            kind.model(),
            kind.data,
            covariates=kind.covariates,
            checkpoint=checkpoint,
            progress=False,
            **{**BRIEF, **kind.settings},
        )
    finally:
        run.budget_after_warmup, run.MOST_RESTARTS = decide, most


def kind(directory: Path, output: Path, name: str) -> None:
    from offcut.driver import chain

    chain.BLOCK_SECONDS = 0.0
    chain.Chain._save_interval = lambda chain: 0.0
    _save(output, "resumed", run_kind(str(name), directory))


def watched() -> None:
    offcut.sample(truncated_normal(), observations(), **SHORT)


if __name__ == "__main__":
    # A job that a shell put into the background ignores Ctrl-C, and so would this child of it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    modes = {"checkpointed": checkpointed, "pinned": pinned, "watched": watched, "kind": kind}
    modes[sys.argv[1]](*map(Path, sys.argv[2:]))
