"""Broken samplers: ideas that pass casual checks. Each must fail the test its original passes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from offcut.augmentation.algorithm1 import run_algorithm_1, run_shared
from offcut.augmentation.rejections import section_rows
from offcut.numerics.arrays import write_rows
from offcut.samplers.algorithm2 import AugmentedSampler
from offcut.samplers.walk import Judgement, PseudoMarginalSampler, Sound


class NoAugmentation(AugmentedSampler):
    """The rejections are drawn and then forgotten: the naive posterior."""

    def run_sampler(self, key, theta, data, buffer, limit):
        run = super().run_sampler(key, theta, data, buffer, limit)
        return run._replace(rejected=run.rejected._replace(count=jnp.int32(0)))


def forgets_rejections(sampler):
    """theta moves as if there were no rejections, beside those that are held."""

    class Forgets(sampler):
        def move(self, key, drawn, stage, data):
            none = drawn.rejected._replace(count=jnp.int32(0))
            return super().move(key, drawn._replace(rejected=none), stage, data)

    return Forgets


class OneSetShort(AugmentedSampler):
    """n - 1 sets of rejections for n observations."""

    def run_sampler(self, key, theta, data, buffer, limit):
        return run_shared(self.model, self.layout, key, theta, buffer, limit, data.n - 1)


class AcceptedKept(AugmentedSampler):
    """The accepted pseudo-observations are kept among the rejected."""

    def run_sampler(self, key, theta, data, buffer, limit):
        run = run_algorithm_1(
            self.model, self.layout, key, theta, data, buffer, limit, keep_accepted=True
        )
        n, rows = data.n, jnp.arange(self.layout.rows)
        trash = buffer.offset + section_rows(self.layout, buffer) - 1
        behind = run.rejected.offset + run.rejected.count + rows
        points = write_rows(run.rejected.points, jnp.where(rows < n, behind, trash), run.kept)
        rejected = run.rejected._replace(points=points, count=run.rejected.count + n)
        return run._replace(rejected=rejected, kept=None)


class BlockEndKept(AugmentedSampler):
    """Rejections drawn behind the n-th acceptance in the same block are kept too."""

    def run_sampler(self, key, theta, data, buffer, limit):
        run = super().run_sampler(key, theta, data, buffer, limit)
        extra = self.model.propose_block(jax.random.fold_in(key, 999), theta, self.layout.block)
        rank = jnp.cumsum(~extra.accepted) - 1
        take = ~extra.accepted & (rank < 2)
        rows = jax.tree.leaves(buffer.points)[0].shape[0] // self.layout.sections
        trash = run.rejected.offset + rows - 1
        place = jnp.where(take, run.rejected.offset + run.rejected.count + rank, trash)
        points = write_rows(run.rejected.points, place, extra.points)
        count = run.rejected.count + 2
        return run._replace(rejected=run.rejected._replace(points=points, count=count))


class SilentCap(AugmentedSampler):
    """At most three rejections are kept, whatever their number."""

    def run_sampler(self, key, theta, data, buffer, limit):
        run = super().run_sampler(key, theta, data, buffer, limit)
        count = jnp.minimum(run.rejected.count, 3)
        return run._replace(rejected=run.rejected._replace(count=count))


class CapInsteadOfRedraw(AugmentedSampler):
    """An attempt that exceeds the budget is cut to it instead of being redrawn."""

    def run_sampler(self, key, theta, data, buffer, limit):
        run = super().run_sampler(key, theta, data, buffer, limit)
        count = jnp.minimum(run.rejected.count, limit)
        return run._replace(rejected=run.rejected._replace(count=count))


class CollapsedBesideBudget(AugmentedSampler):
    """theta1 is drawn once with Y summed out, then Y alone is redrawn until it fits."""

    def _attempt(self, key, held, scratch, update, budget, data, skip_rejections):
        if update is not None:
            theta = self.model.prior.constrain(held.position, held.exact)
            key_exact = jax.random.fold_in(key, 12345)
            drawn = self._exact_draw(update, key_exact, theta, data)
            held = held._replace(exact={**held.exact, **drawn})
        return super()._attempt(key, held, scratch, None, budget, data, skip_rejections)


class NewBlockOldRejections(AugmentedSampler):
    """After giving up, the new theta1 is kept beside the old Y."""

    def augment(self, key, state, stage, data):
        held, info = super().augment(key, state, stage, data)
        (update,) = self.model.exact_updates.values()
        theta = self.model.prior.constrain(state.position, state.exact)
        fresh = self._exact_draw(update, jax.random.fold_in(key, 777), theta, data)
        over = info.stats["gave_up"]
        exact = jax.tree.map(lambda a, b: jnp.where(over, a, b), fresh, held.exact)
        return held._replace(exact=exact), info


class RefreshedEstimate(PseudoMarginalSampler):
    """The current state's estimate is refreshed in every step."""

    def step(self, key, state, stage, data):
        theta = self.model.prior.constrain(state.position, state.exact)
        wanted = state.log_estimate[1].astype(jnp.int32)
        fresh, _ = self._estimate(jax.random.fold_in(key, 1), theta, wanted, data)
        state = state._replace(log_estimate=state.log_estimate.at[0].set(fresh))
        return super().step(key, state, stage, data)


class IndicatorFromEstimate(PseudoMarginalSampler):
    """The budget is judged by the run that gives the estimate: the target changes."""

    def judge(self, key, proposal, state, stage, data):
        wanted, n = state.log_estimate[1], data.n
        run = run_shared(
            self.model,
            self.layout,
            key,
            proposal.new_theta,
            self.empty_buffer(data),
            stage.budget,
            wanted.astype(jnp.int32),
            store=False,
        )
        r, k = wanted, run.rejected.count.astype(float)
        log_new = gammaln(r + n + k) - gammaln(r + n) - gammaln(r + k) + gammaln(r)
        ratio = proposal.there - proposal.here + log_new - state.log_estimate[0]
        estimate = jnp.stack([log_new, wanted])
        sound = Sound(jnp.array(True), jnp.array(True))
        count, full = run.rejected.count, jnp.array(False)
        return Judgement(ratio, estimate, count, run.worst, full, sound)
