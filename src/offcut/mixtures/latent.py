r"""The sweep with the Dirichlet process on the weights before the filter: the paper's model.

1. Rejections with their labels, given weights and components: each group proposes from its mixture
   until it has accepted as many as it has events (Algorithm 1).
2. Labels of the events, given the same.
3. Components with their rejections move by exchange (see ``rejections`` and ``exchange_moves``):
   this goes as far where nearly all of a component is cut off as where nothing is.
4. Splits and merges of all units, weights and components summed out.
5. Weights given labels; components given their points, rejections among them.

The budget restricts the joint to |Y| <= B: step 1 redraws and step 3 refuses what exceeds it. Given
Y the restriction says nothing about anything else, so the other steps are unchanged.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.algorithm1 import Block
from offcut.augmentation.rejections import (
    Rejected,
    capacity_of,
    empty_rejected,
    outcome,
    resized_rejected,
    section_rows,
    settle,
    spare_section,
)
from offcut.base import FULL, OK, Info, Stage, Stats
from offcut.mixtures.allocation import add_rejected, allocate, event_chunk, label_coefficients
from offcut.mixtures.data import MixtureData
from offcut.mixtures.exchange_moves import (
    Growth,
    accept_in_turn,
    log_ratio_of,
    propose_shapes,
)
from offcut.mixtures.rejections import (
    CellRun,
    Proposed,
    count_and_sum,
    counts_of,
    draw_numbers,
    draw_rates,
    not_begun,
    run_cells,
    with_fresh,
)
from offcut.mixtures.sampler import Mixture, MixtureSampler
from offcut.mixtures.split_merge import Units
from offcut.mixtures.weights import Sticks
from offcut.numerics.arrays import write_rows
from offcut.numerics.normal import Components, size
from offcut.numerics.types import KeyArray

#: log r stays within these.
MOST_GROWTH = 3.0


class LatentState(NamedTuple):
    """The mixture, and the held Y (count -1 before there is one)."""

    mixture: Mixture
    rejected: Rejected


class LatentSampler(MixtureSampler[LatentState]):
    """Blocked Gibbs with labelled rejections."""

    process_on = "latent"

    def first_state(self, key: KeyArray, mixture: Mixture, data: MixtureData) -> LatentState:
        layout = self.layout
        like = (
            jax.ShapeDtypeStruct((layout.d,), data.x.dtype),
            jax.ShapeDtypeStruct((), jnp.int32),
        )
        rejected = empty_rejected(layout.buffer, like, layout.buffer.capacity(layout.rows))
        return LatentState(mixture, rejected._replace(count=jnp.int32(-1)))

    def step(
        self, key: KeyArray, state: LatentState, stage: Stage, data: MixtureData
    ) -> tuple[LatentState, Info]:
        key_y, key_labels, key_shape, key_rest = jax.random.split(key, 4)
        before, layout, mixture = state.rejected, self.layout, state.mixture
        # Y is drawn into the section that is not in use.
        attempts, run, over = self.redraw(
            key_y,
            stage.budget,
            not_begun(spare_section(layout.buffer, before, before), data.counts),
            lambda key, last: self.run(key, mixture, last.collected, stage.budget, data),
        )
        full = run.count > capacity_of(layout.buffer, before)
        status = outcome(over, full, known=before.count >= 0)
        held = settle(~over, run.collected._replace(count=run.count), before)
        drawn = held.count
        w = label_coefficients(mixture.components, mixture.weights.log_weights, layout.groups)
        labels, totals = allocate(
            layout, key_labels, w, data.n, lambda c: event_chunk(layout, data, c)
        )
        reshaped = jnp.zeros(())
        if self.reshapes:
            held, too_full, reshaped = self._reshape(
                key_shape, mixture, held, totals, status == OK, stage, data
            )
            status = jnp.where((status == OK) & too_full, FULL, status)
        state = state._replace(rejected=held)

        def given_rejections() -> tuple[LatentState, Stats, Float[Array, "windows K"]]:
            units, both = Units(labels, held, None), add_rejected(layout, totals, held)
            return self.given_labels(key_rest, state, units, both, stage, data)

        # Labels are changed in place, so that a step that failed must not get there.
        state, stats, mass_error = lax.cond(
            status == OK, given_rejections, lambda: self.not_moved(state)
        )
        stats |= self.density_stats(state, mass_error, data)
        stats |= {"rejected": drawn, "attempts": attempts, "gave_up": over, "reshaped": reshaped}
        return state, Info(stats, status, run.missing)

    def _reshape(
        self,
        key: KeyArray,
        mixture: Mixture,
        held: Rejected,
        totals: Float[Array, "labels F"],
        fine: Bool[Array, ""],
        stage: Stage,
        data: MixtureData,
    ) -> tuple[Rejected, Bool[Array, ""], Float[Array, ""]]:
        """Exchange moves of all components at once: rejections, whether there was too little room
        for them, and the share of moves accepted.

        The components that they lead to are forgotten: the sweep draws new ones given Y.
        """
        layout, K, width = self.layout, self.layout.components, size(self.layout.d)
        key_rate, key_propose, key_run, key_accept = jax.random.split(key, 4)
        own, log_weights = totals[:K, :width], mixture.weights.log_weights
        have, by_group = counts_of(layout, held)
        shapes = propose_shapes(key_propose, mixture.components, own, data.base)
        log_r = self._growth(mixture.components, shapes.components, data)
        rates = draw_rates(key_rate, log_weights + log_r, data.counts + by_group)
        proposals = draw_numbers(key_run, self.proposer(shapes.components, data), rates)
        run = count_and_sum(layout, proposals)
        fresh = run.rejected[:K]
        excess = totals[:K] - run.accepted[:K]
        by_row = excess[:, width:].T
        by_row = by_row if log_r.shape[0] > 1 else jnp.sum(by_row, axis=0, keepdims=True)
        log_ratio = log_ratio_of(shapes, excess[:, :width]) + jnp.sum(
            log_r * (by_row + 1.0), axis=0
        )
        growth = Growth(log_weights, log_r, partial(self.weights.log_measure, mixture.weights))
        accepted = accept_in_turn(key_accept, log_ratio, have, fresh, stage.budget, growth)
        total = jnp.sum(jnp.where(accepted, fresh, have))
        too_full = total > capacity_of(layout.buffer, held)
        # Nothing can fail from here on, so the section of the Y from before the step may go
        # (where the sweep gave up and that is the held Y, another is free).
        free = spare_section(layout.buffer, held, held).offset
        chosen = jnp.append(accepted, False)
        held = lax.cond(
            fine & ~too_full & jnp.any(accepted),
            lambda: with_fresh(layout, held, proposals, chosen, free),
            lambda: held,
        )
        occupied = own[:, -1] > 0
        share = jnp.sum(accepted & occupied) / jnp.maximum(jnp.sum(occupied), 1)
        return held, too_full, share

    def _growth(
        self, components: Components, proposed: Components, data: MixtureData
    ) -> Float[Array, "R K"]:
        """log r: by how much components should grow for as many to pass as before."""
        both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), components, proposed)
        before, after = jnp.split(self.rough_masses(both, data), 2, axis=1)
        log_r = jnp.clip(before - after, -MOST_GROWTH, MOST_GROWTH)
        if isinstance(self.weights, Sticks):
            return jnp.mean(log_r, axis=0, keepdims=True)
        return jnp.broadcast_to(log_r, (self.layout.groups, log_r.shape[1]))

    def run(
        self,
        key: KeyArray,
        mixture: Mixture,
        buffer: Rejected,
        limit: Int[Array, ""],
        data: MixtureData,
    ) -> CellRun:
        """Algorithm 1: each group proposes from its mixture; it owns what it rejects."""
        layout, K = self.layout, self.layout.components
        cumulative = jnp.cumsum(jnp.exp(mixture.weights.log_weights), axis=1)
        cumulative = jnp.broadcast_to(cumulative, (layout.groups, K))
        propose = self.proposer(mixture.components, data)

        def from_cells(key: KeyArray, group: Int[Array, " m"]) -> Proposed:
            key_label, key_point = jax.random.split(key)
            uniform = jax.random.uniform(key_label, group.shape)
            if layout.groups == 1:
                total = cumulative[0, -1]
                label = jnp.searchsorted(
                    cumulative[0], uniform * total, side="right", method="compare_all"
                )
            else:
                own = cumulative[group]
                label = jnp.sum(own <= (uniform * own[:, -1])[:, None], axis=1)
            label = jnp.minimum(label, K - 1).astype(jnp.int32)
            return propose(key_point, label, group)

        trash = buffer.offset + section_rows(layout.buffer, buffer) - 1

        def collect(buffer: Rejected, block: Block) -> Rejected:
            place = jnp.where(block.rejected, buffer.offset + block.place, trash)
            values = (block.proposed.points, block.proposed.label)
            return buffer._replace(
                points=write_rows(buffer.points, place, values),
                owner=write_rows(buffer.owner, place, block.turn.cell),
            )

        room = jnp.minimum(limit, capacity_of(layout.buffer, buffer)).astype(jnp.int32)
        return run_cells(layout.buffer.block, key, from_cells, data.counts, room, collect, buffer)

    def moved(
        self, state: LatentState, mixture: Mixture, units: Units, new_name: Int[Array, " labels"]
    ) -> LatentState:
        """Where Y is kept because a sweep gives up, its labels must mean what they meant."""
        assert units.rejected is not None
        points, labels = units.rejected.points
        return LatentState(mixture, units.rejected._replace(points=(points, new_name[labels])))

    def density_terms(self, mixture: Mixture) -> Float[Array, "R K"]:
        log_weights = mixture.weights.log_weights
        within = jax.nn.logsumexp(log_weights + mixture.log_mass, axis=1, keepdims=True)
        return jnp.where(jnp.isneginf(mixture.log_mass), -jnp.inf, log_weights - within)

    def latent_weights(self, state: LatentState) -> Float[Array, "R K"]:
        return jnp.exp(state.mixture.weights.log_weights)

    def capacity(self, state: LatentState) -> int:
        return capacity_of(self.layout.buffer, state.rejected)

    def resized(self, state: LatentState, capacity: int) -> LatentState:
        rejected = resized_rejected(self.layout.buffer, state.rejected, capacity)
        return state._replace(rejected=rejected)

    def row_bytes(self, state: LatentState) -> int:
        """Coordinates, label and owner, in every section."""
        return self.layout.buffer.sections * (8 * self.layout.d + 8)

    def rejected(self, state: LatentState) -> int:
        return max(int(state.rejected.count), 0)
