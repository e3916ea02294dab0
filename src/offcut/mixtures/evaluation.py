"""What the posterior of a mixture says at points: densities and predictive events.

Posterior draws as arrays (``Draws``) are what these, labels and tables are computed from. Before
the filter the density is sum_k omega_k N_k(x). What passes has density
a(x) sum_k (w_k / Z_k) N_k(x), w_k being the weights in the window and Z_k the components' masses
there. The marginal of some coordinates x_A is sum_k (w_k / Z_k) N_k(x_A) E[a(x) | x_A], the last a
normal expectation over the other coordinates, taken over a lattice that is shifted at random for
every draw. Everything stays on the log scale, means over draws as well, so that points far from
all data have a log density. Predictive events are draws of draws, by rejection where the filter
applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import ndtri

from offcut.errors import DataError, SettingsError
from offcut.mixtures.groups import fitted_names, place_of_group
from offcut.mixtures.window import Window
from offcut.mixtures.window_mass import lattice, shifted
from offcut.numerics import keys
from offcut.numerics.normal import log_normals
from offcut.programs.precision import in_float64

#: Numbers in one temporary array.
ROOM = 2**22
#: (what is known of one draw ..., points (d, m)) -> one number for each point, or more
OfDraw = Callable[..., jax.Array]


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


def log_components(means: jax.Array, covariances: jax.Array, points: jax.Array) -> jax.Array:
    """log N_k at points (d, m), (K, m)."""
    return log_normals(points, means, jnp.linalg.cholesky(covariances))


def log_mixture(
    log_c: jax.Array, means: jax.Array, covariances: jax.Array, points: jax.Array
) -> jax.Array:
    """log sum_k c_k N_k at points (d, m)."""
    terms = log_components(means, covariances, points) + log_c[:, None]
    return jax.nn.logsumexp(terms, axis=0)


def chunks(rows: int, width: int) -> Iterator[slice]:
    """Slices of ``rows`` such that each has about ROOM numbers, ``width`` for a row."""
    step = max(1, ROOM // max(width, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def over_draws(
    of_draw: OfDraw, by_draw: tuple[np.ndarray, ...], x: np.ndarray, each: bool = False
) -> np.ndarray:
    """``of_draw(*one of each by_draw, points)`` at points (m, d), the axis of points being last.

    The log of the mean over draws of its exponential, or the values of each draw.
    """
    arguments = tuple(map(jnp.asarray, by_draw))
    evaluate = in_each_draw if each else _log_mean_over_draws
    found = []
    for part in chunks(len(x), 4 * by_draw[0].shape[-1]):
        # Compiled for powers of two, not for every number of points.
        number = part.stop - part.start
        points = np.resize(x[part], (2 ** int(np.ceil(np.log2(number))), x.shape[1]))
        values = evaluate(of_draw, arguments, jnp.asarray(points.T))
        found.append(np.asarray(values)[..., :number])
    return np.concatenate(found, axis=-1)


@partial(jax.jit, static_argnums=0)
def in_each_draw(of_draw: OfDraw, by_draw: tuple, *rest: jax.Array) -> jax.Array:
    """(draw, ..., point); ``rest`` is the same for all draws."""
    return jax.lax.map(lambda draw: of_draw(*draw, *rest), by_draw)


@partial(jax.jit, static_argnums=0)
def _log_mean_over_draws(of_draw: OfDraw, by_draw: tuple, points: jax.Array) -> jax.Array:
    """(..., point)."""

    def at(i: jax.Array | int) -> jax.Array:
        return of_draw(*jax.tree.map(lambda a: a[i], by_draw), points)

    number = by_draw[0].shape[0]
    start = jnp.full_like(jax.eval_shape(at, 0), -jnp.inf)
    total = jax.lax.fori_loop(0, number, lambda i, total: jnp.logaddexp(total, at(i)), start)
    return total - np.log(number)


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


#: Draws that a density is averaged over unless the user says otherwise.
DENSITY_DRAWS = 1000
#: Components that a marginal in the window is computed from, the heaviest of each draw.
MOST_COMPONENTS = 24
#: Lattice points for the coordinates that are integrated out, in each draw.
MARGINAL_POINTS = 16


@in_float64
def log_density(
    posterior: xr.DataTree,
    window: Window,
    points: Any,
    channels: Sequence[int] | None = None,
    draws: bool = False,
    truncated: bool = True,
    group: Any = None,
    most: int | None = DENSITY_DRAWS,
) -> np.ndarray:
    """Of some coordinates, or all: of the mean over draws, (point,), or each, (chain, draw, point).

    ``points`` has a column for each of ``channels``.
    """
    drawn = draws_of(posterior, most)
    d = drawn.means.shape[-1]
    kept = list(range(d)) if channels is None else [int(c) for c in channels]
    if len(set(kept)) != len(kept) or not all(0 <= c < d for c in kept) or not kept:
        raise SettingsError(f"channels must be different numbers from 0 to {d - 1}, got {channels}")
    x = as_points(points, len(kept))
    number = place_of_group(group, drawn.names)
    window = window.for_groups(drawn.names)
    log_c = log_terms(drawn)[:, number] if truncated else finite_log(drawn.weights[:, number])
    if truncated and len(kept) < d:
        heavy = np.argsort(-drawn.window_weights[:, number], axis=1)[:, :MOST_COMPONENTS]
        rows = np.arange(len(heavy))[:, None]
        rest = [c for c in range(d) if c not in kept]
        of_draw: OfDraw = partial(
            _log_marginal_inside, window, jnp.array(kept), jnp.array(rest), number
        )
        heaviest = (a[rows, heavy] for a in (log_c, drawn.means, drawn.covariances))
        values = over_draws(of_draw, (*heaviest, np.arange(len(heavy))), x, draws)
    else:
        parts = (log_c, drawn.means[..., kept], drawn.covariances[..., kept, :][..., kept])
        values = over_draws(log_mixture, parts, x, draws)
        if truncated:
            scalar = posterior["observed_data"].dataset["x"].ndim == 1
            passes = window_probability(window, x[:, np.argsort(kept)], number, scalar)
            with np.errstate(divide="ignore", invalid="ignore"):
                # Not what a window says of a point at infinity.
                values = np.where(np.isneginf(values), values, values + np.log(passes))
    return values.reshape(*drawn.shape, len(x)) if draws else values


def window_probability(window: Window, x: np.ndarray, group: int, scalar: bool) -> np.ndarray:
    """a(x) of points (m, d), for the group at place ``group``."""
    points = jnp.asarray(x[:, 0] if scalar else x)
    return np.asarray(window.probability(points, jnp.full(len(x), group)))


def _log_marginal_inside(
    window: Window,
    kept: jax.Array,
    rest: jax.Array,
    group: int,
    log_c: jax.Array,
    means: jax.Array,
    covariances: jax.Array,
    draw: jax.Array,
    points: jax.Array,
) -> jax.Array:
    """log sum_k c_k N_k(x_A) E_k[a | x_A] at points (A, m)."""
    key = jax.random.fold_in(keys.from_seed(0), draw)
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
    return jax.nn.logsumexp(terms + log_c[:, None], axis=0)


#: Rounds of proposals before an event is given up, and the least number of proposals in each.
MOST_ROUNDS = 1000
PROPOSALS = 4096


@in_float64
def predict(
    posterior: xr.DataTree,
    window: Window,
    size: int,
    *,
    truncated: bool,
    group: Any,
    seed: int,
) -> np.ndarray:
    """(size, d): components by their weights (before the filter or in the window), then points.

    Within the window a component is drawn by its weight there, and then a point from it until one
    passes.
    """
    drawn = draws_of(posterior, None)
    number = place_of_group(group, drawn.names)
    window = window.for_groups(drawn.names)
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(drawn.means), size=size)
    weights = (drawn.window_weights if truncated else drawn.weights)[rows, number]
    cumulative = np.cumsum(weights, axis=1)
    uniform = rng.random((size, 1)) * cumulative[:, -1:]
    label = np.minimum((cumulative <= uniform).sum(1), weights.shape[1] - 1)
    means = drawn.means[rows, label]
    roots = np.linalg.cholesky(drawn.covariances[rows, label])
    scalar = posterior["observed_data"].dataset["x"].ndim == 1

    key = keys.from_seed(seed)
    result = np.empty_like(means)
    pending = np.arange(size)
    for turn in range(MOST_ROUNDS):
        # Always as many, for JAX compiles for each number; the fewer events, the more for each.
        own = np.resize(pending, max(size, PROPOSALS))
        y = means[own] + np.einsum("nij,nj->ni", roots[own], rng.standard_normal(means[own].shape))
        passed = np.ones(len(own), bool)
        if truncated:
            points = jnp.asarray(y[:, 0] if scalar else y)
            group_of = jnp.full(len(own), number)
            passed = np.asarray(window.passes(jax.random.fold_in(key, turn), points, group_of))
        found, first = np.unique(own[passed], return_index=True)
        result[found] = y[passed][first]
        pending = np.setdiff1d(pending, found)
        if not len(pending):
            return result[:, 0] if scalar else result
    raise SettingsError(
        f"{len(pending)} of {size} events did not pass the filter in {MOST_ROUNDS} rounds of "
        "proposals: some draws have components with next to no mass in the window. Use "
        "truncated=False, or a tighter base"
    )
