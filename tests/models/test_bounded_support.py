"""A family whose support depends on theta, without NumPyro's validation, against quadrature."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from statistical.truth import Grid, assert_agrees, assert_disagrees, quiet

pytestmark = pytest.mark.statistical

X = np.random.default_rng(3).uniform(0, 4, 7)
LIMIT = 5.0
RUN = {"draws": 600, "warmup": 200, "chains": 16, "progress": False, "kernel": offcut.RandomWalk()}


def upper_end():
    return offcut.truncated(
        prior={"b": dist.LogNormal(0.0, 1.0)},
        base=lambda theta: dist.Uniform(0.0, theta["b"], validate_args=False),
        inside=lambda x: x < LIMIT,
    )


def upper_end_grid():
    def log_density(b):
        return stats.lognorm.logpdf(b, 1.0) - len(X) * np.log(np.minimum(b, LIMIT))

    return Grid(log_density, b=(X.max(), 60.0, 4000))


def test_the_upper_end_of_a_uniform():
    assert_agrees(offcut.sample(upper_end(), X, **RUN), upper_end_grid(), ["b"])


def test_the_formula_alone_is_caught():
    model = upper_end()
    model.log_proposal = lambda theta, y: model.base(theta).log_prob(y)
    drawn = quiet(offcut.sample, model, X, **RUN)
    assert_disagrees(drawn, upper_end_grid(), ["b"])
