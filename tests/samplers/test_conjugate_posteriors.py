"""Conjugate draws: the joint law of theta and data, quadrature, negative controls, and rounding.

No window and no engine here: whatever the filter is, given X and Y the points are draws from the
base. Every assertion has a false-alarm rate of 1e-5.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.numerics.keys import from_seed
from offcut.samplers.conjugacy import NoMatch
from offcut.samplers.conjugacy.match import match
from offcut.samplers.conjugacy.univariate import Precision, ProbabilityMatch
from statistical.truth import FALSE_ALARM, Grid, p_value

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("float64")]

POINTS, REPLICATES = 6, 10_000
SCALE = np.array([[1.5, 0.4], [0.4, 0.8]])


def make(prior, base):
    """A model without a filter, built when it is first asked for."""

    @cache
    def build():
        with jax.enable_x64(True):
            return offcut.truncated(prior, base, inside=lambda x: True)

    return build


def normal_inverse_gamma():
    variance = numpyro.sample("variance", dist.InverseGamma(6.0, 8.0))
    numpyro.sample("loc", dist.Normal(0.5, jnp.sqrt(variance / 3)))
    numpyro.deterministic("sd", jnp.sqrt(variance))


def normal_gamma():
    precision = numpyro.sample("precision", dist.Gamma(6.0, 5.0))
    numpyro.sample("loc", dist.Normal(0.5, 1 / jnp.sqrt(3 * precision)))


def normal_inverse_wishart():
    covariance = numpyro.sample("covariance", dist.InverseWishart(9.0, SCALE))
    numpyro.sample("mean", dist.MultivariateNormal(np.ones(2), covariance / 3))


def mean():
    numpyro.sample("mean", dist.MultivariateNormal(np.array([0.3, -0.2]), SCALE))


def covariance():
    numpyro.sample("S", dist.InverseWishart(9.0, 4 * SCALE))


def mean_and_covariance():
    mean()
    numpyro.sample("S", dist.InverseWishart(9.0, rate_matrix=np.linalg.inv(4 * SCALE)))


def mean_and_precision():
    mean()
    numpyro.sample("P", dist.Wishart(9.0, SCALE / 4))


def normal_wishart():
    precision = numpyro.sample("precision", dist.Wishart(9.0, SCALE / 4))
    numpyro.sample("mean", dist.MultivariateNormal(np.ones(2), precision_matrix=3 * precision))


GAMMA, INVERSE_GAMMA = dist.Gamma(6.0, 5.0), dist.InverseGamma(6.0, 8.0)
#: One parameter.
SINGLE = {
    "normal, mean": make({"m": dist.Normal(0.5, 0.7)}, lambda t: dist.Normal(t["m"], 1.3)),
    "normal, variance": make(
        {"v": INVERSE_GAMMA}, lambda t: dist.Normal(0.4, jnp.sqrt(t["v"] / 2))
    ),
    "normal, precision": make({"p": GAMMA}, lambda t: dist.Normal(0.4, t["p"] ** -0.5)),
    "log normal, variance": make(
        {"v": INVERSE_GAMMA}, lambda t: dist.LogNormal(0.4, t["v"] ** 0.5)
    ),
    "half normal": make({"v": INVERSE_GAMMA}, lambda t: dist.HalfNormal(jnp.sqrt(t["v"]))),
    "laplace": make({"b": INVERSE_GAMMA}, lambda t: dist.Laplace(0.4, t["b"])),
    "exponential": make({"r": GAMMA}, lambda t: dist.Exponential(t["r"])),
    "exponential, mean": make({"m": INVERSE_GAMMA}, lambda t: dist.Exponential(2 / t["m"])),
    "gamma": make({"r": GAMMA}, lambda t: dist.Gamma(2.5, t["r"])),
    "inverse gamma": make({"r": dist.Exponential(0.7)}, lambda t: dist.InverseGamma(2.5, t["r"])),
    "poisson": make({"r": GAMMA}, lambda t: dist.Poisson(1.7 * t["r"])),
    "pareto": make({"a": GAMMA}, lambda t: dist.Pareto(1.4, t["a"])),
    "weibull": make({"r": GAMMA}, lambda t: dist.Weibull(t["r"] ** (-1 / 1.3), 1.3)),
    "beta(a, 1)": make({"a": GAMMA}, lambda t: dist.Beta(t["a"], 1.0)),
    "beta(1, b)": make({"b": GAMMA}, lambda t: dist.Beta(1.0, t["b"])),
    "bernoulli": make({"p": dist.Beta(3.0, 2.0)}, lambda t: dist.Bernoulli(t["p"])),
    "binomial": make({"p": dist.Beta(3.0, 2.0)}, lambda t: dist.Binomial(5, t["p"])),
    "geometric": make({"p": dist.Uniform(0.0, 1.0)}, lambda t: dist.Geometric(t["p"])),
}
#: Two parameters of one dimension each.
PAIRS = {
    "normal": make(
        {"m": dist.Normal(0.5, 0.7), "v": INVERSE_GAMMA},
        lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"])),
    ),
    "normal with precision": make(
        {"m": dist.Normal(0.5, 0.7), "p": GAMMA},
        lambda t: dist.Normal(t["m"], 1 / jnp.sqrt(2 * t["p"])),
    ),
    "normal-inverse-gamma": make(
        normal_inverse_gamma, lambda t: dist.Normal(t["loc"], t["sd"] / 2)
    ),
    "normal-gamma": make(
        normal_gamma, lambda t: dist.LogNormal(t["loc"], 1 / jnp.sqrt(t["precision"]))
    ),
}
VECTORS = {
    "normal, vector": make(
        {
            "m": dist.Normal(np.array([0.5, -1.0]), 0.7).to_event(1),
            "v": dist.InverseGamma(np.array([6.0, 9.0]), 8.0),
        },
        lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"])).to_event(1),
    ),
    "exponential, vector": make(
        {"r": GAMMA.expand([2]).to_event(1)}, lambda t: dist.Exponential(t["r"]).to_event(1)
    ),
    "multivariate normal, mean": make(mean, lambda t: dist.MultivariateNormal(t["mean"], SCALE)),
    "multivariate normal, covariance": make(
        covariance,
        lambda t: dist.MultivariateNormal(
            np.array([0.3, 0.0]), scale_tril=2 * jnp.linalg.cholesky(t["S"])
        ),
    ),
    "multivariate normal": make(
        mean_and_covariance,
        lambda t: dist.MultivariateNormal(t["mean"], t["S"]),
    ),
    "multivariate normal with precision": make(
        mean_and_precision,
        lambda t: dist.MultivariateNormal(t["mean"], precision_matrix=2 * t["P"]),
    ),
    "normal-inverse-Wishart": make(
        normal_inverse_wishart, lambda t: dist.MultivariateNormal(t["mean"], t["covariance"] / 2)
    ),
    "normal-Wishart": make(
        normal_wishart,
        lambda t: dist.MultivariateNormal(t["mean"], precision_matrix=t["precision"]),
    ),
}
EVERY = {**SINGLE, **PAIRS, **{f"{name} of vectors": model for name, model in VECTORS.items()}}


def found(model):
    result = match(model)
    assert not isinstance(result, NoMatch), result.reason
    return result


def summed(update, points, centre):
    each = jax.vmap(update.statistic, (0, None))(points, centre)
    return jax.tree.map(lambda a: jnp.sum(a, axis=0), each)


@cache
def simulated(model):
    """theta from the prior, and points from the base, ``REPLICATES`` times."""

    def one(key):
        key_theta, key_points = jax.random.split(key)
        theta = model.prior.sample(key_theta)
        keys = jax.random.split(key_points, POINTS)
        return theta, jax.vmap(model.propose, (0, None))(keys, theta)

    return jax.jit(jax.vmap(one))(jax.random.split(from_seed(3), REPLICATES))


def joint_law(update, model):
    """Smallest p-value, Bonferroni over statistics: theta' given X must be as theta given X.

    theta ~ prior, X ~ base, theta' ~ update; u is theta on unconstrained scale. The mean change
    of u, u², products of u and u T(X) with bounded T is zero.
    """
    theta, points = simulated(model)
    centre = jnp.asarray(update.centre(points[0]))

    def statistics(theta, points):
        u = model.prior.unconstrain(theta)
        T = jnp.mean(jnp.arctan(points.reshape(POINTS, -1).astype(float)), axis=0)
        products = [a * b for a, b in itertools.combinations(u, 2)]
        return jnp.concatenate([u, u**2, jnp.ravel(jnp.outer(u, T)), jnp.array(products)])

    def change(key, theta, points):
        sums = summed(update, points, centre)
        new = update.draw(key, theta, sums, POINTS, centre)
        assert set(new) == set(model.prior.shapes)
        return statistics(new, points) - statistics(theta, points)

    keys = jax.random.split(from_seed(4), REPLICATES)
    changes = np.asarray(jax.jit(jax.vmap(change))(keys, theta, points))
    assert np.isfinite(changes).all()
    z = changes.mean(axis=0) / (changes.std(axis=0, ddof=1) / np.sqrt(REPLICATES))
    return min(1.0, 2 * stats.norm.sf(np.abs(z).max()) * z.size)


def claimed_log_density(update, sums, value):
    """Of a rate's or a probability's update, in the site's own coordinate."""
    if isinstance(update, ProbabilityMatch):
        (a, b), (s, f) = update.prior, map(np.asarray, sums)
        return stats.beta.logpdf(value, a + s, b + f)
    (a, b), (s, t) = update.prior, map(np.asarray, sums)
    phi = value**update.exponent
    jacobian = np.log(np.abs(update.exponent)) + (update.exponent - 1) * np.log(value)
    return stats.gamma.logpdf(phi, a + s, scale=1 / (b + update.coefficient * t)) + jacobian


