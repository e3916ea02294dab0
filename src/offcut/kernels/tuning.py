"""How kernels are tuned in warm-up, by kind: along gradients, or at random.

Step size by dual averaging, metric by windowed moments (BlackJAX's parts).
``blackjax.window_adaptation`` wants one fixed density; here the density changes with Y in every
sweep, so its parts are driven by hand. The stage is data: the same program warms up and samples.
"""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, Bool, Float

from offcut.base import Count, Kernel, LogDensity, Position, Stage, Stats, Tuning
from offcut.errors import SettingsError
from offcut.methods import TARGET, Method
from offcut.numerics.types import KeyArray

_MOMENTS = {dense: mass_matrix_adaptation(is_diagonal_matrix=not dense) for dense in (False, True)}


def first_tuning(
    size: int, step_size: float, variance: float | Float[Array, ""] = 1.0, dense: bool = False
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
    position: Position,
    acceptance_rate: Float[Array, ""],
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
    key: KeyArray,
    position: Position,
    log_density: LogDensity,
    tuning: Tuning,
    stage: Stage,
) -> tuple[Position, Tuning, Stats]:
    """A kernel's step on a density: the new position, what warm-up learns from it, statistics."""
    return stepped_from(kernel, key, position, log_density, tuning, stage)[:3]


def stepped_from(
    kernel: Kernel,
    key: KeyArray,
    position: Position,
    log_density: LogDensity,
    tuning: Tuning,
    stage: Stage,
) -> tuple[Position, Tuning, Stats, Float[Array, ""]]:
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


def warmup_schedule(warmup: int) -> Bool[np.ndarray, "warmup 3"]:
    """Rows of (slow, window_end, last), Stan's three-stage schedule."""
    rows = np.zeros((warmup, 3), bool)
    if warmup:
        # Traced, the schedule is a constant; called, it would be a program for each length.
        (schedule,) = jax.make_jaxpr(build_schedule, static_argnums=0)(warmup).consts
        rows[:, :2] = np.asarray(schedule)
        rows[-1, 2] = True
    return rows


#: Beyond this dimension the score is not kept: two vectors a draw, and d^2 moments from few draws.
MOST_DIMENSIONS = 100
#: Random walks learn a full covariance up to this many parameters.
MOST_DENSE = 40


class GradientKernel(Kernel):
    """A kernel with a ``step_size``: the user's as it is, else learnt with a diagonal metric."""

    step_size: float | None

    @property
    def adapts(self) -> bool:
        return self.step_size is None

    def first_tuning(self, points: Count, size: int) -> Tuning:
        """The user's step as it is, or one on the scale of a regular model with such points."""
        if self.step_size is not None:
            return first_tuning(size, self.step_size)
        return first_tuning(size, 1.0, variance=1.0 / jnp.maximum(points, 1))

    def score(self, position: Position, gradient: Position) -> Stats:
        """The gradient of the log density where a move begins, which it has computed anyway.

        At stationarity the pair (position before the move, fresh Y) is a draw from their joint
        posterior, and there the score tells how much of the information is missing
        (``offcut.result.missing_information``). Statistics ``position`` and ``gradient`` are
        helpers: the result keeps what was made of them, and drops them.
        """
        if position.shape[0] > MOST_DIMENSIONS:
            return {}
        return {"position": position, "gradient": gradient}


class WalkKernel(Kernel):
    """A kernel with a ``scale``: the user's as it is, else learnt with the posterior covariance.

    A random walk does not know the direction of a ridge unless it is told: up to MOST_DENSE
    parameters it learns all covariances, beyond that variances only. It is a frozen dataclass with
    fields ``scale`` and ``target_acceptance``.
    """

    kind: ClassVar[str] = "walk"
    scale: float | None

    def on(self, method: Method) -> Kernel:
        """With the target acceptance of the method, where the user gave none."""
        if self.target_acceptance is not None or not self.adapts:
            return self
        return replace(self, target_acceptance=method.target_acceptance)  # type: ignore[type-var]

    def propose(self, key: KeyArray, position: Position, tuning: Tuning) -> Position:
        """A normal step, scaled by what warm-up has learnt."""
        noise = jax.random.normal(key, position.shape)
        if tuning.inverse_mass.ndim == 2:
            return position + tuning.step_size * (jnp.linalg.cholesky(tuning.inverse_mass) @ noise)
        return position + tuning.step_size * jnp.sqrt(tuning.inverse_mass) * noise

    @property
    def adapts(self) -> bool:
        return self.scale is None

    def first_tuning(self, points: Count, size: int) -> Tuning:
        """The user's scale as it is, or 2.4/sqrt(d) times the scale of a regular model."""
        if self.scale is not None:
            return first_tuning(size, self.scale)
        scale = 2.4 / max(size, 1) ** 0.5
        return first_tuning(size, scale, 1.0 / jnp.maximum(points, 1), dense=size <= MOST_DENSE)


def check_positive(name: str, value: object, whole: bool = False) -> None:
    """Refuse a tuning constant that cannot be one."""
    if value is None:
        return
    kind = Integral if whole else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 < float(value) < math.inf:
        wanted = "a positive whole number" if whole else "a positive number"
        raise SettingsError(f"{name} must be {wanted}, got {value!r}")


def check_target(value: object) -> None:
    """Refuse a target acceptance rate outside (0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise SettingsError(f"target_acceptance must lie between 0 and 1, got {value!r}")
