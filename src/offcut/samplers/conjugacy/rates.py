"""Rates with a gamma prior: each point multiplies the likelihood by r^s exp(-r t).

With r = c phi, where phi is a site or its inverse,

    phi ~ Gamma(a, b),    phi | X, Y ~ Gamma(a + sum s, b + c sum t).

The precision of a normal with known mean is such a rate, with s = 1/2 and t = (x - mean)² / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.models.prior import Theta
from offcut.models.rejection import Point
from offcut.samplers.conjugacy.contract import Match
from offcut.samplers.conjugacy.monomials import raise_to
from offcut.samplers.conjugacy.priors import constant, gamma_prior, site_of
from offcut.samplers.conjugacy.reading import Family, Reading

_TINY = np.finfo(float).tiny


class Form(NamedTuple):
    """r = parameter ** power, and what one point adds: (s, t)."""

    parameter: str
    power: Any
    share: Callable[[jax.Array], tuple[Any, Any]]


def _known(base: Family, name: str) -> np.ndarray:
    return constant(base, name, "the base")


def _exponential(base: Family) -> Form:
    return Form("rate", 1, lambda x: (1.0, x))


def _gamma(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("rate", 1, lambda x: (shape, x))


def _inverse_gamma(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("rate", 1, lambda x: (shape, 1 / x))


def _poisson(base: Family) -> Form:
    return Form("rate", 1, lambda x: (x, 1.0))


def _pareto(base: Family) -> Form:
    scale = _known(base, "scale")
    return Form("alpha", 1, lambda x: (1.0, jnp.log(x / scale)))


def _weibull(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("scale", -shape, lambda x: (1.0, x**shape))


def _laplace(base: Family) -> Form:
    loc = _known(base, "loc")
    return Form("scale", -1, lambda x: (1.0, jnp.abs(x - loc)))


def _half_normal(base: Family) -> Form:
    return Form("scale", -2, lambda x: (0.5, 0.5 * x**2))


def _normal(base: Family) -> Form | None:
    loc = base.constant("loc")
    if loc is None:
        return None  # see normal.py
    log = base.kind == "LogNormal"
    return Form("scale", -2, lambda x: (0.5, 0.5 * ((jnp.log(x) if log else x) - loc) ** 2))


def _beta(base: Family) -> Form | None:
    """The density r x^(r - 1) or its mirror image: one concentration is 1."""
    one, zero = base.constant("concentration1"), base.constant("concentration0")
    if zero is not None and (zero == 1).all():
        # NumPyro writes the smallest of floats where a draw rounds to 0.
        return Form("concentration1", 1, lambda x: (1.0, -jnp.log(jnp.where(x > _TINY, x, 0.0))))
    if one is not None and (one == 1).all():
        return Form("concentration0", 1, lambda x: (1.0, -jnp.log(1 - x)))
    return None


#: By the base's kind; None where a parameter that must be known is not, but may be elsewhere.
FORMS: dict[str, Callable[[Family], Form | None]] = {
    "Beta": _beta,
    "Exponential": _exponential,
    "Gamma": _gamma,
    "HalfNormal": _half_normal,
    "InverseGamma": _inverse_gamma,
    "Laplace": _laplace,
    "LogNormal": _normal,
    "Normal": _normal,
    "Pareto": _pareto,
    "Poisson": _poisson,
    "Weibull": _weibull,
}
KINDS = frozenset(FORMS)


@dataclass(frozen=True, eq=False)
class RateMatch(Match):
    """phi = site ** exponent, exponent 1 or -1, and r = coefficient * phi."""

    form: Form
    exponent: int
    coefficient: np.ndarray
    prior: tuple[np.ndarray, np.ndarray]

    def statistic(self, point: Point, centre: jax.Array) -> tuple[jax.Array, jax.Array]:
        """s and t of one point."""
        s, t = self.form.share(jnp.asarray(point, float))
        shape = self.coefficient.shape
        return jnp.broadcast_to(s, shape), jnp.broadcast_to(t, shape)

    def draw(
        self, key: jax.Array, theta: Theta, statistics: Any, count: jax.Array, centre: jax.Array
    ) -> Theta:
        """phi from its gamma distribution."""
        (a, b), (s, t) = self.prior, statistics
        phi = draw_gamma(key, a + s, b + self.coefficient * t)
        return {self.sites[0]: phi**self.exponent}


def draw_gamma(key: jax.Array, shape: jax.Array, rate: jax.Array) -> jax.Array:
    """Gamma(shape, rate).

    It may round to 0, which has neither logarithm nor inverse: the sweep says so, for the smallest
    of floats in its place would be another draw, at which a chain can get stuck.
    """
    return jax.random.gamma(key, shape) / rate


def find(reading: Reading) -> Match | None:
    """The update of a rate, if the base is one of ``KINDS`` and has no other unknown parameter."""
    form = FORMS[reading.base.kind](reading.base)
    if form is None:
        return None
    name = form.parameter if form.power == 1 else f"{form.parameter} ** {form.power}"
    parameter = reading.base.parameters[form.parameter]
    power = site_of(
        reading, raise_to(parameter, form.power, reading.elements.positive), form.parameter
    )
    prior = gamma_prior(reading, power, name)
    drawn = "gamma" if power.exponent == 1 else "inverse gamma"
    return RateMatch(
        f"{reading.base.kind}: {power.site} {drawn}",
        (power.site,),
        form,
        int(power.exponent),
        power.coefficient,
        prior,
    )
