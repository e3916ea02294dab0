"""Length-scale and variance of the process: fixed, or moved along with the rest."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from offcut.gp.basis import Basis
from offcut.gp.covariance import Covariance
from offcut.prior import Prior


class Hyperparameters:
    """What is learned has a prior, in the units of the data; what is fixed stands in ``data``."""

    def __init__(self, priors: dict[str, Any], d: int) -> None:
        self.prior = Prior(priors) if priors else None
        self.names = tuple(sorted(priors))
        self.size = self.prior.size if self.prior is not None else 0
        self.d = d

    def values(self, position: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
        """Length-scales (d,) in the units of the data, and the variance."""
        learned = {} if self.prior is None else self.prior.constrain(position, {})
        length_scale = learned.get("length_scale", data.length_scale)
        variance = learned.get("variance", data.variance)
        return jnp.broadcast_to(length_scale, (self.d,)), variance

    def log_prior(self, position: jax.Array) -> jax.Array:
        """log density of the unconstrained position."""
        return jnp.zeros(()) if self.prior is None else self.prior.log_density(position, {})

    def root_spectrum(
        self, basis: Basis, covariance: Covariance, position: jax.Array, data: Any
    ) -> jax.Array:
        """D: √S of all basis functions, (M,)."""
        length_scales, variance = self.values(position, data)
        log_S = basis.log_spectrum(covariance, jnp.log(length_scales / data.half))
        return jnp.exp(0.5 * (log_S + jnp.log(variance)))

    def record(self, position: jax.Array) -> dict[str, jax.Array]:
        """What was learned."""
        return {} if self.prior is None else self.prior.constrain(position, {})
