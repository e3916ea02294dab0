"""What every sampler of a rejection model shares, whatever its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import Layout
from offcut.imputation.impute import completed, impute
from offcut.kernels.tuning import Tuning, stepped_from
from offcut.models.rejection import RejectionModel
from offcut.promises import inspect_observations
from offcut.sampler import Sampler, Stage, Variable


class ModelSampler(Sampler):
    """A sampler of one model at one data shape.

    Its states have ``position``, ``exact`` and ``imputed``: theta, and the values of what the
    data leave open.
    """

    draws_rejections = True

    def __init__(self, model: RejectionModel, layout: Layout, kernel: Any) -> None:
        self.model, self.layout, self.kernel = model, layout, kernel
        self.adapts = kernel.adapts
        self.kernel_name = repr(kernel)
        self._record = jax.jit(self.record)

    def record(self, state: Any) -> dict[str, jax.Array]:
        """theta with its deterministic sites."""
        return self.model.prior.constrain(state.position, state.exact)

    def variables(self) -> dict[str, Variable]:
        """What is computed or fixed, and entries that no theta changes (the ones on the diagonal of
        a correlation matrix).
        """
        prior = self.model.prior
        drawn = [prior.sample(jax.random.key(seed)) for seed in range(3)]
        marks = {name: Variable(None, derived=True) for name in prior.deterministic}
        for name in prior.shapes:
            first, *others = (np.ravel(theta[name]) for theta in drawn)
            same = np.all([first == other for other in others], axis=0)
            marks[name] = Variable(None, constant=tuple(bool(flag) for flag in same))
        return marks

    def complete(self, key: jax.Array, state: Any, data: Observed) -> tuple[Any, Observed, dict]:
        """Draw what is hidden given theta: the state with it, the completed data, statistics."""
        if state.imputed is None:
            return state, data, {}
        theta = self.model.prior.constrain(state.position, state.exact)
        imputed, stats = impute(self.model, key, theta, data, state.imputed)
        return state._replace(imputed=imputed), completed(data, imputed), stats

    def kernel_step(
        self,
        key: jax.Array,
        position: jax.Array,
        log_density: Callable[[jax.Array], jax.Array],
        tuning: Tuning,
        stage: Stage,
    ) -> tuple[jax.Array, Tuning, dict[str, jax.Array], jax.Array]:
        """The kernel's step on a density, what warm-up learns from it, and whether it is sound.

        A density that is not finite where the chain stands (a proposal has overflowed, say) lets
        nothing move any more: the chain would stay there for good.
        """
        *moved, before = stepped_from(self.kernel, key, position, log_density, tuning, stage)
        return *moved, jnp.isfinite(before)  # type: ignore[return-value]

    def inspect(self, state: Any, data: Observed) -> None:
        """log_accept at the observations, at this state (once for all where it is fixed)."""
        if not self.model.window_is_fixed:
            whole = completed(data, state.imputed)
            inspect_observations(self.model, self.layout, self._record(state), whole)
