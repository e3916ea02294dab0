"""Z = ∫ g0(x) sigma(f(x)) dx by Gauss-Legendre nodes in the box, in one and two dimensions.

f is zero outside the box, so that

    Z = ½ P0(support) + sum_q v_q g0(u_q) (sigma(f(u_q)) - ½),

nodes being in the box where it overlaps with the support. f is a finite sum of sines: the error
falls faster than any power of the number of nodes, and is below rounding for the numbers here.
Where limits of g0 depend on its parameters, nodes lie between them and move along.

P0(support) is 1 where the support cuts off nothing of g0. Otherwise it is a sum over the nodes,
over what is beyond the box too: there the substitution x = exp(pi/2 sinh t) takes tails of any
length and weight (Takahasi & Mori 1974).

With Z known, Y can be summed out: the number of rejections is negative binomial (density) or
Poisson (intensity), and what a budget B excludes is

    P(|Y| <= B) = I_Z(n, B + 1)   or   Q(B + 1, lambda |T| (1 - Z)).

The exact process in the result (``Grid``) is f at the nodes of a grid, and a spline between. A draw
of the exact process is known where it was evaluated. Every sweep evaluates it, jointly, at the
nodes of a Gauss-Legendre rule in the box, as far as it is in the support, and between them f is
read off a cubic spline, which is linear in the values at the nodes. Outside the box f is taken for
zero where densities are evaluated, and Z is that of the same function: a finer rule integrates the
spline. The sampler itself knows neither box nor spline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import betainc, gammaincc
from scipy.interpolate import CubicSpline


class Grid(NamedTuple):
    """Nodes along each axis; it stands where a plan has its basis."""

    sizes: tuple[int, ...]
    additive: bool = False

    @property
    def d(self) -> int:
        return len(self.sizes)

    @property
    def number(self) -> int:
        return int(np.prod(self.sizes))

    def axes(self) -> list[np.ndarray]:
        """Coordinates of the nodes along each axis, in (-1, 1)."""
        return [np.polynomial.legendre.leggauss(size)[0] for size in self.sizes]

    def nodes(self) -> np.ndarray:
        """All nodes, (d, number)."""
        return np.stack([part.ravel() for part in np.meshgrid(*self.axes(), indexing="ij")])

    def evaluate(self, w: jax.Array, u: jax.Array, wall: jax.Array) -> jax.Array:
        """f at points (d, P): (P,)."""
        rows = jnp.ones((1, u.shape[1]))
        for axis, place in zip(self.axes(), u, strict=True):
            spline = CubicSpline(axis, np.eye(len(axis)))
            piece = jnp.clip(jnp.searchsorted(jnp.asarray(axis), place) - 1, 0, len(axis) - 2)
            away = place - jnp.asarray(axis)[piece]
            powers = jnp.stack([away**3, away**2, away, jnp.ones_like(away)])
            own = jnp.sum(powers[:, :, None] * jnp.asarray(spline.c)[:, piece, :], axis=0).T
            rows = (rows[:, None, :] * own[None, :, :]).reshape(-1, u.shape[1])
        return jnp.where(jnp.all(jnp.abs(u) <= 1, axis=0), w @ rows, 0.0)

    def features(self, u: np.ndarray) -> np.ndarray:
        """What f at points (d, P) is made of f at the nodes, (number, P)."""
        rows = np.ones((1, u.shape[1]))
        inside = (np.abs(u) <= 1).all(0)
        for axis, place in zip(self.axes(), u, strict=True):
            own = CubicSpline(axis, np.eye(len(axis)))(np.clip(place, -1, 1)).T
            rows = (rows[:, None, :] * own[None, :, :]).reshape(-1, u.shape[1])
        return rows * inside

    def tables(self, nodes: Sequence[Any]) -> list[np.ndarray]:
        """Splines along each axis, (size, nodes)."""
        return [
            CubicSpline(axis, np.eye(len(axis)))(np.asarray(place)).T
            for axis, place in zip(self.axes(), nodes, strict=True)
        ]

    def on_grid(self, w: jax.Array, tables: Sequence[jax.Array]) -> jax.Array:
        """f at all points of another grid, from the tables of its axes."""
        values = w.reshape(self.sizes)
        for table in tables:
            values = jnp.tensordot(values, table, axes=(0, 0))
        return values


#: Nodes along an axis, for m functions: PER_FUNCTION m + LEAST.
PER_FUNCTION, LEAST = {1: 4, 2: 2}, {1: 96, 2: 40}
#: Of the exact process: nodes between two neighbours of those at which f is recorded. In the plane
#: these are further apart, and sigma(f) is less of a polynomial between them: with 4 a density
#: integrated to 0.9998, with 8 it does to 1e-7.
PER_PANEL = {1: 4, 2: 8}
#: Steps in t beyond the box, and how far t goes: from 6e-10 to 2e8 halves of the box.
STEP, REACH = {1: 0.05, 2: 0.15}, (-3.3, 3.2)
#: Longer than any tail, in halves of the box.
LONG = 1e15
#: So many standard deviations from the mean of |Y| the budget excludes nothing, to rounding.
FAR = 45.0


class Quadrature(NamedTuple):
    """Nodes (d, Q) in coordinates u, their weights (Q,), and tables of sines along the axes.

    Where nodes move with the parameters of the base: those of [-1, 1]^d, and no tables.
    """

    nodes: jax.Array
    weights: jax.Array
    tables: tuple[jax.Array, ...]


def rule(
    tables_at: object, sizes: tuple[int, ...], low: np.ndarray, high: np.ndarray, finer: int = 1
) -> Quadrature:
    """Nodes between ``low`` and ``high``; ``tables_at(axes)`` gives the tables of sines."""
    axes, parts = [], []
    for m, a, b in zip(sizes, low, high, strict=True):
        x, v = np.polynomial.legendre.leggauss(_number(m, len(sizes), finer))
        axes.append(0.5 * (a + b) + 0.5 * (b - a) * x)
        parts.append(0.5 * (b - a) * v)
    return _product(axes, parts, tables_at)


def panels(tables_at: object, ends: list[np.ndarray], finer: int = 1) -> Quadrature:
    """Nodes between neighbours of ``ends`` along each axis, for what is smooth only there."""
    x, v = np.polynomial.legendre.leggauss(PER_PANEL[len(ends)] * finer)
    axes, parts = [], []
    for end in ends:
        half = 0.5 * np.diff(end)[:, None]
        axes.append((end[:-1, None] + half * (1 + x)).ravel())
        parts.append((half * v).ravel())
    return _product(axes, parts, tables_at)


def _number(m: int, d: int, finer: int = 1) -> int:
    return finer * (PER_FUNCTION[d] * m + LEAST[d])


def _product(axes: list[np.ndarray], parts: list[np.ndarray], tables_at: object) -> Quadrature:
    nodes = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    weights = parts[0] if len(axes) == 1 else np.outer(*parts).ravel()
    return Quadrature(
        jnp.asarray(nodes),
        jnp.asarray(weights),
        tuple(jnp.asarray(table) for table in tables_at(axes)),  # type: ignore[operator]
    )


def between(reference: Quadrature, low: jax.Array, high: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Nodes and weights of [-1, 1]^d between limits (d,) in it; no weight where they cross."""
    low, high = jnp.clip(low, -1.0, 1.0), jnp.clip(high, -1.0, 1.0)
    half = 0.5 * jnp.maximum(high - low, 0.0)
    nodes = 0.5 * (low + high)[:, None] + half[:, None] * reference.nodes
    return nodes, jnp.prod(half) * reference.weights


