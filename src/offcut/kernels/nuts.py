"""The No-U-Turn sampler on the augmented density p(theta | X, Y), in unconstrained space."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from offcut.base import LogDensity, Position, Stats, Tuning
from offcut.kernels.tuning import GradientKernel, check_positive, check_target
from offcut.numerics.types import KeyArray


@dataclass(frozen=True)
class NUTS(GradientKernel):
    """HMC that chooses its own trajectory length (Hoffman & Gelman 2014; BlackJAX's). The default.

    Parameters
    ----------
    step_size : float, optional
        In unconstrained space with a unit metric, and then not adapted.
    max_doublings : int
        A trajectory has at most 2**max_doublings leapfrog steps.
    target_acceptance : float
        What warm-up steers the step size to.
    """

    step_size: float | None = None
    max_doublings: int = 10
    target_acceptance: float = 0.8

    def __post_init__(self) -> None:
        check_positive("step_size", self.step_size)
        check_positive("max_doublings", self.max_doublings, whole=True)
        check_target(self.target_acceptance)

    def step(
        self, key: KeyArray, position: Position, log_density: LogDensity, tuning: Tuning
    ) -> tuple[Position, Stats]:
        """One NUTS transition."""
        from blackjax.mcmc import hmc, nuts

        start = hmc.init(position, log_density)
        state, info = nuts.build_kernel()(
            key, start, log_density, tuning.step_size, tuning.inverse_mass, self.max_doublings
        )
        return state.position, {
            "acceptance_rate": info.acceptance_rate,
            "diverging": info.is_divergent,
            "n_steps": info.num_integration_steps.astype(jnp.int32),
            "step_size": tuning.step_size,
            "log_density": start.logdensity,
            **self.score(start.position, start.logdensity_grad),
        }
