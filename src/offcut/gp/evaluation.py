"""What draws of f and of the base amount to: densities, intensities, bands, new points, Y."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from scipy.special import expit, logsumexp

from offcut.base import MOST_REJECTED
from offcut.errors import DataError, SettingsError
from offcut.gp.base_density import BaseDensity
from offcut.gp.plan import Prepared
from offcut.numerics import keys
from offcut.programs.precision import in_float64

#: Numbers in one piece of a table of draws by points.
PIECE = 4_000_000
#: Proposals for each draw where the normaliser is not known by quadrature.
MONTE_CARLO = 4096
MOST_ROUNDS = 10_000


class Bands(NamedTuple):
    """Pointwise summaries of a curve or surface over the draws, each of shape (point,)."""

    points: np.ndarray
    mean: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float


class Comparison(NamedTuple):
    """The difference of two densities (first less second) at points."""

    points: np.ndarray
    mean: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability_greater: np.ndarray  # that the first exceeds the second


class Draws(NamedTuple):
    """All draws in a row: weights (S, M), parameters of the base (S, k), log Z, log rate (S,)."""

    w: np.ndarray
    p: np.ndarray
    log_normaliser: np.ndarray
    rate: np.ndarray
    shape: tuple[int, int]


@in_float64
def draws_of(posterior: xr.DataTree, prepared: Prepared) -> Draws:
    """The draws as the functions here need them."""
    dataset: Any = posterior["posterior"].dataset
    w = dataset["weights"].values
    shape = w.shape[:2]
    flat = {name: values.values.reshape(-1, *values.shape[2:]) for name, values in dataset.items()}
    base, data = prepared.plan.base, prepared.data
    p = np.asarray(base.positions(flat, np.asarray(data.centre), np.asarray(data.half)))
    stats: Any = posterior["sample_stats"].dataset
    if "log_normaliser" in stats:
        log_Z = stats["log_normaliser"].values.reshape(-1)
    else:
        log_Z = _estimated(prepared, flat["weights"], p)
    rate = flat.get("rate", np.ones(len(p)))
    return Draws(flat["weights"], p, log_Z, rate, shape)


def as_points(prepared: Prepared, points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Points as the user gave them (m, d), and in coordinates of the box (d, m)."""
    d = prepared.plan.basis.d
    given = np.asarray(points, float)
    if given.ndim == 0 or (given.ndim == 1 and d > 1):
        given = given.reshape(1, -1)
    x = given.reshape(-1, 1) if given.ndim == 1 else given
    if x.ndim != 2 or x.shape[1] != d:
        raise DataError(
            f"points must be (number, {d})" + (" or a vector" if d == 1 else "") + f", got shape "
            f"{given.shape}"
        )
    if np.isnan(x).any():
        raise DataError("points must not be NaN")
    return x, prepared.box.inside(x).T


def function(posterior: xr.DataTree, prepared: Prepared, points: Any) -> np.ndarray:
    """f, (chain, draw, point)."""
    drawn = draws_of(posterior, prepared)
    _, u = as_points(prepared, points)
    return (drawn.w @ prepared.plan.basis.features(u)).reshape(*drawn.shape, -1)


def log_density(posterior: xr.DataTree, prepared: Prepared, points: Any) -> np.ndarray:
    """log g in each draw, (chain, draw, point)."""
    drawn = draws_of(posterior, prepared)
    _, u = as_points(prepared, points)
    pieces = [
        _log_density(drawn, prepared, u[:, start : start + _columns(drawn)])
        for start in range(0, u.shape[1], _columns(drawn))
    ]
    return np.concatenate(pieces, axis=1).reshape(*drawn.shape, -1)


def log_mean_density(posterior: xr.DataTree, prepared: Prepared, points: Any) -> np.ndarray:
    """log of the posterior mean of the density, (point,)."""
    drawn = draws_of(posterior, prepared)
    _, u = as_points(prepared, points)
    step = _columns(drawn)
    with np.errstate(divide="ignore"):
        sums = [
            logsumexp(_log_density(drawn, prepared, u[:, start : start + step]), axis=0)
            for start in range(0, u.shape[1], step)
        ]
    return np.concatenate(sums) - np.log(len(drawn.w))


