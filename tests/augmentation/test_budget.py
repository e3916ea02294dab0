"""The claims of the budget and of its certificate, on models whose constant is known."""

from __future__ import annotations

import time
from functools import partial

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import offcut
from offcut.base import Prepared
from offcut.driver.budget import halving_limit
from offcut.driver.chains import Settings, run_chains
from offcut.numerics.ess import effective_size
from offcut.samplers.choice import observe
from statistical import models, negative_controls
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees, moments, p_value

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 2000, "warmup": 300, "progress": False}
HMC = offcut.HMC(num_steps=8)


@pytest.fixture(scope="module")
def tilted():
    """A budget that binds hard: the restricted posterior is far from the unrestricted one."""
    x = models.half_normal_data(n=8)
    grid = models.half_normal_grid(x)
    budget = 4
    restricted, c = grid.tilted(models.half_normal_within_budget(grid, len(x), budget))
    assert 0.3 < c < 0.7
    return models.half_normal(), x, grid, restricted, budget, c


def run_control(control, model, kernel, x, budget, seed):
    """Drive a broken sampler with the real driver."""
    with jax.enable_x64(True):
        arrays, layout, _ = observe(model, x, None)
        settings = Settings(RUN["draws"], RUN["warmup"], RUN["chains"], seed, budget, False)
        wrong = Prepared(control(model, layout, kernel), arrays, {"x": x})
        drawn = run_chains(wrong, settings, None)
    return {"posterior": _Values(drawn.draws)}


class _Values(dict):
    def __getitem__(self, name):
        return type("Variable", (), {"values": dict.__getitem__(self, name)})


@pytest.mark.parametrize(
    "how",
    [
        {"kernel": HMC},
        {"kernel": offcut.RandomWalk()},
        {"method": "exchange"},
        {"method": offcut.PseudoMarginal(acceptances=40)},
    ],
    ids=["HMC", "RandomWalk", "exchange", "pseudo-marginal"],
)
def test_the_draws_come_from_the_tilted_posterior(tilted, how):
    model, x, grid, restricted, budget, _ = tilted
    posterior = offcut.sample(model, x, **how, budget=budget, seed=21, **RUN)
    assert posterior["sample_stats"]["rejected"].max() <= budget
    assert_agrees(posterior, restricted, ["loc", "scale"])
    assert_disagrees(posterior, grid, ["loc", "scale"])  # the test can tell the two apart


def test_cutting_instead_of_redrawing_gives_another_posterior(tilted):
    model, x, _, restricted, budget, _ = tilted
    wrong = run_control(negative_controls.CapInsteadOfRedraw, model, HMC, x, budget, seed=22)
    assert_disagrees(wrong, restricted, ["loc", "scale"])


def test_the_pseudo_marginal_indicator_needs_a_run_of_its_own(tilted):
    model, x, _, restricted, budget, _ = tilted
    walk = offcut.RandomWalk(target_acceptance=0.2)
    control = partial(
        negative_controls.IndicatorFromEstimate, settings=offcut.PseudoMarginal(len(x))
    )
    wrong = run_control(control, model, walk, x, budget, seed=23)
    assert_disagrees(wrong, restricted, ["loc", "scale"])


def test_mean_attempts_are_one_over_c(tilted):
    model, x, _, _, budget, c = tilted
    posterior = offcut.sample(model, x, kernel=HMC, budget=budget, seed=24, **RUN)
    attempts = posterior["sample_stats"]["attempts"].values
    assert p_value(attempts, 1 / c) > FALSE_ALARM
    assert p_value(attempts, 1.15 / c) < FALSE_ALARM  # and the test would see a wrong constant
    assert posterior.attrs["tv_estimate"] == pytest.approx(1 - 1 / attempts.mean())


@pytest.mark.parametrize("budget", [0, 2, 4, 10, 30])
def test_total_variation_is_at_most_one_minus_c(tilted, budget):
    _, x, grid, _, _, _ = tilted
    within = models.half_normal_within_budget(grid, len(x), budget)
    restricted, c = grid.tilted(within)
    assert grid.total_variation(restricted) <= 1 - c
    # The repeat probability P(attempts > 1) is a lower limit of 1 - c.
    assert restricted.mean(1 - within) <= 1 - c


