r"""Split a component, or merge two: moves that single labels never make.

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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.mixtures.base import Base, given, log_marginal
from offcut.mixtures.features import coefficients, size
from offcut.mixtures.layout import MixtureData, MixtureLayout
from offcut.mixtures.units import (
    Members,
    Units,
    members,
    phi_of,
    position,
    random_units,
    relabelled,
)

#: Steps of expectation-maximisation before the split is drawn.
LAUNCH_STEPS = 4
#: j is the nearest to i of so many candidates, the number chosen at random: near pairs make
#: promising splits and merges, distant ones keep every pair possible.
CANDIDATES = (1, 4, 16)
#: The two halves start with this share of the component's covariance.
FIRST_SHARE = 0.5

#: log p(z) of counts (G, K), weights summed out
LogLabels = Callable[[jax.Array], jax.Array]


class Moved(NamedTuple):
    """Units after the moves, totals by component, and how many moves were made."""

    units: Units
    totals: jax.Array  # (K + 1, features + G); the last row is not in use
    splits: jax.Array
    merges: jax.Array


class Division(NamedTuple):
    """A division of S: totals of the first side, which members are on the second, log q."""

    first: jax.Array
    second_side: jax.Array
    log_q: jax.Array


def split_merge(
    layout: MixtureLayout,
    key: jax.Array,
    moves: int,
    units: Units,
    totals: jax.Array,
    log_labels: LogLabels,
    data: MixtureData,
) -> Moved:
    """``moves`` proposals, one after the other."""

    def one(turn: jax.Array, moved: Moved) -> Moved:
        return _move(layout, jax.random.fold_in(key, turn), moved, log_labels, data)

    start = Moved(units, totals, jnp.int32(0), jnp.int32(0))
    return lax.fori_loop(0, moves, one, start)


def _move(
    layout: MixtureLayout, key: jax.Array, moved: Moved, log_labels: LogLabels, data: MixtureData
) -> Moved:
    units, totals = moved.units, moved.totals
    K, width = layout.components, size(layout.d)
    key_few, key_split = jax.random.split(key)
    most = max(CANDIDATES)
    few = jax.random.uniform(key_few, (most + 3 + K,))
    pair = choose_pair(layout, few[: most + 2], units, data)
    x, _, labels = position(layout, data, units, pair)
    here, there = labels[0], labels[1]
    is_split = here == there
    counts = totals[:K, width:]
    empty = jnp.sum(counts, axis=1) == 0
    leaves_for = jnp.argmax(jnp.where(empty, few[-K:], -1.0))
    both = totals[here] + jnp.where(is_split, 0.0, totals[there])

    found = members(layout, units, here, there)
    w = launch(layout, units, found, both, x, data)
    division = divide(layout, key_split, units, found, pair, w, is_split, there, data)
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
        lambda units: relabelled(layout, units, found, division.second_side, label),
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


def choose_pair(
    layout: MixtureLayout, uniform: jax.Array, units: Units, data: MixtureData
) -> jax.Array:
    """Two units by number, chosen by where they lie and not by their labels."""
    most = max(CANDIDATES)
    drawn = random_units(uniform[: most + 1], layout, data, units)
    x, _, _ = position(layout, data, units, drawn)
    distance = jnp.sum((x[1:] - x[:1]) ** 2, axis=1)
    number = jnp.array(CANDIDATES)[jnp.int32(uniform[most + 1] * len(CANDIDATES))]
    nearest = jnp.argmin(jnp.where(jnp.arange(most) < number, distance, jnp.inf))
    return jnp.stack([drawn[0], drawn[1 + nearest]])


def log_places(empties: jax.Array) -> jax.Array:
    """log E: a split may leave for any of the E empty components, a merge has one way back."""
    return jnp.log(jnp.maximum(empties, 1))


def launch(
    layout: MixtureLayout,
    units: Units,
    found: Members,
    both: jax.Array,
    x: jax.Array,
    data: MixtureData,
) -> jax.Array:
    """Coefficients of the log odds of the second side, after a few steps from the two points."""
    width = size(layout.d)
    pooled = _typical_root(given(data.base, both[:width]), FIRST_SHARE)
    even = jnp.zeros(layout.groups)

    def fitted(total: jax.Array) -> jax.Array:
        after = given(data.base, total[:width])
        # A side may be left with nothing but rounding errors.
        weight = jnp.log(jnp.maximum(jnp.sum(total[width:]), 0.0) + 1.0)
        return jnp.concatenate([coefficients(after.mean, _typical_root(after)), even + weight])

    def step(_: int, w: jax.Array) -> jax.Array:
        def one(chunk: jax.Array, total: jax.Array) -> jax.Array:
            phi, _, real = _member_chunk(layout, units, found, chunk, data)
            return total + phi @ jnp.where(real, jax.nn.sigmoid(w @ phi), 0.0)

        second = lax.fori_loop(0, _chunks(layout, found), one, jnp.zeros_like(both))
        own = jax.vmap(fitted)(jnp.stack([second, both - second]))
        return own[0] - own[1]

    own = jax.vmap(coefficients, (0, None))(x, pooled)
    odds = own[1] - own[0]
    return lax.fori_loop(0, LAUNCH_STEPS, step, jnp.concatenate([odds, even]))


def divide(
    layout: MixtureLayout,
    key: jax.Array,
    units: Units,
    found: Members,
    pair: jax.Array,
    w: jax.Array,
    is_split: jax.Array,
    there: jax.Array,
    data: MixtureData,
) -> Division:
    """Draw a division under the launch state (split), or score the present one (merge)."""

    def one(chunk: jax.Array, division: Division) -> Division:
        phi, label, real = _member_chunk(layout, units, found, chunk, data)
        unit = lax.dynamic_slice_in_dim(found.unit, chunk * layout.chunk, layout.chunk)
        odds = w @ phi
        uniform = jax.random.uniform(jax.random.fold_in(key, chunk), odds.shape)
        second = jnp.where(is_split, uniform < jax.nn.sigmoid(odds), label == there)
        free = real & (unit != pair[0]) & (unit != pair[1])
        second = jnp.where(unit == pair[0], False, jnp.where(unit == pair[1], True, second))
        log_q = jnp.sum(jnp.where(free, jax.nn.log_sigmoid(jnp.where(second, odds, -odds)), 0.0))
        first = phi @ jnp.where(real & ~second, 1.0, 0.0)
        side = lax.dynamic_update_slice_in_dim(
            division.second_side, second, chunk * layout.chunk, 0
        )
        return Division(division.first + first, side, division.log_q + log_q)

    nothing = jnp.zeros(w.shape)
    start = Division(nothing, jnp.zeros(found.unit.shape, bool), jnp.zeros(()))
    return lax.fori_loop(0, _chunks(layout, found), one, start)


def _member_chunk(
    layout: MixtureLayout, units: Units, found: Members, chunk: jax.Array, data: MixtureData
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Features and labels of a chunk of members, and which of them are real."""
    unit = lax.dynamic_slice_in_dim(found.unit, chunk * layout.chunk, layout.chunk)
    phi, label = phi_of(layout, data, units, unit)
    place = chunk * layout.chunk + jnp.arange(layout.chunk, dtype=jnp.int32)
    return phi, label, place < found.number


def _chunks(layout: MixtureLayout, found: Members) -> jax.Array:
    return -(-found.number // layout.chunk)


def _typical_root(after: Base, share: float = 1.0) -> jax.Array:
    """Root of a typical covariance under a base, times ``share``."""
    d = after.mean.shape[0]
    return jnp.linalg.cholesky(share * after.scale / jnp.maximum(after.degrees - d - 1, 1.0))
