"""The truncated mixture as an estimator of scikit-learn.

scikit-learn's own checks fit data of many shapes, and each shape is compiled for half a minute;
those that share the two commonest shapes run always, the others with ``make calibrate``.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.utils.estimator_checks import estimator_checks_generator

import offcut
from offcut.estimators import TruncatedGaussianMixture
from offcut.mixtures.consensus import Consensus
from offcut.mixtures.evaluation import Draws, log_mixture, log_terms, over_draws, weighted
from offcut.mixtures.populations import Labels, only_matched, probabilities
from offcut.programs.precision import in_float64

TINY = {"n_components": 3, "n_draws": 20, "n_warmup": 20, "n_chains": 1, "random_state": 0}

#: Checks that fit other shapes than (below 128 rows, 2 or 3 features, 3 components).
SHAPES_OF_THEIR_OWN = {
    "check_clustering",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_fit2d_1feature",
    "check_fit2d_predict1d",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
}


def sklearn_checks() -> list[Any]:
    """A parameter for each check, long ones marked; none is expected to fail."""
    found = []
    for estimator, check in estimator_checks_generator(TruncatedGaussianMixture(**TINY)):
        name = getattr(check, "func", check).__name__
        marks = [pytest.mark.calibrate] if name in SHAPES_OF_THEIR_OWN else []
        found.append(pytest.param(estimator, check, marks=marks, id=name))
    return found


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("estimator", "check"), sklearn_checks())
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# Three round clusters; the window cuts off a quarter of two of them, at the left and the bottom.
MEANS = np.array([[0.4, 4.0], [4.0, 4.0], [3.0, 0.5]])
WEIGHTS = np.array([0.4, 0.3, 0.3])
SPREAD, SIDE = 0.7, 6.0
MOST = 150
PLACES = (np.arange(MOST) + 0.5) * SIDE / MOST
GRID = np.stack(np.meshgrid(PLACES, PLACES, indexing="ij"), -1).reshape(-1, 2)
CELL = (SIDE / MOST) ** 2


def planted(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in the window and their clusters."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, size=4 * n, p=WEIGHTS)
    x = MEANS[z] + SPREAD * rng.normal(size=(4 * n, 2))
    inside = np.flatnonzero(((x > 0) & (x < SIDE)).all(1))[:n]
    return x[inside], z[inside]


def true_density(points: np.ndarray) -> np.ndarray:
    mass = norm.cdf((SIDE - MEANS) / SPREAD) - norm.cdf(-MEANS / SPREAD)
    parts = [w * norm.pdf(points, m, SPREAD).prod(1) for w, m in zip(WEIGHTS, MEANS, strict=True)]
    return sum(parts) / (WEIGHTS @ mass.prod(1))


X, CLUSTERS = planted(400, 2)


def estimator(**other: Any) -> TruncatedGaussianMixture:
    settings = {"n_components": 6, "n_draws": 200, "n_warmup": 200, "random_state": 0}
    return TruncatedGaussianMixture(**({"lower": 0, "upper": SIDE} | settings | other))


def short(**other: Any) -> TruncatedGaussianMixture:
    """With the compiled code of ``fitted``."""
    return estimator(**({"n_draws": 3, "n_warmup": 3, "n_chains": 1} | other))


@pytest.fixture(scope="module")
def said() -> list[warnings.WarningMessage]:
    return []


@pytest.fixture(scope="module")
def fitted(said: list[warnings.WarningMessage]) -> TruncatedGaussianMixture:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Checks of types stand between a method and its caller, where the warning points.
        mixture = inspect.unwrap(TruncatedGaussianMixture.fit)(estimator(), X)
    said += caught
    return mixture


def test_clusters_cut_by_the_window_are_found(fitted: TruncatedGaussianMixture) -> None:
    assert adjusted_rand_score(CLUSTERS, fitted.labels_) > 0.9
    assert adjusted_rand_score(CLUSTERS, fitted.predict(X)) > 0.9
    fresh, clusters = planted(300, 3)
    assert adjusted_rand_score(clusters, fitted.predict(fresh)) > 0.9


def test_attributes_have_a_row_for_each_population(fitted: TruncatedGaussianMixture) -> None:
    count = fitted.n_clusters_
    assert count == len(np.unique(fitted.labels_)) == len(fitted.populations_)
    assert fitted.weights_.shape == (count,)
    assert 0.95 < fitted.weights_.sum() <= 1 + 1e-9
    assert fitted.means_.shape == (count, 2)
    assert fitted.covariances_.shape == (count, 2, 2)
    assert fitted.certainty_.shape == fitted.labels_.shape == (len(X),)
    assert fitted.means_[:, 0].min() < 0.5, "a mean near the true one, at the window's edge"


def test_probabilities_sum_to_one(fitted: TruncatedGaussianMixture) -> None:
    points = np.concatenate([X, GRID[::50], [[-300.0, 0.0], [0.0, 1e6]]])
    shares = fitted.predict_proba(points)
    assert shares.shape == (len(points), fitted.n_clusters_)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(points), shares.argmax(1))
    np.testing.assert_array_equal(fitted.transform(points), shares)


def test_predictions_depend_on_the_point_alone(fitted: TruncatedGaussianMixture) -> None:
    order = np.random.default_rng(0).permutation(len(X))
    for method in (fitted.predict_proba, fitted.score_samples):
        whole = method(X)
        np.testing.assert_allclose(method(X[order]), whole[order], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(method(X[:1]), whole[:1], rtol=1e-9, atol=1e-12)


def test_density_integrates_to_one_over_the_window(fitted: TruncatedGaussianMixture) -> None:
    assert np.exp(fitted.score_samples(GRID)).sum() * CELL == pytest.approx(1, abs=0.005)
    outside = np.array([[-0.01, 3.0], [3.0, 6.01]])
    np.testing.assert_array_equal(fitted.score_samples(outside), -np.inf)
    assert fitted.score(X) == np.mean(fitted.score_samples(X))


def test_density_is_that_of_the_model(fitted: TruncatedGaussianMixture) -> None:
    expected = fitted.model_.density(fitted.posterior_, X[:50])
    np.testing.assert_allclose(np.exp(fitted.score_samples(X[:50])), expected, rtol=1e-9)


def test_edge_is_closer_to_the_truth_than_without_a_window(
    fitted: TruncatedGaussianMixture,
) -> None:
    """Integrated squared error within 0.6 of the window's edge; measured about 8 times smaller."""
    edge = GRID[GRID.min(1) < 0.6]
    bent = BayesianGaussianMixture(n_components=6, max_iter=500, random_state=0).fit(X)
    ours, theirs = (
        np.sum((np.exp(m.score_samples(edge)) - true_density(edge)) ** 2) for m in (fitted, bent)
    )
    assert ours < 0.5 * theirs


