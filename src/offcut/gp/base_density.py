"""Base densities g0: where proposals come from, and what is known of them beforehand.

All proposals, accepted and rejected, are independent draws of g0. So its parameters are updated
from X and Y together; from X alone they would follow g instead. Parameters are a vector p, that
kernels can move; points are in coordinates u in which the box of the basis is [-1, 1]^d.

Of a family of NumPyro's (``FamilyBase``) the support is asked for: that it is kept to, and its
limits, which may depend on parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform
from scipy.special import ndtr

from offcut.augmentation.joint import in_chunks, with_gradient
from offcut.gp import types as t
from offcut.gp.basis import Box
from offcut.gp.data import SUMMED, GPData
from offcut.gp.quadrature import legendre
from offcut.models.prior import Prior, PriorLike
from offcut.numerics import keys
from offcut.numerics.normal import coefficients, draw_all, given
from offcut.numerics.normal import size as number_of_features
from offcut.numerics.types import KeyArray
from offcut.programs.cache import Programs
from offcut.programs.compiled import Program
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
#: Parameters of many draws, one row each.
EachParameters = Float[np.ndarray, "r k"]
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

    def log_data(self, p: t.Parameters, data: GPData) -> t.Number:
        """The sum of log g0 over the data."""
        raise NotImplementedError

    def log_prior(self, p: t.Parameters, data: GPData) -> t.Number:
        """log density of p, up to a constant."""
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

    # On the host, for draws of a posterior: nothing is compiled where a base is known by name.

    def propose_each(
        self, rng: np.random.Generator, p: EachParameters, data: GPData
    ) -> Float[np.ndarray, "d r"]:
        """A draw of g0 for each row of parameters."""
        raise NotImplementedError

    def log_density_each(
        self, p: EachParameters, u: t.HostColumns, data: GPData
    ) -> Float[np.ndarray, "r P"]:
        """log g0 at points, for each row of parameters."""
        raise NotImplementedError


class UniformBase(BaseDensity):
    """Uniform on a box, from ``data.lower`` to ``data.upper`` in coordinates u."""

    def propose(self, key: KeyArray, p: t.Parameters, number: int, data: GPData) -> t.Columns:
        uniform = jax.random.uniform(key, (self.d, number))
        return data.lower[:, None] + (data.upper - data.lower)[:, None] * uniform

    def log_density(self, p: t.Parameters, u: t.Columns, data: GPData) -> t.Values:
        """Of points in the box."""
        return jnp.full(u.shape[1], -jnp.sum(jnp.log(data.upper - data.lower)))

    def log_data(self, p: t.Parameters, data: GPData) -> t.Number:
        return -data.n * jnp.sum(jnp.log(data.upper - data.lower))

    def propose_each(
        self, rng: np.random.Generator, p: EachParameters, data: GPData
    ) -> Float[np.ndarray, "d r"]:
        low, high = np.asarray(data.lower), np.asarray(data.upper)
        return low[:, None] + (high - low)[:, None] * rng.random((self.d, len(p)))

    def log_density_each(
        self, p: EachParameters, u: t.HostColumns, data: GPData
    ) -> Float[np.ndarray, "r P"]:
        width = np.asarray(data.upper) - np.asarray(data.lower)
        return np.full((len(p), u.shape[1]), -np.log(width).sum())


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
        away = _whitened(root, u - mean[:, None])
        constant = jnp.sum(p[self.d : 2 * self.d]) + 0.5 * self.d * np.log(2 * np.pi)
        return -0.5 * jnp.sum(away**2, axis=0) - constant

    def log_data(self, p: t.Parameters, data: GPData) -> t.Number:
        """By what of the data it depends on."""
        return self.shaped(p) @ data.total

    def log_prior(self, p: t.Parameters, data: GPData) -> t.Number:
        d, niw = self.d, data.base
        assert niw is not None
        mean, root = self.parts(p)
        logs = p[d : 2 * d]
        half_log_det = jnp.sum(logs)
        inverse = _whitened(root, jnp.eye(d))
        away = inverse @ (mean - niw.mean)
        wishart = -(niw.degrees + d + 1) * half_log_det - 0.5 * jnp.sum(
            (inverse @ niw.scale) * inverse
        )
        normal = -half_log_det - 0.5 * niw.strength * jnp.sum(away**2)
        return wishart + normal + jnp.sum(jnp.arange(d + 1, 1, -1) * logs)

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
        x, v = legendre(GIVEN)
        z = 0.5 * (a + b) + 0.5 * (b - a) * x
        given = _between(*((edge[1] - root[1, 0] * z) / root[1, 1] for edge in (low, high)))
        return 0.5 * (b - a) * jnp.sum(v * norm.pdf(z) * given)

    def first(self, data: GPData) -> t.Parameters:
        """What is expected given the data, as if nothing had been rejected."""
        assert data.base is not None
        after = given(data.base, data.total)
        covariance = after.scale / jnp.maximum(after.degrees - self.d - 1, 1.0)
        return self.vector(after.mean, jnp.linalg.cholesky(covariance))

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

    def parts_of_each(
        self, p: EachParameters
    ) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, "r d d"]]:
        """mu and L of each row."""
        roots = np.zeros((len(p), self.d, self.d))
        roots[:, range(self.d), range(self.d)] = np.exp(p[:, self.d : 2 * self.d])
        roots[(slice(None), *np.tril_indices(self.d, -1))] = p[:, 2 * self.d :]
        return p[:, : self.d], roots

    def propose_each(
        self, rng: np.random.Generator, p: EachParameters, data: GPData
    ) -> Float[np.ndarray, "d r"]:
        mean, root = self.parts_of_each(p)
        return (mean + (root @ rng.normal(size=(len(p), self.d, 1)))[:, :, 0]).T

    def log_density_each(
        self, p: EachParameters, u: t.HostColumns, data: GPData
    ) -> Float[np.ndarray, "r P"]:
        mean, root = self.parts_of_each(p)
        away: list[np.ndarray] = []  # L⁻¹(u - mu), coordinate by coordinate
        for i in range(self.d):
            earlier = sum((root[:, i, j, None] * one for j, one in enumerate(away)), np.zeros(1))
            away.append((u[i] - mean[:, i, None] - earlier) / root[:, i, i, None])
        constant = p[:, self.d : 2 * self.d].sum(1) + 0.5 * self.d * np.log(2 * np.pi)
        return -0.5 * sum(one**2 for one in away) - constant[:, None]

    def mass_each(
        self, p: EachParameters, low: t.HostVector, high: t.HostVector
    ) -> Float[np.ndarray, " r"]:
        """``mass``, with NumPy."""
        mean, root = self.parts_of_each(p)
        a, b = (np.clip(edge, -FAR, FAR) - mean for edge in (low, high))
        if self.d == 1:
            return _between_on_host(a[:, 0] / root[:, 0, 0], b[:, 0] / root[:, 0, 0])
        ends = [np.clip(edge[:, 0] / root[:, 0, 0], -WIDEST, WIDEST)[:, None] for edge in (a, b)]
        x, v = legendre(GIVEN)
        z = 0.5 * (ends[0] + ends[1]) + 0.5 * (ends[1] - ends[0]) * x
        sides = (
            (edge[:, 1, None] - root[:, 1, 0, None] * z) / root[:, 1, 1, None] for edge in (a, b)
        )
        bell = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        return 0.5 * (ends[1] - ends[0])[:, 0] * ((bell * _between_on_host(*sides)) @ v)


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

        def each(key: KeyArray) -> tuple[Float[Array, "number d"], Float[Array, "number d"]]:
            def one(key: KeyArray) -> t.Ends:
                return limits_of(self.family(self.prior.sample(key)), self.d)

            return jax.vmap(one)(jax.random.split(key, number))

        low, high = self._kept("limits", each)(keys.from_seed(0))
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
            own = jax.random.split(key, TRIED)
            tried = jax.vmap(lambda key: self.prior.unconstrain(self.prior.sample(key)))(own)
            return tried[jnp.argmax(lax.map(lambda p: self.score(p, data), tried))]

        def impossible(carry: tuple) -> jax.Array:
            tried, p = carry
            return (tried < MOST_TRIED // TRIED) & jnp.isneginf(self.score(p, data))

        def again(carry: tuple) -> tuple:
            return carry[0] + 1, best(jax.random.fold_in(jax.random.key(0), carry[0]))

        start = (jnp.int32(1), best(jax.random.key(0)))
        return lax.while_loop(impossible, again, start)[1]

    def log_data(self, p: t.Parameters, data: GPData) -> t.Number:
        """In pieces of one size, its derivative too: see ``over_data``."""

        def value_and_slope(p: t.Parameters) -> tuple[t.Number, t.Parameters]:
            missing = -data.x.shape[1] % SUMMED
            u = jnp.pad(data.x, ((0, 0), (0, missing)), mode="edge")

            def add(sums: tuple, start: t.Count) -> tuple:
                part = lax.dynamic_slice_in_dim(u, start, SUMMED, axis=1)
                there = start + jnp.arange(SUMMED) < data.n

                def total(p: t.Parameters) -> t.Number:
                    return jnp.sum(jnp.where(there, self.log_density(p, part, data), 0.0))

                return jax.tree.map(jnp.add, sums, jax.value_and_grad(total)(p))

            return in_chunks(add, (jnp.zeros(()), jnp.zeros(p.shape)), data.n, SUMMED)

        return with_gradient(value_and_slope)(p)

    def score(self, p: t.Parameters, data: GPData) -> t.Number:
        """log density of p and the data; -inf where p makes them impossible."""
        value = self.log_data(p, data) + self.log_prior(p, data)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def record(self, p: t.Parameters, centre: t.Vector, half: t.Vector) -> Record:
        return self.prior.constrain(p, {})

    def positions(self, recorded: Recorded, box: Box) -> Float[np.ndarray, "draws k"]:
        theta = {name: np.asarray(recorded[name], float) for name in self.prior.names}
        program = self._kept("positions", jax.vmap(self.prior.unconstrain))
        return np.asarray(program(theta))

    def propose_each(
        self, rng: np.random.Generator, p: EachParameters, data: GPData
    ) -> Float[np.ndarray, "d r"]:
        def each(key: KeyArray, p: Float[Array, "r k"], data: GPData) -> Float[Array, "r d"]:
            own = jax.random.split(key, p.shape[0])
            return jax.vmap(lambda key, one: self.propose(key, one, 1, data)[:, 0])(own, p)

        rows = max(64, 2 ** int(np.ceil(np.log2(len(p)))))  # few sizes: each is compiled
        key = keys.from_seed(int(rng.integers(2**63)))
        drawn = self._kept("propose", each)(
            key, np.resize(p, (rows, p.shape[1])), data.without_rows()
        )
        return np.asarray(drawn)[: len(p)].T

    def log_density_each(
        self, p: EachParameters, u: t.HostColumns, data: GPData
    ) -> Float[np.ndarray, "r P"]:
        def each(p: Float[Array, "r k"], u: t.Columns, data: GPData) -> Float[Array, "r P"]:
            return lax.map(lambda one: self.log_density(one, u, data), p)

        return np.asarray(self._kept("log_density", each)(p, u, data.without_rows()))

    def _kept(self, name: str, function: Callable[..., PyTree]) -> Program:
        """A program of all families that are the same."""
        return Programs(self.key).kept(name, lambda: Program(function, name))


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


def _whitened(root: Float[Array, "d d"], x: Float[Array, "d P"]) -> Float[Array, "d P"]:
    """L⁻¹ x, coordinate by coordinate: few operations that are fused with what follows."""
    rows: list[Float[Array, " P"]] = []
    for i in range(root.shape[0]):
        earlier = sum((root[i, j] * row for j, row in enumerate(rows)), jnp.zeros(()))
        rows.append((x[i] - earlier) / root[i, i])
    return jnp.stack(rows)


def _between(low: Float[Array, "*z"], high: Float[Array, "*z"]) -> Float[Array, "*z"]:
    """Standard normal probability between limits, from the side on which it keeps its digits."""
    right = low + high > 0
    a, b = jnp.where(right, -high, low), jnp.where(right, -low, high)
    return norm.cdf(b) - norm.cdf(a)


def _between_on_host(
    low: Float[np.ndarray, "*z"], high: Float[np.ndarray, "*z"]
) -> Float[np.ndarray, "*z"]:
    right = low + high > 0
    return ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low))
