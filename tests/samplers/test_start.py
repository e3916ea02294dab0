"""Chains start where the prior and every observation are possible, or are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import offcut
from offcut.errors import DataError, ModelError, StartError
from offcut.samplers.choice import prepare
from offcut.samplers.start import CLIMB_ROWS, SHAKES, _noise, shaken

OFF = {"validate_args": False}
X = np.random.default_rng(3).uniform(0, 7, 40)


def upper_end(**options):
    return offcut.truncated(
        prior={"b": dist.LogNormal(0.0, 1.0)},
        base=lambda theta: dist.Uniform(0.0, theta["b"], **options),
        inside=lambda x: x > 0.01,
    )


def both_ends():
    def prior():
        low = numpyro.sample("low", dist.Normal(0.0, 3.0))
        numpyro.sample("width", dist.HalfNormal(2.0))
        numpyro.deterministic("twice", 2 * low)

    def base(theta):
        ends = theta["low"] * jnp.ones(2), (theta["low"] + theta["width"]) * jnp.ones(2)
        return dist.Uniform(*ends, **OFF).to_event(1)

    return offcut.truncated(prior, base, inside=lambda x: x[0] > -5)


def moving_window():
    return offcut.selected(
        prior={"loc": dist.Normal(0.0, 1.0), "limit": dist.LogNormal(0.0, 0.5)},
        base=lambda theta: dist.Normal(theta["loc"], 3.0),
        log_accept=lambda theta, y: jnp.where(y < theta["limit"], 0.0, -jnp.inf),
    )


def counts():
    return offcut.truncated(
        prior={"m": dist.Uniform(0.0, 60.0)},
        base=lambda theta: dist.DiscreteUniform(0, jnp.floor(theta["m"]).astype(int), **OFF),
        inside=lambda x: x > 0,
    )


CASES = {
    "upper end": (upper_end(**OFF), X),
    "upper end, validated": (upper_end(), X),
    "both ends": (both_ends(), np.random.default_rng(1).uniform(-2, 5, (30, 2))),
    "moving window": (moving_window(), X),
    "counts": (counts(), np.array([3, 51, 17, 20])),
}


def starts(model, data, kernel=None, seeds=6, method="auto"):
    """Log likelihoods of all observations at the starts of some chains, and theta there."""
    with jax.enable_x64(True):
        sampler, arrays, _ = prepare(model, data, None, kernel, method)
        found = []
        for seed in range(seeds):
            state = sampler.start(jax.random.key(seed), arrays, 10**6)
            theta = model.prior.constrain(state.position, state.exact)
            terms = jax.vmap(model.log_observed, (None, 0))(theta, jnp.asarray(data))
            prior = model.prior.log_density(state.position, state.exact)
            found.append((np.append(np.asarray(terms), prior), jax.tree.map(float, theta)))
        return found


LONG = {"upper end, validated", "both ends", "moving window", "counts"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(k, marks=[pytest.mark.calibrate] if k in LONG else []) for k in CASES],
)
def test_every_chain_starts_where_all_data_are_possible(name):
    model, data = CASES[name]
    found = starts(model, data, offcut.RandomWalk())
    assert np.isfinite([terms for terms, _ in found]).all()
    assert len({tuple(theta.values()) for _, theta in found}) == len(found)  # and apart


@pytest.mark.parametrize("method", ["augment", "exchange", "pseudo_marginal"])
def test_every_method_starts_there(method):
    found = starts(*CASES["upper end"], seeds=3, method=method)
    assert np.isfinite([terms for terms, _ in found]).all()


@pytest.mark.calibrate
def test_the_direct_method_starts_there():
    model = offcut.truncated(
        prior={"least": dist.LogNormal(1.0, 1.0), "tail": dist.LogNormal(0.0, 0.5)},
        base=lambda theta: dist.Pareto(theta["least"], theta["tail"], **OFF),
        inside=offcut.regions.Box(0.0, 50.0),
    )
    found = starts(model, 0.1 + X, method="direct")
    assert np.isfinite([terms for terms, _ in found]).all()


def test_rows_that_the_climb_does_not_look_at_count():
    data = np.random.default_rng(0).uniform(0.1, 1, 3 * CLIMB_ROWS)
    data[1] = 5.0  # the climb looks at every third
    found = starts(upper_end(**OFF), data, offcut.RandomWalk(), seeds=3)
    assert np.isfinite([terms for terms, _ in found]).all()


def test_a_shake_out_of_the_support_is_seen():
    """The negative control: half of the shakes at the edge of the support are impossible."""
    model, data = CASES["upper end"]
    with jax.enable_x64(True):
        _, arrays, _ = prepare(model, data, None, offcut.RandomWalk())
        edge = model.prior.unconstrain({"b": jnp.asarray(data.max())}) + 1e-9
        keys = jax.random.split(jax.random.key(0), 20)
        below = [bool(_noise(key, edge)[0] < 0) for key in keys]
        assert 4 < sum(below) < 16
        for key in keys:
            moved, possible = shaken(model, key, edge, {}, arrays, SHAKES[0])
            assert possible
            assert moved[0] > edge[0]


def test_data_that_are_impossible_everywhere_are_refused():
    model = offcut.truncated(
        prior={"b": dist.Uniform(0.5, 1.0)},
        base=lambda theta: dist.Uniform(0.0, theta["b"], **OFF),
        inside=lambda x: x > 0.01,
    )
    with pytest.raises(StartError, match=r"1 of 2 observations.*index 1 \(value 3"):
        offcut.sample(model, [0.5, 3.0], progress=False)
    negative = offcut.truncated(
        prior={"rate": dist.LogNormal(0.0, 1.0)},
        base=lambda theta: dist.Exponential(theta["rate"], **OFF),
        inside=offcut.regions.Box(-1.0, 5.0),
    )
    for method in ("augment", "direct"):
        with pytest.raises(DataError, match=r"index 1 \(value -0.5"):
            offcut.sample(
                negative, [0.5, -0.5], method=method, kernel=offcut.NUTS(), progress=False
            )


def fixed_models():
    def function():
        scale = numpyro.sample("scale", dist.Delta(2.0))
        with numpyro.plate("three", 3):
            numpyro.sample("weights", dist.Delta(0.25))
        numpyro.deterministic("variance", scale**2)
        numpyro.sample("loc", dist.Normal(0.0, 1.0))

    def base(theta):
        return dist.Normal(theta["loc"], theta["scale"])

    loc = dist.Normal(0.0, 1.0)
    window = {"base": base, "inside": lambda x: x > 0}
    return {
        "delta": offcut.truncated({"loc": loc, "scale": dist.Delta(2.0)}, **window),
        "number": offcut.truncated({"loc": loc, "scale": 2}, **window),
        "array": offcut.truncated(
            {"loc": loc, "scale": 2.0, "weights": np.full(3, 0.25)}, **window
        ),
        "function": offcut.truncated(function, **window),
    }


FIXED = fixed_models()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(k, marks=[pytest.mark.calibrate] if k in ("array", "number") else [])
        for k in FIXED
    ],
)
def test_a_fixed_parameter_stays(name):
    model = FIXED[name]
    assert model.prior.names == ("loc",)
    assert model.prior.size == 1
    kernel = offcut.HMC(0.3, 5) if name == "delta" else None  # else conjugate
    drawn = offcut.sample(model, X[:8], draws=300, warmup=50, chains=2, kernel=kernel, seed=1)
    values = drawn["posterior"]
    assert (values["scale"].values == 2.0).all()
    assert values["loc"].values.std() > 0.1
    if "weights" in values:
        assert (values["weights"].values == 0.25).all()
    report = offcut.summary(drawn)
    assert not any("scale" in line or "weights" in line for line in report.trouble)
    assert np.isnan(report.table["scale"]["ess"])
    assert np.isnan(report.table["scale"]["r_hat"])


@pytest.mark.calibrate
def test_a_fixed_parameter_is_the_same_model_as_a_number_in_the_base():
    plain = offcut.truncated(
        {"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.Normal(theta["loc"], 2.0),
        inside=lambda x: x > 0,
    )
    settings = {"draws": 50, "warmup": 20, "chains": 2, "progress": False}
    fixed, number = (offcut.sample(m, X[:8], **settings) for m in (FIXED["delta"], plain))
    assert np.array_equal(fixed["posterior"]["loc"].values, number["posterior"]["loc"].values)
    assert offcut.kernel_for(FIXED["number"]).kernel == offcut.Conjugate()


def test_fixed_parameters_can_be_left_out_of_theta():
    accepted, _ = offcut.augment(0, FIXED["delta"], {"loc": 0.3}, n=5)
    assert accepted.shape == (5,)
    with pytest.raises(ModelError, match=r"'scale'.*fixed at 2.*3"):
        offcut.augment(0, FIXED["delta"], {"loc": 0.3, "scale": 3.0}, n=5)


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (
            {"loc": dist.Delta(0.0), "scale": 1.0},
            r"no parameters to infer.*all are fixed \(loc, scale\)",
        ),
        ({"loc": dist.Normal(0, 1), "scale": np.nan}, "'scale'.*finite"),
        ({"loc": dist.Normal(0, 1), "scale": "2"}, "'scale'.*distribution.*number.*str"),
        ({"loc": dist.Normal(0, 1), "scale": True}, "'scale'.*bool"),
    ],
)
def test_what_cannot_be_fixed_is_said(prior, said):
    with pytest.raises(ModelError, match=said):
        offcut.truncated(prior, lambda theta: dist.Normal(0, 1), inside=lambda x: x > 0)


@pytest.mark.usefixtures("float64")
def test_the_density_that_a_delta_adds_is_kept():
    def prior():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("b", dist.Delta(1.0, log_density=-2 * a))

    from offcut.models.prior import Prior

    both = Prior(prior)
    alone = Prior({"a": dist.Normal(0.0, 1.0)})
    for a in (0.5, -1.0):
        position = jnp.array([a])
        added = both.log_density(position, {}) - alone.log_density(position, {})
        assert added == pytest.approx(-2 * a)
