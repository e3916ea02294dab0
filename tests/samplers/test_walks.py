"""Exchange and pseudo-marginal walks: what warm-up makes of their steps."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut


@pytest.mark.parametrize("method", ["exchange", offcut.PseudoMarginal(acceptances=5)])
def test_steps_do_not_grow_where_the_budget_refuses_what_is_far_away(method):
    """Far out nothing of a heavy-tailed base comes near the window, so every run ends over budget.

    With such refusals left out of the adaptation, steps grew to hundreds of prior sds and stayed.
    """
    model = offcut.truncated(
        {"t": dist.Normal(0.2, 0.5)},
        lambda theta: dist.StudentT(5.0, theta["t"], 1.0),
        offcut.regions.Box(-0.9, 1.6),
    )
    run = {"draws": 300, "warmup": 300, "chains": 4, "seed": 1, "progress": False}
    posterior = offcut.sample(model, np.array([0.1]), method=method, budget=300, **run)
    stats = posterior["sample_stats"]
    assert float(stats["accepted"].mean("draw").min()) > 0.1
    assert float(stats["over_budget"].mean()) < 0.5
