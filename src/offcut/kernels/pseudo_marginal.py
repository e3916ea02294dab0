r"""Pseudo-marginal Metropolis (Andrieu & Roberts 2009) with an unbiased estimate of (M/Z)^n.

With k rejections before r acceptances, all observations sharing one proposal,

    C(r + n + k - 1, k) / C(r + k - 1, k)

is unbiased for (M/Z)^n, with relative variance about n^2 (1 - Z/M) / r. Where each observation
has its own proposal, (r + k_i) / r is unbiased for M_i/Z_i, k_i the rejections before r acceptances
of observation i. The estimate of the current state is kept, never refreshed.
Under a budget the indicator |Y'| <= B comes from a run of its own: taken from the same run as the
estimate it would change the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from offcut.augmentation.algorithm1 import run_algorithm_1
from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import MOST_REJECTED, Layout
from offcut.augmentation.per_observation import run_per_observation
from offcut.augmentation.shared import merge_worst, no_worst, run_shared
from offcut.kernels.settings import WalkKernel, check_positive, check_target
from offcut.kernels.walk import Sound, State, WalkSampler
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.sampler import Stage


@dataclass(frozen=True)
class PseudoMarginal(WalkKernel):
    """Pseudo-marginal Metropolis with normal steps in unconstrained space.

    Parameters
    ----------
    scale : float, optional
        Standard deviation of a step, and then not adapted.
    acceptances : int, optional
        r, acceptances that the estimate waits for (for each observation where they have their
        own proposals). The default aims at unit variance of the log estimate, n^2 (1 - Z/M) in
        all at the starting point, 2**20 at the most.
    target_acceptance : float
        What warm-up steers the scale to.
    """

    scale: float | None = None
    acceptances: int | None = None
    target_acceptance: float = 0.2
    given_rejections: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("acceptances", self.acceptances, whole=True)
        check_target(self.target_acceptance)

    def build(self, model: RejectionModel, layout: Layout) -> WalkSampler:
        """The sampler for one model and data shape."""
        return PseudoMarginalSampler(model, layout, self)


class PseudoMarginalSampler(WalkSampler):
    """The estimate travels with the position; r travels with it too, as a constant."""

    def __init__(self, model: RejectionModel, layout: Layout, kernel: PseudoMarginal) -> None:
        super().__init__(model, layout, kernel)
        # The noise of the estimate does not vanish with the step: without a floor, warm-up would
        # chase the target acceptance down to a step of zero.
        self.smallest_scale = 0.24 / max(model.prior.size, 1) ** 0.5

    def first_estimate(
        self, key: jax.Array, theta: Theta, data: Observed, rejected: int
    ) -> jax.Array:
        """(log estimate, r): r is fixed here for the whole run."""
        n = self.layout.n
        share = rejected / (rejected + n)
        wanted = self.kernel.acceptances
        if wanted is None:
            unit = n * n * share if not self.layout.has_covariates else n * share
            most = 2**20 if not self.layout.has_covariates else max(1, 2**20 // n)
            wanted = int(min(max(unit, 1, n if not self.layout.has_covariates else 1), most))
        program = self.model.compiled(("estimate", self.layout), self._estimate)
        log_estimate, _ = program(key, theta, jnp.int32(wanted), data)
        return jnp.stack([log_estimate, jnp.asarray(wanted, float)])

    def stationary_estimate(self, key: jax.Array, theta: Theta, data: Observed) -> jax.Array:
        """At stationarity estimates are size-biased: k then comes before r + n acceptances.

        Multiplying the negative binomial law of k by the estimate gives that of k before r + n
        acceptances (before r + 1 for each observation, where they have their own proposals).
        """
        wanted = jnp.int32(self.kernel.acceptances)
        extra = 1 if self.layout.has_covariates else self.layout.n
        log_estimate, _ = self._estimate(key, theta, wanted, data, extra=extra)
        return jnp.stack([log_estimate, wanted.astype(float)])

    def _estimate(
        self, key: jax.Array, theta: Theta, wanted: jax.Array, data: Observed, extra: int = 0
    ) -> tuple[jax.Array, Any]:
        """log of the unbiased estimate of prod_i M_i/Z_i, from ``wanted`` (+ extra) acceptances."""
        n, buffer = self.layout.n, self.empty_buffer(data)
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
                wanted=wanted + extra,
                store=False,
            )
            k = run.rejected.count.astype(float)
            log_estimate = gammaln(r + n + k) - gammaln(r + n) - gammaln(r + k) + gammaln(r)
            return log_estimate, run.worst
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
                store=False,
            )
            return failures + more, merge_worst(worst, run.worst)

        like = jax.tree.map(lambda a: a[0], data.points)
        start = (jnp.zeros((n,), jnp.int32), no_worst(like))
        failures, worst = jax.lax.fori_loop(0, wanted + extra, repeat, start)
        return jnp.sum(jnp.log1p(failures / r)), worst

    def log_ratio(
        self, key: jax.Array, theta: Theta, new_theta: Theta, state: State, stage: Stage, data: Any
    ) -> tuple:
        """Ratio of the estimated likelihoods; -inf where the budget refuses."""
        key_estimate, key_budget = jax.random.split(key)
        log_old, wanted = state.log_estimate[0], state.log_estimate[1]
        independent = run_algorithm_1(
            self.model,
            self.layout,
            key_budget,
            new_theta,
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
            lambda: self._estimate(key_estimate, new_theta, wanted.astype(jnp.int32), data),
        )
        here = self._log_f(theta, data.points, data.covariates)
        ratio = self._log_f(new_theta, data.points, data.covariates) - here + log_new - log_old
        estimate = jnp.stack([log_new, wanted])
        # Of fresh proposals only the number counts: they may overflow.
        sound = Sound(jnp.isfinite(here + log_old), jnp.array(True))
        return ratio, estimate, count, merge_worst(worst, independent.worst), full, sound
