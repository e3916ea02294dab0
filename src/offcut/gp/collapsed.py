"""No rejections at all: everything moves at once with Y summed out, Z by quadrature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from offcut.augmentation.layout import MOST_REJECTED
from offcut.gp.sampler import GPData, GPSampler, Plan, State
from offcut.kernels.tuning import stepped
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
        size = self._position(state).shape[0]
        return state._replace(tuning={"all": self.kernel.first_tuning(1, size)})

    def _position(self, state: State) -> jax.Array:
        rate = [state.log_rate[None]] if self.plan.process.rated else []
        return jnp.concatenate([state.beta, state.base, state.hyper, *rate])

    def _parts(self, position: jax.Array, log_rate: jax.Array) -> tuple:
        """beta, base, hyperparameters, log rate."""
        M, k, h = self.plan.basis.number, self.plan.base.size, self.plan.hyper.size
        rate = position[-1] if self.plan.process.rated else log_rate
        return position[:M], position[M : M + k], position[M + k : M + k + h], rate

    def step(self, key: jax.Array, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        """One step of the kernel."""
        plan, nothing_excluded = self.plan, jnp.int32(MOST_REJECTED)

        def log_density(position: jax.Array) -> jax.Array:
            beta, p, hyper, log_rate = self._parts(position, state.log_rate)
            w = self.root_spectrum(hyper, data) * beta
            likelihood = self.log_likelihood(
                w @ data.features, self.at_nodes(w, data), p, log_rate, data, nothing_excluded
            )
            return (
                likelihood
                + plan.base.log_prior(p, data)
                + plan.hyper.log_prior(hyper)
                + plan.process.log_rate_prior(log_rate, data)
                - 0.5 * beta @ beta
            )

        position, tuning, stats = stepped(
            self.kernel, key, self._position(state), log_density, state.tuning["all"], stage
        )
        beta, p, hyper, log_rate = self._parts(position, state.log_rate)
        w = self.root_spectrum(hyper, data) * beta
        state = state._replace(
            beta=beta, w=w, base=p, hyper=hyper, log_rate=log_rate, tuning={"all": tuning}
        )
        kept = ("acceptance_rate", "diverging", "n_steps", "step_size")
        stats = {name: stats[name] for name in kept if name in stats}
        stats = {"rejected": jnp.int32(0), **stats, **self.described(state, data)}
        return state, Info(stats, jnp.int32(OK), jnp.zeros(()))
