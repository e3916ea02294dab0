"""Base densities g0: where proposals come from, and what is known of them beforehand.

All proposals, accepted and rejected, are independent draws of g0. So its parameters are updated
from X and Y together; from X alone they would follow g instead. Parameters are a vector p, that
kernels can move; points are in coordinates u in which the box of the basis is [-1, 1]^d.

Of a family of NumPyro's (``FamilyBase``) the support is asked for: that it is kept to, and its
limits, which may depend on parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import multigammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform

from offcut.gp import types as t
from offcut.gp.basis import Box
from offcut.gp.data import GPData
from offcut.models.prior import Prior, PriorLike
from offcut.numerics.normal import coefficients, draw_all, features
from offcut.numerics.normal import size as number_of_features
from offcut.numerics.types import KeyArray
from offcut.programs.identity import digest, traced

#: Beyond every proposal, in units of half the box.
FAR = 1e6
#: Of a normal base's mass in two dimensions: nodes, and standard deviations that they span.
GIVEN, WIDEST = 160, 9.0
#: Draws of a family's prior among which a start is chosen: at first, and where all of them are
#: impossible.
TRIED, MOST_TRIED = 200, 20_000

Record = dict[str, Float[Array, " ..."]]
#: Draws by name, as they were recorded: the first axis is that of draws.
Recorded = Mapping[str, np.ndarray]
#: An end of a support.
Edge = float | Array | np.ndarray


class BaseDensity:
    """What a base has to say; where a method is written here, that of one without parameters."""

    size = 0  # of p
    key = ""  # identity, besides class and dimension

    def __init__(self, d: int) -> None:
        self.d = d

    def propose(self, key: KeyArray, p: t.Parameters, number: int, data: GPData) -> t.Columns:
        """So many draws of g0."""
        raise NotImplementedError

    def log_density(self, p: t.Parameters, u: t.Columns, data: GPData) -> t.Values:
        """log g0 at points, in coordinates u."""
        raise NotImplementedError

    def log_prior(self, p: t.Parameters, data: GPData) -> t.Number:
        """log density of p."""
        return jnp.zeros(())

    def first(self, data: GPData) -> t.Parameters:
        """Where a chain starts."""
        return jnp.zeros(0)

    def shaped(self, p: t.Parameters) -> t.Features:
        """log g0 as a combination of quadratic features, where it is one."""
        return jnp.zeros(number_of_features(self.d))

    def update(self, key: KeyArray, total: t.Features, data: GPData) -> t.Parameters:
        """A draw given points whose features sum to ``total``."""
        return jnp.zeros(0)

    def record(self, p: t.Parameters, centre: t.Vector, half: t.Vector) -> Record:
        """Parameters in the units of the data."""
        return {}

    def positions(self, recorded: Recorded, box: Box) -> Float[np.ndarray, "draws k"]:
        """p of recorded draws."""
        return np.zeros((len(recorded["weights"]), 0))


class UniformBase(BaseDensity):
    """Uniform on a box, from ``data.lower`` to ``data.upper`` in coordinates u."""

    def propose(self, key: KeyArray, p: t.Parameters, number: int, data: GPData) -> t.Columns:
        uniform = jax.random.uniform(key, (self.d, number))
        return data.lower[:, None] + (data.upper - data.lower)[:, None] * uniform

    def log_density(self, p: t.Parameters, u: t.Columns, data: GPData) -> t.Values:
        """Of points in the box."""
        return jnp.full(u.shape[1], -jnp.sum(jnp.log(data.upper - data.lower)))


class NormalBase(BaseDensity):
    r"""N(mu, Sigma) with a normal-inverse-Wishart prior, ``data.base``.

    p = (mu, log diagonal of L, the rest of L) with Sigma = L Lᵀ. The density of Sigma carries over
    with the Jacobian 2^d prod_i L_ii^(d - i + 1), i = 1, ..., d, and L_ii for its logarithm.
    """

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self.size = d + d * (d + 1) // 2

    def parts(self, p: t.Parameters) -> tuple[t.Vector, Float[Array, "d d"]]:
        """mu and L."""
        d = self.d
        root = jnp.diag(jnp.exp(p[d : 2 * d]))
        return p[:d], root.at[np.tril_indices(d, -1)].set(p[2 * d :])

    def vector(self, mean: t.Vector, root: Float[Array, "d d"]) -> t.Parameters:
        """p of mu and L."""
        below = root[np.tril_indices(self.d, -1)]
        return jnp.concatenate([mean, jnp.log(jnp.diagonal(root)), below])

    def propose(self, key: KeyArray, p: t.Parameters, number: int, data: GPData) -> t.Columns:
        mean, root = self.parts(p)
        return mean[:, None] + root @ jax.random.normal(key, (self.d, number))

    def log_density(self, p: t.Parameters, u: t.Columns, data: GPData) -> t.Values:
        mean, root = self.parts(p)
        away = solve_triangular(root, u - mean[:, None], lower=True)
        constant = jnp.sum(p[self.d : 2 * self.d]) + 0.5 * self.d * np.log(2 * np.pi)
        return -0.5 * jnp.sum(away**2, axis=0) - constant

    def log_prior(self, p: t.Parameters, data: GPData) -> t.Number:
        d, niw = self.d, data.base
        assert niw is not None
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

    def mass(self, p: t.Parameters, low: t.Vector, high: t.Vector) -> t.Number:
        """Probability between limits, in one and two dimensions.

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

    def first(self, data: GPData) -> t.Parameters:
        """A draw given the data, as if nothing had been rejected."""
        total = features(data.x).sum(1)
        return self.update(jax.random.key(0), total, data)

    def shaped(self, p: t.Parameters) -> t.Features:
        return coefficients(*self.parts(p))

    def update(self, key: KeyArray, total: t.Features, data: GPData) -> t.Parameters:
        assert data.base is not None
        drawn = draw_all(key, data.base, total[None, :])
        return self.vector(drawn.means[0], drawn.roots[0])

    def record(self, p: t.Parameters, centre: t.Vector, half: t.Vector) -> Record:
        """Mean and standard deviation, or covariance."""
        mean, root = self.parts(p)
        mean, root = centre + half * mean, half[:, None] * root
        if self.d == 1:
            return {"base_mean": mean[0], "base_sd": root[0, 0]}
        return {"base_mean": mean, "base_covariance": root @ root.T}

    def positions(self, recorded: Recorded, box: Box) -> Float[np.ndarray, "draws k"]:
        half, mean = box.half, box.inside(recorded["base_mean"].reshape(-1, self.d))
        if self.d == 1:
            return np.stack([mean[:, 0], np.log(recorded["base_sd"] / half[0])], axis=1)
        roots = np.linalg.cholesky(recorded["base_covariance"]) / half[None, :, None]
        logs = np.log(np.diagonal(roots, axis1=1, axis2=2))
        below = roots[(slice(None), *np.tril_indices(self.d, -1))]
        return np.concatenate([mean, logs, below], axis=1)


