"""Supports are known whether NumPyro validates or not."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.distribution import validation_enabled

import offcut
from offcut.mixtures.weights import Concentration
from offcut.models.prior import Prior, in_support, log_prob

OFF = {"validate_args": False}


def mixture(t, **options):
    parts = dist.Gamma(jnp.stack([t, 2 + t]), 1.0, **options)
    return dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), parts, **options)


def unlike(t, **options):
    parts = [dist.Exponential(t, **options), dist.Uniform(0.0, t, **options)]
    weights = dist.Categorical(jnp.array([0.3, 0.7]))
    return dist.MixtureGeneral(weights, parts, support=dist.constraints.real, **options)


#: A family as a function of one parameter, values that it can draw at 2, and others; and whether
#: its formula alone gives these others a density.
FAMILIES = {
    "uniform": (lambda t, **o: dist.Uniform(0.0, t, **o), [0.5, 2.0], [-0.1, 2.1], True),
    "gamma": (lambda t, **o: dist.Gamma(t, 1.0, **o), [0.5], [-0.5], False),
    "exponential": (lambda t, **o: dist.Exponential(t, **o), [0.5], [-0.5], True),
    "pareto": (lambda t, **o: dist.Pareto(t, 3.0, **o), [2.5], [1.5], True),
    "beta": (lambda t, **o: dist.Beta(t, 3.0, **o), [0.5], [-0.5, 1.5], False),
    "truncated": (
        lambda t, **o: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=t, **o),
        [1.5],
        [-1.5, 2.5],
        True,
    ),
    "integers": (lambda t, **o: dist.DiscreteUniform(0, t.astype(int), **o), [1], [-1, 3], True),
    "poisson": (lambda t, **o: dist.Poisson(t, **o), [1], [1.5], True),
    "binomial": (lambda t, **o: dist.BinomialProbs(t / 4, 3, **o), [3], [4], False),
    "geometric": (lambda t, **o: dist.GeometricProbs(t / 4, **o), [3], [-1], True),
    "cube": (
        lambda t, **o: dist.Uniform(jnp.zeros(2), t * jnp.ones(2), **o).to_event(1),
        [[0.5, 1.0]],
        [[0.5, 2.5], [-1.0, 3.0]],
        True,
    ),
    "simplex": (
        lambda t, **o: dist.Dirichlet(t * jnp.ones(3), **o),
        [[0.2, 0.3, 0.5]],
        [[0.2, 0.3, 0.6]],
        True,
    ),
    "mixture": (mixture, [1.0, 3.0], [-0.5], False),
    "unlike mixture": (unlike, [1.0, 3.0], [-0.5], False),
    "normal": (lambda t, **o: dist.Normal(t, 1.0, **o), [-5.0], [], False),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_family_cannot_draw_has_density_zero(name):
    family, possible, impossible, formula_says_otherwise = FAMILIES[name]
    two = jnp.array(2.0)

    def at(t, value, **options):
        return log_prob(family(t, **options), jnp.asarray(value))

    for value in possible:
        expected = family(two, **OFF).log_prob(jnp.asarray(value))
        if "mixture" not in name:  # where NumPyro's own sum counts impossible components
            assert at(two, value, **OFF) == expected
        assert at(two, value, **OFF) == at(two, value) > -np.inf
        assert np.isfinite(jax.grad(at)(two, value, **OFF))
        assert in_support(family(two, **OFF), jnp.asarray(value))
    for value in impossible:
        assert at(two, value, **OFF) == at(two, value) == -np.inf
        assert np.isfinite(jax.grad(at)(two, value, **OFF))
        assert not in_support(family(two, **OFF), jnp.asarray(value))
        with validation_enabled(False):
            formula = family(two).log_prob(jnp.asarray(value))
        assert np.isfinite(formula) == formula_says_otherwise  # else there was nothing to mend


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [name for name in FAMILIES if "integers" not in name])
def test_densities_that_know_their_support_integrate_to_one(name):
    family, possible, _, _ = FAMILIES[name]
    if np.ndim(possible[0]):
        return
    if family(jnp.array(2.0)).is_discrete:
        points, step = jnp.arange(-50, 51), 1.0
    else:
        points, step = (jnp.arange(-200_000, 200_000) + 0.5) * 1e-3, 1e-3
    values = jax.vmap(lambda y: log_prob(family(jnp.array(2.0), **OFF), y))(points)
    assert float(jnp.sum(jnp.exp(values)) * step) == pytest.approx(1.0, abs=2e-3)


def uniform_model(**options):
    return offcut.truncated(
        prior={"b": dist.LogNormal(0.0, 1.0)},
        base=lambda theta: dist.Uniform(0.0, theta["b"], **options),
        inside=lambda x: x > 0.1,
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("way", ["argument", "switch"])
def test_models_know_the_support_of_base_and_noise(way):
    with validation_enabled(way != "switch"):
        options = OFF if way == "argument" else {}
        theta = {"b": jnp.array(1.0)}
        model = uniform_model(**options)
        assert model.log_observed(theta, jnp.array(1.5)) == -np.inf
        assert model.log_rejected(theta, jnp.array(1.5), jnp.array(0.5)) == -np.inf
        assert model.log_observed(theta, jnp.array(0.5)) == 0
        noisy = offcut.selected(
            prior={"b": dist.LogNormal(0.0, 1.0)},
            base=lambda theta: dist.Exponential(theta["b"], **options),
            noise=lambda theta, true: dist.Uniform(true, true + theta["b"], **options),
            log_accept=lambda theta, y: -y,
        )
        for true, noisy_value, possible in [(0.5, 1.0, 1), (0.5, 1.6, 0), (-0.5, 0.0, 0)]:
            point = {"true": jnp.array(true), "noisy": jnp.array(noisy_value)}
            assert (noisy.log_observed(theta, point) > -np.inf) == bool(possible)
            assert noisy.possible(theta, point) == bool(possible)


@pytest.mark.usefixtures("float64")
def test_priors_know_the_support_of_what_has_a_value_of_its_own():
    def prior():
        a = numpyro.sample("a", dist.Uniform(0.0, 1.0, **OFF))
        numpyro.sample("seen", dist.Uniform(0.0, a, **OFF), obs=0.5)
        numpyro.sample("c", dist.Exponential(1.0, **OFF))

    observed = Prior(prior)
    for a, possible in [(0.7, True), (0.3, False)]:
        position = observed.unconstrain({"a": jnp.array(a), "c": jnp.array(1.0)})
        assert np.isfinite(observed.log_density(position, {})) == possible
    exact = Prior(prior, exact=("c",))
    position = exact.unconstrain({"a": jnp.array(0.7), "c": jnp.array(1.0)})
    assert np.isfinite(exact.log_density(position, {"c": jnp.array(1.0)}))
    assert exact.log_density(position, {"c": jnp.array(-1.0)}) == -np.inf


@pytest.mark.usefixtures("float64")
def test_concentrations_stay_within_their_prior():
    high = Concentration(dist.Uniform(1500.0, 2000.0, **OFF), "concentration")
    low = Concentration(dist.Uniform(0.5, 2.0, **OFF), "concentration")
    keys = jax.random.split(jax.random.key(0), 50)
    first = jax.vmap(high.first)(keys)
    assert ((first >= 1500) & (first <= 2000)).all()
    update = jax.jit(lambda key, value: low.update(key, value, lambda alpha: 5 * jnp.log(alpha)))
    value = low.first(keys[0])
    for key in keys:
        value = update(key, value)
        assert 0.5 <= value <= 2.0


@pytest.mark.calibrate
def test_python_without_assertions_knows_supports_too():
    code = """
import jax, jax.numpy as jnp, numpyro.distributions as dist, offcut
model = offcut.selected(
    prior={"b": dist.LogNormal(0.0, 1.0)},
    base=lambda theta: dist.Uniform(0.0, theta["b"]),
    log_accept=lambda theta, y: -y,
)
theta = {"b": jnp.array(1.0)}
print(model.log_observed(theta, jnp.array(1.5)))
"""
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["-inf"], done.stderr
