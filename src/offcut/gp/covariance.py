r"""Stationary covariances and spectral densities (Rasmussen & Williams 2006, section 4.2).

With r the distance in length-scales, t = sum_d (l_d omega_d)², d dimensions and variance 1

    squared exponential  exp(-r²/2)                    (2 pi)^{d/2} prod(l) exp(-t/2)
    Matérn 3/2           (1 + √3 r) exp(-√3 r)         c prod(l) (2 nu + t)^{-(nu + d/2)}
    Matérn 5/2           (1 + √5 r + 5r²/3) exp(-√5 r)   with c = 2^d pi^{d/2} (2 nu)^nu
                                                         Gamma(nu + d/2) / Gamma(nu)

Length-scales and variance (``Hyperparameters``) are fixed, or move along with the rest.
"""

from __future__ import annotations

from math import lgamma, log, pi, sqrt
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float

from offcut.errors import ModelError
from offcut.gp import types as t
from offcut.gp.data import GPData
from offcut.models.prior import Prior, Theta
from offcut.numerics.types import KeyArray
from offcut.programs.identity import digest


class Covariance(NamedTuple):
    """A family of stationary covariances.

    functions : basis functions needed for each length-scale in half the box. With so many, what
    is left out is about 1e-5 of the variance (squared exponential), 3e-4 (5/2) or 2e-3 (3/2).
    """

    name: str
    nu: float | None  # None for the squared exponential, the limit of large nu
    functions: float

    def correlations(
        self, x: Float[t.Floats, "d a"], y: Float[t.Floats, "d b"], xp: ModuleType = jnp
    ) -> Float[t.Floats, "a b"]:
        """Correlations between points, whose coordinates are in length-scales."""
        r = xp.sqrt(xp.sum((x[:, :, None] - y[:, None, :]) ** 2, axis=0))
        if self.nu is None:
            return xp.exp(-0.5 * r**2)
        scaled = sqrt(2 * self.nu) * r
        polynomial = 1 + scaled + (scaled**2 / 3 if self.nu > 2 else 0.0)
        return polynomial * xp.exp(-scaled)

    def log_spectral_density(
        self,
        log_length_scales: Float[t.Floats, " d"],
        frequencies: Float[np.ndarray, "m d"],
        xp: ModuleType = jnp,
    ) -> Float[t.Floats, " m"]:
        """log S of variance 1 at ``frequencies``."""
        d = frequencies.shape[1]
        t = xp.sum((xp.exp(log_length_scales)[None, :] * frequencies) ** 2, axis=1)
        volume = xp.sum(log_length_scales)
        if self.nu is None:
            return 0.5 * d * log(2 * pi) + volume - 0.5 * t
        nu = self.nu
        constant = (
            d * log(2) + 0.5 * d * log(pi) + nu * log(2 * nu) + lgamma(nu + 0.5 * d) - lgamma(nu)
        )
        return constant + volume - (nu + 0.5 * d) * xp.log(2 * nu + t)


SQUARED_EXPONENTIAL = Covariance("squared_exponential", None, 3.1)
COVARIANCES = {
    covariance.name: covariance
    for covariance in (
        SQUARED_EXPONENTIAL,
        Covariance("matern32", 1.5, 8.0),
        Covariance("matern52", 2.5, 5.0),
    )
}


def covariance_named(name: object) -> Covariance:
    """The family of this name."""
    known = COVARIANCES.get(name) if isinstance(name, str) else None
    if known is None:
        raise ModelError(
            f"covariance must be one of {', '.join(map(repr, COVARIANCES))}, got {name!r}"
        )
    return known


class Hyperparameters:
    """What is learned has a prior; what is fixed stands in ``data``.

    The prior of the length-scale is in units of ``data.unit``: 1, or where the prior is ours a
    standard deviation of the data. So no number of the data is part of the program.
    """

    def __init__(self, priors: dict[str, dist.Distribution], d: int) -> None:
        self.prior = Prior(priors) if priors else None
        self.key = tuple((name, digest(prior)) for name, prior in sorted(priors.items()))
        self.size = self.prior.size if self.prior is not None else 0
        self.d = d

    def values(self, position: t.Hyper, data: GPData) -> tuple[t.Vector, t.Number]:
        """Length-scales in the units of the data, and the variance."""
        learned = self._learned(position, data.unit)
        length_scale = learned.get("length_scale", data.length_scale)
        return jnp.broadcast_to(length_scale, (self.d,)), learned.get("variance", data.variance)

    def log_prior(self, position: t.Hyper) -> t.Number:
        """log density of the unconstrained position."""
        return jnp.zeros(()) if self.prior is None else self.prior.log_density(position, {})

    def first(self, key: KeyArray) -> t.Hyper:
        """Where a chain starts: halfway between a draw of the prior and the median of many."""
        prior = self.prior
        if prior is None:
            return jnp.zeros(0)
        own = jax.random.split(key, 17)
        drawn = jax.vmap(lambda own: prior.unconstrain(prior.sample(own)))(own)
        middle = jnp.sort(drawn[1:], axis=0)[7:9]  # of sixteen
        return 0.5 * drawn[0] + 0.25 * (middle[0] + middle[1])

    def record(self, position: t.Hyper, unit: t.Vector) -> Theta:
        """What was learned, in the units of the data."""
        learned = self._learned(position, unit)
        if "length_scale" in learned and self.d == 1:
            learned["length_scale"] = learned["length_scale"][0]
        return learned

    def _learned(self, position: t.Hyper, unit: t.Vector) -> Theta:
        learned = {} if self.prior is None else dict(self.prior.constrain(position, {}))
        if "length_scale" in learned:
            learned["length_scale"] = learned["length_scale"] * unit
        return learned
