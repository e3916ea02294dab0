"""``offcut.TruncatedMixture`` from the outside: what it takes, gives, and refuses."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

import offcut
from offcut.driver.chains import Settings
from offcut.errors import DataError, ModelError, SettingsError
from offcut.regions import Ball, Box, ByGroup
from offcut.samplers.choice import prepare
from offcut.sampling import run

WINDOW = Box([0, 0], [3, 3])
MEANS = np.array([[0.2, 1.0], [2.0, 2.0]])


def planted(n, seed=0, weights=(0.5, 0.5)):
    """Two clusters, the first cut by the left side of the window."""
    rng = np.random.default_rng(seed)
    label = rng.choice(2, 4 * n, p=weights)
    y = MEANS[label] + 0.35 * rng.standard_normal((4 * n, 2))
    inside = np.all((y > 0) & (y < 3), axis=1)
    return y[inside][:n], label[inside][:n]


SHORT = {"draws": 60, "warmup": 150, "chains": 2, "progress": False}


@pytest.fixture(scope="module", params=["latent", "window"])
def fitted(request):
    """One fit for each kind of weights; 110 events fill one chunk: all share a program."""
    x, truth = planted(110)
    model = offcut.TruncatedMixture(WINDOW, components=5, weights=request.param)
    return model, offcut.sample(model, x, **SHORT), x, truth


def test_variables_and_dimensions(fitted):
    model, posterior, _, _ = fitted
    draws = posterior["posterior"].dataset
    assert draws["means"].dims == ("chain", "draw", "component", "channel")
    assert draws["covariances"].shape == (2, 60, 5, 2, 2)
    for name in ("weights", "window_weights"):
        np.testing.assert_allclose(draws[name].sum("component"), 1.0, atol=0.02)
    assert ((draws["window_share"] > 0) & (draws["window_share"] <= 1)).all()
    mass = draws["window_mass"].values
    assert ((mass >= 0) & (mass <= 1 + 1e-9)).all()
    latent = draws["weights"].values * mass
    ratio = latent / latent.sum(-1, keepdims=True)
    if model.weights == "latent":
        np.testing.assert_allclose(ratio, draws["window_weights"].values, rtol=1e-9)
    assert set(posterior["observed_data"].dataset) == {"x"}
    assert "NormalInverseWishart" in posterior.attrs["base"]


def test_summary_judges_what_keeps_its_meaning(fitted):
    _, posterior, _, _ = fitted
    table = offcut.summary(posterior).table
    assert "window_share" in table
    assert "log_density[0]" in table
    assert not any(name.startswith(("means", "weights", "covariances")) for name in table)


def test_density_integrates_to_one(fitted):
    model, posterior, _, _ = fitted
    axis = (np.arange(60) + 0.5) / 60 * 3
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    cell = (3 / 60) ** 2
    assert abs(model.density(posterior, points).sum() * cell - 1) < 0.03
    each = model.density(posterior, points, draws=True, most=10)
    assert each.shape == (2, 5, 3600)
    np.testing.assert_allclose(each.sum(-1) * cell, 1.0, atol=0.05)
    np.testing.assert_array_equal(model.density(posterior, [[-1.0, 1.0]]), 0.0)
    assert model.density(posterior, [[-0.1, 1.0]], truncated=False) > 0.05


def test_density_of_a_draw_is_the_mixture(fitted):
    model, posterior, _, _ = fitted
    draw = posterior["posterior"].dataset.isel(chain=0, draw=0)
    point = np.array([0.7, 1.2])
    parts = [
        multivariate_normal(m, S).pdf(point)
        for m, S in zip(draw["means"].values, draw["covariances"].values, strict=True)
    ]
    latent = model.density(posterior, [point], draws=True, truncated=False, most=None)
    np.testing.assert_allclose(latent[0, 0, 0], draw["weights"].values @ parts, rtol=1e-9)


def test_marginal_is_the_integral_of_the_density(fitted):
    model, posterior, _, _ = fitted
    at = np.array([0.05, 0.5, 2.0])
    axis = (np.arange(200) + 0.5) / 200 * 3
    whole = [
        model.density(posterior, np.stack([np.full(200, v), axis], 1)).sum() * 3 / 200 for v in at
    ]
    ours = model.marginal(posterior, at[:, None], (0,), most=1000)
    np.testing.assert_allclose(ours, whole, rtol=0.04)
    wide = np.linspace(-6, 9, 500)
    latent = model.marginal(posterior, wide, (1,), truncated=False)
    assert abs(np.trapezoid(latent, wide) - 1) < 0.01


def test_labels_find_the_planted_clusters(fitted):
    model, posterior, x, truth = fitted
    labels = model.labels(posterior)
    assert labels.labels.shape == (110,)
    assert ((labels.certainty >= 0) & (labels.certainty <= 1)).all()
    two = labels.labels[:, None] == np.arange(labels.populations)
    purity = sum(max((two[:, k] & (truth == t)).sum() for t in (0, 1)) for k in range(two.shape[1]))
    assert purity > 0.9 * len(x)
    rows = model.populations(labels)
    assert [row.events for row in rows] == sorted((row.events for row in rows), reverse=True)
    cut = min(rows[:2], key=lambda row: row.mean[0])
    assert cut.lost > 0.05
    assert cut.proportion_interval[0] < cut.proportion < cut.proportion_interval[1]
    assert model.labels(posterior, x[:7]).labels.shape == (7,)


def test_predicted_events_pass(fitted):
    model, posterior, _, _ = fitted
    new = model.predict(posterior, 500)
    assert np.all((new >= 0) & (new <= 3))
    assert (model.predict(posterior, 500, truncated=False) < 0).any()


@pytest.mark.calibrate
@pytest.mark.parametrize("weights", ["latent", "window"])
def test_bits_do_not_depend_on_threads_blocks_or_room(weights):
    x, _ = planted(110)
    model = offcut.TruncatedMixture(WINDOW, components=5, weights=weights)
    same = Settings(12, 10, 2, 3, 4000, False)
    with jax.enable_x64(True):
        one = run(model, x, None, None, same)
        other = run(model, x, None, None, same._replace(threads=1, block=5, capacity=128))
    for name, values in one["posterior"].dataset.items():
        np.testing.assert_array_equal(values, other["posterior"].dataset[name], err_msg=name)


def test_thinning_keeps_every_nth_draw(tmp_path):
    x, _ = planted(110)
    model = offcut.TruncatedMixture(WINDOW, components=5)
    settings = {"warmup": 10, "chains": 2, "seed": 5, "budget": 4000, "progress": False}
    all_draws = offcut.sample(model, x, draws=12, **settings)
    thinned = offcut.sample(model, x, draws=4, thin=3, checkpoint=tmp_path / "c", **settings)
    again = offcut.sample(model, x, draws=4, thin=3, checkpoint=tmp_path / "c", **settings)
    for name in ("means", "window_share"):
        every = all_draws["posterior"].dataset[name].values[:, 2::3]
        np.testing.assert_array_equal(thinned["posterior"].dataset[name].values, every)
        np.testing.assert_array_equal(again["posterior"].dataset[name].values, every)
    assert thinned.attrs["thin"] == 3


def test_models_that_are_the_same_share_compiled_code():
    x, _ = planted(110)
    one = offcut.TruncatedMixture(WINDOW, components=5)
    two = offcut.TruncatedMixture(Box([0, 0], [3, 3]), components=5)
    other = offcut.TruncatedMixture(WINDOW, components=5, alpha=1.0000001)
    with jax.enable_x64(True):
        assert prepare(one, x)[0] is prepare(two, x[:90])[0]
        assert prepare(other, x)[0] is not prepare(one, x)[0]


@pytest.mark.calibrate
def test_groups_share_components_and_differ_in_weights():
    first, _ = planted(60, seed=1, weights=(0.8, 0.2))
    second, _ = planted(60, seed=2, weights=(0.2, 0.8))
    group = np.repeat(["control", "positive"], 60)
    model = offcut.TruncatedMixture(
        WINDOW, components=5, hierarchical=True, group_alpha=dist.Gamma(2.0, 1.0)
    )
    posterior = offcut.sample(model, np.concatenate([first, second]), covariates=group, **SHORT)
    draws = posterior["posterior"].dataset
    assert draws["weights"].dims == ("chain", "draw", "group", "component")
    assert "group_alpha" in draws
    labels = model.labels(posterior)
    top = model.compare(labels)[0]
    assert max(top.probability, 1 - top.probability) > 0.95
    assert "larger in positive" in repr(top)
    assert model.density(posterior, [[1.0, 1.0]], group="positive").shape == (1,)
    with pytest.raises(SettingsError, match="2 groups"):
        model.density(posterior, [[1.0, 1.0]])


def test_few_events_and_a_vague_base_end_in_bounded_time():
    """n = 50 and a base that allows ghosts: the budget holds, and the certificate is honest."""
    x, _ = planted(50)
    vague = offcut.NormalInverseWishart(strength=0.01, scale=4 * np.eye(2))
    model = offcut.TruncatedMixture(WINDOW, components=5, base=vague)
    posterior = offcut.sample(model, x, budget=500, **SHORT)
    stats = posterior["sample_stats"].dataset
    assert (stats["rejected"] <= 500).all()
    assert (stats["attempts"] <= 100).all()
    assert posterior.attrs["tv_halving_limit"] > 0.01
    if stats["gave_up"].any():
        assert "void" in posterior.attrs["tv_note"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"components": 0}, "components must be a whole number"),
        ({"alpha": -1.0}, "alpha must be a positive number"),
        ({"alpha": dist.Normal(0, 1)}, "one positive number"),
        ({"weights": "both"}, '"latent" or "window"'),
        ({"prior": "window"}, "give weights='window'"),
        ({"base": 3}, "NormalInverseWishart"),
    ],
)
def test_wrong_models_are_refused(arguments, said):
    with pytest.raises(ModelError, match=said):
        offcut.TruncatedMixture(WINDOW, **arguments)


def test_wrong_data_are_refused():
    x, _ = planted(20)
    model = offcut.TruncatedMixture(WINDOW, components=5)
    with pytest.raises(DataError, match=r"2 of 20 rows lie outside the window Box.*rows 3, 7"):
        offcut.sample(model, np.where(np.isin(np.arange(20), [3, 7])[:, None], x - 9, x))
    with pytest.raises(DataError, match="events, channels"):
        offcut.sample(model, np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match="NaN"):
        offcut.sample(model, np.where(x > 2.5, np.nan, x) if (x > 2.5).any() else x * np.nan)
    with pytest.raises(SettingsError, match="takes no kernel"):
        offcut.sample(model, x, kernel=offcut.NUTS())
    with pytest.raises(ModelError, match="nothing in the model differs by group"):
        offcut.sample(model, x, covariates=np.arange(20) % 2)
    with pytest.raises(DataError, match="at least two groups"):
        offcut.sample(offcut.TruncatedMixture(WINDOW, hierarchical=True), x)
    with pytest.raises(DataError, match="differs by group"):
        offcut.sample(offcut.TruncatedMixture(ByGroup([WINDOW, WINDOW])), x)
    with pytest.raises(ModelError, match="exceeds 0"):
        offcut.sample(offcut.TruncatedMixture(WINDOW, log_accept=lambda y: y[0]), x)


def test_repr_says_what_it_is():
    model = offcut.TruncatedMixture(Ball([0, 0], 2), components=7, alpha=dist.Gamma(2.0, 4.0))
    assert repr(model) == (
        "TruncatedMixture(Ball([0, 0], 2), components=7, alpha=Gamma(2, 4), weights='latent')"
    )


def test_a_budget_that_is_too_small_for_the_start_says_so():
    x, _ = planted(110)
    model = offcut.TruncatedMixture(WINDOW, components=5)
    with pytest.raises(offcut.errors.StartError, match="exceeded the budget"):
        offcut.sample(model, x, budget=0, **SHORT)
