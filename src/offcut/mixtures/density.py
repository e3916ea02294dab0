r"""Densities under the posterior of a mixture, in the window or before the filter.

Before the filter sum_k omega_k N_k(x). What passes has density a(x) sum_k (w_k / Z_k) N_k(x), w_k
being the weights in the window and Z_k the components' masses there. The marginal of some
coordinates x_A is sum_k (w_k / Z_k) N_k(x_A) E[a(x) | x_A], the last a normal expectation over the
other coordinates, taken over a lattice that is shifted at random for every draw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import ndtri

from offcut import keys
from offcut.errors import SettingsError
from offcut.mixtures.draws import (
    Draws,
    as_points,
    chunks,
    components_of,
    draws_of,
    finite_log,
    log_terms,
)
from offcut.mixtures.features import log_normals
from offcut.mixtures.groups import place_of_group
from offcut.mixtures.window import Window
from offcut.mixtures.window_mass import lattice, shifted
from offcut.precision import in_float64

#: Components that a marginal in the window is computed from, the heaviest of each draw.
MOST_COMPONENTS = 24
#: Lattice points for the coordinates that are integrated out, in each draw.
MARGINAL_POINTS = 16


@in_float64
def density(
    posterior: xr.DataTree,
    window: Window,
    points: Any,
    *,
    draws: bool,
    truncated: bool,
    group: Any,
    most: int | None,
) -> np.ndarray:
    """Mean over draws, (point,), or one for each, (chain, draw, point)."""
    drawn = draws_of(posterior, most)
    d = drawn.means.shape[-1]
    x = as_points(points, d)
    number = place_of_group(group, drawn.names)
    window = window.for_groups(drawn.names)
    log_c = _log_coefficients(drawn, number, truncated)
    values = _evaluate(_log_density, drawn, log_c, x, draws)
    if truncated:
        scalar = posterior["observed_data"].dataset["x"].ndim == 1
        # Not 0 times what a window says of a point at infinity.
        values = np.where(values == 0, 0.0, values * window_probability(window, x, number, scalar))
    return values.reshape(*drawn.shape, len(x)) if draws else values


@in_float64
def marginal(
    posterior: xr.DataTree,
    window: Window,
    points: Any,
    channels: tuple[int, ...],
    *,
    draws: bool,
    truncated: bool,
    group: Any,
    most: int | None,
    seed: int = 0,
) -> np.ndarray:
    """Density of some coordinates; ``points`` has a column for each of ``channels``."""
    drawn = draws_of(posterior, most)
    d = drawn.means.shape[-1]
    kept = [int(c) for c in channels]
    if len(set(kept)) != len(kept) or not all(0 <= c < d for c in kept) or not kept:
        raise SettingsError(f"channels must be different numbers from 0 to {d - 1}, got {channels}")
    x = as_points(points, len(kept))
    number = place_of_group(group, drawn.names)
    window = window.for_groups(drawn.names)
    log_c = _log_coefficients(drawn, number, truncated)
    if truncated and len(kept) == d:
        order = np.argsort(kept)
        return density(
            posterior, window, x[:, order], draws=draws, truncated=True, group=group, most=most
        )
    if truncated:
        heavy = np.argsort(-drawn.window_weights[:, number], axis=1)[:, :MOST_COMPONENTS]
        rows = np.arange(len(heavy))[:, None]
        drawn = drawn._replace(
            means=drawn.means[rows, heavy], covariances=drawn.covariances[rows, heavy]
        )
        log_c = log_c[rows, heavy]
        rest = [c for c in range(d) if c not in kept]
        function: Callable = partial(
            _log_marginal_inside, window, jnp.array(kept), jnp.array(rest), number, seed
        )
    else:
        drawn = drawn._replace(
            means=drawn.means[:, :, kept], covariances=drawn.covariances[:, :, kept][..., kept]
        )
        function = _log_density
    values = _evaluate(function, drawn, log_c, x, draws)
    return values.reshape(*drawn.shape, len(x)) if draws else values


def window_probability(window: Window, x: np.ndarray, group: int, scalar: bool) -> np.ndarray:
    """a(x) of points (m, d), for the group at place ``group``."""
    points = jnp.asarray(x[:, 0] if scalar else x)
    return np.asarray(window.probability(points, jnp.full(len(x), group)))


def _log_coefficients(drawn: Draws, group: int, truncated: bool) -> np.ndarray:
    """log c_k with density sum_k c_k N_k, (draw, component)."""
    return log_terms(drawn)[:, group] if truncated else finite_log(drawn.weights[:, group])


def _evaluate(
    function: Callable, drawn: Draws, log_c: np.ndarray, x: np.ndarray, each: bool
) -> np.ndarray:
    """exp(function) at points, averaged over draws or each; in pieces that fit into memory."""
    number, K = log_c.shape
    arguments = (
        jnp.arange(number),
        jnp.asarray(log_c),
        jnp.asarray(drawn.means),
        jnp.asarray(drawn.covariances),
    )
    points = jnp.asarray(x.T)
    evaluate = _in_each_draw if each else _mean_over_draws
    parts = [
        np.asarray(evaluate(function, arguments, points[:, part]))
        for part in chunks(x.shape[0], K * 4)
    ]
    return np.concatenate(parts, axis=-1)


@partial(jax.jit, static_argnums=0)
def _in_each_draw(function: Callable, arguments: tuple, points: jax.Array) -> jax.Array:
    """(draw, point)."""
    return jax.lax.map(lambda draw: jnp.exp(function(*draw, points)), arguments)


@partial(jax.jit, static_argnums=0)
def _mean_over_draws(function: Callable, arguments: tuple, points: jax.Array) -> jax.Array:
    """(point,)."""
    number = arguments[0].shape[0]

    def add(i: jax.Array, total: jax.Array) -> jax.Array:
        draw = jax.tree.map(lambda a: a[i], arguments)
        return total + jnp.exp(function(*draw, points))

    return jax.lax.fori_loop(0, number, add, jnp.zeros(points.shape[1])) / number


def _log_density(
    index: jax.Array,
    log_weights: jax.Array,
    means: jax.Array,
    covariances: jax.Array,
    points: jax.Array,
) -> jax.Array:
    """log sum_k c_k N_k at points (d, m)."""
    terms = log_normals(points, *components_of(means, covariances)) + log_weights[:, None]
    return jax.nn.logsumexp(terms, axis=0)


def _log_marginal_inside(
    window: Window,
    kept: jax.Array,
    rest: jax.Array,
    group: int,
    seed: int,
    index: jax.Array,
    log_weights: jax.Array,
    means: jax.Array,
    covariances: jax.Array,
    points: jax.Array,
) -> jax.Array:
    """log sum_k c_k N_k(x_A) E_k[a | x_A] at points (A, m)."""
    key = jax.random.fold_in(keys.from_seed(seed), index)
    d, m = means.shape[1], points.shape[1]
    normals = ndtri(shifted(key, lattice(MARGINAL_POINTS, rest.shape[0])))
    finite = jnp.where(jnp.isfinite(points), points, 0.0)  # where they are not, log_normal says it

    def of_component(mean: jax.Array, covariance: jax.Array) -> jax.Array:
        own = covariance[kept][:, kept]
        root = jnp.linalg.cholesky(own)
        log_normal = log_normals(points, mean[kept][None], root[None])[0]
        slope = jnp.linalg.solve(own, covariance[kept][:, rest]).T
        left = covariance[rest][:, rest] - slope @ covariance[kept][:, rest]
        noise = normals @ jnp.linalg.cholesky(left).T
        middle = mean[rest][None, :] + (finite - mean[kept][:, None]).T @ slope.T
        whole = jnp.zeros((m, normals.shape[0], d))
        whole = whole.at[:, :, kept].set(
            jnp.broadcast_to(points.T[:, None], (m, len(normals), kept.shape[0]))
        )
        whole = whole.at[:, :, rest].set(middle[:, None, :] + noise[None, :, :])
        flat = whole.reshape(-1, d)
        passed = window.probability(flat, jnp.full(flat.shape[0], group))
        return log_normal + jnp.log(passed.reshape(m, -1).mean(1))

    terms = jax.lax.map(lambda part: of_component(*part), (means, covariances))
    return jax.nn.logsumexp(terms + log_weights[:, None], axis=0)
