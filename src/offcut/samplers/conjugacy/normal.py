r"""A normal with unknown mean mu, its variance known or unknown; or the logarithm of one.

The base has precision tau = s phi with phi = site or 1 / site, phi ~ Gamma(a, b), or a known tau.
Sums run over d = x - c about a fixed centre c: N, S1 = sum d, and W = sum d² - S1² / N.

*Independent prior* mu ~ N(m, 1/p0), in two blocks, each given the other:

    mu | phi  ~ N(c + (p0 (m - c) + tau S1) / P, 1 / P),     P = p0 + N tau,
    phi | mu  ~ Gamma(a + N/2, b + s [W + N (mu - c - S1/N)²] / 2).

*Dependent prior* mu ~ N(m, 1 / (k phi)), normal-gamma, in one piece:

    phi       ~ Gamma(a + N/2, b + [s W + k s N / (k + s N) (S1/N + c - m)²] / 2),
    mu | phi  ~ N(c + (k (m - c) + s S1) / (k + s N), 1 / ((k + s N) phi)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.models.prior import Theta
from offcut.models.rejection import Point
from offcut.samplers.conjugacy.contract import Match, Unmatched
from offcut.samplers.conjugacy.monomials import raise_to
from offcut.samplers.conjugacy.priors import constant, gamma_prior, site_of
from offcut.samplers.conjugacy.rates import draw_gamma
from offcut.samplers.conjugacy.reading import Family, Reading

KINDS = frozenset({"Normal", "LogNormal"})


class Precision(NamedTuple):
    """scale * phi, where phi = site ** exponent; or just scale, where site is None."""

    site: str | None
    exponent: int
    scale: np.ndarray


@dataclass(frozen=True, eq=False)
class NormalMatch(Match):
    """The two or the one block above; ``sites`` are mu and, if unknown, phi's."""

    logarithm: bool
    base: Precision
    mean_prior: tuple[np.ndarray, Precision]
    phi_prior: tuple[np.ndarray, np.ndarray] | None

    def centre(self, points: Point) -> np.ndarray:
        """The mean of the data."""
        points = np.asarray(points, float)
        return np.mean(np.log(points) if self.logarithm else points, axis=0)

    def statistic(self, point: Point, centre: jax.Array) -> tuple[jax.Array, jax.Array]:
        """d and d²."""
        x = jnp.asarray(point, float)
        d = (jnp.log(x) if self.logarithm else x) - centre
        return d, d**2

    def draw(
        self, key: jax.Array, theta: Theta, statistics: Any, count: jax.Array, centre: jax.Array
    ) -> Theta:
        """mu and phi."""
        S1, S2 = statistics
        N = jnp.asarray(count, float)
        W = jnp.maximum(S2 - S1**2 / N, 0.0)
        if self.mean_prior[1].site is None:
            return self._independent(key, theta, N, S1, W, centre)
        return self._dependent(key, N, S1, W, centre)

    def _independent(self, key: jax.Array, theta: Theta, N: Any, S1: Any, W: Any, c: Any) -> Theta:
        key_mu, key_phi = jax.random.split(key)
        (m, prior), s = self.mean_prior, self.base.scale
        tau = s if self.base.site is None else s * theta[self.base.site] ** self.base.exponent
        P = prior.scale + N * tau
        shift = (prior.scale * (m - c) + tau * S1) / P  # mu - c
        shift = shift + jax.random.normal(key_mu, shift.shape) / jnp.sqrt(P)
        new = {self.sites[0]: c + shift}
        if self.phi_prior is not None and self.base.site is not None:
            a, b = self.phi_prior
            squares = W + N * (shift - S1 / N) ** 2
            phi = draw_gamma(key_phi, a + N / 2, b + s * squares / 2)
            new[self.base.site] = phi**self.base.exponent
        return new

    def _dependent(self, key: jax.Array, N: Any, S1: Any, W: Any, c: Any) -> Theta:
        assert self.phi_prior is not None
        assert self.base.site is not None
        key_mu, key_phi = jax.random.split(key)
        (m, prior), s, (a, b) = self.mean_prior, self.base.scale, self.phi_prior
        k = prior.scale
        squares = s * W + k * s * N / (k + s * N) * (S1 / N + c - m) ** 2
        phi = draw_gamma(key_phi, a + N / 2, b + squares / 2)
        shift = (k * (m - c) + s * S1) / (k + s * N)
        shift = shift + jax.random.normal(key_mu, shift.shape) / jnp.sqrt((k + s * N) * phi)
        return {self.sites[0]: c + shift, self.base.site: phi**self.base.exponent}


def find(reading: Reading) -> Match:
    """The update of a normal's mean and variance; a known mean is a matter of ``rates``."""
    base = reading.base
    mean = site_of(reading, base.parameters["loc"], "loc")
    if mean.exponent != 1 or (mean.coefficient != 1).any():
        raise Unmatched(f"loc of the base is not {mean.site!r} itself")
    precision = _precision(reading, base, "the base")
    prior = reading.priors[mean.site]
    if prior.kind != "Normal":
        raise Unmatched(f"{mean.site!r} has a {prior.kind} prior; a Normal prior would match")
    whose = f"the prior of {mean.site!r}"
    m = constant(prior, "loc", whose)
    mean_precision = _precision(reading, prior, whose)
    if mean_precision.site is not None and mean_precision[:2] != precision[:2]:
        raise Unmatched(f"scale of {whose} depends on a parameter other than the base's variance")
    mu, v, phi_prior = mean.site, precision.site, None
    if v is not None:
        power = site_of(
            reading, raise_to(base.parameters["scale"], -2, reading.elements.positive), "scale"
        )
        phi_prior = gamma_prior(reading, power, "the precision, scale ** -2,")
    gamma = "gamma" if precision.exponent == 1 else "inverse gamma"
    if v is None:
        how = f"{mu} normal"
    elif mean_precision.site is None:
        how = f"{mu} | {v} normal, {v} | {mu} {gamma}"
    else:
        how = f"({mu}, {v}) normal-{gamma.replace(' ', '-')}"
    name = "log normal" if base.kind == "LogNormal" else "normal"
    return NormalMatch(
        f"{name}: {how}",
        (mu,) if v is None else (mu, v),
        base.kind == "LogNormal",
        precision,
        (m, mean_precision),
        phi_prior,
    )


def _precision(reading: Reading, family: Family, whose: str) -> Precision:
    """1 / scale² of a normal."""
    known = family.constant("scale")
    if known is not None:
        return Precision(None, 1, known**-2.0)
    squared = raise_to(family.parameters["scale"], -2, reading.elements.positive)
    power = reading.power_of(squared)
    if power is None or power.form != "itself" or abs(power.exponent) != 1:
        what = f"scale of {whose}"
        if power is not None and power.exponent in (-2, 2):
            raise Unmatched(
                f"{what} is a parameter with a {reading.priors[power.site].kind} prior; a scale "
                "that is the square root of a variance with an InverseGamma prior would match"
            )
        raise Unmatched(f"{what} is neither fixed nor the square root of one parameter")
    return Precision(power.site, int(power.exponent), power.coefficient)
