"""Random-walk Metropolis in unconstrained space, judged by a density or by the route it goes."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from offcut.base import LogDensity, Position, Stats, Tuning
from offcut.kernels.tuning import WalkKernel, check_positive, check_target
from offcut.numerics.types import KeyArray


@dataclass(frozen=True)
class RandomWalk(WalkKernel):
    """Metropolis with normal steps.

    Parameters
    ----------
    scale : float, optional
        Standard deviation of a step in unconstrained space, and then not adapted.
    target_acceptance : float, optional
        What warm-up steers the scale to. By default 0.3, on the routes "exchange" 0.25 and
        "pseudo_marginal" 0.2.
    """

    scale: float | None = None
    target_acceptance: float | None = None

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        if self.target_acceptance is not None:
            check_target(self.target_acceptance)

    def step(
        self, key: KeyArray, position: Position, log_density: LogDensity, tuning: Tuning
    ) -> tuple[Position, Stats]:
        """One Metropolis step."""
        key_walk, key_accept = jax.random.split(key)
        proposal = self.propose(key_walk, position, tuning)
        # Through a loop, so that the density is compiled once.
        there, here = jax.lax.map(log_density, jnp.stack([proposal, position]))
        log_ratio = there - here
        rate = jnp.exp(jnp.minimum(jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio), 0.0))
        accepted = jax.random.uniform(key_accept) < rate
        return jnp.where(accepted, proposal, position), {
            "acceptance_rate": rate,
            "accepted": accepted,
            "step_size": tuning.step_size,
            "log_density": here,
        }