@pytest.mark.parametrize("name", sorted(set(SINGLE) - {"normal, mean"}))
def test_prior_times_likelihood_is_the_density_that_is_drawn_from(name):
    """Up to a constant, and to rounding: the many kinds of rates differ in nothing else."""
    model = SINGLE[name]()
    update = found(model)
    (site,) = update.sites
    discrete = name in ("bernoulli", "binomial", "poisson", "geometric")
    points = np.array([0, 1, 1]) if discrete else np.array([0.15, 0.4, 0.85])
    points = points + 1.4 if name == "pareto" else points
    points = jnp.asarray(points)
    sums = summed(update, points, jnp.asarray(update.centre(points)))

    def log_density(value):
        prior = model.prior.sites({site: value})[site]["fn"].log_prob(value)
        return prior + jnp.sum(jax.vmap(model.base({site: value}).log_prob)(points))

    values = np.linspace(0.2, 0.9, 8)
    difference = jax.jit(jax.vmap(log_density))(values) - claimed_log_density(update, sums, values)
    assert np.ptp(difference) < 1e-11


VECTORIAL = [name for name in EVERY if name.endswith("of vectors")]
SCALAR = ["exponential, mean", "poisson", "binomial", "normal", "normal-inverse-gamma"]


@pytest.mark.parametrize("name", [*SCALAR, *VECTORIAL])
def test_the_joint_law_of_parameters_and_data_is_kept(name):
    model = EVERY[name]()
    assert joint_law(found(model), model) > FALSE_ALARM


