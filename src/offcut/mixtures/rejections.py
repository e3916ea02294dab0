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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.algorithm1 import Block, propose_until
from offcut.augmentation.rejections import Rejected, section_rows
from offcut.mixtures.allocation import add_by_label, chunks_of, rejected_chunk, unit_features
from offcut.mixtures.data import MixtureData, MixtureLayout
from offcut.numerics.arrays import exclusive_count, write_rows
from offcut.numerics.normal import Components, size

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


class Shares(NamedTuple):
    """First proposal of each cell (and the end), and the cell of each proposal."""

    first: jax.Array
    cell: jax.Array


class Standing(NamedTuple):
    """Acceptances that each cell still needs, and its rejections so far (where there are caps)."""

    need: jax.Array
    lost: jax.Array


class Cells(NamedTuple):
    """Until every cell has as many acceptances as it wants, or more rejections than its cap."""

    wanted: jax.Array
    caps: jax.Array | None
    size: int

    def start(self) -> Standing:
        """Nothing proposed yet."""
        return Standing(self.wanted, jnp.zeros_like(self.wanted))

    def unfinished(self, standing: Standing) -> jax.Array:
        """Some cell waits."""
        return jnp.sum(self._open(standing)) > 0

    def assign(self, standing: Standing) -> Shares:
        """To each in proportion to its need."""
        return _share(self._open(standing), self.size)

    def judge(self, standing: Standing, turn: Shares, accepted: jax.Array) -> tuple:
        """Each up to its last acceptance."""
        need, (first, cell) = self._open(standing), turn
        within = accepted_before = exclusive_count(accepted)
        if need.shape[0] > 1:
            before_cell = accepted_before[jnp.minimum(first[:-1], self.size - 1)]
            within = accepted_before - before_cell[cell]
        in_time = within < need[cell]
        is_accepted = accepted & in_time
        new = jnp.zeros_like(need).at[cell].add(is_accepted)
        if need.shape[0] == 1:
            new = jnp.sum(is_accepted, dtype=need.dtype)[None]
        lost = standing.lost
        if self.caps is not None:
            lost = lost.at[cell].add(~accepted & in_time)
        rank = self.wanted[cell] - need[cell] + within
        return in_time, rank, Standing(standing.need - new, lost)

    def _open(self, standing: Standing) -> jax.Array:
        """What is needed by cells that have not given up."""
        if self.caps is None:
            return standing.need
        return jnp.where(standing.lost <= self.caps, standing.need, 0)


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

    def propose_block(number: jax.Array, turn: Shares) -> Proposed:
        return from_cells(jax.random.fold_in(key, number), turn.cell)

    done = propose_until(propose_block, Cells(wanted, caps, size), limit, collect, start)
    need, lost = done.standing
    return CellRun(done.collected, done.rejected, jnp.sum(need), lost)


def _share(need: jax.Array, size: int) -> Shares:
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

    accepted: jax.Array  # (K + 1, features + G)
    rejected: jax.Array  # (K + 1,)


def draw_rates(key: jax.Array, log_weights: jax.Array, proposals: jax.Array) -> jax.Array:
    """lambda_gk = u_g omega_gk with u_g ~ Gamma(n_g + |Y_g|, 1); ``proposals`` is (G,)."""
    u = jax.random.gamma(key, proposals.astype(float))
    return u[:, None] * jnp.exp(log_weights)


class Proposals(NamedTuple):
    """Everything that a run of Poisson(lambda_gk) proposals is made from: it can be run twice.

    The first time one sees what passes and counts what does not; the second time one keeps the
    rejections of the components that were accepted, the only ones that there must be room for.
    """

    key: jax.Array
    components: Components
    ends: jax.Array  # number of proposals up to the end of each cell (group, component)


def draw_numbers(key: jax.Array, components: Components, rates: jax.Array) -> Proposals:
    """Poisson numbers of proposals."""
    key_numbers, key_points = jax.random.split(key)
    # JAX's Poisson sampler insists on its own implementation of the same generator.
    plain = jax.random.wrap_key_data(jax.random.key_data(key_numbers), impl="threefry2x32")
    numbers = jax.random.poisson(plain, rates.reshape(-1), dtype=jnp.int32)
    return Proposals(key_points, components, jnp.cumsum(numbers))


