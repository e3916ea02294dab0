"""What the two sweeps of a truncated mixture share: see ``latent`` and ``in_window``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.rejections import MOST_ATTEMPTS, Redrawn, redraw
from offcut.base import Sampler, Stage, Stats, Variable
from offcut.errors import StartError
from offcut.mixtures.allocation import label_coefficients, unit_features
from offcut.mixtures.data import MixtureData, MixtureLayout, padded
from offcut.mixtures.rejections import CellRun, Propose, Proposed
from offcut.mixtures.split_merge import Units, split_merge
from offcut.mixtures.weights import Hierarchy, Sticks, WeightState
from offcut.mixtures.window import ScaledWindow, Window
from offcut.mixtures.window_mass import Masses, anchors
from offcut.numerics import keys
from offcut.numerics.normal import Components, draw_all, size
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program

#: A component with less of its mass in the window is a ghost.
GHOST_MASS = 0.01
#: Events that the start looks at.
FIRST_EVENTS = 5000


class Mixture(NamedTuple):
    """Weights, components, log Z_k by window, and what data were shifted and scaled by."""

    weights: WeightState
    components: Components
    log_mass: Float[Array, "windows K"]
    frame: tuple[Float[Array, " d"], Float[Array, " d"]]


@runtime_checkable
class MixtureState(Protocol):
    """A mixture, and rejections with what else a sweep leaves to the next."""

    @property
    def mixture(self) -> Mixture: ...


State = TypeVar("State", bound=MixtureState)


class MixtureSampler(Sampler, Generic[State]):
    """Drives one mixture at one data shape; a subclass has the states and the step."""

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
        self._begin = Program(self._first_draw, "start", quick=True)
        self._probability = Program(self.window.probability, "window")

    def probability_of(
        self, x: Float[np.ndarray, "n ..."], group: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Acceptance probability of events as measured, vectors or numbers."""
        rows = self.layout.rows
        return np.asarray(self._probability(padded(x, rows), padded(group, rows)))[: len(x)]

    def start(self, key: KeyArray, data: MixtureData, budget: int) -> State:
        """Events divided among a random number of centres; no rejections yet."""
        return self._begin(keys.fold_in(key, 1), first_totals(key, self.layout, data), data)

    def _first_draw(self, key: KeyArray, totals: Float[Array, "K F"], data: MixtureData) -> State:
        """Weights and components given first totals, and the rest of a state."""
        width = size(self.layout.d)
        key_weights, key_components, key_rest = jax.random.split(key, 3)
        mixture = Mixture(
            self.weights.first(key_weights, totals[:, width:].T),
            draw_all(key_components, data.base, totals[:, :width]),
            jnp.zeros((self.windows, self.layout.components)),
            # Copies: the state is given away in every call, the data are not.
            (jnp.array(data.shift, copy=True), jnp.array(data.scale, copy=True)),
        )
        return self.first_state(key_rest, mixture, data)

    def first_state(self, key: KeyArray, mixture: Mixture, data: MixtureData) -> State:
        """A state without rejections yet."""
        raise NotImplementedError

    def moved(
        self, state: State, mixture: Mixture, units: Units, new_name: Int[Array, " labels"]
    ) -> State:
        """The state after a sweep; units have new labels, and these new names."""
        raise NotImplementedError

    def density_terms(self, mixture: Mixture) -> Float[Array, "R K"]:
        """log c with density in the window sum_k c_gk N_k(x), for each group or for all."""
        raise NotImplementedError

    def latent_weights(self, state: State) -> Float[Array, "R K"]:
        """Shares of the components before the filter, in each group or in all."""
        raise NotImplementedError

    def redraw(
        self,
        key: KeyArray,
        budget: Int[Array, ""],
        start: CellRun,
        run: Callable[[KeyArray, CellRun], CellRun],
    ) -> Redrawn:
        """Draw Y until |Y| <= budget; ``run(key, last)`` is one attempt, given the last one."""

        def attempt(number: Int[Array, ""], last: CellRun) -> tuple[CellRun, Bool[Array, ""]]:
            drawn = run(jax.random.fold_in(key, number), last)
            return drawn, drawn.count > budget

        return redraw(attempt, start, MOST_ATTEMPTS)

    def proposer(self, components: Components, data: MixtureData) -> Propose:
        """How the components propose, and what of it their groups' windows let pass."""

        def propose(key: KeyArray, label: Int[Array, " m"], group: Int[Array, " m"]) -> Proposed:
            key_noise, key_accept = jax.random.split(key)
            noise = jax.random.normal(key_noise, (label.shape[0], components.means.shape[1]))
            roots = components.roots[label]
            points = components.means[label] + jnp.einsum("mij,mj->mi", roots, noise)
            measured = points * data.scale[None, :] + data.shift[None, :]
            measured = measured[:, 0] if self.scalar else measured
            accepted = self.window.passes(key_accept, measured, group)
            return Proposed(points, label, group, accepted)

        return propose

    def given_labels(
        self,
        key: KeyArray,
        state: State,
        units: Units,
        totals: Float[Array, "labels F"],
        stage: Stage,
        data: MixtureData,
    ) -> tuple[State, Stats, Float[Array, "windows K"]]:
        """Splits and merges, weights, components and their masses, given labels and rejections.

        Also returns statistics, and the relative errors of the masses.
        """
        layout, K, width = self.layout, self.layout.components, size(self.layout.d)
        key_moves, key_weights, key_components, key_masses = jax.random.split(key, 4)
        moved = split_merge(
            layout,
            key_moves,
            self.moves,
            units,
            totals,
            lambda counts: self.weights.log_labels(state.mixture.weights, counts),
            data,
        )
        totals = moved.totals[:K]
        weights, order = self.weights.update(
            key_weights, state.mixture.weights, totals[:, width:].T
        )
        components = draw_all(key_components, data.base, totals[order, :width])
        new_name = jnp.full(K + 1, K, jnp.int32).at[order].set(jnp.arange(K, dtype=jnp.int32))
        masses = lax.cond(
            stage.adapting,
            lambda: Masses(jnp.zeros((self.windows, K)), jnp.zeros((self.windows, K))),
            lambda: self.log_masses(key_masses, components, weights.log_weights, data),
        )
        counts = jnp.zeros(K + 1, jnp.int32).at[moved.units.labels].add(1)[:K]
        stats = {
            "occupied": jnp.sum(counts > 0, dtype=jnp.int32),
            "splits": moved.splits,
            "merges": moved.merges,
        }
        mixture = Mixture(weights, components, masses.log, state.mixture.frame)
        return self.moved(state, mixture, moved.units, new_name), stats, masses.error

    def not_moved(self, state: State) -> tuple[State, Stats, Float[Array, "windows K"]]:
        """The same of a step that is not made."""
        none = jnp.int32(0)
        stats = {"occupied": none, "splits": none, "merges": none}
        return state, stats, jnp.zeros_like(state.mixture.log_mass)

    def scaled_windows(self, data: MixtureData) -> list[ScaledWindow]:
        """One for all groups, or one for each."""
        frame = (data.shift, data.scale, self.scalar)
        return [ScaledWindow(self.window, group, *frame) for group in range(self.windows)]

    def log_masses(
        self,
        key: KeyArray,
        components: Components,
        log_weights: Float[Array, "R K"],
        data: MixtureData,
    ) -> Masses:
        """By window."""
        heaviest = jnp.max(log_weights, axis=0)
        found = []
        for one in self.scaled_windows(data):
            events = anchors(data, one.group if self.window.by_group else None)
            found.append(one.log_masses(key, components, heaviest, events))
        return jax.tree.map(lambda *each: jnp.stack(each), *found)

    def rough_masses(self, components: Components, data: MixtureData) -> Float[Array, "windows K"]:
        """log Z_k by window from few fixed points: good enough to propose with."""
        return jnp.stack([one.rough_masses(components) for one in self.scaled_windows(data)])

    def window_weights(self, mixture: Mixture) -> Float[Array, "R K"]:
        """Shares of the components among what passes."""
        return jnp.exp(self.density_terms(mixture) + mixture.log_mass)

    def density_stats(
        self, state: State, mass_error: Float[Array, "windows K"], data: MixtureData
    ) -> Stats:
        """Latent weight of ghosts, and log density in the window at the probes; by how much the
        latter may fail to integrate to one, and the weight of components that are not in it.

        Called where ``record`` is, outside of all branches: what both need is compiled once.
        """
        layout, mixture, log_weights = self.layout, state.mixture, state.mixture.weights.log_weights
        ghost = jnp.all(mixture.log_mass < np.log(GHOST_MASS), axis=0)
        weights = self.latent_weights(state)
        w = label_coefficients(mixture.components, self.density_terms(mixture), layout.groups)
        phi = unit_features(layout, data.x[:, data.probes], data.group[data.probes])
        log_density = jax.nn.logsumexp(w @ phi, axis=0) - jnp.sum(jnp.log(data.scale))
        return {
            "ghost_share": jnp.max(jnp.sum(jnp.where(ghost[None, :], weights, 0.0), axis=1)),
            "log_density": log_density,
            "window_mass_error": jnp.max(
                jnp.sqrt(jnp.sum((self.window_weights(mixture) * mass_error) ** 2, axis=1))
            ),
            "unresolved_weight": jnp.max(
                jnp.sum(jnp.exp(log_weights) * jnp.isneginf(mixture.log_mass), axis=1)
            ),
        }

    def record(self, state: State) -> dict[str, jax.Array]:
        """Weights before the filter and in the window, means and covariances, as measured."""
        mixture, (shift, scale) = state.mixture, state.mixture.frame
        roots = mixture.components.roots * scale[None, :, None]
        latent, within = self.latent_weights(state), self.window_weights(mixture)
        passing = jnp.sum(latent * jnp.exp(mixture.log_mass), axis=1)
        return {
            "weights": _one_if_alone(latent),
            "window_weights": _one_if_alone(within),
            "means": mixture.components.means * scale[None, :] + shift[None, :],
            "covariances": jnp.einsum("kij,klj->kil", roots, roots),
            "window_share": _one_if_alone(passing),
            "window_mass": _one_if_alone(jnp.exp(mixture.log_mass)),
            **self.weights.record(mixture.weights),
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

    def explain(self, state: State, evidence: Int[Array, ""]) -> Exception:
        """Nothing was ever held, and no attempt stayed within the budget."""
        return StartError(
            f"the first {MOST_ATTEMPTS} attempts to draw rejections all exceeded the budget, with "
            f"{int(evidence):,} acceptances still missing in the last. The "
            "components propose almost nothing that passes: is the window on the scale of the "
            "data? Raise the budget, or give a tighter base"
        )


def _one_if_alone(by_group: Float[Array, "R ..."]) -> Float[Array, " ..."]:
    """Without the axis of groups where all share."""
    return by_group[0] if by_group.shape[0] == 1 else by_group


def first_totals(
    key: KeyArray, layout: MixtureLayout, data: MixtureData
) -> Float[np.ndarray, "K F"]:
    """Totals by component after events were given to the nearest of a few random ones.

    How few is random, from 1 to K, each order of magnitude as likely: chains start apart.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    n = int(np.sum(data.counts))
    rows = np.sort(rng.choice(n, min(n, FIRST_EVENTS), replace=False))
    x, group = np.asarray(data.x)[:, rows], np.asarray(data.group)[rows]
    most = min(layout.components, len(rows))
    centres = x[:, rng.choice(len(rows), int(np.exp(rng.uniform(0, np.log(most + 1)))), False)]
    distance = ((x[:, :, None] - centres[:, None, :]) ** 2).sum(0)
    nearest = distance.argmin(1)
    phi = unit_features(layout, x, group)
    return np.stack([phi[:, nearest == k].sum(1) for k in range(layout.components)])
