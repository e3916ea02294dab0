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

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, Shaped

from offcut.errors import DataError, SettingsError
from offcut.mixtures.groups import fitted_names, place_of_group
from offcut.mixtures.window import Window
from offcut.mixtures.window_mass import lattice, shifted
from offcut.models.data import numbers_of
from offcut.numerics import keys
from offcut.numerics.normal import FAR, log_normals
from offcut.programs.precision import in_float64

#: Numbers that stay in a cache together, and the fewest points at a time.
CACHE, FEWEST = 2**17, 64
#: (what is known of one draw ..., points) -> one number for each point, or more
OfDraw = Callable[..., Shaped[Array, "... m"]]


class Draws(NamedTuple):
    """S draws side by side; weights and masses by group."""

    weights: Float[np.ndarray, "S G K"]
    window_weights: Float[np.ndarray, "S G K"]
    window_mass: Float[np.ndarray, "S G K"]
    means: Float[np.ndarray, "S K d"]
    covariances: Float[np.ndarray, "S K d d"]
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


def log_terms(draws: Draws) -> Float[np.ndarray, "S G K"]:
    """log(w_k / Z_k): what passes has density a sum_k (w_k / Z_k) N_k.

    A component whose mass was not resolved has Z_k = 0 and no part in it.
    """
    known = draws.window_mass > 0
    ratio = draws.window_weights / np.where(known, draws.window_mass, 1.0)
    return finite_log(np.where(known, ratio, 0.0))


def finite_log(weights: Float[np.ndarray, " ..."]) -> Float[np.ndarray, " ..."]:
    """Logarithms that stay finite: 0 times -inf must not be NaN."""
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(weights), -1e30)


class Weighted(NamedTuple):
    """sum_k c_k N_k, in one draw or in each: log N_k(x) = constant - ½ |R_k⁻¹(x - mu_k)|².

    Points are given from ``centre``, where their differences keep all digits. The same rows of all
    R_k⁻¹ stand together, so that each takes one product of matrices.
    """

    log_c: Float[Array, "... K"]  # with the constant of N_k; by group as well, for labels
    inverses: Float[Array, "... d K d"]
    offsets: Float[Array, "... d K"]  # R_k⁻¹(mu_k - centre)


def weighted(
    log_c: Float[np.ndarray, "S ... K"],
    means: Float[np.ndarray, "S K d"],
    covariances: Float[np.ndarray, "S K d d"],
) -> tuple[Weighted, Float[np.ndarray, " d"]]:
    """Of all draws, and the centre, where most components are."""
    S, K, d = means.shape
    centre = np.median(means.reshape(-1, d), axis=0)
    roots = np.linalg.cholesky(covariances)
    inverses = np.linalg.inv(roots)
    constant = -np.log(np.diagonal(roots, axis1=2, axis2=3)).sum(2) - 0.5 * d * np.log(2 * np.pi)
    log_c = log_c + constant.reshape(S, *[1] * (log_c.ndim - 2), K)
    offsets = np.einsum("skij,skj->sik", inverses, means - centre)
    parts = (log_c, inverses.transpose(0, 2, 1, 3), offsets)
    return Weighted(*map(jnp.asarray, parts)), centre


def log_summands(
    one: Weighted, points: Float[Array, "d m"], group: Int[Array, " m"] | None = None
) -> Float[Array, "K m"]:
    """log c_k N_k at points; where c_k is by group, ``group`` has that of each point."""
    log_c = one.log_c[:, None] if group is None else one.log_c[group].T

    def add(total: Float[Array, "K m"], row: tuple) -> tuple[Float[Array, "K m"], None]:
        inverse, offset = row
        return total - 0.5 * (inverse @ points - offset[:, None]) ** 2, None

    start = jnp.broadcast_to(log_c, (log_c.shape[0], points.shape[1]))
    return jax.lax.scan(add, start, (one.inverses, one.offsets))[0]


def log_mixture(one: Weighted, points: Float[Array, "d m"]) -> Float[Array, " m"]:
    """log sum_k c_k N_k at points."""
    return jax.nn.logsumexp(log_summands(one, points), axis=0)


