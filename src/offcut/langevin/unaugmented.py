r"""kappa without rejections: with the exact normaliser, or with an approximate one.

``CollapsedSampler`` targets p(kappa | X, H) with G integrated out,

    p(kappa) Z(S H kappa + F0) / Z(kappa)^n,

Z of a matrix being that of its singular values (F0 = 0 for a uniform prior); G and H are drawn
afterwards, which makes (kappa, G) one joint draw. ``AsymptoticSampler`` has Khatri & Mardia's
approximation in place of Z, given G: the paper's approximate sampler. It is not exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from offcut.langevin.asymptotics import approximate_log_normaliser
from offcut.langevin.normaliser import log_normaliser, log_normaliser_of
from offcut.langevin.sampler import LangevinData, LangevinSampler, State
from offcut.sampler import OK, Stage


class UnaugmentedSampler(LangevinSampler):
    """A kernel on a density of kappa that can be evaluated."""

    def log_likelihood(self, kappa: jax.Array, state: State, data: LangevinData) -> jax.Array:
        """log p(X | kappa, ...) up to a constant."""
        raise NotImplementedError

    def move(
        self, key: jax.Array, state: State, stage: Stage, data: LangevinData
    ) -> tuple[State, dict[str, jax.Array], jax.Array]:
        """One step of the kernel."""

        def log_density(position: jax.Array) -> jax.Array:
            likelihood = self.log_likelihood(self.kappa(position), state, data)
            return self.prior.log_density(position, {}) + likelihood

        moved, stats = self.kernel_step(key, state, log_density, stage)
        # No rejections, so there is no missing information to compute from a score.
        kept = {name: value for name, value in stats.items() if value.ndim == 0}
        return moved, {"rejected": jnp.int32(0), **kept}, jnp.int32(OK)


class CollapsedSampler(UnaugmentedSampler):
    """G integrated out, Z exact."""

    def log_likelihood(self, kappa: jax.Array, state: State, data: LangevinData) -> jax.Array:
        """log Z(S H kappa + F0) - n log Z(kappa)."""
        joint = (data.S @ state.H) * kappa[None, :] + data.F0
        return log_normaliser_of(joint) - data.n * log_normaliser(kappa, self.layout.d)


class AsymptoticSampler(UnaugmentedSampler):
    """Z approximate, given G."""

    def log_likelihood(self, kappa: jax.Array, state: State, data: LangevinData) -> jax.Array:
        """kappa·diag(GᵀSH) - n log Z(kappa), approximately."""
        log_z = approximate_log_normaliser(kappa, self.layout.d)
        return jnp.sum(kappa * self.along(state, data)) - data.n * log_z
