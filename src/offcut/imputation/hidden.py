"""Which parts of the data are not known, and what they may be.

Found once, on the host, from the recorded data. An observation is hidden as a *whole* where it is
censored: all that is known is its zone. It is hidden in *parts* where some coordinates are known
and others are not: a clamped channel beside good ones, the true value behind a noisy one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.errors import DataError, ModelError
from offcut.models.recording import Clamped, Zone, in_zones
from offcut.models.rejection import RejectionModel
from offcut.promises import shown

#: The first interval of the slice sampler, in standard deviations of a column of the data. Too wide
#: costs a logarithm, too narrow a multiple.
WIDTH = 4.0


class Whole(NamedTuple):
    """Observations known only to lie in a zone: their rows, and the number of the zone.

    A row with zone -1 keeps its value (so that shapes can be fixed where the data are not).
    """

    rows: jax.Array
    zone: jax.Array


class Parts(NamedTuple):
    """Observations with hidden coordinates, as flat vectors: which, and between what limits."""

    rows: jax.Array
    free: jax.Array
    low: jax.Array
    high: jax.Array
    width: jax.Array  # one for each coordinate


class Hidden(NamedTuple):
    """All that is hidden; None where there is nothing of a kind."""

    whole: Whole | None
    parts: Parts | None


def zones_of(model: RejectionModel, recorded_shape: tuple[int, ...] | None) -> tuple[Zone, ...]:
    """The zones for whole observations; for single numbers a clamp is two of them."""
    censored = model.censored
    if not isinstance(censored, Clamped):
        return censored or ()
    if recorded_shape != ():
        return ()

    def below(y: Any, *covariate: Any) -> Any:
        return y <= censored.limits(*covariate)[0]

    def above(y: Any, *covariate: Any) -> Any:
        return y >= censored.limits(*covariate)[1]

    return below, above


def clamp_of(model: RejectionModel, recorded_shape: tuple[int, ...] | None) -> Clamped | None:
    """The clamp that hides coordinates one by one; that of single numbers is a matter of zones."""
    return model.censored if isinstance(model.censored, Clamped) and recorded_shape != () else None


def recorded_shape(recorded: Any) -> tuple[int, ...] | None:
    """The shape of one recorded value, None where it is a tree of several."""
    leaves = jax.tree.leaves(recorded)
    return tuple(leaves[0].shape) if len(leaves) == 1 else None


def hide(
    model: RejectionModel, recorded: Any, like: Any, covariates: tuple
) -> tuple[Any, Hidden | None]:
    """Complete points to start from, and what of them is hidden.

    Parameters
    ----------
    recorded : pytree of NumPy arrays with n rows
        The data.
    like : pytree of shapes
        One whole proposal.
    covariates : tuple
        () or one pytree with n rows.
    """
    if model.censored is None and not model.latent:
        return recorded, None
    points = _with_latent_parts(model, recorded, like, covariates)
    n = jax.tree.leaves(recorded)[0].shape[0]
    zone = _zone_numbers(model, recorded, covariates, n)
    whole = np.flatnonzero(zone >= 0)
    parts = _hidden_parts(model, recorded, points, covariates, skip=whole)
    hidden_whole = None
    if whole.size:
        hidden_whole = Whole(jnp.asarray(whole, jnp.int32), jnp.asarray(zone[whole], jnp.int32))
    if hidden_whole is None and parts is None:
        return points, None
    return points, Hidden(hidden_whole, parts)


def _with_latent_parts(model: RejectionModel, recorded: Any, like: Any, covariates: tuple) -> Any:
    """The data with first guesses for latent parts: the noisy value if it is possible, or a draw.

    A guess needs to be possible, not good: the chain moves it.
    """
    if not model.latent:
        return recorded
    for name in model.latent:
        for leaf in jax.tree.leaves(like[name]):
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                raise ModelError(
                    f"the latent part {name!r} of a proposal is discrete ({leaf.dtype}); only "
                    "continuous ones can be drawn: sum it out"
                )
    n = jax.tree.leaves(recorded)[0].shape[0]
    key = jax.random.key(0)
    theta = model.prior.sample(key)

    def draw(key: jax.Array, *covariate: Any) -> Any:
        return model.propose(key, theta, *covariate)

    drawn = jax.jit(jax.vmap(draw))(jax.random.split(key, n), *covariates)
    whole = recorded if isinstance(recorded, dict) else None
    if whole is None:  # measurement error: the noisy value is the natural guess
        (observed,) = (name for name in like if name not in model.latent)
        whole = {observed: jnp.asarray(recorded)}
    points = {**drawn, **jax.tree.map(jnp.asarray, whole)}
    for name in model.latent:
        same = [k for k in whole if _alike(like[k], like[name])]
        if len(same) == 1:
            guess = {**points, name: points[same[0]].astype(like[name].dtype)}
            fine = jax.vmap(lambda p, *c: model.possible(theta, p, *c))(guess, *covariates)
            points = {**points, name: _chosen(fine, guess[name], points[name])}
    return jax.tree.map(np.asarray, points)


def _alike(a: Any, b: Any) -> bool:
    return all(len(jax.tree.leaves(t)) == 1 for t in (a, b)) and a.shape == b.shape


def _chosen(fine: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    return jnp.where(fine.reshape(-1, *[1] * (first.ndim - 1)), first, second)


def _zone_numbers(model: RejectionModel, recorded: Any, covariates: tuple, n: int) -> np.ndarray:
    """For each observation the zone it is recorded in, -1 where its value is known."""
    shape = recorded_shape(jax.tree.map(lambda a: a[0], recorded))
    zones = zones_of(model, shape)
    if not zones:
        return np.full(n, -1)
    inside = np.asarray(
        jax.vmap(lambda x, *c: in_zones(zones, x, *c))(
            jax.tree.map(jnp.asarray, recorded), *covariates
        )
    )
    several = np.flatnonzero(inside.sum(axis=1) > 1)
    if several.size:
        value = shown(jax.tree.map(lambda a: a[several[0]], recorded))
        raise ModelError(
            f"observation {several[0]} (value {value}) lies in {inside[several[0]].sum()} zones of "
            "censored= at once; zones must not overlap"
        )
    return np.where(inside.any(axis=1), inside.argmax(axis=1), -1)


def _hidden_parts(
    model: RejectionModel, recorded: Any, points: Any, covariates: tuple, skip: np.ndarray
) -> Parts | None:
    """Latent parts of every observation, and clamped coordinates."""
    shape = recorded_shape(jax.tree.map(lambda a: a[0], recorded))
    clamp = clamp_of(model, shape)
    if not model.latent and clamp is None:
        return None
    n = jax.tree.leaves(recorded)[0].shape[0]
    low = jax.tree.map(lambda a: np.full(a.shape, -np.inf), points)
    high = jax.tree.map(lambda a: np.full(a.shape, np.inf), points)
    free = jax.tree.map(lambda a: np.zeros(a.shape, bool), points)
    for name in model.latent:
        free[name] = jax.tree.map(np.ones_like, free[name])
    if clamp is not None:
        if shape is None:
            raise ModelError(
                "offcut.Clamped is for data that are one array; for dicts and tuples give zones"
            )
        lower, upper = _limits(clamp, covariates, recorded)
        values = jax.tree.leaves(recorded)[0]
        if values.dtype.kind != "f":
            raise ModelError(
                f"coordinates that are whole numbers ({values.dtype}) cannot be censored one by "
                "one; give zones that hide the whole observation"
            )
        _refuse_beyond(values, lower, upper)
        at_low, at_high = values == lower, values == upper
        for tree, values in (
            (free, at_low | at_high),
            (low, np.where(at_high, upper, -np.inf)),
            (high, np.where(at_low, lower, np.inf)),
        ):
            # recorded() only selects, so it finds the same part of a tree of limits or flags.
            (part,) = jax.tree.leaves(model.recorded(tree))
            part[...] = values
    any_free = _flat_rows(free, n)
    rows = np.setdiff1d(np.flatnonzero(any_free.any(axis=1)), skip)
    if not rows.size:
        return None
    everything = _flat_rows(points, n)
    spread = everything.std(axis=0)
    typical = np.maximum(np.abs(everything[0]), 1e-3)
    return Parts(
        rows=jnp.asarray(rows, jnp.int32),
        free=jnp.asarray(any_free[rows]),
        low=jnp.asarray(_flat_rows(low, n)[rows]),
        high=jnp.asarray(_flat_rows(high, n)[rows]),
        width=jnp.asarray(WIDTH * np.where(spread > 0, spread, typical)),
    )


def _flat_rows(tree: Any, n: int) -> np.ndarray:
    """Rows as vectors, in the order of ``ravel_pytree``."""
    return np.concatenate([leaf.reshape(n, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def _limits(clamp: Clamped, covariates: tuple, recorded: Any) -> tuple[np.ndarray, np.ndarray]:
    values = jax.tree.leaves(recorded)[0]
    if covariates:
        low, high = jax.vmap(clamp.limits)(*covariates)
        low, high = (
            np.asarray(limit).reshape(*limit.shape, *[1] * (values.ndim - limit.ndim))
            for limit in (low, high)
        )
    else:
        low, high = clamp.limits()
    try:
        return np.broadcast_to(low, values.shape), np.broadcast_to(high, values.shape)
    except ValueError as error:
        raise ModelError(
            f"{clamp} does not fit observations of shape {values.shape[1:]}: give one limit for "
            "all coordinates or one for each"
        ) from error


def _refuse_beyond(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
    beyond = (values < lower) | (values > upper)
    if beyond.any():
        place = tuple(int(i) for i in np.argwhere(beyond)[0])
        raise DataError(
            f"{int(beyond.sum())} values lie beyond the limits at which the recorder clamps, the "
            f"first at index {place}: {values[place]} outside [{lower[place]}, {upper[place]}]. "
            "A clamped value is recorded as the limit itself"
        )