def mass(
    log_density: Callable[[jax.Array], jax.Array],
    low: jax.Array,
    high: jax.Array,
    sizes: tuple[int, ...],
    safe: jax.Array,
) -> jax.Array:
    """∫ of a density between limits (d,), which may be infinite: in the box and beyond it.

    Nodes without weight are put at ``safe`` (d,), where the density has derivatives.
    """
    d = len(sizes)
    axes, parts = [], []
    for axis, m in enumerate(sizes):
        place, weight = _axis(low[axis], high[axis], _number(m, d), STEP[d])
        axes.append(jnp.where(weight > 0, place, safe[axis]))
        parts.append(weight)
    nodes = jnp.stack([part.ravel() for part in jnp.meshgrid(*axes, indexing="ij")])
    weights = parts[0] if d == 1 else jnp.outer(parts[0], parts[1]).ravel()
    return jnp.sum(weights * jnp.exp(log_density(nodes)))


def _axis(low: jax.Array, high: jax.Array, number: int, step: float) -> tuple[jax.Array, jax.Array]:
    """Nodes and weights from ``low`` to ``high``: left of [-1, 1], in it, right of it."""
    x, v = np.polynomial.legendre.leggauss(number)
    t = np.arange(*REACH, step)
    far = np.exp(0.5 * np.pi * np.sinh(t))
    far_weight = step * 0.5 * np.pi * np.cosh(t) * far

    def tail(length: jax.Array) -> tuple[jax.Array, jax.Array]:
        """From 0 to ``length``; never quite there, where a density may be singular."""
        length = jnp.clip(length, 0.0, LONG)
        share = length / (length + far)
        return jnp.minimum(far * share, (1 - 1e-9) * length), far_weight * share**2

    a, b = jnp.clip(low, -1.0, 1.0), jnp.clip(high, -1.0, 1.0)
    left, right = jnp.minimum(high, -1.0), jnp.maximum(low, 1.0)
    (to_left, left_weight), (to_right, right_weight) = tail(left - low), tail(high - right)
    nodes = [left - to_left, 0.5 * (a + b) + 0.5 * (b - a) * x, right + to_right]
    return jnp.concatenate(nodes), jnp.concatenate([left_weight, 0.5 * (b - a) * v, right_weight])


def normaliser(
    f: jax.Array, log_g0: jax.Array, weights: jax.Array, supported: jax.Array | float
) -> jax.Array:
    """Z from f and log g0 at the nodes; ``supported`` is P0(support)."""
    share = jax.nn.sigmoid(f) - 0.5
    return 0.5 * supported + jnp.sum(weights * jnp.exp(log_g0) * share)


def log_fits_density(n: int, Z: jax.Array, budget: jax.Array) -> jax.Array:
    """log P(|Y| <= B) for a density: |Y| rejections before the n-th acceptance."""
    B = budget.astype(float)
    far = n * (1 - Z) / Z + FAR * jnp.sqrt(n * (1 - Z) + 1.0) / Z
    safe = jnp.clip(Z, 1e-12, 1 - 1e-12)
    return lax.cond(
        far < B, lambda: jnp.zeros(()), lambda: jnp.log(betainc(float(n), B + 1.0, safe))
    )


def log_fits_intensity(mean: jax.Array, budget: jax.Array) -> jax.Array:
    """log P(|Y| <= B) for an intensity: |Y| is Poisson."""
    B = budget.astype(float)
    far = mean + FAR * jnp.sqrt(mean + 1.0)
    return lax.cond(
        far < B,
        lambda: jnp.zeros(()),
        lambda: jnp.log(gammaincc(B + 1.0, jnp.maximum(mean, 1e-300))),
    )
