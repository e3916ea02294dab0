r"""kappa given the rejections of Hoff's sampler: Algorithm 2 for frames.

Draw Y given kappa until |Y| fits the budget (G and H, drawn with Y summed out, do not mind: the
probability to fit does not depend on them), then move kappa given X, Y, G and H.

The order of the columns is part of the proposal's density, and under a budget of the target,
p(kappa | X) P(|Y| <= B | kappa): an order that chains choose for themselves would give each a
posterior of its own. By decreasing kappa most proposals are accepted, and so the sampler is the one
that proposes in this order, at every kappa: Y, held by places in the order and not by columns, has
a density that depends on the sorted kappa alone. It is continuous where two of them meet, and the
density that kappa moves on sorts anew wherever it is evaluated. An order taken from the current
kappa and frozen while kappa moves would give a wrong posterior.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.rejections import (
    MOST_ATTEMPTS,
    capacity_of,
    outcome,
    redraw,
    resized_rejected,
    settle,
    spare_section,
)
from offcut.base import OK, Stage
from offcut.errors import StartError
from offcut.langevin.rejections import Held, Run, log_joint, no_run, nothing, run
from offcut.langevin.sampler import LangevinData, LangevinSampler, Moved, State, what_to_do
from offcut.numerics.types import KeyArray


class AugmentedSampler(LangevinSampler):
    """NUTS, HMC or RandomWalk on the augmented joint."""

    method = "augment"

    redraws = True
    proposes = True

    def first_own(self) -> Held:
        return nothing(self.layout, 1)

    def order(self, kappa: Float[Array, " p"]) -> Int[Array, " p"]:
        """In which order columns are proposed at ``kappa``."""
        return jnp.argsort(-kappa)

    def move(self, key: KeyArray, state: State, stage: Stage, data: LangevinData) -> Moved:
        """Y given kappa, then kappa given Y."""
        key_rejections, key_kernel = jax.random.split(key)
        held, attempts, over, status = self._rejections(key_rejections, state, stage, data)
        along = self.along(state, data)

        def log_density(position: Float[Array, " p"]) -> Float[Array, ""]:
            kappa = self.kappa(position)
            order = self.order(kappa)
            joint = log_joint(self.layout, kappa[order], data.n, along[order], held)
            return self.prior.log_density(position, {}) + joint

        moved, stats = self.kernel_step(key_kernel, state, log_density, stage)
        stats = {"rejected": held.size, "attempts": attempts, "gave_up": over, **stats}
        return moved._replace(own=held), stats, status

    def _rejections(
        self, key: KeyArray, state: State, stage: Stage, data: LangevinData
    ) -> tuple[Held, Int[Array, ""], Bool[Array, ""], Int[Array, ""]]:
        """Y, how many attempts it took, whether all were over the budget, and the status."""
        layout, old = self.layout, state.own
        if layout.p == 1:  # nothing is ever rejected
            known = old._replace(known=jnp.array(True))
            return known, jnp.int32(1), jnp.array(False), jnp.int32(OK)
        kappa = self.kappa(state.position)
        falling = kappa[self.order(kappa)]

        def attempt(number: Int[Array, ""], last: Run) -> tuple[Run, Bool[Array, ""]]:
            own_key = jax.random.fold_in(key, number)
            drawn = run(layout, own_key, falling, data.n, stage.budget, last.rejected)
            return drawn, drawn.size > stage.budget

        spare = spare_section(layout.rows, old.rejected, old.rejected)
        attempts, drawn, over = redraw(attempt, no_run(layout, spare), MOST_ATTEMPTS)
        full = jnp.any(drawn.rejected.count > capacity_of(layout.rows, spare))
        new = Held(drawn.rejected, drawn.along, jnp.array(True))
        status = outcome(over, full, old.known)
        return settle(~over & ~full, new, old), attempts, over, status

    def capacity(self, state: State) -> int | None:
        """Room for the rejections that one column stops."""
        return capacity_of(self.layout.rows, state.own.rejected) if self.layout.p > 1 else None

    def resized(self, state: State, capacity: int) -> State:
        rejected = resized_rejected(self.layout.rows, state.own.rejected, capacity)
        return state._replace(own=state.own._replace(rejected=rejected))

    def row_bytes(self, state: State) -> int:
        """Bytes for one more rejection at each column."""
        return 16 * (self.layout.p - 1)

    def rejected(self, state: State) -> int:
        return int(np.sum(np.asarray(state.own.rejected.count)))

    def explain(self, state: State, evidence: object) -> Exception:
        """Nothing was ever held, and no attempt stayed within the budget."""
        kappa = np.asarray(self.kappa(state.position))
        return StartError(
            f"the first {MOST_ATTEMPTS} attempts to draw rejections all exceeded the budget, at "
            f"kappa = {np.round(kappa, 2).tolist()}. {what_to_do(kappa)}"
        )
