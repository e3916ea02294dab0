"""Models whose normalising constants are known, so that every claim can be checked."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import offcut
from statistical.truth import Grid


def half_normal_data(n=12, loc=0.3, scale=0.9, seed=5):
    z = np.random.default_rng(seed).normal(loc, scale, size=100 * n)
    return z[z > 0][:n]


# A normal seen above zero, unknown mean and scale, narrow priors.


def half_normal():
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )


def half_normal_grid(x):
    def log_density(loc, scale):
        like = -len(x) * (np.log(scale) + special.log_ndtr(loc / scale))
        for value in x:
            like = like - 0.5 * ((value - loc) / scale) ** 2
        prior = stats.norm.logpdf(loc, 0, 0.5) + stats.lognorm.logpdf(scale, 0.3)
        return like + prior

    return Grid(log_density, loc=(-2.5, 2.5, 160), scale=(0.15, 4.0, 160))


def half_normal_within_budget(grid, n, budget):
    """P(|Y| <= B | theta): |Y| is negative binomial."""
    accept = special.ndtr(grid.values["loc"] / grid.values["scale"])
    return stats.nbinom.cdf(budget, n, accept)


# The same with unknown mean only; the prior's width decides whether E|Y| is finite.


def half_normal_mean(prior_scale):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, prior_scale)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda x: x > 0,
    )


def half_normal_mean_grid(x, prior_scale, low=-12.0, high=5.0, nodes=2000):
    def log_density(loc):
        like = -len(x) * special.log_ndtr(loc) - 0.5 * len(x) * loc**2 + loc * np.sum(x)
        return like + stats.norm.logpdf(loc, 0, prior_scale)

    return Grid(log_density, loc=(low, high, nodes))


# Selection by a logistic with unknown slope.


def logistic_selection(with_log_reject):
    return offcut.selected(
        prior={"loc": dist.Normal(0.0, 0.7), "slope": dist.LogNormal(0.0, 0.5)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        log_accept=lambda theta, y: jax.nn.log_sigmoid(theta["slope"] * y),
        log_reject=(lambda theta, y: jax.nn.log_sigmoid(-theta["slope"] * y))
        if with_log_reject
        else None,
    )


def logistic_grid(x):
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()

    def log_density(loc, slope):
        z = sum(w * special.expit(slope * (loc + u)) for u, w in zip(node, weight, strict=True))
        like = -len(x) * np.log(z)
        for value in x:
            like = like - 0.5 * (value - loc) ** 2 + special.log_expit(slope * value)
        return like + stats.norm.logpdf(loc, 0, 0.7) + stats.lognorm.logpdf(slope, 0.5)

    return Grid(log_density, loc=(-3.5, 3.5, 120), slope=(0.05, 8.0, 160))


# Regression seen above zero: every observation has its own proposal.


def regression():
    return offcut.truncated(
        prior={"intercept": dist.Normal(0.0, 1.0), "slope": dist.Normal(0.0, 1.0)},
        base=lambda theta, c: dist.Normal(theta["intercept"] + theta["slope"] * c, 1.0),
        inside=lambda y, c: y > 0,
    )


def regression_data(n=25, seed=2):
    rng = np.random.default_rng(seed)
    c = rng.uniform(-1.5, 1.5, n)
    y = np.empty(n)
    for i in range(n):
        while True:
            y[i] = 0.2 + 0.8 * c[i] + rng.normal()
            if y[i] > 0:
                break
    return y, c


def regression_grid(y, c):
    def log_density(intercept, slope):
        total = stats.norm.logpdf(intercept) + stats.norm.logpdf(slope)
        for value, covariate in zip(y, c, strict=True):
            mean = intercept + slope * covariate
            total = total - 0.5 * (value - mean) ** 2 - special.log_ndtr(mean)
        return total

    return Grid(log_density, intercept=(-4, 3.5, 200), slope=(-3, 4, 200))


# Student's t from a Cauchy proposal; the bound M(nu) depends on theta.


def student():
    def log_accept(theta, y):
        z2 = (y - theta["loc"]) ** 2
        nu = theta["nu"]

        def log_ratio(z2):
            return jnp.log1p(z2) - 0.5 * (nu + 1) * jnp.log1p(z2 / nu)

        return log_ratio(z2) - log_ratio(1.0)  # f/q is largest at z^2 = 1 for nu > 1

    return offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, 1.0), "nu": dist.Uniform(1.2, 8.0)},
        propose=lambda key, theta: theta["loc"] + jax.random.cauchy(key),
        log_proposal=lambda theta, y: dist.Cauchy(theta["loc"], 1.0).log_prob(y),
        log_accept=log_accept,
    )


def student_grid(x):
    def log_density(loc, nu):
        total = stats.norm.logpdf(loc)
        for value in x:
            total = total + stats.t.logpdf(value - loc, nu)
        return total

    return Grid(log_density, loc=(-2.5, 2.5, 200), nu=(1.2, 8.0, 80))


# A block of theta with its own exact conditional, Y summed out (theta1 of Algorithm 2).

LOCATIONS = np.linspace(-1.5, 1.5, 1201)


def draw_location(key, theta, x):
    """p(loc | X, scale) on a grid, with the normalising constant that this model knows."""
    scale = theta["scale"]
    z = (x[:, None] - LOCATIONS[None, :]) / scale
    log_p = jnp.sum(-0.5 * z**2, axis=0) - x.shape[0] * jax.scipy.special.log_ndtr(
        LOCATIONS / scale
    )
    cell = jax.random.categorical(key, log_p)
    shift = jax.random.uniform(jax.random.fold_in(key, 1), minval=-0.5, maxval=0.5)
    return {"loc": jnp.asarray(LOCATIONS)[cell] + shift * (LOCATIONS[1] - LOCATIONS[0])}


@functools.cache
def collapsed():
    return offcut.truncated(
        prior={"loc": dist.Uniform(-1.50125, 1.50125), "scale": dist.LogNormal(0.0, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
        exact_updates={"loc": draw_location},
    )
