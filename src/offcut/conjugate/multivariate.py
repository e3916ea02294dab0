r"""A multivariate normal: mean mu, covariance, or both unknown.

The base has precision matrix s Phi, where Phi is a site or its inverse, Phi ~ Wishart(nu, Psi⁻¹),
or a known one. Sums run over d = x - c about a fixed centre c: N, S1 = sum d, and
W = sum d dᵀ - S1 S1ᵀ / N. As for one dimension (``normal.py``), with e = S1/N + c - m:

*Independent prior* mu ~ N(m, P0⁻¹), or mu known:

    mu | Phi  ~ N(c + P⁻¹ (P0 (m - c) + s Phi S1), P⁻¹),      P = P0 + N s Phi,
    Phi | mu  ~ Wishart(nu + N, {Psi + s [W + N g gᵀ]}⁻¹),    g = mu - c - S1/N.

*Dependent prior* mu ~ N(m, (k Phi)⁻¹), normal-Wishart, in one piece:

    Phi       ~ Wishart(nu + N, {Psi + s W + k s N / (k + s N) e eᵀ}⁻¹),
    mu | Phi  ~ N(c + (k (m - c) + s S1) / (k + s N), ((k + s N) Phi)⁻¹).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from offcut.conjugate.outcome import Match
from offcut.conjugate.wishart import Wishart, draw_wishart
from offcut.models.rejection import Point
from offcut.prior import Theta


class Precision(NamedTuple):
    """scale * Phi, where the site is Phi or its inverse; or the matrix ``scale``: site is None."""

    site: str | None
    site_is_covariance: bool
    scale: Any


class MeanPrior(NamedTuple):
    """mu ~ N(m, precision); known as m where the site is None."""

    site: str | None
    m: np.ndarray
    precision: Precision | None


@dataclass(frozen=True, eq=False)
class MultivariateMatch(Match):
    """The blocks above that apply."""

    base: Precision
    mean: MeanPrior
    wishart_prior: tuple[Any, Any] | None  # nu, Psi

    def centre(self, points: Point) -> np.ndarray:
        """The mean of the data."""
        return np.mean(np.asarray(points, float), axis=0)

    def statistic(self, point: Point, centre: jax.Array) -> tuple[jax.Array, jax.Array]:
        """d and d dᵀ."""
        d = jnp.asarray(point, float) - centre
        return d, jnp.outer(d, d)

    def draw(
        self, key: jax.Array, theta: Theta, statistics: Any, count: jax.Array, centre: jax.Array
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
        shift: Any = m - centre  # mu - c
        if site is not None:
            shift = self._shift(key_mu, theta, N, S1, shift)
            new[site] = centre + shift
        if self.wishart_prior is not None:
            nu, Psi = self.wishart_prior
            g = shift - S1 / N
            scatter = self.base.scale * (W + N * jnp.outer(g, g))
            new |= self._named(draw_wishart(key_phi, nu + N, Psi + scatter))
        return new

    def _shift(self, key: jax.Array, theta: Theta, N: Any, S1: Any, prior_shift: Any) -> jax.Array:
        assert self.mean.precision is not None
        P0, known = self.mean.precision.scale, self.base.scale
        K = known if self.base.site is None else known * self._phi(theta)
        L = jnp.linalg.cholesky(P0 + N * K)
        centre = cho_solve((L, True), P0 @ prior_shift + K @ S1)
        noise = solve_triangular(L, jax.random.normal(key, S1.shape), trans="T", lower=True)
        return centre + noise

    def _dependent(
        self, key_mu: jax.Array, key_phi: jax.Array, N: Any, S1: Any, W: Any, c: Any
    ) -> Theta:
        assert self.mean.site is not None
        assert self.mean.precision is not None
        assert self.wishart_prior is not None
        k, s, m = self.mean.precision.scale, self.base.scale, self.mean.m
        nu, Psi = self.wishart_prior
        e = S1 / N + c - m
        scatter = s * W + k * s * N / (k + s * N) * jnp.outer(e, e)
        drawn = draw_wishart(key_phi, nu + N, Psi + scatter)
        noise = drawn.covariance_root @ jax.random.normal(key_mu, S1.shape)
        shift = (k * (m - c) + s * S1) / (k + s * N) + noise / jnp.sqrt(k + s * N)
        return {self.mean.site: c + shift, **self._named(drawn)}

    def _phi(self, theta: Theta) -> jax.Array:
        matrix = theta[self.base.site]  # type: ignore[index]
        if not self.base.site_is_covariance:
            return matrix
        return cho_solve((jnp.linalg.cholesky(matrix), True), jnp.eye(len(matrix)))

    def _named(self, drawn: Wishart) -> Theta:
        assert self.base.site is not None
        value = drawn.covariance if self.base.site_is_covariance else drawn.precision
        return {self.base.site: value}
