"""Random walks judged by fresh simulations: exchange and pseudo-marginal, the classic rivals.

*Exchange* (Murray, Ghahramani & MacKay 2006). Propose theta'; draw one pseudo-observation for each
observation at theta' with the same rejection sampler; accept with

    p(theta') f(X, theta') f(Xhat, theta) / { p(theta) f(X, theta) f(Xhat, theta') }.

The bound M(theta) cancels, so q a may stand for f. Under a budget theta' is refused where its
run needed more than B rejections: the target is then exactly the restricted posterior, and the
count of the last accepted run is a draw of |Y| from it (Y' is independent of Xhat, so detailed
balance holds for the pair (theta, Y)).

*Pseudo-marginal Metropolis* (Andrieu & Roberts 2009) with an unbiased estimate of (M/Z)^n. With k
rejections before r acceptances, all observations sharing one proposal,

    C(r + n + k - 1, k) / C(r + k - 1, k)

is unbiased for (M/Z)^n, with relative variance about n^2 (1 - Z/M) / r. Where each observation
has its own proposal, (r + k_i) / r is unbiased for M_i/Z_i, k_i the rejections before r acceptances
of observation i. The estimate of the current state is kept, never refreshed.
Under a budget the indicator |Y'| <= B comes from a run of its own: taken from the same run as the
estimate it would change the target.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.acceptance import (
    Worst,
    broken_promise,
    is_broken,
    merge_worst,
    no_worst,
    not_finite,
)
from offcut.augmentation.algorithm1 import run_algorithm_1, run_per_observation, run_shared
from offcut.augmentation.impute import Imputed, first_imputed
from offcut.augmentation.joint import log_unnormalised, total
from offcut.augmentation.rejections import Layout, Rejected, empty_rejected, settle
from offcut.base import BROKEN, FULL, MOST_REJECTED, OK, Info, Kernel, Stage, Tuning
from offcut.errors import SettingsError
from offcut.kernels.tuning import target_of, tuned
from offcut.methods import MethodSettings, PseudoMarginal
from offcut.models.data import Covariates, Observed
from offcut.models.prior import Position, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.arrays import as_argument
from offcut.numerics.types import KeyArray
from offcut.samplers.algorithm2 import Evidence, ModelSampler, Move
from offcut.samplers.start import Start, find_start

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]
#: A number that nobody reads, or log estimate and r.
Estimate = Float[Array, ""] | Float[Array, "2"]


class State(NamedTuple):
    """Position, an estimate that travels with it (unused by exchange), |Y| of its run, tuning.

    ``patience`` is how many rejections one run may have before the step hands back to the driver,
    which doubles it and runs the step again: without a budget a proposed theta may need any number.
    """

    position: Position
    exact: Theta
    log_estimate: Estimate
    rejected: Count
    tuning: Tuning
    patience: Count
    imputed: Imputed | None = None


class Proposal(NamedTuple):
    """A step of the walk: theta and the proposed one, and log q a of the data at each."""

    theta: Theta
    new_theta: Theta
    here: Scalar
    there: Scalar


class Sound(NamedTuple):
    """Whether the densities that a ratio is made of are finite, at theta and at the new one."""

    here: Flag
    there: Flag


class Judgement(NamedTuple):
    """What a simulation at the proposed theta says of it.

    log_ratio : log acceptance ratio without the prior.
    log_estimate : what travels with the new position.
    rejected : |Y'| of the simulation.
    worst : the worst log a that was met.
    full : whether patience ran out before the budget did.
    """

    log_ratio: Scalar
    log_estimate: Estimate
    rejected: Count
    worst: Worst
    full: Flag
    sound: Sound


def decided(key: KeyArray, log_ratio: Scalar, over: Flag) -> tuple[Flag, Scalar]:
    """Whether a proposal is accepted, and its probability: 0 where the run was over its budget."""
    usable = ~over & ~jnp.isnan(log_ratio)
    rate = jnp.exp(jnp.minimum(jnp.where(usable, log_ratio, -jnp.inf), 0.0))
    return jax.random.uniform(key) < rate, rate


def log_power_estimate(r: Scalar, n: Count | int, k: Scalar) -> Scalar:
    """log of C(r + n + k - 1, k) / C(r + k - 1, k), k rejections before r acceptances."""
    return gammaln(r + n + k) - gammaln(r + n) - gammaln(r + k) + gammaln(r)


class WalkSampler(ModelSampler[State]):
    """What exchange and pseudo-marginal share: a random walk judged by fresh simulations.

    Exact updates of blocks of theta draw from p(theta1 | X, theta2), which a budget would tilt by
    an intractable factor; such models need a route that keeps Y.
    """

    #: No step is smaller than this, in one dimension.
    smallest_scale = 0.0

    def __init__(
        self,
        model: RejectionModel,
        layout: Layout,
        kernel: Kernel,
        covariates: Covariates = (),
        settings: MethodSettings | None = None,
    ) -> None:
        if model.exact_updates:
            raise SettingsError(
                f"method={self.method!r} cannot be combined with exact_updates: under a budget "
                "the pair (theta1, Y) must be redrawn together; use method='augment'"
            )
        super().__init__(model, layout, kernel)
        self.method_settings = settings
        self._log_f = log_unnormalised(model, layout)

    def begin(
        self, key: KeyArray, data: Observed, limit: Count, buffer: Rejected, at_prior: Flag
    ) -> tuple[State, Start]:
        """A place where the model accepts."""
        key_start, key_estimate = jax.random.split(key)
        found = find_start(self.model, self.layout, key_start, data, limit, buffer, at_prior)
        position, exact, count = found.position, found.climbed.exact, found.run.rejected.count
        patience = data.n + count
        tuning = self.kernel.first_tuning(patience, position.shape[0])
        theta = self.model.prior.constrain(position, exact)
        # Where there is no start, nothing is estimated either: it might take for ever.
        estimate = jax.lax.cond(
            found.found & ~at_prior,
            lambda: self.first_estimate(key_estimate, theta, data, count),
            lambda: self.no_estimate(),
        )
        imputed = first_imputed(data)
        return State(position, exact, estimate, count, tuning, patience, imputed), found

    def stationary(self, key: KeyArray, theta: Theta, data: Observed, rejected: Rejected) -> State:
        """The state at theta with a Y drawn from the model (for the invariance test)."""
        position, exact = self.model.prior.split(theta)
        tuning = self.kernel.first_tuning(2 * data.n, position.shape[0])
        estimate = self.stationary_estimate(key, theta, data)
        patience = jnp.int32(MOST_REJECTED)
        imputed = first_imputed(data)
        return State(position, exact, estimate, rejected.count, tuning, patience, imputed)

    def stationary_estimate(self, key: KeyArray, theta: Theta, data: Observed) -> Estimate:
        """What travels with a position at stationarity."""
        return jnp.zeros(())

    def no_estimate(self) -> Estimate:
        """What travels with a position of which nothing is known."""
        return jnp.zeros(())

    def first_estimate(
        self, key: KeyArray, theta: Theta, data: Observed, rejected: Count
    ) -> Estimate:
        """What travels with the first position."""
        return self.no_estimate()

    def judge(
        self, key: KeyArray, proposal: Proposal, state: State, stage: Stage, data: Observed
    ) -> Judgement:
        """Simulate at the proposed theta."""
        raise NotImplementedError

    def empty_buffer(self, data: Observed) -> Rejected:
        """Runs of these samplers only count their rejections."""
        like = jax.tree.map(lambda a: a[0], data.points)
        return empty_rejected(self.layout, like, self.layout.chunk)

    def moves(self, key: KeyArray, state: State) -> list[tuple[KeyArray, Move]]:
        """theta, and with exchange |Y|."""
        # Its own fold: models with nothing hidden keep their bits.
        hidden = [] if state.imputed is None else [(jax.random.fold_in(key, 3), self.impute)]
        return [*hidden, (key, self.metropolis)]

    def metropolis(
        self, key: KeyArray, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """theta, by a fresh run at theta': propose, simulate, decide."""
        prior = self.model.prior
        key_walk, key_simulate, key_accept = jax.random.split(key, 3)
        position = self.kernel.propose(key_walk, state.position, state.tuning)
        theta = prior.constrain(state.position, state.exact)
        new_theta = prior.constrain(position, state.exact)
        proposal = Proposal(
            theta,
            new_theta,
            self._log_f(theta, data.points, data.covariates, data.n),
            self._log_f(new_theta, data.points, data.covariates, data.n),
        )
        judged = self.judge(key_simulate, proposal, state, stage, data)
        log_prior = prior.log_density(position, state.exact)
        log_prior_here = prior.log_density(state.position, state.exact)
        ratio = judged.log_ratio + log_prior
        ratio -= log_prior_here
        over = judged.rejected > stage.budget
        accepted, rate = decided(key_accept, ratio, over)
        # What happens at a theta that the prior excludes does not matter.
        there = judged.sound.there | ~jnp.isfinite(log_prior)
        broken = is_broken(judged.worst.log_accept) | ~judged.sound.here | ~there
        moved = state._replace(
            position=position, log_estimate=judged.log_estimate, rejected=judged.rejected
        )
        new = settle(accepted, moved, state)
        if self.adapts:
            target = target_of(self.kernel)
            # A refusal by the budget says nothing about the scale where no step is small enough;
            # but far out, where data and prior alone would refuse, it is the step's own fault.
            unfiltered = proposal.there - proposal.here + log_prior - log_prior_here
            likely = jnp.exp(jnp.minimum(unfiltered, 0.0))
            learnt = jnp.where(over, jnp.where(likely < target, likely, jnp.nan), rate)
            smallest = self.smallest_scale / max(prior.size, 1) ** 0.5
            tuning = tuned(state.tuning, stage, new.position, learnt, target, smallest)
            new = new._replace(tuning=tuning)
        stats = {
            "rejected": new.rejected,
            "acceptance_rate": rate,
            "accepted": accepted,
            "over_budget": over,
            "step_size": state.tuning.step_size,
        }
        status = jnp.where(broken, BROKEN, jnp.where(judged.full, FULL, OK)).astype(jnp.int32)
        evidence = {
            "here": theta,
            "there": new_theta,
            "worst": judged.worst,
            "sound": judged.sound.here,
        }
        return new, Info(stats, status, evidence)

    def capacity(self, state: State) -> int:
        """How many rejections one run may have."""
        return int(state.patience)

    def resized(self, state: State, capacity: int) -> State:
        """The same state with more patience."""
        return state._replace(patience=as_argument(np.int32(min(capacity, MOST_REJECTED))))

    def rejected(self, state: State) -> int:
        """|Y| of the run that led to the current position."""
        return int(state.rejected)

    def explain(self, state: State, evidence: Evidence) -> Exception:
        """log_accept was NaN or above 0, or numbers overflowed."""
        here, there, worst = evidence["here"], evidence["there"], evidence["worst"]
        if is_broken(worst.log_accept):
            return broken_promise(self.model, there, worst.point, float(worst.log_accept))
        if not evidence["sound"]:
            return not_finite(here, "the log density of the data")
        return not_finite(there, "the log density of pseudo-data drawn there")


