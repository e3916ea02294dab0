"""The Gaussian process density as an estimator of scikit-learn.

scikit-learn's own checks fit data of many shapes, and each shape is compiled for ten seconds or
more; those of one shape run always, the others with ``make calibrate``.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import offcut
from offcut.estimators import GaussianProcessDensity

TINY = {"basis": 4, "length_scale": 1.0, "variance": 1.0}
SHORT = {"n_draws": 20, "n_warmup": 20, "n_chains": 1, "random_state": 0}

#: Checks that fit other shapes than (30, 3).
SHAPES_OF_THEIR_OWN = {
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
}


def sklearn_checks() -> list[Any]:
    """A parameter for each check, long ones marked; none is expected to fail."""
    found = []
    for estimator, check in estimator_checks_generator(GaussianProcessDensity(**TINY, **SHORT)):
        name = getattr(check, "func", check).__name__
        marks = [pytest.mark.calibrate] if name in SHAPES_OF_THEIR_OWN else []
        found.append(pytest.param(estimator, check, marks=marks, id=name))
    return found


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("estimator", "check"), sklearn_checks())
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


X = np.random.default_rng(2).gamma(2.0, size=(60, 1))
PLACES = (np.arange(4000) + 0.5) * 0.01 - 20


def estimator(**other: Any) -> GaussianProcessDensity:
    settings = {"basis": 14, "length_scale": 1.5, "variance": 1.0, "support": (0.0, 30.0)}
    settings |= {"method": "collapsed", "n_draws": 150, "n_warmup": 100, "random_state": 0}
    return GaussianProcessDensity(**(settings | other))


def short(**other: Any) -> GaussianProcessDensity:
    """With the compiled code of ``fitted``, from JAX's cache."""
    return estimator(**(SHORT | other))


@pytest.fixture(scope="module")
def said() -> list[warnings.WarningMessage]:
    return []


@pytest.fixture(scope="module")
def fitted(said: list[warnings.WarningMessage]) -> GaussianProcessDensity:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Checks of types stand between a method and its caller, where the warning points.
        found = inspect.unwrap(GaussianProcessDensity.fit)(estimator(), X)
    said += caught
    return found


def test_density_integrates_to_one_over_the_support(fitted: GaussianProcessDensity) -> None:
    density = np.exp(fitted.score_samples(PLACES[:, None]))
    assert density.sum() * 0.01 == pytest.approx(1, abs=1e-3)
    np.testing.assert_array_equal(density[PLACES < 0], 0)
    assert fitted.score_samples([[-1e-6]]) == -np.inf


def test_density_is_that_of_the_model(fitted: GaussianProcessDensity) -> None:
    expected = fitted.model_.density(fitted.posterior_, X[:, 0])
    np.testing.assert_allclose(np.exp(fitted.score_samples(X)), expected, rtol=1e-12)
    assert fitted.score(X) == pytest.approx(np.log(expected).sum())


def test_bands(fitted: GaussianProcessDensity) -> None:
    wide, narrow = (fitted.bands(X, probability) for probability in (0.9, 0.5))
    assert wide.lower.shape == (60,)
    for band in (wide, narrow):
        assert ((band.lower < band.median) & (band.median < band.upper)).all()
    assert ((wide.lower < narrow.lower) & (narrow.upper < wide.upper)).all()
    np.testing.assert_allclose(np.log(wide.mean), fitted.score_samples(X), rtol=1e-9)


def test_samples_follow_the_density(fitted: GaussianProcessDensity) -> None:
    """Kolmogorov's distance of 4,000 draws from the mean density: above 0.041 once in a million."""
    points = fitted.sample(4000, random_state=1)
    assert points.shape == (4000, 1)
    below = np.cumsum(np.exp(fitted.score_samples(PLACES[:, None]))) * 0.01
    ranks = np.interp(np.sort(points[:, 0]), PLACES + 0.005, below)
    assert np.abs(ranks - (np.arange(4000) + 0.5) / 4000).max() < 0.041
    np.testing.assert_array_equal(points, fitted.sample(4000, random_state=1))
    np.testing.assert_array_equal(fitted.sample(), fitted.sample())
    assert fitted.sample().shape == (1, 1)


