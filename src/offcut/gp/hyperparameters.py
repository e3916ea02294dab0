"""Length-scale and variance of the process: fixed, or moved along with the rest."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from offcut.gp.basis import Basis
from offcut.gp.covariance import Covariance
from offcut.models.prior import Prior
from offcut.programs.identity import digest


class Hyperparameters:
    """What is learned has a prior; what is fixed stands in ``data``.

    The prior of the length-scale is in units of ``data.unit``: 1, or where the prior is ours a
    standard deviation of the data. So no number of the data is part of the program.
    """

    def __init__(self, priors: dict[str, Any], d: int) -> None:
        self.prior = Prior(priors) if priors else None
        self.key = tuple((name, digest(prior)) for name, prior in sorted(priors.items()))
        self.size = self.prior.size if self.prior is not None else 0
        self.d = d

    def values(self, position: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
        """Length-scales (d,) in the units of the data, and the variance."""
        learned = {} if self.prior is None else self.prior.constrain(position, {})
        length_scale = data.length_scale
        if "length_scale" in learned:
            length_scale = learned["length_scale"] * data.unit
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

    def record(self, position: jax.Array, unit: jax.Array) -> dict[str, jax.Array]:
        """What was learned, in the units of the data."""
        learned = {} if self.prior is None else dict(self.prior.constrain(position, {}))
        if "length_scale" in learned:
            length_scale = learned["length_scale"] * unit
            learned["length_scale"] = length_scale[0] if self.d == 1 else length_scale
        return learned
