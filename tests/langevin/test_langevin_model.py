"""``offcut.MatrixLangevinModel``: what it takes, what it gives, what it refuses."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from conftest import assert_same_draws
from offcut import MatrixLangevin, MatrixLangevinModel
from offcut.driver.chains import Settings
from offcut.errors import DataError, ModelError, SettingsError, StartError
from offcut.langevin.draws import acceptance
from offcut.langevin.sampler import refuse_hopeless
from offcut.programs.cache import blocks_of
from offcut.samplers.choice import prepare
from offcut.sampling import run

SHORT = {"draws": 60, "warmup": 60, "chains": 2, "progress": False}
PRIOR = dist.Gamma(2, 0.2)


@pytest.fixture(scope="module")
def frames():
    G = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 2)))[0]
    return np.asarray(MatrixLangevin.from_svd(G, [6.0, 12.0]).sample(jax.random.key(1), (20,)))


@pytest.fixture(scope="module")
def model():
    return MatrixLangevinModel(PRIOR)


@pytest.fixture(scope="module")
def posterior(model, frames):
    return offcut.sample(model, frames, **SHORT)


@pytest.fixture(scope="module")
def inferred():
    return MatrixLangevinModel(PRIOR, H="inferred")


@pytest.fixture(scope="module")
def with_H(inferred, frames):  # noqa: N802
    return offcut.sample(inferred, frames, method="asymptotic", **SHORT)  # compiles fastest


def test_what_a_run_gives(posterior, frames):
    group = posterior["posterior"]
    assert dict(group["kappa"].sizes) == {"chain": 2, "draw": 60, "column": 2}
    assert group["G"].dims == ("chain", "draw", "row", "column")
    assert "H" not in group
    assert posterior.attrs["method"] == "augment"
    assert posterior.attrs["kernel"].startswith("HMC")
    assert posterior["observed_data"]["x"].shape == frames.shape
    assert (posterior["sample_stats"]["rejected"] >= 0).all()
    assert 0 <= posterior.attrs["tv_halving_limit"] <= 1
    assert "approximation" not in posterior.attrs
    G = group["G"].values
    gram = np.swapaxes(G, -1, -2) @ G
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), gram.shape), atol=1e-12)
    said = str(offcut.summary(posterior))
    assert "kappa[0]" in said
    assert "Method: augment (method='collapsed' would be faster here" in said


def test_information_is_missing_about_kappa_only(posterior):
    group = posterior["posterior"]
    assert "missing_information" in group["kappa"].attrs
    assert "missing_information" not in group["G"].attrs


def test_draws_do_not_depend_on_blocks_buffers_or_threads(model, frames, posterior):
    settings = Settings(60, 60, 2, 0, "auto", False, threads=1, block=7, capacity=33)
    with jax.enable_x64(True):
        assert_same_draws(run(model, frames, None, None, settings), posterior)


def test_a_checkpoint_resumes_to_the_same_draws(model, frames, posterior, tmp_path):
    first = offcut.sample(model, frames, checkpoint=tmp_path / "run", **SHORT)
    assert_same_draws(first, posterior)
    again = offcut.sample(model, frames, checkpoint=tmp_path / "run", **SHORT)
    assert_same_draws(again, posterior)
    with pytest.raises(offcut.errors.CheckpointError, match="another"):
        offcut.sample(MatrixLangevinModel(PRIOR, G_prior=np.ones((3, 2))), frames,
                      checkpoint=tmp_path / "run", **SHORT)  # fmt: skip


def test_a_second_run_compiles_nothing(model, frames, posterior):
    programs = blocks_of(prepare(model, frames)[0])
    before = [block.compilations for block in programs.values()]
    assert sum(before) > 0
    offcut.sample(model, frames, **(SHORT | {"seed": 5}))
    assert [block.compilations for block in programs.values()] == before


def test_the_larger_concentration_is_proposed_first(model, frames):
    """Whatever the order of the data's columns."""
    sampler, _, _ = prepare(model, frames)
    assert sampler.order(jnp.array([6.0, 12.0])).tolist() == [1, 0]
    assert sampler.order(jnp.array([12.0, 6.0])).tolist() == [0, 1]


def test_unit_vectors_are_frames_of_one_column():
    directions = np.asarray(MatrixLangevin(np.eye(4)[:, :1] * 9).sample(jax.random.key(0), (40,)))
    model = MatrixLangevinModel(PRIOR)
    posterior = offcut.sample(model, directions[:, :, 0], method="fastest", **SHORT)
    assert posterior.attrs["method"] == "collapsed"
    assert "of 4 by 1 is known" in str(offcut.summary(posterior))
    assert posterior["posterior"]["G"].shape[2:] == (4, 1)
    assert posterior["observed_data"]["x"].shape == (40, 4, 1)


