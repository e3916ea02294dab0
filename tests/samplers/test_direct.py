"""The exact likelihood as a method, and NumPyro's own truncated normal beside ours."""

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
from offcut.samplers.choice import prepare
from offcut.samplers.direct import log_mass
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
@pytest.mark.parametrize("method", ["augment", "exchange", "direct"])
def test_a_doubly_truncated_normal_agrees_with_numpyro(data, grid, numpyro_draws, method):
    """Welch's t-test over 16 chains each, and both against quadrature."""
    kernel = offcut.NUTS() if method == "augment" else None
    run = {**RUN, "method": method, "kernel": kernel, "draws": 3000}
    posterior = offcut.sample(doubly_truncated(Box(0, 1)), data, seed=2, **run)
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
    for method in ("direct", "auto"):
        posterior = offcut.sample(model, x, method=method, seed=3, **RUN)
        assert_agrees(posterior, truth, ["loc"])
    assert posterior.attrs["kernel"] == "Conjugate(normal: loc normal)"
    wrong = offcut.truncated(
        prior=PRIOR, base=lambda t: dist.Normal(t["loc"], 1.0), inside=~~window
    )
    wrong.inside = Box(0, 1) | Box(lower=2.0)
    assert_disagrees(offcut.sample(wrong, x, method="direct", seed=3, **RUN), truth, ["loc"])


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
        offcut.sample(model, np.full(shape, 0.6), method="direct", progress=False)


#: Windows with a piece that has no mass, by family; the last piece is the one that has.
VOID = {
    "normal": [[(1e200, 2e200), (0.5, 1.0)], [(-3e12, -2e12), (0.5, 1.0)]],
    "log normal": [[(-2.0, -1.0), (0.5, 1.0)], [(-1.0, 0.0), (0.5, 1.0)]],
    "exponential": [[(-2.0, -1.0), (0.5, 1.0)], [(1e308, np.inf), (0.5, 1.0)]],
    "Weibull": [[(-2.0, -1.0), (0.5, 1.0)], [(1e250, 1e251), (0.5, 1.0)]],
    "logistic": [[(1e15, 2e15), (0.5, 1.0)]],
    "Laplace": [[(-2e15, -1e15), (0.5, 1.0)]],
    "Pareto": [[(0.1, 0.2), (0.5, 1.0)], [(-np.inf, 0.3), (0.5, 1.0)], [(0.1, 0.4), (0.5, 1.0)]],
}


def few(names, short):
    """All names, those that are not ``short`` under calibrate."""
    return [n if n in short else pytest.param(n, marks=pytest.mark.calibrate) for n in names]


@pytest.mark.parametrize("name", few(VOID, {"normal", "exponential", "Pareto"}))
def test_a_piece_without_mass_says_nothing(name):
    """Neither about the mass nor about its slope, at the theta of FAMILIES and further out."""
    kind = type(FAMILIES[name][0])
    names = list(kind.arg_constraints)
    first = np.array([getattr(FAMILIES[name][0], n) for n in names], float)
    with jax.enable_x64(True):

        def all_masses(values):
            base = kind(**dict(zip(names, values, strict=True)))
            pairs = [log_mass(base, w) for window in VOID[name] for w in (window, window[-1:])]
            return jax.numpy.stack(pairs)

        both = jax.jit(lambda values: (all_masses(values), jax.jacrev(all_masses)(values)))
        value, slope = both(first)
        assert np.isfinite(value).all()
        assert np.isfinite(slope).all()
        np.testing.assert_allclose(value[::2], value[1::2], rtol=1e-12)
        np.testing.assert_allclose(slope[::2], slope[1::2], rtol=1e-9, atol=1e-12)
        far = first * np.where(np.isin(names, ["scale"]), 1e-9, 1.0)
        value, slope = both(far)
        assert not np.isnan(value).any()
        assert np.isfinite(slope).all()


def test_a_window_without_mass_is_impossible_and_flat():
    with jax.enable_x64(True):
        window = [(-3.0, -2.0), (0.1, 0.3)]
        mass = jax.value_and_grad(lambda scale: log_mass(dist.Pareto(scale, 2.0), window))
        value, slope = mass(0.4)
        assert value == -np.inf
        assert slope == 0.0


