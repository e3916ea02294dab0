"""Which parts of the data are not known, and what they may be.

Found once, on the host, from the recorded data. An observation is hidden as a *whole* where it is
censored: all that is known is its zone. It is hidden in *parts* where some coordinates are known
and others are not: a clamped channel beside good ones, the true value behind a noisy one.

A recorder has clamped the values that equal a limit, as far as they were written down: a limit of
0.1 in data of single precision is 0.10000000149, neither equal to 0.1 nor below it. So values and
limits are compared in the precision in which the data came, or the limits if theirs is lower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from offcut.errors import DataError, ModelError
from offcut.models.data import (
    Covariates,
    Hidden,
    HostPoints,
    Parts,
    PointLike,
    Whole,
    pad_rows,
)
from offcut.models.prior import Theta
from offcut.models.recording import Clamped, Zone, in_zones
from offcut.models.rejection import RejectionModel
from offcut.numerics.arrays import as_argument, bucket
from offcut.numerics.keys import from_seed, rolled
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point, Points

#: A point as a vector of floats.
Vector = Float[Array, " d"]
#: A number for every recorded value.
Values = Shaped[np.ndarray, "n *point"]
Limit = Float[np.ndarray, "n *point"]
Flags = Bool[np.ndarray, "n *point"]

#: Numbers that look like single precision are taken for it where rounding changes them by no more
#: than this share of the data's standard deviation.
NEGLIGIBLE = 1e-6


class Limits(NamedTuple):
    """The limits of every recorded value, and which values stand for what lies beyond."""

    lower: Limit
    upper: Limit
    at_lower: Flags
    at_upper: Flags

    def exactly(self, values: Values) -> Values:
        """The values, those at a limit being the limit itself in full precision."""
        if values.dtype.kind != "f":
            return values
        values = np.where(self.at_lower, self.lower, values)
        return np.where(self.at_upper, self.upper, values)


def find_clamped(clamp: Clamped, covariates: Covariates, values: Values, came: Values) -> Limits:
    """Limits and clamped values; values beyond the limits are refused.

    Parameters
    ----------
    values : array with n rows
        The data as proposals have them.
    came : array with n rows
        The same in the precision in which they came.
    """
    lower, upper = _limits(clamp, covariates, values)
    at_lower, at_upper = (_is_at(limit, values, came) for limit in (lower, upper))
    _refuse_beyond(values, lower, upper, ~at_lower & ~at_upper)
    return Limits(lower, upper, at_lower, at_upper & ~at_lower)


def _is_at(limit: Limit, values: Values, came: Values) -> Flags:
    """Which values are the limit as it was written down."""
    same = values == limit
    if values.dtype.kind != "f" or came.dtype.kind != "f":
        return same
    with np.errstate(over="ignore"):
        if came.dtype.itemsize < 8:
            return same | (values == limit.astype(came.dtype))
        # In double precision, but perhaps only since somebody joined single columns with others.
        near = values.astype(np.float32) == limit.astype(np.float32)
        near &= np.abs(values - limit) <= NEGLIGIBLE * values.std(axis=0)
    return same | (near & (_looks_single(values) | _looks_single(limit)))


def _looks_single(numbers: Values) -> Bool[np.ndarray, " ..."] | np.bool_:
    """Which columns hold nothing but numbers of single precision, not all of them short ones."""
    with np.errstate(over="ignore"):
        single = np.all(numbers == numbers.astype(np.float32), axis=0)
        return single & np.any(numbers != numbers.astype(np.float16), axis=0)


def _limits(clamp: Clamped, covariates: Covariates, values: Values) -> tuple[Limit, Limit]:
    low, high = map(
        np.asarray, jax.vmap(clamp.limits)(*covariates) if covariates else clamp.limits()
    )
    if covariates:
        low, high = (
            limit.astype(float).reshape(*limit.shape, *[1] * (values.ndim - limit.ndim))
            for limit in (low, high)
        )
    try:
        low, high = np.broadcast_to(low, values.shape), np.broadcast_to(high, values.shape)
    except ValueError as error:
        raise ModelError(
            f"{clamp} does not fit observations of shape {values.shape[1:]}: give one limit for "
            "all coordinates or one for each"
        ) from error
    wrong = np.argwhere(~(low < high))
    if wrong.size:
        place = tuple(int(i) for i in wrong[0])
        raise ModelError(
            f"Clamped needs lower < upper for every value, got {low[place]} and {high[place]} at "
            f"index {place}"
        )
    return low, high


def _refuse_beyond(values: Values, lower: Limit, upper: Limit, known: Flags) -> None:
    beyond = known & ((values < lower) | (values > upper))
    if beyond.any():
        place = tuple(int(i) for i in np.argwhere(beyond)[0])
        below = values[place] < lower[place]
        zone = f"y < {lower[place]}" if below else f"y > {upper[place]}"
        raise DataError(
            f"{int(beyond.sum())} values lie beyond the limits at which the recorder clamps, the "
            f"first at index {place}: {values[place]} outside [{lower[place]}, {upper[place]}]. "
            "A clamped value is recorded as the limit itself: write the limit in its place "
            "(numpy.clip does), or, where something else stands for what lies beyond (0 for "
            "non-detects), give a zone for the whole observation, such as "
            f"censored=lambda y: {zone}"
        )


#: The row of what is no observation, and the fewest hidden values that there is room for.
NOWHERE, FEWEST = 2**31 - 1, 16
#: The first interval of the slice sampler, in standard deviations of a column of the data. Too wide
#: costs a logarithm, too narrow a multiple.
WIDTH = 4.0


class Flat:
    """How points of one shape become vectors of floats and come back."""

    def __init__(self, one: Point) -> None:
        flat, self._unravel = ravel_pytree(one)
        self._dtype = flat.dtype
        leaves = jax.tree.leaves(one)
        #: Which coordinates are whole numbers.
        self.discrete = np.concatenate(
            [np.full(leaf.size, not jnp.issubdtype(leaf.dtype, jnp.inexact)) for leaf in leaves]
        )

        self.size = self.discrete.size

    def vector(self, point: Point) -> Vector:
        """One point as floats."""
        return ravel_pytree(point)[0].astype(float)

    def point(self, vector: Vector) -> Point:
        """Back again; whole numbers are cut off to what their dtype holds."""
        return self._unravel(vector.astype(self._dtype))

    def vectors(self, points: Points) -> Float[Array, "m d"]:
        """Rows of points as rows of floats."""
        return jax.vmap(self.vector)(points)

    def points(self, vectors: Float[Array, "m d"]) -> Points:
        """Rows of floats as rows of points."""
        return jax.vmap(self.point)(vectors)

    def is_point(self, vector: Vector) -> Bool[Array, ""]:
        """Whether a vector stands for a point: 1.5 is no count, and 2 no flag."""
        return jnp.all(self.vector(self.point(vector)) == vector)


def log_possible(
    model: RejectionModel, theta: Theta, point: Point, *covariate: Point
) -> Float[Array, ""]:
    """log q + log a of one point, -inf wherever the model cannot have produced it."""
    value = model.log_observed(theta, point, *covariate)
    possible = model.possible(theta, point, *covariate) & ~jnp.isnan(value)
    # log_observed may leave out log a where it is 0 or -inf.
    possible &= model.inside_at(theta, point, *covariate) > -jnp.inf
    return jnp.where(possible, value, -jnp.inf)


def zones_of(model: RejectionModel, recorded_shape: tuple[int, ...] | None) -> tuple[Zone, ...]:
    """The zones for whole observations; for single numbers a clamp is two of them."""
    censored = model.censored
    if not isinstance(censored, Clamped):
        return censored or ()
    if recorded_shape != ():
        return ()

    def below(y: Array, *covariate: Point) -> ArrayLike:
        return y <= censored.limits(*covariate)[0]

    def above(y: Array, *covariate: Point) -> ArrayLike:
        return y >= censored.limits(*covariate)[1]

    return below, above


def clamp_of(model: RejectionModel, recorded_shape: tuple[int, ...] | None) -> Clamped | None:
    """The clamp that hides coordinates one by one; that of single numbers is a matter of zones."""
    return model.censored if isinstance(model.censored, Clamped) and recorded_shape != () else None


def recorded_shape(recorded: PointLike) -> tuple[int, ...] | None:
    """The shape of one recorded value, None where it is a tree of several."""
    leaves = jax.tree.leaves(recorded)
    return tuple(leaves[0].shape) if len(leaves) == 1 else None


def hide(
    model: RejectionModel,
    recorded: HostPoints,
    like: PointLike,
    covariates: Covariates,
    came: HostPoints,
) -> tuple[HostPoints, Hidden | None]:
    """Complete points to start from, and what of them is hidden.

    Parameters
    ----------
    recorded : pytree of NumPy arrays with n rows
        The data.
    like : pytree of shapes
        One whole proposal.
    covariates : tuple
        () or one pytree with n rows.
    came : pytree of NumPy arrays with n rows
        The data in the precision in which they came.
    """
    n = jax.tree.leaves(recorded)[0].shape[0]
    shape = recorded_shape(jax.tree.map(lambda a: a[0], recorded))
    limits = None
    if isinstance(model.censored, Clamped):
        recorded, limits = _clamped(model.censored, recorded, covariates, came, shape)
    points = _with_latent_parts(model, recorded, like, covariates)
    if limits is not None and shape == ():
        zone = np.where(limits.at_lower, 0, np.where(limits.at_upper, 1, -1))
    else:
        zone = _zone_numbers(model, recorded, covariates, n)
    rows = np.flatnonzero(zone >= 0)
    width = WIDTH * spread(points, n)
    whole = None
    if rows.size:
        whole = Whole(
            rows=_padded(rows.astype(np.int32), NOWHERE),
            zone=_padded(zone[rows].astype(np.int32), -1),
            width=as_argument(width),
            count=as_argument(np.int32(rows.size)),
        )
    limits = limits if shape != () else None
    parts = _hidden_parts(model, points, limits, width, n, skip=rows)
    if whole is None and parts is None:
        return points, None
    return points, Hidden(whole, parts)


def _clamped(
    clamp: Clamped,
    recorded: HostPoints,
    covariates: Covariates,
    came: HostPoints,
    shape: tuple[int, ...] | None,
) -> tuple[HostPoints, Limits]:
    """The data with limits in full precision, and which values are at one."""
    if shape is None:
        raise ModelError(
            "offcut.Clamped is for data that are one array; for dicts and tuples give zones"
        )
    (values,), structure = jax.tree.flatten(recorded)
    if values.dtype.kind != "f" and shape != ():
        raise ModelError(
            f"coordinates that are whole numbers ({values.dtype}) cannot be censored one by "
            "one; give zones that hide the whole observation"
        )
    limits = find_clamped(clamp, covariates, values, jax.tree.leaves(came)[0])
    return jax.tree.unflatten(structure, [limits.exactly(values)]), limits


def _with_latent_parts(
    model: RejectionModel, recorded: HostPoints, like: PointLike, covariates: Covariates
) -> HostPoints:
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
    whole = recorded if isinstance(recorded, dict) else None
    if whole is None:  # measurement error: the noisy value is the natural guess
        (observed,) = (name for name in like if name not in model.latent)
        whole = {observed: recorded}

    def guessed(key: KeyArray, whole: dict[str, Points], covariates: Covariates) -> Points:
        key = rolled(key)
        theta = model.prior.sample(key)

        def draw(key: KeyArray, *covariate: Point) -> Point:
            return model.propose(key, theta, *covariate)

        rows = jax.tree.leaves(whole)[0].shape[0]
        points = {**jax.vmap(draw)(jax.random.split(key, rows), *covariates), **whole}
        for name in model.latent:
            same = [k for k in whole if _alike(like[k], like[name])]
            if len(same) == 1:
                guess = {**points, name: points[same[0]].astype(like[name].dtype)}
                fine = jax.vmap(lambda p, *c: model.possible(theta, p, *c))(guess, *covariates)
                points = {**points, name: _chosen(fine, guess[name], points[name])}
        return points

    program = model.compiled("first guesses", guessed, quick=True)
    points = program(from_seed(0), *pad_rows((whole, covariates), bucket(n, FEWEST)))
    return jax.tree.map(lambda a: np.asarray(a)[:n], points)


def _alike(a: PointLike, b: PointLike) -> bool:
    return all(len(jax.tree.leaves(t)) == 1 for t in (a, b)) and a.shape == b.shape


def _chosen(
    fine: Bool[Array, " n"], first: Float[Array, " n *part"], second: Float[Array, " n *part"]
) -> Float[Array, " n *part"]:
    return jnp.where(fine.reshape(-1, *[1] * (first.ndim - 1)), first, second)


def _zone_numbers(
    model: RejectionModel, recorded: HostPoints, covariates: Covariates, n: int
) -> Int[np.ndarray, " n"]:
    """For each observation the zone it is recorded in, -1 where its value is known."""
    shape = recorded_shape(jax.tree.map(lambda a: a[0], recorded))
    zones = zones_of(model, shape)
    if not zones:
        return np.full(n, -1)

    def which(recorded: Points, covariates: Covariates) -> Bool[Array, "rows zones"]:
        return jax.vmap(lambda x, *c: in_zones(zones, x, *c))(recorded, *covariates)

    program = model.compiled("zones of data", which, quick=True)
    inside = np.asarray(program(*pad_rows((recorded, covariates), bucket(n, FEWEST))))[:n]
    several = np.flatnonzero(inside.sum(axis=1) > 1)
    if several.size:
        value = shown(jax.tree.map(lambda a: a[several[0]], recorded))
        raise ModelError(
            f"observation {several[0]} (value {value}) lies in {inside[several[0]].sum()} zones of "
            "censored= at once; zones must not overlap"
        )
    return np.where(inside.any(axis=1), inside.argmax(axis=1), -1)


def _hidden_parts(
    model: RejectionModel,
    points: HostPoints,
    limits: Limits | None,
    width: Float[np.ndarray, " d"],
    n: int,
    skip: Int[np.ndarray, " m"],
) -> Parts | None:
    """Latent parts of every observation, and clamped coordinates."""
    if not model.latent and limits is None:
        return None
    low = jax.tree.map(lambda a: np.full(a.shape, -np.inf), points)
    high = jax.tree.map(lambda a: np.full(a.shape, np.inf), points)
    free = jax.tree.map(lambda a: np.zeros(a.shape, bool), points)
    for name in model.latent:
        free[name] = jax.tree.map(np.ones_like, free[name])
    if limits is not None:
        for tree, values in (
            (free, limits.at_lower | limits.at_upper),
            (low, np.where(limits.at_upper, limits.upper, -np.inf)),
            (high, np.where(limits.at_lower, limits.lower, np.inf)),
        ):
            # recorded() only selects, so it finds the same part of a tree of limits or flags.
            (part,) = jax.tree.leaves(model.recorded(tree))
            part[...] = values
    any_free = flat_rows(free, n)
    rows = np.setdiff1d(np.flatnonzero(any_free.any(axis=1)), skip)
    if not rows.size:
        return None
    return Parts(
        rows=_padded(rows.astype(np.int32), NOWHERE),
        free=_padded(any_free[rows], False),
        low=_padded(flat_rows(low, n)[rows], -np.inf),
        high=_padded(flat_rows(high, n)[rows], np.inf),
        width=as_argument(width),
        count=as_argument(np.int32(rows.size)),
    )


def _padded(rows: Shaped[np.ndarray, " m *d"], value: float) -> Any:
    """Up to one of a few sizes, so that data with as many hidden values or so share programs."""
    more = np.full((bucket(len(rows), FEWEST), *rows.shape[1:]), value, rows.dtype)
    more[: len(rows)] = rows
    return as_argument(more)


def flat_rows(tree: HostPoints, n: int) -> Shaped[np.ndarray, "n d"]:
    """Rows as vectors, in the order of ``ravel_pytree``."""
    return np.concatenate([leaf.reshape(n, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def spread(points: HostPoints, n: int) -> Float[np.ndarray, " d"]:
    """The scale of every coordinate, from the data."""
    everything = flat_rows(points, n).astype(float)
    deviation = everything.std(axis=0)
    typical = np.maximum(np.abs(everything[0]), 1e-3)
    return np.where(deviation > 0, deviation, typical)