def long_run(update, model, points, chains=64, draws=400):
    """Unconstrained draws (chain, draw, size) of the update repeated."""
    centre = jnp.asarray(update.centre(points))
    sums = summed(update, points, centre)

    def chain(key, start):
        def sweep(theta, key):
            theta = update.draw(key, theta, sums, len(points), centre)
            return theta, model.prior.unconstrain(theta)

        start = {name: start[name] for name in update.sites}
        return jax.lax.scan(sweep, start, jax.random.split(key, draws + 20))[1][20:]

    starts = jax.tree.map(lambda a: a[:chains], simulated(model)[0])
    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(from_seed(6), chains), starts))


def quadrature_p_values(update, model):
    """p-values of the update's moments against the model's own densities on a grid."""
    points = simulated(model)[1][0]
    draws = long_run(update, model, points)

    def log_density(**coordinates):
        def one(*u):
            u = jnp.stack(u)
            base = model.base(model.prior.constrain(u, {}))
            return model.prior.log_density(u, {}) + jnp.sum(jax.vmap(base.log_prob)(points))

        flat = [np.ravel(values) for values in coordinates.values()]
        shape = next(iter(coordinates.values())).shape
        return np.asarray(jax.jit(jax.vmap(one))(*flat)).reshape(shape)

    size = draws.shape[-1]
    middle, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    bounds = {f"u{i}": (middle[i] - 14 * sd[i], middle[i] + 14 * sd[i], 80) for i in range(size)}
    grid = Grid(log_density, **bounds)
    assert max(np.take(grid.probability, [0, -1], axis=i).max() for i in range(size)) < 1e-10
    results = []
    for i, j in itertools.combinations_with_replacement(range(size), 2):
        truth = grid.mean(grid.values[f"u{i}"] * grid.values[f"u{j}"])
        results.append(p_value(draws[..., i] * draws[..., j], truth))
    results += [p_value(draws[..., i], grid.mean(grid.values[f"u{i}"])) for i in range(size)]
    return results


