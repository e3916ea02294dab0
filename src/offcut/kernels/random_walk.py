"""Random-walk Metropolis on the augmented density p(theta | X, Y), in unconstrained space."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from offcut.base import LogDensity, Stats
from offcut.kernels.base import WalkKernel, check_positive, check_target
from offcut.kernels.tuning import Tuning


def walk(key: jax.Array, position: jax.Array, tuning: Tuning) -> jax.Array:
    """A symmetric normal proposal, scaled by what warm-up has learnt."""
    noise = jax.random.normal(key, position.shape)
    if tuning.inverse_mass.ndim == 2:
        return position + tuning.step_size * (jnp.linalg.cholesky(tuning.inverse_mass) @ noise)
    return position + tuning.step_size * jnp.sqrt(tuning.inverse_mass) * noise


@dataclass(frozen=True)
class RandomWalk(WalkKernel):
    """Metropolis with normal steps.

    Parameters
    ----------
    scale : float, optional
        Standard deviation of a step in unconstrained space, and then not adapted.
    target_acceptance : float
        What warm-up steers the scale to.
    """

    scale: float | None = None
    target_acceptance: float = 0.3

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_target(self.target_acceptance)

    def step(
        self, key: jax.Array, position: jax.Array, log_density: LogDensity, tuning: Tuning
    ) -> tuple[jax.Array, Stats]:
        """One Metropolis step."""
        key_walk, key_accept = jax.random.split(key)
        proposal = walk(key_walk, position, tuning)
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
