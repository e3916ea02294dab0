"""The exact process in the result: f at the nodes of a grid, and a spline between them.

A draw of the exact process is known where it was evaluated. Every sweep evaluates it, jointly, at
the nodes of a Gauss-Legendre rule in the box, as far as it is in the support, and between them f is
read off a cubic spline, which is linear in the values at the nodes. Outside the box f is taken for
zero where densities are evaluated, and Z is that of the same function: a finer rule integrates the
spline. The sampler itself knows neither box nor spline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline


class Grid(NamedTuple):
    """Nodes along each axis; it stands where a plan has its basis."""

    sizes: tuple[int, ...]
    additive: bool = False

    @property
    def d(self) -> int:
        """Dimensions."""
        return len(self.sizes)

    @property
    def number(self) -> int:
        """Of all nodes."""
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
