r"""The sweep with the Dirichlet process on the weights in the window (after Sudyanti & Rao 2018).

The density is sum_k omega_k N_k(x) / Z_k. Each component proposes until it has accepted as many as
it has events; what is rejected on the way to the j-th acceptance belongs to the j-th event, and
stays with it. Y_i is kept as the sum of its features, added to those of x_i.

1. Components move by exchange, Y summed out (see ``exchange_moves``): this goes as far where nearly
   all of a component is cut off as where nothing is.
2. Rejections given labels and components.
3. Labels: p(z_i = k) ∝ omega_k N_k(x_i) prod_{y in Y_i} N_k(y), which needs no Z.
4. Splits and merges of events with their rejections, weights and components summed out.
5. Weights given labels; components given events and rejections.

The budget restricts the joint to |Y| <= B; step 1 refuses what exceeds it, step 2 redraws, and the
others hold Y fixed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from offcut.augmentation.algorithm1 import Block
from offcut.augmentation.rejections import outcome, settle
from offcut.base import MOST_REJECTED, OK, Info, Stage, Stats
from offcut.mixtures.allocation import (
    all_events,
    allocate,
    event_chunk,
    label_coefficients,
    rows_of,
)
from offcut.mixtures.data import MixtureData
from offcut.mixtures.exchange_moves import accept_in_turn, log_ratio_of, no_growth, propose_shapes
from offcut.mixtures.rejections import CellRun, Proposed, not_begun, run_cells
from offcut.mixtures.sampler import Mixture, MixtureSampler
from offcut.mixtures.split_merge import Units
from offcut.numerics.normal import Components, features, size
from offcut.numerics.types import KeyArray

#: A component's exchange run may reject so many for each of its events, and so many at least.
CAP_FOR_EACH, CAP_AT_LEAST = 20, 1000


class WindowState(NamedTuple):
    """The mixture, labels, features of events with their rejections, |Y| (-1 before a first)."""

    mixture: Mixture
    labels: Int[Array, " rows"]
    own: Float[Array, "rows F"]
    count: Int[Array, ""]  # type: ignore[assignment] # not the method of tuple


class Cells(NamedTuple):
    """Cell (group, component) of each event, events in each cell, events in order of cells."""

    cell: Int[Array, " rows"]
    counts: Int[Array, " cells"]
    order: Int[Array, " rows"]


class Collected(NamedTuple):
    """Features of events with their rejections, and totals of what each component accepted."""

    own: Float[Array, "rows F"]
    accepted: Float[Array, "labels f"]


class WindowSampler(MixtureSampler[WindowState]):
    """Blocked Gibbs with rejections that belong to events, and exchange moves."""

    process_on = "window"

    def first_state(self, key: KeyArray, mixture: Mixture, data: MixtureData) -> WindowState:
        """Labels given weights and components; no rejections yet."""
        layout = self.layout
        w = label_coefficients(mixture.components, mixture.weights.log_weights, layout.groups)
        labels, _ = allocate(layout, key, w, data.n, lambda c: event_chunk(layout, data, c))
        own = all_events(layout, data)
        return WindowState(mixture, labels, own, jnp.int32(-1))

    def step(
        self, key: KeyArray, state: WindowState, stage: Stage, data: MixtureData
    ) -> tuple[WindowState, Info]:
        key_shape, key_y, key_rest = jax.random.split(key, 3)
        known = state.count >= 0
        events = all_events(self.layout, data)
        cells = self._cells(state.labels, data)
        reshaped = jnp.zeros(())
        if self.reshapes:
            state, reshaped = self._reshape(key_shape, state, events, cells, stage, data)
        mixture = state.mixture
        attempts, run, over = self.redraw(
            key_y,
            stage.budget,
            not_begun(self._nothing(events), cells.counts),
            lambda key, _: self.run(key, mixture.components, events, cells, stage.budget, data),
        )
        status = outcome(over, full=False, known=known)
        own, held = settle(~over, (run.collected.own, run.count), (state.own, state.count))
        state = state._replace(own=own, count=held)
        state, stats, mass_error = lax.cond(
            status == OK,
            lambda: self._given_rejections(key_rest, state, stage, data),
            lambda: self.not_moved(state),
        )
        stats |= self.density_stats(state, mass_error, data)
        stats |= {"rejected": held, "attempts": attempts, "gave_up": over, "reshaped": reshaped}
        return state, Info(stats, status, run.missing)

    def _cells(self, labels: Int[Array, " rows"], data: MixtureData) -> Cells:
        """Cells are components in groups."""
        K, cells = self.layout.components, self.layout.groups * self.layout.components
        real = jnp.arange(labels.shape[0]) < data.n
        cell = jnp.where(real, data.group * K + labels, cells)
        counts = jnp.zeros(cells + 1, jnp.int32).at[cell].add(1)[:-1]
        # One sort of numbers: a stable argsort takes five times as long.
        rows = self.layout.rows
        ordered = jnp.sort(cell.astype(jnp.int64) * rows + jnp.arange(rows))
        return Cells(cell, counts, (ordered % rows).astype(jnp.int32))

    def run(
        self,
        key: KeyArray,
        components: Components,
        events: Float[Array, "rows F"],
        cells: Cells,
        limit: Int[Array, ""],
        data: MixtureData,
        caps: Int[Array, " cells"] | None = None,
    ) -> CellRun:
        """Each component proposes until it has accepted as many as it has events, by group."""
        layout, K = self.layout, self.layout.components
        counts, order = cells.counts, cells.order
        starts = jnp.cumsum(counts) - counts
        width, propose = size(layout.d), self.proposer(components, data)

        def from_cells(key: KeyArray, cell: Int[Array, " m"]) -> Proposed:
            label = (cell % K).astype(jnp.int32)
            return propose(key, label, cell // K)

        def collect(collected: Collected, block: Block) -> Collected:
            phi = features(block.proposed.points.T).T
            owner = order[jnp.minimum(starts[block.turn.cell] + block.rank, layout.rows - 1)]
            owner = jnp.where(block.rejected, owner, events.shape[0])
            label = jnp.where(block.accepted, block.proposed.label, K)
            return Collected(
                collected.own.at[owner, :width].add(phi, mode="drop"),
                collected.accepted.at[label].add(phi),
            )

        limit, start = limit.astype(jnp.int32), self._nothing(events)
        return run_cells(layout.buffer.block, key, from_cells, counts, limit, collect, start, caps)

    def _reshape(
        self,
        key: KeyArray,
        state: WindowState,
        events: Float[Array, "rows F"],
        cells: Cells,
        stage: Stage,
        data: MixtureData,
    ) -> tuple[WindowState, Float[Array, ""]]:
        """Exchange moves of all components at once; the share that was accepted.

        A proposal may have next to no mass in the window, so each cell's run is capped. A
        component moves only where its rejections are within its caps both before and after: the
        same rule in both directions, and one that no other component has a part in.
        """
        K, width = self.layout.components, size(self.layout.d)
        key_propose, key_run, key_accept = jax.random.split(key, 3)
        labels, components = state.labels, state.mixture.components
        totals = jnp.zeros((K + 1, width)).at[labels].add(events[:, :width])[:K]
        occupied = totals[:, -1] > 0
        shapes = propose_shapes(key_propose, components, totals, data.base)
        caps = CAP_FOR_EACH * cells.counts + CAP_AT_LEAST
        no_limit = jnp.int32(MOST_REJECTED)
        run = self.run(key_run, shapes.components, events, cells, no_limit, data, caps)
        assert run.lost is not None
        lost = state.own[:, width - 1] - events[:, width - 1]
        held = jnp.zeros(caps.shape[0] + 1).at[cells.cell].add(lost)[:-1]
        within = (run.lost <= caps) & (held <= caps)
        by_component = (self.layout.groups, K)
        allowed = occupied & jnp.all(within.reshape(by_component), axis=0) & (state.count >= 0)
        log_ratio = log_ratio_of(shapes, totals - run.collected.accepted[:K])
        accepted = accept_in_turn(
            key_accept,
            jnp.where(allowed, log_ratio, -jnp.inf),
            jnp.sum(held.reshape(by_component), axis=0),
            jnp.sum(run.lost.reshape(by_component), axis=0),
            stage.budget,
            no_growth(K),
        )
        chosen = Components(
            jnp.where(accepted[:, None], shapes.components.means, components.means),
            jnp.where(accepted[:, None, None], shapes.components.roots, components.roots),
        )
        # An accepted component brings its rejections along: the pair is what was proposed.
        moved = jnp.append(accepted, False)[labels]
        own = jnp.where(moved[:, None], run.collected.own, state.own)
        count = jnp.sum(own[:, width - 1] - events[:, width - 1])
        count = jnp.where(state.count < 0, state.count, count.astype(jnp.int32))
        share = jnp.sum(accepted) / jnp.maximum(jnp.sum(occupied), 1)
        mixture = state.mixture._replace(components=chosen)
        return state._replace(mixture=mixture, own=own, count=count), share

    def _nothing(self, events: Float[Array, "rows F"]) -> Collected:
        """Events without rejections, and nothing accepted."""
        accepted = jnp.zeros((self.layout.components + 1, size(self.layout.d)))
        return Collected(events, accepted)

    def _given_rejections(
        self, key: KeyArray, state: WindowState, stage: Stage, data: MixtureData
    ) -> tuple[WindowState, Stats, Float[Array, "windows K"]]:
        """Labels, splits and merges, weights, components."""
        layout, mixture = self.layout, state.mixture
        key_labels, key_rest = jax.random.split(key)
        w = label_coefficients(mixture.components, mixture.weights.log_weights, layout.groups)
        labels, totals = allocate(
            layout, key_labels, w, data.n, lambda chunk: rows_of(layout, state.own, chunk)
        )
        units = Units(labels, None, state.own)
        return self.given_labels(key_rest, state, units, totals, stage, data)

    def moved(
        self, state: WindowState, mixture: Mixture, units: Units, new_name: Int[Array, " labels"]
    ) -> WindowState:
        return state._replace(mixture=mixture, labels=new_name[units.labels])

    def density_terms(self, mixture: Mixture) -> Float[Array, "R K"]:
        log_weights, unknown = mixture.weights.log_weights, jnp.isneginf(mixture.log_mass)
        known = jnp.where(unknown, -jnp.inf, log_weights)
        left = jax.nn.logsumexp(known, axis=1, keepdims=True)
        raised = known - jnp.where(jnp.any(unknown, axis=1, keepdims=True), left, 0.0)
        return jnp.where(unknown, -jnp.inf, raised - mixture.log_mass)

    def latent_weights(self, state: WindowState) -> Float[Array, "R K"]:
        """Shares before the filter, of the components that hold events.

        One that holds none and has no mass in the window could have any latent weight.
        """
        occupied = jnp.zeros(self.layout.components + 1, bool).at[state.labels].set(True)[:-1]
        log_latent = jnp.where(occupied[None, :], self.density_terms(state.mixture), -jnp.inf)
        return jax.nn.softmax(log_latent, axis=1)

    def rejected(self, state: WindowState) -> int:
        return max(int(state.count), 0)
