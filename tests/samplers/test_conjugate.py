"""Which models are recognised as conjugate, however they are spelled, and which must not be.

A match that should not be gives a wrong posterior, so near-misses are the larger half.
"""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import offcut
from offcut.numerics.keys import from_seed
from offcut.samplers.conjugacy import Match, NoMatch
from offcut.samplers.conjugacy import reading as interpreter
from offcut.samplers.conjugacy.match import match

EYE = np.eye(2)
MEAN, VARIANCE, PRECISION = dist.Normal(0.0, 2.0), dist.InverseGamma(3.0, 2.0), dist.Gamma(3.0, 2.0)
BOTH = {"m": MEAN, "v": VARIANCE}


def inside(x, *covariate):
    return jnp.all(x > -1)


def truncated(prior, base, **options):
    return offcut.truncated(prior, base, inside, **options)


def reason(model, covariates=None):
    result = match(model, covariates)
    assert isinstance(result, NoMatch), f"must not match, is {result.description}"
    return result.reason


def root(t):
    return jnp.sqrt(t["v"])


# Spellings that match.


@pytest.mark.parametrize(
    "base",
    [
        lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"])),
        lambda t: dist.Normal(loc=t["m"], scale=t["v"] ** 0.5),
        lambda t: dist.Normal(scale=jnp.power(t["v"], 0.5), loc=t["m"], validate_args=True),
        lambda t: dist.Normal(t["m"] + 0.0, (t["v"] ** 2) ** 0.25),
        lambda t: dist.Normal(t["m"], 1 / jax.lax.rsqrt(t["v"])),
        lambda t: dist.Normal(t["m"], t["v"] / jnp.sqrt(t["v"])),
        lambda t: dist.Normal(jnp.asarray(t["m"], float), jax.jit(jnp.sqrt)(t["v"])),
        lambda t: dist.Normal(t["m"], jnp.stack([t["v"], 7.0])[0] ** 0.5),
        lambda t: dist.Normal(2 * t["m"] - t["m"], jnp.sqrt(3 * t["v"])),
        lambda t: dist.LogNormal(t["m"], root(t)),
    ],
)
def test_spellings_of_mean_and_variance(base):
    result = match(truncated(BOTH, base))
    assert result.description.endswith("normal: m | v normal, v | m inverse gamma")
    assert result.sites == ("m", "v")


@pytest.mark.parametrize(
    "scale",
    [
        lambda p: 1 / jnp.sqrt(p),
        lambda p: jnp.sqrt(1 / p),
        lambda p: p**-0.5,
        lambda p: jax.lax.rsqrt(p),
        lambda p: jnp.reciprocal(jnp.sqrt(p)),
    ],
)
def test_spellings_of_a_precision(scale):
    base = lambda t: dist.Normal(t["any name"], scale(t["at all"]))  # noqa: E731
    result = match(truncated({"any name": MEAN, "at all": PRECISION}, base))
    assert result.description == "normal: any name | at all normal, at all | any name gamma"


def dependent(mean):
    def prior():
        v = numpyro.sample("v", VARIANCE)
        numpyro.sample("m", mean(v))
        numpyro.deterministic("sd", jnp.sqrt(v))
        numpyro.deterministic("whole", jnp.round(v).astype(int))

    return prior


def matrices(mean):
    def prior():
        S = numpyro.sample("S", dist.InverseWishart(5.0, EYE))
        numpyro.sample("m", mean(S))

    return prior


def precisions():
    P = numpyro.sample("P", dist.Wishart(5.0, rate_matrix=EYE))
    numpyro.sample("m", dist.MultivariateNormal(np.zeros(2), precision_matrix=P * 3))


def with_plate():
    with numpyro.plate("coordinates", 2):
        numpyro.sample("m", dist.Normal(0.0, 1.0))


def diagonal(t):
    return dist.Normal(t["m"], jnp.sqrt(t["v"])).to_event(1)


def multivariate(t):
    return dist.MultivariateNormal(t["m"], t["S"])