def test_samples_stay_in_the_window(fitted: TruncatedGaussianMixture) -> None:
    points, populations = fitted.sample(500, random_state=1)
    assert points.shape == (500, 2)
    assert ((points >= 0) & (points <= SIDE)).all()
    shares = np.bincount(populations, minlength=fitted.n_clusters_) / 500
    np.testing.assert_allclose(shares, fitted.weights_, atol=0.1)
    assert adjusted_rand_score(fitted.predict(points), populations) > 0.8
    again, _ = fitted.sample(500, random_state=1)
    np.testing.assert_array_equal(points, again)
    np.testing.assert_array_equal(fitted.sample()[0], fitted.sample()[0])
    assert fitted.sample()[0].shape == (1, 2)


def test_one_warning_for_all_doubts(
    fitted: TruncatedGaussianMixture, said: list[warnings.WarningMessage]
) -> None:
    assert fitted.trouble_, "400 draws have fewer than 400 effective ones"
    assert len(said) == 1
    assert issubclass(said[0].category, ConvergenceWarning)
    assert said[0].filename == __file__
    assert all(line in str(said[0].message) for line in fitted.trouble_)


def test_converged_needs_r_hats_that_are_known(fitted: TruncatedGaussianMixture) -> None:
    assert not short().fit(X).converged_
    table = offcut.summary(fitted.posterior_).table
    r_hats = [row["r_hat"] for name, row in table.items() if name.startswith("log_density")]
    assert len(r_hats) == 12
    assert not fitted.converged_ or max(r_hats) < 1.05


