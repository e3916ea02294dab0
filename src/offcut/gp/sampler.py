"""What all samplers share: the state, Z by quadrature, moves with Y summed out.

The moves with Y summed out cure the slow mixing of |Y| and log Z: given Y, the level of f is known
to 1/√n of itself, and so a sweep moves it by no more. With Z by quadrature the level moves freely,
and so do parameters of the base, f moving along so that the density at the data stays nearly the
same (``joint_move``). Where hyperparameters are unknown everything moves at once, by HMC
(``move_everything``). ``CollapsedSampler`` has no rejections at all: everything moves at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from offcut.base import MOST_REJECTED, OK, Info, Kernel, LogDensity, Sampler, Stage, Stats, Variable
from offcut.errors import StartError
from offcut.gp import proposals as points
from offcut.gp import types as t
from offcut.gp.base_density import FamilyBase, NormalBase, Record
from offcut.gp.data import GPData, over_data
from offcut.gp.plan import Plan
from offcut.gp.proposals import Points
from offcut.gp.quadrature import between, mass, normaliser
from offcut.kernels.hmc import HMC
from offcut.kernels.random_walk import RandomWalk
from offcut.kernels.tuning import Tuning, stepped
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program

#: Curvature of the logistic log likelihood at its steepest, which weighs data against prior where
#: directions of the joint move are fitted.
CURVATURE = 0.25
#: Observations in one piece, where phi at the data is not kept.
PIECE = 4096
#: A first shake of the base is halved so often, where it makes an observation impossible.
HALVINGS = 50
#: What of a gradient kernel's statistics goes into the result.
KEPT = ("acceptance_rate", "diverging", "n_steps", "step_size")
JOINT = HMC(num_steps=4, jitter=0.4)
EVERYTHING = HMC(num_steps=8, jitter=0.5)
SCALE = RandomWalk()


class State(NamedTuple):
    """beta (whitened), w = D beta, the base, hyperparameters, log upper rate; and the rest."""

    beta: t.Weights
    w: t.Weights
    base: t.Parameters
    hyper: t.Hyper
    log_rate: t.Number
    tuning: dict[str, Tuning]
    centre: t.Vector  # of the box, with half of it: for the record
    half: t.Vector
    unit: t.Vector  # of the length-scale
    points: Points  # X and Y, where Y is held
    known: t.Flag  # of the exact process: whether Y was ever drawn


class GPSampler(Sampler):
    """Subclasses write ``step``, and what else they start with."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._first_program = Program(self._first, "start")

    @property
    def key(self) -> tuple:
        """Identity, besides the class: samplers with one key have one program."""
        return self.plan.key, self.kernel

    def root_spectrum(self, hyper: t.Hyper, data: GPData) -> t.Weights:
        """D: √S of all basis functions."""
        length_scales, variance = self.plan.hyper.values(hyper, data)
        scaled = jnp.log(length_scales / data.half)
        log_S = self.plan.basis.log_spectrum(self.plan.covariance, scaled)
        return jnp.exp(0.5 * (log_S + jnp.log(variance)))

    def at_data(self, w: t.Weights, data: GPData) -> Float[Array, " rows"]:
        """f at the data; where phi does not fit into memory there, in pieces.

        Rows are a multiple of what a processor takes at a time: products of matrices have the same
        bits, and so have their derivatives, however many rows are behind the observations.
        """
        if data.features is not None:
            return w @ data.features
        d, rows = data.x.shape
        pieces = -(-rows // PIECE)
        padded = jnp.pad(data.x, ((0, 0), (0, pieces * PIECE - rows)))
        parts = jnp.moveaxis(padded.reshape(d, pieces, PIECE), 1, 0)
        f = jax.lax.map(lambda u: self.plan.basis.evaluate(w, u), parts)
        return f.reshape(-1)[:rows]

    def nodes(self, p: t.Parameters, data: GPData) -> tuple[t.Nodes, t.AtNodes]:
        """Nodes of the quadrature and their weights."""
        if not self.plan.moving:
            return data.quadrature.nodes, data.quadrature.weights
        return between(data.quadrature, *self._own_limits(p, data, data.limits))

    def at_nodes(self, w: t.Weights, data: GPData, p: t.Parameters) -> t.AtNodes:
        """f at the nodes of the quadrature; nodes that move do so with ``p``."""
        if self.plan.moving:
            return self.plan.basis.evaluate(w, self.nodes(p, data)[0])
        return jnp.reshape(self.plan.basis.on_grid(w, data.quadrature.tables), -1)

    def normaliser(self, f: t.AtNodes, p: t.Parameters, data: GPData) -> t.Number:
        """Z from f at the nodes."""
        plan = self.plan
        nodes, weights = self.nodes(p, data)
        log_g0 = plan.base.log_density(p, nodes, data)
        supported = jnp.ones(())
        if plan.supported == "side":
            assert isinstance(plan.base, NormalBase)
            supported = plan.base.mass(p, *data.support)
        elif plan.supported == "box":
            supported = jnp.sum(weights * jnp.exp(log_g0))
        elif plan.supported == "tails":
            supported = mass(
                lambda u: plan.base.log_density(p, u, data),
                *self._own_limits(p, data, data.support),
                plan.basis.sizes,
                data.x[:, 0],
            )
        return normaliser(f, log_g0, weights, supported)

    def _own_limits(self, p: t.Parameters, data: GPData, within: t.Ends) -> t.Ends:
        """Limits of g0's own support within others, in coordinates u."""
        assert isinstance(self.plan.base, FamilyBase)
        low, high = self.plan.base.limits(p, data)
        return jnp.maximum(low, within[0]), jnp.minimum(high, within[1])

    def log_posterior(
        self,
        beta: t.Weights,
        f_data: Float[Array, " rows"],
        f_nodes: t.AtNodes,
        p: t.Parameters,
        hyper: t.Hyper,
        log_rate: t.Number,
        data: GPData,
        budget: t.Count,
    ) -> t.Number:
        """log p(X, |Y| <= budget, f, base, hyperparameters, rate), Y summed out."""
        plan = self.plan
        total = over_data(jax.nn.log_sigmoid(f_data), data) + plan.base.log_data(p, data)
        Z = self.normaliser(f_nodes, p, data)
        return (
            plan.process.log_likelihood(total, Z, log_rate, data, budget)
            + plan.base.log_prior(p, data)
            + plan.hyper.log_prior(hyper)
            + plan.process.log_rate_prior(log_rate, data)
            - 0.5 * beta @ beta
        )

    # Moves with Y summed out.

    def joint_move(
        self, key: KeyArray, state: State, stage: Stage, data: GPData
    ) -> tuple[State, Stats]:
        """Level of f, base and rate together.

        beta' = beta - V (c(p') - c(p)) + level V_1, log g0 being c(p) times quadratic features and
        V the best fit of these by f at the data, which depends on hyperparameters alone. The map
        has Jacobian 1, and a kernel moves (p, log rate, level) on the posterior along it.
        """
        plan, k = self.plan, self.plan.base.size
        D = self.root_spectrum(state.hyper, data)
        V = _directions(D, *data.fit)
        f = self.at_data(D * state.beta, data)
        F = jax.lax.map(lambda v: self.at_data(D * v, data), V.T)
        if not plan.moving:
            g = self.at_nodes(D * state.beta, data, state.base)
            N = jax.vmap(lambda v: self.at_nodes(D * v, data, state.base), 1)(V)
        before = plan.base.shaped(state.base)

        def f_nodes(c: t.Features, p: t.Parameters) -> t.AtNodes:
            return self.at_nodes(D * (state.beta + V @ c), data, p) if plan.moving else g + c @ N

        def moved(position: t.Position) -> tuple[jax.Array, jax.Array, jax.Array]:
            c = before - plan.base.shaped(position[:k])
            log_rate = position[k] if plan.process.rated else state.log_rate
            return position[:k], log_rate, c.at[-1].add(position[-1])

        def log_density(position: t.Position) -> t.Number:
            p, log_rate, c = moved(position)
            return self.log_posterior(
                state.beta + V @ c,
                f + c @ F,
                f_nodes(c, p),
                p,
                state.hyper,
                log_rate,
                data,
                stage.budget,
            )

        start = jnp.concatenate([state.base, *self._rate(state), jnp.zeros(1)])
        position, state, stats = stepped_on("joint", JOINT, key, state, start, log_density, stage)
        p, log_rate, c = moved(position)
        beta = state.beta + V @ c
        state = state._replace(beta=beta, w=D * beta, base=p, log_rate=log_rate)
        return state, {"joint_acceptance": stats["acceptance_rate"]}

    def _rate(self, state: State) -> list[Float[Array, " 1"]]:
        """The log rate, where there is one."""
        return [state.log_rate[None]] if self.plan.process.rated else []

    def position(self, state: State) -> t.Position:
        """(beta, base, hyperparameters, log rate where there is one)."""
        return jnp.concatenate([state.beta, state.base, state.hyper, *self._rate(state)])

    def move_everything(
        self,
        key: KeyArray,
        state: State,
        stage: Stage,
        data: GPData,
        kernel: Kernel,
        budget: t.Count,
    ) -> tuple[State, Stats]:
        """A step of a kernel on the whole position."""
        plan = self.plan
        m, k, h = plan.basis.number, plan.base.size, plan.hyper.size

        def parts(position: t.Position) -> tuple[jax.Array, ...]:
            rate = position[-1] if plan.process.rated else state.log_rate
            return position[:m], position[m : m + k], position[m + k : m + k + h], rate

        def log_density(position: t.Position) -> t.Number:
            beta, p, hyper, log_rate = parts(position)
            w = self.root_spectrum(hyper, data) * beta
            f, f_nodes = self.at_data(w, data), self.at_nodes(w, data, p)
            return self.log_posterior(beta, f, f_nodes, p, hyper, log_rate, data, budget)

        start = self.position(state)
        position, state, stats = stepped_on("all", kernel, key, state, start, log_density, stage)
        beta, p, hyper, log_rate = parts(position)
        w = self.root_spectrum(hyper, data) * beta
        return state._replace(beta=beta, w=w, base=p, hyper=hyper, log_rate=log_rate), stats

    def move_hyper(
        self, key: KeyArray, state: State, stage: Stage, log_likelihood: LogDensity
    ) -> State:
        """Hyperparameters, where they are unknown, given what depends on them."""
        if not self.plan.hyper.size:
            return state

        def log_density(hyper: t.Hyper) -> t.Number:
            return self.plan.hyper.log_prior(hyper) + log_likelihood(hyper)

        hyper, state, _ = stepped_on("hyper", SCALE, key, state, state.hyper, log_density, stage)
        return state._replace(hyper=hyper)

    def summed_moves(
        self, key: KeyArray, state: State, stage: Stage, data: GPData
    ) -> tuple[State, Stats]:
        """All moves with Y summed out. Y does not belong to the state any more afterwards."""
        if not self.plan.joint:
            return state, {}
        if not self.plan.hyper.size:
            return self.joint_move(key, state, stage, data)
        state, stats = self.move_everything(key, state, stage, data, EVERYTHING, stage.budget)
        return state, {"joint_acceptance": stats["acceptance_rate"]}

    # Beginning and end.

    def start(self, key: KeyArray, data: GPData, budget: int) -> State:
        """f near zero, the base near the data, hyperparameters near the middle of their prior."""
        state, possible = self._first_program(key, data)
        if not bool(possible):
            raise StartError(
                "none of the parameters tried, draws of the prior of the base, make all of the "
                "observations possible: is the support of the base density too small for them, or "
                "the prior too far off?"
            )
        return state

    def _first(self, key: KeyArray, data: GPData) -> tuple[State, t.Flag]:
        """The first state, compiled; whether the base makes all observations possible there."""
        plan = self.plan
        k = jax.random.split(key, 4)
        p = plan.base.first(data)
        shake = jax.random.normal(k[0], p.shape) * 0.5 / jnp.sqrt(data.n + 1.0)
        p, possible = self._shaken(p, shake, data)
        hyper = plan.hyper.first(k[1])
        log_rate = jnp.zeros(())
        if plan.process.rated:
            twice = 2 * (data.n + 1) / data.volume
            log_rate = jnp.log(twice) + 0.2 * jax.random.normal(k[2])
        beta = 0.3 * jax.random.normal(k[3], (plan.basis.number,))
        w = self.root_spectrum(hyper, data) * beta
        none, never = points.none(plan.basis.d), jnp.array(False)
        state = State(
            beta, w, p, hyper, log_rate, {}, data.centre, data.half, data.unit, none, never
        )
        tuning = {}
        if plan.joint and not plan.hyper.size:
            size = plan.base.size + int(plan.process.rated) + 1
            tuning["joint"] = JOINT.first_tuning(data.n, size)
        if plan.joint and plan.hyper.size:
            tuning["all"] = EVERYTHING.first_tuning(1, self.position(state).shape[0])
        if plan.hyper.size:
            tuning["hyper"] = SCALE.first_tuning(data.n, plan.hyper.size)
        return self.first_own(state._replace(tuning=tuning), data), possible

    def _shaken(
        self, p: t.Parameters, shake: t.Parameters, data: GPData
    ) -> tuple[t.Parameters, t.Flag]:
        """p + shake, or less of it where an observation would be impossible; whether none is."""
        base = self.plan.base
        if not isinstance(base, FamilyBase):
            return p + shake, jnp.array(True)

        def impossible(halvings: t.Number) -> t.Flag:
            return jnp.isneginf(base.score(p + shake * 0.5**halvings, data)) & (halvings < HALVINGS)

        halvings = jax.lax.while_loop(impossible, lambda halvings: halvings + 1.0, jnp.zeros(()))
        p = jnp.where(halvings < HALVINGS, p + shake * 0.5**halvings, p)
        return p, ~jnp.isneginf(base.score(p, data))

    def first_own(self, state: State, data: GPData) -> State:
        """What else the sampler keeps."""
        return state

    def described(self, state: State, data: GPData) -> Stats:
        """log Z and the log density at some of the data, from which mixing is assessed."""
        plan, p = self.plan, state.base
        if not plan.summed:
            return {}
        log_Z = jnp.log(self.normaliser(self.at_nodes(state.w, data, p), p, data))
        if not data.probes.shape[0]:
            return {"log_normaliser": log_Z}
        u = data.x[:, data.probes]
        f = self.at_probes(state, data)
        value = plan.base.log_density(p, u, data) + jax.nn.log_sigmoid(f) - log_Z
        return {"log_normaliser": log_Z, "log_density": value - jnp.sum(jnp.log(data.half))}

    def at_probes(self, state: State, data: GPData) -> t.Values:
        """f at the observations at which the log density is followed."""
        return state.w @ data.at_probes

    def record(self, state: State) -> Record:
        """f by its weights, and all parameters, in the units of the data."""
        return {
            "weights": state.w,
            **self.plan.base.record(state.base, state.centre, state.half),
            **self.plan.hyper.record(state.hyper, state.unit),
            **self.plan.process.record(state.log_rate),
        }

    def variables(self) -> dict[str, Variable]:
        """Names of dimensions. Weights are assessed by what they amount to at the data."""
        return {
            "weights": Variable(("function",), exchangeable=True, by_kernel=False),
            "log_density": Variable(("probe",), diagnosed=True),
            "log_normaliser": Variable((), diagnosed=True),
            "base_mean": Variable(("axis",), by_kernel=False),
            "base_covariance": Variable(("axis", "other_axis"), by_kernel=False),
            "length_scale": Variable(("axis",), by_kernel=False),
        }


def stepped_on(
    name: str,
    kernel: Kernel,
    key: KeyArray,
    state: State,
    position: t.Position,
    log_density: LogDensity,
    stage: Stage,
) -> tuple[t.Position, State, Stats]:
    """A kernel's step with the tuning of this name; the state has what warm-up learns from it."""
    position, learnt, stats = stepped(kernel, key, position, log_density, state.tuning[name], stage)
    return position, state._replace(tuning={**state.tuning, name: learnt}), stats


def _directions(
    D: t.Weights, gram: Float[Array, "m m"], fitted: Float[Array, "m F"]
) -> Float[Array, "m F"]:
    """V: beta that fit quadratic features at the data, as far as the prior lets them."""
    A = jnp.eye(D.shape[0]) + CURVATURE * D[:, None] * gram * D[None, :]
    return jax.scipy.linalg.solve(A, CURVATURE * D[:, None] * fitted, assume_a="pos")


class CollapsedSampler(GPSampler):
    """A kernel on (beta, base, hyperparameters, log rate)."""

    method = "collapsed"
    kernel: Kernel

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        super().__init__(plan)
        self.kernel, self.kernel_name, self.adapts = kernel, repr(kernel), kernel.adapts

    def first_own(self, state: State, data: GPData) -> State:
        size = self.position(state).shape[0]
        return state._replace(tuning={"all": self.kernel.first_tuning(1, size)})

    def step(self, key: KeyArray, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        state, stats = self.move_everything(
            key, state, stage, data, self.kernel, jnp.int32(MOST_REJECTED)
        )
        stats = {name: stats[name] for name in KEPT if name in stats}
        stats = {"rejected": jnp.int32(0), **stats, **self.described(state, data)}
        return state, Info(stats, jnp.int32(OK), jnp.zeros(()))