MATCHES = {
    "normal: (m, v) normal-inverse-gamma": [
        (
            dependent(lambda v: dist.Normal(1, jnp.sqrt(v / 4))),
            lambda t: dist.Normal(t["m"], t["sd"]),
        ),
        (
            dependent(lambda v: dist.Normal(1, jnp.sqrt(v))),
            lambda t: dist.Normal(t["m"], root(t) / 2),
        ),
        (
            dependent(lambda v: dist.Normal(1, 0.5 * v**0.5).expand([])),
            lambda t: dist.Normal(t["m"], t["sd"]),
        ),
    ],
    "normal: m normal": [
        ({"m": MEAN}, lambda t: dist.Normal(t["m"], 2)),
        ({"m": MEAN.expand([2]).to_event(1)}, lambda t: dist.Normal(t["m"], 2).to_event(1)),
        (with_plate, lambda t: dist.Normal(t["m"], np.array([1.0, 2.0])).to_event(1)),
    ],
    "Normal: v inverse gamma": [({"v": VARIANCE}, lambda t: dist.Normal(3, root(t)))],
    "LogNormal: v gamma": [({"v": PRECISION}, lambda t: dist.LogNormal(3, 1 / root(t)))],
    "normal: m | v normal, v | m inverse gamma": [
        ({"m": dist.Normal(np.zeros(2), 1).to_event(1), "v": VARIANCE.expand([2])}, diagonal),
        ({"m": dist.Normal(0, 1).expand([2]), "v": VARIANCE.expand([2]).to_event(1)}, diagonal),
        (dependent(lambda v: dist.Normal(1, 1)), lambda t: dist.Normal(t["m"], t["sd"])),
    ],
    "multivariate normal: m | S normal, S | m inverse Wishart": [
        ({"m": dist.Normal(0, 1).expand([2]), "S": dist.InverseWishart(5, EYE)}, multivariate),
        (matrices(lambda S: dist.MultivariateNormal(np.zeros(2), EYE)), multivariate),
        (
            matrices(lambda S: dist.MultivariateNormal(0.0, scale_tril=EYE)),
            lambda t: dist.MultivariateNormal(t["m"], scale_tril=jnp.linalg.cholesky(t["S"]) * 2),
        ),
        (
            {
                "m": dist.MultivariateNormal(np.zeros(2), precision_matrix=EYE),
                "S": dist.InverseWishart(5, scale_tril=EYE),
            },
            lambda t: dist.MultivariateNormal(t["m"], covariance_matrix=t["S"].T / 2),
        ),
    ],
    "multivariate normal: (m, S) normal-inverse-Wishart": [
        (matrices(lambda S: dist.MultivariateNormal(np.ones(2), S / 3)), multivariate),
        (
            matrices(lambda S: dist.MultivariateNormal(0.0, scale_tril=jnp.linalg.cholesky(S) / 2)),
            multivariate,
        ),
    ],
    "multivariate normal: (m, P) normal-Wishart": [
        (precisions, lambda t: dist.MultivariateNormal(t["m"], precision_matrix=t["P"])),
    ],
    "multivariate normal: m normal": [
        ({"m": dist.Normal(0, 1).expand([2])}, lambda t: dist.MultivariateNormal(t["m"], EYE)),
    ],
    "multivariate normal: S inverse Wishart": [
        ({"S": dist.InverseWishart(5, EYE)}, lambda t: dist.MultivariateNormal(np.ones(2), t["S"])),
    ],
    "Exponential: r gamma": [
        ({"r": PRECISION}, lambda t: dist.Exponential(t["r"])),
        ({"r": dist.Exponential(2)}, lambda t: dist.Exponential(rate=2.5 * t["r"])),
    ],
    "Exponential: r inverse gamma": [({"r": VARIANCE}, lambda t: dist.Exponential(1 / t["r"]))],
    "Gamma: r gamma": [({"r": PRECISION}, lambda t: dist.Gamma(2, t["r"]))],
    "Poisson: r gamma": [({"r": PRECISION}, lambda t: dist.Poisson(4 * t["r"]))],
    "Weibull: r gamma": [({"r": PRECISION}, lambda t: dist.Weibull(t["r"] ** (-1 / 1.7), 1.7))],
    "Beta: r gamma": [({"r": PRECISION}, lambda t: dist.Beta(t["r"], 1))],
    "Bernoulli: p beta": [
        ({"p": dist.Beta(1, 2)}, lambda t: dist.Bernoulli(t["p"])),
        ({"p": dist.Uniform()}, lambda t: dist.Bernoulli(probs=t["p"])),
        ({"p": dist.Beta(1, 2)}, lambda t: dist.BernoulliProbs(t["p"])),
    ],
    "Binomial: p beta": [({"p": dist.Beta(1, 2)}, lambda t: dist.Binomial(7, t["p"]))],
    "Geometric: p beta": [({"p": dist.Beta(1, 2)}, lambda t: dist.Geometric(t["p"]))],
}


