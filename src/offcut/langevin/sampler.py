"""What all samplers of ``MatrixLangevinModel`` share: G and H by exact draws, and the record.

A sweep is an update of kappa, then G ~ ML(S H kappa + F0), then H ~ ML(Sᵀ G kappa + F1) where it is
inferred. The samplers differ in their update of kappa.

*Turning G and H together.* Where two concentrations are close, F = G diag(kappa) Hᵀ hardly changes
when G and H turn together in the plane of the two columns, and Gibbs steps of G given H and of H
given G creep. The turn itself has a simple conditional: with M = GᵀSH and (G, H) -> (G R, H R), R a
rotation by phi in the plane (i, j),

    tr(kappa Rᵀ M R) = constant + (kappa_i - kappa_j) [½ (M_ii - M_jj) cos 2phi
                                                      + ½ (M_ij + M_ji) sin 2phi],

so that 2 phi is von Mises. An exact draw for uniform priors on G and H, which do not see the turn.

*kappa without rejections*, with the exact normaliser or an approximate one. ``CollapsedSampler``
targets p(kappa | X, H) with G integrated out,

    p(kappa) Z(S H kappa + F0) / Z(kappa)^n,

Z of a matrix being that of its singular values (F0 = 0 for a uniform prior); G and H are drawn
afterwards, which makes (kappa, G) one joint draw. ``AsymptoticSampler`` has Khatri & Mardia's
approximation in place of Z, given G: the paper's approximate sampler. It is not exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.base import OK, Info, Kernel, LogDensity, Sampler, Stage, Stats, Variable
from offcut.errors import StartError
from offcut.kernels.tuning import Tuning, stepped
from offcut.langevin import draws
from offcut.langevin.normaliser import approximate_log_normaliser, log_normalisers_of
from offcut.langevin.rejections import Layout
from offcut.langevin.von_mises_fisher import deviations
from offcut.methods import MethodSettings
from offcut.models.prior import Prior
from offcut.numerics import keys
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program


def turn(
    key: KeyArray,
    kappa: Float[Array, " p"],
    S: Float[Array, "d p"],
    G: Float[Array, "d p"],
    H: Float[Array, "p p"],
) -> tuple[Float[Array, "d p"], Float[Array, "p p"]]:
    """Turn every pair of columns once; S is the sum of the frames."""
    first, second = (jnp.asarray(part) for part in np.triu_indices(kappa.shape[0], 1))

    def turn_pair(index: Int[Array, ""], frames: tuple[jax.Array, jax.Array]) -> tuple:
        (G, H), i, j = frames, first[index], second[index]
        M = G.T @ S @ H
        gap = kappa[i] - kappa[j]
        along, across = 0.5 * gap * (M[i, i] - M[j, j]), 0.5 * gap * (M[i, j] + M[j, i])
        phi = 0.5 * _von_mises(jax.random.fold_in(key, index), along, across)
        return _turned(G, i, j, phi), _turned(H, i, j, phi)

    return lax.fori_loop(0, first.shape[0], turn_pair, (G, H))


def _von_mises(
    key: KeyArray, along: Float[Array, ""], across: Float[Array, ""]
) -> Float[Array, ""]:
    """An angle with density ∝ exp(along cos + across sin)."""
    key_size, key_side = jax.random.split(key)
    e = deviations(key_size, 2, jnp.hypot(along, across)[None])[0]
    away = 2.0 * jnp.arcsin(jnp.sqrt(jnp.clip(0.5 * e, 0.0, 1.0)))
    side = jnp.where(jax.random.bernoulli(key_side), 1.0, -1.0)
    return jnp.arctan2(across, along) + side * away


def _turned(
    columns: Float[Array, "rows p"], i: Int[Array, ""], j: Int[Array, ""], phi: Float[Array, ""]
) -> Float[Array, "rows p"]:
    first = jnp.cos(phi) * columns[:, i] + jnp.sin(phi) * columns[:, j]
    second = jnp.cos(phi) * columns[:, j] - jnp.sin(phi) * columns[:, i]
    return columns.at[:, i].set(first).at[:, j].set(second)


#: Starting concentrations of different chains differ by about this factor, e^SHAKE.
SHAKES = (0.3, 0.1, 0.0)
#: So many draws of a prior are tried where the data's own estimates are outside of it.
DRAWS_OF_PRIOR = 100
#: A start that would need so many times the budget is hopeless.
HOPELESS_START = 5.0
#: Without a budget, more proposals a sweep than this are hopeless.
MOST_PROPOSALS = 1e8


class LangevinData(NamedTuple):
    """All that the data say: their number and sum; and the priors of G and H."""

    n: Int[Array, ""]
    S: Float[Array, "d p"]
    F0: Float[Array, "d p"]
    F1: Float[Array, "p p"]
    V: Float[Array, "p p"]  # right singular vectors of S, for signs


class State(NamedTuple):
    """kappa unconstrained, the two frames, what warm-up learnt, and what else a sampler keeps."""

    position: Float[Array, " p"]
    G: Float[Array, "d p"]
    H: Float[Array, "p p"]
    tuning: Tuning
    own: Any
    V: Float[Array, "p p"]


class First(NamedTuple):
    """Where a chain starts: its state, and whether that is possible.

    ``share``: about how many proposals are accepted at ``kappa``, where there are any.
    """

    state: State
    fine: Bool[Array, ""]
    kappa: Float[Array, " p"]
    share: Float[Array, ""]


#: What an update of kappa gives: the state, statistics, and a status.
Moved = tuple[State, Stats, Int[Array, ""]]


@dataclass(eq=False, repr=False)
class LangevinSampler(Sampler):
    """Subclasses write ``first_own``, ``move`` and, where they have rejections, more.

    ``uniform``: priors of G and H are; ``symmetric``: so that columns may change places.
    """

    layout: Layout
    prior: Prior
    kernel: Kernel = field()
    infer_H: bool  # noqa: N815 (the paper's letter)
    uniform: bool
    symmetric: bool = False
    method_settings: MethodSettings | None = None
    #: Whether kappa is moved with the help of proposals, of which some are rejected unless p = 1.
    proposes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.adapts = self.kernel.adapts
        self.kernel_name = repr(self.kernel)
        self.draws_rejections = self.proposes and self.layout.p > 1
        self._first = Program(self._near_estimate, "start")
        self._first_of_prior = Program(self._of_prior, "start_in_prior")

    def kappa(self, position: Float[Array, " p"]) -> Float[Array, " p"]:
        return self.prior.constrain(position, {})["kappa"]

    def start(self, key: KeyArray, data: LangevinData, budget: int) -> State:
        """Near the estimates that each column alone would give; chains are shaken apart."""
        return self.first(key, data, budget).state

    def first(self, key: KeyArray, data: LangevinData, budget: int) -> First:
        """A first state and what was computed with it (host side)."""
        key_kappa, _ = keys.split(key)
        G, H, kappa = first_estimate(data, self.infer_H)
        first = self._first(key_kappa, G, H, kappa, data)
        if not first.fine:
            first = self._first_of_prior(key_kappa, G, H, data)
        if not first.fine:
            raise StartError(
                f"no place to start: the prior of kappa excludes {np.round(kappa, 3).tolist()}, "
                "where the data would start, and has no finite density at "
                f"{DRAWS_OF_PRIOR} of its own draws"
            )
        if self.proposes:
            refuse_hopeless(np.asarray(first.kappa), float(first.share), int(data.n), budget)
        return first

    def _near_estimate(
        self,
        key: KeyArray,
        G: Float[Array, "d p"],
        H: Float[Array, "p p"],
        kappa: Float[Array, " p"],
        data: LangevinData,
    ) -> First:
        """The first of some shaken estimates that the prior allows."""

        def tried(at: tuple) -> tuple[Float[Array, " p"], Bool[Array, ""]]:
            index, shake = at
            noise = shake * jax.random.normal(jax.random.fold_in(key, index), kappa.shape)
            return self._judged(kappa * jnp.exp(noise))

        positions, fine = lax.map(tried, (jnp.arange(len(SHAKES)), jnp.array(SHAKES)))
        chosen = jnp.argmax(fine)
        return self._completed(positions[chosen], fine[chosen], G, H, data)

    def _of_prior(
        self, key: KeyArray, G: Float[Array, "d p"], H: Float[Array, "p p"], data: LangevinData
    ) -> First:
        """A draw of a prior that excludes what the data say."""

        def again(so_far: tuple) -> tuple:
            attempt, _, _ = so_far
            drawn = self.prior.sample(jax.random.fold_in(key, DRAWS_OF_PRIOR + attempt))
            return attempt + 1, *self._judged(drawn["kappa"])

        nowhere = jnp.int32(0), jnp.zeros(self.layout.p), jnp.array(False)
        _, position, fine = lax.while_loop(
            lambda so_far: ~so_far[2] & (so_far[0] < DRAWS_OF_PRIOR), again, nowhere
        )
        return self._completed(position, fine, G, H, data)

    def _judged(self, kappa: Float[Array, " p"]) -> tuple[Float[Array, " p"], Bool[Array, ""]]:
        """The position of ``kappa``, and whether a chain can start there."""
        position = self.prior.unconstrain({"kappa": kappa})
        possible = jnp.isfinite(self.prior.log_density(position, {}))
        return position, possible & jnp.all(jnp.isfinite(position))

    def _completed(
        self,
        position: Float[Array, " p"],
        fine: Bool[Array, ""],
        G: Float[Array, "d p"],
        H: Float[Array, "p p"],
        data: LangevinData,
    ) -> First:
        kappa = self.kappa(position)
        share = draws.expected_acceptance(kappa, self.layout.d) if self.proposes else jnp.ones(())
        tuning = self.kernel.first_tuning(data.n, self.layout.p)
        state = State(position, G, H, tuning, self.first_own(), data.V)
        return First(state, fine, kappa, share)

    def first_own(self) -> Any:
        """What else the sampler keeps, at first."""
        return ()

    def move(self, key: KeyArray, state: State, stage: Stage, data: LangevinData) -> Moved:
        """Update kappa, and what is kept with it."""
        raise NotImplementedError

    def step(
        self, key: KeyArray, state: State, stage: Stage, data: LangevinData
    ) -> tuple[State, Info]:
        """kappa, then G, then H."""
        key_move, key_frames = jax.random.split(key)
        moved, stats, status = self.move(key_move, state, stage, data)
        G, H, exact = self.draw_frames(key_frames, moved, data)
        if self.layout.p > draws.ALWAYS_FEASIBLE:
            stats = {**stats, "exact_frames": exact}
        return moved._replace(G=G, H=H), Info(stats, status, ())

    def draw_frames(
        self, key: KeyArray, state: State, data: LangevinData
    ) -> tuple[Float[Array, "d p"], Float[Array, "p p"], Bool[Array, ""]]:
        """G and H from their conditionals, and whether both were independent draws."""
        key_G, key_H, key_turn = jax.random.split(key, 3)
        kappa, H = self.kappa(state.position), state.H
        G, exact = draws.update(key_G, (data.S @ H) * kappa[None, :] + data.F0, state.G)
        if self.infer_H:
            H, also = draws.update(key_H, (data.S.T @ G) * kappa[None, :] + data.F1, H)
            exact = exact & also
            if self.uniform:
                G, H = turn(key_turn, kappa, data.S, G, H)
        return G, H, exact

    def along(self, state: State, data: LangevinData) -> Float[Array, " p"]:
        """s = diag(Gᵀ S H)."""
        return jnp.sum(state.G * (data.S @ state.H), axis=0)

    def kernel_step(
        self, key: KeyArray, state: State, log_density: LogDensity, stage: Stage
    ) -> tuple[State, Stats]:
        """The kernel's step on a density of the position, and what warm-up learns from it."""
        position, tuning, stats = stepped(
            self.kernel, key, state.position, log_density, state.tuning, stage
        )
        return state._replace(position=position, tuning=tuning), stats

    def record(self, state: State) -> Stats:
        """kappa and G; with H inferred kappa falls, and H's columns point along those of V.

        That is one of several equivalent forms where the priors do not tell columns apart. Where
        they do, draws are left as they are.
        """
        kappa = self.kappa(state.position)
        if not self.infer_H:
            return {"kappa": kappa, "G": state.G}
        if not self.symmetric:
            return {"kappa": kappa, "G": state.G, "H": state.H}
        order = jnp.argsort(-kappa)
        G, H = state.G[:, order], state.H[:, order]
        sign = jnp.where(jnp.sum(H * state.V, axis=0) < 0, -1.0, 1.0)[None, :]
        return {"kappa": kappa[order], "G": G * sign, "H": H * sign}

    def variables(self) -> dict[str, Variable]:
        """Names of dimensions; what is moved by exact draws is not explained by kappa's score."""
        return {
            "kappa": Variable(("column",)),
            "G": Variable(("row", "column"), by_kernel=False),
            "H": Variable(("column_of_data", "column"), by_kernel=False),
        }


