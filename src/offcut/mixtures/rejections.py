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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import exclusive_count, materialised
from offcut.mixtures.base import Components
from offcut.mixtures.layout import MixtureData

#: (key, points (m, d) as measured, group of each) -> accepted
Filter = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


class Proposed(NamedTuple):
    """Proposals of a block."""

    points: jax.Array  # (m, d), the sampler's scale
    label: jax.Array
    accepted: jax.Array


class CellRun(NamedTuple):
    """What was collected, rejections in all, and acceptances still missing at the end."""

    collected: Any
    count: jax.Array  # type: ignore[assignment] # not the method of tuple
    missing: jax.Array
    lost: jax.Array | None = None  # rejections by cell, where there are caps


def not_begun(collected: Any, wanted: jax.Array) -> CellRun:
    """A run in which nothing was proposed yet."""
    return CellRun(collected, jnp.int32(0), jnp.sum(wanted), jnp.zeros_like(wanted))


class Block(NamedTuple):
    """A block of proposals, and what became of each.

    place : number of rejections before it in the run. rank : number of acceptances before it in
    its cell.
    """

    proposed: Proposed
    cell: jax.Array
    rejected: jax.Array
    accepted: jax.Array
    place: jax.Array
    rank: jax.Array


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
    points = components.means[label] + jnp.einsum("mij,mj->mi", components.roots[label], noise)
    accepted = passes(key_accept, points * data.scale[None, :] + data.shift[None, :], group)
    return Proposed(points, label, accepted)


def run_cells(
    size: int,
    key: jax.Array,
    from_cells: Callable[[jax.Array, jax.Array], Proposed],
    wanted: jax.Array,
    limit: jax.Array,
    collect: Callable[[Any, Block], Any],
    start: Any,
    caps: jax.Array | None = None,
) -> CellRun:
    """Propose until every cell has what it wants, or more than ``limit`` are rejected.

    ``from_cells(key, cell)`` proposes ``size`` points, ``collect(collected, block)`` keeps what is
    wanted of them. A cell with more rejections than its cap gives up on its own, whatever the
    others do.
    """

    def unfinished(carry: tuple) -> jax.Array:
        _, need, lost, rejected, _ = carry
        return (jnp.sum(_open(need, lost)) > 0) & (rejected <= limit)

    def _open(need: jax.Array, lost: jax.Array) -> jax.Array:
        return need if caps is None else jnp.where(lost <= caps, need, 0)

    def draw_block(carry: tuple) -> tuple:
        block, every_need, lost, rejected, collected = carry
        need = _open(every_need, lost)
        first, cell = _share(need, size)
        proposed = materialised(block, lambda: from_cells(jax.random.fold_in(key, block), cell))
        accepted_before = exclusive_count(proposed.accepted)
        within = accepted_before
        if need.shape[0] > 1:
            within = accepted_before - accepted_before[jnp.minimum(first[:-1], size - 1)][cell]
        in_time = within < need[cell]
        is_rejected = ~proposed.accepted & in_time
        is_accepted = proposed.accepted & in_time
        collected = collect(
            collected,
            Block(
                proposed,
                cell,
                is_rejected,
                is_accepted,
                rejected + exclusive_count(is_rejected),
                wanted[cell] - need[cell] + within,
            ),
        )
        new = jnp.zeros_like(need).at[cell].add(is_accepted)
        if need.shape[0] == 1:
            new = jnp.sum(is_accepted, dtype=need.dtype)[None]
        if caps is not None:
            lost = lost.at[cell].add(is_rejected)
        rejected = rejected + jnp.sum(is_rejected, dtype=jnp.int32)
        return block + 1, every_need - new, lost, rejected, collected

    carry = (jnp.int32(0), wanted, jnp.zeros_like(wanted), jnp.int32(0), start)
    _, need, lost, rejected, collected = lax.while_loop(unfinished, draw_block, carry)
    return CellRun(collected, rejected, jnp.sum(need), lost)


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
