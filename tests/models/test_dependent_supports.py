"""Exact updates beside parameters whose support depends on what is updated, against quadrature.

The probability of being recorded is the same for all values, so that it has no influence on the
likelihood and exact conditionals are simple, but the number of rejections depends on it, and so
does the posterior under a budget.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.errors import ModelError
from statistical.truth import Grid, assert_agrees, assert_disagrees

pytestmark = pytest.mark.statistical

X = np.array([0.35, 0.52, 0.41, 0.6, 0.18, 0.47])
SCALE = 0.4
RUN = {"draws": 800, "warmup": 100, "chains": 16, "progress": False}
#: Short moves: what a kernel undoes in the same sweep would not be seen.
KERNEL = offcut.HMC(step_size=0.2, num_steps=3)


def one_bound():
    """b ~ Uniform(0, a), the upper end drawn exactly: p(a) / a is constant, so a | b is uniform."""

    def prior():
        a = numpyro.sample("a", dist.Beta(2.0, 1.0))
        b = numpyro.sample("b", dist.Uniform(0.0, a))
        numpyro.deterministic("share", b / a)

    def update(key, theta, data):
        return {"a": theta["b"] + (1 - theta["b"]) * jax.random.uniform(key)}

    return offcut.selected(
        prior=prior,
        base=lambda theta: dist.Normal(theta["share"] * theta["a"], SCALE),
        log_accept=lambda theta, y: jnp.log(theta["a"]),
        exact_updates={"a": update},
    )


def one_bound_grid(budget=None):
    def log_density(b, t):
        a = b + (1 - b) * t
        like = sum(stats.norm.logpdf(x, b, SCALE) for x in X)
        if budget is not None:
            like = like + stats.nbinom.logcdf(budget, len(X), a)
        return like + np.log(2 * (1 - b))

    grid = Grid(log_density, b=(0, 1, 160), t=(0, 1, 160))
    grid.values["a"] = grid.values["b"] + (1 - grid.values["b"]) * grid.values["t"]
    grid.values["share"] = grid.values["b"] / grid.values["a"]
    return grid


def two_bounds():
    """b ~ Uniform(low, high), both ends drawn exactly, one after the other."""

    def prior():
        low = numpyro.sample("low", dist.Uniform(-1.0, 0.0))
        high = numpyro.sample("high", dist.Uniform(0.0, 1.0))
        numpyro.sample("b", dist.Uniform(low, high))

    def between(key, first, last):  # exp(uniform in the logarithm) has density 1 / width
        return jnp.exp(jax.random.uniform(key, minval=jnp.log(first), maxval=jnp.log(last)))

    def update_low(key, theta, data):
        high, b = theta["high"], theta["b"]
        return {"low": high - between(key, high - jnp.minimum(b, 0), high + 1)}

    def update_high(key, theta, data):
        low, b = theta["low"], theta["b"]
        return {"high": low + between(key, jnp.maximum(b, 0) - low, 1 - low)}

    return offcut.selected(
        prior=prior,
        base=lambda theta: dist.Normal(theta["b"], SCALE),
        log_accept=lambda theta, y: jnp.log(0.45 * (theta["high"] - theta["low"])),
        exact_updates={"low": update_low, "high": update_high},
    )


def two_bounds_grid(budget=None):
    """In b, and in both ends as shares of what is left: the corner of the support is an edge."""
    parts = []
    for low_b, high_b in ((-1, 0), (0, 1)):

        def log_density(b, s, t):
            first, last = np.minimum(b, 0), np.maximum(b, 0)
            low, high = first - (1 + first) * s, last + (1 - last) * t
            value = sum(stats.norm.logpdf(x, b, SCALE) for x in X) - np.log(high - low)
            if budget is not None:
                value = value + stats.nbinom.logcdf(budget, len(X), 0.45 * (high - low))
            return value + np.log((1 + first) * (1 - last))

        grid = Grid(log_density, b=(low_b, high_b, 40), s=(0, 1, 40), t=(0, 1, 40))
        v = grid.values
        first, last = np.minimum(v["b"], 0), np.maximum(v["b"], 0)
        v["low"], v["high"] = first - (1 + first) * v["s"], last + (1 - last) * v["t"]
        log_p = log_density(v["b"], v["s"], v["t"])
        # Grid normalises each part by itself; its largest value says by how much.
        place = np.unravel_index(np.argmax(grid.probability), grid.probability.shape)
        parts.append((grid, log_p[place] - np.log(grid.probability[place] / _weight(place))))
    return _joined(parts)


def _weight(place):
    _, weight = np.polynomial.legendre.leggauss(40)
    return np.prod(0.5 * weight[list(place)])


def _joined(parts):
    joined = Grid.__new__(Grid)
    share = np.exp([log_mass for _, log_mass in parts])
    share /= share.sum()
    joined.probability = np.stack(
        [s * grid.probability for s, (grid, _) in zip(share, parts, strict=True)]
    )
    joined.values = {
        name: np.stack([grid.values[name] for grid, _ in parts]) for name in parts[0][0].values
    }
    return joined


CASES = {
    "one": (one_bound, one_bound_grid, ["a", "b", "share"], 4),
    "two": (two_bounds, two_bounds_grid, ["low", "high", "b"], 9),
}
MODELS = {name: case[0]() for name, case in CASES.items()}


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("name", ["one", pytest.param("two", marks=pytest.mark.calibrate)])
def test_the_other_parameters_stay(name, restricted):
    _, grid, names, budget = CASES[name]
    chosen = budget if restricted else None
    drawn = offcut.sample(MODELS[name], X, kernel=KERNEL, budget=chosen, **RUN)
    assert_agrees(drawn, grid(chosen), names)
    if restricted:
        assert drawn.attrs["tv_lower"] > 0.1  # it does bind


def test_a_position_that_is_kept_is_caught(monkeypatch):
    model = one_bound()
    # The position stays, and b moves with a.
    monkeypatch.setattr(model.prior, "_follows_exact", False)
    drawn = offcut.sample(model, X, kernel=KERNEL, budget=None, **RUN)
    assert_disagrees(drawn, one_bound_grid(), ["a", "b", "share"])


@pytest.mark.calibrate
def test_an_update_that_forgets_the_prior_of_the_rest_is_refused():
    model = one_bound()
    model.exact_updates = {("a",): lambda key, theta, data: {"a": jax.random.beta(key, 2.0, 1.0)}}
    with pytest.raises(ModelError, match=r"exact update.*'a'.*prior density is zero"):
        offcut.sample(model, X, kernel=KERNEL, budget=None, chains=1, progress=False)


def test_positions_stay_where_no_support_depends_on_another():
    def prior():
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        numpyro.sample("loc", dist.Normal(0.0, scale))
        numpyro.sample("rate", dist.HalfNormal(scale))

    model = offcut.truncated(
        prior,
        base=lambda theta: dist.Normal(theta["loc"], theta["rate"]),
        inside=lambda x: x > 0,
        exact_updates={"scale": lambda key, theta, data: {"scale": theta["scale"]}},
    )
    assert not model.prior._follows_exact
