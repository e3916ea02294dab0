"""Algorithm 1: run the rejection sampler once for each observation; keep what it rejects."""

from __future__ import annotations

from typing import Any

import jax

from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import Layout, Rejected
from offcut.augmentation.per_observation import run_per_observation
from offcut.augmentation.shared import Run, run_shared
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta


def run_algorithm_1(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    buffer: Rejected,
    limit: jax.Array,
    **options: Any,
) -> Run:
    """Algorithm 1, by whichever scheme the data ask for."""
    if layout.has_covariates:
        (covariates,) = data.covariates
        return run_per_observation(model, layout, key, theta, covariates, buffer, limit, **options)[
            0
        ]
    return run_shared(model, layout, key, theta, buffer, limit, **options)
