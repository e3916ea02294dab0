r"""Algorithm 2 for Gaussian process densities and intensities with a finite basis.

A sweep: Y given f and the base; f (and hyperparameters) given X and Y, a classification; the base
given X and Y; then moves with Y summed out. Under a budget everything is restricted to |Y| <= B;
the moves with Y summed out know the probability of that, and Y is drawn until it fits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.acceptance import not_finite
from offcut.augmentation.joint import with_gradient
from offcut.augmentation.rejections import Redrawn, outcome, redraw
from offcut.base import BROKEN, OK, Info, Stage
from offcut.errors import StartError
from offcut.gp import polya_gamma as gaussian
from offcut.gp import proposals as points
from offcut.gp.base_density import FamilyBase
from offcut.gp.polya_gamma import polya_gamma
from offcut.gp.proposals import MOST_ATTEMPTS, Points
from offcut.gp.sampler import SCALE, GPData, GPSampler, Plan, State
from offcut.gp.updates import EllipticalSlice, PolyaGamma, elliptical_slice
from offcut.kernels.hmc import HMC
from offcut.kernels.tuning import stepped
from offcut.numerics.arrays import materialised
from offcut.numerics.normal import features
from offcut.numerics.normal import size as number_of_features

#: How parameters of a base without conjugate prior move.
FAMILY = HMC(num_steps=5, jitter=0.4)


class AugmentedSampler(GPSampler):
    """Rejections, and an update of f given them."""

    method = "augment"
    draws_rejections = True
    redraws = True

    def __init__(self, plan: Plan, update: Any) -> None:
        super().__init__(plan)
        self.kernel = self.update = update
        self.gibbs = isinstance(update, PolyaGamma)
        self.kernel_name = repr(update)
        self.adapts = True

    def first_own(self, state: State, data: GPData) -> State:
        """X in a buffer; a tuning for each kernel."""
        plan, tuning = self.plan, dict(state.tuning)
        if not self.gibbs and not isinstance(self.update, EllipticalSlice):
            tuning["function"] = self.update.first_tuning(1, plan.basis.number)
        if isinstance(plan.base, FamilyBase):
            tuning["family"] = FAMILY.first_tuning(plan.layout.n, plan.base.size)
        return state._replace(tuning=tuning, own=points.buffer_for(plan.layout, data.x, 1))

    def step(self, key: jax.Array, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        """One sweep."""
        k = jax.random.split(key, 5)
        attempts, held, over = self._rejections(k[0], state, stage, data)
        full = held.count > points.capacity_of(self.plan.layout, held)
        # Proposals of a family with heavy tails may overflow; f is NaN there.
        sound = points.all_finite(self.plan.layout, held)
        # The last sweep has moved f with Y summed out: there is no old Y to keep.
        status = outcome(over, full, known=False)
        status = jnp.where((status == OK) & ~sound, BROKEN, status)
        # A run that is void is made short, for nothing of it is used.
        held = held._replace(count=jnp.where(status == OK, held.count, 0))
        moved, stats = self._function(k[1], state, held, stage, data)
        moved, more = self._base(k[2], moved, held, stage, data)
        stats |= more
        moved = moved._replace(
            log_rate=self.plan.process.update_rate(
                k[3], moved.log_rate, self.plan.layout.n + held.count, data
            )
        )
        moved, more = self.summed_moves(k[4], moved, stage, data)
        stats |= more
        moved = moved._replace(own=held)
        described = self.described(moved, data)
        never = jnp.array(False)  # a sweep that does not fit ends the run
        stats = {"rejected": held.count, "attempts": attempts, "gave_up": never, **stats}
        stats |= described
        return moved, Info(stats, status, sound)

    def _rejections(self, key: jax.Array, state: State, stage: Stage, data: GPData) -> Redrawn:
        plan = self.plan
        key_run, key_total = jax.random.split(key)

        def attempt(number: jax.Array, last: Points) -> tuple[Points, jax.Array]:
            total = plan.process.number_of_proposals(
                jax.random.fold_in(key_total, number), state.log_rate, data
            )
            own = jax.random.fold_in(key_run, number)
            drawn = points.draw(
                plan.layout, plan.basis, plan.base, own, state.w, state.base, data, last,
                stage.budget, total,
            )  # fmt: skip
            return drawn, drawn.count > stage.budget

        return redraw(attempt, state.own, MOST_ATTEMPTS)

    # f given X and Y.

    def _function(
        self, key: jax.Array, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, dict[str, jax.Array]]:
        if self.gibbs:
            return self._gibbs(key, state, held, stage, data)
        key_f, key_hyper = jax.random.split(key)
        D = self.root_spectrum(state.hyper, data)
        stats: dict[str, jax.Array] = {}
        if isinstance(self.update, EllipticalSlice):
            beta = state.beta
            for turn in range(self.update.steps):
                beta = self._slice(jax.random.fold_in(key_f, turn), beta, D, held, data)
            state = state._replace(beta=beta)
        else:
            classes = partial(self._log_classes, held=held, data=data)
            beta, tuning, stats = stepped(
                self.update,
                key_f,
                state.beta,
                lambda beta: classes(D * beta) - 0.5 * beta @ beta,
                state.tuning["function"],
                stage,
            )
            stats = {
                name: stats[name]
                for name in ("acceptance_rate", "diverging", "n_steps", "step_size")
            }
            state = state._replace(beta=beta, tuning={**state.tuning, "function": tuning})
        if self.plan.hyper.size:
            beta = state.beta

            def log_density(position: jax.Array) -> jax.Array:
                w = self.root_spectrum(position, data) * beta
                return self.plan.hyper.log_prior(position) + self._log_classes(w, held, data)

            hyper, tuning, _ = stepped(
                SCALE, key_hyper, state.hyper, log_density, state.tuning["hyper"], stage
            )
            state = state._replace(hyper=hyper, tuning={**state.tuning, "hyper": tuning})
        w = self.root_spectrum(state.hyper, data) * state.beta
        return state._replace(w=w), stats

    def _gibbs(
        self, key: jax.Array, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, dict[str, jax.Array]]:
        """Pólya-Gamma variables, hyperparameters with f integrated out, then f."""
        plan = self.plan
        key_omega, key_hyper, key_f = jax.random.split(key, 3)
        n = plan.layout.n
        f = held.f.at[:n].set(self.at_data(state.w, data))
        omega = polya_gamma(key_omega, f, n + held.count, plan.layout.lanes)

        def add(sums: tuple, u: jax.Array, at: jax.Array, there: jax.Array) -> tuple:
            there = there & points.inside(u, data)
            weight = lax.dynamic_slice(omega, (at,), (plan.layout.chunk,))
            kappa = jnp.where(at + jnp.arange(plan.layout.chunk) < n, 0.5, -0.5)
            more = plan.basis.sums(
                u, jnp.where(there, weight, 0.0), jnp.where(there, kappa, 0.0), at
            )
            return jax.tree.map(jnp.add, sums, more)

        sums, b = points.in_chunks(plan.layout, held, add, plan.basis.no_sums())
        G = plan.basis.gram(sums)
        hyper, tuning = state.hyper, state.tuning
        if plan.hyper.size:

            def log_density(position: jax.Array) -> jax.Array:
                D = self.root_spectrum(position, data)
                return plan.hyper.log_prior(position) + gaussian.log_evidence(G, b, D)

            hyper, learnt, _ = stepped(SCALE, key_hyper, hyper, log_density, tuning["hyper"], stage)
            tuning = {**tuning, "hyper": learnt}
        D = self.root_spectrum(hyper, data)
        beta = gaussian.draw(key_f, G, b, D)
        return state._replace(beta=beta, w=D * beta, hyper=hyper, tuning=tuning), {}

    def _slice(
        self, key: jax.Array, beta: jax.Array, D: jax.Array, held: Points, data: GPData
    ) -> jax.Array:
        """Elliptical slice sampling; f is linear in beta, and is evaluated twice."""
        plan = self.plan
        key_prior, key_slice = jax.random.split(key)
        other = jax.random.normal(key_prior, beta.shape)
        both = [self._everywhere(D * part, held) for part in (beta, other)]

        def log_likelihood(pair: tuple) -> jax.Array:
            def add(total: jax.Array, u: jax.Array, at: jax.Array, there: jax.Array) -> jax.Array:
                f = lax.dynamic_slice(pair[1], (at,), (plan.layout.chunk,))
                sign = jnp.where(at + jnp.arange(plan.layout.chunk) < plan.layout.n, 1.0, -1.0)
                there = there & points.inside(u, data)
                return total + jnp.sum(jnp.where(there, jax.nn.log_sigmoid(sign * f), 0.0))

            return points.in_chunks(plan.layout, held, add, jnp.zeros(()))

        return elliptical_slice(key_slice, (beta, both[0]), (other, both[1]), log_likelihood)[0]

    def _everywhere(self, w: jax.Array, held: Points) -> jax.Array:
        """f at all proposals, (rows,)."""

        def add(values: jax.Array, u: jax.Array, at: jax.Array, there: jax.Array) -> jax.Array:
            f = materialised(at, lambda: self.plan.basis.evaluate(w, u, at))
            return lax.dynamic_update_slice(values, f, (at,))

        return points.in_chunks(self.plan.layout, held, add, jnp.zeros_like(held.f))

    def _log_classes(self, w: jax.Array, held: Points, data: GPData) -> jax.Array:
        """sum log sigma(f) over X + sum log sigma(-f) over Y, differentiable in w."""
        return with_gradient(partial(_classes_and_slope, self))(w, held, data)

    # The base given X and Y.

    def _base(
        self, key: jax.Array, state: State, held: Points, stage: Stage, data: GPData
    ) -> tuple[State, dict[str, jax.Array]]:
        plan = self.plan
        if not plan.base.size:
            return state, {}
        if isinstance(plan.base, FamilyBase):
            p, tuning, stats = stepped(
                FAMILY,
                key,
                state.base,
                lambda p: (
                    plan.base.log_prior(p, data)
                    + with_gradient(partial(_base_and_slope, self))(p, held, data)
                ),
                state.tuning["family"],
                stage,
            )
            state = state._replace(base=p, tuning={**state.tuning, "family": tuning})
            return state, {"base_acceptance": stats["acceptance_rate"]}

        def add(total: jax.Array, u: jax.Array, at: jax.Array, there: jax.Array) -> jax.Array:
            return total + features(u) @ there.astype(float)

        none = jnp.zeros(number_of_features(plan.basis.d))
        total = points.in_chunks(plan.layout, held, add, none)
        return state._replace(base=plan.base.update(key, state.base, total, data)), {}

    # The buffer.

    def capacity(self, state: State) -> int:
        """Rejections that there is room for."""
        return points.capacity_of(self.plan.layout, state.own)

    def resized(self, state: State, capacity: int) -> State:
        """More room."""
        x = state.own.u[:, : self.plan.layout.n]
        return state._replace(own=points.buffer_for(self.plan.layout, x, capacity))

    def row_bytes(self, state: State) -> int:
        """A point and f there."""
        return 8 * (self.plan.basis.d + 1)

    def rejected(self, state: State) -> int:
        """|Y| of the last sweep."""
        return int(state.own.count)

    def explain(self, state: State, evidence: Any) -> Exception:
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
    sampler: AugmentedSampler, w: jax.Array, held: Points, data: GPData
) -> tuple[jax.Array, jax.Array]:
    """Value and gradient in w, in chunks."""
    plan = sampler.plan

    def add(sums: tuple, u: jax.Array, at: jax.Array, there: jax.Array) -> tuple:
        there = there & points.inside(u, data)
        f = materialised(at, lambda: plan.basis.evaluate(w, u, at))
        sign = jnp.where(at + jnp.arange(plan.layout.chunk) < plan.layout.n, 1.0, -1.0)
        value = jnp.sum(jnp.where(there, jax.nn.log_sigmoid(sign * f), 0.0))
        pull = jnp.where(there, sign * jax.nn.sigmoid(-sign * f), 0.0)
        return sums[0] + value, sums[1] + plan.basis.project(u, pull, at)

    return points.in_chunks(plan.layout, held, add, (jnp.zeros(()), jnp.zeros(w.shape)))


def _base_and_slope(
    sampler: AugmentedSampler, p: jax.Array, held: Points, data: GPData
) -> tuple[jax.Array, jax.Array]:
    """sum log g0 over X and Y and its gradient in p, in chunks."""
    plan = sampler.plan
    first = data.x[:, :1]

    def add(sums: tuple, u: jax.Array, at: jax.Array, there: jax.Array) -> tuple:
        safe = jnp.where(there[None, :], u, first)

        def total(p: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(there, plan.base.log_density(p, safe, data), 0.0))

        value, slope = jax.value_and_grad(total)(p)
        return sums[0] + value, sums[1] + slope

    return points.in_chunks(plan.layout, held, add, (jnp.zeros(()), jnp.zeros(p.shape)))
