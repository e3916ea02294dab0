"""Hamiltonian Monte Carlo on the augmented density p(theta | X, Y), in unconstrained space."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import ClassVar

import jax
import jax.numpy as jnp

from offcut.errors import SettingsError
from offcut.kernels.tuning import Tuning, first_tuning

LogDensity = Callable[[jax.Array], jax.Array]
Stats = dict[str, jax.Array]


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


@dataclass(frozen=True)
class HMC:
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
    """

    step_size: float | None = None
    num_steps: int = 10
    target_acceptance: float = 0.8
    given_rejections: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("num_steps", self.num_steps, whole=True)
        check_target(self.target_acceptance)

    @property
    def adapts(self) -> bool:
        """Whether warm-up tunes this kernel."""
        return self.step_size is None

    def first_tuning(self, points: int, size: int) -> Tuning:
        """The user's step as it is, or one on the scale of a regular model with such points."""
        if self.step_size is not None:
            return first_tuning(size, self.step_size)
        return first_tuning(size, 1.0, variance=1.0 / max(points, 1))

    def step(
        self, key: jax.Array, position: jax.Array, log_density: LogDensity, tuning: Tuning
    ) -> tuple[jax.Array, Stats]:
        """One HMC transition."""
        from blackjax.mcmc import hmc

        state = hmc.init(position, log_density)
        state, info = hmc.build_kernel()(
            key, state, log_density, tuning.step_size, tuning.inverse_mass, self.num_steps
        )
        return state.position, {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "n_steps": jnp.int32(self.num_steps),
            "step_size": tuning.step_size,
        }
