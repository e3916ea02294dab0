"""The exact likelihood as a kernel, and NumPyro's own truncated normal beside ours."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.errors import SettingsError
from offcut.regions import Box
from offcut.window_mass import log_mass
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees, run_numpyro

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 1500, "warmup": 400, "progress": False}
PRIOR = {"loc": dist.Normal(0.5, 0.5), "scale": dist.LogNormal(-1.0, 0.3)}


def doubly_truncated(inside):
    return offcut.truncated(
        prior=PRIOR,
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=inside,
    )


@pytest.fixture(scope="module")
def data():
    z = np.random.default_rng(5).normal(0.7, 0.4, 400)
    return z[(z > 0) & (z < 1)][:60]


@pytest.fixture(scope="module")
def grid(data):
    def log_density(loc, scale):
        total = stats.norm.logpdf(loc, 0.5, 0.5) + stats.lognorm.logpdf(scale, 0.3, 0, np.exp(-1))
        below = stats.norm.sf(0, loc, scale) - stats.norm.sf(1, loc, scale)
        above = stats.norm.cdf(1, loc, scale) - stats.norm.cdf(0, loc, scale)
        mass = np.where(loc < 0.5, below, above)  # of two tails the one with digits left
        for value in data:
            total = total + stats.norm.logpdf(value, loc, scale)
        return total - len(data) * np.log(mass)

    return Grid(log_density, loc=(-1.5, 3.0, 200), scale=(0.08, 1.6, 200))


@pytest.fixture(scope="module")
def numpyro_draws(data):
    def model():
        loc = numpyro.sample("loc", PRIOR["loc"])
        scale = numpyro.sample("scale", PRIOR["scale"])
        numpyro.sample("x", dist.TruncatedNormal(loc, scale, low=0.0, high=1.0), obs=data)

    return run_numpyro(model)


@pytest.mark.calibrate
@pytest.mark.parametrize("kernel", [offcut.NUTS(), offcut.Exchange(), offcut.Direct()], ids=repr)
def test_a_doubly_truncated_normal_agrees_with_numpyro(data, grid, numpyro_draws, kernel):
    """Welch's t-test over 16 chains each, and both against quadrature."""
    posterior = offcut.sample(
        doubly_truncated(Box(0, 1)), data, kernel=kernel, seed=2, **{**RUN, "draws": 3000}
    )
    for name in ("loc", "scale"):
        for power in (1, 2):
            ours = (posterior["posterior"][name].values ** power).mean(axis=1)
            theirs = (numpyro_draws[name] ** power).mean(axis=1)
            assert stats.ttest_ind(ours, theirs, equal_var=False).pvalue > FALSE_ALARM
    assert_agrees(posterior, grid, ["loc", "scale"])


@pytest.mark.calibrate
def test_a_union_seen_directly_and_by_its_rejections():
    window = Box(0, 1) | Box(lower=2.5)
    z = np.random.default_rng(6).normal(0.9, 1.0, 400)
    x = z[((z > 0) & (z < 1)) | (z > 2.5)][:40]
    model = offcut.truncated(
        prior={"loc": dist.Normal(0.5, 0.5)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=window,
    )

    def log_density(loc):
        mass = stats.norm.cdf(1 - loc) - stats.norm.cdf(-loc) + stats.norm.sf(2.5 - loc)
        like = loc * x.sum() - 0.5 * len(x) * loc**2 - len(x) * np.log(mass)
        return like + stats.norm.logpdf(loc, 0.5, 0.5)

    truth = Grid(log_density, loc=(-2, 3, 800))
    for kernel in (offcut.Direct(), None):
        posterior = offcut.sample(model, x, kernel=kernel, seed=3, **RUN)
        assert_agrees(posterior, truth, ["loc"])
    assert posterior.attrs["kernel"] == "Conjugate(normal: loc normal)"
    wrong = offcut.truncated(
        prior=PRIOR, base=lambda t: dist.Normal(t["loc"], 1.0), inside=~~window
    )
    wrong.inside = Box(0, 1) | Box(lower=2.0)
    assert_disagrees(offcut.sample(wrong, x, kernel=offcut.Direct(), seed=3, **RUN), truth, ["loc"])


FAMILIES = {
    "normal": (dist.Normal(0.3, 0.7), stats.norm(0.3, 0.7)),
    "log normal": (dist.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
    "exponential": (dist.Exponential(1.7), stats.expon(scale=1 / 1.7)),
    "Weibull": (dist.Weibull(1.3, 1.6), stats.weibull_min(1.6, scale=1.3)),
    "logistic": (dist.Logistic(0.3, 0.7), stats.logistic(0.3, 0.7)),
    "Laplace": (dist.Laplace(0.3, 0.7), stats.laplace(0.3, 0.7)),
    "Pareto": (dist.Pareto(0.4, 2.2), stats.pareto(2.2, scale=0.4)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_masses_of_windows_in_bulk_and_tails(name):
    base, truth = FAMILIES[name]
    with jax.enable_x64(True):
        for low, high in [(-np.inf, 0.5), (0.5, np.inf), (0.5, 1.0), (-3.0, 0.45), (6.0, 6.5)]:
            direct = (
                truth.sf(low) - truth.sf(high) if low > 0.5 else truth.cdf(high) - truth.cdf(low)
            )
            found = float(log_mass(base, [(low, high)]))
            if direct > 0:
                assert found == pytest.approx(np.log(direct), rel=1e-8)
            else:
                assert found == -np.inf
        several = float(log_mass(base, [(0.5, 0.6), (0.9, 1.2)]))
        apart = [truth.cdf(b) - truth.cdf(a) for a, b in ((0.5, 0.6), (0.9, 1.2))]
        assert several == pytest.approx(np.log(sum(apart)), rel=1e-10)


def test_far_tails_keep_their_digits_and_gradients():
    """Forty standard deviations away: cdf differences are 0 - 0 or 1 - 1 there."""
    with jax.enable_x64(True):
        for sign in (-1, 1):
            low, high = sorted((sign * 40.0, sign * 41.0))

            def mass(loc, low=low, high=high):
                return log_mass(dist.Normal(loc, 1.0), [(low, high)])

            assert float(mass(0.0)) == pytest.approx(stats.norm.logsf(40), rel=1e-12)
            step = 1e-4
            slope = float(jax.grad(mass)(0.0))
            assert slope == pytest.approx(float(mass(step) - mass(-step)) / (2 * step), rel=1e-6)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (doubly_truncated(lambda x: (x > 0) & (x < 1)), "made of intervals"),
        (doubly_truncated(Box(0, 1) & (lambda x: x > 0.5)), "made of intervals"),
        (
            offcut.truncated(
                {"df": dist.Gamma(2, 1)}, lambda t: dist.StudentT(t["df"], 0.0, 1.0), Box(0, 1)
            ),
            "not StudentT",
        ),
        (
            offcut.truncated(
                {"loc": dist.Normal(0, 1)},
                lambda t: dist.Normal(t["loc"], 1.0),
                Box(0, 1),
                noise=lambda t, true: dist.Normal(true, 1.0),
            ),
            "measurement error",
        ),
        (
            offcut.truncated(
                {"loc": dist.Normal(0, 1)},
                lambda t: dist.Normal(t["loc"], 1.0).expand([2]).to_event(1),
                Box(0, 1),
            ),
            "single number",
        ),
    ],
)
def test_where_the_mass_is_not_known_direct_says_why(model, reason):
    shape = (3, 2) if "single" in reason else 3
    with pytest.raises(SettingsError, match=reason):
        offcut.sample(model, np.full(shape, 0.6), kernel=offcut.Direct(), progress=False)
