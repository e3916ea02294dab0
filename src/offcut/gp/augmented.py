r"""Algorithm 2 for Gaussian process densities and intensities with a finite basis.

A sweep: Y given f and the base; f (and hyperparameters) given X and Y, a classification; the base
given X and Y; then moves with Y summed out. Under a budget everything is restricted to |Y| <= B;
the moves with Y summed out know the probability of that, and Y is drawn until it fits.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from offcut.augmentation.acceptance import not_finite
from offcut.augmentation.joint import with_gradient
from offcut.augmentation.rejections import Redrawn, outcome, redraw
from offcut.base import BROKEN, OK, Info, Kernel, Stage, Stats
from offcut.errors import StartError
from offcut.gp import polya_gamma as gaussian
from offcut.gp import proposals as points
from offcut.gp import types as t
from offcut.gp.base_density import FamilyBase
from offcut.gp.data import GPData
from offcut.gp.plan import Plan
from offcut.gp.polya_gamma import polya_gamma
from offcut.gp.proposals import MOST_ATTEMPTS, Chunk, Points
from offcut.gp.sampler import KEPT, GPSampler, State, stepped_on
from offcut.gp.updates import EllipticalSlice, PolyaGamma, elliptical_slice
from offcut.kernels.hmc import HMC
from offcut.numerics.normal import features
from offcut.numerics.normal import size as number_of_features
from offcut.numerics.types import KeyArray

#: How parameters of a base without conjugate prior move.
FAMILY = HMC(num_steps=5, jitter=0.4)


class AugmentedSampler(GPSampler):
    """Rejections, and a kernel that moves f given them."""

    method = "augment"
    draws_rejections = True
    redraws = True
    adapts = True
    kernel: Kernel

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        super().__init__(plan)
        self.kernel, self.kernel_name = kernel, repr(kernel)
        self.gibbs = isinstance(kernel, PolyaGamma)

    def first_own(self, state: State, data: GPData) -> State:
        """X in a buffer; a tuning for each kernel."""
        plan, tuning = self.plan, dict(state.tuning)
        function = self.kernel.first_tuning(1, plan.basis.number)
        if function is not None:
            tuning["function"] = function
        if isinstance(plan.base, FamilyBase):
            tuning["family"] = FAMILY.first_tuning(data.n, plan.base.size)
        held = points.buffer_for(plan.layout, data.x, data.n, 1)
        return state._replace(tuning=tuning, points=held)

    def step(self, key: KeyArray, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        """One sweep."""
        k = jax.random.split(key, 5)
        attempts, held, over = self._rejections(k[0], state, stage, data)
        full = held.count > points.capacity_of(self.plan.layout, held)
        # Proposals of a family with heavy tails may overflow; f is NaN there.
        sound = points.all_finite(held)
        # The last sweep has moved f with Y summed out: there is no old Y to keep.
        status = outcome(over, full, known=False)
        status = jnp.where((status == OK) & ~sound, BROKEN, status)
        # A run that is void is made short, for nothing of it is used.
        held = held._replace(count=jnp.where(status == OK, held.count, 0))
        moved, of_function = self._function(k[1], state, held, stage, data)
        moved, of_base = self._base(k[2], moved, held, stage, data)
        log_rate = self.plan.process.update_rate(k[3], moved.log_rate, held.last, data)
        moved = moved._replace(log_rate=log_rate)
        moved, of_sums = self.summed_moves(k[4], moved, stage, data)
        moved = moved._replace(points=held)
        never = jnp.array(False)  # a sweep that does not fit ends the run
        stats = {"rejected": held.count, "attempts": attempts, "gave_up": never}
        stats |= of_function | of_base | of_sums | self.described(moved, data)
        return moved, Info(stats, status, sound)

    def _rejections(self, key: KeyArray, state: State, stage: Stage, data: GPData) -> Redrawn:
        plan = self.plan
        key_run, key_total = jax.random.split(key)

        def attempt(number: t.Count, last: Points) -> tuple[Points, t.Flag]:
            total = plan.process.number_of_proposals(
                jax.random.fold_in(key_total, number), state.log_rate, data
            )
            own = jax.random.fold_in(key_run, number)
            drawn = points.draw(
                plan.layout, plan.basis, plan.base, own, state.w, state.base, data, last,
                stage.budget, total,
            )  # fmt: skip
            return drawn, drawn.count > stage.budget

        return redraw(attempt, state.points, MOST_ATTEMPTS)

    # f given X and Y.

    def _function(
        self, key: KeyArray, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, Stats]:
        """f moved by the kernel, then hyperparameters given beta."""
        if self.gibbs:
            return self._gibbs(key, state, held, stage, data)
        key_f, key_hyper = jax.random.split(key)
        D = self.root_spectrum(state.hyper, data)
        stats: Stats = {}
        if isinstance(self.kernel, EllipticalSlice):
            beta = state.beta
            for number in range(self.kernel.steps):
                beta = self._slice(jax.random.fold_in(key_f, number), beta, D, held, data)
        else:
            beta, state, stats = stepped_on(
                "function",
                self.kernel,
                key_f,
                state,
                state.beta,
                lambda beta: self._log_classes(D * beta, held, data) - 0.5 * beta @ beta,
                stage,
            )
            stats = {name: stats[name] for name in KEPT}

        def classes(hyper: t.Hyper) -> t.Number:
            return self._log_classes(self.root_spectrum(hyper, data) * beta, held, data)

        state = self.move_hyper(key_hyper, state, stage, classes)
        return state._replace(beta=beta, w=self.root_spectrum(state.hyper, data) * beta), stats

    def _gibbs(
        self, key: KeyArray, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, Stats]:
        """Pólya-Gamma variables, hyperparameters with f integrated out, then f."""
        plan = self.plan
        key_omega, key_hyper, key_f = jax.random.split(key, 3)
        rows = plan.layout.rows
        f_data = jnp.where(jnp.arange(rows) < held.n, self.at_data(state.w, data), held.f[:rows])
        omega = polya_gamma(key_omega, held.f.at[:rows].set(f_data), held.last, plan.layout.lanes)

        def add(sums: tuple, chunk: Chunk) -> tuple:
            there = chunk.there & points.inside(chunk.u, data)
            weight = lax.dynamic_slice(omega, (chunk.at,), there.shape)
            kappa = jnp.where(there, 0.5 * chunk.sign, 0.0)
            more = plan.basis.sums(chunk.u, jnp.where(there, weight, 0.0), kappa)
            return jax.tree.map(jnp.add, sums, more)

        sums, b = points.in_chunks(plan.layout, held, add, plan.basis.no_sums())
        G = plan.basis.gram(sums)

        def evidence(hyper: t.Hyper) -> t.Number:
            return gaussian.log_evidence(G, b, self.root_spectrum(hyper, data))

        state = self.move_hyper(key_hyper, state, stage, evidence)
        D = self.root_spectrum(state.hyper, data)
        beta = gaussian.draw(key_f, G, b, D)
        return state._replace(beta=beta, w=D * beta), {}

    def _slice(
        self, key: KeyArray, beta: t.Weights, D: t.Weights, held: Points, data: GPData
    ) -> t.Weights:
        """Elliptical slice sampling; f is linear in beta, and is evaluated twice."""
        plan = self.plan
        key_prior, key_slice = jax.random.split(key)
        other = jax.random.normal(key_prior, beta.shape)
        both = [self._everywhere(D * part, held) for part in (beta, other)]

        def log_likelihood(pair: tuple) -> t.Number:
            def add(total: t.Number, chunk: Chunk) -> t.Number:
                there = chunk.there & points.inside(chunk.u, data)
                f = lax.dynamic_slice(pair[1], (chunk.at,), there.shape)
                return total + jnp.sum(jnp.where(there, jax.nn.log_sigmoid(chunk.sign * f), 0.0))

            return points.in_chunks(plan.layout, held, add, jnp.zeros(()))

        return elliptical_slice(key_slice, (beta, both[0]), (other, both[1]), log_likelihood)[0]

    def _everywhere(self, w: t.Weights, held: Points) -> Float[Array, " rows"]:
        """f at all proposals."""

        def add(values: Float[Array, " rows"], chunk: Chunk) -> Float[Array, " rows"]:
            return lax.dynamic_update_slice(values, self._at_chunk(w, chunk), (chunk.at,))

        return points.in_chunks(self.plan.layout, held, add, jnp.zeros_like(held.f))

    def _at_chunk(self, w: t.Weights, chunk: Chunk) -> Float[Array, " chunk"]:
        return lax.optimization_barrier(self.plan.basis.evaluate(w, chunk.u))

    def _log_classes(self, w: t.Weights, held: Points, data: GPData) -> t.Number:
        """sum log sigma(f) over X + sum log sigma(-f) over Y, differentiable in w."""
        return with_gradient(partial(_classes_and_slope, self))(w, held, data)

    # The base given X and Y.

    def _base(
        self, key: KeyArray, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, Stats]:
        plan = self.plan
        if not plan.base.size:
            return state, {}
        if isinstance(plan.base, FamilyBase):
            over_all = with_gradient(partial(_base_and_slope, self))
            p, state, stats = stepped_on(
                "family",
                FAMILY,
                key,
                state,
                state.base,
                lambda p: plan.base.log_prior(p, data) + over_all(p, held, data),
                stage,
            )
            return state._replace(base=p), {"base_acceptance": stats["acceptance_rate"]}

        def add(total: t.Features, chunk: Chunk) -> t.Features:
            return total + features(chunk.u) @ chunk.there.astype(float)

        none = jnp.zeros(number_of_features(plan.basis.d))
        total = points.in_chunks(plan.layout, held, add, none)
        return state._replace(base=plan.base.update(key, total, data)), {}

    # The buffer.

    def capacity(self, state: State) -> int:
        return points.capacity_of(self.plan.layout, state.points)

    def resized(self, state: State, capacity: int) -> State:
        return state._replace(points=points.grown(self.plan.layout, state.points, capacity))

    def row_bytes(self, state: State) -> int:
        """A point and f there."""
        return 8 * (self.plan.basis.d + 1)

    def rejected(self, state: State) -> int:
        return int(state.points.count)

    def explain(self, state: State, evidence: t.Flag) -> Exception:
        """No attempt stayed within the budget, or proposals overflowed."""
        if not evidence:
            theta = {k: v for k, v in self.record(state).items() if k != "weights"}
            return not_finite(theta, "a proposal, or f there,")
        return StartError(
            f"{MOST_ATTEMPTS:,} attempts to draw rejections in a row exceeded the budget: it "
            'excludes what the data ask for. Raise the budget, leave it at "auto", or take a '
            "base density closer to the data or a smaller variance of the process"
        )


def _classes_and_slope(
    sampler: AugmentedSampler, w: t.Weights, held: Points, data: GPData
) -> tuple[t.Number, t.Weights]:
    """Value and gradient in w, in chunks."""
    plan = sampler.plan

    def add(sums: tuple, chunk: Chunk) -> tuple:
        there, sign = chunk.there & points.inside(chunk.u, data), chunk.sign
        f = sampler._at_chunk(w, chunk)
        value = jnp.sum(jnp.where(there, jax.nn.log_sigmoid(sign * f), 0.0))
        pull = jnp.where(there, sign * jax.nn.sigmoid(-sign * f), 0.0)
        return sums[0] + value, sums[1] + plan.basis.project(chunk.u, pull)

    return points.in_chunks(plan.layout, held, add, (jnp.zeros(()), jnp.zeros(w.shape)))


def _base_and_slope(
    sampler: AugmentedSampler, p: t.Parameters, held: Points, data: GPData
) -> tuple[t.Number, t.Parameters]:
    """sum log g0 over X and Y and its gradient in p, in chunks."""
    plan = sampler.plan
    first = data.x[:, :1]

    def add(sums: tuple, chunk: Chunk) -> tuple:
        safe = jnp.where(chunk.there[None, :], chunk.u, first)

        def total(p: t.Parameters) -> t.Number:
            return jnp.sum(jnp.where(chunk.there, plan.base.log_density(p, safe, data), 0.0))

        value, slope = jax.value_and_grad(total)(p)
        return sums[0] + value, sums[1] + slope

    return points.in_chunks(plan.layout, held, add, (jnp.zeros(()), jnp.zeros(p.shape)))