def first_estimate(data: LangevinData, infer_H: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """G, H from the polar decomposition of the mean frame, and kappa column by column.

    tau (d - tau²) / (1 - tau²) inverts the Bessel ratio approximately (Banerjee et al. 2005); tau
    is drawn towards 0 as by one more frame, so that one frame alone gives something finite.
    """
    n, S, F0 = int(data.n), np.asarray(data.S), np.asarray(data.F0)
    d, p = S.shape
    H = np.array(data.V) if infer_H else np.eye(p)
    U, _, Vt = np.linalg.svd(S @ H + 1e-3 * F0, full_matrices=False)
    G = U @ Vt
    tau = np.clip(np.sum(G * (S @ H), axis=0) / (n + 1), 0.01, 1.0)
    return G, H, tau * (d - tau**2) / (1 - tau**2)


def refuse_hopeless(kappa: Float[np.ndarray, " p"], share: float, n: int, budget: int) -> None:
    """Raise where a sweep would need far more rejections than the budget allows.

    ``share`` of the proposals are accepted.
    """
    expected = n * (1 / share - 1) if share > 0 else np.inf
    if expected > min(HOPELESS_START * max(budget, n), MOST_PROPOSALS):
        raise StartError(
            f"at kappa = {np.round(kappa, 2).tolist()} about {share:.0e} of the proposals are "
            f"accepted, so a sweep would reject about {expected:.0e} of them, far more than the "
            f"budget. {what_to_do(kappa)}"
        )


def what_to_do(kappa: np.ndarray) -> str:
    """Where a budget is too small."""
    if len(kappa) <= 4:
        return "Raise the budget"
    return (
        f"Many columns of similar concentration ({len(kappa)} here) are out of reach of rejection "
        'sampling: raise the budget, or use method="asymptotic", which is approximate'
    )


class UnaugmentedSampler(LangevinSampler):
    """A kernel on a density of kappa that can be evaluated."""

    def log_likelihood(
        self, kappa: Float[Array, " p"], state: State, data: LangevinData
    ) -> Float[Array, ""]:
        """log p(X | kappa, ...) up to a constant."""
        raise NotImplementedError

    def move(self, key: KeyArray, state: State, stage: Stage, data: LangevinData) -> Moved:

        def log_density(position: Float[Array, " p"]) -> Float[Array, ""]:
            likelihood = self.log_likelihood(self.kappa(position), state, data)
            return self.prior.log_density(position, {}) + likelihood

        moved, stats = self.kernel_step(key, state, log_density, stage)
        # No rejections, so there is no missing information to compute from a score.
        kept = {name: value for name, value in stats.items() if value.ndim == 0}
        return moved, {"rejected": jnp.int32(0), **kept}, jnp.int32(OK)


class CollapsedSampler(UnaugmentedSampler):
    """G integrated out, Z exact."""

    method = "collapsed"

    def log_likelihood(
        self, kappa: Float[Array, " p"], state: State, data: LangevinData
    ) -> Float[Array, ""]:
        """log Z(S H kappa + F0) - n log Z(kappa)."""
        joint = (data.S @ state.H) * kappa[None, :] + data.F0
        of_joint, of_kappa = log_normalisers_of(joint, kappa[None])
        return of_joint - data.n * of_kappa


class AsymptoticSampler(UnaugmentedSampler):
    """Z approximate, given G."""

    method = "asymptotic"

    def log_likelihood(
        self, kappa: Float[Array, " p"], state: State, data: LangevinData
    ) -> Float[Array, ""]:
        """kappa·diag(GᵀSH) - n log Z(kappa), approximately."""
        log_z = approximate_log_normaliser(kappa, self.layout.d)
        return jnp.sum(kappa * self.along(state, data)) - data.n * log_z