class ExchangeSampler(WalkSampler):
    """Swap the parameters of data and pseudo-data."""

    method = "exchange"

    def judge(
        self, key: KeyArray, proposal: Proposal, state: State, stage: Stage, data: Observed
    ) -> Judgement:
        """Ratio of f over data and pseudo-data, swapped."""
        run = run_algorithm_1(
            self.model,
            self.layout,
            key,
            proposal.new_theta,
            data,
            self.empty_buffer(data),
            jnp.minimum(stage.budget, state.patience),
            keep_accepted=True,
            store=False,
        )
        # Behind the last stand zeros, which the sum replaces by the first.
        pseudo = run.kept
        # A run cut short by the budget leaves rows of zeros; the data stand in, it is refused.
        complete = run.accepted >= data.n
        pseudo = jax.tree.map(lambda a, b: jnp.where(complete, a, b), pseudo, data.points)
        own = self._log_f(proposal.new_theta, pseudo, data.covariates, data.n)
        swapped = self._log_f(proposal.theta, pseudo, data.covariates, data.n)
        ratio = proposal.there - proposal.here + swapped - own
        # Data have a density where the chain stands, and pseudo-data at the theta that they come
        # from, unless numbers overflowed.
        sound = Sound(jnp.isfinite(proposal.here), jnp.isfinite(own) | ~complete)
        ratio = jnp.where(complete, ratio, -jnp.inf)
        count = run.rejected.count
        full = (count > state.patience) & (count <= stage.budget)
        return Judgement(ratio, state.log_estimate, count, run.worst, full, sound)


