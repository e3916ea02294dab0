r"""Base densities g0: where proposals come from, and what is known of them beforehand.

All proposals, accepted and rejected, are independent draws of g0. So its parameters are updated
from X and Y together; from X alone they would follow g instead. Parameters are a vector p, that
kernels can move; points are in coordinates u in which the box of the basis is [-1, 1]^d.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import multigammaln
from jax.scipy.stats import norm

from offcut.gp.families import limits_of, validated
from offcut.models.prior import Prior
from offcut.numerics.normal import coefficients, draw_all, features
from offcut.numerics.normal import size as number_of_features

#: Beyond every proposal, in units of half the box.
FAR = 1e6
#: Of a normal base's mass in two dimensions: nodes, and standard deviations that they span.
GIVEN, WIDEST = 160, 9.0
#: Draws of a family's prior among which a start is chosen: at first, and where all of them are
#: impossible.
TRIED, MOST_TRIED = 200, 20_000


class UniformBase:
    """Uniform on a box, from ``data.lower`` to ``data.upper`` in coordinates u."""

    size = 0

    def __init__(self, d: int) -> None:
        self.d = d

    def propose(self, key: jax.Array, p: jax.Array, number: int, data: Any) -> jax.Array:
        """Points (d, number)."""
        uniform = jax.random.uniform(key, (self.d, number))
        return data.lower[:, None] + (data.upper - data.lower)[:, None] * uniform

    def log_density(self, p: jax.Array, u: jax.Array, data: Any) -> jax.Array:
        """log g0 at points (d, P) of the box, in coordinates u."""
        return jnp.full(u.shape[1], -jnp.sum(jnp.log(data.upper - data.lower)))

    def log_prior(self, p: jax.Array, data: Any) -> jax.Array:
        """Nothing is unknown."""
        return jnp.zeros(())

    def first(self, data: Any) -> jax.Array:
        """Where a chain starts."""
        return jnp.zeros(0)

    def shaped(self, p: jax.Array) -> jax.Array:
        """log g0 as a combination of quadratic features; here it is constant."""
        return jnp.zeros(number_of_features(self.d))

    def update(self, key: jax.Array, p: jax.Array, total: jax.Array, data: Any) -> jax.Array:
        """Nothing to update."""
        return p

    def record(self, p: jax.Array, centre: jax.Array, half: jax.Array) -> dict[str, jax.Array]:
        """Nothing to record."""
        return {}

    def positions(self, recorded: dict, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
        """p of recorded draws, (draws, 0)."""
        return np.zeros((len(recorded["weights"]), 0))


class NormalBase:
    r"""N(mu, Sigma) with a normal-inverse-Wishart prior, ``data.base``.

    p = (mu, log diagonal of L, the rest of L) with Sigma = L Lᵀ. The density of Sigma carries over
    with the Jacobian 2^d prod_i L_ii^(d - i + 1), i = 1, ..., d, and L_ii for its logarithm.
    """

    def __init__(self, d: int) -> None:
        self.d = d
        self.size = d + d * (d + 1) // 2

    def parts(self, p: jax.Array) -> tuple[jax.Array, jax.Array]:
        """mu and L."""
        d = self.d
        root = jnp.diag(jnp.exp(p[d : 2 * d]))
        return p[:d], root.at[np.tril_indices(d, -1)].set(p[2 * d :])

    def vector(self, mean: jax.Array, root: jax.Array) -> jax.Array:
        """p of mu and L."""
        below = root[np.tril_indices(self.d, -1)]
        return jnp.concatenate([mean, jnp.log(jnp.diagonal(root)), below])

    def propose(self, key: jax.Array, p: jax.Array, number: int, data: Any) -> jax.Array:
        """Points (d, number)."""
        mean, root = self.parts(p)
        return mean[:, None] + root @ jax.random.normal(key, (self.d, number))

    def log_density(self, p: jax.Array, u: jax.Array, data: Any) -> jax.Array:
        """log g0 at points (d, P), in coordinates u."""
        mean, root = self.parts(p)
        away = solve_triangular(root, u - mean[:, None], lower=True)
        constant = jnp.sum(p[self.d : 2 * self.d]) + 0.5 * self.d * np.log(2 * np.pi)
        return -0.5 * jnp.sum(away**2, axis=0) - constant

    def log_prior(self, p: jax.Array, data: Any) -> jax.Array:
        """log density of p."""
        d, niw = self.d, data.base
        mean, root = self.parts(p)
        logs = p[d : 2 * d]
        half_log_det = jnp.sum(logs)
        scale_root = jnp.linalg.cholesky(niw.scale)
        spread = solve_triangular(root, scale_root, lower=True)
        away = solve_triangular(root, mean - niw.mean, lower=True)
        wishart = (
            niw.degrees * jnp.sum(jnp.log(jnp.diagonal(scale_root)))
            - 0.5 * niw.degrees * d * np.log(2)
            - multigammaln(0.5 * niw.degrees, d)
            - (niw.degrees + d + 1) * half_log_det
            - 0.5 * jnp.sum(spread**2)
        )
        normal = (
            0.5 * d * (jnp.log(niw.strength) - np.log(2 * np.pi))
            - half_log_det
            - 0.5 * niw.strength * jnp.sum(away**2)
        )
        jacobian = d * np.log(2) + jnp.sum(jnp.arange(d + 1, 1, -1) * logs)
        return wishart + normal + jacobian

    def mass(self, p: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
        """Probability between limits (d,), in one and two dimensions.

        In two: over the first coordinate of the second's given it, Gauss-Legendre.
        """
        mean, root = self.parts(p)
        # Far rather than infinite: the derivative at infinity would be 0 times infinity.
        low, high = (jnp.clip(edge, -FAR, FAR) - mean for edge in (low, high))
        if self.d == 1:
            return _between(low[0] / root[0, 0], high[0] / root[0, 0])
        a, b = (jnp.clip(edge[0] / root[0, 0], -WIDEST, WIDEST) for edge in (low, high))
        x, v = np.polynomial.legendre.leggauss(GIVEN)
        z = 0.5 * (a + b) + 0.5 * (b - a) * x
        given = _between(*((edge[1] - root[1, 0] * z) / root[1, 1] for edge in (low, high)))
        return 0.5 * (b - a) * jnp.sum(v * norm.pdf(z) * given)

    def first(self, data: Any) -> jax.Array:
        """A draw given the data, as if nothing had been rejected."""
        total = features(data.x).sum(1)
        return self.update(jax.random.key(0), jnp.zeros(self.size), total, data)

    def shaped(self, p: jax.Array) -> jax.Array:
        """log g0 as a combination of quadratic features."""
        return coefficients(*self.parts(p))

    def update(self, key: jax.Array, p: jax.Array, total: jax.Array, data: Any) -> jax.Array:
        """A draw given points whose features sum to ``total``."""
        drawn = draw_all(key, data.base, total[None, :])
        return self.vector(drawn.means[0], drawn.roots[0])

    def record(self, p: jax.Array, centre: jax.Array, half: jax.Array) -> dict[str, jax.Array]:
        """Mean and standard deviation, or covariance, in the units of the data."""
        mean, root = self.parts(p)
        mean, root = centre + half * mean, half[:, None] * root
        if self.d == 1:
            return {"base_mean": mean[0], "base_sd": root[0, 0]}
        return {"base_mean": mean, "base_covariance": root @ root.T}

    def positions(self, recorded: dict, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
        """p of recorded draws, (draws, k)."""
        mean = (recorded["base_mean"].reshape(-1, self.d) - centre) / half
        if self.d == 1:
            return np.stack([mean[:, 0], np.log(recorded["base_sd"] / half[0])], axis=1)
        roots = np.linalg.cholesky(recorded["base_covariance"]) / half[None, :, None]
        logs = np.log(np.diagonal(roots, axis1=1, axis2=2))
        below = roots[(slice(None), *np.tril_indices(self.d, -1))]
        return np.concatenate([mean, logs, below], axis=1)


class FamilyBase:
    """Any NumPyro family: p is the unconstrained position of its prior."""

    def __init__(self, d: int, prior: Prior, family: Callable[[dict], Any], scalar: bool) -> None:
        self.d, self.prior, self.family, self.scalar = d, prior, family, scalar
        self.size = prior.size

    def distribution(self, p: jax.Array) -> Any:
        """g0, in the units of the data."""
        return validated(self.family(self.prior.constrain(p, {})))

    def limits(self, p: jax.Array, data: Any) -> tuple[jax.Array, jax.Array]:
        """Limits (d,) of g0's own support, in coordinates u."""
        low, high = limits_of(self.distribution(p), self.d)
        return (low - data.centre) / data.half, (high - data.centre) / data.half

    def limits_before(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Limits of g0's own support in draws of the prior, (number, d), in units of the data."""

        def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            return limits_of(self.family(self.prior.sample(key)), self.d)

        low, high = jax.vmap(one)(jax.random.split(jax.random.key(0), number))
        return np.asarray(low, float), np.asarray(high, float)

    def propose(self, key: jax.Array, p: jax.Array, number: int, data: Any) -> jax.Array:
        """Points (d, number)."""
        x = self.distribution(p).sample(key, (number,))
        return ((x.reshape(number, self.d) - data.centre[None, :]) / data.half[None, :]).T

    def log_density(self, p: jax.Array, u: jax.Array, data: Any) -> jax.Array:
        """log g0 at points (d, P), in coordinates u."""
        x = data.centre[None, :] + data.half[None, :] * u.T
        log_prob = self.distribution(p).log_prob(x[:, 0] if self.scalar else x)
        return log_prob + jnp.sum(jnp.log(data.half))

    def log_prior(self, p: jax.Array, data: Any) -> jax.Array:
        """log density of p."""
        return self.prior.log_density(p, {})

    def first(self, data: Any) -> jax.Array:
        """Of many draws of the prior the likeliest for the data; of more where all exclude them."""

        def best(key: jax.Array) -> jax.Array:
            keys = jax.random.split(key, TRIED)
            tried = jax.vmap(lambda key: self.prior.unconstrain(self.prior.sample(key)))(keys)
            return tried[jnp.argmax(jax.lax.map(lambda p: self.score(p, data), tried))]

        def vain(carry: tuple) -> jax.Array:
            turn, p = carry
            return (turn < MOST_TRIED // TRIED) & jnp.isneginf(self.score(p, data))

        def again(carry: tuple) -> tuple:
            return carry[0] + 1, best(jax.random.fold_in(jax.random.key(0), carry[0]))

        start = (jnp.int32(1), best(jax.random.key(0)))
        return jax.lax.while_loop(vain, again, start)[1]

    def score(self, p: jax.Array, data: Any) -> jax.Array:
        """log density of p and the data; -inf where p makes them impossible."""
        value = jnp.sum(self.log_density(p, data.x, data)) + self.log_prior(p, data)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def shaped(self, p: jax.Array) -> jax.Array:
        """Not compensated for."""
        return jnp.zeros(number_of_features(self.d))

    def record(self, p: jax.Array, centre: jax.Array, half: jax.Array) -> dict[str, jax.Array]:
        """The family's parameters."""
        return self.prior.constrain(p, {})

    def positions(self, recorded: dict, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
        """p of recorded draws, (draws, k)."""
        theta = {name: jnp.asarray(recorded[name]) for name in self.prior.names}
        return np.asarray(jax.jit(jax.vmap(self.prior.unconstrain))(theta))


def _between(low: jax.Array, high: jax.Array) -> jax.Array:
    """Standard normal probability between limits, from the side on which it keeps its digits."""
    right = low + high > 0
    a, b = jnp.where(right, -high, low), jnp.where(right, -low, high)
    return norm.cdf(b) - norm.cdf(a)


BaseDensity = UniformBase | NormalBase | FamilyBase
