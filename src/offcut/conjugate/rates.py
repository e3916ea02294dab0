r"""Rates with a gamma prior: each point multiplies the likelihood by r^s exp(-r t).

With r = c phi, where phi is a site or its inverse,

    phi ~ Gamma(a, b),    phi | X, Y ~ Gamma(a + sum s, b + c sum t).

The precision of a normal with known mean is such a rate, with s = 1/2 and t = (x - mean)² / 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.conjugate.monomials import raise_to
from offcut.conjugate.outcome import Match
from offcut.conjugate.priors import gamma_prior, site_of
from offcut.conjugate.rate_forms import FORMS, Form
from offcut.conjugate.reading import Reading
from offcut.models.rejection import Point
from offcut.prior import Theta

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
