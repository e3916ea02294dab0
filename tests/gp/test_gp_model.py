"""``GPDensity`` and ``GPIntensity``: what they take, give and say."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.checks.invariance import plain_stage
from offcut.errors import DataError, ModelError, SettingsError, TrustWarning
from offcut.gp.basis import Basis, Box, covariance_error
from offcut.gp.covariance import COVARIANCES
from offcut.numerics import keys
from offcut.programs.cache import blocks_of
from offcut.regions import Box as BoxRegion
from offcut.samplers.choice import prepare

X = np.random.default_rng(0).gamma(4.0, 0.5, size=40)
RUN = {"draws": 400, "warmup": 200, "chains": 2, "progress": False}
GRID = np.linspace(-6, 12, 1201)


@pytest.fixture(scope="module")
def model():
    return offcut.GPDensity(length_scale=1.0, variance=1.0)


@pytest.fixture(scope="module")
def posterior(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return offcut.sample(model, X, **RUN)


def test_densities_are_densities(model, posterior):
    each = model.density(posterior, GRID, draws=True)
    assert each.shape == (2, 400, len(GRID))
    np.testing.assert_allclose(np.trapezoid(each, GRID), 1.0, rtol=2e-3)
    np.testing.assert_allclose(model.density(posterior, GRID), each.mean((0, 1)))
    np.testing.assert_allclose(
        model.score_samples(posterior, [1.0, 2.0]), np.log(model.density(posterior, [1.0, 2.0]))
    )


def test_bands_hold_the_middle_and_grow_with_probability(model, posterior):
    narrow, wide = (model.bands(posterior, GRID, level) for level in (0.5, 0.95))
    assert np.all(narrow.lower <= narrow.median)
    assert np.all(narrow.median <= narrow.upper)
    assert np.all(wide.lower <= narrow.lower)
    assert np.all(wide.upper >= narrow.upper)
    with pytest.raises(SettingsError, match="between 0 and 1"):
        model.bands(posterior, GRID, 80)


def test_new_points_follow_the_mean_density(model, posterior):
    drawn = model.predict(posterior, 4000, seed=1)
    assert drawn.shape == (4000,)
    fine = np.linspace(-6, 14, 4001)
    cdf = np.cumsum(model.density(posterior, fine)) * (fine[1] - fine[0])
    p = stats.kstest(drawn, lambda x: np.interp(x, fine, cdf)).pvalue
    assert p > 1e-5
    np.testing.assert_array_equal(drawn, model.predict(posterior, 4000, seed=1))


def test_regenerated_rejections_follow_the_law_of_the_sweeps(model, posterior):
    sets = model.rejections(posterior, 800, seed=2)
    counts = np.array([len(y) for y in sets])
    swept = posterior["sample_stats"]["rejected"].values.ravel()
    assert stats.ks_2samp(np.log1p(counts), np.log1p(swept)).pvalue > 1e-5
    assert sets[0].shape[1] == 1


def test_a_budget_that_no_sampler_kept_to_cuts_no_rejections(model, posterior):
    """Collapsed runs draw no rejections, and yet name a budget."""
    named = posterior.copy()
    named.attrs |= {"budget": 5, "draws_rejections": 1}
    assert max(map(len, model.rejections(named, 50))) <= 5
    named.attrs["draws_rejections"] = 0
    assert max(map(len, model.rejections(named, 50))) > 5


def test_the_function_is_zero_beyond_the_box(model, posterior):
    f = model.function(posterior, [1.0, 1e6])
    assert f.shape == (2, 400, 2)
    assert np.abs(f[..., 0]).min() > 0
    np.testing.assert_allclose(f[..., 1], 0.0, atol=1e-9)


def test_comparison_of_a_group_with_itself_is_a_draw(model, posterior):
    found = model.compare(posterior, posterior, [1.0, 2.0, 3.0])
    assert np.all((found.probability_greater > 0.35) & (found.probability_greater < 0.65))
    assert np.all((found.lower < 0) & (found.upper > 0))


def test_the_result_names_its_approximations(posterior):
    attrs = posterior.attrs
    assert 0 <= attrs["basis_error"] < 1e-3
    assert attrs["quadrature_error"] < 1e-6
    assert 0 <= attrs["proposals_outside_box"] < 0.05
    assert "approximation" not in attrs
    assert attrs["method"] == "augment"
    assert set(posterior["posterior"].data_vars) == {"weights", "base_mean", "base_sd"}
    assert "log_normaliser" in offcut.summary(posterior).table


def test_same_seed_same_draws_and_other_data_of_that_number_compile_nothing(model, posterior):
    import jax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        again = offcut.sample(offcut.GPDensity(length_scale=1.0, variance=1.0), X, **RUN)
        np.testing.assert_array_equal(
            again["posterior"]["weights"].values, posterior["posterior"]["weights"].values
        )
        with jax.log_compiles(False):
            blocks = blocks_of(prepare(model, X)[0])
            compiled = [block.compilations for block in blocks.values()]
            assert sum(compiled) > 0
            offcut.sample(model, X * 1.0001, **RUN)
            assert [block.compilations for block in blocks.values()] == compiled


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance": "rbf"}, "covariance must be one of"),
        ({"kernel": "matern32"}, "give covariance='matern32'"),
        ({"basis": 1}, "whole number of functions"),
        ({"length_scale": -1.0}, "positive number"),
        ({"variance": [1.0, 2.0]}, "positive number"),
        ({"length_scale": dist.Normal(0, 1)}, "positive"),
        ({"base": "gamma"}, "prior="),
        ({"base": "uniform"}, "bounded support"),
        ({"support": 3}, "Box or a pair"),
        ({"support": (2, 1)}, "lower exceeds upper"),
        ({"nugget": 0}, "above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        offcut.sample(offcut.GPDensity(**settings), X, progress=False)


def test_what_became_a_benchmark_is_answered():
    with pytest.raises(AttributeError, match=r"benchmarks/birth_death.py"):
        _ = offcut.BirthDeath
    with pytest.raises(SettingsError, match=r"benchmarks/birth_death.py"):
        offcut.GPDensity(rejections="fresh")


def test_data_outside_the_support_are_counted():
    with pytest.raises(DataError, match=r"of 40 observations lie outside the support.*row"):
        offcut.sample(offcut.GPDensity(support=(2, None)), X)
    with pytest.raises(DataError, match="NaN"):
        offcut.sample(offcut.GPDensity(), [1.0, np.nan])
    with pytest.raises(SettingsError, match="PolyaGamma"):
        offcut.sample(offcut.GPDensity(), X, kernel=offcut.RandomWalk())
    with pytest.raises(SettingsError, match="method must be one of 'auto', 'augment', 'collapsed'"):
        offcut.sample(offcut.GPDensity(), X, method="exchange")
    with pytest.raises(ModelError, match="up to 1,000 observations"):
        offcut.sample(offcut.GPDensity(basis=None), np.zeros(2000))
    with pytest.raises(ModelError, match="covariates"):
        offcut.sample(offcut.GPDensity(), X, covariates=X)


def test_repr_tells_models_apart():
    assert repr(offcut.GPDensity()) == "GPDensity()"
    given = offcut.GPDensity(length_scale=dist.LogNormal(0.0, 0.5), support=(0, None))
    assert repr(given) == "GPDensity(length_scale=LogNormal(0, 0.5), support=(0, None))"
    assert "rate=(2, 3)" in repr(offcut.GPIntensity((0, 1), rate=(2.0, 3.0)))


def test_checkpoints_tell_models_apart():
    def laplace(scale):
        return offcut.GPDensity(
            lambda theta: dist.Laplace(theta["loc"], scale), prior={"loc": dist.Normal(0, 1)}
        )

    models = [
        offcut.GPDensity(),
        offcut.GPDensity(joint_moves=False),
        offcut.GPDensity(basis=None, nugget=1e-6),
        offcut.GPDensity(basis=None),
        offcut.GPDensity(offcut.NormalInverseWishart([0.0], 1.0, 5.0, [[1.0]])),
        offcut.GPDensity(offcut.NormalInverseWishart([1e-9], 1.0, 5.0, [[1.0]])),
        laplace(1.0),
        laplace(1.5),
        offcut.GPIntensity((0, 1)),
        offcut.GPDensity(length_scale=dist.LogNormal(0.0, 0.5).expand([2])),
        offcut.GPDensity(length_scale=dist.LogNormal(1.0, 0.5).expand([2])),
    ]
    assert len({model.identity() for model in models}) == len(models)
    assert laplace(1.5).identity() == laplace(1.5).identity()
    assert "0x" not in laplace(1.5).identity()


def test_priors_of_one_kind_do_not_share_a_sampler():
    x = np.random.default_rng(0).normal(size=(12, 2))
    made = [
        offcut.GPDensity(length_scale=dist.LogNormal(at, 0.5).expand([2]), variance=1.0, basis=4)
        for at in (0.0, 0.1)
    ]
    first, second = (prepare(model, x)[0] for model in made)
    assert first is not second


@pytest.mark.usefixtures("float64")
def test_functions_at_the_data_need_not_be_kept(model):
    import jax.numpy as jnp

    sampler, data, _ = prepare(model, np.resize(X, 5000))
    assert data.x.shape[1] > 5000
    w = jnp.asarray(np.random.default_rng(0).normal(size=sampler.plan.basis.number))
    np.testing.assert_allclose(
        sampler.at_data(w, data), sampler.at_data(w, data._replace(features=None)), atol=1e-12
    )


@pytest.mark.usefixtures("float64")
def test_the_exact_process_holds_few_observations_of_the_plane():
    """No matrix is smaller than the grid, which has more nodes in the plane than n may be."""
    import jax

    model = offcut.GPDensity(basis=None, length_scale=1.0, variance=1.0)
    sampler, data, _ = prepare(model, np.random.default_rng(0).normal(size=(8, 2)))
    state = sampler.start(keys.from_seed(0), data, 100)
    after, _ = jax.eval_shape(sampler.step, keys.from_seed(1), state, plain_stage(100), data)
    assert after.w.shape == (sampler.plan.basis.number,)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_the_basis_stands_for_the_process(kind):
    """The covariance of f comes out; a basis of too few functions is noticed."""
    covariance = COVARIANCES[kind]
    box = Box(np.zeros(1), np.full(1, 8.0))
    low, high, scale = np.full(1, -4.0), np.full(1, 4.0), np.ones(1)
    enough = Basis((int(covariance.functions * 8),))
    few = Basis((8,))
    assert covariance_error(covariance, box, enough, scale, low, high) < 0.01
    assert covariance_error(covariance, box, few, scale, low, high) > 0.05
    plane = Box(np.zeros(2), np.full(2, 5.0))
    tile = Basis((26, 26))
    error = covariance_error(covariance, plane, tile, np.ones(2), np.full(2, -2.0), np.full(2, 2.0))
    assert error < 0.06


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("basis", [Basis((5,)), Basis((3, 4)), Basis((2, 3), True)])
def test_sums_of_waves_are_those_of_features(basis):
    """f, Phi'Omega Phi and Phi'kappa against plain matrices of features."""
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    u = rng.uniform(-1.3, 1.3, (basis.d, 64))
    omega, kappa, w = rng.random(64), rng.normal(size=64), rng.normal(size=basis.number)
    phi = basis.features(u)
    sums, b = basis.sums(*map(jnp.asarray, (u, omega, kappa)))
    np.testing.assert_allclose(basis.gram(sums), (phi * omega) @ phi.T, atol=1e-11)
    np.testing.assert_allclose(b, phi @ kappa, atol=1e-12)
    np.testing.assert_allclose(basis.evaluate(jnp.asarray(w), jnp.asarray(u)), w @ phi, atol=1e-12)
    np.testing.assert_allclose(
        basis.project(jnp.asarray(u), jnp.asarray(kappa)), phi @ kappa, atol=1e-12
    )


@pytest.mark.parametrize(
    "x",
    [[3.2], [1.0, 2.0], [5.0] * 7, [0.0, 0.0], list(np.random.default_rng(1).poisson(3, 60))],
    ids=["one", "two", "constant", "zeros", "integers"],
)
@pytest.mark.calibrate
def test_few_equal_and_repeated_values(x):
    model = offcut.GPDensity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        posterior = offcut.sample(model, x, draws=100, warmup=100, chains=2, progress=False)
    assert np.all(np.isfinite(model.score_samples(posterior, x)))


@pytest.mark.calibrate
def test_a_uniform_base_and_two_dimensions():
    rng = np.random.default_rng(3)
    x = rng.beta(2, 3, size=(30, 2))
    model = offcut.GPDensity(
        BoxRegion([0, 0], [1, 1]), basis=(5, 4), length_scale=0.5, variance=1.0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        posterior = offcut.sample(model, x, draws=60, warmup=60, chains=2, progress=False)
    side = (np.arange(50) + 0.5) / 50
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    assert abs(model.density(posterior, points).mean() - 1) < 0.01
    assert model.density(posterior, [[1.5, 0.5]]) == 0
    assert model.predict(posterior, 50).shape == (50, 2)
    assert model.bands(posterior, points[:3]).median.shape == (3,)
