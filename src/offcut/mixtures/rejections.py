r"""Algorithm 1 for mixtures: proposals come with their labels, and rejections keep them.

Proposals belong to *cells*, and each cell goes on until it has accepted as many as it needs. With
the Dirichlet process on the latent weights a cell is a group: its proposals come from the group's
mixture, and the component that a proposal came from is its label, an exact draw. With the process
on the weights in the window a cell is a component in a group: it proposes from that component until
as many are accepted as it has events, and what is rejected on the way to the j-th acceptance
belongs to the j-th event.

A block of proposals is shared among the cells in proportion to what they still need, in order of
cells; what was drawn behind a cell's last acceptance is dropped. How many proposals a cell gets
depends on the past only, so each cell's stream is what it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import (
    Rejected,
    capacity_of,
    exclusive_count,
    materialised,
    section_rows,
    write_rows,
)
from offcut.mixtures.base import Components
from offcut.mixtures.layout import MixtureData, MixtureLayout

#: (key, points (m, d) as measured, group of each) -> accepted
Filter = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class Proposed(NamedTuple):
    """Proposals of a block."""

    points: jax.Array  # (m, d), the sampler's scale
    label: jax.Array
    accepted: jax.Array


class MixtureRun(NamedTuple):
    """Rejections, and acceptances that were still missing when the run was cut short."""

    rejected: Rejected
    missing: jax.Array


def propose(
    key: jax.Array,
    passes: Filter,
    components: Components,
    label: jax.Array,
    group: jax.Array,
    data: MixtureData,
) -> Proposed:
    """A proposal from each of the labelled components."""
    key_noise, key_accept = jax.random.split(key)
    noise = jax.random.normal(key_noise, (label.shape[0], components.means.shape[1]))
    roots = components.roots[label]
    points = components.means[label] + jnp.sum(roots * noise[:, None, :], axis=2)
    accepted = passes(key_accept, points * data.scale[None, :] + data.shift[None, :], group)
    return Proposed(points, label, accepted)


def run_latent(
    layout: MixtureLayout,
    key: jax.Array,
    passes: Filter,
    log_weights: jax.Array,
    components: Components,
    data: MixtureData,
    buffer: Rejected,
    limit: jax.Array,
) -> MixtureRun:
    """Each group proposes from its mixture until it has accepted as many as it has events.

    ``owner`` of a rejection is its group. ``log_weights`` is (G, K), or (1, K) where groups share.
    """
    cumulative = jnp.cumsum(jnp.exp(log_weights), axis=1)
    cumulative = jnp.broadcast_to(cumulative, (layout.groups, layout.components))

    def from_cells(key: jax.Array, cell: jax.Array) -> Proposed:
        key_label, key_point = jax.random.split(key)
        uniform = jax.random.uniform(key_label, cell.shape) * cumulative[cell, -1]
        if layout.groups == 1:
            label = jnp.searchsorted(cumulative[0], uniform, side="right", method="compare_all")
        else:
            label = jnp.sum(cumulative[cell] <= uniform[:, None], axis=1)
        label = jnp.minimum(label, layout.components - 1).astype(jnp.int32)
        return propose(key_point, passes, components, label, cell, data)

    def owner(cell: jax.Array, rank: jax.Array) -> jax.Array:
        return cell

    return run_cells(layout, key, from_cells, owner, data.counts, buffer, limit)


def run_window(
    layout: MixtureLayout,
    key: jax.Array,
    passes: Filter,
    components: Components,
    labels: jax.Array,
    data: MixtureData,
    buffer: Rejected,
    limit: jax.Array,
) -> MixtureRun:
    """Each component proposes until it has accepted as many as it has events, group by group.

    ``owner`` of a rejection is the event that it belongs to; ``labels`` is (rows,).
    """
    K, cells = layout.components, layout.groups * layout.components
    real = jnp.arange(labels.shape[0]) < layout.n
    own_cell = jnp.where(real, data.group * K + labels, cells)
    order = jnp.argsort(own_cell, stable=True).astype(jnp.int32)
    counts = jnp.zeros(cells + 1, jnp.int32).at[own_cell].add(1)[:-1]
    starts = jnp.cumsum(counts) - counts

    def from_cells(key: jax.Array, cell: jax.Array) -> Proposed:
        label = (cell % K).astype(jnp.int32)
        return propose(key, passes, components, label, cell // K, data)

    def owner(cell: jax.Array, rank: jax.Array) -> jax.Array:
        return order[jnp.minimum(starts[cell] + rank, layout.n - 1)]

    return run_cells(layout, key, from_cells, owner, counts, buffer, limit)


def run_cells(
    layout: MixtureLayout,
    key: jax.Array,
    from_cells: Callable[[jax.Array, jax.Array], Proposed],
    owner: Callable[[jax.Array, jax.Array], jax.Array],
    wanted: jax.Array,
    buffer: Rejected,
    limit: jax.Array,
) -> MixtureRun:
    """Propose until every cell has what it wants, or more than ``limit`` are rejected.

    ``owner(cell, rank)`` says whom a rejection belongs to that came before the cell's acceptance
    number ``rank``.
    """
    size = layout.buffer.block
    bound = jnp.minimum(limit, capacity_of(layout.buffer, buffer)).astype(jnp.int32)
    trash = buffer.offset + section_rows(layout.buffer, buffer) - 1

    def unfinished(carry: tuple) -> jax.Array:
        _, need, rejected, _, _ = carry
        return (jnp.sum(need) > 0) & (rejected <= bound)

    def draw_block(carry: tuple) -> tuple:
        block, need, rejected, points, owners = carry
        first, cell = _share(need, size)
        proposed = materialised(block, lambda: from_cells(jax.random.fold_in(key, block), cell))
        accepted_before = exclusive_count(proposed.accepted)
        within = accepted_before - accepted_before[jnp.minimum(first[:-1], size - 1)][cell]
        in_time = within < need[cell]
        is_rejected = ~proposed.accepted & in_time
        place = jnp.where(
            is_rejected, buffer.offset + rejected + exclusive_count(is_rejected), trash
        )
        rank = wanted[cell] - need[cell] + within
        points = write_rows(points, place, (proposed.points, proposed.label))
        owners = write_rows(owners, place, owner(cell, rank).astype(jnp.int32))
        new = jnp.zeros_like(need).at[cell].add(proposed.accepted & in_time)
        return (
            block + 1,
            need - new,
            rejected + jnp.sum(is_rejected, dtype=jnp.int32),
            points,
            owners,
        )

    assert buffer.owner is not None
    start = (jnp.int32(0), wanted, jnp.int32(0), buffer.points, buffer.owner)
    _, need, rejected, points, owners = lax.while_loop(unfinished, draw_block, start)
    return MixtureRun(Rejected(points, owners, buffer.offset, rejected), jnp.sum(need))


def _share(need: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """First proposal of each cell (and the end), and the cell of each proposal.

    Proposal p serves the cell that holds place p total / size of all that is needed.
    """
    ends = jnp.cumsum(need).astype(jnp.int64)
    total = ends[-1]
    first = -(-(ends * size) // jnp.maximum(total, 1))
    first = jnp.concatenate([jnp.zeros(1, first.dtype), first])
    if need.shape[0] == 1:
        return first, jnp.zeros(size, jnp.int32)
    proposal = jnp.arange(size, dtype=first.dtype)
    cell = jnp.searchsorted(first[1:], proposal, side="right", method="compare_all")
    return first, jnp.minimum(cell, need.shape[0] - 1).astype(jnp.int32)