def over_draws(
    of_draw: OfDraw, by_draw: tuple, x: Float[np.ndarray, "m d"], width: int, each: bool = False
) -> Float[np.ndarray, "... m"]:
    """``of_draw(*by_draw in one draw, points)`` at points, whose axis is the last.

    The log of the mean over draws of its exponential, or the values of each draw. ``width``
    numbers for each point fit into a cache together. At a coordinate that is infinite, or beyond
    ``FAR``, the values are -inf; at one that is NaN, NaN.
    """
    near = (np.abs(x) < FAR).all(1)
    known = np.where(near[:, None], x, 0.0)
    evaluate = in_each_draw if each else _log_mean_over_draws
    step = 2 ** int(np.log2(max(FEWEST, CACHE // width)))
    found = []
    for start in range(0, len(x), step):
        part = known[start : start + step]
        # Compiled for powers of two, not for every number of points.
        padded = np.resize(part, (max(FEWEST, 2 ** int(np.ceil(np.log2(len(part))))), x.shape[1]))
        values = np.asarray(evaluate(of_draw, by_draw, jnp.asarray(padded.T)))
        found.append(values[..., : len(part)])
    elsewhere = np.where(np.isnan(x).any(1), np.nan, -np.inf)
    return np.where(near, np.concatenate(found, axis=-1), elsewhere)


@partial(jax.jit, static_argnums=0)
def in_each_draw(
    of_draw: OfDraw, by_draw: tuple, *rest: Shaped[Array, " ..."]
) -> Shaped[Array, "S ... m"]:
    """``rest`` is the same for all draws."""
    return jax.lax.map(lambda draw: of_draw(*draw, *rest), by_draw)


@partial(jax.jit, static_argnums=0)
def _log_mean_over_draws(
    of_draw: OfDraw, by_draw: tuple, points: Float[Array, "d m"]
) -> Float[Array, "... m"]:
    def at(i: int | Int[Array, ""]) -> Float[Array, "... m"]:
        return of_draw(*jax.tree.map(lambda a: a[i], by_draw), points)

    number = jax.tree.leaves(by_draw)[0].shape[0]
    start = jnp.full_like(jax.eval_shape(at, 0), -jnp.inf)
    total = jax.lax.fori_loop(0, number, lambda i, total: jnp.logaddexp(total, at(i)), start)
    return total - np.log(number)


def as_points(points: object, d: int) -> Float[np.ndarray, "m d"]:
    """Floats from whatever was given; for d = 1 numbers will do."""
    array = np.asarray(numbers_of(points), float)
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
    points: object,
    channels: Sequence[int] | None = None,
    draws: bool = False,
    truncated: bool = True,
    group: object = None,
    most: int | None = DENSITY_DRAWS,
) -> Float[np.ndarray, "... m"]:
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
        parts = (a[rows, heavy] for a in (log_c, drawn.means, drawn.covariances))
        by_draw = (*map(jnp.asarray, parts), jnp.arange(len(heavy)))
        values = over_draws(of_draw, by_draw, x, MARGINAL_POINTS * d, draws)
    else:
        covariances = drawn.covariances[..., kept, :][..., kept]
        one, centre = weighted(log_c, drawn.means[..., kept], covariances)
        values = over_draws(log_mixture, (one,), x - centre, 4 * log_c.shape[1], draws)
        if truncated:
            scalar = posterior["observed_data"].dataset["x"].ndim == 1
            passes = window_probability(window, x[:, np.argsort(kept)], number, scalar)
            with np.errstate(divide="ignore", invalid="ignore"):
                # Not what a window says of a point at infinity.
                values = np.where(np.isneginf(values), values, values + np.log(passes))
    return values.reshape(*drawn.shape, len(x)) if draws else values


def window_probability(
    window: Window, x: Float[np.ndarray, "m d"], group: int, scalar: bool
) -> Float[np.ndarray, " m"]:
    """a(x) of points, for the group at place ``group``."""
    points = jnp.asarray(x[:, 0] if scalar else x)
    return np.asarray(window.probability(points, jnp.full(len(x), group)))


def _log_marginal_inside(
    window: Window,
    kept: Int[Array, " A"],
    rest: Int[Array, " B"],
    group: int,
    log_c: Float[Array, " K"],
    means: Float[Array, "K d"],
    covariances: Float[Array, "K d d"],
    draw: Int[Array, ""],
    points: Float[Array, "A m"],
) -> Float[Array, " m"]:
    """log sum_k c_k N_k(x_A) E_k[a | x_A] at points x_A."""
    key = jax.random.fold_in(keys.from_seed(0), draw)
    d, m = means.shape[1], points.shape[1]
    normals = ndtri(shifted(key, lattice(MARGINAL_POINTS, rest.shape[0])))

    def of_component(
        mean: Float[Array, " d"], covariance: Float[Array, "d d"]
    ) -> Float[Array, " m"]:
        own = covariance[kept][:, kept]
        root = jnp.linalg.cholesky(own)
        log_normal = log_normals(points, mean[kept][None], root[None])[0]
        slope = jnp.linalg.solve(own, covariance[kept][:, rest]).T
        left = covariance[rest][:, rest] - slope @ covariance[kept][:, rest]
        noise = normals @ jnp.linalg.cholesky(left).T
        middle = mean[rest][None, :] + (points - mean[kept][:, None]).T @ slope.T
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
    group: object,
    seed: int,
) -> Float[np.ndarray, "size ..."]:
    """Components by their weights (before the filter or in the window), then points.

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
    for attempt in range(MOST_ROUNDS):
        # Always as many, for JAX compiles for each number; the fewer events, the more for each.
        own = np.resize(pending, max(size, PROPOSALS))
        y = means[own] + np.einsum("nij,nj->ni", roots[own], rng.standard_normal(means[own].shape))
        passed = np.ones(len(own), bool)
        if truncated:
            points = jnp.asarray(y[:, 0] if scalar else y)
            own_key = jax.random.fold_in(key, attempt)
            passed = np.asarray(window.passes(own_key, points, jnp.full(len(own), number)))
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
