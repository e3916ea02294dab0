"""The finite basis: eigenfunctions of the Laplacian in a box (Solin & Särkkä 2020).

In coordinates u in which the box is [-1, 1]^d,

    f(u) = sum_j √S(omega_j) beta_j phi_j(u),   phi_j(u) = prod_d sin(omega_{jd} (u_d + 1)),
    omega_{jd} = pi j_d / 2,   beta_j ~ N(0, 1),

approximates a Gaussian process with spectral density S where the box is wide enough, and is a
process of its own, zero on the boundary of the box and outside it, everywhere else.

Products of sines are sums of cosines, sin a sin b = ½ (cos(a - b) - cos(a + b)). So the matrix
Phiᵀ Omega Phi of N points and m functions needs no N m² products, but 2m + 1 sums of weighted
cosines in one dimension, (2m + 1)² in two.

cos(k theta) and sin(k theta), k = 0, ..., K, come from one cosine and one sine. Rows double:
cos((k+j) theta) = cos k theta cos j theta - sin k theta sin j theta, and so on. Errors grow like
log2(K) roundings. Each doubling stands behind a wall to fusion, without which XLA computes the
first rows again for every later one: 20 times slower.

The box must reach where proposals fall, and further by some length-scales, because f is drawn to
zero at its boundary; the functions must oscillate faster than f does. What both leave out is
measured as the largest error of the prior covariance between places among the data, in units of
the variance; the result reports it.

The exact process has another basis (``Grid``) in the result: f at the nodes of a grid, and a spline
between. A draw of the exact process is known where it was evaluated. Every sweep evaluates it,
jointly, at the nodes of a Gauss-Legendre rule in the box, as far as it is in the support, and
between them f is read off a cubic spline, which is linear in the values at the nodes. Outside the
box f is taken for zero where densities are evaluated, and Z is that of the same function: a finer
rule integrates the spline. The sampler itself knows neither box nor spline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.interpolate import CubicSpline

from offcut.gp import types as t
from offcut.gp.covariance import Covariance
from offcut.gp.quadrature import legendre
from offcut.numerics.arrays import bucket


def waves(theta: t.Values, count: int) -> tuple[Float[Array, "K P"], Float[Array, "K P"]]:
    """Cosines and sines of the multiples of ``theta``, K = count + 1 of each."""
    c = jnp.stack([jnp.ones_like(theta), jnp.cos(theta)])
    s = jnp.stack([jnp.zeros_like(theta), jnp.sin(theta)])
    while (k := c.shape[0] - 1) < count:
        c, s = lax.optimization_barrier((c, s))
        more = min(k, count - k)
        cj, sj = c[1 : more + 1], s[1 : more + 1]
        ck, sk = c[k][None, :], s[k][None, :]
        c, s = jnp.concatenate([c, ck * cj - sk * sj]), jnp.concatenate([s, sk * cj + ck * sj])
    return lax.optimization_barrier((c, s))


def twice_as_many(c: Float[Array, "K P"], s: Float[Array, "K P"]) -> Float[Array, "K2 P"]:
    """Cosines up to 2K from the cosines and sines up to K."""
    K = c.shape[0] - 1
    more = lax.optimization_barrier(c[K][None, :] * c[1:] - s[K][None, :] * s[1:])
    return jnp.concatenate([c, more])


@dataclass(frozen=True)
class Basis:
    """How many functions along each axis; products of them, or their sums (additive)."""

    sizes: tuple[int, ...]
    additive: bool = False

    @property
    def d(self) -> int:
        return len(self.sizes)

    @property
    def number(self) -> int:
        """m, of all functions."""
        return sum(self.sizes) if self.additive else int(np.prod(self.sizes))

    def frequencies(self) -> Float[np.ndarray, "m d"]:
        """omega; of a sum of functions each has one axis of its own, nan on the others."""
        if self.additive:
            rows = np.full((self.number, self.d), np.nan)
            starts = np.cumsum([0, *self.sizes])
            for axis, size in enumerate(self.sizes):
                rows[starts[axis] : starts[axis + 1], axis] = np.arange(1, size + 1)
        else:
            rows = np.array(list(product(*(range(1, size + 1) for size in self.sizes))), float)
        return 0.5 * np.pi * rows

    def log_spectrum(
        self, covariance: Covariance, log_length_scales: Float[t.Floats, " d"], xp: ModuleType = jnp
    ) -> Float[t.Floats, " m"]:
        """log S(omega_j) for variance 1 and length-scales in units of half the box."""
        omega = self.frequencies()
        if not self.additive:
            return covariance.log_spectral_density(log_length_scales, omega, xp)
        parts = [
            covariance.log_spectral_density(
                log_length_scales[axis : axis + 1],
                omega[np.isfinite(omega[:, axis])][:, [axis]],
                xp,
            )
            for axis in range(self.d)
        ]
        return xp.concatenate(parts) - np.log(self.d)  # the variance is that of the sum

    def evaluate(self, w: t.Weights, u: t.Columns) -> t.Values:
        """f = sum_j w_j phi_j at points."""
        sines = self._sines(u)
        if self.additive:
            return w @ jnp.concatenate(sines)
        return _contracted(w.reshape(self.sizes), sines)

    def sums(
        self, u: t.Columns, omega: t.Values, kappa: t.Values
    ) -> tuple[Float[Array, " ..."], t.Weights]:
        """What Phiᵀ Omega Phi and Phiᵀ kappa are made of, of points; they add up."""
        if self.additive:
            rows = jnp.concatenate(self._sines(u))
            return (rows * omega[None, :]) @ rows.T, rows @ kappa
        both = [waves(_angle(u[axis]), m) for axis, m in enumerate(self.sizes)]
        cosines = [twice_as_many(c, s) for c, s in both]
        sines = [s[1:] for _, s in both]
        return _product_sums(cosines, omega), _product_sums(sines, kappa).reshape(-1)

    def project(self, u: t.Columns, kappa: t.Values) -> t.Weights:
        """Phiᵀ kappa."""
        sines = self._sines(u)
        if self.additive:
            return jnp.concatenate(sines) @ kappa
        return _product_sums(sines, kappa).reshape(-1)

    def _sines(self, u: t.Columns) -> list[Float[Array, "_ P"]]:
        return [waves(_angle(u[axis]), m)[1][1:] for axis, m in enumerate(self.sizes)]

    def no_sums(self) -> tuple[Float[Array, " ..."], t.Weights]:
        """The sums of no points."""
        if self.additive:
            return jnp.zeros((self.number, self.number)), jnp.zeros(self.number)
        return jnp.zeros([2 * m + 1 for m in self.sizes]), jnp.zeros(self.number)

    def gram(self, sums: Float[Array, " ..."]) -> Float[Array, "m m"]:
        """Phiᵀ Omega Phi."""
        if self.additive:
            return sums
        matrix = sums
        for axis, m in enumerate(self.sizes):
            # Axis by axis: (..., 2m+1, ...) becomes (..., m, m, ...) at places 2 axis, 2 axis + 1.
            # (From iota: as constants the indices would be most of the program.)
            row, column = (lax.broadcasted_iota(np.int32, (m, m), side) for side in (0, 1))
            minus, plus = jnp.abs(row - column), row + column + 2
            place = 2 * axis
            matrix = 0.5 * (
                jnp.take(matrix, minus, axis=place) - jnp.take(matrix, plus, axis=place)
            )
        order = [2 * axis for axis in range(self.d)] + [2 * axis + 1 for axis in range(self.d)]
        return jnp.transpose(matrix, order).reshape(self.number, self.number)

    def tables(self, nodes: Sequence[t.HostAxis]) -> list[t.Table]:
        """sin(omega (u + 1)) at coordinates of each axis: a row for each function."""
        return [
            np.sin(
                np.arange(1, m + 1)[:, None] * (0.5 * np.pi * (np.clip(u, -1, 1) + 1.0))[None, :]
            )
            for m, u in zip(self.sizes, nodes, strict=True)
        ]

    def on_grid(
        self,
        w: Float[t.Floats, " m"],
        tables: Sequence[Float[t.Floats, "_ _"]],
        xp: ModuleType = jnp,
    ) -> Float[t.Floats, " ..."]:
        """f at all points of a grid, (nodes, nodes, ...), from the tables of its axes."""
        if self.additive:
            starts = np.cumsum([0, *self.sizes])
            total = xp.zeros([table.shape[1] for table in tables])
            for axis, table in enumerate(tables):
                part = w[starts[axis] : starts[axis + 1]] @ table
                shape = [1] * self.d
                shape[axis] = part.shape[0]
                total = total + part.reshape(shape)
            return total
        values = w.reshape(self.sizes)
        for table in tables:
            values = xp.tensordot(values, table, axes=(0, 0))  # the new axis comes last
        return values

    def features(self, u: t.HostColumns) -> t.HostFeatures:
        """phi_j at points; NumPy, for checks and small numbers."""
        tables = self.tables(list(u))
        return np.asarray(np.concatenate(tables) if self.additive else _products(tables, np))


class Grid(Basis):
    """Splines through the nodes of a grid, so many along each axis: weights are values there."""

    def axes(self) -> list[t.HostAxis]:
        """Coordinates of the nodes along each axis, in (-1, 1)."""
        return [legendre(size)[0] for size in self.sizes]

    def nodes(self) -> Float[np.ndarray, "d m"]:
        return np.stack([part.ravel() for part in np.meshgrid(*self.axes(), indexing="ij")])

    def evaluate(self, w: t.Weights, u: t.Columns) -> t.Values:
        tables = []
        for axis, place in zip(self.axes(), u, strict=True):
            piece = jnp.clip(jnp.searchsorted(jnp.asarray(axis), place) - 1, 0, len(axis) - 2)
            away = place - jnp.asarray(axis)[piece]
            powers = jnp.stack([away**3, away**2, away, jnp.ones_like(away)])
            spline = jnp.asarray(CubicSpline(axis, np.eye(len(axis))).c)
            tables.append(jnp.sum(powers[:, :, None] * spline[:, piece, :], axis=0).T)
        return jnp.where(jnp.all(jnp.abs(u) <= 1, axis=0), w @ _products(tables, jnp), 0.0)

    def tables(self, nodes: Sequence[t.HostAxis]) -> list[t.Table]:
        """Splines along each axis, those of nodes beyond the box at its edge."""
        return [
            CubicSpline(axis, np.eye(len(axis)))(np.clip(place, -1, 1)).T
            for axis, place in zip(self.axes(), nodes, strict=True)
        ]

    def features(self, u: t.HostColumns) -> t.HostFeatures:
        return super().features(u) * (np.abs(u) <= 1).all(0)


def _angle(u: t.Values) -> t.Values:
    """omega_1 (u + 1); beyond the box that of its boundary, where all functions are zero."""
    return 0.5 * np.pi * (jnp.clip(u, -1.0, 1.0) + 1.0)


def _products(tables: Sequence[Float[t.Floats, "_ P"]], xp: ModuleType) -> Float[t.Floats, "m P"]:
    """Products of functions along the axes, from their values at the points."""
    rows = xp.ones((1, tables[0].shape[1]))
    for table in tables:
        rows = (rows[:, None, :] * table[None, :, :]).reshape(-1, table.shape[1])
    return rows


def _contracted(W: Float[Array, " ..."], sines: list[Float[Array, "_ P"]]) -> t.Values:
    """sum over all indices of W[j1, ..., jd] s1[j1] ... sd[jd]."""
    P = sines[0].shape[1]
    values = W.reshape(-1, W.shape[-1]) @ sines[-1]
    for rows in reversed(sines[:-1]):
        values = jnp.sum(values.reshape(-1, rows.shape[0], P) * rows[None, :, :], axis=1)
    return values.reshape(P)


def _product_sums(rows: list[Float[Array, "_ P"]], weights: t.Values) -> Float[Array, " ..."]:
    """sum_p weights_p rows1[k1, p] ... rowsd[kd, p], (k1, ..., kd)."""
    if len(rows) == 1:
        return rows[0] @ weights
    left = weights[None, :]
    for part in rows[:-1]:
        left = (left[:, None, :] * part[None, :, :]).reshape(-1, weights.shape[0])
    return (left @ rows[-1].T).reshape([part.shape[0] for part in rows])


#: Beyond data and likely proposals the box reaches this many standard deviations of the data, and
#: length-scales.
BEYOND_DATA, BEYOND_SCALES = 1.0, 3.0
#: Functions at most: in all where they are products, along each axis where they are sums.
MOST_FUNCTIONS = {1: 256, 2: 400, 3: 1000}
LEAST_FUNCTIONS = 8
#: Points along each axis at which the covariance is compared.
COMPARED = {1: 60, 2: 9, 3: 5}


class Box(NamedTuple):
    """Centre and half-widths, in the units of the data."""

    centre: t.HostVector
    half: t.HostVector

    @property
    def lower(self) -> t.HostVector:
        return self.centre - self.half

    @property
    def upper(self) -> t.HostVector:
        return self.centre + self.half

    def inside(self, x: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Points in coordinates in which the box is [-1, 1]^d."""
        return (x - self.centre) / self.half

    def outside(self, u: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """The same points in the units of the data."""
        return self.centre + self.half * u


def box_around(
    low: t.HostVector, high: t.HostVector, spread: t.HostVector, length_scale: t.HostVector
) -> Box:
    """The box for proposals mostly between ``low`` and ``high``, and some way beyond."""
    margin = BEYOND_DATA * spread + BEYOND_SCALES * length_scale
    return Box(0.5 * (low + high), 0.5 * (high - low) + margin)


def sizes_for(
    covariance: Covariance, box: Box, shortest: t.HostVector, additive: bool
) -> tuple[int, ...]:
    """Functions along each axis for length-scales down to ``shortest``, as far as allowed."""
    d = len(box.half)
    wanted = np.ceil(covariance.functions * box.half / shortest)
    # A quarter more at the most, so that data sets of a kind share a program.
    wanted = np.array([bucket(int(m), LEAST_FUNCTIONS) for m in wanted])
    if additive:
        most = MOST_FUNCTIONS[1] // 4
        return tuple(int(min(m, most)) for m in wanted)
    most = MOST_FUNCTIONS.get(d, 1000)
    product = float(np.prod(wanted))
    if product > most:
        wanted = np.maximum(np.floor(wanted * (most / product) ** (1 / d)), 2)
    return tuple(int(m) for m in wanted)


def covariance_error(
    covariance: Covariance,
    box: Box,
    basis: Basis,
    length_scale: t.HostVector,
    low: t.HostVector,
    high: t.HostVector,
) -> float:
    """Largest error of the prior covariance of f between places from ``low`` to ``high``."""
    d = len(low)
    if basis.additive:  # axis by axis; the sum has the mean of their errors at most
        errors = []
        for axis in range(d):
            part = slice(axis, axis + 1)
            one, own = Box(box.centre[part], box.half[part]), Basis(basis.sizes[part])
            args = (length_scale[part], low[part], high[part])
            errors.append(covariance_error(covariance, one, own, *args))
        return float(np.mean(errors))
    count = COMPARED.get(d, 3)
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    points = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    scaled = points / length_scale[:, None]
    exact = covariance.correlations(scaled, scaled, np)
    log_S = basis.log_spectrum(covariance, np.log(length_scale / box.half), np)
    rows = np.exp(0.5 * log_S)[:, None] * basis.features(box.inside(points.T).T)
    return float(np.abs(rows.T @ rows - exact).max())
