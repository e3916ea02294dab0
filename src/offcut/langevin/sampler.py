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

import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from offcut.base import OK, Info, Kernel, LogDensity, Sampler, Stage, Stats, Variable
from offcut.errors import StartError
from offcut.kernels.tuning import Tuning, stepped
from offcut.langevin import draws
from offcut.langevin.normaliser import approximate_log_normaliser, log_normaliser, log_normaliser_of
from offcut.langevin.rejections import Layout
from offcut.langevin.von_mises_fisher import deviations
from offcut.methods import MethodSettings
from offcut.models.prior import Prior
from offcut.numerics.types import KeyArray


def turn(
    key: KeyArray,
    kappa: Float[Array, " p"],
    S: Float[Array, "d p"],
    G: Float[Array, "d p"],
    H: Float[Array, "p p"],
) -> tuple[Float[Array, "d p"], Float[Array, "p p"]]:
    """Turn every pair of columns once; S is the sum of the frames."""
    for index, (i, j) in enumerate(itertools.combinations(range(kappa.shape[0]), 2)):
        M = G.T @ S @ H
        gap = kappa[i] - kappa[j]
        along, across = 0.5 * gap * (M[i, i] - M[j, j]), 0.5 * gap * (M[i, j] + M[j, i])
        phi = 0.5 * _von_mises(jax.random.fold_in(key, index), along, across)
        G, H = _turned(G, i, j, phi), _turned(H, i, j, phi)
    return G, H


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
    columns: Float[Array, "rows p"], i: int, j: int, phi: Float[Array, ""]
) -> Float[Array, "rows p"]:
    first = jnp.cos(phi) * columns[:, i] + jnp.sin(phi) * columns[:, j]
    second = jnp.cos(phi) * columns[:, j] - jnp.sin(phi) * columns[:, i]
    return columns.at[:, i].set(first).at[:, j].set(second)


#: Starting concentrations of different chains differ by about this factor, e^SHAKE.
SHAKES = (0.3, 0.1, 0.0)


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

    def kappa(self, position: Float[Array, " p"]) -> Float[Array, " p"]:
        return self.prior.constrain(position, {})["kappa"]

    def start(self, key: KeyArray, data: LangevinData, budget: int) -> State:
        """Near the estimates that each column alone would give; chains are shaken apart."""
        key_kappa, key_own = jax.random.split(key)
        G, H, kappa = first_estimate(data, self.infer_H)
        position = self._first_position(key_kappa, kappa)
        n, p = int(data.n), self.layout.p
        state = State(
            position,
            jnp.asarray(G),
            jnp.asarray(H),
            self.kernel.first_tuning(n, p),
            None,
            jnp.array(data.V, copy=True),  # the state is given away in every call
        )
        return state._replace(own=self.first_own(key_own, state, data, budget))

    def _first_position(self, key: KeyArray, kappa: np.ndarray) -> Float[Array, " p"]:
        for attempt, shake in enumerate(SHAKES):
            noise = shake * jax.random.normal(jax.random.fold_in(key, attempt), kappa.shape)
            position = self.prior.unconstrain({"kappa": jnp.asarray(kappa) * jnp.exp(noise)})
            if np.isfinite(position).all() and np.isfinite(self.prior.log_density(position, {})):
                return position
        for attempt in range(100):  # a prior that excludes what the data say
            drawn = self.prior.sample(jax.random.fold_in(key, 100 + attempt))
            position = self.prior.unconstrain(drawn)
            if np.isfinite(position).all() and np.isfinite(self.prior.log_density(position, {})):
                return position
        raise StartError(
            f"no place to start: the prior of kappa excludes {np.round(kappa, 3).tolist()}, where "
            "the data would start, and has no finite density at 100 of its own draws"
        )

    def first_own(self, key: KeyArray, state: State, data: LangevinData, budget: int) -> Any:
        """What else the sampler keeps."""
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
        return log_normaliser_of(joint) - data.n * log_normaliser(kappa, self.layout.d)


class AsymptoticSampler(UnaugmentedSampler):
    """Z approximate, given G."""

    method = "asymptotic"

    def log_likelihood(
        self, kappa: Float[Array, " p"], state: State, data: LangevinData
    ) -> Float[Array, ""]:
        """kappa·diag(GᵀSH) - n log Z(kappa), approximately."""
        log_z = approximate_log_normaliser(kappa, self.layout.d)
        return jnp.sum(kappa * self.along(state, data)) - data.n * log_z
