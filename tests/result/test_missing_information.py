"""The fraction of missing information against closed forms.

A normal with known scale, seen above zero: given Y the posterior of the mean is normal with
precision 1/s^2 + n + |Y| exactly, so J = 1/s^2 + n E[1/Z] by quadrature, and Var(loc | X) too.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import special, stats

import offcut
from offcut.driver.chains import Settings, run_chains
from offcut.result.missing_information import missing_information
from offcut.samplers.choice import prepare
from statistical import models
from statistical.truth import FALSE_ALARM, p_value

pytestmark = pytest.mark.statistical

PRIOR_SCALE = 0.5  # the prior has a say: leaving it out must show
CHAINS = 24


@pytest.fixture(scope="module")
def truth():
    x = models.half_normal_data(n=12)
    grid = models.half_normal_mean_grid(x, PRIOR_SCALE, low=-4.0, high=4.0)
    loc = grid.values["loc"]
    rate = special.ndtr(loc)
    information = PRIOR_SCALE**-2 + len(x) * grid.mean(1 / rate)
    variance = grid.mean(loc**2) - grid.mean(loc) ** 2
    fraction = 1 - 1 / (information * variance)
    assert 0.1 < fraction < 0.9
    return x, grid.mean(loc), variance, information, fraction


@pytest.fixture(scope="module")
def drawn(truth):
    """The raw run, with the helpers that the result does not keep."""
    x = truth[0]
    model = models.half_normal_mean(PRIOR_SCALE)
    with jax.enable_x64(True):
        prepared = prepare(model, x, None, offcut.HMC(num_steps=5))
        return run_chains(prepared, Settings(3000, 500, CHAINS, 3, None, False), None)


def per_chain(drawn, gradient=None):
    """The estimate from every chain by itself."""
    score = drawn.stats["gradient"] if gradient is None else gradient
    estimates = []
    for chain in range(CHAINS):
        own = slice(chain, chain + 1)
        stat = {"position": drawn.stats["position"][own], "gradient": score[own]}
        found = missing_information(stat, {"loc": drawn.draws["loc"][own]}, False)
        estimates.append((found.worst, float(found.parameters["loc"])))
    return np.array(estimates)


def test_the_score_has_mean_zero_and_the_information_as_variance(truth, drawn):
    """E[s] = 0, E[s^2] = J and E[(u - E u) s] = -1, each by a t-test over chains."""
    _, mean, variance, information, _ = truth
    u, s = drawn.stats["position"][..., 0], drawn.stats["gradient"][..., 0]
    assert p_value(u, mean) > FALSE_ALARM
    assert p_value((u - mean) ** 2, variance) > FALSE_ALARM
    assert p_value(s, 0.0) > FALSE_ALARM
    assert p_value(s**2, information) > FALSE_ALARM
    assert p_value((u - mean) * s, -1.0) > FALSE_ALARM
    assert p_value(s**2, 1.1 * information) < FALSE_ALARM  # and it would see ten per cent


def test_a_score_without_the_prior_is_caught(truth, drawn):
    """The negative control: the likelihood's score alone, as if the prior were flat."""
    _, mean, _, information, _ = truth
    u, s = drawn.stats["position"][..., 0], drawn.stats["gradient"][..., 0]
    wrong = s + u / PRIOR_SCALE**2
    assert p_value(wrong**2, information) < FALSE_ALARM
    assert p_value((u - mean) * wrong, -1.0) < FALSE_ALARM


def test_the_fraction_is_the_one_of_quadrature(truth, drawn):
    """Chains by themselves: their spread is the error. Bias of a chain of 3,000 is far below."""
    *_, fraction = truth
    both = per_chain(drawn)
    for column in both.T:
        assert p_value(column[:, None], fraction) > FALSE_ALARM
    u = drawn.stats["position"]
    wrong = per_chain(drawn, drawn.stats["gradient"] + u / PRIOR_SCALE**2)
    assert p_value(wrong[:, :1], fraction) < FALSE_ALARM


def test_it_is_at_least_the_autocorrelation_of_exact_draws(truth):
    """Data augmentation by hand: exact normal draws given Y, whose lag-1 autocorrelation is the
    fraction of missing information (Liu 1994). The score's figure is an upper bound of it.
    """
    x, *_, fraction = truth
    rng = np.random.default_rng(0)
    n, draws = len(x), 2500
    loc = np.zeros((CHAINS, draws))
    now = np.full(CHAINS, x.mean())
    for t in range(draws):
        count = rng.negative_binomial(n, special.ndtr(now))
        uniform = rng.uniform(size=(CHAINS, count.max() + 1)) * special.ndtr(-now)[:, None]
        below = now[:, None] + special.ndtri(uniform)  # normal, below zero
        total = np.where(np.arange(count.max() + 1) < count[:, None], below, 0.0).sum(axis=1)
        precision = PRIOR_SCALE**-2 + n + count
        now = (x.sum() + total) / precision + rng.normal(size=CHAINS) / np.sqrt(precision)
        loc[:, t] = now
    loc = loc[:, 100:]
    found = missing_information({}, {"loc": loc}, True)
    assert found.worst == pytest.approx(float(found.parameters["loc"]), abs=0.01)
    own = [missing_information({}, {"loc": row[None]}, True).worst for row in loc]
    error = np.std(own, ddof=1) / np.sqrt(CHAINS)
    assert found.worst < fraction + 5 * error
    # E[1/J(Y)] against 1/E[J(Y)]: here the bound is close.
    assert found.worst > fraction - 0.1


