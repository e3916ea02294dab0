"""Z = ∫ g0(x) sigma(f(x)) dx by Gauss-Legendre nodes in the box, in one and two dimensions.

f is zero outside the box, so that

    Z = ½ P0(support) + sum_q v_q g0(u_q) (sigma(f(u_q)) - ½),

nodes being in the box where it overlaps with the support. f is a finite sum of sines: the error
falls faster than any power of the number of nodes, and is below rounding for the numbers here.
Where limits of g0 depend on its parameters, nodes lie between them and move along.

P0(support) is 1 where the support cuts off nothing of g0. Otherwise it is a sum over the nodes,
over what is beyond the box too: there the substitution x = exp(pi/2 sinh t) takes tails of any
length and weight (Takahasi & Mori 1974).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import expit, roots_legendre

from offcut.gp import types as t

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


class Quadrature(NamedTuple):
    """Nodes in coordinates u, their weights, and tables of the basis along the axes.

    Where nodes move with the parameters of the base: those of [-1, 1]^d, and no tables.
    """

    nodes: t.Nodes
    weights: t.AtNodes
    tables: tuple[Float[Array, "_ _"], ...]

    @classmethod
    def of(cls, nodes: t.HostColumns, weights: t.HostAxis, tables: Sequence[t.Table]) -> Quadrature:
        """With arrays of the host, as compiled code takes them."""
        arrays: tuple[Any, ...] = (nodes, weights, tuple(tables))
        return cls(*arrays)


@lru_cache(maxsize=32)
def legendre(number: int) -> tuple[t.HostAxis, t.HostAxis]:
    """Nodes and weights of Gauss and Legendre on [-1, 1].

    SciPy's, from a tridiagonal matrix: NumPy's takes seconds for the hundreds of nodes needed here.
    """
    nodes, weights = roots_legendre(number)
    return nodes, weights


#: sin(omega (u + 1)), or splines, at coordinates of each axis.
Tables = Callable[[Sequence[t.HostAxis]], Sequence[t.Table]]


def rule(
    tables_at: Tables, sizes: tuple[int, ...], low: t.HostVector, high: t.HostVector, finer: int = 1
) -> Quadrature:
    """Nodes between ``low`` and ``high``, as many as a basis of such sizes asks for."""
    axes, parts = [], []
    for m, a, b in zip(sizes, low, high, strict=True):
        x, v = legendre(_number(m, len(sizes), finer))
        axes.append(0.5 * (a + b) + 0.5 * (b - a) * x)
        parts.append(0.5 * (b - a) * v)
    return _product(axes, parts, tables_at)


def panels(tables_at: Tables, ends: Sequence[t.HostAxis], finer: int = 1) -> Quadrature:
    """Nodes between neighbours of ``ends`` along each axis, for what is smooth only there."""
    x, v = legendre(PER_PANEL[len(ends)] * finer)
    axes, parts = [], []
    for end in ends:
        half = 0.5 * np.diff(end)[:, None]
        axes.append((end[:-1, None] + half * (1 + x)).ravel())
        parts.append((half * v).ravel())
    return _product(axes, parts, tables_at)


def _number(m: int, d: int, finer: int = 1) -> int:
    return finer * (PER_FUNCTION[d] * m + LEAST[d])


def _product(axes: list[t.HostAxis], parts: list[t.HostAxis], tables_at: Tables) -> Quadrature:
    nodes = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    weights = parts[0] if len(axes) == 1 else np.outer(*parts).ravel()
    return Quadrature.of(nodes, weights, tables_at(axes))


def between(reference: Quadrature, low: t.Vector, high: t.Vector) -> tuple[t.Nodes, t.AtNodes]:
    """Nodes and weights of [-1, 1]^d between limits in it; no weight where they cross."""
    low, high = jnp.clip(low, -1.0, 1.0), jnp.clip(high, -1.0, 1.0)
    half = 0.5 * jnp.maximum(high - low, 0.0)
    nodes = 0.5 * (low + high)[:, None] + half[:, None] * reference.nodes
    return nodes, jnp.prod(half) * reference.weights


def mass(
    log_density: Callable[[t.Columns], t.Values],
    low: t.Vector,
    high: t.Vector,
    sizes: tuple[int, ...],
    safe: t.Vector,
) -> t.Number:
    """∫ of a density between limits, which may be infinite: in the box and beyond it.

    Nodes without weight are put at ``safe``, where the density has derivatives.
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


def _axis(low: t.Number, high: t.Number, number: int, step: float) -> tuple[t.AtNodes, t.AtNodes]:
    """Nodes and weights from ``low`` to ``high``: left of [-1, 1], in it, right of it."""
    x, v = legendre(number)
    at = np.arange(*REACH, step)
    far = np.exp(0.5 * np.pi * np.sinh(at))
    far_weight = step * 0.5 * np.pi * np.cosh(at) * far

    def tail(length: t.Number) -> tuple[jax.Array, jax.Array]:
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
    f: t.AtNodes, log_g0: t.AtNodes, weights: t.AtNodes, supported: t.Number
) -> t.Number:
    """Z from f and log g0 at the nodes; ``supported`` is P0(support)."""
    share = jax.nn.sigmoid(f) - 0.5
    return 0.5 * supported + jnp.sum(weights * jnp.exp(log_g0) * share)


def normaliser_on_host(
    f: Float[np.ndarray, "r Q"],
    log_g0: Float[np.ndarray, "r Q"],
    weights: t.HostAxis,
    supported: Float[np.ndarray, " r"],
) -> Float[np.ndarray, " r"]:
    """The same of many draws, with NumPy."""
    return 0.5 * supported + (np.exp(log_g0) * (expit(f) - 0.5)) @ weights
