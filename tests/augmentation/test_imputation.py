"""Censored values and true values behind noisy ones: invariance, and posteriors by quadrature."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import offcut
from offcut.augmentation import impute as parts_module
from offcut.augmentation.hidden import Hidden, Parts, Whole
from offcut.augmentation.rejections import Layout
from offcut.checks.invariance import invariance_test
from offcut.numerics import keys
from offcut.samplers.algorithm2 import AugmentedSampler
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 1500, "warmup": 400, "progress": False}
HMC = offcut.HMC(num_steps=6)
LIMIT = 1.1


def normal_model(**options):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.3, 0.5), "scale": dist.LogNormal(0.0, 0.25)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
        **options,
    )


def log_prior(loc, scale):
    return stats.norm.logpdf(loc, 0.3, 0.5) + stats.lognorm.logpdf(scale, 0.25)


def latent(n=30, seed=4):
    z = np.random.default_rng(seed).normal(0.5, 0.9, 20 * n)
    return z[z > 0][:n]


def grid_of(terms):
    """The posterior from log likelihood terms of an observation, normalised in x > 0."""

    def log_density(loc, scale):
        total = log_prior(loc, scale)
        for term in terms:
            total = total + term(loc, scale) - special.log_ndtr(loc / scale)
        return total

    return Grid(log_density, loc=(-2.5, 3.0, 160), scale=(0.25, 3.5, 160))


def exact(x):
    return lambda loc, scale: stats.norm.logpdf(x, loc, scale)


def above(limit):
    return lambda loc, scale: special.log_ndtr((loc - limit) / scale)


def between(low, high):
    def term(loc, scale):
        mass = special.ndtr((high - loc) / scale) - special.ndtr((low - loc) / scale)
        return np.log(np.maximum(mass, 1e-300))  # zero where the posterior is

    return term


@pytest.fixture(scope="module")
def clamped():
    x = np.minimum(latent(), LIMIT)
    assert 5 < (x == LIMIT).sum() < 20
    return x, grid_of([above(LIMIT) if v == LIMIT else exact(v) for v in x])


@pytest.mark.parametrize("how", [{"kernel": HMC}, {"method": "exchange"}], ids=["HMC", "exchange"])
def test_clamped_and_truncated_together(clamped, how):
    x, grid = clamped
    model = normal_model(censored=offcut.Clamped(upper=LIMIT))
    posterior = offcut.sample(model, x, **how, seed=1, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])
    assert posterior["sample_stats"]["imputed"].mean() > 0.99


def test_taking_limits_for_values_or_dropping_them_is_caught(clamped):
    x, grid = clamped
    posterior = offcut.sample(normal_model(), x, kernel=HMC, seed=3, **RUN)
    assert_disagrees(posterior, grid, ["loc", "scale"])
    posterior = offcut.sample(normal_model(), x[x < LIMIT], kernel=HMC, seed=3, **RUN)
    assert_disagrees(posterior, grid, ["loc", "scale"])


@pytest.mark.calibrate
def test_giving_up_on_some_values_leaves_the_target_alone(clamped, monkeypatch):
    monkeypatch.setattr("offcut.augmentation.impute.PATIENCE", 5)
    monkeypatch.setattr("offcut.augmentation.impute.PATIENCE_EACH", 0)
    x, grid = clamped
    model = normal_model(censored=offcut.Clamped(upper=LIMIT))
    posterior = offcut.sample(model, x, kernel=HMC, seed=4, **{**RUN, "draws": 3000})
    assert 0.05 < posterior["sample_stats"]["imputed"].mean() < 0.9
    assert_agrees(posterior, grid, ["loc", "scale"])


@pytest.mark.calibrate
def test_several_zones_and_limits_of_each_observation():
    """Counted in bins below 0.4, known to 1.1, clamped above; and a limit for every row."""
    z = latent(seed=6)
    x = np.where(z < 0.2, 0.1, np.where(z < 0.4, 0.3, np.minimum(z, LIMIT)))
    terms = [
        between(0, 0.2)
        if v == 0.1
        else between(0.2, 0.4)
        if v == 0.3
        else above(LIMIT)
        if v == LIMIT
        else exact(v)
        for v in x
    ]
    box = offcut.regions.Box
    zones = [box(0, 0.2), box(0.2, 0.4, closed="left"), lambda y: y >= LIMIT]
    posterior = offcut.sample(normal_model(censored=zones), x, kernel=HMC, seed=5, **RUN)
    assert_agrees(posterior, grid_of(terms), ["loc", "scale"])

    limits = np.linspace(0.6, 2.0, len(z))
    x = np.minimum(z, limits)
    terms = [above(c) if v == c else exact(v) for v, c in zip(x, limits, strict=True)]
    model = offcut.truncated(
        prior={"loc": dist.Normal(0.3, 0.5), "scale": dist.LogNormal(0.0, 0.25)},
        base=lambda theta, c: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x, c: x > 0,
        censored=offcut.Clamped(upper=lambda c: c),
    )
    posterior = offcut.sample(model, x, covariates=limits, kernel=HMC, seed=6, **RUN)
    assert_agrees(posterior, grid_of(terms), ["loc", "scale"])


@pytest.mark.calibrate
def test_one_clamped_coordinate_of_two():
    """x1 > 0 or nothing is recorded; x2 saturates. The first coordinate informs the second."""
    covariance = np.array([[1.0, 0.6], [0.6, 1.0]])
    rng = np.random.default_rng(8)
    z = rng.multivariate_normal([0.3, 0.2], covariance, size=400)
    z = z[z[:, 0] > 0][:25]
    x = z.copy()
    x[:, 1] = np.minimum(x[:, 1], 0.7)
    assert 4 < (x[:, 1] == 0.7).sum() < 20
    model = offcut.truncated(
        prior={"mean": dist.Normal(0.0, 0.7).expand([2]).to_event(1)},
        base=lambda theta: dist.MultivariateNormal(theta["mean"], covariance_matrix=covariance),
        inside=lambda y: y[0] > 0,
        censored=offcut.Clamped(upper=np.array([np.inf, 0.7])),
    )

    def log_density(a, b):
        total = stats.norm.logpdf(a, 0, 0.7) + stats.norm.logpdf(b, 0, 0.7)
        for x1, x2 in x:
            centre = b + 0.6 * (x1 - a)
            total = total + stats.norm.logpdf(x1, a, 1) - special.log_ndtr(a)
            if x2 == 0.7:
                total = total + special.log_ndtr((centre - 0.7) / 0.8)
            else:
                total = total + stats.norm.logpdf(x2, centre, 0.8)
        return total

    grid = Grid(log_density, a=(-2.5, 2.5, 200), b=(-2.5, 2.5, 200))
    run = {**RUN, "draws": 1000, "warmup": 200}
    posterior = offcut.sample(model, x, seed=7, **run)
    assert posterior.attrs["kernel"].startswith("Conjugate")
    mean = posterior["posterior"]["mean"].values
    assert_agrees({"posterior": _Named(a=mean[..., 0], b=mean[..., 1])}, grid, ["a", "b"])
    naive = offcut.truncated(
        prior={"mean": dist.Normal(0.0, 0.7).expand([2]).to_event(1)},
        base=lambda theta: dist.MultivariateNormal(theta["mean"], covariance_matrix=covariance),
        inside=lambda y: y[0] > 0,
    )
    mean = offcut.sample(naive, x, seed=7, **run)["posterior"]["mean"].values
    assert_disagrees({"posterior": _Named(a=mean[..., 0], b=mean[..., 1])}, grid, ["a", "b"])


class _Named(dict):
    """Arrays by name, in the form that the tests of truth.py read."""

    def __getitem__(self, name):
        return type("Variable", (), {"values": dict.__getitem__(self, name)})


# Measurement error: the window acts on the noisy value, the parameters are about the true one.


def noisy_data(n=40, seed=3):
    rng = np.random.default_rng(seed)
    error = rng.uniform(0.3, 0.9, 20 * n)
    noisy = rng.normal(0.5, 0.8, 20 * n) + error * rng.normal(size=20 * n)
    return noisy[noisy > 0][:n], error[noisy > 0][:n]


def noisy_model(noise=True):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.3, 0.5), "scale": dist.LogNormal(0.0, 0.25)},
        base=lambda theta, c: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x, c: x > 0,
        noise=(lambda theta, true, c: dist.Normal(true, c)) if noise else None,
    )


@pytest.mark.calibrate
def test_measurement_error_before_the_window():
    x, error = noisy_data()

    def log_density(loc, scale):
        total = log_prior(loc, scale)
        for value, e in zip(x, error, strict=True):
            width = np.sqrt(scale**2 + e**2)
            total = total + stats.norm.logpdf(value, loc, width) - special.log_ndtr(loc / width)
        return total

    grid = Grid(log_density, loc=(-2.5, 3.0, 160), scale=(0.2, 3.0, 160))
    posterior = offcut.sample(noisy_model(), x, covariates=error, kernel=HMC, seed=8, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])
    ignored = offcut.sample(noisy_model(False), x, covariates=error, kernel=HMC, seed=8, **RUN)
    assert_disagrees(ignored, grid, ["loc", "scale"])


@pytest.mark.calibrate
def test_true_values_may_be_positive_where_noisy_ones_are_not():
    """Exponential true values, normal error, seen above -0.2: an exponentially modified normal."""
    rng = np.random.default_rng(9)
    noisy = rng.exponential(1 / 1.5, 400) + 0.5 * rng.normal(size=400)
    x = noisy[noisy > -0.2][:30]
    assert (x < 0).any()
    model = offcut.truncated(
        prior={"rate": dist.Gamma(4.0, 3.0)},
        base=lambda theta: dist.Exponential(theta["rate"]),
        inside=offcut.regions.Box(-0.2, np.inf),
        noise=lambda theta, true: dist.Normal(true, 0.5),
    )

    def log_density(rate):
        k = 1 / (0.5 * rate)
        total = stats.gamma.logpdf(rate, 4, scale=1 / 3)
        for value in x:
            total = total + stats.exponnorm.logpdf(value, k, scale=0.5)
        return total - len(x) * stats.exponnorm.logsf(-0.2, k, scale=0.5)

    posterior = offcut.sample(model, x, seed=9, **RUN)
    assert posterior.attrs["kernel"].startswith("Conjugate")
    assert_agrees(posterior, Grid(log_density, rate=(0.05, 8.0, 800)), ["rate"])


# Invariance: hide what the model has drawn, and start from it.


def run(model, hide, covariates=(), n=5, point_size=1):
    with jax.enable_x64(True):
        layout = Layout.of(n, point_size, bool(covariates))
        sampler = AugmentedSampler(model, layout, offcut.HMC(0.2, 5))
        result = invariance_test(
            sampler, model, layout, n, keys.from_seed(11), covariates=covariates, hide=hide
        )
    assert result.moved > 0.3
    return result


def hide_zone(points, n=5):
    zone = jnp.where(points[:n] >= LIMIT, 0, -1)
    return Hidden(Whole(jnp.arange(n), zone, jnp.ones(1), jnp.int32(n)), None)


@pytest.mark.calibrate
def test_drawing_from_a_zone_leaves_the_joint_alone():
    assert run(normal_model(censored=lambda y: y >= LIMIT), hide_zone).p_value > FALSE_ALARM
    wrong = normal_model(censored=lambda y: y >= LIMIT + 0.3)  # drawn from another zone
    assert run(wrong, hide_zone).p_value < FALSE_ALARM


@pytest.mark.calibrate
def test_slices_in_a_zone_leave_the_joint_alone(monkeypatch):
    monkeypatch.setattr("offcut.augmentation.impute.PATIENCE", -1)  # no proposal at all
    monkeypatch.setattr("offcut.augmentation.impute.PATIENCE_EACH", 0)
    assert run(normal_model(censored=lambda y: y >= LIMIT), hide_zone).p_value > FALSE_ALARM
    wrong = normal_model(censored=lambda y: y >= LIMIT + 0.3)
    assert run(wrong, hide_zone).p_value < FALSE_ALARM


def hide_true(points, n=5):
    low = jnp.full((n, 2), -jnp.inf)
    free = jnp.broadcast_to(jnp.array([False, True]), (n, 2))  # noisy, true
    return Hidden(None, Parts(jnp.arange(n), free, low, -low, jnp.full(2, 1.5), jnp.int32(n)))


@functools.cache
def noisy_shared():
    return offcut.truncated(
        prior={"loc": dist.Normal(0.3, 0.5), "scale": dist.LogNormal(0.0, 0.25)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
        noise=lambda theta, true: dist.Normal(true, 0.6),
    )


@pytest.mark.calibrate
def test_slicing_the_true_values_leaves_the_joint_alone():
    assert run(noisy_shared(), hide_true, point_size=2).p_value > FALSE_ALARM


@pytest.mark.calibrate
def test_a_slice_that_does_not_shrink_around_the_present_value_is_caught(monkeypatch):
    honest = parts_module.slice_column

    def shifted(key, log_density, flat, column, parts):
        """An interval that grows to the right only: not reversible."""
        moved = honest(key, log_density, flat, column, parts)
        return flat.at[:, column].set(jnp.maximum(moved[:, column], flat[:, column] - 0.2))

    monkeypatch.setattr(parts_module, "slice_column", shifted)
    assert run(noisy_shared(), hide_true, point_size=2).p_value < FALSE_ALARM
