r"""kappa by random walks that simulate frames at each proposal: exchange and pseudo-marginal.

Exchange (Murray, Ghahramani & MacKay 2006): simulate n frames at kappa' and accept with

    p(kappa') / p(kappa) x exp{(kappa' - kappa)·(s_X - s_sim)},   s = sum of diag(Gᵀ X H),

in which all normalisers have cancelled. Pseudo-marginal: with k rejections before r acceptances
C(r+n+k-1, k) / C(r+k-1, k) is unbiased for (D(kappa) / Z(kappa))^n. Nothing of a simulation is
kept but counts and sums, so its columns may be sorted by kappa'.

Under a budget kappa' is refused where its run had more than B rejections.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from offcut.augmentation.rejections import settle
from offcut.base import MOST_REJECTED, OK, Stage
from offcut.errors import TrustWarning
from offcut.kernels.tuning import target_of, tuned
from offcut.langevin.proposals import log_envelope
from offcut.langevin.rejections import run
from offcut.langevin.sampler import LangevinData, LangevinSampler, Moved, State
from offcut.methods import PseudoMarginal
from offcut.numerics import keys
from offcut.numerics.arrays import as_argument
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program
from offcut.samplers.walk import decided, log_power_estimate

#: Acceptances that an estimate waits for at the most.
MOST_ACCEPTANCES = 2**20
#: Estimates with a larger variance of their logarithm are worth a warning.
NOISY = 4.0
#: A change of log kappa (a factor of twenty) for which the budget is not to be blamed.
ABSURD = 3.0


class Walked(NamedTuple):
    """|Y| of the run that led here; the estimate of log (D/Z)^n and its r, where there is one."""

    rejected: Int[Array, ""]
    log_estimate: Float[Array, ""]
    acceptances: Int[Array, ""]


class WalkSampler(LangevinSampler):
    """What both share: propose, simulate, decide."""

    proposes = True
    smallest_scale = 0.0

    def first_own(self) -> Walked:
        return Walked(jnp.int32(0), jnp.zeros(()), jnp.int32(0))

    def log_ratio(
        self, key: KeyArray, new: Float[Array, " p"], state: State, stage: Stage, data: LangevinData
    ) -> tuple[Float[Array, ""], Walked]:
        """Log acceptance ratio without the prior, and what travels with the new kappa."""
        raise NotImplementedError

    def move(self, key: KeyArray, state: State, stage: Stage, data: LangevinData) -> Moved:
        key_walk, key_simulate, key_accept = jax.random.split(key, 3)
        position = self.kernel.propose(key_walk, state.position, state.tuning)
        ratio, walked = self.log_ratio(key_simulate, self.kappa(position), state, stage, data)
        ratio += self.prior.log_density(position, {}) - self.prior.log_density(state.position, {})
        over = walked.rejected > stage.budget
        accepted, rate = decided(key_accept, ratio, over)
        moved = settle(accepted, state._replace(position=position, own=walked), state)
        if self.adapts:
            target = target_of(self.kernel)
            # A refusal by the budget says nothing about the scale, but of steps that are absurd.
            absurd = jnp.max(jnp.abs(position - state.position)) > ABSURD
            learnt = jnp.where(over, jnp.where(absurd, 0.0, jnp.nan), rate)
            moved = moved._replace(
                tuning=tuned(
                    state.tuning, stage, moved.position, learnt, target, self.smallest_scale
                )
            )
        stats = {
            "rejected": moved.own.rejected,
            "acceptance_rate": rate,
            "accepted": accepted,
            "over_budget": over,
            "step_size": state.tuning.step_size,
        }
        return moved, stats, jnp.int32(OK)

    def rejected(self, state: State) -> int:
        """|Y| of the run that led to the current kappa."""
        return int(state.own.rejected)


class ExchangeSampler(WalkSampler):
    """Swap the concentrations of data and simulation."""

    method = "exchange"

    def log_ratio(
        self, key: KeyArray, new: Float[Array, " p"], state: State, stage: Stage, data: LangevinData
    ) -> tuple[Float[Array, ""], Walked]:
        """(kappa' - kappa)·(s_X - s_sim)."""
        kappa, order = self.kappa(state.position), jnp.argsort(-new)
        simulated = run(self.layout, key, new[order], data.n, stage.budget, last=True)
        along = jnp.zeros_like(new).at[order].set(simulated.accepted_along)
        ratio = jnp.sum((new - kappa) * (self.along(state, data) - along))
        return ratio, state.own._replace(rejected=simulated.size)


class PseudoMarginalSampler(WalkSampler):
    """The estimate of (D/Z)^n travels with kappa."""

    method = "pseudo_marginal"

    def __post_init__(self) -> None:
        super().__post_init__()
        # The noise of the estimate does not vanish with the step: without a floor warm-up would
        # chase the target acceptance down to a step of zero.
        self.smallest_scale = 0.24 / self.layout.p**0.5
        self._first_estimate = Program(self._estimate, "first_estimate")

    def start(self, key: KeyArray, data: LangevinData, budget: int) -> State:
        """r is fixed here for the whole run."""
        first = self.first(key, data, budget)
        n, wanted = int(data.n), PseudoMarginal.of(self.method_settings).acceptances
        if wanted is None:
            share = 1 - float(first.share)
            wanted = int(np.clip(n * n * share, n, MOST_ACCEPTANCES))
            if n * n * share > NOISY * MOST_ACCEPTANCES:
                warnings.warn(
                    f"pseudo-marginal estimates for {n:,} frames have a variance of about "
                    f"{n * n * share / MOST_ACCEPTANCES:.0f} on the log scale: the chain will "
                    "hardly move. Take another method",
                    TrustWarning,
                    stacklevel=2,
                )
        _, key_own = keys.split(key)
        acceptances = as_argument(np.int32(wanted))
        estimate = self._first_estimate(key_own, first.kappa, acceptances, data.n)
        walked = Walked(as_argument(np.int32(0)), estimate, acceptances)
        return first.state._replace(own=walked)

    def _estimate(
        self, key: KeyArray, kappa: Float[Array, " p"], wanted: Int[Array, ""], n: Int[Array, ""]
    ) -> Float[Array, ""]:
        """log of the unbiased estimate of Z(kappa)^-n, less log D(kappa)^-n."""
        most = jnp.int32(MOST_REJECTED)
        k = run(self.layout, key, jnp.sort(kappa)[::-1], wanted, most).size.astype(float)
        return log_power_estimate(wanted.astype(float), n, k)

    def log_ratio(
        self, key: KeyArray, new: Float[Array, " p"], state: State, stage: Stage, data: LangevinData
    ) -> tuple[Float[Array, ""], Walked]:
        """Ratio of estimated likelihoods; the budget has a run of its own."""
        key_budget, key_estimate = jax.random.split(key)
        own, d, kappa = state.own, self.layout.d, self.kappa(state.position)
        falling, new_falling = jnp.sort(kappa)[::-1], jnp.sort(new)[::-1]
        other = run(self.layout, key_budget, new_falling, data.n, stage.budget)
        estimate = lax.cond(
            other.size > stage.budget,
            lambda: jnp.array(-jnp.inf),
            lambda: self._estimate(key_estimate, new, own.acceptances, data.n),
        )
        envelopes = log_envelope(d, falling) - log_envelope(d, new_falling)
        ratio = jnp.sum((new - kappa) * self.along(state, data)) + data.n * envelopes
        ratio += estimate - own.log_estimate
        return ratio, Walked(other.size, estimate, own.acceptances)