@pytest.mark.parametrize("name", ["normal, mean", *PAIRS])
def test_repeated_updates_have_the_posterior_of_quadrature(name):
    model = EVERY[name]()
    assert min(quadrature_p_values(found(model), model)) > FALSE_ALARM


class OneTooFew:
    """n - 1 for n."""

    def __init__(self, update):
        self.update, self.sites = update, update.sites
        self.centre, self.statistic = update.centre, update.statistic

    def draw(self, key, theta, statistics, count, centre):
        return self.update.draw(key, theta, statistics, count - 1, centre)


class CentreForgotten(OneTooFew):
    """Sums about one centre, used as if about another."""

    def draw(self, key, theta, statistics, count, centre):
        return self.update.draw(key, theta, statistics, count, centre + 0.5)


def prior_precision_dropped(update):
    m, precision = update.mean_prior
    return replace(update, mean_prior=(m, Precision(None, 1, precision.scale * 1e-9)))


def rate_and_scale_swapped(update):
    a, b = update.prior
    return replace(update, prior=(a, np.asarray(1 / b)))


def beta_swapped(update):
    return replace(update, prior=update.prior[::-1])


def wishart_scale_inverted(update):
    nu, Psi = update.wishart_prior
    return replace(update, wishart_prior=(nu, np.linalg.inv(Psi)))


def degrees_of_freedom_lost(update):
    nu, Psi = update.wishart_prior
    return replace(update, wishart_prior=(np.asarray(nu - 1), Psi))


def half_the_points(update):
    a, b = update.phi_prior
    return replace(update, phi_prior=(np.asarray(a - POINTS / 4), b))


NEGATIVE_CONTROLS = [
    ("normal", OneTooFew),
    ("normal", CentreForgotten),
    ("normal", prior_precision_dropped),
    ("normal-inverse-gamma", CentreForgotten),
    ("normal-inverse-gamma", half_the_points),
    ("exponential, mean", rate_and_scale_swapped),
    ("binomial", beta_swapped),
    ("multivariate normal of vectors", degrees_of_freedom_lost),
    ("multivariate normal of vectors", wishart_scale_inverted),
    ("normal-Wishart of vectors", CentreForgotten),
]


@pytest.mark.parametrize(("name", "control"), NEGATIVE_CONTROLS)
def test_a_negative_control_does_not_keep_the_joint_law(name, control):
    model = EVERY[name]()
    assert joint_law(control(found(model)), model) < FALSE_ALARM


def test_quadrature_sees_one_point_too_few():
    model = PAIRS["normal-inverse-gamma"]()
    assert min(quadrature_p_values(OneTooFew(found(model)), model)) < FALSE_ALARM


@pytest.mark.parametrize("dependent", [False, True])
def test_squares_far_from_zero_do_not_cancel(dependent):
    """1e6 ± 1: a plain sum of squares is 1e17, and loses the variance. Exact truth."""
    rng = np.random.default_rng(1)
    x = 1e6 + rng.normal(size=100_000)

    def prior():
        variance = numpyro.sample("v", dist.InverseGamma(2.0, 1.0))
        scale = jnp.sqrt(variance / 0.1) if dependent else 1e6
        numpyro.sample("m", dist.Normal(0.0, scale))

    update = found(make(prior, lambda t: dist.Normal(t["m"], jnp.sqrt(t["v"])))())
    centre = jnp.asarray(update.centre(x))
    sums = summed(update, jnp.asarray(x), centre)
    keys = jax.random.split(from_seed(4), 200)
    start = {"m": jnp.float64(1e6), "v": jnp.float64(1.0)}
    draws = jax.vmap(lambda key: update.draw(key, start, sums, x.size, centre))(keys)

    mean = np.mean(x - 1e6)
    squares = np.sum((x - 1e6 - mean) ** 2)
    if dependent:  # the prior mean 0 is 1e6 away, and its weight of 0.1 points counts
        squares += 0.1 * x.size / (0.1 + x.size) * (1e6 + mean) ** 2
        expected_mean = 1e6 + mean - 0.1 / (0.1 + x.size) * (1e6 + mean)
    else:
        expected_mean = 1e6 + mean
    shape, rate = 2 + x.size / 2, 1 + squares / 2
    limit = stats.norm.isf(FALSE_ALARM / 2)
    v = np.asarray(draws["v"]) * (shape - 1) / rate
    assert abs(v.mean() - 1) < limit / np.sqrt(shape * v.size)
    off = np.asarray(draws["m"]) - expected_mean
    assert abs(off.mean()) < limit * np.sqrt(rate / shape / x.size / off.size)
