"""A multivariate normal whose mean mu, covariance or both are unknown and have conjugate priors.

The base has precision matrix s Phi, where Phi is a site or its inverse, Phi ~ Wishart(nu, Psi⁻¹),
or a known one. Sums run over d = x - c about a fixed centre c: N, S1 = sum d, and
W = sum d dᵀ - S1 S1ᵀ / N. As for one dimension (``univariate.py``), with e = S1/N + c - m:

*Independent prior* mu ~ N(m, P0⁻¹), or mu known:

    mu | Phi  ~ N(c + P⁻¹ (P0 (m - c) + s Phi S1), P⁻¹),      P = P0 + N s Phi,
    Phi | mu  ~ Wishart(nu + N, {Psi + s [W + N g gᵀ]}⁻¹),    g = mu - c - S1/N.

*Dependent prior* mu ~ N(m, (k Phi)⁻¹), normal-Wishart, in one piece:

    Phi       ~ Wishart(nu + N, {Psi + s W + k s N / (k + s N) e eᵀ}⁻¹),
    mu | Phi  ~ N(c + (k (m - c) + s S1) / (k + s N), ((k + s N) Phi)⁻¹).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

from offcut.models.data import HostPoints
from offcut.models.prior import Theta
from offcut.numerics.normal import Wishart, draw_wishart
from offcut.numerics.types import KeyArray, Point, Points
from offcut.samplers.conjugacy import Centre, Count, Match, Unmatched
from offcut.samplers.conjugacy.reading import Family, Reading

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
Known = Float[np.ndarray, "d d"]


class Precision(NamedTuple):
    """scale * Phi, where the site is Phi or its inverse; or the matrix ``scale``: site is None."""

    site: str | None
    site_is_covariance: bool
    scale: float | Known


class MeanPrior(NamedTuple):
    """mu ~ N(m, precision); known as m where the site is None."""

    site: str | None
    m: Float[np.ndarray, " d"]
    precision: Precision | None


@dataclass(frozen=True, eq=False)
class MultivariateMatch(Match):
    """The blocks above that apply."""

    base: Precision
    mean: MeanPrior
    wishart_prior: tuple[Float[np.ndarray, ""], Known] | None  # nu, Psi

    def centre(self, points: Points | HostPoints) -> np.ndarray | np.floating:
        """The mean of the data."""
        return np.mean(np.asarray(points, float), axis=0)

    def statistic(self, point: Point, centre: Centre) -> tuple[Vector, Matrix]:
        """d and d dᵀ."""
        d = jnp.asarray(point, float) - centre
        return d, jnp.outer(d, d)

    def draw(
        self,
        key: KeyArray,
        theta: Theta,
        statistics: tuple[Vector, Matrix],
        count: Count,
        centre: Centre,
    ) -> Theta:
        """mu and Phi."""
        key_mu, key_phi = jax.random.split(key)
        S1, S2 = statistics
        N = jnp.asarray(count, float)
        W = S2 - jnp.outer(S1, S1) / N
        site, m, prior = self.mean
        if prior is not None and prior.site is not None:
            return self._dependent(key_mu, key_phi, N, S1, W, centre)
        new: Theta = {}
        shift = jnp.asarray(m) - centre  # mu - c
        if site is not None:
            shift = self._shift(key_mu, theta, N, S1, shift)
            new[site] = centre + shift
        if self.wishart_prior is not None:
            nu, Psi = self.wishart_prior
            g = shift - S1 / N
            scatter = self.base.scale * (W + N * jnp.outer(g, g))
            new |= self._named(draw_wishart(key_phi, N + nu, scatter + Psi))
        return new

    def _shift(
        self, key: KeyArray, theta: Theta, N: Scalar, S1: Vector, prior_shift: Vector
    ) -> Vector:
        assert self.mean.precision is not None
        P0, known = self.mean.precision.scale, self.base.scale
        K = known if self.base.site is None else known * self._phi(theta)
        L = jnp.linalg.cholesky(P0 + N * K)
        centre = cho_solve((L, True), P0 @ prior_shift + K @ S1)
        noise = solve_triangular(L, jax.random.normal(key, S1.shape), trans="T", lower=True)
        return centre + noise

    def _dependent(
        self, key_mu: KeyArray, key_phi: KeyArray, N: Scalar, S1: Vector, W: Matrix, c: Vector
    ) -> Theta:
        assert self.mean.site is not None
        assert self.mean.precision is not None
        assert self.wishart_prior is not None
        k, s, m = self.mean.precision.scale, self.base.scale, self.mean.m
        nu, Psi = self.wishart_prior
        e = S1 / N + c - m
        scatter = s * W + k * s * N / (k + s * N) * jnp.outer(e, e)
        drawn = draw_wishart(key_phi, N + nu, scatter + Psi)
        noise = drawn.covariance_root @ jax.random.normal(key_mu, S1.shape)
        shift = (k * (m - c) + s * S1) / (k + s * N) + noise / jnp.sqrt(k + s * N)
        return {self.mean.site: c + shift, **self._named(drawn)}

    def _phi(self, theta: Theta) -> Matrix:
        matrix = theta[self.base.site]  # type: ignore[index]
        if not self.base.site_is_covariance:
            return matrix
        return cho_solve((jnp.linalg.cholesky(matrix), True), jnp.eye(len(matrix)))

    def _named(self, drawn: Wishart) -> Theta:
        assert self.base.site is not None
        value = drawn.covariance if self.base.site_is_covariance else drawn.precision
        return {self.base.site: value}


def find(reading: Reading) -> Match | None:
    """The update of mean and covariance; None where the base is no multivariate normal."""
    if reading.base.kind != "MultivariateNormal":
        return None
    precision = _precision(reading, reading.base, "the base")
    mean = _mean(reading, precision)
    mu, matrix = mean.site, precision.site
    wishart = None if matrix is None else _wishart_prior(reading, matrix, precision)
    name = "inverse Wishart" if precision.site_is_covariance else "Wishart"
    if mean.precision is not None and mean.precision.site is not None:
        how = f"({mu}, {matrix}) normal-{name.replace(' ', '-')}"
    elif mu is not None and matrix is not None:
        how = f"{mu} | {matrix} normal, {matrix} | {mu} {name}"
    elif mu is not None:
        how = f"{mu} normal"
    else:
        how = f"{matrix} {name}"
    sites = tuple(site for site in (mu, matrix) if site is not None)
    return MultivariateMatch(f"multivariate normal: {how}", sites, precision, mean, wishart)


def _mean(reading: Reading, base: Precision) -> MeanPrior:
    known = reading.base.constant("loc")
    if known is not None:
        return MeanPrior(None, known, None)
    site = reading.itself("loc")
    prior = reading.priors[site]
    whose = f"the prior of {site!r}"
    if prior.kind == "Normal":
        scale = prior.fixed("scale", whose)
        precision = Precision(None, False, np.diag(scale**-2.0))
    elif prior.kind == "MultivariateNormal":
        precision = _precision(reading, prior, whose)
        if precision.site is not None and precision[:2] != base[:2]:
            raise Unmatched(f"{whose} depends on a parameter other than the base's covariance")
    else:
        raise Unmatched(
            f"{site!r} has a {prior.kind} prior; a MultivariateNormal prior or "
            "independent Normal ones would match"
        )
    return MeanPrior(site, prior.fixed("loc", whose), precision)


def _precision(reading: Reading, family: Family, whose: str) -> Precision:
    """The precision matrix of a multivariate normal, given in whichever of the three ways."""
    (name,) = (name for name in family.parameters if name != "loc")
    known = family.constant(name)
    if known is not None:
        if name == "scale_tril":
            known = np.tril(known) @ np.tril(known).T
        known = (known + known.T) / 2
        return Precision(None, False, known if name == "precision_matrix" else _inverse(known))
    power = reading.power_of(family.parameters[name])
    form = "cholesky" if name == "scale_tril" else "itself"
    c = 0.0 if power is None else float(power.coefficient.flat[0])
    plain = power is not None and power.form == form and power.exponent == 1
    if power is None or not plain or c <= 0 or (power.coefficient != c).any():
        raise Unmatched(
            f"{name} of {whose} is neither fixed nor a constant times one matrix of parameters"
            " (or its Cholesky factor); for the inverse of a matrix use precision_matrix="
        )
    if name == "precision_matrix":
        return Precision(power.site, False, c)
    return Precision(power.site, True, 1 / c if name == "covariance_matrix" else c**-2)


def _wishart_prior(
    reading: Reading, site: str, precision: Precision
) -> tuple[np.ndarray, np.ndarray]:
    """(nu, Psi) such that Phi ~ Wishart(nu, Psi⁻¹)."""
    prior = reading.priors[site]
    wanted = "InverseWishart" if precision.site_is_covariance else "Wishart"
    if prior.kind != wanted:
        what = "covariance" if precision.site_is_covariance else "precision"
        raise Unmatched(
            f"the {what} matrix {site!r} has a {prior.kind} prior; {wanted} would match"
        )
    whose = f"the prior of {site!r}"
    root = np.tril(prior.fixed("scale_tril", whose))
    scale = root @ root.T
    Psi = scale if precision.site_is_covariance else _inverse(scale)
    return prior.fixed("concentration", whose), Psi


def _inverse(matrix: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(matrix)
    return (inverse + inverse.T) / 2