def test_two_parameters_that_trade_off():
    """The worst direction is worse than either parameter; without missing data nothing is."""
    rng = np.random.default_rng(1)
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    u = rng.multivariate_normal([0, 0], covariance, size=40_000)
    exact = -u @ np.linalg.inv(covariance)  # the score of a complete-data posterior
    draws = {"a": u[None, :, 0], "b": u[None, :, 1]}
    # A sweep starts where the previous one ended: the score of row t belongs to draw t - 1.
    shifted, position = (np.concatenate([a[:1], a[:-1]])[None] for a in (exact, u))
    found = missing_information({"position": position, "gradient": shifted}, draws, False)
    assert found.worst < 0.05
    assert max(map(float, found.parameters.values())) < 0.05
    # Information J = S^-1 + K, as after K points more in the direction a - b and none in a + b.
    extra = rng.multivariate_normal([0, 0], [[50.0, -50.0], [-50.0, 50.0]], size=40_000)[None]
    found = missing_information({"position": position, "gradient": shifted + extra}, draws, False)
    truth = (
        1
        - 1
        / np.linalg.eigvalsh(
            covariance @ (np.linalg.inv(covariance) + 50 * np.array([[1, -1], [-1, 1]]))
        )[-1]
    )
    assert found.worst == pytest.approx(truth, abs=0.01)
    for value in found.parameters.values():
        assert float(value) < found.worst


THIN = 8


def thinned(x, kernel):
    """The raw run of few draws that are far apart."""
    model = models.half_normal_mean(PRIOR_SCALE)
    with jax.enable_x64(True):
        prepared = prepare(model, x, None, kernel)
        # In blocks that do not end where a draw is kept.
        settings = Settings(400, 300, CHAINS, 3, None, False, block=37, thin=THIN)
        drawn = run_chains(prepared, settings, None)
    return drawn, prepared.sampler.draws_exactly


@pytest.mark.parametrize(
    "kernel",
    [offcut.Conjugate(), pytest.param(offcut.HMC(num_steps=5), marks=pytest.mark.calibrate)],
    ids=["Conjugate", "HMC"],
)
def test_thinning_does_not_change_the_fraction(truth, kernel):
    """Pairs are of one sweep. The negative control pairs the draws that were kept, 8 apart."""
    x, _, variance, _, fraction = truth
    drawn, exactly = thinned(x, kernel)
    if exactly:  # the fraction itself: 1 - E[1 / J(Y)] / Var(loc)
        grid = models.half_normal_mean_grid(x, PRIOR_SCALE, low=-4.0, high=4.0, nodes=400)
        counts = np.arange(400)[:, None]
        law = stats.nbinom.pmf(counts, len(x), special.ndtr(grid.values["loc"])[None])
        given = (law / (PRIOR_SCALE**-2 + len(x) + counts)).sum(axis=0)
        fraction = 1 - grid.mean(given) / variance
    whole = missing_information(drawn.stats, drawn.draws, exactly, drawn.before)
    assert whole.worst == pytest.approx(fraction, abs=0.05)

    def own(chain, before):
        rows = slice(chain, chain + 1)
        stat, draws, before = (
            {key: values[rows] for key, values in part.items()}
            for part in (drawn.stats, drawn.draws, before)
        )
        return float(missing_information(stat, draws, exactly, before).parameters["loc"])

    right = np.array([own(chain, drawn.before) for chain in range(CHAINS)])
    wrong = np.array([own(chain, {}) for chain in range(CHAINS)])
    assert p_value(right[:, None], fraction) > FALSE_ALARM
    assert p_value(wrong[:, None], fraction) < FALSE_ALARM


def test_what_was_before_a_sweep_is_not_in_the_result(truth):
    model = models.half_normal_mean(PRIOR_SCALE)
    short = {"chains": 2, "warmup": 20, "seed": 3, "progress": False}
    whole = offcut.sample(model, truth[0], draws=80, **short)
    sparse = offcut.sample(model, truth[0], draws=10, thin=THIN, **short)
    assert not [name for name in sparse["sample_stats"] if name.startswith("before")]
    kept = whole["posterior"]["loc"].values[:, THIN - 1 :: THIN]
    assert np.array_equal(kept, sparse["posterior"]["loc"].values)