def test_copies(fitted: TruncatedGaussianMixture) -> None:
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(copied.predict_proba(X), fitted.predict_proba(X))
        np.testing.assert_array_equal(copied.score_samples(X), fitted.score_samples(X))
        np.testing.assert_array_equal(copied.sample(5)[0], fitted.sample(5)[0])
        copied.set_params(n_draws=3, n_warmup=3).fit(X)
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)


def test_an_integer_is_the_seed_of_sample() -> None:
    mixture = short(random_state=7).fit(X)
    posterior = offcut.sample(mixture.model_, X, draws=3, warmup=3, chains=1, seed=7)
    np.testing.assert_array_equal(
        mixture.posterior_["posterior"]["means"].values, posterior["posterior"]["means"].values
    )


def test_generators_give_seeds() -> None:
    def means(random_state: Any) -> np.ndarray:
        return short(random_state=random_state).fit(X).means_

    generator = np.random.RandomState(0)
    first, second = means(generator), means(generator)
    np.testing.assert_array_equal(first, means(np.random.RandomState(0)))
    assert first.shape != second.shape or (first != second).any()
    means(None)


def test_names_of_columns(fitted: TruncatedGaussianMixture) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["CD4", "CD8"])
    mixture = short().set_output(transform="pandas").fit(frame)
    assert mixture.feature_names_in_.tolist() == ["CD4", "CD8"]
    columns = [f"truncatedgaussianmixture{p}" for p in range(mixture.n_clusters_)]
    assert mixture.transform(frame).columns.tolist() == columns
    mixture.sample(3)
    with pytest.raises(ValueError, match="feature names"):
        mixture.predict(frame[["CD8", "CD4"]])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lower": 0.5}, r"of 400 rows lie outside the window .* remove these rows"),
        ({"lower": [0, 0, 0]}, "has 3 limits, but X has 2 features"),
        ({"region": offcut.regions.Ball([3, 3], 9)}, "lower and upper or as region, not both"),
        ({"lower": 7}, "lower exceeds upper"),
        ({"n_draws": 0}, "n_draws == 0, must be >= 1"),
        ({"n_components": 0}, "n_components == 0, must be >= 1"),
        ({"loss": "huber"}, "loss must be one of"),
        ({"weights": "flat"}, 'weights must be "latent" or "window"'),
        ({"alpha": -1.0}, "alpha must be a positive number"),
        ({"budget": -1}, "budget"),
        ({"base": 3}, "NormalInverseWishart"),
        ({"random_state": -1}, "Seed must be between"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator(**settings).fit(X)


def test_failed_fit_is_no_fit() -> None:
    mixture = estimator()
    with pytest.raises(ValueError, match="outside"):
        mixture.fit(X - 3)
    with pytest.raises(NotFittedError):
        mixture.predict(X)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("offcut.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install 'offcut\[sklearn\]'"):
        importlib.import_module("offcut.estimators")


def made_up_draws() -> tuple[Draws, np.ndarray]:
    """Two draws of three components, and which populations they belong to."""
    rng = np.random.default_rng(0)
    roots = np.tril(rng.normal(size=(2, 3, 2, 2))) + 2 * np.eye(2)
    weights = rng.dirichlet(np.ones(3), (2, 1))
    mass = rng.uniform(0.1, 1, (2, 1, 3))
    drawn = Draws(
        weights, weights, mass, rng.normal(size=(2, 3, 2)),
        np.einsum("skij,sklj->skil", roots, roots), (1, 2),
    )  # fmt: skip
    return drawn, np.array([[0, 1, -1], [1, -1, 0]])


@in_float64
def log_density(drawn: Draws, points: np.ndarray) -> np.ndarray:
    """Of the mean over draws."""
    parts, centre = weighted(log_terms(drawn)[:, 0], drawn.means, drawn.covariances)
    return over_draws(log_mixture, (parts,), points - centre, 12)


def test_membership_is_the_mean_of_responsibilities() -> None:
    drawn, matches = made_up_draws()
    points = np.random.default_rng(1).normal(size=(4, 2))
    joint = np.array(
        [
            [
                drawn.window_weights[s, 0, k] / drawn.window_mass[s, 0, k]
                * multivariate_normal(drawn.means[s, k], drawn.covariances[s, k]).pdf(points)
                for k in range(3)
            ]
            for s in range(2)
        ]
    )  # fmt: skip
    np.testing.assert_allclose(log_density(drawn, points), np.log(joint.sum(1).mean(0)))
    share = joint / joint.sum(1, keepdims=True)
    belongs = np.array([share[0, 0] + share[1, 2], share[0, 1] + share[1, 0]])
    expected = (belongs / belongs.sum(0)).T
    np.testing.assert_allclose(probabilities(drawn, matches, 2, points), expected)


def test_far_points_have_a_density_and_a_population() -> None:
    drawn, matches = made_up_draws()
    far = np.array([[1e5, -1e5], [-1e8, 0.0]])
    assert np.isfinite(log_density(drawn, far)).all()
    np.testing.assert_allclose(probabilities(drawn, matches, 2, far).sum(1), 1)


def test_large_batches_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, matches = made_up_draws()
    points = np.random.default_rng(1).normal(size=(50, 2))
    whole = log_density(drawn, points), probabilities(drawn, matches, 2, points)
    monkeypatch.setattr("offcut.mixtures.evaluation.CACHE", 100)
    monkeypatch.setattr("offcut.mixtures.evaluation.FEWEST", 8)
    np.testing.assert_allclose(log_density(drawn, points), whole[0], rtol=1e-12)
    np.testing.assert_allclose(probabilities(drawn, matches, 2, points), whole[1], rtol=1e-12)


def test_populations_that_no_component_stands_for_are_dissolved() -> None:
    drawn, matches = made_up_draws()
    x = np.random.default_rng(1).normal(size=(6, 2))
    names = np.array([0, 0, 0, 1, 1, 2])  # as in the consensus, where components stand for 0 and 2
    matches = np.array([[0, 2, -1], [2, -1, 0]])
    certainty = np.full(6, 0.5)
    partition = Consensus(names, certainty, 0.0, 0.0, np.zeros(3), 6, "vi")
    found = Labels(names, certainty, 0.0, matches, partition, drawn, np.zeros(6, int))
    shares = probabilities(drawn, np.where(matches == 2, 1, matches), 2, x)
    sizes = np.bincount(np.concatenate([[0, 0, 0, 1], shares[3:5].argmax(1)]))
    result = only_matched(found, x)
    assert result.populations == 2
    assert np.bincount(result.labels).tolist() == sorted(sizes, reverse=True)
    first = 0 if sizes[0] >= sizes[1] else 1
    assert (result.labels[:3] == first).all()
    assert result.matches[0].tolist() == [first, 1 - first, -1]
    np.testing.assert_array_equal(result.certainty[3:5], shares[3:5].max(1))
    np.testing.assert_array_equal(result.certainty[[0, 1, 2, 5]], 0.5)
    assert only_matched(result, x) is result


def test_binder(fitted: TruncatedGaussianMixture) -> None:
    """Binder's loss sets events on borders apart."""
    mixture = short(n_draws=20, n_warmup=20, loss="binder").fit(X)
    assert np.isfinite(mixture.means_).all()
    assert (mixture.weights_ > 0).all()
    assert (np.diff(np.bincount(mixture.labels_)) <= 0).all()


@pytest.mark.calibrate
def test_any_window_and_a_probability() -> None:
    """A disc in which the left half is recorded half as often."""

    def half(x: Any) -> Any:
        return -np.log(2) * (x[0] < 0)

    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    kept = ((x**2).sum(1) < 4) & (rng.random(600) < np.exp(half(x.T)))
    window = {"region": lambda x: (x**2).sum() < 4, "log_accept": half, "weights": "window"}
    mixture = TruncatedGaussianMixture(**(TINY | {"n_draws": 100, "n_warmup": 100} | window))
    mixture.fit(x[kept])
    points = (GRID / SIDE - 0.5) * 4.2
    density = np.exp(mixture.score_samples(points))
    assert density.sum() * CELL * (4.2 / SIDE) ** 2 == pytest.approx(1, abs=0.03)
    assert (density[(points**2).sum(1) > 4] == 0).all()
    near, beyond = mixture.score_samples([[-1e-6, 0.0], [1e-6, 0.0]])
    assert beyond - near == pytest.approx(np.log(2), abs=1e-4)
