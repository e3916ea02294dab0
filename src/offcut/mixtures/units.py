"""All units of a sweep, to be looked up by number: places for events first, then rejections.

A unit has features (see ``allocation``) and one label. Where the Dirichlet process is on the
weights in the window, the rejections of an event are part of it and ``own`` holds the sums; then
there are no units but events.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import Rejected, capacity_of, exclusive_count, write_rows
from offcut.mixtures.allocation import chunks_of, rejected_chunk, unit_features
from offcut.mixtures.layout import MixtureData, MixtureLayout


class Units(NamedTuple):
    """Events and rejections with their labels.

    labels : (rows,) of the events. rejected : with labels of its own, where rejections are units.
    own : (rows, features + G) where they belong to the events.
    """

    labels: jax.Array
    rejected: Rejected | None
    own: jax.Array | None


class Members(NamedTuple):
    """Numbers of the units that bear one of two labels; ``number`` of them."""

    unit: jax.Array
    number: jax.Array


def random_units(
    uniform: jax.Array, layout: MixtureLayout, data: MixtureData, units: Units
) -> jax.Array:
    """Numbers of units, each as likely as any other, from uniforms."""
    held = 0 if units.rejected is None else units.rejected.count
    place = jnp.int32(uniform * (data.n + held))
    return jnp.where(place < data.n, place, layout.rows + place - data.n).astype(jnp.int32)


def most_units(layout: MixtureLayout, units: Units) -> int:
    """Units that there may be."""
    room = 0 if units.rejected is None else capacity_of(layout.buffer, units.rejected)
    return layout.rows + room


def position(
    layout: MixtureLayout, data: MixtureData, units: Units, unit: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Coordinates (m, d), group and label of units by number."""
    event = jnp.minimum(unit, layout.rows - 1)
    x, group, label = data.x[:, event].T, data.group[event], units.labels[event]
    if units.rejected is None:
        return x, group, label
    row = units.rejected.offset + jnp.maximum(unit - layout.rows, 0)
    points, labels = units.rejected.points
    assert units.rejected.owner is not None
    is_event = unit < layout.rows
    return (
        jnp.where(is_event[:, None], x, points[row]),
        jnp.where(is_event, group, units.rejected.owner[row]),
        jnp.where(is_event, label, labels[row]),
    )


def phi_of(
    layout: MixtureLayout, data: MixtureData, units: Units, unit: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Features (features + G, m) and labels of units by number."""
    if units.own is not None:
        event = jnp.minimum(unit, layout.rows - 1)
        return units.own[event].T, units.labels[event]
    x, group, label = position(layout, data, units, unit)
    return unit_features(layout, x.T, group), label


def members(layout: MixtureLayout, units: Units, first: jax.Array, second: jax.Array) -> Members:
    """The units with label ``first`` or ``second``."""
    size, held = layout.chunk, units.rejected
    index = jnp.zeros(most_units(layout, units) + size + 1, jnp.int32)
    trash = index.shape[0] - 1

    def add(found: Members, label: jax.Array, unit: jax.Array, real: jax.Array) -> Members:
        flags = ((label == first) | (label == second)) & real
        place = jnp.where(flags, found.number + exclusive_count(flags), trash)
        return Members(
            write_rows(found.unit, place, unit), found.number + jnp.sum(flags, dtype=jnp.int32)
        )

    def events(chunk: jax.Array, found: Members) -> Members:
        label = lax.dynamic_slice_in_dim(units.labels, chunk * size, size)
        unit = chunk * size + jnp.arange(size, dtype=jnp.int32)
        return add(found, label, unit, label < layout.components)

    def rejections(chunk: jax.Array, found: Members) -> Members:
        assert held is not None
        part = rejected_chunk(layout, held, chunk)
        unit = layout.rows + chunk * size + jnp.arange(size, dtype=jnp.int32)
        return add(found, part.label, unit, part.real)

    found = lax.fori_loop(0, layout.chunks, events, Members(index, jnp.int32(0)))
    if held is None:
        return found
    return lax.fori_loop(0, chunks_of(layout, held), rejections, found)


def relabelled(
    layout: MixtureLayout,
    units: Units,
    found: Members,
    second_side: jax.Array,
    label: jax.Array,
) -> Units:
    """Give ``label`` to the members on the second side."""
    size, rows = layout.chunk, units.labels.shape[0]

    def chosen(chunk: jax.Array) -> tuple[jax.Array, jax.Array]:
        unit = lax.dynamic_slice_in_dim(found.unit, chunk * size, size)
        side = lax.dynamic_slice_in_dim(second_side, chunk * size, size)
        return unit, side & (chunk * size + jnp.arange(size, dtype=jnp.int32) < found.number)

    def events(chunk: jax.Array, labels: jax.Array) -> jax.Array:
        unit, side = chosen(chunk)
        return labels.at[jnp.where(side & (unit < layout.rows), unit, rows)].set(label, mode="drop")

    def rejections(chunk: jax.Array, labels: jax.Array) -> jax.Array:
        unit, side = chosen(chunk)
        row = jnp.where(side & (unit >= layout.rows), offset + unit - layout.rows, labels.shape[0])
        return labels.at[row].set(label, mode="drop")

    chunks = -(-found.number // size)
    units = units._replace(labels=lax.fori_loop(0, chunks, events, units.labels))
    if units.rejected is None:
        return units
    offset = units.rejected.offset
    points, labels = units.rejected.points
    labels = lax.fori_loop(0, chunks, rejections, labels)
    return units._replace(rejected=units.rejected._replace(points=(points, labels)))