def test_one_warning_for_all_doubts(
    fitted: GaussianProcessDensity, said: list[warnings.WarningMessage]
) -> None:
    assert fitted.trouble_, "300 draws have fewer than 400 effective ones"
    assert len(said) == 1
    assert issubclass(said[0].category, ConvergenceWarning)
    assert said[0].filename == __file__
    assert all(line in str(said[0].message) for line in fitted.trouble_)
    assert fitted.trouble_ == offcut.summary(fitted.posterior_).trouble


def test_converged_needs_r_hats_that_are_known(fitted: GaussianProcessDensity) -> None:
    assert fitted.converged_
    assert not short(n_draws=3).fit(X).converged_


def test_copies(fitted: GaussianProcessDensity) -> None:
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_allclose(copied.score_samples(X), fitted.score_samples(X), rtol=1e-6)
        np.testing.assert_allclose(copied.sample(5), fitted.sample(5), rtol=1e-6)
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    for method in (copied.score_samples, copied.score, copied.bands):
        with pytest.raises(NotFittedError):
            method(X)
    with pytest.raises(NotFittedError):
        copied.sample()


def test_an_integer_is_the_seed_of_sample() -> None:
    found = short(random_state=7).fit(X)
    run = {"draws": 20, "warmup": 20, "chains": 1, "seed": 7, "progress": False}
    again = offcut.sample(found.model_, X[:, 0], method="collapsed", **run)
    for name, values in again["posterior"].data_vars.items():
        np.testing.assert_array_equal(found.posterior_["posterior"][name].values, values.values)


def test_pipeline() -> None:
    whole = make_pipeline(StandardScaler(), short(support=(-3.0, 30.0))).fit(X)
    last = whole[-1]
    assert whole.score(X) == last.score((X - X.mean()) / X.std())
    assert last.n_features_in_ == 1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"support": (1.0, 9.0)}, "of 60 observations lie outside the support"),
        ({"support": ([0, 0], [1, 1])}, "support has 2 coordinates, the data have 1"),
        ({"n_draws": 0}, "n_draws == 0, must be >= 1"),
        ({"method": "guess"}, "method must be one of"),
        ({"covariance": "cubic"}, "cubic"),
        ({"length_scale": -1.0}, "length_scale must be a positive number"),
        ({"base": lambda theta: theta}, "needs prior="),
        ({"base": "uniform", "support": None}, "needs a bounded support"),
        ({"budget": -1}, "budget"),
        ({"random_state": -1}, "Seed must be between"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator(**settings).fit(X)


@pytest.mark.calibrate
def test_a_family_of_single_numbers() -> None:
    """With one feature, a base that is a function returns a distribution of numbers."""
    found = short(
        base=lambda theta: dist.Gamma(2.0, theta["rate"]), prior={"rate": dist.LogNormal(0, 0.5)}
    ).fit(X)
    assert np.exp(found.score_samples(PLACES[:, None])).sum() * 0.01 == pytest.approx(1, abs=1e-3)
    assert found.sample(3).shape == (3, 1)


@pytest.mark.calibrate
@pytest.mark.parametrize("method", ["augment", "collapsed"])
def test_two_features(method: str) -> None:
    points = np.random.default_rng(0).normal(size=(50, 2)) * [1, 2]
    found = GaussianProcessDensity(**(TINY | {"basis": 6}), **SHORT, method=method).fit(points)
    side = np.linspace(-25, 25, 251)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    assert np.exp(found.score_samples(grid)).sum() * 0.04 == pytest.approx(1, abs=0.01)
    assert found.sample(3).shape == (3, 2)


@pytest.mark.calibrate
def test_three_features() -> None:
    """Additive; normalised by Monte Carlo."""
    points = np.random.default_rng(0).normal(size=(30, 3))
    found = GaussianProcessDensity(**TINY, **SHORT).fit(points)
    side = np.linspace(-8, 8, 65)
    grid = np.stack(np.meshgrid(side, side, side), -1).reshape(-1, 3)
    assert np.exp(found.score_samples(grid)).sum() * 0.25**3 == pytest.approx(1, abs=0.05)
