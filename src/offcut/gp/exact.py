r"""The exact process: f is known where it was evaluated, and nowhere else.

A sweep starts from f at N points, X and Y. Given Pólya-Gamma variables omega there, with
B = I + √Omega K √Omega and r = kappa / √omega, f is drawn by Matheron's rule: a draw of the prior
at all places wanted, plus K √Omega B⁻¹ (r - √Omega prior - normals). The places wanted are the N
points, the nodes of the grid, and as many proposals as are likely needed: one Cholesky factor. The
walk along the proposals ends at the n-th acceptance, and what is behind it is dropped, as if f had
been drawn one proposal at a time, each given all before. The nugget is part of the covariance, for
any two evaluations, of one place too. Hyperparameters move on

    log p(omega, X, Y | K) = -½ log|B| - ½ rᵀ B⁻¹ r + ....

Under a budget the sampler tries once and otherwise keeps its Y: values of f revealed in a failed
attempt would have to be kept for the next (forgetting them gives a wrong posterior).

Matrices have one of few sizes, the smallest that holds what a sweep needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from offcut.base import BROKEN, FULL, OK, Info, Kernel, Stage
from offcut.errors import StartError
from offcut.gp import proposals as points
from offcut.gp import types as t
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.data import GPData
from offcut.gp.plan import Plan
from offcut.gp.polya_gamma import polya_gamma
from offcut.gp.proposals import Points
from offcut.gp.sampler import State
from offcut.gp.updates import EllipticalSlice, elliptical_slice
from offcut.numerics.types import KeyArray

#: Rows that the largest matrix has; the others are smaller by this factor each.
LARGEST, FACTOR = 4096, 1.3
#: n + |Y| at most: a sweep holds the old ones and as many new ones.
MOST = LARGEST // 2
#: Room for chance in the first guess of how many proposals a sweep needs.
ROOM = 1.15


Made = TypeVar("Made")
#: omega and kappa at all points.
Pseudo = tuple[Float[Array, " rows"], Float[Array, " rows"]]


class Drawn(NamedTuple):
    """f at the points and at the nodes, the points with new rejections, and how the walk ended."""

    points: Points
    f: Float[Array, " rows"]
    nodes: t.Weights
    reached: t.Flag
    over: t.Flag


class ExactSampler(AugmentedSampler):
    """``plan.basis`` is the grid at which f is recorded; ``state.w`` is f there."""

    redraws = False

    def __init__(self, plan: Plan, kernel: Kernel, nugget: float) -> None:
        super().__init__(plan, kernel)
        self.nugget = nugget
        sizes, self.smaller = (_sizes(plan.layout.rows, most) for most in (LARGEST, MOST))
        self.sizes = [size for size in sizes if size >= plan.basis.number]  # all hold the nodes

    @property
    def key(self) -> tuple:
        return *super().key, self.nugget

    def first_own(self, state: State, data: GPData) -> State:
        """f is zero at X; no rejections yet."""
        nowhere = jnp.zeros(self.plan.basis.number)
        state = state._replace(beta=jnp.zeros(0), w=nowhere)
        return super().first_own(state, data)

    def root_spectrum(self, hyper: t.Hyper, data: GPData) -> t.Weights:
        """There is no spectrum."""
        return jnp.zeros(self.plan.basis.number)

    def covariance(
        self, u: Float[Array, "d T"], hyper: t.Hyper, data: GPData
    ) -> Float[Array, "T T"]:
        """K with its nugget."""
        length_scales, variance = self.plan.hyper.values(hyper, data)
        scaled = u * (data.half / length_scales)[:, None]
        correlations = self.plan.covariance.correlations(scaled, scaled)
        return variance * (correlations + self.nugget * jnp.eye(u.shape[1]))

    def step(self, key: KeyArray, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        """One sweep: hyperparameters, base and rate given X and Y; then f, and new rejections."""
        k = jax.random.split(key, 4)
        plan, held, known = self.plan, state.points, state.known
        limit = jnp.minimum(stage.budget, MOST - held.n)
        moved, pseudo = self._hyper(k[0], state, stage, data)
        base, more = self._base(k[1], moved, held, stage, data)
        log_rate = plan.process.update_rate(k[2], base.log_rate, held.last, data)
        # Before the first Y there is nothing to learn from.
        moved = moved._replace(
            base=jnp.where(known, base.base, state.base),
            log_rate=jnp.where(known, log_rate, state.log_rate),
            tuning=base.tuning,
        )
        drawn = self._everything(k[3], moved, pseudo, limit, data)
        fits = drawn.reached & ~drawn.over
        kept = held._replace(f=drawn.f)
        chosen = jax.tree.map(lambda a, b: jnp.where(fits, a, b), drawn.points, kept)
        too_many = ~fits & (limit < stage.budget)  # no budget asked for this
        finite = jnp.all(jnp.isfinite(drawn.nodes))
        fine = (known | fits) & finite
        status = jnp.where(too_many & finite, FULL, jnp.where(fine, OK, BROKEN))
        moved = moved._replace(w=drawn.nodes, points=chosen, known=known | fits)
        stats = {"rejected": chosen.count, "gave_up": ~fits, **more}
        return moved, Info(stats | self.described(moved, data), status, finite)

    def _hyper(
        self, key: KeyArray, state: State, stage: Stage, data: GPData
    ) -> tuple[State, Pseudo]:
        """omega and kappa at all points, and hyperparameters given them."""
        held, rows = state.points, state.points.f.shape[0]
        n, total = held.n, held.last
        key_omega, key_hyper = jax.random.split(key)
        informed = points.inside(held.u, data) & (jnp.arange(rows) < total)
        kappa = jnp.where(jnp.arange(rows) < n, 0.5, -0.5) * informed
        if not self.gibbs:
            return state, (jnp.zeros(rows), kappa)
        omega = polya_gamma(key_omega, held.f, total, self.plan.layout.lanes)
        # Before the first Y nothing is known of f: no Pólya-Gamma variables.
        omega = jnp.where(informed & state.known, omega, 0.0)

        def evidence(hyper: t.Hyper) -> t.Number:
            def at(size: int) -> t.Number:
                K = self.covariance(_cut(held.u, size), hyper, data)
                s, root = _factor(K, _cut(omega, size))
                r = solve_triangular(root, _divided(_cut(kappa, size), s), lower=True)
                return -jnp.sum(jnp.log(jnp.diagonal(root))) - 0.5 * r @ r

            return _sized(total, self.smaller, at)

        return self.move_hyper(key_hyper, state, stage, evidence), (omega, kappa)

    def _everything(
        self, key: KeyArray, state: State, pseudo: Pseudo, limit: t.Count, data: GPData
    ) -> Drawn:
        """f at the points, at the nodes, and at proposals up to the end of the walk."""
        plan, held = self.plan, state.points
        n, points_ = held.n, held.last
        nodes = data.grid
        G, rows = nodes.shape[1], held.f.shape[0]
        key_place, key_f, key_accept, key_total = jax.random.split(key, 4)
        total = plan.process.number_of_proposals(key_total, state.log_rate, data)
        expected = (ROOM * points_).astype(jnp.int32) + 16 if total is None else total
        first = _tier(self.sizes, points_ + G + expected)
        # A place, f and acceptance have numbers of their own, so that a larger matrix begins like
        # a smaller one.
        proposed = plan.base.propose(key_place, state.base, LARGEST, data)
        normals = jax.random.normal(key_f, (2, LARGEST))
        uniform = jax.random.uniform(key_accept, (LARGEST,))

        def attempt(size: int) -> Drawn:
            row = jnp.arange(size)
            node, fresh = row - points_, row - points_ - G
            is_point, is_fresh = row < points_, fresh >= 0
            place = jnp.clip(fresh, 0, LARGEST - 1)
            u = jnp.where(
                is_point[None, :],
                held.u[:, jnp.minimum(row, rows - 1)],
                jnp.where(
                    is_fresh[None, :], proposed[:, place], nodes[:, jnp.clip(node, 0, G - 1)]
                ),
            )
            K = self.covariance(u, state.hyper, data)
            L = lax.linalg.cholesky(K, symmetrize_input=False)
            if self.gibbs:
                f = self._corrected(K, L, normals[:, :size], *(_cut(a, size) for a in pseudo))
            else:
                f = self._sliced(key_f, L, normals[0, :size], _cut(held.f, size), is_point, u, data)
            accepted = (uniform[place] < jax.nn.sigmoid(f)) & points.inside(u, data) & is_fresh
            before = jnp.cumsum(accepted) - accepted
            in_time = (before < n if total is None else fresh < total) & is_fresh
            rejected = in_time & ~accepted
            count = jnp.sum(rejected, dtype=jnp.int32)
            to = jnp.where(rejected, n + jnp.cumsum(rejected) - 1, rows)
            at_points = _cut(f, rows)
            new = Points(
                held.u.at[:, to].set(u, mode="drop"),
                at_points.at[to].set(f, mode="drop"),
                count,
                n,
            )
            reached = jnp.sum(accepted) >= n if total is None else points_ + G + total <= size
            at_nodes = lax.dynamic_slice(f, (points_,), (G,))
            return Drawn(new, at_points, at_nodes, reached, count > limit)

        branches = [partial(attempt, size) for size in self.sizes]

        def unfinished(carry: tuple) -> jax.Array:
            tier, drawn = carry
            return ~drawn.reached & ~drawn.over & (tier < len(self.sizes))

        def larger(carry: tuple) -> tuple:
            return carry[0] + 1, lax.switch(carry[0], branches)

        no = jnp.array(False)
        nothing = Drawn(held, held.f, jnp.zeros(G), no, no)
        drawn = lax.while_loop(unfinished, larger, (first, nothing))[1]
        return drawn._replace(over=drawn.over | ~drawn.reached)

    def _corrected(
        self,
        K: Float[Array, "T T"],
        L: Float[Array, "T T"],
        normals: Float[Array, "2 T"],
        omega: Float[Array, " T"],
        kappa: Float[Array, " T"],
    ) -> Float[Array, " T"]:
        """Matheron's rule; omega is zero but at the points, which come first."""
        prior = L @ normals[0]

        def at(size: int) -> Float[Array, " T"]:
            # At places without pseudo-data B is the identity.
            s, root = _factor(_cut(_cut(K, size).T, size), _cut(omega, size))
            residual = _divided(_cut(kappa, size), s) - s * _cut(prior, size)
            residual = residual - _cut(normals[1], size) * (s > 0)
            half = solve_triangular(root, residual, lower=True)
            return _cut(s * solve_triangular(root, half, lower=True, trans="T"), len(prior))

        last = jnp.max(jnp.where(omega > 0, jnp.arange(len(omega)) + 1, 0))
        smaller = [size for size in self.smaller if size < K.shape[0]] + [K.shape[0]]
        return prior + K @ _sized(last, smaller, at)

    def _sliced(
        self,
        key: KeyArray,
        L: Float[Array, "T T"],
        normal: Float[Array, " T"],
        f: Float[Array, " T"],
        is_point: Bool[Array, " T"],
        u: Float[Array, "d T"],
        data: GPData,
    ) -> Float[Array, " T"]:
        """Elliptical slice sampling at the points, then f everywhere given that."""
        assert isinstance(self.kernel, EllipticalSlice)
        size = L.shape[0]
        sign = jnp.where(jnp.arange(size) < data.n, 1.0, -1.0)
        there = is_point & points.inside(u, data)
        for number in range(self.kernel.steps):
            key_prior, key_slice = jax.random.split(jax.random.fold_in(key, number))
            prior = L @ jax.random.normal(key_prior, (LARGEST,))[:size]
            f = elliptical_slice(
                key_slice,
                f,
                prior,
                lambda f: jnp.sum(jnp.where(there, jax.nn.log_sigmoid(sign * f), 0.0)),
            )
        v = solve_triangular(L, jnp.where(is_point, f, 0.0), lower=True)
        return L @ jnp.where(is_point, v, normal)

    def at_probes(self, state: State, data: GPData) -> t.Values:
        return state.points.f[data.probes]

    def limit(self, state: State) -> int:
        """What the largest matrix holds besides X."""
        return max(1, MOST - int(state.points.n))

    def explain(self, state: State, evidence: t.Flag) -> Exception:
        """A matrix lost its digits, or no Y was ever within the budget."""
        if not bool(evidence):
            return StartError(
                f"the covariance matrix of f lost its digits with a nugget of {self.nugget:g}: "
                "give a larger nugget=, for example 1e-6, or use the basis"
            )
        return StartError(
            "the first attempt to draw rejections exceeded the budget, or what the exact process "
            f"can hold (n + |Y| of {MOST:,}): raise the budget, or use the basis"
        )


