"""Warm-up: step size by dual averaging, diagonal metric by windowed moments (BlackJAX's parts).

``blackjax.window_adaptation`` wants one fixed density; here the density changes with Y in every
sweep, so its parts are driven by hand. The stage is data: the same program warms up and samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation

from offcut.base import Kernel, LogDensity, Stage, Stats
from offcut.methods import TARGET

_MOMENTS = {dense: mass_matrix_adaptation(is_diagonal_matrix=not dense) for dense in (False, True)}


class Tuning(NamedTuple):
    """What a kernel has learnt: its step size and the inverse of a mass matrix.

    The matrix is an estimate of the posterior covariance: its diagonal as a vector, or all of it.
    """

    step_size: jax.Array
    inverse_mass: jax.Array
    averaging: Any
    moments: Any


def first_tuning(
    size: int, step_size: float | jax.Array, variance: float = 1.0, dense: bool = False
) -> Tuning:
    """Where warm-up starts: the given step size, and a metric of one guessed variance."""
    averaging_init, _, _ = dual_averaging_adaptation(0.5)
    step = jnp.asarray(step_size, float)
    moments_init, _, _ = _MOMENTS[dense]
    as_arrays = jax.tree.map(jnp.asarray, (averaging_init(step), moments_init(size)))
    metric = variance * jnp.eye(size) if dense else jnp.full(size, variance)
    return Tuning(step, metric, *as_arrays)


def tuned(
    tuning: Tuning,
    stage: Stage,
    position: jax.Array,
    acceptance_rate: jax.Array,
    target: float,
    smallest: float = 0.0,
) -> Tuning:
    """One update; the identity outside warm-up. A NaN rate says nothing about the step size."""
    averaging_init, averaging_update, averaging_final = dual_averaging_adaptation(target)
    _, moments_update, moments_final = _MOMENTS[tuning.inverse_mass.ndim == 2]

    def adapt(tuning: Tuning) -> Tuning:
        rate = jnp.where(jnp.isnan(acceptance_rate), target, acceptance_rate)
        averaging = averaging_update(tuning.averaging, rate)
        moments = jax.lax.cond(
            stage.slow, lambda m: moments_update(m, position), lambda m: m, tuning.moments
        )
        step_size = jnp.exp(averaging.log_step_size)

        def close_window(_: None) -> Tuning:
            fresh = moments_final(moments)
            restarted = averaging_init(averaging_final(averaging))
            first = averaging_final(averaging)
            return Tuning(first, fresh.inverse_mass_matrix, restarted, fresh)

        def go_on(_: None) -> Tuning:
            chosen = jnp.where(stage.last, averaging_final(averaging), step_size)
            return Tuning(chosen, tuning.inverse_mass, averaging, moments)

        new = jax.lax.cond(stage.window_end, close_window, go_on, None)
        new = new._replace(step_size=jnp.maximum(new.step_size, smallest))
        return jax.tree.map(lambda a, b: a.astype(b.dtype), new, tuning)

    return jax.lax.cond(stage.adapting, adapt, lambda t: t, tuning)


def stepped(
    kernel: Kernel,
    key: jax.Array,
    position: jax.Array,
    log_density: LogDensity,
    tuning: Tuning,
    stage: Stage,
) -> tuple[jax.Array, Tuning, Stats]:
    """A kernel's step on a density: the new position, what warm-up learns from it, statistics."""
    return stepped_from(kernel, key, position, log_density, tuning, stage)[:3]


def stepped_from(
    kernel: Kernel,
    key: jax.Array,
    position: jax.Array,
    log_density: LogDensity,
    tuning: Tuning,
    stage: Stage,
) -> tuple[jax.Array, Tuning, Stats, jax.Array]:
    """The same, and the log density where the step began, which the kernel has computed anyway."""
    position, stats = kernel.step(key, position, log_density, tuning)
    if kernel.adapts:
        rate = jnp.nan_to_num(stats["acceptance_rate"], nan=0.0)
        tuning = tuned(tuning, stage, position, rate, target_of(kernel))
    before = stats.pop("log_density")
    return position, tuning, stats, before


def target_of(kernel: Kernel) -> float:
    """The acceptance rate that warm-up steers to; that of walks on a density, where none is set."""
    return TARGET if kernel.target_acceptance is None else kernel.target_acceptance


def warmup_schedule(warmup: int) -> np.ndarray:
    """Rows of (slow, window_end, last), Stan's three-stage schedule."""
    rows = [
        (bool(slow), bool(end), step == warmup - 1)
        for step, (slow, end) in enumerate(np.asarray(build_schedule(warmup)))
    ]
    return np.array(rows, dtype=bool).reshape(-1, 3)