class FamilyBase(BaseDensity):
    """Any NumPyro family: p is the unconstrained position of its prior."""

    def __init__(self, d: int, prior: Prior, family: t.Family, scalar: bool) -> None:
        super().__init__(d)
        self.prior, self.family, self.scalar = prior, family, scalar
        self.size = prior.size
        self.key = digest(program_of(prior.given, family), scalar)

    def distribution(self, p: t.Parameters) -> dist.Distribution:
        """g0, in the units of the data."""
        return validated(self.family(self.prior.constrain(p, {})))

    def limits(self, p: t.Parameters, data: GPData) -> t.Ends:
        """Limits of g0's own support, in coordinates u."""
        low, high = limits_of(self.distribution(p), self.d)
        return (low - data.centre) / data.half, (high - data.centre) / data.half

    def limits_before(
        self, number: int
    ) -> tuple[Float[np.ndarray, "number d"], Float[np.ndarray, "number d"]]:
        """Limits of g0's own support in draws of the prior, in units of the data."""

        def one(key: KeyArray) -> t.Ends:
            return limits_of(self.family(self.prior.sample(key)), self.d)

        low, high = jax.vmap(one)(jax.random.split(jax.random.key(0), number))
        return np.asarray(low, float), np.asarray(high, float)

    def propose(self, key: KeyArray, p: t.Parameters, number: int, data: GPData) -> t.Columns:
        x = self.distribution(p).sample(key, (number,))
        return ((x.reshape(number, self.d) - data.centre[None, :]) / data.half[None, :]).T

    def log_density(self, p: t.Parameters, u: t.Columns, data: GPData) -> t.Values:
        x = data.centre[None, :] + data.half[None, :] * u.T
        log_prob = self.distribution(p).log_prob(x[:, 0] if self.scalar else x)
        return log_prob + jnp.sum(jnp.log(data.half))

    def log_prior(self, p: t.Parameters, data: GPData) -> t.Number:
        return self.prior.log_density(p, {})

    def first(self, data: GPData) -> t.Parameters:
        """Of many draws of the prior the likeliest for the data; of more where all exclude them."""

        def best(key: KeyArray) -> t.Parameters:
            keys = jax.random.split(key, TRIED)
            tried = jax.vmap(lambda key: self.prior.unconstrain(self.prior.sample(key)))(keys)
            return tried[jnp.argmax(jax.lax.map(lambda p: self.score(p, data), tried))]

        def impossible(carry: tuple) -> jax.Array:
            tried, p = carry
            return (tried < MOST_TRIED // TRIED) & jnp.isneginf(self.score(p, data))

        def again(carry: tuple) -> tuple:
            return carry[0] + 1, best(jax.random.fold_in(jax.random.key(0), carry[0]))

        start = (jnp.int32(1), best(jax.random.key(0)))
        return jax.lax.while_loop(impossible, again, start)[1]

    def score(self, p: t.Parameters, data: GPData) -> t.Number:
        """log density of p and the data; -inf where p makes them impossible."""
        value = jnp.sum(self.log_density(p, data.x, data)) + self.log_prior(p, data)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def record(self, p: t.Parameters, centre: t.Vector, half: t.Vector) -> Record:
        return self.prior.constrain(p, {})

    def positions(self, recorded: Recorded, box: Box) -> Float[np.ndarray, "draws k"]:
        theta = {name: jnp.asarray(recorded[name]) for name in self.prior.names}
        return np.asarray(jax.jit(jax.vmap(self.prior.unconstrain))(theta))


def program_of(given: PriorLike, family: t.Family) -> object:
    """What a family and its prior compute, traced: their identity."""
    kinds: list[type] = []

    def everything(key: jax.Array, position: jax.Array) -> tuple:
        theta = prior.sample(key)
        base = family(theta)
        kinds.append(type(base))
        x = base.sample(key)
        constrained = prior.constrain(position, {})
        return theta, x, base.log_prob(x), prior.log_density(position, {}), constrained

    with jax.enable_x64(True):
        prior = Prior(given)
        return traced(everything, jax.random.key(0), np.zeros(prior.size)), kinds


def validated(distribution: dist.Distribution) -> dist.Distribution:
    """The distribution, zero outside its support whatever NumPyro's validation is set to.

    Without validation (``validate_args=False``, ``numpyro.enable_validation(False)``,
    ``python -O``) ``log_prob`` knows no support. It is turned on in a copy, parts of mixtures and
    of transformed distributions included.
    """
    own = copy(distribution)
    own._validate_args = True
    for name, value in list(vars(own).items()):
        if isinstance(value, dist.Distribution):
            vars(own)[name] = validated(value)
        elif isinstance(value, list | tuple) and any(
            isinstance(part, dist.Distribution) for part in value
        ):
            vars(own)[name] = type(value)(
                validated(part) if isinstance(part, dist.Distribution) else part for part in value
            )
    return own


def limits_of(distribution: dist.Distribution, d: int) -> t.Ends:
    """Lower and upper limits of the support, infinite where there are none or none known.

    They may depend on parameters, and be differentiated in them.
    """
    low, high = _limits(distribution)
    return jnp.broadcast_to(low, (d,)), jnp.broadcast_to(high, (d,))


def _limits(distribution: dist.Distribution) -> tuple[Edge, Edge]:
    wrapped = dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution
    if isinstance(distribution, wrapped):
        return _limits(distribution.base_dist)
    if type(distribution) is dist.TransformedDistribution:
        # NumPyro takes an affine transform for one of all real numbers, whatever it is applied to.
        ends = _limits(distribution.base_dist)
        for transform in distribution.transforms:
            affine = isinstance(transform, AffineTransform)
            ends = _moved(transform, *ends) if affine else _bounds(transform.codomain)
        return ends
    return _bounds(getattr(distribution, "support", None))


def _bounds(constraint: constraints.Constraint | None) -> tuple[Edge, Edge]:
    """Of a constraint that is an interval; otherwise infinite."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return getattr(constraint, "lower_bound", -np.inf), getattr(constraint, "upper_bound", np.inf)


def _moved(transform: AffineTransform, low: Edge, high: Edge) -> tuple[jax.Array, jax.Array]:
    """Limits after a transform, whose scale may have either sign."""

    def at(end: Edge) -> jax.Array:  # the derivative at infinity would be 0 times infinity
        infinite = jnp.isinf(end)
        finite = transform(jnp.where(infinite, 0.0, end))
        return jnp.where(infinite, jnp.sign(transform.scale) * end, finite)

    first, second = at(low), at(high)
    return jnp.minimum(first, second), jnp.maximum(first, second)


def _between(low: Float[Array, "*z"], high: Float[Array, "*z"]) -> Float[Array, "*z"]:
    """Standard normal probability between limits, from the side on which it keeps its digits."""
    right = low + high > 0
    a, b = jnp.where(right, -high, low), jnp.where(right, -low, high)
    return norm.cdf(b) - norm.cdf(a)
