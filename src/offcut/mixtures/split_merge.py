"""Split a component, or merge two: moves that single labels never make.

After Jain & Neal (2004), with the components' parameters and the weights summed out. Two units i, j
are chosen without looking at labels. Same label: propose to split that component, i staying, j
leaving for one of the E empty components; different labels: propose to give j's component to i's.

The split is drawn from a launch state that depends only on i, j and the set S of units in their
components, not on how S is divided now: a few steps of expectation-maximisation for two normals,
started at i and j. Under it unit u goes to j's side with probability r_u, independently, i and j
being fixed. A split from z to z' is accepted with probability

    min{1, p(z', points) / p(z, points) · E / prod_u r_u^{s_u} (1 - r_u)^{1 - s_u}},

where p(z, points) = p(z) prod_k m(points of k), m the marginal density of the normal-inverse-
Wishart; a merge with the inverse, the product being that of the division which it undoes, and E
counting the empty components afterwards. The number of labels is that of all units of S; no
parameters appear, because the sweep draws weights and components anew right after.

All units of a sweep are looked up by number, places for events first, then rejections. A unit has
features (see ``allocation``) and one label. Where the Dirichlet process is on the weights in the
window, the rejections of an event are part of it and ``own`` holds the sums; then there are no
units but events."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.rejections import Rejected, capacity_of
from offcut.mixtures.allocation import rejected_chunk, unit_features
from offcut.mixtures.data import MixtureData, MixtureLayout
from offcut.numerics.arrays import exclusive_count, write_rows
from offcut.numerics.normal import Base, coefficients, given, log_marginal, size
from offcut.numerics.types import KeyArray


class Units(NamedTuple):
    """Events and rejections with their labels.

    labels : of the events. rejected : with labels of its own, where rejections are units. own :
    features of events with their rejections, where these belong to them.
    """

    labels: Int[Array, " rows"]
    rejected: Rejected | None
    own: Float[Array, "rows F"] | None


class Members(NamedTuple):
    """Numbers of the units that bear one of two labels; ``number`` of them."""

    unit: Int[Array, " room"]
    number: Int[Array, ""]


class Pool(NamedTuple):
    """All units with what they are looked up in."""

    layout: MixtureLayout
    data: MixtureData
    units: Units

    def random(self, uniform: Float[Array, " m"]) -> Int[Array, " m"]:
        """Numbers of units, each as likely as any other, from uniforms."""
        n, rejected = self.data.n, self.units.rejected
        place = jnp.int32(uniform * (n + (0 if rejected is None else rejected.count)))
        return jnp.where(place < n, place, self.layout.rows + place - n).astype(jnp.int32)

    def position(
        self, unit: Int[Array, " m"]
    ) -> tuple[Float[Array, "m d"], Int[Array, " m"], Int[Array, " m"]]:
        """Coordinates, group and label of units by number."""
        rows, rejected = self.layout.rows, self.units.rejected
        event = jnp.minimum(unit, rows - 1)
        x, group, label = self.data.x[:, event].T, self.data.group[event], self.units.labels[event]
        if rejected is None:
            return x, group, label
        row = rejected.offset + jnp.maximum(unit - rows, 0)
        points, labels = rejected.points
        assert rejected.owner is not None
        is_event = unit < rows
        return (
            jnp.where(is_event[:, None], x, points[row]),
            jnp.where(is_event, group, rejected.owner[row]),
            jnp.where(is_event, label, labels[row]),
        )

    def features(self, unit: Int[Array, " m"]) -> tuple[Float[Array, "F m"], Int[Array, " m"]]:
        """Features and labels of units by number."""
        if self.units.own is not None:
            event = jnp.minimum(unit, self.layout.rows - 1)
            return self.units.own[event].T, self.units.labels[event]
        x, group, label = self.position(unit)
        return unit_features(self.layout, x.T, group), label

    def members(self, first: Int[Array, ""], second: Int[Array, ""]) -> Members:
        """The units with label ``first`` or ``second``."""
        layout, held, size = self.layout, self.units.rejected, self.layout.chunk
        room = 0 if held is None else capacity_of(layout.buffer, held)
        index = jnp.zeros(layout.rows + room + size + 1, jnp.int32)
        trash = index.shape[0] - 1

        def add(
            found: Members, label: Int[Array, " m"], unit: Int[Array, " m"], real: Bool[Array, " m"]
        ) -> Members:
            flags = ((label == first) | (label == second)) & real
            place = jnp.where(flags, found.number + exclusive_count(flags), trash)
            return Members(
                write_rows(found.unit, place, unit), found.number + jnp.sum(flags, dtype=jnp.int32)
            )

        def events(chunk: Int[Array, ""], found: Members) -> Members:
            label = lax.dynamic_slice_in_dim(self.units.labels, chunk * size, size)
            unit = chunk * size + jnp.arange(size, dtype=jnp.int32)
            return add(found, label, unit, label < layout.components)

        def rejections(chunk: Int[Array, ""], found: Members) -> Members:
            assert held is not None
            part = rejected_chunk(layout, held, chunk)
            unit = layout.rows + chunk * size + jnp.arange(size, dtype=jnp.int32)
            return add(found, part.label, unit, part.real)

        chunks = layout.chunks(self.data.n)
        found = lax.fori_loop(0, chunks, events, Members(index, jnp.int32(0)))
        if held is None:
            return found
        return lax.fori_loop(0, layout.chunks(held.count), rejections, found)

    def chunk_of(
        self, found: Members, chunk: Int[Array, ""]
    ) -> tuple[Int[Array, " m"], Float[Array, "F m"], Int[Array, " m"], Bool[Array, " m"]]:
        """Numbers, features and labels of a chunk of members, and which of them are real."""
        size = self.layout.chunk
        unit = lax.dynamic_slice_in_dim(found.unit, chunk * size, size)
        phi, label = self.features(unit)
        return unit, phi, label, chunk * size + jnp.arange(size, dtype=jnp.int32) < found.number

    def relabelled(
        self, found: Members, second_side: Bool[Array, " room"], label: Int[Array, ""]
    ) -> Units:
        """The units with ``label`` given to the members on the second side."""
        units, rows, size = self.units, self.layout.rows, self.layout.chunk

        def chosen(chunk: Int[Array, ""]) -> tuple[Int[Array, " m"], Bool[Array, " m"]]:
            unit = lax.dynamic_slice_in_dim(found.unit, chunk * size, size)
            side = lax.dynamic_slice_in_dim(second_side, chunk * size, size)
            return unit, side & (chunk * size + jnp.arange(size, dtype=jnp.int32) < found.number)

        def events(chunk: Int[Array, ""], labels: Int[Array, " rows"]) -> Int[Array, " rows"]:
            unit, side = chosen(chunk)
            return labels.at[jnp.where(side & (unit < rows), unit, rows)].set(label, mode="drop")

        def rejections(chunk: Int[Array, ""], labels: Int[Array, " room"]) -> Int[Array, " room"]:
            unit, side = chosen(chunk)
            row = jnp.where(side & (unit >= rows), offset + unit - rows, labels.shape[0])
            return labels.at[row].set(label, mode="drop")

        chunks = self.layout.chunks(found.number)
        units = units._replace(labels=lax.fori_loop(0, chunks, events, units.labels))
        if units.rejected is None:
            return units
        offset = units.rejected.offset
        points, labels = units.rejected.points
        labels = lax.fori_loop(0, chunks, rejections, labels)
        return units._replace(rejected=units.rejected._replace(points=(points, labels)))


#: Steps of expectation-maximisation before the split is drawn.
LAUNCH_STEPS = 4
#: j is the nearest to i of so many candidates, the number chosen at random: near pairs make
#: promising splits and merges, distant ones keep every pair possible.
CANDIDATES = (1, 4, 16)
#: The two halves start with this share of the component's covariance.
FIRST_SHARE = 0.5
#: log p(z) of counts, weights summed out
LogLabels = Callable[[Float[Array, "G K"]], Float[Array, ""]]


class Moved(NamedTuple):
    """Units after the moves, totals by component, and how many moves were made."""

    units: Units
    totals: Float[Array, "labels F"]  # the last row is not in use
    splits: Int[Array, ""]
    merges: Int[Array, ""]


class Division(NamedTuple):
    """A division of S: totals of the first side, which members are on the second, log q."""

    first: Float[Array, " F"]
    second_side: Bool[Array, " room"]
    log_q: Float[Array, ""]


def split_merge(
    layout: MixtureLayout,
    key: KeyArray,
    moves: int,
    units: Units,
    totals: Float[Array, "labels F"],
    log_labels: LogLabels,
    data: MixtureData,
) -> Moved:
    """``moves`` proposals, one after the other."""

    def one(number: Int[Array, ""], moved: Moved) -> Moved:
        return _move(layout, jax.random.fold_in(key, number), moved, log_labels, data)

    start = Moved(units, totals, jnp.int32(0), jnp.int32(0))
    return lax.fori_loop(0, moves, one, start)


def _move(
    layout: MixtureLayout, key: KeyArray, moved: Moved, log_labels: LogLabels, data: MixtureData
) -> Moved:
    units, totals = moved.units, moved.totals
    K, width = layout.components, size(layout.d)
    key_few, key_split = jax.random.split(key)
    most = max(CANDIDATES)
    few = jax.random.uniform(key_few, (most + 3 + K,))
    pool = Pool(layout, data, units)
    pair = choose_pair(few[: most + 2], pool)
    x, _, labels = pool.position(pair)
    here, there = labels[0], labels[1]
    is_split = here == there
    counts = totals[:K, width:]
    empty = jnp.sum(counts, axis=1) == 0
    leaves_for = jnp.argmax(jnp.where(empty, few[-K:], -1.0))
    both = totals[here] + jnp.where(is_split, 0.0, totals[there])

    found = pool.members(here, there)
    w = launch(pool, found, both, x)
    division = divide(key_split, pool, found, pair, w, is_split, there)
    second = both - division.first

    other = jnp.where(is_split, leaves_for, there)
    together = counts.at[here].set(both[width:]).at[other].set(0.0)
    apart = counts.at[here].set(division.first[width:]).at[other].set(second[width:])
    sets = jnp.stack([division.first, second, both])[:, :width]
    log_m = jax.vmap(log_marginal, (None, 0))(data.base, sets)
    log_p = jax.vmap(log_labels)(jnp.stack([apart.T, together.T]))
    gain = log_m[0] + log_m[1] - log_m[2] + log_p[0] - log_p[1]
    empties = jnp.sum(empty) + jnp.where(is_split, 0, 1)  # as seen from the merged state
    log_ratio = gain - division.log_q + log_places(empties)
    log_ratio = jnp.where(is_split, log_ratio, -log_ratio)
    possible = (pair[0] != pair[1]) & (empties > 0) & jnp.isfinite(log_ratio)
    accepted = possible & (jnp.log(few[most + 2]) < log_ratio)

    new_here = jnp.where(is_split, division.first, both)
    new_other = jnp.where(is_split, second, 0.0)
    label = jnp.where(is_split, other, here).astype(jnp.int32)
    units = lax.cond(
        accepted,
        lambda units: pool._replace(units=units).relabelled(found, division.second_side, label),
        lambda units: units,
        units,
    )
    totals = jnp.where(accepted, totals.at[here].set(new_here).at[other].set(new_other), totals)
    return Moved(
        units,
        totals,
        moved.splits + (accepted & is_split),
        moved.merges + (accepted & ~is_split),
    )


def choose_pair(uniform: Float[Array, " few"], pool: Pool) -> Int[Array, " 2"]:
    """Two units by number, chosen by where they lie and not by their labels."""
    most = max(CANDIDATES)
    drawn = pool.random(uniform[: most + 1])
    x, _, _ = pool.position(drawn)
    distance = jnp.sum((x[1:] - x[:1]) ** 2, axis=1)
    number = jnp.array(CANDIDATES)[jnp.int32(uniform[most + 1] * len(CANDIDATES))]
    nearest = jnp.argmin(jnp.where(jnp.arange(most) < number, distance, jnp.inf))
    return jnp.stack([drawn[0], drawn[1 + nearest]])


def log_places(empties: Int[Array, ""]) -> Float[Array, ""]:
    """log E: a split may leave for any of the E empty components, a merge has one way back."""
    return jnp.log(jnp.maximum(empties, 1))


def launch(
    pool: Pool, found: Members, both: Float[Array, " F"], x: Float[Array, "2 d"]
) -> Float[Array, " F"]:
    """Coefficients of the log odds of the second side, after a few steps from the two points."""
    layout, data, width = pool.layout, pool.data, size(pool.layout.d)
    pooled = _typical_root(given(data.base, both[:width]), FIRST_SHARE)
    even = jnp.zeros(layout.groups)

    def fitted(total: Float[Array, " F"]) -> Float[Array, " F"]:
        after = given(data.base, total[:width])
        # A side may be left with nothing but rounding errors.
        weight = jnp.log(jnp.maximum(jnp.sum(total[width:]), 0.0) + 1.0)
        return jnp.concatenate([coefficients(after.mean, _typical_root(after)), even + weight])

    def step(_: Int[Array, ""], w: Float[Array, " F"]) -> Float[Array, " F"]:
        def one(chunk: Int[Array, ""], total: Float[Array, " F"]) -> Float[Array, " F"]:
            _, phi, _, real = pool.chunk_of(found, chunk)
            return total + phi @ jnp.where(real, jax.nn.sigmoid(w @ phi), 0.0)

        chunks = layout.chunks(found.number)
        second = lax.fori_loop(0, chunks, one, jnp.zeros_like(both))
        own = jax.vmap(fitted)(jnp.stack([second, both - second]))
        return own[0] - own[1]

    own = jax.vmap(coefficients, (0, None))(x, pooled)
    odds = own[1] - own[0]
    return lax.fori_loop(0, LAUNCH_STEPS, step, jnp.concatenate([odds, even]))


def divide(
    key: KeyArray,
    pool: Pool,
    found: Members,
    pair: Int[Array, " 2"],
    w: Float[Array, " F"],
    is_split: Bool[Array, ""],
    there: Int[Array, ""],
) -> Division:
    """Draw a division under the launch state (split), or score the present one (merge)."""
    size_of_chunk = pool.layout.chunk

    def one(chunk: Int[Array, ""], division: Division) -> Division:
        unit, phi, label, real = pool.chunk_of(found, chunk)
        odds = w @ phi
        uniform = jax.random.uniform(jax.random.fold_in(key, chunk), odds.shape)
        second = jnp.where(is_split, uniform < jax.nn.sigmoid(odds), label == there)
        free = real & (unit != pair[0]) & (unit != pair[1])
        second = jnp.where(unit == pair[0], False, jnp.where(unit == pair[1], True, second))
        log_q = jnp.sum(jnp.where(free, jax.nn.log_sigmoid(jnp.where(second, odds, -odds)), 0.0))
        first = phi @ jnp.where(real & ~second, 1.0, 0.0)
        place = chunk * size_of_chunk
        side = lax.dynamic_update_slice_in_dim(division.second_side, second, place, 0)
        return Division(division.first + first, side, division.log_q + log_q)

    nothing = jnp.zeros(w.shape)
    start = Division(nothing, jnp.zeros(found.unit.shape, bool), jnp.zeros(()))
    return lax.fori_loop(0, pool.layout.chunks(found.number), one, start)


def _typical_root(after: Base, share: float = 1.0) -> Float[Array, "d d"]:
    """Root of a typical covariance under a base, times ``share``."""
    d = after.mean.shape[0]
    return jnp.linalg.cholesky(share * after.scale / jnp.maximum(after.degrees - d - 1, 1.0))
