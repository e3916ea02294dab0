"""What all samplers share: the state, Z by quadrature, moves with Y summed out.

The moves with Y summed out cure the slow mixing of |Y| and log Z: given Y, the level of f is known
to 1/√n of itself, and so a sweep moves it by no more. With Z by quadrature the level moves freely,
and so do parameters of the base, f moving along so that the density at the data stays nearly the
same (``joint_move``). Where hyperparameters are unknown everything moves at once, by HMC
(``move_everything``). ``CollapsedSampler`` has no rejections at all: everything moves at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.base import MOST_REJECTED, OK, Info, Sampler, Stage, Variable
from offcut.errors import StartError
from offcut.gp.base_density import BaseDensity, FamilyBase
from offcut.gp.covariance import Covariance
from offcut.gp.hyperparameters import Hyperparameters
from offcut.gp.process import DensityProcess, IntensityProcess
from offcut.gp.proposals import Layout
from offcut.gp.quadrature import between, mass, normaliser
from offcut.kernels.hmc import HMC
from offcut.kernels.random_walk import RandomWalk
from offcut.kernels.tuning import Tuning, stepped

#: Curvature of the logistic log likelihood at its steepest, which weighs data against prior where
#: directions of the joint move are fitted.
CURVATURE = 0.25
#: Observations in one piece, where phi at the data is not kept.
PIECE = 4096
#: A first shake of the base is halved so often, where it makes an observation impossible.
HALVINGS = 50
JOINT = HMC(num_steps=4, jitter=0.4)
EVERYTHING = HMC(num_steps=8, jitter=0.5)
SCALE = RandomWalk()


class GPData(NamedTuple):
    """Arrays: the data in coordinates u, and all numbers that a program should not have baked in.

    Fields that a plan does not use are empty tuples.
    """

    x: jax.Array  # (d, n)
    features: Any  # (M, n), phi at the data
    centre: jax.Array  # (d,)
    half: jax.Array  # (d,) half the box, in the units of the data
    support: tuple[jax.Array, jax.Array]  # (d,) each, in coordinates u
    limits: tuple[jax.Array, jax.Array]  # (d,) each, of support, box and g0 where they are fixed
    lower: jax.Array  # (d,) of a uniform base, in coordinates u
    upper: jax.Array
    base: Any  # its prior's arrays
    length_scale: jax.Array  # (d,) where fixed, in the units of the data
    variance: jax.Array  # where fixed
    unit: jax.Array  # (d,) of the prior of the length-scale, in the units of the data
    volume: jax.Array  # |T|
    rate: tuple[jax.Array, jax.Array]  # a and b of the prior of the upper rate
    quadrature: Any  # a Quadrature where Z is known
    grid: Any  # (d, G), where f of the exact process is recorded
    fit: Any  # (M, M) and (M, F): Phi Phiᵀ and Phi times quadratic features, at the data
    probes: jax.Array  # (k,) observations at which the log density is followed


class Plan(NamedTuple):
    """What a program is compiled for."""

    layout: Layout
    basis: Any  # a Basis, or the Grid of the exact process
    covariance: Covariance
    base: BaseDensity
    hyper: Hyperparameters
    process: DensityProcess | IntensityProcess
    summed: bool  # Z is known by quadrature
    supported: str  # "all" of the base, "box" (none of it beyond the box), "side" or "tails"
    joint: bool  # moves with Y summed out
    moving: bool  # limits of g0's own support depend on its parameters


class State(NamedTuple):
    """beta (whitened), w = D beta, the base, hyperparameters, log upper rate; and the rest."""

    beta: jax.Array
    w: jax.Array
    base: jax.Array
    hyper: jax.Array
    log_rate: jax.Array
    tuning: dict[str, Tuning]
    centre: jax.Array  # of the box, with half of it: for the record
    half: jax.Array
    unit: jax.Array  # of the length-scale
    own: Any


class GPSampler(Sampler):
    """Subclasses write ``first_own`` and ``step``."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._first_program = jax.jit(self._first)

    def root_spectrum(self, hyper: jax.Array, data: GPData) -> jax.Array:
        """D: √S of all basis functions, (M,)."""
        plan = self.plan
        return plan.hyper.root_spectrum(plan.basis, plan.covariance, hyper, data)

    def at_data(self, w: jax.Array, data: GPData) -> jax.Array:
        """f at the data, (n,); where phi does not fit into memory there, in pieces."""
        if not isinstance(data.features, tuple):
            return w @ data.features
        d, n = data.x.shape
        pieces = -(-n // PIECE)
        padded = jnp.pad(data.x, ((0, 0), (0, pieces * PIECE - n)))
        rows = jnp.moveaxis(padded.reshape(d, pieces, PIECE), 1, 0)
        zero = jnp.int32(0)
        f = jax.lax.map(lambda u: self.plan.basis.evaluate(w, u, zero), rows)
        return f.reshape(-1)[:n]

    def nodes(self, p: jax.Array, data: GPData) -> tuple[jax.Array, jax.Array]:
        """Nodes of the quadrature (d, Q) and their weights (Q,)."""
        if not self.plan.moving:
            return data.quadrature.nodes, data.quadrature.weights
        low, high = self._own_limits(p, data)
        return between(
            data.quadrature,
            jnp.maximum(low, data.limits[0]),
            jnp.minimum(high, data.limits[1]),
        )

    def at_nodes(self, w: jax.Array, data: GPData, p: jax.Array | None = None) -> jax.Array:
        """f at the nodes of the quadrature, (Q,); nodes that move do so with ``p``."""
        if self.plan.moving:
            assert p is not None
            return self.plan.basis.evaluate(w, self.nodes(p, data)[0], jnp.int32(0))
        return self.plan.basis.on_grid(w, data.quadrature.tables).reshape(-1)

    def normaliser(self, f: jax.Array, p: jax.Array, data: GPData) -> jax.Array:
        """Z from f at the nodes."""
        plan = self.plan
        nodes, weights = self.nodes(p, data)
        log_g0 = plan.base.log_density(p, nodes, data)
        if plan.supported == "side":
            supported = plan.base.mass(p, *data.support)  # type: ignore[union-attr]
        elif plan.supported == "box":
            supported = jnp.sum(weights * jnp.exp(log_g0))
        elif plan.supported == "tails":
            low, high = self._own_limits(p, data)
            supported = mass(
                lambda u: plan.base.log_density(p, u, data),
                jnp.maximum(low, data.support[0]),
                jnp.minimum(high, data.support[1]),
                plan.basis.sizes,
                data.x[:, 0],
            )
        else:
            supported = jnp.ones(())
        return normaliser(f, log_g0, weights, supported)

    def _own_limits(self, p: jax.Array, data: GPData) -> tuple[jax.Array, jax.Array]:
        """Limits of g0's own support, in coordinates u."""
        assert isinstance(self.plan.base, FamilyBase)
        return self.plan.base.limits(p, data)

    def log_likelihood(
        self,
        f_data: jax.Array,
        f_nodes: jax.Array,
        p: jax.Array,
        log_rate: jax.Array,
        data: GPData,
        budget: jax.Array,
    ) -> jax.Array:
        """log p(X, |Y| <= budget | f, base, rate), Y summed out."""
        plan = self.plan
        total = jnp.sum(jax.nn.log_sigmoid(f_data)) + jnp.sum(
            plan.base.log_density(p, data.x, data)
        )
        Z = self.normaliser(f_nodes, p, data)
        return plan.process.log_likelihood(plan.layout.n, total, Z, log_rate, data, budget)

    # Moves with Y summed out.

    def joint_move(
        self, key: jax.Array, state: State, stage: Stage, data: GPData
    ) -> tuple[State, dict[str, jax.Array]]:
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
            g = self.at_nodes(D * state.beta, data)
            N = jax.vmap(lambda v: self.at_nodes(D * v, data), 1)(V)
        before = plan.base.shaped(state.base)

        def f_nodes(c: jax.Array, p: jax.Array) -> jax.Array:
            return self.at_nodes(D * (state.beta + V @ c), data, p) if plan.moving else g + c @ N

        def moved(position: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            c = before - plan.base.shaped(position[:k])
            log_rate = position[k] if plan.process.rated else state.log_rate
            return position[:k], log_rate, c.at[-1].add(position[-1])

        def log_density(position: jax.Array) -> jax.Array:
            p, log_rate, c = moved(position)
            beta = state.beta + V @ c
            return (
                self.log_likelihood(f + c @ F, f_nodes(c, p), p, log_rate, data, stage.budget)
                + plan.base.log_prior(p, data)
                + plan.process.log_rate_prior(log_rate, data)
                - 0.5 * beta @ beta
            )

        rate = [state.log_rate[None]] if plan.process.rated else []
        start = jnp.concatenate([state.base, *rate, jnp.zeros(1)])
        position, tuning, stats = stepped(
            JOINT, key, start, log_density, state.tuning["joint"], stage
        )
        p, log_rate, c = moved(position)
        beta = state.beta + V @ c
        state = state._replace(
            beta=beta,
            w=D * beta,
            base=p,
            log_rate=log_rate,
            tuning={**state.tuning, "joint": tuning},
        )
        return state, {"joint_acceptance": stats["acceptance_rate"]}

    def position(self, state: State) -> jax.Array:
        """(beta, base, hyperparameters, log rate where there is one)."""
        rate = [state.log_rate[None]] if self.plan.process.rated else []
        return jnp.concatenate([state.beta, state.base, state.hyper, *rate])

    def move_everything(
        self,
        key: jax.Array,
        state: State,
        stage: Stage,
        data: GPData,
        kernel: Any,
        budget: jax.Array,
    ) -> tuple[State, dict[str, jax.Array]]:
        """A step of a kernel on the whole position."""
        plan = self.plan
        M, k, h = plan.basis.number, plan.base.size, plan.hyper.size

        def parts(position: jax.Array) -> tuple:
            rate = position[-1] if plan.process.rated else state.log_rate
            return position[:M], position[M : M + k], position[M + k : M + k + h], rate

        def log_density(position: jax.Array) -> jax.Array:
            beta, p, hyper, log_rate = parts(position)
            w = self.root_spectrum(hyper, data) * beta
            likelihood = self.log_likelihood(
                self.at_data(w, data), self.at_nodes(w, data, p), p, log_rate, data, budget
            )
            return (
                likelihood
                + plan.base.log_prior(p, data)
                + plan.hyper.log_prior(hyper)
                + plan.process.log_rate_prior(log_rate, data)
                - 0.5 * beta @ beta
            )

        position, tuning, stats = stepped(
            kernel, key, self.position(state), log_density, state.tuning["all"], stage
        )
        beta, p, hyper, log_rate = parts(position)
        state = state._replace(
            beta=beta,
            w=self.root_spectrum(hyper, data) * beta,
            base=p,
            hyper=hyper,
            log_rate=log_rate,
            tuning={**state.tuning, "all": tuning},
        )
        return state, stats

    def summed_moves(
        self, key: jax.Array, state: State, stage: Stage, data: GPData
    ) -> tuple[State, dict[str, jax.Array]]:
        """All moves with Y summed out. Y does not belong to the state any more afterwards."""
        if not self.plan.joint:
            return state, {}
        if not self.plan.hyper.size:
            return self.joint_move(key, state, stage, data)
        state, stats = self.move_everything(key, state, stage, data, EVERYTHING, stage.budget)
        return state, {"joint_acceptance": stats["acceptance_rate"]}

    # Beginning and end.

    def start(self, key: jax.Array, data: GPData, budget: int) -> State:
        """f near zero, the base near the data, hyperparameters near the middle of their prior."""
        plan = self.plan
        beta, w, p, hyper, log_rate, possible = self._first_program(key, data)
        if not bool(possible):
            raise StartError(
                "none of the parameters tried, draws of the prior of the base, make all of the "
                "observations possible: is the support of the base density too small for them, or "
                "the prior too far off?"
            )
        tuning = {}
        rated = int(plan.process.rated)
        if plan.joint and not plan.hyper.size:
            tuning["joint"] = JOINT.first_tuning(plan.layout.n, plan.base.size + rated + 1)
        if plan.joint and plan.hyper.size:
            size = plan.basis.number + plan.base.size + plan.hyper.size + rated
            tuning["all"] = EVERYTHING.first_tuning(1, size)
        if plan.hyper.size:
            tuning["hyper"] = SCALE.first_tuning(plan.layout.n, plan.hyper.size)
        # The state is given away in every call, so that it must not share arrays with the data.
        centre, half, unit = (jnp.array(a, copy=True) for a in (data.centre, data.half, data.unit))
        state = State(beta, w, p, hyper, log_rate, tuning, centre, half, unit, ())
        return self.first_own(state, data)

    def _first(self, key: jax.Array, data: GPData) -> tuple:
        plan = self.plan
        k = jax.random.split(key, 4)
        p = plan.base.first(data)
        shake = jax.random.normal(k[0], p.shape) * 0.5 / np.sqrt(plan.layout.n + 1)
        p, possible = self._shaken(p, shake, data)
        hyper = _near_the_middle(k[1], plan.hyper)
        log_rate = jnp.zeros(())
        if plan.process.rated:
            twice = 2 * (plan.layout.n + 1) / data.volume
            log_rate = jnp.log(twice) + 0.2 * jax.random.normal(k[2])
        beta = 0.3 * jax.random.normal(k[3], (plan.basis.number,))
        return beta, self.root_spectrum(hyper, data) * beta, p, hyper, log_rate, possible

    def _shaken(self, p: jax.Array, shake: jax.Array, data: GPData) -> tuple[jax.Array, jax.Array]:
        """p + shake, or less of it where an observation would be impossible; whether none is."""
        base = self.plan.base
        if not isinstance(base, FamilyBase):
            return p + shake, jnp.array(True)

        def impossible(turn: jax.Array) -> jax.Array:
            return jnp.isneginf(base.score(p + shake * 0.5**turn, data)) & (turn < HALVINGS)

        turns = jax.lax.while_loop(impossible, lambda turn: turn + 1.0, jnp.zeros(()))
        p = jnp.where(turns < HALVINGS, p + shake * 0.5**turns, p)
        return p, ~jnp.isneginf(base.score(p, data))

    def first_own(self, state: State, data: GPData) -> State:
        """What else the sampler keeps."""
        return state

    def described(self, state: State, data: GPData) -> dict[str, jax.Array]:
        """log Z and the log density at some of the data, to judge mixing by."""
        plan = self.plan
        if not plan.summed:
            return {}
        w = state.w
        log_Z = jnp.log(self.normaliser(self.at_nodes(w, data, state.base), state.base, data))
        u = data.x[:, data.probes]
        return self.followed(u, self.plan.basis.evaluate(w, u, jnp.int32(0)), log_Z, state, data)

    def followed(
        self, u: jax.Array, f: jax.Array, log_Z: jax.Array, state: State, data: GPData
    ) -> dict[str, jax.Array]:
        """log Z, and where there are observations the log density at some of them."""
        if not self.plan.layout.n:
            return {"log_normaliser": log_Z}
        value = self.plan.base.log_density(state.base, u, data) + jax.nn.log_sigmoid(f) - log_Z
        return {
            "log_normaliser": log_Z,
            "log_density": value - jnp.sum(jnp.log(data.half)),
        }

    def record(self, state: State) -> dict[str, jax.Array]:
        """f by its weights, and all parameters, in the units of the data."""
        return {
            "weights": state.w,
            **self.plan.base.record(state.base, state.centre, state.half),
            **self.plan.hyper.record(state.hyper, state.unit),
            **self.plan.process.record(state.log_rate),
        }

    def variables(self) -> dict[str, Variable]:
        """Names of dimensions. Weights are judged by what they amount to at the data."""
        return {
            "weights": Variable(("function",), exchangeable=True, by_kernel=False),
            "log_density": Variable(("probe",), diagnosed=True),
            "log_normaliser": Variable((), diagnosed=True),
            "base_mean": Variable(("axis",), by_kernel=False),
            "base_covariance": Variable(("axis", "other_axis"), by_kernel=False),
            "length_scale": Variable(("axis",), by_kernel=False),
        }


def _directions(D: jax.Array, gram: jax.Array, fitted: jax.Array) -> jax.Array:
    """V (M, F): beta that fit quadratic features at the data, as far as the prior lets them."""
    A = jnp.eye(D.shape[0]) + CURVATURE * D[:, None] * gram * D[None, :]
    return jax.scipy.linalg.solve(A, CURVATURE * D[:, None] * fitted, assume_a="pos")


def _near_the_middle(key: jax.Array, hyper: Hyperparameters) -> jax.Array:
    """Halfway between a draw of the prior and the mean of many."""
    prior = hyper.prior
    if prior is None:
        return jnp.zeros(0)
    drawn = jax.vmap(lambda own: prior.unconstrain(prior.sample(own)))(jax.random.split(key, 17))
    return 0.5 * drawn[0] + 0.5 * jnp.median(drawn[1:], axis=0)


class CollapsedSampler(GPSampler):
    """A kernel on (beta, base, hyperparameters, log rate)."""

    method = "collapsed"
    kernel: Any

    def __init__(self, plan: Plan, kernel: Any) -> None:
        super().__init__(plan)
        self.kernel = kernel
        self.kernel_name = repr(kernel)
        self.adapts = kernel.adapts

    def first_own(self, state: State, data: GPData) -> State:
        """A tuning for the whole position."""
        size = self.position(state).shape[0]
        return state._replace(tuning={"all": self.kernel.first_tuning(1, size)})

    def step(self, key: jax.Array, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        """One step of the kernel."""
        state, stats = self.move_everything(
            key, state, stage, data, self.kernel, jnp.int32(MOST_REJECTED)
        )
        kept = ("acceptance_rate", "diverging", "n_steps", "step_size")
        stats = {name: stats[name] for name in kept if name in stats}
        stats = {"rejected": jnp.int32(0), **stats, **self.described(state, data)}
        return state, Info(stats, jnp.int32(OK), jnp.zeros(()))
