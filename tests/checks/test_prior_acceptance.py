"""How much passes the filter by the prior alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.checks.looks import warning_before
from offcut.errors import DataError, ModelError, SettingsError
from offcut.samplers.choice import prepare


def above(threshold, scale=1.0, mean=0.0):
    return offcut.truncated(
        prior={"loc": dist.Normal(mean, scale)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda x: x > threshold,
    )


@pytest.fixture(scope="module")
def vague():
    """P(accepted) is Phi(loc), loc ~ Normal(0, 10)."""
    return above(0.0, scale=10.0)


def warned(model, x, covariates=None):
    with jax.enable_x64(True):
        return warning_before(prepare(model, x, covariates))


def test_each_rate_is_the_probability_of_the_window(vague):
    found = offcut.prior_acceptance(vague, draws=150, proposals=20_000)
    exact = stats.norm.sf(0.0, loc=found.theta["loc"])
    seen = ~found.is_limit
    # A proportion of at least 512 proposals: six standard errors, and what one acceptance is.
    error = np.sqrt(exact * (1 - exact) / 512)[seen] + 1e-3
    assert np.all(np.abs(found.rates[seen] - exact[seen]) < 6 * error)
    # Rare ones get more proposals, up to 100 acceptances: to a tenth, so half is five errors off.
    rare = seen & (exact < 0.1) & (exact > 200 / 20_000)
    assert rare.any()
    assert np.all(np.abs(found.rates[rare] / exact[rare] - 1) < 0.5)
    # Three in m is an upper 95% limit; 100 in 100 would be luck, 9 in 10 is not.
    assert np.mean(exact[found.is_limit] < found.rates[found.is_limit]) > 0.9
    assert found.is_limit.sum() > 20


def test_shares_and_quantiles_are_those_of_the_prior(vague):
    found = offcut.prior_acceptance(vague, draws=400, proposals=50_000)
    few = stats.norm.cdf(stats.norm.ppf(0.01) / 10)
    very_few = stats.norm.cdf(stats.norm.ppf(1e-4) / 10)
    assert abs(found.below[0.01] - few) < 5 * np.sqrt(0.25 / 400)
    assert abs(found.below[0.0001] - very_few) < 5 * np.sqrt(0.25 / 400)
    assert found.below[0.0001] <= found.below[0.01]
    assert found.quantiles["95%"] == pytest.approx(1.0, abs=1e-3)


def test_zero_of_m_is_never_reported_as_zero(vague):
    found = offcut.prior_acceptance(vague, n=10, draws=100, proposals=5_000)
    assert found.rates.min() > 0
    assert found.rates[0] <= 3 / 5_000
    assert np.isfinite(list(found.rejections.values())).all()
    said = str(found)
    assert "< 0.0006" in said or "< 0.00059" in said
    assert "> " in said
    assert "Less than 1% passes in" in said
    assert found.advice
    assert "for example at {'loc': -" in said


def test_a_good_prior_has_no_advice():
    found = offcut.prior_acceptance(above(-3.0, scale=0.5), n=50, draws=50)
    assert found.advice == []
    assert found.below == {0.01: 0.0, 0.0001: 0.0}
    assert 0 <= found.rejections["50%"] < 1


def test_rejections_are_those_of_algorithm_1():
    model = above(0.5, scale=1e-6)
    found = offcut.prior_acceptance(model, n=2000, draws=40)
    _, rejected = offcut.augment(1, model, {"loc": 0.0}, n=2000)
    assert found.rejections["50%"] == pytest.approx(len(rejected), rel=0.3)


def test_covariates_are_averaged_over():
    model = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1e-6)},
        base=lambda theta, c: dist.Normal(theta["loc"] + c["shift"], 1.0),
        inside=lambda x, c: x > 0,
    )
    shift = np.array([-2.0, -1.0, 0.0, 3.0])
    found = offcut.prior_acceptance(model, covariates={"shift": shift}, draws=100)
    assert found.n == 4
    assert found.rates.mean() == pytest.approx(stats.norm.cdf(shift).mean(), abs=0.02)
    assert "averaged over the covariates' rows" in str(found)
    assert "at least" in str(found)
    assert warned(model, np.full(4, 0.5), {"shift": shift}) is None


def test_selection_by_a_probability():
    model = offcut.selected(
        prior={"loc": dist.Normal(0.0, 1e-6)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        log_accept=lambda theta, y: -0.5 * y**2,
    )
    found = offcut.prior_acceptance(model, draws=100)
    assert found.rates.mean() == pytest.approx(np.sqrt(0.5), abs=0.01)


@pytest.mark.parametrize(
    ("log_accept", "said"),
    [
        (lambda theta, y: jnp.float64(0.5), "exceed 1"),
        (lambda theta, y: jnp.log(y), "NaN"),
    ],
)
def test_a_broken_promise_is_refused(log_accept, said):
    model = offcut.selected(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        log_accept=log_accept,
    )
    with pytest.raises(ModelError, match=said):
        offcut.prior_acceptance(model, draws=10)


@pytest.mark.usefixtures("unchecked")
def test_bad_settings(vague):
    for name in ("draws", "proposals", "n"):
        with pytest.raises(SettingsError, match=f"{name} must be a whole number of at least 1"):
            offcut.prior_acceptance(vague, **{name: 0})
    with pytest.raises(ModelError, match="rejection models, got dict"):
        offcut.prior_acceptance({})
    with pytest.raises(DataError, match="empty"):
        offcut.prior_acceptance(vague, covariates=np.zeros(0))


def test_the_same_seed_gives_the_same_rates_and_compiles_nothing(vague):
    first = offcut.prior_acceptance(vague, draws=100, proposals=1000)
    programs = dict(vague.programs)
    with jax.log_compiles(False):
        second = offcut.prior_acceptance(vague, draws=100, proposals=1000)
    assert np.array_equal(first.rates, second.rates)
    assert programs == dict(vague.programs)
    counted = [kept for name, kept in programs.items() if "prior" in str(name)]
    assert counted
    assert all(kept.program.compilations == 1 for kept in counted)


def test_the_warning_before_a_run():
    assert warned(above(-1.0), np.full(20, 0.5)) is None
    assert warned(above(0.0, scale=10.0), np.full(20, 0.5)) is None  # half of it is fine
    said = warned(above(5.0), np.full(20, 5.5))
    assert "of its draws less than 1 proposal in 100" in said
    assert "offcut.prior_acceptance(model)" in said
    assert "more than the 200,000 that warm-up has room for" in warned(
        above(8.0), np.full(1000, 8.5)
    )


def test_many_dimensions_take_small_blocks():
    model = offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, 0.1)},
        propose=lambda key, theta: theta["loc"] + jax.random.normal(key, (5000,)),
        log_proposal=lambda theta, y: -0.5 * jnp.sum((y - theta["loc"]) ** 2),
        log_accept=lambda theta, y: jnp.where(y[0] > 0, 0.0, -jnp.inf),
    )
    found = offcut.prior_acceptance(model, draws=20, proposals=200)
    assert found.rates.mean() == pytest.approx(0.5, abs=0.1)
    assert ("prior look", 20, 41) in model.programs
