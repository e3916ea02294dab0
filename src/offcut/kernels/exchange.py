r"""The exchange sampler (Murray, Ghahramani & MacKay 2006), the classic rival of augmentation.

Propose theta'; draw one pseudo-observation for each observation at theta' with the same
rejection sampler; accept with

    p(theta') f(X, theta') f(Xhat, theta) / { p(theta) f(X, theta) f(Xhat, theta') }.

The bound M(theta) cancels, so q a may stand for f. Under a budget theta' is refused where its
run needed more than B rejections: the target is then exactly the restricted posterior, and the
count of the last accepted run is a draw of |Y| from it (Y' is independent of Xhat, so detailed
balance holds for the pair (theta, Y)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from offcut.augmentation.algorithm1 import run_algorithm_1
from offcut.augmentation.joint import pad_rows
from offcut.augmentation.layout import Layout
from offcut.kernels.settings import WalkKernel, check_positive, check_target
from offcut.kernels.walk import Sound, State, WalkSampler
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.sampler import Stage


@dataclass(frozen=True)
class Exchange(WalkKernel):
    """Exchange sampler with normal steps in unconstrained space.

    Parameters
    ----------
    scale : float, optional
        Standard deviation of a step, and then not adapted.
    target_acceptance : float
        What warm-up steers the scale to.
    """

    scale: float | None = None
    target_acceptance: float = 0.25
    given_rejections: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_target(self.target_acceptance)

    def build(self, model: RejectionModel, layout: Layout) -> WalkSampler:
        """The sampler for one model and data shape."""
        return ExchangeSampler(model, layout, self)


class ExchangeSampler(WalkSampler):
    """Swap the parameters of data and pseudo-data."""

    def log_ratio(
        self, key: jax.Array, theta: Theta, new_theta: Theta, state: State, stage: Stage, data: Any
    ) -> tuple:
        """Ratio of f over data and pseudo-data, swapped."""
        run = run_algorithm_1(
            self.model,
            self.layout,
            key,
            new_theta,
            data,
            self.empty_buffer(data),
            jnp.minimum(stage.budget, state.patience),
            keep_accepted=True,
            store=False,
        )
        pseudo = pad_rows(run.kept, self.layout.chunk)
        # A run cut short by the budget leaves rows of zeros; the data stand in, it is refused.
        complete = run.accepted >= self.layout.n
        pseudo = jax.tree.map(lambda a, b: jnp.where(complete, a, b), pseudo, data.points)
        here = self._log_f(theta, data.points, data.covariates)
        own = self._log_f(new_theta, pseudo, data.covariates)
        ratio = (
            self._log_f(new_theta, data.points, data.covariates)
            - here
            + self._log_f(theta, pseudo, data.covariates)
            - own
        )
        # Data have a density where the chain stands, and pseudo-data at the theta that they come
        # from, unless numbers overflowed.
        sound = Sound(jnp.isfinite(here), jnp.isfinite(own) | ~complete)
        ratio = jnp.where(complete, ratio, -jnp.inf)
        count = run.rejected.count
        full = (count > state.patience) & (count <= stage.budget)
        return ratio, state.log_estimate, count, run.worst, full, sound