def test_both_frames_inferred_are_reported_in_one_form(with_H, frames):
    group = with_H["posterior"]
    kappa, H = group["kappa"].values, group["H"].values
    assert (kappa[..., 0] >= kappa[..., 1]).all()
    V = np.linalg.svd(frames.sum(0))[2].T
    V = V * np.where(V[np.abs(V).argmax(0), [0, 1]] < 0, -1.0, 1.0)
    assert (np.einsum("cdij,ij->cdj", H, V) >= 0).all()
    assert with_H["posterior"]["H"].dims[2:] == ("column_of_data", "column")
    assert "kappa falls" in with_H.attrs["form"]


def test_predictive_frames_and_regions(model, posterior, inferred, with_H):
    for fitted, drawn in ((model, posterior), (inferred, with_H)):
        new = fitted.predict(drawn, 300, seed=1)
        assert new.shape == (300, 3, 2)
        np.testing.assert_allclose(
            np.einsum("nij,nik->njk", new, new), np.broadcast_to(np.eye(2), (300, 2, 2)), atol=1e-12
        )
        np.testing.assert_array_equal(new, fitted.predict(drawn, 300, seed=1))
        credible = fitted.regions(drawn)
        predictive = fitted.regions(drawn, predictive=True, size=2000)
        assert [cap.column for cap in credible] == [0, 1]
        observed = drawn["observed_data"]["x"].values
        for small, large in zip(credible, predictive, strict=True):
            assert small.angle < large.angle
            inside = np.mean(large.contains(observed[:, :, large.column]))
            assert inside > 0.6
    with pytest.raises(SettingsError, match="size"):
        model.predict(posterior, 0)


@pytest.mark.parametrize(
    ("asked", "kernel", "method"),
    [
        ("auto", None, "augment"),
        ("fastest", None, "collapsed"),
        ("exchange", offcut.RandomWalk(), "exchange"),
        (offcut.PseudoMarginal(acceptances=9), None, "pseudo_marginal"),
        ("pseudo-marginal", None, "pseudo_marginal"),
        ("asymptotic", offcut.NUTS(), "asymptotic"),
    ],
)
def test_methods_and_kernels(model, frames, asked, kernel, method):
    assert prepare(model, frames, None, kernel, asked).sampler.method == method


def test_the_fastest_beyond_the_exact_normaliser_augments(model):
    x = np.broadcast_to(np.eye(6)[:, :4], (5, 6, 4))
    prepared = prepare(model, x, method="fastest")
    assert prepared.sampler.method == "augment"
    assert "of 6 by 4 is not known" in model.facts(prepared)["method_note"]
    with pytest.raises(ModelError, match="not for 6 by 4"):
        prepare(model, x, method="collapsed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kappa_prior": 3.0}, "NumPyro distribution"),
        ({"kappa_prior": dist.Normal(0, 1)}, "positive"),
        ({"kappa_prior": dist.Uniform(-1, 1)}, "positive"),
        ({"kappa_prior": dist.Dirichlet(np.ones(2))}, "single numbers"),
        ({"H": "identical"}, "identity"),
        ({"H": None}, "identity"),
        ({"H": np.eye(2)}, "data @ H"),
        ({"G_prior": "uniform"}, "left out"),
        ({"G_prior": np.ones(3)}, "G_prior must be"),
    ],
)
def test_models_that_make_no_sense(arguments, words):
    with pytest.raises(ModelError, match=words):
        MatrixLangevinModel(**({"kappa_prior": PRIOR} | arguments))


def test_data_and_settings_that_do_not_fit(model, frames):
    with pytest.raises(DataError, match="not orthonormal"):
        offcut.sample(model, 2 * frames, **SHORT)
    with pytest.raises(ModelError, match="no covariates"):
        offcut.sample(model, frames, covariates=np.zeros(20), **SHORT)
    with pytest.raises(ModelError, match="G_prior is 4 by 2"):
        offcut.sample(MatrixLangevinModel(PRIOR, G_prior=np.ones((4, 2))), frames, **SHORT)
    with pytest.raises(ModelError, match="3 entries"):
        offcut.sample(MatrixLangevinModel(dist.Gamma(2, np.ones(3))), frames, **SHORT)
    with pytest.raises(SettingsError, match=r"takes offcut\.NUTS"):
        offcut.sample(model, frames, method="collapsed", kernel=offcut.Conjugate(), **SHORT)
    with pytest.raises(SettingsError, match=r"takes offcut\.RandomWalk"):
        offcut.sample(model, frames, method="exchange", kernel=offcut.NUTS(), **SHORT)
    with pytest.raises(SettingsError, match="method must be one of 'auto', 'augment', 'collapsed'"):
        offcut.sample(model, frames, method="gibbs", **SHORT)