def _divided(kappa: Float[Array, " T"], s: Float[Array, " T"]) -> Float[Array, " T"]:
    """kappa / √omega, zero where omega is."""
    return jnp.where(s > 0, kappa / jnp.where(s > 0, s, 1.0), 0.0)


def _factor(
    K: Float[Array, "T T"], omega: Float[Array, " T"]
) -> tuple[Float[Array, " T"], Float[Array, "T T"]]:
    """√omega, and the Cholesky factor of B."""
    s = jnp.sqrt(omega)
    B = jnp.eye(len(s)) + s[:, None] * K * s[None, :]
    return s, lax.linalg.cholesky(B, symmetrize_input=False)


def _cut(values: Float[Array, "*d T"], size: int) -> Float[Array, "*d size"]:
    """The first ``size`` columns, padded with zeros where there are fewer."""
    missing = max(0, size - values.shape[-1])
    return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])[..., :size]


def _tier(sizes: list[int], count: t.Count) -> t.Count:
    """The place of the smallest size that holds ``count``."""
    return jnp.searchsorted(jnp.asarray(sizes), count).clip(0, len(sizes) - 1)


def _sized(count: t.Count, sizes: list[int], make: Callable[[int], Made]) -> Made:
    """``make(size)`` for the smallest size that holds ``count``."""
    return lax.switch(_tier(sizes, count), [partial(make, size) for size in sizes])


def _sizes(least: int, largest: int) -> list[int]:
    """Rows of matrices from above ``least`` to ``largest``, rising by a constant factor."""
    sizes = [float(largest)]
    while sizes[-1] / FACTOR > least:
        sizes.append(sizes[-1] / FACTOR)
    return [int(size) for size in reversed(sizes)]