def intensity(posterior: xr.DataTree, prepared: Prepared, points: Any) -> np.ndarray:
    """lambda sigma(f), (chain, draw, point); zero outside the window."""
    drawn = draws_of(posterior, prepared)
    _, u = as_points(prepared, points)
    values = drawn.rate[:, None] * expit(drawn.w @ prepared.plan.basis.features(u))
    return (values * _supported(prepared, u)).reshape(*drawn.shape, -1)


def bands(points: Any, values: np.ndarray, probability: float) -> Bands:
    """Of values (chain, draw, point)."""
    if not 0 < probability < 1:
        raise SettingsError(f"probability must lie between 0 and 1, got {probability!r}")
    flat = values.reshape(-1, values.shape[-1])
    tail = 0.5 * (1 - probability)
    low, middle, high = np.quantile(flat, [tail, 0.5, 1 - tail], axis=0)
    return Bands(np.asarray(points, float), flat.mean(0), middle, low, high, float(probability))


def comparison(
    points: Any, first: np.ndarray, second: np.ndarray, probability: float
) -> Comparison:
    """Of densities (chain, draw, point) of two independent posteriors."""
    a, b = (values.reshape(-1, values.shape[-1]) for values in (first, second))
    number = min(len(a), len(b))
    # Chains are thinned to one length and paired at random: the posteriors are independent.
    order = np.random.default_rng(0).permutation(number)
    a = a[np.linspace(0, len(a) - 1, number).astype(int)]
    b = b[np.linspace(0, len(b) - 1, number).astype(int)][order]
    difference = a - b
    summary = bands(points, difference[None], probability)
    return Comparison(
        summary.points,
        summary.mean,
        summary.median,
        summary.lower,
        summary.upper,
        (difference > 0).mean(0),
    )


@in_float64
def predict(posterior: xr.DataTree, prepared: Prepared, size: int, seed: int) -> np.ndarray:
    """New points (size, d), each from a draw chosen at random: g0, accepted with sigma(f)."""
    if not isinstance(size, int | np.integer) or size < 1:
        raise SettingsError(f"size must be a whole number from 1 on, got {size!r}")
    drawn = draws_of(posterior, prepared)
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(drawn.w), size=size)
    result = np.empty((size, prepared.plan.basis.d))
    pending = np.arange(size)
    for turn in range(MOST_ROUNDS):
        u = _proposed(prepared, drawn.p[rows[pending]], seed, turn)
        f = np.einsum("sm,ms->s", drawn.w[rows[pending]], prepared.plan.basis.features(u))
        accepted = (rng.random(len(pending)) < expit(f)) & _supported(prepared, u)
        result[pending[accepted]] = u.T[accepted]
        pending = pending[~accepted]
        if not len(pending):
            return prepared.box.centre + prepared.box.half * result
    raise SettingsError(
        f"{len(pending)} of {size} points found no accepted proposal in {MOST_ROUNDS:,} rounds"
    )


@in_float64
def rejections(
    posterior: xr.DataTree, prepared: Prepared, number: int, seed: int
) -> list[np.ndarray]:
    """Y (|Y|, d) for ``number`` draws, evenly spaced, from its conditional distribution."""
    drawn = draws_of(posterior, prepared)
    rng = np.random.default_rng(seed)
    chosen = np.unique(np.linspace(0, len(drawn.w) - 1, number).astype(int))
    # A sampler without rejections names a budget, but its draws are not restricted by it.
    restricted = posterior.attrs.get("draws_rejections", 1)
    budget = posterior.attrs.get("budget", "none") if restricted else "none"
    counts = _counts(rng, drawn, prepared, chosen, budget)
    sets: list[np.ndarray] = []
    for place, (row, count) in enumerate(zip(chosen, counts, strict=True)):
        found = [np.empty((0, prepared.plan.basis.d))]
        have, turn = 0, 0
        while have < count:
            size = int(np.clip(2 * (count - have), 256, 65_536))
            many = np.broadcast_to(drawn.p[row], (size, drawn.p.shape[1]))
            u = _proposed(prepared, many, seed + 1 + place, turn)
            f = drawn.w[row] @ prepared.plan.basis.features(u)
            kept = ~((rng.random(size) < expit(f)) & _supported(prepared, u))
            found.append(u.T[kept])
            have, turn = have + int(kept.sum()), turn + 1
        u_all = np.concatenate(found)[:count]
        sets.append(prepared.box.centre + prepared.box.half * u_all)
    return sets


