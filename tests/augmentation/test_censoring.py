"""What censoring and measurement error refuse, ask and say."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut.checks.looks import pile_ups, piles
from offcut.errors import DataError, ModelError, StartError, TrustWarning
from offcut.samplers.choice import observe

RUN = {
    "draws": 30,
    "warmup": 30,
    "chains": 2,
    "kernel": offcut.HMC(0.2, 3),
    "progress": False,
}


def model(**options):
    options.setdefault("inside", lambda x: x > 0)
    return offcut.truncated(
        prior={"loc": dist.Normal(1.0, 0.5)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        **options,
    )


def values(n=40, seed=0):
    z = np.random.default_rng(seed).normal(1.0, 1.0, 10 * n)
    return z[z > 0][:n]


def messages(asked, data, covariates=None):
    """What is asked about the data before a run; sampling would only add time."""
    with jax.enable_x64(True):
        arrays, _, _ = observe(asked, data, covariates)
        return [doubt.text for doubt in pile_ups(asked, arrays, int(arrays.n))]


def test_sample_asks():
    x = np.minimum(values(), 1.5)
    with pytest.warns(TrustWarning, match=r"exactly 1\.5"):
        offcut.sample(model(), x, **RUN)


def test_a_pile_at_the_limit_is_asked_about_and_a_model_that_knows_is_not():
    x = np.minimum(values(), 1.5)
    (question,) = messages(model(), x)
    assert f"{(x == 1.5).sum()} of 40 observations are exactly 1.5" in question
    assert "censored=offcut.Clamped(upper=1.5)" in question
    assert "truncated" in question
    assert messages(model(censored=offcut.Clamped(upper=1.5)), x) == []
    assert messages(model(censored=lambda y: y >= 1.5), x) == []
    assert messages(model(), values()) == []


def test_a_pile_at_the_lower_limit_of_a_region_is_asked_about():
    x = np.maximum(values(), 0.4)
    (question,) = messages(model(inside=offcut.regions.Box(0.4, np.inf)), x)
    assert "Clamped(lower=0.4)" in question


def test_rounded_values_are_not_asked_about():
    rng = np.random.default_rng(1)
    for scale, digits in ((1.0, 1), (7.0, 0), (30.0, 0)):
        z = np.round(np.abs(rng.normal(0, scale, 500)), digits)
        assert piles(z, [0.0]) == []


def test_a_pile_in_one_coordinate():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 2))
    x[:, 1] = np.minimum(x[:, 1], 0.5)

    def plane(**options):
        return offcut.truncated(
            prior={"loc": dist.Normal(0.0, 1.0)},
            base=lambda theta: dist.Normal(theta["loc"], 1.0).expand([2]).to_event(1),
            inside=offcut.regions.Box(-5, 5),
            **options,
        )

    (question,) = messages(plane(), x)
    assert "exactly 0.5 in coordinate 1" in question
    assert messages(plane(censored=offcut.Clamped(upper=[np.inf, 0.5])), x) == []


def test_values_equal_to_a_limit_of_their_own_are_asked_about():
    z = values()
    limit = np.linspace(0.8, 2.2, len(z))
    own = offcut.truncated(
        prior={"loc": dist.Normal(1.0, 0.5)},
        base=lambda theta, c: dist.Normal(theta["loc"], 1.0),
        inside=lambda x, c: x > 0,
    )
    (question,) = messages(own, np.minimum(z, limit), covariates=limit)
    assert "equal to one of their covariates" in question


def test_values_outside_the_window_that_are_all_the_same_may_be_censored():
    x = np.minimum(values(), 1.5)
    with pytest.raises(DataError, match=r"All of them are 1\.5: .* censored=offcut\.Clamped"):
        offcut.sample(model(inside=lambda x: (x > 0) & (x < 1.5)), x, **RUN)


def test_a_window_that_ends_where_censoring_begins():
    x = np.minimum(values(), 1.5)
    wrong = model(inside=lambda x: (x > 0) & (x <= 1.5), censored=offcut.Clamped(upper=1.5))
    with pytest.raises(StartError, match="the window must include the zone"):
        offcut.sample(wrong, x, **RUN)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lower": 1, "upper": 0}, "lower < upper"),
        ({"lower": np.nan}, "lower < upper"),
        ({}, "finite limit"),
    ],
)
def test_limits_that_make_no_sense(options, said):
    with pytest.raises(ModelError, match=said):
        offcut.Clamped(**options)


@pytest.mark.usefixtures("unchecked")
def test_what_is_not_a_zone():
    with pytest.raises(ModelError, match="censored must be"):
        model(censored=1.5)
    with pytest.raises(ModelError, match="2 zones"):
        offcut.sample(model(censored=[lambda y: y > 1, lambda y: y > 2]), values() + 1.5, **RUN)


def test_values_beyond_the_clamp():
    x = np.random.default_rng(0).normal(size=(10, 2))
    plane = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0).expand([2]).to_event(1),
        inside=offcut.regions.Box(-5, 5),
        censored=offcut.Clamped(upper=0.5),
    )
    with pytest.raises(DataError, match="beyond the limits at which the recorder clamps"):
        offcut.sample(plane, x, **RUN)


@pytest.mark.calibrate
def test_measurement_error_takes_the_noisy_values_and_gives_both():
    noisy = model(noise=lambda theta, true: dist.Normal(true, 0.3))
    accepted, rejected = offcut.augment(0, noisy, {"loc": 1.0}, n=30)
    assert set(accepted) == {"noisy", "true"}
    assert (accepted["noisy"] > 0).all()
    assert (rejected["noisy"] <= 0).all()
    posterior = offcut.sample(noisy, accepted["noisy"], **RUN)
    assert posterior["observed_data"]["x"].shape == (30,)
    with pytest.raises(DataError, match="structure"):
        offcut.sample(noisy, accepted, **RUN)


@pytest.mark.calibrate
def test_latent_parts_of_a_model_of_ones_own():
    def propose(key, theta):
        import jax

        true = theta["loc"] + jax.random.normal(key)
        return {"true": true, "seen": true + 0.5 * jax.random.normal(jax.random.fold_in(key, 1))}

    def log_proposal(theta, y):
        return dist.Normal(theta["loc"], 1).log_prob(y["true"]) + dist.Normal(
            y["true"], 0.5
        ).log_prob(y["seen"])

    own = offcut.RejectionModel(
        prior={"loc": dist.Normal(0, 1)},
        propose=propose,
        log_proposal=log_proposal,
        log_accept=lambda theta, y: -0.5 * y["seen"] ** 2,
        latent="true",
    )
    posterior = offcut.sample(own, {"seen": np.array([0.1, -0.4, 0.8])}, **RUN)
    assert list(posterior["observed_data"].data_vars) == ["seen"]
    discrete = offcut.RejectionModel(
        prior={"loc": dist.Normal(0, 1)},
        propose=lambda key, theta: {"true": 1, "seen": theta["loc"]},
        log_proposal=lambda theta, y: theta["loc"] * y["seen"],
        log_accept=lambda theta, y: -0.5 * y["seen"] ** 2,
        latent="true",
    )
    with pytest.raises(ModelError, match=r"discrete|fails"):
        offcut.sample(discrete, {"seen": np.array([0.1])}, **RUN)
    with pytest.raises(ModelError, match="names parts of a proposal"):
        offcut.sample(
            offcut.RejectionModel(
                prior={"loc": dist.Normal(0, 1)},
                propose=lambda key, theta: theta["loc"],
                log_proposal=lambda theta, y: y,
                log_accept=lambda theta, y: y,
                latent="true",
            ),
            np.array([0.1]),
            **RUN,
        )


def test_checkpoints_hold_imputed_values(tmp_path):
    x = np.minimum(values(), 1.5)
    clamped = model(censored=offcut.Clamped(upper=1.5))
    whole = offcut.sample(clamped, x, **RUN)
    offcut.sample(clamped, x, checkpoint=tmp_path / "c", **RUN)
    again = offcut.sample(clamped, x, checkpoint=tmp_path / "c", **RUN)
    assert (whole["posterior"]["loc"] == again["posterior"]["loc"]).all()
    other = model(censored=offcut.Clamped(upper=1.4))
    with pytest.raises(offcut.errors.CheckpointError, match="model"):
        offcut.sample(other, np.minimum(x, 1.4), checkpoint=tmp_path / "c", **RUN)


def test_no_trust_is_lost_where_nothing_is_hidden():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrustWarning)
        warnings.filterwarnings("ignore", "Few|The chains|Too few|The budget")
        posterior = offcut.sample(model(), values(), **RUN)
    assert "imputed" not in posterior["sample_stats"]