@pytest.mark.parametrize("name", few(FAMILIES, {"normal", "Pareto"}))
def test_a_narrow_piece_has_the_mass_of_its_density(name):
    """Where the two ends have the same logarithm of F; the density's slope with it."""
    kind, at = type(FAMILIES[name][0]), FAMILIES[name][0]
    names = list(kind.arg_constraints)
    first = np.array([getattr(at, n) for n in names], float)
    width = 2.0**-40
    with jax.enable_x64(True):

        def mass(values):
            base = kind(**dict(zip(names, values, strict=True)))
            return log_mass(base, [(1.5, 1.5 + width)])

        def density(values):
            base = kind(**dict(zip(names, values, strict=True)), validate_args=False)
            return base.log_prob(1.5 + width / 2) + np.log(width)

        for found, wanted in zip(
            jax.jit(jax.value_and_grad(mass))(first),
            jax.jit(jax.value_and_grad(density))(first),
            strict=True,
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("covariates", [False, True])
def test_the_density_of_more_than_a_chunk_of_data(covariates):
    """Point by point, which needs no room for rejections; as compiled for a sampler."""
    x = np.random.default_rng(7).uniform(size=300)
    c = np.linspace(-0.5, 0.5, 300) if covariates else np.zeros(300)
    model = offcut.truncated(
        prior={"loc": dist.Laplace(0.0, 1.0)},
        base=lambda theta, c=0.0: dist.Laplace(theta["loc"] + c, 0.5),
        inside=Box(0, 1),
    )
    with jax.enable_x64(True):
        given = c if covariates else None
        sampler, arrays, _ = prepare(model, x, given, method="direct")
        found = jax.jit(lambda u, data: sampler._log_density(data)(u))(np.array([0.2]), arrays)
    base = stats.laplace(0.2 + c, 0.5)
    likelihood = base.logpdf(x) - np.log(base.cdf(1) - base.cdf(0))
    assert float(found) == pytest.approx(np.sum(likelihood) + stats.laplace.logpdf(0.2), rel=1e-12)


@pytest.mark.calibrate
def test_more_than_a_chunk_of_data_and_pieces_that_come_and_go():
    """A Pareto whose support may begin in, between or behind the pieces of its window."""
    window = [(0.5, 1.0), (2.0, 3.0)]
    u = np.random.default_rng(7).uniform(size=150)
    x = 2.0 * (1 - u * (1 - 1.5**-2.0)) ** -0.5  # alpha = 2, seen in (2, 3)
    model = offcut.truncated(
        prior={"scale": dist.Uniform(0.2, 1.9), "alpha": dist.Gamma(4.0, 2.0)},
        base=lambda theta: dist.Pareto(theta["scale"], theta["alpha"]),
        inside=Box(*window[0]) | Box(*window[1]),
    )
    posterior = offcut.sample(
        model, x, method="direct", seed=3, **{**RUN, "draws": 600, "warmup": 200}
    )

    def log_density(scale, alpha):
        mass = 0.0
        for low, high in window:
            ends = [np.maximum(end, scale) for end in (low, high)]
            mass = mass + (ends[0] / scale) ** -alpha - (ends[1] / scale) ** -alpha
        like = len(x) * (np.log(alpha) + alpha * np.log(scale)) - (alpha + 1) * np.log(x).sum()
        return like - len(x) * np.log(mass) + stats.gamma.logpdf(alpha, 4, scale=0.5)

    truth = Grid(log_density, scale=(0.2, 1.9, 680), alpha=(1e-3, 8.0, 400))
    assert_agrees(posterior, truth, ["scale", "alpha"])
    naive = Grid(
        lambda scale, alpha: log_density(np.maximum(scale, 1.0), alpha),
        scale=(0.2, 1.9, 680),
        alpha=(1e-3, 8.0, 400),
    )
    assert_disagrees(posterior, naive, ["scale"])
