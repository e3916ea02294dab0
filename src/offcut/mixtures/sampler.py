"""What the two sweeps of a truncated mixture share: see ``latent`` and ``in_window``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation.rejections import MOST_ATTEMPTS, Redrawn, redraw
from offcut.base import Sampler, Stage, Variable
from offcut.errors import StartError
from offcut.mixtures.allocation import label_coefficients, unit_features
from offcut.mixtures.data import MixtureData, MixtureLayout
from offcut.mixtures.rejections import CellRun
from offcut.mixtures.split_merge import Units, split_merge
from offcut.mixtures.weights import Hierarchy, Sticks
from offcut.mixtures.window import Window
from offcut.mixtures.window_mass import Masses, anchors
from offcut.numerics.normal import Components, draw_all, size

#: A component with less of its mass in the window is a ghost.
GHOST_MASS = 0.01
#: Events that the start looks at.
FIRST_EVENTS = 5000


class GivenLabels(NamedTuple):
    """What a sweep draws once labels and rejections are there.

    units : after splits and merges, labels as before the last reordering. new_name : of each label.
    """

    units: Units
    weights: Any
    components: Components
    masses: Masses  # by window
    new_name: jax.Array


class MixtureSampler(Sampler):
    """Drives one mixture at one data shape; a subclass has the states and the step.

    States have ``weights``, ``components``, ``log_mass`` (log Z_k by window) and ``frame`` (data
    were shifted and scaled by these).
    """

    method = "augment"
    draws_rejections = True
    redraws = True
    adapts = True  # only to know when warm-up is over: masses are not needed before
    process_on: ClassVar[str]  # the weights of all, or those in the window

    def __init__(
        self,
        layout: MixtureLayout,
        window: Window,
        weights: Sticks | Hierarchy,
        moves: int,
        reshapes: bool,
        scalar: bool,
    ) -> None:
        self.layout, self.weights = layout, weights
        self.window = window.for_groups(layout.group_names)
        self.moves, self.reshapes, self.scalar = moves, reshapes, scalar
        self.windows = layout.groups if window.by_group else 1
        self.kernel_name = (
            f"BlockedGibbs(weights={self.process_on!r}, split_merge={moves}, reshape={reshapes})"
        )
        self._begin = jax.jit(self._first_draw)

    def start(self, key: jax.Array, data: MixtureData, budget: int) -> Any:
        """Events divided among a random number of centres; no rejections yet."""
        return self._begin(jax.random.fold_in(key, 1), first_totals(key, self.layout, data), data)

    def _first_draw(self, key: jax.Array, totals: jax.Array, data: MixtureData) -> Any:
        """Weights and components given first totals, and the rest of a state."""
        width = size(self.layout.d)
        key_weights, key_components, key_rest = jax.random.split(key, 3)
        common = {
            "weights": self.weights.first(key_weights, totals[:, width:].T),
            "components": draw_all(key_components, data.base, totals[:, :width]),
            "log_mass": jnp.zeros((self.windows, self.layout.components)),
            # Copies: the state is given away in every call, the data are not.
            "frame": (jnp.array(data.shift, copy=True), jnp.array(data.scale, copy=True)),
        }
        return self.first_state(key_rest, data, common)

    def first_state(self, key: jax.Array, data: MixtureData, common: dict[str, Any]) -> Any:
        """A state with ``common`` in it and no rejections yet."""
        raise NotImplementedError

    def density_terms(self, state: Any) -> jax.Array:
        """log c with density in the window sum_k c_gk N_k(x): (G, K), or (1, K) for all groups."""
        raise NotImplementedError

    def latent_weights(self, state: Any) -> jax.Array:
        """Shares of the components before the filter, (G, K) or (1, K)."""
        raise NotImplementedError

    def redraw(
        self,
        key: jax.Array,
        budget: jax.Array,
        start: CellRun,
        run: Callable[[jax.Array, CellRun], CellRun],
    ) -> Redrawn:
        """Draw Y until |Y| <= budget; ``run(key, last)`` is one attempt, given the last one."""

        def attempt(number: jax.Array, last: CellRun) -> tuple[CellRun, jax.Array]:
            drawn = run(jax.random.fold_in(key, number), last)
            return drawn, drawn.count > budget

        return redraw(attempt, start, MOST_ATTEMPTS)

    def passes(self, key: jax.Array, points: jax.Array, group: jax.Array) -> jax.Array:
        """Which proposals, as measured, are accepted."""
        return self.window.passes(key, points[:, 0] if self.scalar else points, group)

    def given_labels(
        self,
        key: jax.Array,
        state: Any,
        units: Units,
        totals: jax.Array,
        stage: Stage,
        data: MixtureData,
    ) -> tuple[GivenLabels, dict[str, jax.Array]]:
        """Splits and merges, weights, components and their masses."""
        layout, K, width = self.layout, self.layout.components, size(self.layout.d)
        keys = jax.random.split(key, 4)
        moved = split_merge(
            layout,
            keys[0],
            self.moves,
            units,
            totals,
            lambda counts: self.weights.log_labels(state.weights, counts),
            data,
        )
        totals = moved.totals[:K]
        weights, order = self.weights.update(keys[1], state.weights, totals[:, width:].T)
        components = draw_all(keys[2], data.base, totals[order, :width])
        new_name = jnp.full(K + 1, K, jnp.int32).at[order].set(jnp.arange(K, dtype=jnp.int32))
        masses = lax.cond(
            stage.adapting,
            lambda: Masses(jnp.zeros((self.windows, K)), jnp.zeros((self.windows, K))),
            lambda: self.log_masses(keys[3], components, weights.log_weights, data),
        )
        counts = jnp.zeros(K + 1, jnp.int32).at[moved.units.labels].add(1)[:K]
        stats = {
            "occupied": jnp.sum(counts > 0, dtype=jnp.int32),
            "splits": moved.splits,
            "merges": moved.merges,
        }
        return GivenLabels(moved.units, weights, components, masses, new_name), stats

    def no_stats(self, data: MixtureData) -> dict[str, jax.Array]:
        """Statistics of a step that was not made."""
        none = jnp.int32(0)
        return {
            "occupied": none,
            "splits": none,
            "merges": none,
            "ghost_share": jnp.zeros(()),
            "window_mass_error": jnp.zeros(()),
            "unresolved_weight": jnp.zeros(()),
            "log_density": jnp.zeros(data.probes.shape[0]),
        }

    def log_masses(
        self, key: jax.Array, components: Components, log_weights: jax.Array, data: MixtureData
    ) -> Masses:
        """By window, (windows, K)."""
        heaviest = jnp.max(log_weights, axis=0)
        found = []
        for group in range(self.windows):
            events = anchors(data, group if self.window.by_group else None)
            frame = (data.shift, data.scale, self.scalar)
            found.append(self.window.log_masses(key, components, heaviest, group, *frame, events))
        return jax.tree.map(lambda *each: jnp.stack(each), *found)

    def rough_masses(self, components: Components, data: MixtureData) -> jax.Array:
        """log Z_k by window from few fixed points: good enough to propose with."""
        return jnp.stack(
            [
                self.window.rough_masses(components, group, data.shift, data.scale, self.scalar)
                for group in range(self.windows)
            ]
        )

    def window_weights(self, state: Any) -> jax.Array:
        """Shares of the components among what passes."""
        return jnp.exp(self.density_terms(state) + state.log_mass)

    def density_stats(
        self, state: Any, mass_error: jax.Array, data: MixtureData
    ) -> dict[str, jax.Array]:
        """Latent weight of ghosts, and log density in the window at the probes; by how much the
        latter may fail to integrate to one, and the weight of components that are not in it.
        """
        layout = self.layout
        ghost = jnp.all(state.log_mass < np.log(GHOST_MASS), axis=0)
        weights = self.latent_weights(state)
        w = label_coefficients(state.components, self.density_terms(state), layout.groups)
        phi = unit_features(layout, data.x[:, data.probes], data.group[data.probes])
        log_density = jax.nn.logsumexp(w @ phi, axis=0) - jnp.sum(jnp.log(data.scale))
        return {
            "ghost_share": jnp.max(jnp.sum(jnp.where(ghost[None, :], weights, 0.0), axis=1)),
            "log_density": log_density,
            "window_mass_error": jnp.max(
                jnp.sqrt(jnp.sum((self.window_weights(state) * mass_error) ** 2, axis=1))
            ),
            "unresolved_weight": jnp.max(
                jnp.sum(jnp.exp(state.weights.log_weights) * jnp.isneginf(state.log_mass), axis=1)
            ),
        }

    def record(self, state: Any) -> dict[str, jax.Array]:
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

    def explain(self, state: Any, evidence: Any) -> Exception:
        """Nothing was ever held, and no attempt stayed within the budget."""
        return StartError(
            f"the first {MOST_ATTEMPTS} attempts to draw rejections all exceeded the budget, with "
            f"{int(evidence):,} acceptances still missing in the last. The "
            "components propose almost nothing that passes: is the window on the scale of the "
            "data? Raise the budget, or give a tighter base"
        )


def _one_if_alone(by_group: jax.Array) -> jax.Array:
    """Without the axis of groups where all share."""
    return by_group[0] if by_group.shape[0] == 1 else by_group


def first_totals(key: jax.Array, layout: MixtureLayout, data: MixtureData) -> jax.Array:
    """Totals by component after events were given to the nearest of a few random ones.

    How few is random, from 1 to K, each order of magnitude as likely: chains start apart.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    n = int(data.n)
    rows = np.sort(rng.choice(n, min(n, FIRST_EVENTS), replace=False))
    x, group = np.asarray(data.x)[:, rows], np.asarray(data.group)[rows]
    most = min(layout.components, len(rows))
    centres = x[:, rng.choice(len(rows), int(np.exp(rng.uniform(0, np.log(most + 1)))), False)]
    distance = ((x[:, :, None] - centres[:, None, :]) ** 2).sum(0)
    nearest = distance.argmin(1)
    phi = np.asarray(unit_features(layout, jnp.asarray(x), jnp.asarray(group)))
    return jnp.stack([jnp.asarray(phi[:, nearest == k].sum(1)) for k in range(layout.components)])