@pytest.mark.parametrize(
    ("description", "prior", "base"),
    [(name, *pair) for name, pairs in MATCHES.items() for pair in pairs],
)
def test_families_and_their_spellings(description, prior, base):
    result = match(truncated(prior, base))
    assert isinstance(result, Match), result.reason
    assert result.description == description


# Near-misses: the prior.


def factored():
    m = numpyro.sample("m", MEAN)
    numpyro.factor("more", -(m**2))


def observed():
    m = numpyro.sample("m", MEAN)
    numpyro.sample("seen", dist.Normal(m, 1), obs=0.3)


def hierarchical():
    centre = numpyro.sample("centre", dist.Normal(0, 1))
    numpyro.sample("m", dist.Normal(centre, 1))


def subsampled():
    with handlers.scale(scale=2.0):
        numpyro.sample("m", MEAN)


def masked_by_handler():
    with handlers.mask(mask=False):
        numpyro.sample("m", MEAN)


def variance_given_mean():
    m = numpyro.sample("m", MEAN)
    numpyro.sample("v", dist.InverseGamma(3, 1 + m**2))


def several_draws():
    numpyro.sample("m", dist.Normal(0, 1), sample_shape=(2,))
    numpyro.sample("v", VARIANCE, sample_shape=(2,))


class Tilted(dist.Normal):
    """A subclass with another density."""

    def log_prob(self, value):
        return super().log_prob(value) - value**4


def known_scale(t):
    return dist.Normal(t["m"], 1.0)


def both(t):
    return dist.Normal(t["m"], root(t))