def test_priors_by_column_and_with_bounds(frames):
    bounded = MatrixLangevinModel(dist.Uniform(0.0, np.array([7.0, 40.0])))
    posterior = offcut.sample(bounded, frames, method="asymptotic", **SHORT)
    assert float(posterior["posterior"]["kappa"][..., 0].max()) <= 7.0


def test_one_frame_is_enough_for_a_proper_prior(model):
    posterior = offcut.sample(model, np.eye(3)[None, :, :2], method="asymptotic", **SHORT)
    assert np.isfinite(posterior["posterior"]["kappa"]).all()


def test_hopeless_columns_are_refused_before_they_hang():
    def refused(kappa, n, budget, d):
        refuse_hopeless(kappa, float(acceptance(kappa, d)), n, budget)

    with pytest.raises(StartError, match="asymptotic"):
        refused(np.full(10, 20.0), 50, 100_000, 10)
    refused(np.array([12.0, 6.0]), 50, 100, 3)
    refused(np.full(10, 0.1), 50, 100, 10)  # many columns, hardly concentrated


def test_priors_that_tell_columns_apart_leave_draws_as_they_are(frames):
    told = MatrixLangevinModel(dist.Gamma(2, np.array([0.2, 0.3])), H="inferred")
    prepared = prepare(told, frames)
    assert not prepared.sampler.symmetric
    assert "as drawn" in told.facts(prepared)["form"]
    for prior in ({"G_prior": np.ones((3, 2))}, {"H": MatrixLangevin(np.eye(2))}):
        model = MatrixLangevinModel(PRIOR, **({"H": "inferred"} | prior))
        assert not prepare(model, frames)[0].symmetric
    plain = MatrixLangevinModel(PRIOR, H="inferred")
    assert prepare(plain, frames)[0].symmetric


def test_a_checkpoint_knows_its_prior_to_the_last_digit():
    one, other = (
        MatrixLangevinModel(dist.TruncatedNormal(0, scale, low=0.0)) for scale in (5.0, 50.0)
    )
    assert one.identity() != other.identity()
    same = MatrixLangevinModel(dist.TruncatedNormal(0, 5.0, low=0.0))
    assert one.identity() == same.identity()


@pytest.mark.calibrate
@pytest.mark.parametrize("seed", [1, 2])
def test_a_buffer_that_grows_in_warmup_changes_no_draw(seed):
    """Alike columns change their order in warm-up; a step made again must not count twice."""
    F = np.vstack([8.0 * np.eye(2), np.zeros((1, 2))])
    x = np.asarray(MatrixLangevin(F).sample(jax.random.key(3), (300,)))
    model = MatrixLangevinModel(PRIOR)
    runs = []
    with jax.enable_x64(True):
        for capacity in (1, 1024):
            settings = Settings(50, 60, 2, seed, "auto", False, capacity=capacity)
            runs.append(run(model, x, None, offcut.RandomWalk(), settings))
    assert_same_draws(*runs)


def test_a_budget_that_is_too_small_says_so(model, frames):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tight = offcut.sample(model, frames, budget=2, **SHORT)
        assert int(tight["sample_stats"]["rejected"].max()) <= 2
    many = np.concatenate([frames] * 40)
    with pytest.raises(StartError, match="exceeded the budget"):
        offcut.sample(model, many, budget=1, **SHORT)


@pytest.mark.calibrate
def test_thousands_of_frames():
    """At n = 10,000 the conditional of G has concentrations of 1e5."""
    F = np.array([[12.0, 0.0], [0.0, 6.0], [0.0, 0.0]])
    x = np.asarray(MatrixLangevin(F).sample(jax.random.key(3), (10_000,)))
    model = MatrixLangevinModel(PRIOR)
    run = {"draws": 200, "warmup": 200, "chains": 2, "progress": False}
    posterior = offcut.sample(model, x, method="collapsed", **run)
    kappa = posterior["posterior"]["kappa"].values.reshape(-1, 2)
    assert (np.abs(kappa.mean(0) - [12, 6]) < 5 * kappa.std(0)).all()
    assert (kappa.std(0) < [0.3, 0.2]).all()
    credible = model.regions(posterior)
    assert 0 < credible[0].degrees < 1.0