@pytest.mark.parametrize("budget", [4, 10, 30])
def test_halving_changes_the_posterior_by_at_most_the_exceedance(tilted, budget):
    _, x, grid, _, _, _ = tilted
    whole, _ = grid.tilted(models.half_normal_within_budget(grid, len(x), budget))
    half, _ = grid.tilted(models.half_normal_within_budget(grid, len(x), budget // 2))
    exceed = exceedance(whole, len(x), budget)
    assert half.total_variation(whole) <= exceed + 1e-12


def exceedance(restricted, n, budget):
    """P(|Y| > B/2) under the posterior restricted to |Y| <= B."""
    accept = special.ndtr(restricted.values["loc"] / restricted.values["scale"])
    half, whole = (stats.nbinom.cdf(b, n, accept) for b in (budget // 2, budget))
    possible = whole > 0  # elsewhere the restricted posterior is zero
    return restricted.mean(1 - np.where(possible, half / np.where(possible, whole, 1), 0))


def test_the_halving_limit_covers(tilted):
    """Over 200 short runs the limit lies above the truth at least as often as it promises.

    Binomial: 200 runs at 95% have 180 or more with probability 0.998; the draws are from a chain.
    """
    model, x, grid, _, _, _ = tilted
    budget = 14
    restricted, _ = grid.tilted(models.half_normal_within_budget(grid, len(x), budget))
    truth = exceedance(restricted, len(x), budget)
    assert 0.02 < truth < 0.5
    run = {**RUN, "chains": 32, "draws": 1250}
    posterior = offcut.sample(model, x, kernel=HMC, budget=budget, seed=25, **run)
    rejected = posterior["sample_stats"]["rejected"].values
    assert p_value((rejected > budget // 2).astype(float), truth) > FALSE_ALARM
    runs = rejected.reshape(32, 10, 125).reshape(-1, 1, 125)[:200]
    limits = np.array([halving_limit(series, budget) for series in runs])
    assert np.mean(limits >= truth) >= 0.9
    # A limit that ignores how draws depend on one another promises too much.
    careless = [
        stats.beta.ppf(0.5, (s > budget // 2).sum() + 1, s.size - (s > budget // 2).sum() + 1e-9)
        for s in runs
    ]
    assert np.mean(np.array(careless) >= truth) < 0.9


def test_the_limit_is_three_over_ess_where_nothing_exceeded():
    rejected = np.random.default_rng(0).integers(0, 5, size=(4, 500))
    assert halving_limit(rejected, 100) == pytest.approx(
        3 / effective_size(rejected.astype(float)), rel=0.01
    )


def test_one_minus_one_over_mean_attempts_is_no_bound():
    """With heavy-tailed attempts the estimate is mostly too low, so it may not be called a bound.

    Exact draws of theta from the restricted posterior of a weak prior, attempts geometric.
    """
    x = models.half_normal_data(n=4, loc=-1.0, seed=3)
    grid = models.half_normal_mean_grid(x, 4.0, low=-30.0, nodes=6000)
    within = stats.nbinom.cdf(50, len(x), special.ndtr(grid.values["loc"]))
    restricted, c = grid.tilted(within)
    rng = np.random.default_rng(1)
    estimates, lower = [], []
    for _ in range(300):
        theta = rng.choice(
            len(within), p=restricted.probability / restricted.probability.sum(), size=500
        )
        attempts = rng.geometric(np.maximum(within[theta], 1e-12))
        estimates.append(1 - 1 / attempts.mean())
        lower.append(np.mean(attempts > 1))
    assert np.mean(np.array(estimates) >= 1 - c) < 0.5
    assert np.mean(lower) <= 1 - c


# A prior under which the expected number of rejections is infinite: E[1/Phi(loc)] diverges when
# loc ~ Normal(0, s), s > 1.

WEAK = 3.0


@pytest.fixture(scope="module")
def infinite():
    x = models.half_normal_data(n=4, loc=-1.0, seed=3)
    grid = models.half_normal_mean_grid(x, WEAK, low=-25.0, nodes=4000)
    return models.half_normal_mean(WEAK), x, grid


def test_the_expectation_really_is_infinite(infinite):
    _, x, _ = infinite
    reach = [
        models.half_normal_mean_grid(x, WEAK, low=low, nodes=4000) for low in (-6.0, -9.0, -12.0)
    ]
    cost = [len(x) * g.mean(np.exp(-special.log_ndtr(g.values["loc"]))) for g in reach]
    assert cost[1] > 10 * cost[0]
    assert cost[2] > 10 * cost[1]


def test_a_budget_makes_an_infinite_expectation_finite_and_exact(infinite):
    model, x, grid = infinite
    budget = 12
    within = stats.nbinom.cdf(budget, len(x), special.ndtr(grid.values["loc"]))
    restricted, c = grid.tilted(within)
    posterior = offcut.sample(model, x, kernel=HMC, budget=budget, seed=26, **RUN)
    assert_agrees(posterior, restricted, ["loc"])
    assert min(moments(posterior, grid, ["loc"]).values()) < FALSE_ALARM
    attempts = posterior["sample_stats"]["attempts"].values
    assert abs(attempts.mean() * c - 1) < 0.5  # heavy tails: no sharper test has a known level


def test_auto_ends_in_bounded_time_where_the_expectation_is_infinite(infinite):
    model, x, _ = infinite
    started = time.monotonic()
    posterior = offcut.sample(
        model, x, kernel=offcut.HMC(0.2, 5), draws=300, warmup=300, chains=2, seed=1, progress=False
    )
    assert time.monotonic() - started < 60
    assert posterior.attrs["budget"] >= 1000
    assert 0 < posterior.attrs["tv_halving_limit"] <= 1


def test_giving_up_leaves_the_target_alone(tilted, monkeypatch):
    """With two attempts a sweep often keeps its Y; (theta, Y) is the chain, and still exact."""
    monkeypatch.setattr("offcut.samplers.algorithm2.MOST_ATTEMPTS", 2)
    _, x, _, restricted, budget, _ = tilted
    posterior = offcut.sample(models.half_normal(), x, kernel=HMC, budget=budget, seed=27, **RUN)
    assert posterior["sample_stats"]["gave_up"].mean() > 0.05
    assert "void" in posterior.attrs["tv_note"]
    assert_agrees(posterior, restricted, ["loc", "scale"])


def test_an_ample_budget_and_none_agree(tilted):
    _, x, grid, _, _, _ = tilted
    model = models.half_normal()
    for budget in (None, 2000):
        posterior = offcut.sample(model, x, kernel=HMC, budget=budget, seed=28, **RUN)
        assert_agrees(posterior, grid, ["loc", "scale"])


def test_auto_grows_its_budget_when_draws_come_near_it(monkeypatch, tilted):
    monkeypatch.setattr(
        "offcut.driver.chains.budget_after_warmup", lambda rejected, held, n, most: max(held, 8)
    )
    _, x, _, _, _, _ = tilted
    posterior = offcut.sample(models.half_normal(), x, kernel=HMC, seed=29, **RUN)
    assert posterior.attrs["budget_restarts"] >= 1
    assert posterior.attrs["budget"] >= 32
    assert posterior.attrs["tv_halving_limit"] < 0.02


def test_exchange_and_pseudo_marginal_say_why_they_have_no_estimate(tilted):
    model, x, _, _, budget, _ = tilted
    how = {"method": "exchange", "kernel": offcut.RandomWalk(0.5), "budget": budget}
    posterior = offcut.sample(model, x, **how, draws=100, warmup=0, progress=False)
    assert np.isnan(posterior.attrs["tv_estimate"])
    assert "attempts" in posterior.attrs["tv_note"]
    assert "attempts" not in posterior["sample_stats"]


@pytest.mark.calibrate
def test_a_collapsed_block_under_a_budget_has_the_tilted_posterior():
    """(theta1, Y) drawn as one pair; drawing theta1 first and redrawing Y alone is wrong."""
    x = models.half_normal_data(n=6)
    budget = 4

    def log_density(loc, scale):
        like = -len(x) * (np.log(scale) + special.log_ndtr(loc / scale))
        for value in x:
            like = like - 0.5 * ((value - loc) / scale) ** 2
        return like + stats.lognorm.logpdf(scale, 0.3)

    grid = Grid(log_density, loc=(-1.50125, 1.50125, 120), scale=(0.15, 4.0, 160))
    restricted, c = grid.tilted(models.half_normal_within_budget(grid, len(x), budget))
    posterior = offcut.sample(models.collapsed(), x, kernel=HMC, budget=budget, seed=30, **RUN)
    assert_agrees(posterior, restricted, ["loc", "scale"])
    assert p_value(posterior["sample_stats"]["attempts"].values, 1 / c) > FALSE_ALARM
    wrong = run_control(
        negative_controls.CollapsedBesideBudget, models.collapsed(), HMC, x, budget, seed=31
    )
    assert_disagrees(wrong, restricted, ["loc", "scale"])


def test_a_prior_with_a_dependent_support_is_exact():
    """upper depends on lower: transforms with supports that move."""
    import numpyro

    def prior():
        low = numpyro.sample("low", dist.Uniform(-1.0, 0.0))
        numpyro.sample("loc", dist.Uniform(low, 1.5))

    model = offcut.truncated(
        prior=prior,
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda value: value > 0,
    )
    x = models.half_normal_data(n=6)

    def log_density(low, loc):
        like = -len(x) * special.log_ndtr(loc) - 0.5 * len(x) * loc**2 + loc * x.sum()
        inside = (loc > low) & (loc < 1.5)
        return np.where(inside, like - np.log(1.5 - low), -np.inf)

    # The inner variable has a moving lower limit: integrate it on its own scale.
    def on_unit(low, unit):
        loc = low + (1.5 - low) * unit
        return log_density(low, loc) + np.log(1.5 - low)

    grid = Grid(on_unit, low=(-1.0, 0.0, 60), unit=(0.0, 1.0, 200))
    low, unit = grid.values["low"], grid.values["unit"]
    grid.values = {"low": low, "loc": low + (1.5 - low) * unit}
    posterior = offcut.sample(model, x, kernel=HMC, seed=32, **RUN)
    assert_agrees(posterior, grid, ["low", "loc"])
