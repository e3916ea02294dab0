"""Exchange and pseudo-marginal walks: what warm-up makes of their steps."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut


@pytest.mark.parametrize(
    ("method", "least", "seed"),
    [("exchange", 0.1, 1), (offcut.PseudoMarginal(acceptances=5), 0.02, 2)],
)
def test_steps_do_not_grow_where_the_budget_refuses_what_is_far_away(method, least, seed):
    """Far out nothing of a heavy-tailed base comes near the window, so every run ends over budget.

    With such refusals left out of the adaptation, steps grew to hundreds of prior sds and stayed:
    of their proposals 0 to 0.7% were accepted. (The time of a pseudo-marginal run has a heavy tail
    here: an estimate far out, where a proposal was lucky, takes minutes.)
    """
    model = offcut.truncated(
        {"t": dist.Normal(0.2, 0.5)},
        lambda theta: dist.StudentT(5.0, theta["t"], 1.0),
        offcut.regions.Box(-0.9, 1.6),
    )
    run = {"draws": 300, "warmup": 300, "chains": 4, "seed": seed, "progress": False}
    posterior = offcut.sample(model, np.array([0.1]), method=method, budget=300, **run)
    stats = posterior["sample_stats"]
    assert float(stats["accepted"].mean("draw").min()) > least
    assert float(stats["over_budget"].mean()) < 0.5
