"""What every sampler of a rejection model shares, whatever its step."""

from __future__ import annotations

from typing import Any

import jax

from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import Layout
from offcut.models.rejection import RejectionModel
from offcut.promises import inspect_observations
from offcut.sampler import Sampler


class ModelSampler(Sampler):
    """A sampler of one model at one data shape; its states have ``position`` and ``exact``."""

    draws_rejections = True

    def __init__(self, model: RejectionModel, layout: Layout, kernel: Any) -> None:
        self.model, self.layout, self.kernel = model, layout, kernel
        self.adapts = kernel.adapts
        self.kernel_name = repr(kernel)
        self._record = jax.jit(self.record)

    def record(self, state: Any) -> dict[str, jax.Array]:
        """theta with its deterministic sites."""
        return self.model.prior.constrain(state.position, state.exact)

    def inspect(self, state: Any, data: Observed) -> None:
        """log_accept at the observations, at this state (once for all where it is fixed)."""
        if not self.model.window_is_fixed:
            inspect_observations(self.model, self.layout, self._record(state), data)
