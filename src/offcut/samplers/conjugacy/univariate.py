r"""Single numbers, or vectors of independent ones: rates, probabilities, normals.

*Rates with a gamma prior.* Each point multiplies the likelihood by r^s exp(-r t). With r = c phi,
where phi is a site or its inverse,

    phi ~ Gamma(a, b),    phi | X, Y ~ Gamma(a + sum s, b + c sum t).

The precision of a normal with known mean is such a rate, with s = 1/2 and t = (x - mean)² / 2.

*Probabilities with a beta prior.* Each point multiplies the likelihood by p^s (1 - p)^f:

    p ~ Beta(a, b),    p | X, Y ~ Beta(a + sum s, b + sum f).

*A normal with unknown mean* mu, its variance known or unknown; or the logarithm of one. The base
has precision tau = s phi with phi = site or 1 / site, phi ~ Gamma(a, b), or a known tau. Sums run
over d = x - c about a fixed centre c: N, S1 = sum d, and W = sum d² - S1² / N. With an
*independent prior* mu ~ N(m, 1/p0), in two blocks, each given the other:

    mu | phi  ~ N(c + (p0 (m - c) + tau S1) / P, 1 / P),     P = p0 + N tau,
    phi | mu  ~ Gamma(a + N/2, b + s [W + N (mu - c - S1/N)²] / 2).

With a *dependent prior* mu ~ N(m, 1 / (k phi)), normal-gamma, in one piece:

    phi       ~ Gamma(a + N/2, b + [s W + k s N / (k + s N) (S1/N + c - m)²] / 2),
    mu | phi  ~ N(c + (k (m - c) + s S1) / (k + s N), 1 / ((k + s N) phi)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from offcut.models.data import HostPoints
from offcut.models.prior import Theta
from offcut.numerics.types import KeyArray, Point, Points
from offcut.samplers.conjugacy import Centre, Count, Match, Unmatched
from offcut.samplers.conjugacy.reading import Family, Power, Reading, raise_to

_TINY = np.finfo(float).tiny
#: A number that does not depend on theta, of the shape of one point.
Known = Float[np.ndarray, "*point"]
#: Numbers of the shape of one point, or one for all.
Numbers = Float[Array, "..."]
Pair = tuple[Numbers, Numbers]
#: What one point adds to the two sums over all of them.
Share = Callable[[jax.Array], tuple[ArrayLike, ArrayLike]]


def find(reading: Reading) -> Match | None:
    """The update of a base of single numbers; None where no family here has its kind."""
    kind = reading.base.kind
    found = find_rate(reading) if kind in RATES else None
    if found is None and kind in PROBABILITIES:
        return find_probability(reading)
    if found is None and kind in ("Normal", "LogNormal"):
        return find_normal(reading)
    return found


class Form(NamedTuple):
    """r = parameter ** power, and what one point adds: (s, t)."""

    parameter: str
    power: float | Known
    share: Share


def _with(
    known: str | None,
    parameter: str,
    power: int,
    share: Callable[[jax.Array, Known], tuple[ArrayLike, ArrayLike]],
) -> Callable[[Family], Form]:
    """A form of which one parameter (or none) must be known: ``share(x, its value)``."""

    def of(base: Family) -> Form:
        value = np.ones(()) if known is None else base.fixed(known, "the base")
        return Form(parameter, power, lambda x: share(x, value))

    return of


def _weibull(base: Family) -> Form:
    shape = base.fixed("concentration", "the base")
    return Form("scale", -shape, lambda x: (1.0, x**shape))


def _normal(base: Family) -> Form | None:
    loc = base.constant("loc")
    if loc is None:
        return None  # see NormalMatch
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
RATES: dict[str, Callable[[Family], Form | None]] = {
    "Beta": _beta,
    "Exponential": _with(None, "rate", 1, lambda x, _: (1.0, x)),
    "Gamma": _with("concentration", "rate", 1, lambda x, shape: (shape, x)),
    "HalfNormal": _with(None, "scale", -2, lambda x, _: (0.5, 0.5 * x**2)),
    "InverseGamma": _with("concentration", "rate", 1, lambda x, shape: (shape, 1 / x)),
    "Laplace": _with("loc", "scale", -1, lambda x, loc: (1.0, jnp.abs(x - loc))),
    "LogNormal": _normal,
    "Normal": _normal,
    "Pareto": _with("scale", "alpha", 1, lambda x, scale: (1.0, jnp.log(x / scale))),
    "Poisson": _with(None, "rate", 1, lambda x, _: (x, 1.0)),
    "Weibull": _weibull,
}


@dataclass(frozen=True, eq=False)
class RateMatch(Match):
    """phi = site ** exponent, exponent 1 or -1, and r = coefficient * phi."""

    form: Form
    exponent: int
    coefficient: Known
    prior: tuple[Known, Known]

    def statistic(self, point: Point, centre: Centre) -> Pair:
        """s and t of one point."""
        s, t = self.form.share(jnp.asarray(point, float))
        shape = self.coefficient.shape
        return jnp.broadcast_to(s, shape), jnp.broadcast_to(t, shape)

    def draw(
        self, key: KeyArray, theta: Theta, statistics: Pair, count: Count, centre: Centre
    ) -> Theta:
        """phi from its gamma distribution."""
        (a, b), (s, t) = self.prior, statistics
        phi = draw_gamma(key, s + a, self.coefficient * t + b)
        return {self.sites[0]: phi**self.exponent}


def draw_gamma(key: KeyArray, shape: Numbers, rate: Numbers) -> Numbers:
    """Gamma(shape, rate).

    It may round to 0, which has neither logarithm nor inverse: the sweep says so, for the smallest
    of floats in its place would be another draw, at which a chain can get stuck.
    """
    return jax.random.gamma(key, shape) / rate


def find_rate(reading: Reading) -> Match | None:
    """The update of a rate, if the base has no other unknown parameter."""
    form = RATES[reading.base.kind](reading.base)
    if form is None:
        return None
    name = form.parameter if form.power == 1 else f"{form.parameter} ** {form.power}"
    parameter = reading.base.parameters[form.parameter]
    power = reading.site_of(
        raise_to(parameter, form.power, reading.elements.positive), form.parameter
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


def _binomial(base: Family) -> Share:
    total = base.fixed("total_count", "the base")
    return lambda x: (x, total - x)


#: One point's successes and failures, by the base's kind.
PROBABILITIES: dict[str, Callable[[Family], Share]] = {
    "BernoulliProbs": lambda base: lambda x: (x, 1 - x),
    "BinomialProbs": _binomial,
    "GeometricProbs": lambda base: lambda x: (1.0, x),
}


@dataclass(frozen=True, eq=False)
class ProbabilityMatch(Match):
    """The site is the probability itself."""

    share: Share
    prior: tuple[Known, Known]

    def statistic(self, point: Point, centre: Centre) -> Pair:
        """Successes and failures of one point."""
        s, f = self.share(jnp.asarray(point, float))
        shape = self.prior[0].shape
        return jnp.broadcast_to(s, shape), jnp.broadcast_to(f, shape)

    def draw(
        self, key: KeyArray, theta: Theta, statistics: Pair, count: Count, centre: Centre
    ) -> Theta:
        """The probability; what rounds to 1 is the float before it.

        That is right to within rounding. What rounds to 0 is not: see ``draw_gamma``.
        """
        (a, b), (s, f) = self.prior, statistics
        p = jax.random.beta(key, a + s, b + f)
        return {self.sites[0]: jnp.minimum(p, 1 - np.finfo(float).epsneg)}


def find_probability(reading: Reading) -> Match:
    """The update of a probability."""
    share = PROBABILITIES[reading.base.kind](reading.base)
    site, kind = reading.itself("probs"), reading.base.kind.removesuffix("Probs")
    return ProbabilityMatch(f"{kind}: {site} beta", (site,), share, beta_prior(reading, site))


class Precision(NamedTuple):
    """scale * phi, where phi = site ** exponent; or just scale, where site is None."""

    site: str | None
    exponent: int
    scale: Known


@dataclass(frozen=True, eq=False)
class NormalMatch(Match):
    """The two or the one block above; ``sites`` are mu and, if unknown, phi's."""

    logarithm: bool
    base: Precision
    mean_prior: tuple[Known, Precision]
    phi_prior: tuple[Known, Known] | None

    def centre(self, points: Points | HostPoints) -> np.ndarray | np.floating:
        """The mean of the data."""
        x = np.asarray(points, float)
        return np.mean(np.log(x) if self.logarithm else x, axis=0)

    def statistic(self, point: Point, centre: Centre) -> Pair:
        """d and d²."""
        x = jnp.asarray(point, float)
        d = (jnp.log(x) if self.logarithm else x) - centre
        return d, d**2

    def draw(
        self, key: KeyArray, theta: Theta, statistics: Pair, count: Count, centre: Centre
    ) -> Theta:
        """mu and phi."""
        S1, S2 = statistics
        N = jnp.asarray(count, float)
        W = jnp.maximum(S2 - S1**2 / N, 0.0)
        if self.mean_prior[1].site is None:
            return self._independent(key, theta, N, S1, W, centre)
        return self._dependent(key, N, S1, W, centre)

    def _independent(
        self, key: KeyArray, theta: Theta, N: Numbers, S1: Numbers, W: Numbers, c: Centre
    ) -> Theta:
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
            phi = draw_gamma(key_phi, N / 2 + a, s * squares / 2 + b)
            new[self.base.site] = phi**self.base.exponent
        return new

    def _dependent(self, key: KeyArray, N: Numbers, S1: Numbers, W: Numbers, c: Centre) -> Theta:
        assert self.phi_prior is not None
        assert self.base.site is not None
        key_mu, key_phi = jax.random.split(key)
        (m, prior), s, (a, b) = self.mean_prior, self.base.scale, self.phi_prior
        k = prior.scale
        squares = s * W + k * s * N / (k + s * N) * (S1 / N + c - m) ** 2
        phi = draw_gamma(key_phi, N / 2 + a, squares / 2 + b)
        shift = (k * (m - c) + s * S1) / (k + s * N)
        shift = shift + jax.random.normal(key_mu, shift.shape) / jnp.sqrt((k + s * N) * phi)
        return {self.sites[0]: c + shift, self.base.site: phi**self.base.exponent}