def run_poisson(
    layout: MixtureLayout,
    proposals: Proposals,
    passes: Filter,
    data: MixtureData,
    collect: Callable[[Any, Proposed, jax.Array, jax.Array], Any],
    start: Any,
    wanted: jax.Array | None = None,
) -> Any:
    """Fold ``collect(collected, proposed, group, real)`` over blocks of proposals.

    ``wanted`` (K,): blocks without proposals of these components are left out.
    """
    K, size_of_block, ends = layout.components, layout.buffer.block, proposals.ends

    def draw_block(block: jax.Array, collected: Any) -> Any:
        place = block * size_of_block + jnp.arange(size_of_block, dtype=jnp.int32)
        real = place < ends[-1]
        cell = jnp.searchsorted(ends, place, side="right", method="compare_all")
        cell = jnp.minimum(cell, ends.shape[0] - 1).astype(jnp.int32)
        label, group = cell % K, cell // K
        own_key = jax.random.fold_in(proposals.key, block)

        def draw() -> Any:
            proposed = propose(own_key, passes, proposals.components, label, group, data)
            return collect(collected, proposed, group, real)

        if wanted is None:
            return draw()
        return lax.cond(jnp.any(wanted[label] & real), draw, lambda: collected)

    return lax.fori_loop(0, -(-ends[-1] // size_of_block), draw_block, start)


def count_and_sum(
    layout: MixtureLayout, proposals: Proposals, passes: Filter, data: MixtureData
) -> PoissonRun:
    """The first run."""
    K = layout.components

    def collect(run: PoissonRun, proposed: Proposed, group: jax.Array, real: jax.Array) -> Any:
        phi = unit_features(layout, proposed.points.T, group)
        passed = jnp.where(real & proposed.accepted, proposed.label, K)
        lost = jnp.where(real & ~proposed.accepted, proposed.label, K)
        return PoissonRun(add_by_label(run.accepted, passed, phi), run.rejected.at[lost].add(1))

    nothing = jnp.zeros((K + 1, size(layout.d) + layout.groups))
    start = PoissonRun(nothing, jnp.zeros(K + 1, jnp.int32))
    return run_poisson(layout, proposals, passes, data, collect, start)


def with_fresh(
    layout: MixtureLayout,
    held: Rejected,
    proposals: Proposals,
    chosen: jax.Array,
    offset: jax.Array,
    passes: Filter,
    data: MixtureData,
) -> Rejected:
    """Rejections of the ``chosen`` components (K + 1,) from the run, of the others from ``held``.

    They are written to the section of the same buffer at ``offset``.
    """
    trash = offset + section_rows(layout.buffer, held) - 1

    def add(into: Rejected, keep: jax.Array, points: Any, owner: jax.Array) -> Rejected:
        row = jnp.where(keep, offset + into.count + exclusive_count(keep), trash)
        return into._replace(
            points=write_rows(into.points, row, points),
            owner=write_rows(into.owner, row, owner),
            count=into.count + jnp.sum(keep, dtype=jnp.int32),
        )

    def old(chunk: jax.Array, into: Rejected) -> Rejected:
        source = held._replace(points=into.points, owner=into.owner)
        part = rejected_chunk(layout, source, chunk)
        return add(into, part.real & ~chosen[part.label], (part.x.T, part.label), part.owner)

    def fresh(into: Rejected, proposed: Proposed, group: jax.Array, real: jax.Array) -> Rejected:
        keep = real & ~proposed.accepted & chosen[proposed.label]
        return add(into, keep, (proposed.points, proposed.label), group)

    into = held._replace(offset=offset, count=jnp.int32(0))
    into = lax.fori_loop(0, chunks_of(layout, held), old, into)
    return run_poisson(layout, proposals, passes, data, fresh, into, chosen)


def counts_of(layout: MixtureLayout, rejected: Rejected) -> tuple[jax.Array, jax.Array]:
    """Rejections of each component, (K,), and of each group, (G,)."""

    def one(chunk: jax.Array, counts: tuple) -> tuple:
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
    by_label, by_group = lax.fori_loop(0, chunks_of(layout, rejected), one, start)
    return by_label[:-1], by_group[:-1]
