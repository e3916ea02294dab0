r"""Stationary covariances and spectral densities (Rasmussen & Williams 2006, section 4.2).

With r the distance in length-scales, t = sum_d (l_d omega_d)², d dimensions and variance 1

    squared exponential  exp(-r²/2)                    (2 pi)^{d/2} prod(l) exp(-t/2)
    Matérn 3/2           (1 + √3 r) exp(-√3 r)         c prod(l) (2 nu + t)^{-(nu + d/2)}
    Matérn 5/2           (1 + √5 r + 5r²/3) exp(-√5 r)   with c = 2^d pi^{d/2} (2 nu)^nu
                                                         Gamma(nu + d/2) / Gamma(nu)
"""

from __future__ import annotations

from math import lgamma, log, pi, sqrt
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from offcut.errors import ModelError


class Covariance(NamedTuple):
    """A family of stationary covariances.

    functions : basis functions needed for each length-scale in half the box. With so many, what
    is left out is about 1e-5 of the variance (squared exponential), 3e-4 (5/2) or 2e-3 (3/2).
    """

    name: str
    nu: float | None  # None for the squared exponential, the limit of large nu
    functions: float

    def correlation(self, r: Any, xp: Any = jnp) -> Any:
        """The correlation at distances of r length-scales."""
        if self.nu is None:
            return xp.exp(-0.5 * r**2)
        scaled = sqrt(2 * self.nu) * r
        polynomial = 1 + scaled + (scaled**2 / 3 if self.nu > 2 else 0.0)
        return polynomial * xp.exp(-scaled)

    def log_spectral_density(self, log_length_scales: Any, frequencies: Any, xp: Any = jnp) -> Any:
        """log S of variance 1 at ``frequencies`` (M, d) for length-scales (d,): (M,)."""
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


def distances(x: np.ndarray, y: np.ndarray, length_scales: np.ndarray) -> np.ndarray:
    """Distances in length-scales between points (n, d) and (m, d): (n, m)."""
    apart = (x[:, None, :] - y[None, :, :]) / length_scales
    return np.sqrt(np.sum(apart**2, axis=-1))
