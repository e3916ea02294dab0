"""Hamiltonian Monte Carlo on the augmented density p(theta | X, Y), in unconstrained space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.mcmc.metrics import default_metric
from jaxtyping import Array, Float, Int

from offcut.base import LogDensity, Position, Stats, Tuning
from offcut.errors import SettingsError
from offcut.kernels.tuning import GradientKernel, check_positive, check_target
from offcut.numerics.types import KeyArray

#: A trajectory that loses more than this of its log density, momentum included, has diverged.
DIVERGING = 1000.0


class Place(NamedTuple):
    """A place on a trajectory."""

    position: Position
    momentum: Position
    log_density: Float[Array, ""]
    gradient: Position


@dataclass(frozen=True)
class HMC(GradientKernel):
    """Hamiltonian Monte Carlo with a fixed number of leapfrog steps (Neal 2011).

    Parameters
    ----------
    step_size : float, optional
        In unconstrained space with a unit metric, and then not adapted. By default step size and
        a diagonal metric are learnt in warm-up.
    num_steps : int
        Leapfrog steps for each sweep.
    target_acceptance : float
        What warm-up steers the step size to.
    jitter : float
        Each sweep's step size is uniform between 1 - jitter and 1 + jitter times the tuned one. A
        trajectory of a fixed length may come back to where it began, or always go to the other
        side (Neal 2011, section 3.2).
    """

    step_size: float | None = None
    num_steps: int = 10
    target_acceptance: float = 0.8
    jitter: float = 0.0
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("num_steps", self.num_steps, whole=True)
        check_target(self.target_acceptance)
        number = isinstance(self.jitter, Real) and not isinstance(self.jitter, bool)
        if not number or not 0 <= self.jitter < 1:
            raise SettingsError(f"jitter must be at least 0 and below 1, got {self.jitter!r}")

    def step(
        self, key: KeyArray, position: Position, log_density: LogDensity, tuning: Tuning
    ) -> tuple[Position, Stats]:
        """One HMC transition."""
        step_size = tuning.step_size
        if self.jitter:
            key, key_jitter = jax.random.split(key)
            spread = jax.random.uniform(key_jitter, minval=-self.jitter, maxval=self.jitter)
            step_size = step_size * (1.0 + spread)
        key_momentum, key_accept = jax.random.split(key)
        metric = default_metric(tuning.inverse_mass)
        momentum = metric.sample_momentum(key_momentum, position)
        start, end = self._trajectory(position, momentum, log_density, step_size, tuning)
        before = metric.kinetic_energy(momentum) - start.log_density
        after = metric.kinetic_energy(end.momentum) - end.log_density
        gain = jnp.where(jnp.isnan(before - after), -jnp.inf, before - after)
        rate = jnp.minimum(jnp.exp(gain), 1.0)
        accepted = jax.random.uniform(key_accept) < rate
        return jnp.where(accepted, end.position, position), {
            "acceptance_rate": rate,
            "diverging": -gain > DIVERGING,
            "n_steps": jnp.int32(self.num_steps),
            "step_size": tuning.step_size,
            "log_density": start.log_density,
            **self.score(position, start.gradient),
        }

    def _trajectory(
        self,
        position: Position,
        momentum: Position,
        log_density: LogDensity,
        step_size: Float[Array, ""],
        tuning: Tuning,
    ) -> tuple[Place, Place]:
        """Both ends of ``num_steps`` leapfrog steps.

        A step of size 0 goes before them, which evaluates the density where the trajectory begins:
        so it is compiled once.
        """
        value_and_gradient = jax.value_and_grad(log_density)

        def leapfrog(index: Int[Array, ""], ends: tuple[Place, Place]) -> tuple[Place, Place]:
            start, here = ends
            step = jnp.where(index == 0, 0.0, step_size)
            momentum = here.momentum + 0.5 * step * here.gradient
            position = here.position + step * (tuning.inverse_mass * momentum)
            value, gradient = value_and_gradient(position)
            there = Place(position, momentum + 0.5 * step * gradient, value, gradient)
            choose = partial(jnp.where, index == 0)
            return jax.tree.map(choose, there, start), there

        nowhere = Place(position, momentum, jnp.zeros(()), jnp.zeros_like(position))
        return jax.lax.fori_loop(0, self.num_steps + 1, leapfrog, (nowhere, nowhere))
