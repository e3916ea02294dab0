"""Posterior draws of a mixture as arrays: what densities, labels and tables are computed from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut.errors import DataError
from offcut.mixtures.base import Components
from offcut.mixtures.groups import fitted_names

#: Numbers in one temporary array.
ROOM = 2**22


class Draws(NamedTuple):
    """Draws side by side, (draw, ...); weights by group, (draw, group, component)."""

    weights: np.ndarray
    window_weights: np.ndarray
    window_mass: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    shape: tuple[int, int]  # chains and draws that were used
    names: tuple[str, ...] = ("0",)  # of the groups

    @property
    def groups(self) -> int:
        """Groups with weights or windows of their own."""
        return self.window_weights.shape[1]


def draws_of(posterior: xr.DataTree, most: int | None) -> Draws:
    """At most ``most`` draws, evenly spaced within every chain; all of them for None."""
    dataset = posterior["posterior"].dataset
    missing = [name for name in ("window_weights", "means", "covariances") if name not in dataset]
    if missing:
        raise DataError(
            f"the posterior has no {', '.join(missing)}: it is not one of a TruncatedMixture"
        )
    chains, length = dataset.sizes["chain"], dataset.sizes["draw"]
    keep = length if most is None else max(1, min(length, most // chains))
    chosen = np.unique(np.linspace(0, length - 1, keep).round().astype(int))

    def flat(name: str) -> np.ndarray:
        values = dataset[name].values[:, chosen]
        return values.reshape(-1, *values.shape[2:])

    def by_group(name: str) -> np.ndarray:
        values = flat(name)
        return values if values.ndim == 3 else values[:, None]

    parts = [by_group(name) for name in ("weights", "window_weights", "window_mass")]
    groups = max(part.shape[1] for part in parts)
    weights, within, mass = (
        np.broadcast_to(part, (part.shape[0], groups, part.shape[2])) for part in parts
    )
    names = fitted_names(posterior) or tuple(map(str, range(groups)))
    shape = (chains, len(chosen))
    return Draws(weights, within, mass, flat("means"), flat("covariances"), shape, names)


def log_terms(draws: Draws) -> np.ndarray:
    """log(w_k / Z_k), (draw, group, component): what passes has density a sum_k (w_k / Z_k) N_k.

    A component whose mass was not resolved has Z_k = 0 and no part in it.
    """
    known = draws.window_mass > 0
    ratio = draws.window_weights / np.where(known, draws.window_mass, 1.0)
    return finite_log(np.where(known, ratio, 0.0))


def finite_log(weights: np.ndarray) -> np.ndarray:
    """Logarithms that stay finite: 0 times -inf must not be NaN."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(weights), -1e30)


def components_of(means: jax.Array, covariances: jax.Array) -> Components:
    """Components from means and covariances, (K, d) and (K, d, d)."""
    return Components(means, jnp.linalg.cholesky(covariances))


def chunks(rows: int, width: int) -> Iterator[slice]:
    """Slices of ``rows`` such that each has about ROOM numbers, ``width`` for a row."""
    step = max(1, ROOM // max(width, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def as_points(points: Any, d: int) -> np.ndarray:
    """(m, d) floats from whatever was given; for d = 1 numbers will do."""
    array = np.asarray(getattr(points, "values", points), float)
    if d == 1 and array.ndim <= 1:
        array = array.reshape(-1, 1)
    if array.ndim == 1 and array.shape[0] == d:
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != d:
        raise DataError(f"points must have {d} columns, got shape {array.shape}")
    return array
