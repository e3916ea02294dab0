"""How much is compiled: few programs for a first answer, none for data of another size.

XLA compiles for the shapes of its arguments, so the number of observations is an argument, and
data are padded to a few sizes; draws must not depend on which.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import digests
import offcut
from compiling import compiled_programs
from conftest import assert_same_draws
from offcut.augmentation import hidden, rejections
from offcut.augmentation.rejections import Layout
from offcut.checks import unvisited
from offcut.numerics.arrays import bucket
from offcut.programs import cache

RUN = {"draws": 20, "warmup": 20, "chains": 2, "seed": 3, "progress": False}
N = 100
X = 0.8 + np.abs(np.random.default_rng(0).normal(size=N))
PLANE = np.abs(np.random.default_rng(1).normal(size=(N, 2)))


def regression():
    return offcut.truncated(
        {"a": dist.Normal(0.0, 1.0), "b": dist.Normal(0.0, 1.0)},
        lambda theta, c: dist.Normal(theta["a"] + theta["b"] * c, 1.0),
        lambda y, c: y > 0,
    )


def clamped():
    return offcut.truncated(
        {"loc": dist.Normal(0.0, 1.0)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda y: y > 0,
        censored=offcut.Clamped(upper=2.0),
    )


def correlated():
    """Matrices, which NumPyro would look at one operation at a time."""

    def covariance(theta):
        off = theta["rho"] * theta["sd"]
        return jnp.array([[1.0, off], [off, theta["sd"] ** 2]])

    return offcut.truncated(
        {"rho": dist.Uniform(-1.0, 1.0), "sd": dist.LogNormal(0.0, 0.3)},
        lambda theta: dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=covariance(theta)),
        lambda y: y @ y < 16.0,
    )


def cells(x):
    return {"low": np.floor(2 * x) / 2, "high": np.floor(2 * x) / 2 + 0.5}


WIDE = X + 0.3
LOOK = unvisited.look_beyond  # conftest.py puts another in its place
#: Model, data, covariates, settings, and the most programs that a first call may compile: start and
#: sweeps, a second opinion on a conjugate update, a look at the observations between blocks where
#: the window moves, and what asks zones and guesses first values where something is hidden.
CASES = {
    "NUTS": (digests.normal, X, None, {}, 2),
    "conjugate": (digests.conjugate, X, None, {}, 3),
    "direct": (digests.normal, X, None, {"method": "direct"}, 2),
    "exchange": (digests.normal, X, None, {"method": "exchange"}, 2),
    "pseudo-marginal": (
        digests.selected, X, None, {"method": offcut.PseudoMarginal(acceptances=20)}, 4,
    ),
    "selected": (digests.selected, X, None, {}, 4),
    "regression": (regression, X, np.linspace(-1, 1, N), {}, 2),
    "in the plane": (correlated, PLANE, None, {"kernel": offcut.HMC(num_steps=3)}, 2),
    "intervals": (digests.rounded, WIDE, cells(WIDE), {}, 6),
    "clamped": (clamped, np.minimum(X, 2.0), None, {}, 4),
    "noise": (digests.noisy, WIDE, None, {}, 5),
}  # fmt: skip
LONG = {"pseudo-marginal", "clamped", "exchange", "direct"}


def run(name, n=N, **changed):
    make, data, covariates, settings, _ = CASES[name]
    beside = jax.tree.map(lambda a: a[:n], covariates)
    return offcut.sample(make(), data[:n], covariates=beside, **{**RUN, **settings, **changed})


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=[pytest.mark.calibrate] if k in LONG else []) for k in CASES]
)
def test_few_programs_serve_every_size(name, monkeypatch):
    monkeypatch.setattr(cache, "CACHE", type(cache.CACHE)())
    with compiled_programs() as first:
        run(name)
    assert "jit(sweeps)" in first  # else nothing was counted
    assert len(first) <= CASES[name][-1] <= 8, first
    with compiled_programs() as later:
        run(name, N - 3)
        run(name, N - 2, draws=31, warmup=23, chains=1)
    assert later == []


def test_a_look_at_the_prior_and_beyond_the_run_adds_two(monkeypatch):
    monkeypatch.setattr(cache, "CACHE", type(cache.CACHE)())
    monkeypatch.setattr("offcut.checks.looks.LONG_RUN", 0)
    monkeypatch.setattr("offcut.checks.looks.ENOUGH_DRAWS", 0)
    monkeypatch.setattr("offcut.checks.looks.WORTH_A_LOOK", -1.0)
    monkeypatch.setattr("offcut.checks.unvisited.look_beyond", LOOK)
    with compiled_programs() as first:
        run("NUTS")
    assert len(first) <= 4, first


def test_programs_that_are_compiled_for_a_size_are_counted(monkeypatch):
    """The control: without buckets another n is another program."""
    monkeypatch.setattr(rejections, "bucket", lambda count, least=1: count)
    monkeypatch.setattr(Layout, "of", classmethod(exactly))
    run("conjugate")
    with compiled_programs() as later:
        run("conjugate", N - 3)
    assert len(later) == 2


def exactly(cls, n, point_size, has_covariates, updates=0):
    chunk = 128
    return cls(chunk * n, 64, chunk, has_covariates, 2, None)


@pytest.mark.parametrize("name", ["NUTS", "conjugate", "regression", "selected", "intervals"])
def test_draws_do_not_depend_on_the_padding(name, monkeypatch):
    few = run(name)

    def more(count, least=1):
        return 3 * bucket(count, least)

    monkeypatch.setattr(rejections, "bucket", more)
    monkeypatch.setattr(hidden, "bucket", more)
    assert_same_draws(few, run(name))


def test_a_bucket_is_a_quarter_larger_at_most():
    for n in range(1, 5000):
        assert n <= bucket(n) <= max(n, 1.25 * n)
    assert len({bucket(n) for n in range(1, 10**6, 997)}) < 80