def find_normal(reading: Reading) -> Match:
    """The update of a normal's mean and variance; with a known mean the variance is a rate."""
    base, mu = reading.base, reading.itself("loc")
    precision = _precision(reading, base, "the base")
    prior = reading.priors[mu]
    if prior.kind != "Normal":
        raise Unmatched(f"{mu!r} has a {prior.kind} prior; a Normal prior would match")
    whose = f"the prior of {mu!r}"
    m = prior.fixed("loc", whose)
    mean_precision = _precision(reading, prior, whose)
    if mean_precision.site is not None and mean_precision[:2] != precision[:2]:
        raise Unmatched(f"scale of {whose} depends on a parameter other than the base's variance")
    v, phi_prior = precision.site, None
    if v is not None:
        squared = raise_to(base.parameters["scale"], -2, reading.elements.positive)
        power = reading.site_of(squared, "scale")
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


def gamma_prior(reading: Reading, power: Power, name: str) -> tuple[Known, Known]:
    """(a, b) such that site ** power.exponent ~ Gamma(a, rate b); ``name`` is what it should be."""
    prior = reading.priors[power.site]
    whose = f"the prior of {power.site!r}"
    if power.exponent == 1 and prior.kind == "Gamma":
        return prior.fixed("concentration", whose), prior.fixed("rate", whose)
    if power.exponent == 1 and prior.kind == "Exponential":
        rate = prior.fixed("rate", whose)
        return np.ones_like(rate), rate
    if power.exponent == -1 and prior.kind == "InverseGamma":
        return prior.fixed("concentration", whose), prior.fixed("rate", whose)
    raise Unmatched(
        f"{name} is {_spelled(power)} with a {prior.kind} prior on {power.site!r}; a Gamma prior "
        f"on {name}, or an InverseGamma prior on its inverse, would match"
    )


def beta_prior(reading: Reading, site: str) -> tuple[Known, Known]:
    """(a, b) such that site ~ Beta(a, b); Uniform(0, 1) is one."""
    prior = reading.priors[site]
    whose = f"the prior of {site!r}"
    if prior.kind == "Beta":
        return prior.fixed("concentration1", whose), prior.fixed("concentration0", whose)
    if prior.kind == "Uniform":
        low, high = prior.fixed("low", whose), prior.fixed("high", whose)
        if (low == 0).all() and (high == 1).all():
            return np.ones(prior.shape), np.ones(prior.shape)
    raise Unmatched(f"{site!r} has a {prior.kind} prior; a Beta prior would match")


def _spelled(power: Power) -> str:
    factor = "" if (power.coefficient == 1).all() else "a constant times "
    return f"{factor}{power.site!r}" + ("" if power.exponent == 1 else f" ** {power.exponent:g}")
