"""Posteriors against quadrature: 16 independent chains, t-tests at 1e-5 for each moment."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from statistical import models
from statistical.truth import assert_agrees, assert_disagrees, run_numpyro

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 1500, "warmup": 400, "progress": False}
KERNELS = {
    "NUTS": {"kernel": offcut.NUTS()},
    "HMC": {"kernel": offcut.HMC(num_steps=8)},
    "RandomWalk": {"kernel": offcut.RandomWalk()},
    "Exchange": {"method": "exchange"},
    "PseudoMarginal": {"method": offcut.PseudoMarginal(acceptances=60)},
}


@pytest.fixture(scope="module")
def half_normal():
    x = models.half_normal_data()
    return models.half_normal(), x, models.half_normal_grid(x)


@pytest.mark.parametrize("name", KERNELS)
def test_all_kernels_give_the_posterior_of_a_truncated_normal(half_normal, name):
    model, x, grid = half_normal
    posterior = offcut.sample(model, x, **KERNELS[name], seed=3, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])


def test_a_fit_that_ignores_the_window_is_caught(half_normal):
    _, x, grid = half_normal
    naive = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > -np.inf,
    )
    posterior = offcut.sample(naive, x, kernel=offcut.HMC(num_steps=8), seed=3, **RUN)
    assert_disagrees(posterior, grid, ["loc", "scale"])


@pytest.mark.parametrize(
    "with_log_reject", [True, pytest.param(False, marks=pytest.mark.calibrate)]
)
def test_logistic_selection_with_unknown_slope(with_log_reject):
    x = np.array([-0.3, 0.1, 0.4, 0.7, 0.9, 1.3, 1.6, 2.2, 0.2, 1.1])
    posterior = offcut.sample(
        models.logistic_selection(with_log_reject), x, kernel=offcut.HMC(num_steps=8), seed=4, **RUN
    )
    assert_agrees(posterior, models.logistic_grid(x), ["loc", "slope"])


@pytest.mark.calibrate
def test_truncated_regression_where_every_observation_has_its_own_proposal():
    y, c = models.regression_data()
    model = models.regression()
    grid = models.regression_grid(y, c)
    for name in ("HMC", "Exchange"):
        posterior = offcut.sample(model, y, covariates=c, **KERNELS[name], seed=5, **RUN)
        assert_agrees(posterior, grid, ["intercept", "slope"])


@pytest.mark.calibrate
def test_student_t_from_a_cauchy_proposal():
    x = np.array([-1.2, -0.4, 0.1, 0.3, 0.5, 0.9, 1.7, 4.2])
    posterior = offcut.sample(models.student(), x, kernel=offcut.HMC(num_steps=8), seed=6, **RUN)
    assert_agrees(posterior, models.student_grid(x), ["loc", "nu"])


def test_zero_truncated_poisson_has_integer_points():
    from scipy import special, stats

    from statistical.truth import Grid

    x = np.array([1, 1, 2, 1, 3, 1, 1, 2])
    model = offcut.truncated(
        prior={"rate": dist.Gamma(2.0, 2.0)},
        base=lambda theta: dist.Poisson(theta["rate"]),
        inside=lambda k: k > 0,
    )
    posterior = offcut.sample(model, x, kernel=offcut.HMC(num_steps=8), seed=7, **RUN)

    def log_density(rate):
        like = x.sum() * np.log(rate) - len(x) * (rate + np.log(-special.expm1(-rate)))
        return like + stats.gamma.logpdf(rate, 2, scale=0.5)

    assert_agrees(posterior, Grid(log_density, rate=(1e-4, 8.0, 800)), ["rate"])


@pytest.mark.calibrate
def test_hierarchical_groups_agree_with_numpyro_on_the_exact_likelihood():
    """Groups share a normal population; NumPyro knows this window's constant, we do not use it."""
    import numpyro

    rng = np.random.default_rng(8)
    groups = np.repeat(np.arange(4), 12)
    centre = np.array([-0.5, 0.2, 0.8, 1.4])
    y = np.empty(len(groups))
    for i, g in enumerate(groups):
        while True:
            y[i] = rng.normal(centre[g], 1.0)
            if y[i] > 0:
                break

    def prior():
        population = numpyro.sample("population", dist.Normal(0.0, 1.0))
        spread = numpyro.sample("spread", dist.LogNormal(-0.5, 0.4))
        with numpyro.plate("groups", 4):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        numpyro.deterministic("centre", population + spread * offset)

    model = offcut.truncated(
        prior=prior,
        base=lambda theta, g: dist.Normal(theta["centre"][g], 1.0),
        inside=lambda value, g: value > 0,
    )
    posterior = offcut.sample(
        model, y, covariates=groups, seed=9, chains=16, draws=1000, warmup=400, progress=False
    )

    def likelihood_model():
        population = numpyro.sample("population", dist.Normal(0.0, 1.0))
        spread = numpyro.sample("spread", dist.LogNormal(-0.5, 0.4))
        with numpyro.plate("groups", 4):
            offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
        centre = numpyro.deterministic("centre", population + spread * offset)
        numpyro.sample(
            "y", dist.LeftTruncatedDistribution(dist.Normal(centre[groups], 1.0), low=0.0), obs=y
        )

    exact = run_numpyro(likelihood_model)
    for name in ("population", "spread", "centre"):
        ours, theirs = posterior["posterior"][name].values, exact[name]
        for power in (1, 2):
            a, b = (ours**power).mean(axis=1), (theirs**power).mean(axis=1)
            error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
            z = (a.mean(axis=0) - b.mean(axis=0)) / error
            assert np.all(np.abs(z) < 6), f"{name}^{power}: z = {z}"
