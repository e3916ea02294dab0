"""What exchange and pseudo-marginal share: a random walk judged by fresh simulations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from offcut.augmentation.joint import Observed, log_unnormalised
from offcut.augmentation.layout import MOST_REJECTED, Layout, Rejected, empty_rejected
from offcut.errors import SettingsError
from offcut.imputation.impute import first_imputed, refuse_impossible_zones
from offcut.kernels.random_walk import walk
from offcut.kernels.tuning import Tuning, tuned
from offcut.model_sampler import ModelSampler
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.promises import broken_promise, is_broken, not_finite
from offcut.sampler import BROKEN, FULL, OK, Info, Stage
from offcut.start import find_start


class State(NamedTuple):
    """Position, an estimate that travels with it (unused by exchange), |Y| of its run, tuning.

    ``patience`` is how many rejections one run may have before the step hands back to the driver,
    which doubles it and runs the step again: without a budget a proposed theta may need any number.
    """

    position: jax.Array
    exact: Theta
    log_estimate: jax.Array
    rejected: jax.Array
    tuning: Tuning
    patience: jax.Array
    imputed: Any = None  # values of what is hidden in the data


class Sound(NamedTuple):
    """Whether the densities that a ratio is made of are finite, at theta and at the new one."""

    here: jax.Array
    there: jax.Array


class WalkSampler(ModelSampler):
    """What exchange and pseudo-marginal share: a random walk judged by fresh simulations.

    Exact updates of blocks of theta draw from p(theta1 | X, theta2), which a budget would tilt by
    an intractable factor; such models need a kernel that keeps Y.
    """

    smallest_scale = 0.0

    def __init__(self, model: RejectionModel, layout: Layout, kernel: Any) -> None:
        if model.exact_updates:
            raise SettingsError(
                f"{type(kernel).__name__} cannot be combined with exact_updates: under a budget "
                "the pair (theta1, Y) must be redrawn together; use NUTS, HMC or RandomWalk"
            )
        super().__init__(model, layout, kernel)
        self._log_f = log_unnormalised(model, layout)

    def start(self, key: jax.Array, data: Observed, budget: int) -> State:
        """A place where the model accepts."""
        key_start, key_estimate = jax.random.split(key)
        theta, rejected = find_start(self.model, self.layout, key_start, data, budget)
        position, exact = self.model.prior.split(theta)
        points = self.layout.n + int(rejected.count)
        tuning = self.kernel.first_tuning(points, position.shape[0])
        estimate = self.first_estimate(key_estimate, theta, data, int(rejected.count))
        imputed = first_imputed(data)
        refuse_impossible_zones(self.model, key, theta, data, imputed)
        patience = jnp.int32(points)
        return State(position, exact, estimate, rejected.count, tuning, patience, imputed)

    def stationary(self, key: jax.Array, theta: Theta, data: Observed, rejected: Rejected) -> State:
        """The state at theta with a Y drawn from the model (for the invariance test)."""
        position, exact = self.model.prior.split(theta)
        tuning = self.kernel.first_tuning(2 * self.layout.n, position.shape[0])
        estimate = self.stationary_estimate(key, theta, data)
        patience = jnp.int32(MOST_REJECTED)
        imputed = first_imputed(data)
        return State(position, exact, estimate, rejected.count, tuning, patience, imputed)

    def stationary_estimate(self, key: jax.Array, theta: Theta, data: Observed) -> jax.Array:
        """What travels with a position at stationarity."""
        return jnp.zeros(())

    def first_estimate(
        self, key: jax.Array, theta: Theta, data: Observed, rejected: int
    ) -> jax.Array:
        """What travels with the first position."""
        return jnp.zeros(())

    def log_ratio(
        self, key: jax.Array, theta: Theta, new_theta: Theta, state: State, stage: Stage, data: Any
    ) -> tuple:
        """Log acceptance ratio without the prior, new estimate, |Y'|, worst log a, whether
        patience ran out, and what is sound.
        """
        raise NotImplementedError

    def empty_buffer(self, data: Observed) -> Any:
        """Runs of these samplers only count their rejections."""
        like = jax.tree.map(lambda a: a[0], data.points)
        return empty_rejected(self.layout, like, self.layout.chunk)

    def step(
        self, key: jax.Array, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """Propose, simulate, decide."""
        prior = self.model.prior
        key_walk, key_simulate, key_accept = jax.random.split(key, 3)
        before = state
        # Its own fold: models with nothing hidden keep their bits.
        state, data, imputing = self.complete(jax.random.fold_in(key, 3), state, data)
        position = walk(key_walk, state.position, state.tuning)
        theta = prior.constrain(state.position, state.exact)
        new_theta = prior.constrain(position, state.exact)
        ratio, estimate, rejected, worst, full, sound = self.log_ratio(
            key_simulate, theta, new_theta, state, stage, data
        )
        log_prior = prior.log_density(position, state.exact)
        log_prior_here = prior.log_density(state.position, state.exact)
        ratio += log_prior
        ratio -= log_prior_here
        over = rejected > stage.budget
        usable = ~over & ~jnp.isnan(ratio)
        rate = jnp.exp(jnp.minimum(jnp.where(usable, ratio, -jnp.inf), 0.0))
        accepted = jax.random.uniform(key_accept) < rate
        # What happens at a theta that the prior excludes does not matter.
        there = sound.there | ~jnp.isfinite(log_prior)
        broken = is_broken(worst.log_accept) | ~sound.here | ~there
        moved = state._replace(position=position, log_estimate=estimate, rejected=rejected)
        new = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), moved, state)
        if self.adapts:
            target = self.kernel.target_acceptance
            # A refusal by the budget says nothing about the scale where no step is small enough;
            # but far out, where data and prior alone would refuse, it is the step's own fault.
            unfiltered = self._log_f(new_theta, data.points, data.covariates)
            unfiltered -= self._log_f(theta, data.points, data.covariates)
            likely = jnp.exp(jnp.minimum(unfiltered + log_prior - log_prior_here, 0.0))
            told = jnp.where(over, jnp.where(likely < target, likely, jnp.nan), rate)
            tuning = tuned(state.tuning, stage, new.position, told, target, self.smallest_scale)
            new = new._replace(tuning=tuning)
        stats = {
            "rejected": new.rejected,
            "acceptance_rate": rate,
            "accepted": accepted,
            "over_budget": over,
            "step_size": state.tuning.step_size,
            **imputing,
        }
        status = jnp.where(broken, BROKEN, jnp.where(full, FULL, OK))
        new = jax.tree.map(lambda a, b: jnp.where(status == OK, a, b), new, before)
        return new, Info(stats, status, (theta, new_theta, worst, Sound(sound.here, there)))

    def capacity(self, state: State) -> int:
        """How many rejections one run may have."""
        return int(state.patience)

    def resized(self, state: State, capacity: int) -> State:
        """The same state with more patience."""
        return state._replace(patience=jnp.int32(min(capacity, MOST_REJECTED)))

    def rejected(self, state: State) -> int:
        """|Y| of the run that led to the current position."""
        return int(state.rejected)

    def explain(self, state: State, evidence: Any) -> Exception:
        """log_accept was NaN or above 0, or numbers overflowed."""
        theta, new_theta, worst, sound = evidence
        if is_broken(worst.log_accept):
            return broken_promise(self.model, new_theta, worst.point, float(worst.log_accept))
        if not sound.here:
            return not_finite(theta, "the log density of the data")
        return not_finite(new_theta, "the log density of pseudo-data drawn there")
