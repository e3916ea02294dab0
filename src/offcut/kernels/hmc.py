"""Hamiltonian Monte Carlo on the augmented density p(theta | X, Y), in unconstrained space."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import jax
import jax.numpy as jnp

from offcut.base import LogDensity, Position, Stats, Tuning
from offcut.errors import SettingsError
from offcut.kernels.tuning import GradientKernel, check_positive, check_target
from offcut.numerics.types import KeyArray


@dataclass(frozen=True)
class HMC(GradientKernel):
    """Hamiltonian Monte Carlo with a fixed number of leapfrog steps (Neal 2011; BlackJAX's).

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
        from blackjax.mcmc import hmc

        start = hmc.init(position, log_density)
        step_size = tuning.step_size
        if self.jitter:
            key, key_jitter = jax.random.split(key)
            spread = jax.random.uniform(key_jitter, minval=-self.jitter, maxval=self.jitter)
            step_size = step_size * (1.0 + spread)
        state, info = hmc.build_kernel()(
            key, start, log_density, step_size, tuning.inverse_mass, self.num_steps
        )
        return state.position, {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "n_steps": jnp.int32(self.num_steps),
            "step_size": tuning.step_size,
            "log_density": start.logdensity,
            **self.score(start.position, start.logdensity_grad),
        }
