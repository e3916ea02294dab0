"""No rejections at all: everything moves at once with Y summed out, Z by quadrature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from offcut.augmentation.layout import MOST_REJECTED
from offcut.gp.sampler import GPData, GPSampler, Plan, State
from offcut.sampler import OK, Info, Stage


class CollapsedSampler(GPSampler):
    """A kernel on (beta, base, hyperparameters, log rate)."""

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
