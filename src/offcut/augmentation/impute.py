"""One draw of everything hidden, given theta; and the data completed by it.

*Hidden coordinates beside known ones* are drawn by slice sampling, one coordinate at a time. Given
theta and the known coordinates, a hidden one has density proportional to q(y) a(y) between its
limits. No proposal will ever match the known coordinates, so rejection cannot help; a univariate
slice sampler needs nothing but the density. All observations move at once.

*Censored observations* are drawn from the model, each restricted to its zone. Given theta a
censored value has density q(y) a(y) 1[y in zone] / const, independent of all else. Proposals of
the model are drawn until one is accepted and lies in the zone: an exact draw. The work is capped,
and a zone may be so small (a value known to three digits, say) that proposals hardly ever hit it.
An observation that was not reached moves by slice sampling inside its zone instead, from the value
it has, which leaves the same density alone.

Why this is right. How many proposals an observation needs is independent of the value it gets (a
rejection sampler's number of trials and its result are), and both are independent of the values
held. The schedule, and with it the set of observations that are reached before the cap, depends
on these numbers and on an order drawn anew in every sweep, and on nothing else. So given theta and
that set, those in it have independent exact draws, and each of the others has made a step of a
kernel that leaves its density alone: a mixture of such sweeps, chosen without looking at values.
The order is random because the cap cuts off those who are served last: with a fixed order these
would be the same ones in every sweep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.algorithm1 import run_per_observation
from offcut.augmentation.first_values import no_room
from offcut.augmentation.hidden import (
    Flat,
    Vector,
    clamp_of,
    log_possible,
    recorded_shape,
    zones_of,
)
from offcut.augmentation.rejections import Layout, empty_rejected
from offcut.base import Stats
from offcut.models.data import Covariates, Observed, Parts, PointLike, Whole
from offcut.models.prior import Theta
from offcut.models.recording import Clamped, Zone, in_zones
from offcut.models.rejection import Proposed, RejectionModel
from offcut.numerics.rendering import shown
from offcut.numerics.slice_sampling import LogDensity, slice_sample
from offcut.numerics.types import KeyArray, Point, Points

#: Rows of points as rows of floats.
Vectors = Float[Array, "m d"]
Flags = Bool[Array, " m"]
Count = int | Int[Array, ""]


def draw_parts(
    model: RejectionModel,
    key: KeyArray,
    theta: Theta,
    parts: Parts,
    columns: tuple[int, ...],
    covariates: Covariates,
    held: Points,
) -> tuple[Points, Bool[Array, "m d"]]:
    """One slice update of every hidden coordinate, and which coordinates it has moved.

    ``columns`` are those that may be hidden.
    """
    flat = Flat(jax.tree.map(lambda a: a[0], held))
    own = at_rows(covariates, parts.rows)

    def log_density(vectors: Vectors) -> Float[Array, " m"]:
        def at(vector: Vector, *covariate: Point) -> Float[Array, ""]:
            return log_possible(model, theta, flat.point(vector), *covariate)

        return jax.vmap(at)(vectors, *own)

    vectors = before = flat.vectors(held)
    for column in columns:
        vectors = slice_column(jax.random.fold_in(key, column), log_density, vectors, column, parts)
    return flat.points(vectors), vectors != before


def slice_column(
    key: KeyArray, log_density: LogDensity, vectors: Vectors, column: int, parts: Parts
) -> Vectors:
    """Update one coordinate of all rows where it is hidden."""
    free, low, high = (a[:, column] for a in (parts.free, parts.low, parts.high))

    def at(value: Float[Array, " m"]) -> Float[Array, " m"]:
        allowed = (value >= low) & (value <= high)
        log_p = log_density(vectors.at[:, column].set(value))
        return jnp.where(allowed, log_p, -jnp.inf)

    chosen = slice_sample(key, at, vectors[:, column], low, high, parts.width[column], free)
    return vectors.at[:, column].set(chosen)


def hidden_columns(
    model: RejectionModel, like: PointLike, clamp: Clamped | None
) -> tuple[int, ...]:
    """Coordinates of the flat vector that may be hidden, known without looking at data."""
    flags = jax.tree.map(lambda a: np.zeros(a.shape, bool), like)
    for name in model.latent:
        flags[name] = jax.tree.map(np.ones_like, flags[name])
    if clamp is not None:
        has_limit = np.array(True)
        if not callable(clamp.lower) and not callable(clamp.upper):
            low, high = clamp.limits()
            has_limit = np.isfinite(low) | np.isfinite(high)
        for part in jax.tree.leaves(model.recorded(flags)):  # only selects
            part[...] = has_limit
    flat = np.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(flags)])
    return tuple(int(i) for i in np.flatnonzero(flat))


#: Proposals in vain that a sweep may spend on its censored observations: so many, and so many each.
#: A slice step costs about as much as thirty.
PATIENCE, PATIENCE_EACH = 2_000, 100
#: The slice sampler's first interval is up to two to this power times wider than usual, so that it
#: can reach from one part of a zone to another.
WIDER = 6


def sweep_patience(count: Count) -> Count:
    """Proposals in vain that a sweep may spend on ``count`` observations."""
    return PATIENCE + PATIENCE_EACH * count


def random_order(key: KeyArray, count: Count, rows: int) -> Int[Array, " rows"]:
    """The first ``count`` of so many rows in random order, and then the others.

    Sixty-four bits for each: of a million rows two are alike once in 10^7 orders, and then the
    first comes first.
    """
    bits = jax.random.bits(key, (rows,), np.uint64)
    return jnp.lexsort((bits, jnp.arange(rows) >= count)).astype(jnp.int32)


@dataclass(frozen=True)
class InZones:
    """Censored rows, with their covariates: the model restricted to the zone of each."""

    model: RejectionModel
    zones: tuple[Zone, ...]
    whole: Whole
    covariates: Covariates

    def propose_one(self, key: KeyArray, theta: Theta, *hidden: Point) -> Proposed:
        """For Algorithm 1: accepting only what lies in the zone.

        A proposal is marked as drawn, so that rows that were not reached can be told.
        """
        ((zone, covariate),) = hidden
        proposed = self.model.propose_one(key, theta, *covariate)
        inside = in_zones(self.zones, self.model.recorded(proposed.points), *covariate)[zone]
        known = zone < 0  # not censored after all: done at once, and not drawn
        return Proposed(
            (proposed.points, ~known), (proposed.accepted & inside) | known, proposed.log_accept
        )

    def draw(
        self, key: KeyArray, theta: Theta, held: Points, patience: Int[Array, ""] | None = None
    ) -> tuple[Points, Flags, Flags]:
        """New values; which rows were reached by proposals, and which of the others have moved."""
        zone = self.whole.zone
        rows, count = zone.shape[0], self.whole.count
        one = jax.tree.map(lambda a: a[0], held)
        layout = Layout.of(rows, Flat(one).size, True)._replace(rows=rows)
        run, _ = run_per_observation(
            self,
            layout,
            key,
            theta,
            (zone, self.covariates),
            empty_rejected(layout, (one, jnp.array(True)), layout.chunk),
            jnp.int32(sweep_patience(count)) if patience is None else patience,
            count,
            keep_accepted=True,
            store=False,
            # Row i has the keys below fold_in(key, i), i < count.
            order=random_order(jax.random.fold_in(key, count), count, rows),
        )
        assert run.kept is not None
        drawn, reached = run.kept
        left = (zone >= 0) & ~reached
        own_key = jax.random.fold_in(key, count + 1)
        stepped = lax.cond(
            jnp.any(left), lambda: self.slice(own_key, theta, held, left), lambda: held
        )

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(reached.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        def differs(new: Array, old: Array) -> Flags:
            return jnp.any((new != old).reshape(rows, -1), axis=1)

        changed = jax.tree.leaves(jax.tree.map(differs, stepped, held))
        moved = left & jnp.any(jnp.stack(changed), axis=0)
        return jax.tree.map(choose, drawn, stepped), reached, moved

    def slice(self, key: KeyArray, theta: Theta, held: Points, free: Flags) -> Points:
        """One slice update of every coordinate of the rows that are ``free``, inside their zones.

        A whole number k stands for the interval from k to k + 1, with the density of k all over
        it: the place in it is drawn first and forgotten afterwards. The first interval's width is
        drawn without looking at the values.
        """
        flat = Flat(jax.tree.map(lambda a: a[0], held))
        discrete = jnp.asarray(flat.discrete)
        key_width, key_columns = jax.random.split(key)
        width = self.whole.width * 2.0 ** jax.random.randint(key_width, (), 0, WIDER + 1)

        def log_density(vectors: Vectors) -> Float[Array, " m"]:
            def at(vector: Vector, zone: Int[Array, ""], *covariate: Point) -> Float[Array, ""]:
                point = flat.point(vector)
                inside = in_zones(self.zones, self.model.recorded(point), *covariate)[zone]
                value = log_possible(self.model, theta, point, *covariate)
                return jnp.where(inside & flat.is_point(vector), value, -jnp.inf)

            return jax.vmap(at)(vectors, self.whole.zone, *self.covariates)

        def update(column: Int[Array, ""], vectors: Vectors) -> Vectors:
            key_place, key_slice = jax.random.split(jax.random.fold_in(key_columns, column))
            here = vectors[:, column]
            here += jnp.where(discrete[column], jax.random.uniform(key_place, here.shape), 0.0)

            def put(value: Float[Array, " m"]) -> Vectors:
                value = jnp.where(discrete[column], jnp.floor(value), value)
                return vectors.at[:, column].set(value)

            chosen = slice_sample(
                key_slice,
                lambda value: log_density(put(value)),
                here,
                -jnp.inf,
                jnp.inf,
                width[column],
                free,
            )
            return put(chosen)

        return flat.points(lax.fori_loop(0, flat.size, update, flat.vectors(held)))


#: Proposals in vain for all censored observations before a start is given up.
FIRST_PATIENCE = 2_000_000
#: An observation that was not drawn in so many sweeps in a row, or never, is said to be undrawn.
LONG_WAIT = 100
NEVER = 2**30


class Imputed(NamedTuple):
    """Present values of what is hidden: rows of points, None where there is nothing of a kind.

    ``waited`` counts for each of these rows, first whole ones, then parts, the sweeps since it was
    last drawn.
    """

    whole: Points | None
    parts: Points | None
    waited: Int[Array, " hidden"]


def at_rows(tree: Points, rows: Int[Array | np.ndarray, " m"]) -> Points:
    """These rows, and the last one for those that are none."""
    return jax.tree.map(lambda a: jnp.take(a, rows, axis=0, mode="clip"), tree)


def first_imputed(data: Observed) -> Imputed | None:
    """First values: the recorded ones where they are possible."""
    if data.hidden is None:
        return None

    def rows(kind: Whole | Parts | None) -> Points | None:
        return None if kind is None else at_rows(data.points, kind.rows)

    count = sum(kind.rows.shape[0] for kind in data.hidden if kind is not None)
    waited = jnp.full(count, NEVER, jnp.int32)
    return Imputed(rows(data.hidden.whole), rows(data.hidden.parts), waited)


def completed(data: Observed, imputed: Imputed | None) -> Observed:
    """The data with present values in place of what is hidden."""
    if imputed is None or data.hidden is None:
        return data
    points = data.points
    for kind, values in zip(data.hidden, imputed[:2], strict=True):
        if kind is not None:
            points = jax.tree.map(
                lambda a, b, kind=kind: jnp.asarray(a).at[kind.rows].set(b, mode="drop"),
                points,
                values,
            )
    return data._replace(points=points)


def impute(
    model: RejectionModel, key: KeyArray, theta: Theta, data: Observed, imputed: Imputed
) -> tuple[Imputed, Stats]:
    """Draw all hidden values given theta; and statistics of how it went.

    ``imputed`` is the share of censored observations drawn afresh by rejection (the others made a
    slice step), ``undrawn`` the number of observations that have neither been drawn nor moved for
    long: what they say about theta is stale.
    """
    values, moved, reached = _draw(model, key, theta, data, imputed)
    drawn = [jnp.all(kind, axis=1) for kind in moved if kind is not None]
    waited = jnp.where(jnp.concatenate(drawn), 0, jnp.minimum(imputed.waited + 1, NEVER))
    stats = {}
    if reached is not None:
        assert data.hidden is not None
        assert data.hidden.whole is not None
        stats["imputed"] = jnp.sum(reached) / data.hidden.whole.count
    stats["undrawn"] = jnp.sum(waited >= LONG_WAIT)
    return Imputed(*values, waited), stats


#: Of each kind, by row and coordinate, whether it was drawn or has moved (or is known).
Moved = tuple[Bool[Array, "whole 1"] | None, Bool[Array, "parts d"] | None]


def _draw(
    model: RejectionModel,
    key: KeyArray,
    theta: Theta,
    data: Observed,
    imputed: Imputed,
    patience: Int[Array, ""] | None = None,
) -> tuple[
    tuple[Points | None, Points | None],
    Moved,
    Flags | None,
]:
    """New values, whether each coordinate was drawn (or is known), and whole rows drawn afresh."""
    key_whole, key_parts = jax.random.split(key)
    hidden = data.hidden
    assert hidden is not None
    like = jax.tree.map(lambda a: a[0], data.points)
    shape = recorded_shape(model.recorded(like))
    whole, parts = imputed[:2]
    moved_whole = moved_parts = reached = None
    if hidden.whole is not None:
        rows = hidden.whole.rows
        own = at_rows(data.covariates, rows)
        censored = InZones(model, zones_of(model, shape), hidden.whole, own)
        whole, reached, moved = censored.draw(key_whole, theta, whole, patience)
        moved_whole = (reached | moved | (hidden.whole.zone < 0))[:, None]
    if hidden.parts is not None:
        columns = hidden_columns(model, like, clamp_of(model, shape))
        parts, moved = draw_parts(
            model, key_parts, theta, hidden.parts, columns, data.covariates, parts
        )
        moved_parts = moved | ~hidden.parts.free
    return (whole, parts), (moved_whole, moved_parts), reached


def first_moves(
    model: RejectionModel,
    key: KeyArray,
    theta: Theta,
    data: Observed,
    imputed: Imputed,
    most: Count = 3,
) -> Moved:
    """Which hidden values move in at most so many sweeps at theta, the third with great patience.

    Every one must be reached by a proposal or move inside its zone; otherwise what stands for it
    would never change, and count as if it were known.
    """
    hidden = data.hidden
    assert hidden is not None
    patience = jnp.int32(sweep_patience(0 if hidden.whole is None else hidden.whole.count))

    def sweep(carry: tuple[Count, Imputed, Moved]) -> tuple[Count, Imputed, Moved]:
        attempt, held, moved = carry
        limit = jnp.where(attempt < 2, patience, FIRST_PATIENCE)
        own_key = jax.random.fold_in(key, attempt)
        values, now, _ = _draw(model, own_key, theta, data, held, limit)
        held = held._replace(whole=values[0], parts=values[1])
        return attempt + 1, held, jax.tree.map(jnp.logical_or, moved, now)

    def some_stand_still(carry: tuple[Count, Imputed, Moved]) -> Bool[Array, ""]:
        attempt, _, moved = carry
        return (attempt < most) & ~jnp.all(jnp.stack([jnp.all(m) for m in jax.tree.leaves(moved)]))

    whole = None if hidden.whole is None else jnp.zeros((hidden.whole.rows.shape[0], 1), bool)
    parts = None if hidden.parts is None else jnp.zeros(hidden.parts.free.shape, bool)
    start = (jnp.int32(0), imputed, (whole, parts))
    return lax.while_loop(some_stand_still, sweep, start)[2]


def refuse_impossible_zones(
    model: RejectionModel, theta: Theta, data: Observed, moved: Moved
) -> None:
    """Raise where an observation with something hidden can be nothing but what was recorded."""
    hidden = data.hidden
    assert hidden is not None
    for kind, flags in zip(hidden, moved, strict=True):
        if kind is None or flags is None:
            continue
        fine = np.asarray(flags)
        members = np.flatnonzero(~fine.all(axis=1))
        if not members.size:
            continue
        if kind is hidden.parts:
            raise no_room(model, data.points, kind, members, np.flatnonzero(~fine.all(axis=0)))
        tried = (
            f"Of more than {FIRST_PATIENCE:,} proposals at theta={shown(theta)} none was recorded "
            "there. "
        )
        raise no_room(model, data.points, kind, members, tried=tried)
