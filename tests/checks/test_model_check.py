"""``offcut.check`` passes honest models and names what is wrong with the others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from statistical import models


def failed(report):
    return [item.name for item in report.items if item.passed is False]


@pytest.mark.parametrize(
    ("make", "covariates"),
    [
        (models.half_normal, None),
        (models.student, None),
        (lambda: models.logistic_selection(False), None),
        (models.regression, np.linspace(-1, 1, 20)),
    ],
)
def test_honest_models_pass(make, covariates):
    report = offcut.check(make(), covariates=covariates, replicates=2000)
    assert report.ok, report
    assert "invariant" in str(report)
    assert all(item.passed for item in report.items)


def broken(**changes):
    functions = {
        "propose": lambda key, theta: theta["loc"] + jax.random.normal(key),
        "log_proposal": lambda theta, y: dist.Normal(theta["loc"], 1).log_prob(y),
        "log_accept": lambda theta, y: -0.5 * y**2,
    }
    return offcut.RejectionModel(prior={"loc": dist.Normal(0, 0.5)}, **{**functions, **changes})


def test_a_bound_that_is_too_small_is_named():
    report = offcut.check(broken(log_accept=lambda theta, y: 0.3 - 0.5 * y**2), replicates=100)
    assert failed(report) == ["log_accept <= 0"]
    assert "theta=" in str(report)
    assert "y=" in str(report)


def test_a_proposal_density_that_is_another_is_named():
    wrong = broken(log_proposal=lambda theta, y: dist.Normal(theta["loc"] + 0.3, 1).log_prob(y))
    assert "propose matches log_proposal" in failed(offcut.check(wrong, replicates=100))
    wrong = broken(log_proposal=lambda theta, y: dist.Normal(theta["loc"], 1.5).log_prob(y))
    assert "histogram of proposals" in failed(offcut.check(wrong, replicates=100))


def test_a_wrong_log_reject_fails_the_invariance_test():
    wrong = broken(log_reject=lambda theta, y: -theta["loc"] * y)
    assert failed(offcut.check(wrong)) == ["the sampler leaves the model invariant"]


def test_nan_gradients_are_named():
    def log_accept(theta, y):
        return jnp.where(y > 0, -jnp.sqrt(jnp.where(y > 0, theta["loc"] - theta["loc"], 1.0)), 0.0)

    report = offcut.check(broken(log_accept=log_accept), replicates=100)
    assert "finite gradients" in failed(report)


def test_wrong_shapes_are_named_at_once():
    report = offcut.check(broken(log_accept=lambda theta, y: jnp.zeros(2)))
    assert failed(report) == ["shapes"]


def test_it_can_be_asked_about_one_theta():
    report = offcut.check(broken(), theta={"loc": 0.3}, replicates=500)
    assert report.ok, report
    with pytest.raises(offcut.errors.ModelError, match="lacks"):
        offcut.check(broken(), theta={"location": 0.3})
