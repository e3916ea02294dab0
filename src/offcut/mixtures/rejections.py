"""Algorithm 1 for mixtures: proposals come with their labels, and rejections keep them.

Proposals belong to *cells*, and each cell goes on until it has accepted as many as it needs. With
the Dirichlet process on the latent weights a cell is a group: its proposals come from the group's
mixture, and the component that a proposal came from is its label, an exact draw. With the process
on the weights in the window a cell is a component in a group: it proposes from that component until
as many are accepted as it has events, and what is rejected on the way to the j-th acceptance
belongs to the j-th event.

A block of proposals is shared among the cells in proportion to what they still need, in order of
cells; what was drawn behind a cell's last acceptance is dropped. How many proposals a cell gets
depends on the past only, so each cell's stream is what it would be alone.

*Components made independent*, by a gamma variable in place of the power of the normalising
constant. With the Dirichlet process on the latent weights all components share one constant,
Z = sum_k omega_k Z_k, to the power n. But

    Z⁻ⁿ ∝ ∫ u^(n-1) exp(-u sum_k omega_k Z_k) du,

and given u component k has a Poisson number of proposals with mean lambda_k = u omega_k, those that
pass being its events: density prod_i N_k(x_i) exp(-lambda_k Z_k), each component on its own. Its
rejections are what does not pass. Given all rejections u ~ Gamma(n + |Y|, 1); with u summed out
|Y| is negative binomial, as in Algorithm 1. Groups have a u each.

So the exchange moves of ``exchange_moves`` apply here, too: the run at theta' proposes a Poisson
number of points; those that pass are x̂, and their number need not be that of the events. A
component that goes further out must grow for as many to pass, so its weight moves along: lambda_k'
= r lambda_k with r = Z~_k / Z~_k', Z~ being a rough, fixed approximation to the mass in the window.
It is used for proposing only, r being the inverse on the way back, so the move is exact however
rough it is:

    log ratio = log p(theta')/p(theta) + (w' - w)·(sum phi(x) - sum phi(x̂)) + (n_k - n̂_k) log r
                + log r + log g(lambda') - log g(lambda),

the second log r from the change of variables, g the prior density of the weights omega and of
log u, in terms of lambda (see ``log_measure`` in ``weights``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from offcut.augmentation.algorithm1 import Block, UntilProposed, propose_until
from offcut.augmentation.rejections import Rejected, section_rows
from offcut.base import MOST_REJECTED
from offcut.mixtures.allocation import add_by_label, rejected_chunk, unit_features
from offcut.mixtures.data import MixtureLayout
from offcut.numerics.arrays import exclusive_count, write_rows
from offcut.numerics.normal import size
from offcut.numerics.poisson import poisson
from offcut.numerics.types import KeyArray, Points

#: What a run collects.
Kept = TypeVar("Kept")


class Proposed(NamedTuple):
    """Proposals of a block."""

    points: Float[Array, "m d"]  # on the sampler's scale
    label: Int[Array, " m"]
    group: Int[Array, " m"]
    accepted: Bool[Array, " m"]


#: (key, labels, groups) -> a proposal from each of the labelled components
Propose = Callable[[KeyArray, Int[Array, " m"], Int[Array, " m"]], Proposed]


class CellRun(NamedTuple):
    """What was collected, rejections in all, and acceptances still missing at the end."""

    collected: PyTree
    count: Int[Array, ""]  # type: ignore[assignment] # not the method of tuple
    missing: Int[Array, ""]
    lost: Int[Array, " cells"] | None = None  # rejections by cell, where there are caps


def not_begun(collected: PyTree, wanted: Int[Array, " cells"]) -> CellRun:
    """A run in which nothing was proposed yet."""
    return CellRun(collected, jnp.int32(0), jnp.sum(wanted), jnp.zeros_like(wanted))


class Shares(NamedTuple):
    """First proposal of each cell (and the end), and the cell of each proposal."""

    first: Int[Array, " _"]
    cell: Int[Array, " m"]


class Counts(NamedTuple):
    """Acceptances that each cell still needs, and its rejections so far (where there are caps)."""

    need: Int[Array, " cells"]
    lost: Int[Array, " cells"]


class Cells(NamedTuple):
    """Until every cell has as many acceptances as it wants, or more rejections than its cap."""

    wanted: Int[Array, " cells"]
    caps: Int[Array, " cells"] | None
    size: int

    def start(self) -> Counts:
        return Counts(self.wanted, jnp.zeros_like(self.wanted))

    def unfinished(self, counts: Counts) -> Bool[Array, ""]:
        return jnp.sum(self._open(counts)) > 0

    def assign(self, counts: Counts) -> Shares:
        """To each in proportion to its need."""
        return _share(self._open(counts), self.size)

    def cut(self, counts: Counts, turn: Shares, accepted: Bool[Array, " m"]) -> tuple:
        """Each up to its last acceptance."""
        need, (first, cell) = self._open(counts), turn
        within = accepted_before = exclusive_count(accepted)
        if need.shape[0] > 1:
            before_cell = accepted_before[jnp.minimum(first[:-1], self.size - 1)]
            within = accepted_before - before_cell[cell]
        in_time = within < need[cell]
        is_accepted = accepted & in_time
        new = jnp.zeros_like(need).at[cell].add(is_accepted)
        if need.shape[0] == 1:
            new = jnp.sum(is_accepted, dtype=need.dtype)[None]
        lost = counts.lost
        if self.caps is not None:
            lost = lost.at[cell].add(~accepted & in_time)
        rank = self.wanted[cell] - need[cell] + within
        return in_time, rank, Counts(counts.need - new, lost)

    def _open(self, counts: Counts) -> Int[Array, " cells"]:
        """What is needed by cells that have not given up."""
        if self.caps is None:
            return counts.need
        return jnp.where(counts.lost <= self.caps, counts.need, 0)


def run_cells(
    size: int,
    key: KeyArray,
    from_cells: Callable[[KeyArray, Int[Array, " m"]], Proposed],
    wanted: Int[Array, " cells"],
    limit: Int[Array, ""],
    collect: Callable[[Kept, Block], Kept],
    start: Kept,
    caps: Int[Array, " cells"] | None = None,
) -> CellRun:
    """Propose until every cell has what it wants, or more than ``limit`` are rejected.

    ``from_cells(key, cell)`` proposes ``size`` points, ``collect(collected, block)`` keeps what is
    wanted of them. A cell with more rejections than its cap gives up on its own, whatever the
    others do.
    """

    def propose_block(number: Int[Array, ""], turn: Shares) -> Proposed:
        return from_cells(jax.random.fold_in(key, number), turn.cell)

    done = propose_until(propose_block, Cells(wanted, caps, size), limit, collect, start)
    need, lost = done.counts
    return CellRun(done.collected, done.rejected, jnp.sum(need), lost)


def _share(need: Int[Array, " cells"], size: int) -> Shares:
    """Proposal p serves the cell that holds place p total / size of all that is needed."""
    ends = jnp.cumsum(need).astype(jnp.int64)
    total = ends[-1]
    first = -(-(ends * size) // jnp.maximum(total, 1))
    first = jnp.concatenate([jnp.zeros(1, first.dtype), first])
    if need.shape[0] == 1:
        return Shares(first, jnp.zeros(size, jnp.int32))
    proposal = jnp.arange(size, dtype=first.dtype)
    cell = jnp.searchsorted(first[1:], proposal, side="right", method="compare_all")
    return Shares(first, jnp.minimum(cell, need.shape[0] - 1).astype(jnp.int32))


class PoissonRun(NamedTuple):
    """Totals by component of what passed, and numbers of what did not."""

    accepted: Float[Array, "labels F"]
    rejected: Int[Array, " labels"]


def draw_rates(
    key: KeyArray, log_weights: Float[Array, "R K"], proposals: Int[Array, " G"]
) -> Float[Array, "G K"]:
    """lambda_gk = u_g omega_gk with u_g ~ Gamma(n_g + |Y_g|, 1), n_g + |Y_g| ``proposals``."""
    u = jax.random.gamma(key, proposals.astype(float))
    return u[:, None] * jnp.exp(log_weights)


class Proposals(NamedTuple):
    """Everything that a run of Poisson(lambda_gk) proposals is made from: it can be run twice.

    The first time one sees what passes and counts what does not; the second time one keeps the
    rejections of the components that were accepted, the only ones that there must be room for.
    """

    key: KeyArray
    propose: Propose
    ends: Int[Array, " cells"]  # number of proposals up to the end of each cell (group, component)


def draw_numbers(key: KeyArray, propose: Propose, rates: Float[Array, "G K"]) -> Proposals:
    """Poisson numbers of proposals."""
    key_numbers, key_points = jax.random.split(key)
    return Proposals(key_points, propose, jnp.cumsum(poisson(key_numbers, rates.reshape(-1))))


def run_poisson(
    layout: MixtureLayout,
    proposals: Proposals,
    collect: Callable[[Kept, Block], Kept],
    start: Kept,
    wanted: Bool[Array, " labels"] | None = None,
) -> Kept:
    """All proposals of a run, one block after the other, into ``collect(collected, block)``.

    Blocks without proposals of the ``wanted`` components are not drawn: they reject nothing.
    """
    K, size_of_block, ends = layout.components, layout.buffer.block, proposals.ends

    def propose_block(number: Int[Array, ""], _: None) -> Proposed:
        place = number * size_of_block + jnp.arange(size_of_block, dtype=jnp.int32)
        cell = jnp.searchsorted(ends, place, side="right", method="compare_all")
        cell = jnp.minimum(cell, ends.shape[0] - 1).astype(jnp.int32)
        label, group = cell % K, cell // K
        draw = partial(proposals.propose, jax.random.fold_in(proposals.key, number), label, group)
        if wanted is None:
            return draw()
        nothing = Proposed(jnp.zeros((size_of_block, layout.d)), label, group, place >= 0)
        return lax.cond(jnp.any(wanted[label] & (place < ends[-1])), draw, lambda: nothing)

    no_limit = jnp.int32(MOST_REJECTED)
    return propose_until(propose_block, UntilProposed(ends[-1]), no_limit, collect, start).collected


def count_and_sum(layout: MixtureLayout, proposals: Proposals) -> PoissonRun:
    """The first run."""
    K = layout.components

    def collect(run: PoissonRun, block: Block) -> PoissonRun:
        points, label, group, _ = block.proposed
        passed = jnp.where(block.accepted, label, K)
        lost = jnp.where(block.rejected, label, K)
        phi = unit_features(layout, points.T, group)
        return PoissonRun(add_by_label(run.accepted, passed, phi), run.rejected.at[lost].add(1))

    nothing = jnp.zeros((K + 1, size(layout.d) + layout.groups))
    start = PoissonRun(nothing, jnp.zeros(K + 1, jnp.int32))
    return run_poisson(layout, proposals, collect, start)


def with_fresh(
    layout: MixtureLayout,
    held: Rejected,
    proposals: Proposals,
    chosen: Bool[Array, " labels"],
    offset: Int[Array, ""],
) -> Rejected:
    """Rejections of the ``chosen`` components from the run, of the others from ``held``.

    They are written to the section of the same buffer at ``offset``.
    """
    trash = offset + section_rows(layout.buffer, held) - 1

    def add(
        into: Rejected, keep: Bool[Array, " m"], points: Points, owner: Int[Array, " m"]
    ) -> Rejected:
        row = jnp.where(keep, offset + into.count + exclusive_count(keep), trash)
        return into._replace(
            points=write_rows(into.points, row, points),
            owner=write_rows(into.owner, row, owner),
            count=into.count + jnp.sum(keep, dtype=jnp.int32),
        )

    def old(chunk: Int[Array, ""], into: Rejected) -> Rejected:
        source = held._replace(points=into.points, owner=into.owner)
        part = rejected_chunk(layout, source, chunk)
        return add(into, part.real & ~chosen[part.label], (part.x.T, part.label), part.owner)

    def fresh(into: Rejected, block: Block) -> Rejected:
        points, label, group, _ = block.proposed
        return add(into, block.rejected & chosen[label], (points, label), group)

    into = held._replace(offset=offset, count=jnp.int32(0))
    into = lax.fori_loop(0, layout.chunks(held.count), old, into)
    return run_poisson(layout, proposals, fresh, into, chosen)


def counts_of(
    layout: MixtureLayout, rejected: Rejected
) -> tuple[Int[Array, " K"], Int[Array, " G"]]:
    """Rejections of each component, and of each group."""

    def one(chunk: Int[Array, ""], counts: tuple) -> tuple:
        part = rejected_chunk(layout, rejected, chunk)
        by_label, by_group = counts
        return (
            by_label.at[jnp.where(part.real, part.label, layout.components)].add(1),
            by_group.at[jnp.where(part.real, part.owner, layout.groups)].add(1),
        )

    start = (
        jnp.zeros(layout.components + 1, jnp.int32),
        jnp.zeros(layout.groups + 1, jnp.int32),
    )
    by_label, by_group = lax.fori_loop(0, layout.chunks(rejected.count), one, start)
    return by_label[:-1], by_group[:-1]