PRIOR_MISSES = {
    "masked": ({"m": MEAN.mask(False)}, known_scale, "MaskedDistribution"),
    "truncated": ({"m": dist.TruncatedNormal(0, 1, low=0)}, known_scale, "Truncated"),
    "half normal": ({"m": dist.HalfNormal(1)}, known_scale, "HalfNormal prior"),
    "Student": ({"m": dist.StudentT(4, 0, 1)}, known_scale, "StudentT"),
    "subclass": ({"m": Tilted(0, 1)}, known_scale, "Tilted"),
    "transformed": (
        {"m": dist.TransformedDistribution(MEAN, dist.transforms.ExpTransform())},
        known_scale,
        "TransformedDistribution",
    ),
    "folded": ({"m": dist.FoldedDistribution(MEAN)}, known_scale, "FoldedDistribution"),
    "factor": (factored, known_scale, "factors or observed"),
    "observed site": (observed, known_scale, "factors or observed"),
    "hyperprior": (hierarchical, known_scale, "loc of the prior of 'm' is not a fixed number"),
    "several draws": (several_draws, diagonal, "several draws"),
    "scaled by a handler": (subsampled, known_scale, "scaled"),
    "masked by a handler": (masked_by_handler, known_scale, "MaskedDistribution"),
    "variance given mean": (variance_given_mean, both, "rate of the prior of 'v'"),
    "mean about the variance": (
        dependent(lambda v: dist.Normal(v, 1)),
        both,
        "loc of the prior of 'm' is not a fixed number",
    ),
    "variance itself as scale of the mean": (
        dependent(lambda v: dist.Normal(0, v)),
        both,
        "scale of the prior of 'm'",
    ),
    "precision as variance of the mean": (
        dependent(lambda v: dist.Normal(0, 1 / jnp.sqrt(v))),
        both,
        "other than the base's variance",
    ),
    "clipped scale of the mean": (
        dependent(lambda v: dist.Normal(0, jnp.sqrt(jnp.maximum(v, 1e-9)))),
        both,
        "scale of the prior of 'm'",
    ),
    "a little added to the variance": (
        dependent(lambda v: dist.Normal(0, jnp.sqrt(v + 1e-12))),
        both,
        "scale of the prior of 'm'",
    ),
    "variance with a gamma prior": ({"m": MEAN, "v": PRECISION}, both, "Gamma prior on 'v'"),
    "log normal variance": ({"m": MEAN, "v": dist.LogNormal(0, 1)}, both, "LogNormal prior on 'v'"),
    "truncated variance": (
        {"m": MEAN, "v": dist.LeftTruncatedDistribution(dist.Normal(0, 1), low=0)},
        both,
        "scale of the base",
    ),
    "chi squared precision": (
        {"m": MEAN, "v": dist.Chi2(3)},
        lambda t: dist.Normal(t["m"], 1 / root(t)),
        "scale of the base",
    ),
    "one more parameter": (
        {**BOTH, "extra": dist.Normal(0, 1)},
        both,
        "'extra' is not a parameter",
    ),
    "repeated mean": (
        {"m": MEAN.expand([2]), "v": VARIANCE},
        lambda t: dist.Normal(t["m"][0], root(t)),
        "loc",
    ),
    "beta outside the unit interval": (
        {"p": dist.Uniform(0.1, 0.9)},
        lambda t: dist.Bernoulli(t["p"]),
        "Uniform prior",
    ),
    "batch of matrices": (
        {"m": dist.MultivariateNormal(np.zeros((1, 2)), EYE)},
        lambda t: dist.MultivariateNormal(t["m"][0], EYE),
        "loc of the base",
    ),
    "matrix prior of the other kind": (
        {"m": dist.Normal(0, 1).expand([2]), "S": dist.Wishart(5, EYE)},
        multivariate,
        "Wishart prior; InverseWishart",
    ),
    "two matrices": (
        {"m": dist.Wishart(5, EYE), "S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), t["S"]),
        "'m' is not a parameter",
    ),
    "mean about the square of the covariance": (
        matrices(lambda S: dist.MultivariateNormal(np.ones(2), S @ S)),
        multivariate,
        "covariance_matrix of the prior of 'm'",
    ),
    "mean about the covariance's entries": (
        matrices(lambda S: dist.MultivariateNormal(np.ones(2), S**2)),
        multivariate,
        "covariance_matrix of the prior of 'm'",
    ),
    "mean with the covariance as precision": (
        matrices(lambda S: dist.MultivariateNormal(np.ones(2), precision_matrix=S)),
        multivariate,
        "other than the base's covariance",
    ),
    "normal mean with the covariance's diagonal": (
        matrices(lambda S: dist.Normal(np.zeros(2), jnp.sqrt(jnp.diagonal(S)))),
        multivariate,
        "scale of the prior of 'm'",
    ),
}


@pytest.mark.parametrize(("prior", "base", "why"), PRIOR_MISSES.values(), ids=PRIOR_MISSES)
def test_near_misses_of_the_prior(prior, base, why):
    assert why in reason(truncated(prior, base))


# Near-misses: the base.


BASE_MISSES = {
    "variance as scale": (BOTH, lambda t: dist.Normal(t["m"], t["v"]), "InverseGamma prior"),
    "half normal scale": (
        {"m": MEAN, "s": dist.HalfNormal(1)},
        lambda t: dist.Normal(t["m"], t["s"]),
        "HalfNormal prior; a scale that is the square root of a variance",
    ),
    "clip": (BOTH, lambda t: dist.Normal(t["m"], jnp.clip(root(t), 1e-6, 1e6)), "scale"),
    "maximum": (BOTH, lambda t: dist.Normal(t["m"], jnp.maximum(root(t), 1e-9)), "scale"),
    "where": (BOTH, lambda t: dist.Normal(t["m"], jnp.where(t["m"] < 50, root(t), 1.0)), "scale"),
    "where on the mean": (
        BOTH,
        lambda t: dist.Normal(jnp.where(t["m"] > 9, 9, t["m"]), root(t)),
        "loc",
    ),
    "absolute value": ({"m": MEAN}, lambda t: dist.Normal(jnp.abs(t["m"]), 1), "loc"),
    "root of the square": ({"m": MEAN}, lambda t: dist.Normal(jnp.sqrt(t["m"] ** 2), 1), "loc"),
    "half power of the square": (
        {"m": MEAN},
        lambda t: dist.Normal((t["m"] ** 2) ** 0.5, 1),
        "loc",
    ),
    "cond": (
        {"m": MEAN},
        lambda t: dist.Normal(jax.lax.cond(t["m"] < 8, lambda x: x, lambda x: 0 * x, t["m"]), 1),
        "loc",
    ),
    "shifted mean": ({"m": MEAN}, lambda t: dist.Normal(t["m"] + 1e-9, 1), "loc"),
    "twice the mean": ({"m": MEAN}, lambda t: dist.Normal(2 * t["m"], 1), "not 'm' itself"),
    "square": ({"m": MEAN}, lambda t: dist.Normal(t["m"] ** 2, 1), "loc"),
    "rounded to float32": (
        {"m": MEAN},
        lambda t: dist.Normal(t["m"].astype(jnp.float32).astype(float), 1),
        "loc",
    ),
    "rounded": ({"m": MEAN}, lambda t: dist.Normal(jnp.round(t["m"], 9), 1), "loc"),
    "scale about the mean": (BOTH, lambda t: dist.Normal(t["m"], root(t) * t["m"] ** 2), "scale"),
    "one parameter for mean and variance": (
        {"v": VARIANCE},
        lambda t: dist.Normal(t["v"], root(t)),
        "InverseGamma prior; a Normal prior",
    ),
    "a little added to the variance": (
        BOTH,
        lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"] + 1e-12)),
        "scale",
    ),
    "scale of one variance for two coordinates": (
        {"m": MEAN.expand([2]), "v": VARIANCE},
        lambda t: dist.Normal(t["m"], root(t)).to_event(1),
        "scale",
    ),
    "one mean for two coordinates": (
        {"m": MEAN},
        lambda t: dist.Normal(t["m"], np.ones(2)).to_event(1),
        "loc",
    ),
    "coordinates in another order": (
        {"m": MEAN.expand([2])},
        lambda t: dist.Normal(t["m"][::-1], np.ones(2)).to_event(1),
        "loc",
    ),
    "Student": ({"m": MEAN}, lambda t: dist.StudentT(5, t["m"], 1), "StudentT"),
    "truncated base": ({"m": MEAN}, lambda t: dist.TruncatedNormal(t["m"], 1, low=0), "Truncated"),
    "masked base": ({"m": MEAN}, lambda t: dist.Normal(t["m"], 1).mask(False), "Masked"),
    "subclass": ({"m": MEAN}, lambda t: Tilted(t["m"], 1), "Tilted"),
    "folded": ({"m": MEAN}, lambda t: dist.FoldedDistribution(dist.Normal(t["m"], 1)), "Folded"),
    "mixture": (
        {"m": MEAN},
        lambda t: dist.MixtureSameFamily(
            dist.Categorical(np.ones(2) / 2), dist.Normal(jnp.stack([t["m"], 0.0]), 1)
        ),
        "Mixture",
    ),
    "zero inflated": (
        {"r": PRECISION},
        lambda t: dist.ZeroInflatedPoisson(0.2, t["r"]),
        "ZeroInflated",
    ),
    "mean of an exponential with a gamma prior": (
        {"r": PRECISION},
        lambda t: dist.Exponential(1 / t["r"]),
        "rate is 'r' ** -1 with a Gamma prior",
    ),
    "rate with a half normal prior": (
        {"r": dist.HalfNormal(1)},
        lambda t: dist.Exponential(t["r"]),
        "HalfNormal prior on 'r'",
    ),
    "unknown concentration": (
        {"a": PRECISION, "r": PRECISION},
        lambda t: dist.Gamma(t["a"], t["r"]),
        "concentration of the base is not a fixed number",
    ),
    "concentration only": ({"a": PRECISION}, lambda t: dist.Gamma(t["a"], 2.0), "concentration"),
    "rate is a sum": (
        {"a": PRECISION, "b": PRECISION},
        lambda t: dist.Poisson(t["a"] + t["b"]),
        "rate",
    ),
    "rate is a product": (
        {"a": PRECISION, "b": PRECISION},
        lambda t: dist.Poisson(t["a"] * t["b"]),
        "rate",
    ),
    "beta with two unknowns": (
        {"a": PRECISION, "b": PRECISION},
        lambda t: dist.Beta(t["a"], t["b"]),
        "Beta",
    ),
    "beta(a, 2)": ({"a": PRECISION}, lambda t: dist.Beta(t["a"], 2.0), "Beta"),
    "half the probability": (
        {"p": dist.Beta(1, 1)},
        lambda t: dist.Bernoulli(t["p"] / 2),
        "not 'p' itself",
    ),
    "logits": ({"p": dist.Beta(1, 1)}, lambda t: dist.Bernoulli(logits=t["p"]), "BernoulliLogits"),
    "matrix with jitter": (
        {"S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), t["S"] + 1e-9 * EYE),
        "covariance_matrix",
    ),
    "inverse of a matrix": (
        {"S": dist.Wishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), jnp.linalg.inv(t["S"])),
        "use precision_matrix=",
    ),
    "matrix as Cholesky factor": (
        {"S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), scale_tril=jnp.tril(t["S"])),
        "scale_tril",
    ),
    "Cholesky factor as covariance": (
        {"S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), jnp.linalg.cholesky(t["S"])),
        "covariance_matrix",
    ),
    "matrix scaled by coordinates": (
        {"S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), t["S"] * np.array([[4.0, 2], [2, 1]])),
        "covariance_matrix",
    ),
    "matrix with another in its corner": (
        {"S": dist.InverseWishart(5, EYE)},
        lambda t: dist.MultivariateNormal(np.zeros(2), t["S"][::-1, ::-1]),
        "covariance_matrix",
    ),
    "no parameter at all": ({"m": MEAN}, lambda t: dist.Normal(0.0, 1.0), "scale"),
}


@pytest.mark.parametrize(("prior", "base", "why"), BASE_MISSES.values(), ids=BASE_MISSES)
def test_near_misses_of_the_base(prior, base, why):
    assert why in reason(truncated(prior, base))


# Near-misses: the rest of the model.


def test_other_models_do_not_match():
    general = offcut.RejectionModel(
        {"m": MEAN},
        propose=lambda key, t: t["m"] + jax.random.normal(key),
        log_proposal=lambda t, y: dist.Normal(t["m"], 1).log_prob(y),
        log_accept=lambda t, y: -(y**2),
    )
    assert "truncated or selected" in reason(general)
    updates = {"m": lambda key, theta, data: {"m": jnp.mean(data)}}
    assert "exact_updates" in reason(truncated({"m": MEAN}, known_scale, exact_updates=updates))


def selected(log_accept, prior=None, **options):
    return offcut.selected(prior or {"m": MEAN}, known_scale, log_accept, **options)


def test_selection_may_not_use_parameters():
    fixed = selected(lambda t, y: jax.nn.log_sigmoid(2 * y))
    assert match(fixed).description == "normal: m normal"
    jitted = selected(jax.jit(lambda t, y: jax.nn.log_sigmoid(2 * y)))
    assert isinstance(match(jitted), Match)
    for function in (
        lambda t, y: jax.nn.log_sigmoid(t["m"] * y),
        lambda t, y: jnp.where(t["m"] < 1e9, -(y**2), -1.0),
        lambda t, y: -(y**2) + 0 * t["m"],
        jax.jit(lambda t, y: jax.lax.cond(y > 0, lambda: -(t["m"] ** 2), lambda: -1.0)),
    ):
        assert "being recorded depends" in reason(selected(function))
    model = selected(lambda t, y: -(y**2), log_reject=lambda t, y: t["m"] - 1)
    assert "being recorded depends" in reason(model)


def test_selection_may_not_use_parameters_through_deterministic_sites():
    def prior():
        m = numpyro.sample("m", MEAN)
        numpyro.deterministic("slope", jnp.exp(m))

    assert "depends" in reason(selected(lambda t, y: -t["slope"] * y**2, prior))
    assert isinstance(match(selected(lambda t, y: -(y**2), prior)), Match)


def test_covariates_may_govern_the_window_but_not_the_base():
    covariates = ({"year": np.arange(4.0), "limit": np.ones(4)},)

    def window(x, c):
        return x > c["limit"]

    def make(base):
        return offcut.truncated({"m": MEAN}, base, window)

    assert isinstance(match(make(lambda t, c: dist.Normal(t["m"], 1.0)), covariates), Match)
    assert "loc" in reason(make(lambda t, c: dist.Normal(t["m"] + c["year"], 1.0)), covariates)
    assert "loc" in reason(make(lambda t, c: dist.Normal(t["m"] * c["year"], 1.0)), covariates)
    assert "scale" in reason(make(lambda t, c: dist.Normal(t["m"], c["limit"])), covariates)


def test_measurement_error_may_not_use_parameters():
    def make(noise):
        return truncated({"m": MEAN}, known_scale, noise=noise)

    assert isinstance(match(make(lambda t, true: dist.Normal(true, 0.5))), Match)
    assert "measurement error" in reason(make(lambda t, true: dist.Normal(true + t["m"], 0.5)))


def test_a_prior_that_branches_on_values_is_refused_in_words():
    def prior():
        m = numpyro.sample("m", MEAN)
        numpyro.sample("v", dist.InverseGamma(3.0, 1.0 if m > 0 else 2.0))

    with jax.enable_x64(True):
        assert "by the values" in reason(truncated(prior, both))


@pytest.mark.parametrize(
    ("operation", "base"),
    [
        ("sqrt", lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"] ** 0.5))),
        ("add", lambda t: dist.Normal(t["m"] + 1.0, t["v"] ** 0.5)),
        ("neg", lambda t: dist.Normal(-t["m"], t["v"] ** 0.5)),
    ],
)
def test_a_rule_that_is_wrong_is_caught_by_values(monkeypatch, operation, base):
    """As if a new version of JAX had changed what an operation means."""
    model = truncated(BOTH, base)
    assert "bug" not in reason(model)
    identity = lambda elements, parameters, a, *others: a  # noqa: E731
    monkeypatch.setitem(interpreter._ARITHMETIC, operation, identity)
    assert "bug in Offcut" in reason(model)


# The interface that the sampler relies on.


DRAWS = {
    "normal": (BOTH, both, np.array([1.0, 2.0, 2.5]), {"m": 0.0, "v": 1.0}),
    "sure thing": (
        {"p": dist.Beta(0.01, 0.01)},
        lambda t: dist.Bernoulli(t["p"]),
        np.array([1, 1]),
        {"p": 0.5},
    ),
    "nothing seen": (
        {"r": dist.Gamma(0.05, 1.0)},  # with 0.001 half of the draws are below 1e-308
        lambda t: dist.Poisson(t["r"]),
        np.array([0, 0]),
        {"r": 1.0},
    ),
    "matrix": (
        matrices(lambda S: dist.MultivariateNormal(np.zeros(2), S)),
        multivariate,
        3 * EYE,
        {"m": np.zeros(2), "S": EYE},
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_finite_float64_and_complete(name):
    prior, base, points, theta = DRAWS[name]
    model = truncated(prior, base)
    update = match(model)

    def draw(key, points, centre, theta):
        each = jax.vmap(update.statistic, (0, None))(points, centre)
        sums = jax.tree.map(lambda a: a.sum(axis=0), each)
        new = update.draw(key, theta, sums, jnp.int32(len(points)), centre)
        return new, model.prior.unconstrain(new)

    with jax.enable_x64(True):
        keys = jax.random.split(from_seed(1), 100)
        many = jax.jit(jax.vmap(draw, (0, None, None, None)))
        new, position = many(keys, points, update.centre(points), theta)
    assert {name: value.shape[1:] for name, value in new.items()} == model.prior.shapes
    assert all(value.dtype == np.float64 for value in new.values())
    assert np.isfinite(position).all()


def test_matching_works_beside_other_threads_and_leaves_precision_alone():
    model = truncated(BOTH, both)
    results = []
    threads = [threading.Thread(target=lambda: results.append(match(model))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(result, Match) for result in results)
    assert len(results) == 4
    assert jnp.zeros(()).dtype == np.float32