class PseudoMarginalSampler(WalkSampler):
    """The estimate travels with the position; r travels with it too, as a constant."""

    method = "pseudo_marginal"

    # The noise of the estimate does not vanish with the step: without a floor, warm-up would chase
    # the target acceptance down to a step of zero.
    smallest_scale = 0.24

    @property
    def acceptances(self) -> int | None:
        """r, where the user gave it."""
        return PseudoMarginal.of(self.method_settings).acceptances

    def no_estimate(self) -> Estimate:
        """(log estimate, r)."""
        return jnp.zeros(2)

    def first_estimate(
        self, key: KeyArray, theta: Theta, data: Observed, rejected: Count
    ) -> Estimate:
        """(log estimate, r): r is fixed here for the whole run."""
        wanted = jnp.asarray(self.acceptances or 0, jnp.int32)
        if self.acceptances is None:
            n = data.n.astype(float)
            share = rejected / (rejected + n)
            if self.layout.has_covariates:
                least, unit, most = jnp.ones(()), n * share, jnp.maximum(1, 2**20 // data.n)
            else:
                least, unit, most = n, n * n * share, jnp.int32(2**20)
            wanted = jnp.minimum(jnp.maximum(unit, least), most).astype(jnp.int32)
        log_estimate, _ = self._estimate(key, theta, wanted, data)
        return jnp.stack([log_estimate, wanted.astype(float)])

    def stationary_estimate(self, key: KeyArray, theta: Theta, data: Observed) -> Estimate:
        """At stationarity estimates are size-biased: k then comes before r + n acceptances.

        Multiplying the negative binomial law of k by the estimate gives that of k before r + n
        acceptances (before r + 1 for each observation, where they have their own proposals).
        """
        wanted = jnp.int32(self.acceptances)
        extra = jnp.int32(1) if self.layout.has_covariates else data.n
        log_estimate, _ = self._estimate(key, theta, wanted, data, extra=extra)
        return jnp.stack([log_estimate, wanted.astype(float)])

    def _estimate(
        self, key: KeyArray, theta: Theta, wanted: Count, data: Observed, extra: Count | int = 0
    ) -> tuple[Scalar, Worst]:
        """log of the unbiased estimate of prod_i M_i/Z_i, from ``wanted`` (+ extra) acceptances."""
        n, buffer = data.n, self.empty_buffer(data)
        most = jnp.int32(MOST_REJECTED)
        r = wanted.astype(float)
        if not self.layout.has_covariates:
            run = run_shared(
                self.model,
                self.layout,
                key,
                theta,
                buffer,
                most,
                wanted + extra,
                store=False,
            )
            k = run.rejected.count.astype(float)
            return log_power_estimate(r, n, k), run.worst
        (covariates,) = data.covariates

        def repeat(index: jax.Array, carry: tuple) -> tuple:
            failures, worst = carry
            run, more = run_per_observation(
                self.model,
                self.layout,
                jax.random.fold_in(key, index),
                theta,
                covariates,
                buffer,
                most,
                n,
                store=False,
            )
            return failures + more, merge_worst(worst, run.worst)

        like = jax.tree.map(lambda a: a[0], data.points)
        start = (jnp.zeros((self.layout.rows,), jnp.int32), no_worst(like))
        failures, worst = jax.lax.fori_loop(0, wanted + extra, repeat, start)

        def of_row(r: Scalar, failures: Count) -> Scalar:
            return jnp.log1p(failures / r)

        return total(of_row, r, (failures,), n, self.layout.chunk, gradient=False), worst

    def judge(
        self, key: KeyArray, proposal: Proposal, state: State, stage: Stage, data: Observed
    ) -> Judgement:
        """Ratio of the estimated likelihoods; -inf where the budget refuses."""
        key_estimate, key_budget = jax.random.split(key)
        log_old, wanted = state.log_estimate[0], state.log_estimate[1]
        repeats = wanted.astype(jnp.int32)
        independent = run_algorithm_1(
            self.model,
            self.layout,
            key_budget,
            proposal.new_theta,
            data,
            self.empty_buffer(data),
            jnp.minimum(stage.budget, state.patience),
            store=False,
        )
        count = independent.rejected.count
        full = (count > state.patience) & (count <= stage.budget)
        # Where the budget refuses theta' anyway, the long run for the estimate is not needed.
        log_new, worst = jax.lax.cond(
            (count > stage.budget) | full,
            lambda: (jnp.array(-jnp.inf), independent.worst),
            lambda: self._estimate(key_estimate, proposal.new_theta, repeats, data),
        )
        ratio = proposal.there - proposal.here + log_new - log_old
        estimate = jnp.stack([log_new, wanted])
        # Of fresh proposals only the number counts: they may overflow.
        sound = Sound(jnp.isfinite(proposal.here + log_old), jnp.array(True))
        worst = merge_worst(worst, independent.worst)
        return Judgement(ratio, estimate, count, worst, full, sound)
