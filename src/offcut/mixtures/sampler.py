r"""The sweep of a truncated Dirichlet process mixture: blocked Gibbs with rejections.

With the Dirichlet process on the latent weights (the paper's model):

1. rejections with their labels, given weights and components (Algorithm 1);
2. labels of the events, given the same;
3. splits and merges of all units, weights and components summed out;
4. weights given labels, components given their points, rejections among them.

With the process on the weights in the window (after Sudyanti & Rao 2018) the density is
sum_k omega_k N_k(x) / Z_k: rejections come component by component, as many runs as it has events,
and belong to these events; an event changes its label together with its rejections,
p(z_i = k) ∝ omega_k N_k(x_i) prod_{y in Y_i} N_k(y), which needs no Z.

The budget restricts the joint to |Y| <= B. Given Y the restriction says nothing about anything
else, so steps 2 to 4 are unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation.layout import (
    Rejected,
    capacity_of,
    empty_rejected,
    resized_rejected,
    spare_section,
)
from offcut.budget import MOST_ATTEMPTS
from offcut.errors import StartError
from offcut.mixtures.allocation import (
    add_rejected,
    allocate,
    event_chunk,
    label_coefficients,
    unit_features,
    with_own_rejections,
)
from offcut.mixtures.base import Components, draw_all
from offcut.mixtures.features import size
from offcut.mixtures.hierarchy import Hierarchy
from offcut.mixtures.layout import MixtureData, MixtureLayout
from offcut.mixtures.rejections import MixtureRun, run_latent, run_window
from offcut.mixtures.split_merge import split_merge
from offcut.mixtures.sticks import Sticks
from offcut.mixtures.units import Units
from offcut.mixtures.window import Window
from offcut.sampler import BROKEN, FULL, OK, Info, Sampler, Stage, Variable

#: A component with less of its mass in the window is a ghost.
GHOST_MASS = 0.01
#: Events that the start looks at.
FIRST_EVENTS = 5000


class MixtureState(NamedTuple):
    """Weights, components, labels of events (kept where rejections depend on them), the held Y
    (its count is -1 before there is one), log Z_k by window, and the frame: data were shifted and
    scaled by these.
    """

    weights: Any
    components: Components
    labels: jax.Array | None
    rejected: Rejected
    log_mass: jax.Array
    frame: tuple[jax.Array, jax.Array]


class MixtureSampler(Sampler):
    """Drives one mixture at one data shape."""

    draws_rejections = True
    redraws = True
    adapts = True  # only to know when warm-up is over: masses are not needed before

    def __init__(
        self,
        layout: MixtureLayout,
        window: Window,
        weights: Sticks | Hierarchy,
        prior: str,
        moves: int,
        scalar: bool,
    ) -> None:
        self.layout, self.window, self.weights = layout, window, weights
        self.in_window, self.moves, self.scalar = prior == "window", moves, scalar
        self.windows = layout.groups if window.by_group else 1
        self.kernel_name = f"BlockedGibbs(prior={prior!r}, split_merge={moves})"
        self._begin = jax.jit(self._first_draw)

    def start(self, key: jax.Array, data: MixtureData, budget: int) -> MixtureState:
        """Events divided among a random number of centres; no rejections yet."""
        layout = self.layout
        totals = first_totals(key, layout, data)
        weights, components, labels = self._begin(jax.random.fold_in(key, 1), totals, data)
        like = (
            jax.ShapeDtypeStruct((layout.d,), data.x.dtype),
            jax.ShapeDtypeStruct((), jnp.int32),
        )
        rejected = empty_rejected(layout.buffer, like, layout.buffer.capacity(layout.n))
        return MixtureState(
            weights,
            components,
            labels if self.in_window else None,
            rejected._replace(count=jnp.int32(-1)),
            jnp.zeros((self.windows, layout.components)),
            # Copies: the state is given away in every call, the data are not.
            (jnp.array(data.shift, copy=True), jnp.array(data.scale, copy=True)),
        )

    def _first_draw(self, key: jax.Array, totals: jax.Array, data: MixtureData) -> tuple:
        """Weights, components and labels given first totals."""
        layout, width = self.layout, size(self.layout.d)
        key_weights, key_components, key_labels = jax.random.split(key, 3)
        weights = self.weights.first(key_weights, totals[:, width:].T)
        components = draw_all(key_components, data.base, totals[:, :width])
        labels = None
        if self.in_window:
            w = label_coefficients(components, weights.log_weights, layout.groups)
            labels, _ = allocate(layout, key_labels, w, lambda c: event_chunk(layout, data, c))
        return weights, components, labels

    def step(
        self, key: jax.Array, state: MixtureState, stage: Stage, data: MixtureData
    ) -> tuple[MixtureState, Info]:
        """One sweep."""
        key_y, key_rest = jax.random.split(key)
        attempts, over, run = self._attempt(key_y, state, stage.budget, data)
        capacity = capacity_of(self.layout.buffer, state.rejected)
        full = ~over & (run.rejected.count > capacity)
        first = state.rejected.count < 0  # nothing is held yet
        status = jnp.where(full, FULL, jnp.where(over & first, BROKEN, OK))
        held = run.rejected._replace(
            offset=jnp.where(over | full, state.rejected.offset, run.rejected.offset),
            count=jnp.where(over | full, state.rejected.count, run.rejected.count),
        )
        state = state._replace(rejected=held)
        state, stats = lax.cond(
            status == OK,
            lambda: self._given_rejections(key_rest, state, stage, data),
            lambda: (state, self._no_stats(data)),
        )
        stats |= {"rejected": held.count, "attempts": attempts, "gave_up": over}
        return state, Info(stats, status, run.missing)

    def _attempt(
        self, key: jax.Array, state: MixtureState, budget: jax.Array, data: MixtureData
    ) -> tuple[jax.Array, jax.Array, MixtureRun]:
        """Draw Y until |Y| <= budget, MOST_ATTEMPTS times at the most."""
        layout = self.layout
        scratch = spare_section(layout.buffer, state.rejected, state.rejected)

        def once(attempt: jax.Array, buffer: Rejected) -> MixtureRun:
            own_key = jax.random.fold_in(key, attempt)
            if self.in_window:
                labels = state.labels
                assert labels is not None
                return run_window(
                    layout, own_key, self._passes, state.components, labels, data, buffer, budget
                )
            log_weights = state.weights.log_weights
            return run_latent(
                layout, own_key, self._passes, log_weights, state.components, data, buffer, budget
            )

        def again(carry: tuple) -> tuple:
            count, run, _ = carry
            run = once(count, run.rejected)
            return count + 1, run, run.rejected.count > budget

        start = (jnp.int32(0), MixtureRun(scratch, jnp.sum(data.counts)), jnp.array(True))
        count, run, over = lax.while_loop(
            lambda carry: carry[2] & (carry[0] < MOST_ATTEMPTS), again, start
        )
        return count, over, run

    def _passes(self, key: jax.Array, points: jax.Array, group: jax.Array) -> jax.Array:
        return self.window.passes(key, points[:, 0] if self.scalar else points, group)

    def _given_rejections(
        self, key: jax.Array, state: MixtureState, stage: Stage, data: MixtureData
    ) -> tuple[MixtureState, dict[str, jax.Array]]:
        """Labels, splits and merges, weights, components."""
        layout, K = self.layout, self.layout.components
        keys = jax.random.split(key, 5)
        w = label_coefficients(state.components, state.weights.log_weights, layout.groups)
        own = None
        if self.in_window:
            own = with_own_rejections(layout, data, state.rejected)
            labels, totals = allocate(layout, keys[0], w, lambda c: _rows(layout, own, c))
        else:
            labels, totals = allocate(layout, keys[0], w, lambda c: event_chunk(layout, data, c))
            totals = add_rejected(layout, totals, state.rejected)
        moved = split_merge(
            layout,
            keys[1],
            self.moves,
            Units(labels, state.rejected, own),
            totals,
            lambda counts: self.weights.log_labels(state.weights, counts),
            data,
        )
        width = size(layout.d)
        totals = moved.totals[:K]
        weights, order = self.weights.update(keys[2], state.weights, totals[:, width:].T)
        components = draw_all(keys[3], data.base, totals[order, :width])
        # Where Y is kept because a sweep gives up, its labels must mean what they meant.
        new_name = jnp.zeros(K + 1, jnp.int32).at[order].set(jnp.arange(K, dtype=jnp.int32))
        new_name = new_name.at[K].set(K)
        labels = new_name[moved.units.labels]
        points, rejected_labels = moved.units.rejected.points
        rejected = moved.units.rejected._replace(points=(points, new_name[rejected_labels]))
        log_mass = lax.cond(
            stage.adapting,
            lambda: jnp.zeros((self.windows, K)),
            lambda: self.log_masses(keys[4], components, weights.log_weights, data),
        )
        kept_labels = labels if self.in_window else None
        state = MixtureState(weights, components, kept_labels, rejected, log_mass, state.frame)
        counts = jnp.zeros(K + 1, jnp.int32).at[labels].add(1)[:K]
        stats = {
            "occupied": jnp.sum(counts > 0, dtype=jnp.int32),
            "splits": moved.splits,
            "merges": moved.merges,
            "ghost_share": self._ghost_share(state),
            "log_density": self._log_density(state, data),
        }
        return state, stats

    def _no_stats(self, data: MixtureData) -> dict[str, jax.Array]:
        none = jnp.int32(0)
        return {
            "occupied": none,
            "splits": none,
            "merges": none,
            "ghost_share": jnp.zeros(()),
            "log_density": jnp.zeros(data.probes.shape[0]),
        }

    def log_masses(
        self, key: jax.Array, components: Components, log_weights: jax.Array, data: MixtureData
    ) -> jax.Array:
        """log Z_k by window, (windows, K)."""
        heaviest = jnp.max(log_weights, axis=0)
        return jnp.stack(
            [
                self.window.log_masses(
                    key, components, heaviest, group, data.shift, data.scale, self.scalar
                )
                for group in range(self.windows)
            ]
        )

    def density_terms(self, state: MixtureState) -> jax.Array:
        """log c with density in the window sum_k c_gk N_k(x): (G, K), or (1, K) for all groups."""
        log_weights = state.weights.log_weights
        if self.in_window:
            return log_weights - state.log_mass
        within = jax.nn.logsumexp(log_weights + state.log_mass, axis=1, keepdims=True)
        return log_weights - within

    def window_weights(self, state: MixtureState) -> jax.Array:
        """Shares of the components among what passes."""
        return jnp.exp(self.density_terms(state) + state.log_mass)

    def latent_weights(self, state: MixtureState) -> jax.Array:
        """Shares of the components before the filter.

        With the process on window weights, of the components that hold events: one that holds
        none and has no mass in the window could have any latent weight.
        """
        if not self.in_window:
            return jnp.exp(state.weights.log_weights)
        log_latent = self.density_terms(state)
        occupied = jnp.zeros(self.layout.components + 1, bool).at[state.labels].set(True)[:-1]
        return jax.nn.softmax(jnp.where(occupied[None, :], log_latent, -jnp.inf), axis=1)

    def _ghost_share(self, state: MixtureState) -> jax.Array:
        """Latent weight of components with next to nothing in any window."""
        ghost = jnp.all(state.log_mass < np.log(GHOST_MASS), axis=0)
        weights = self.latent_weights(state)
        return jnp.max(jnp.sum(jnp.where(ghost[None, :], weights, 0.0), axis=1))

    def _log_density(self, state: MixtureState, data: MixtureData) -> jax.Array:
        """log density in the window at the probes."""
        layout = self.layout
        w = label_coefficients(state.components, self.density_terms(state), layout.groups)
        phi = unit_features(layout, data.x[:, data.probes], data.group[data.probes])
        return jax.nn.logsumexp(w @ phi, axis=0) - jnp.sum(jnp.log(data.scale))

    def record(self, state: MixtureState) -> dict[str, jax.Array]:
        """Weights before the filter and in the window, means and covariances, as measured."""
        shift, scale = state.frame
        roots = state.components.roots * scale[None, :, None]
        latent, within = self.latent_weights(state), self.window_weights(state)
        passing = jnp.sum(latent * jnp.exp(state.log_mass), axis=1)
        return {
            "weights": _one_if_alone(latent),
            "window_weights": _one_if_alone(within),
            "means": state.components.means * scale[None, :] + shift[None, :],
            "covariances": jnp.einsum("kij,klj->kil", roots, roots),
            "window_share": _one_if_alone(passing),
            "window_mass": _one_if_alone(jnp.exp(state.log_mass)),
            **self.weights.record(state.weights),
        }

    def variables(self) -> dict[str, Variable]:
        """Components change places; densities and shares do not."""
        return {
            "weights": Variable(("group", "component"), exchangeable=True),
            "window_weights": Variable(("group", "component"), exchangeable=True),
            "shared_weights": Variable(("component",), exchangeable=True),
            "means": Variable(("component", "channel"), exchangeable=True),
            "covariances": Variable(("component", "channel", "channel_other"), exchangeable=True),
            "window_share": Variable(("group",)),
            "window_mass": Variable(("group", "component"), exchangeable=True),
            "log_density": Variable(("probe",), diagnosed=True),
            "occupied": Variable((), diagnosed=True),
        }

    def capacity(self, state: MixtureState) -> int:
        """Room for rejections."""
        return capacity_of(self.layout.buffer, state.rejected)

    def resized(self, state: MixtureState, capacity: int) -> MixtureState:
        """The same state with room for more rejections."""
        rejected = resized_rejected(self.layout.buffer, state.rejected, capacity)
        return state._replace(rejected=rejected)

    def row_bytes(self, state: MixtureState) -> int:
        """Coordinates, label and owner, in both sections."""
        return 2 * (8 * self.layout.d + 8)

    def rejected(self, state: MixtureState) -> int:
        """|Y| held."""
        return max(int(state.rejected.count), 0)

    def explain(self, state: MixtureState, evidence: Any) -> Exception:
        """Nothing was ever held, and no attempt stayed within the budget."""
        return StartError(
            f"the first {MOST_ATTEMPTS} attempts to draw rejections all exceeded the budget, with "
            f"{int(evidence):,} of {self.layout.n:,} acceptances still missing in the last. The "
            "components propose almost nothing that passes: is the window on the scale of the "
            "data? Raise the budget, or give a tighter base"
        )


def _rows(layout: MixtureLayout, own: jax.Array, chunk: jax.Array) -> jax.Array:
    return lax.dynamic_slice_in_dim(own, chunk * layout.chunk, layout.chunk).T


def _one_if_alone(by_group: jax.Array) -> jax.Array:
    """Without the axis of groups where all share."""
    return by_group[0] if by_group.shape[0] == 1 else by_group


def first_totals(key: jax.Array, layout: MixtureLayout, data: MixtureData) -> jax.Array:
    """Totals by component after events were given to the nearest of a few random ones.

    How few is random, from 1 to K, each order of magnitude as likely: chains start apart.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    rows = np.sort(rng.choice(layout.n, min(layout.n, FIRST_EVENTS), replace=False))
    x, group = np.asarray(data.x)[:, rows], np.asarray(data.group)[rows]
    most = min(layout.components, len(rows))
    centres = x[:, rng.choice(len(rows), int(np.exp(rng.uniform(0, np.log(most + 1)))), False)]
    distance = ((x[:, :, None] - centres[:, None, :]) ** 2).sum(0)
    nearest = distance.argmin(1)
    phi = np.asarray(unit_features(layout, jnp.asarray(x), jnp.asarray(group)))
    return jnp.stack([jnp.asarray(phi[:, nearest == k].sum(1)) for k in range(layout.components)])