def _counts(
    rng: np.random.Generator, drawn: Draws, prepared: Prepared, rows: np.ndarray, budget: Any
) -> np.ndarray:
    """|Y| given each draw: negative binomial or Poisson, and within the budget of the run."""
    Z = np.exp(drawn.log_normaliser[rows])
    most = MOST_REJECTED if isinstance(budget, str) else int(budget)

    def draw(which: np.ndarray) -> np.ndarray:
        if prepared.plan.process.rated:
            volume = float(prepared.data.volume)
            return rng.poisson(drawn.rate[rows[which]] * volume * (1 - Z[which]))
        return rng.negative_binomial(prepared.plan.layout.n, Z[which])

    counts = draw(np.arange(len(rows)))
    for _ in range(MOST_ROUNDS):
        over = np.flatnonzero(counts > most)
        if not len(over):
            break
        counts[over] = draw(over)
    return np.minimum(counts, most)


def _columns(drawn: Draws) -> int:
    return max(1, PIECE // len(drawn.w))


def _supported(prepared: Prepared, u: np.ndarray) -> np.ndarray:
    low, high = (np.asarray(edge)[:, None] for edge in prepared.data.support)
    return np.asarray(((u >= low) & (u <= high)).all(0))


@in_float64
def _log_density(drawn: Draws, prepared: Prepared, u: np.ndarray) -> np.ndarray:
    """(draw, point)."""
    f = drawn.w @ prepared.plan.basis.features(u)
    log_g0 = np.asarray(
        _each_log_density(prepared.plan.base)(jnp.asarray(drawn.p), jnp.asarray(u), prepared.data)
    )
    values = log_g0 - np.logaddexp(0.0, -f) - drawn.log_normaliser[:, None]
    values = values - np.log(prepared.box.half).sum()
    return np.where(_supported(prepared, u)[None, :], values, -np.inf)


@lru_cache(maxsize=16)
def _each_log_density(base: BaseDensity) -> Any:
    return jax.jit(lambda p, u, data: jax.lax.map(lambda one: base.log_density(one, u, data), p))


@lru_cache(maxsize=16)
def _each_proposal(base: BaseDensity) -> Any:
    return jax.jit(
        lambda own_keys, p, data: jax.vmap(lambda key, one: base.propose(key, one, 1, data)[:, 0])(
            own_keys, p
        )
    )


def _proposed(prepared: Prepared, p: np.ndarray, seed: int, turn: int) -> np.ndarray:
    """One proposal of each row of parameters, (d, rows)."""
    rows = max(64, 2 ** int(np.ceil(np.log2(len(p)))))  # few sizes, for JAX compiles for each
    key = jax.random.fold_in(keys.from_seed(seed), turn)
    padded = jnp.asarray(np.resize(p, (rows, p.shape[1])))
    drawn = _each_proposal(prepared.plan.base)(jax.random.split(key, rows), padded, prepared.data)
    return np.asarray(drawn)[: len(p)].T


@in_float64
def _estimated(prepared: Prepared, w: np.ndarray, p: np.ndarray) -> np.ndarray:
    """log Z by Monte Carlo, where there are too many dimensions for quadrature."""
    result = np.empty(len(w))
    for row in range(len(w)):
        many = np.broadcast_to(p[row], (MONTE_CARLO, p.shape[1]))
        u = _proposed(prepared, many, 0, 0)
        accepted = expit(w[row] @ prepared.plan.basis.features(u)) * _supported(prepared, u)
        result[row] = np.log(accepted.mean())
    return result
