"""Units do not change the answer: data, prior, base and window in other units, the same posterior.

x -> a x + b with a < 0 is a reflection. The truth is quadrature in the units in which everything is
about one; draws are taken back to these. Frames are turned by an orthogonal matrix instead.
"""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut import MatrixLangevin, MatrixLangevinModel
from offcut.numerics import keys
from offcut.samplers.choice import prepare
from statistical import models
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 600, "warmup": 300, "progress": False, "seed": 2}
HMC = offcut.HMC(num_steps=4, jitter=0.3)


def prior(a, b):
    return {"loc": dist.Normal(b, 0.5 * abs(a)), "scale": dist.LogNormal(np.log(abs(a)), 0.3)}


def base(theta):
    return dist.Normal(theta["loc"], theta["scale"])


def windowed(a, b, prior=prior):
    """Seen where (x - b) / a exceeds 0."""
    edges = (b, None) if a > 0 else (None, b)
    return offcut.truncated(prior(a, b), base, inside=offcut.regions.Box(*edges))


def fading(a, b):
    """Seen with probability exp(-z²/2), z = (x - b) / a."""
    return offcut.selected(prior(a, b), base, lambda theta, x: -0.5 * ((x - b) / a) ** 2)


@cache
def seen():
    """Data and truth of ``fading`` in its own units: Z = (1 + s²)^-1/2 exp(-loc² / 2 (1 + s²))."""
    random = np.random.default_rng(3)
    x = random.normal(0.5, 1.2, size=300)
    x = x[random.uniform(size=300) < np.exp(-0.5 * x**2)][:12]

    def log_density(loc, scale):
        like = 0.5 * len(x) * (np.log1p(scale**2) + loc**2 / (1 + scale**2))
        like = like - len(x) * np.log(scale)
        for value in x:
            like = like - 0.5 * ((value - loc) / scale) ** 2
        return like + stats.norm.logpdf(loc, 0, 0.5) + stats.lognorm.logpdf(scale, 0.3)

    return x, Grid(log_density, loc=(-2.5, 2.5, 160), scale=(0.15, 4.0, 160))


@cache
def cut():
    x = models.half_normal_data(n=12)
    return x, models.half_normal_grid(x)


def in_units(model, x, a, b, kernel=None, method="auto"):
    """Draws of the model of a x + b, taken back."""
    posterior = offcut.sample(model, a * x + b, method=method, kernel=kernel, **RUN)
    group = posterior["posterior"].to_dataset()
    return {"posterior": {"loc": (group["loc"] - b) / a, "scale": group["scale"] / abs(a)}}


@pytest.mark.calibrate
def test_other_units_give_the_same_posterior():
    x, grid = cut()
    assert_agrees(in_units(windowed(-1e-3, 7.0), x, -1e-3, 7.0, HMC), grid, ["loc", "scale"])


UNITS = [(1e-2, 0.0), (1e3, 0.0), (1.0, 50.0), (-1.0, 0.0)]
KERNELS = {
    "NUTS": {"kernel": offcut.NUTS()},
    "RandomWalk": {"kernel": offcut.RandomWalk()},
    "exchange": {"method": "exchange"},
    "direct": {"method": "direct"},
}


@pytest.mark.calibrate
@pytest.mark.parametrize(("a", "b"), UNITS)
@pytest.mark.parametrize("name", KERNELS)
def test_more_units_and_kernels(a, b, name):
    x, grid = cut()
    assert_agrees(in_units(windowed(a, b), x, a, b, **KERNELS[name]), grid, ["loc", "scale"])


@pytest.mark.calibrate
@pytest.mark.parametrize(("a", "b"), UNITS)
def test_selection_in_other_units(a, b):
    x, grid = seen()
    assert_agrees(in_units(fading(a, b), x, a, b, HMC), grid, ["loc", "scale"])


@pytest.mark.calibrate
def test_a_prior_left_in_its_old_units_is_caught():
    x, grid = cut()
    wrong = windowed(2.0, 0.0, prior=lambda a, b: prior(1.0, b))
    assert_disagrees(in_units(wrong, x, 2.0, 0.0, HMC), grid, ["loc", "scale"])


# Frames.


@cache
def frames():
    with jax.enable_x64(True):
        G = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 2)))[0]
        there = MatrixLangevin.from_svd(G, np.array([5.0, 8.0]))
        return np.asarray(there.sample(keys.from_seed(3), (15,)))


#: A rotation or a reflection, far from the axes.
TURN = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
MIRRORED = TURN * np.array([1.0, 1.0, -1.0])


@pytest.mark.parametrize(
    "turn", [pytest.param(TURN, marks=pytest.mark.calibrate), MIRRORED], ids=["one", "mirrored"]
)
def test_turned_frames_have_the_same_concentrations_and_turned_directions(turn):
    """Where nothing is drawn, up to rounding."""
    x = frames()
    prior = dist.Exponential(0.1)
    model = MatrixLangevinModel(prior)
    starts, values = [], []
    with jax.enable_x64(True):
        kappas = jnp.array([[3.0, 9.0], [8.0, 8.0], [1e-3, 40.0]])
        for data in (x, turn @ x):
            sampler, arrays, _ = prepare(model, data, method="collapsed")
            starts.append(sampler.start(keys.from_seed(0), arrays, 1000))
            at = partial(sampler.log_likelihood, state=starts[-1], data=arrays)
            values.append(jax.vmap(at)(kappas))
    np.testing.assert_allclose(starts[1].G, turn @ np.asarray(starts[0].G), atol=1e-9)
    np.testing.assert_allclose(starts[1].position, starts[0].position, atol=1e-9)
    np.testing.assert_allclose(values[1], values[0], rtol=1e-9)


@pytest.mark.calibrate
def test_estimates_of_turned_frames_are_turned():
    x, turn = frames(), MIRRORED
    plain, turned = MatrixLangevin.mle(x), MatrixLangevin.mle(turn @ x)
    np.testing.assert_allclose(np.asarray(turned.kappa), np.asarray(plain.kappa), rtol=1e-8)
    np.testing.assert_allclose(turned.F, turn @ np.asarray(plain.F), rtol=1e-7, atol=1e-7)


def apart(first, second):
    """Smallest p-value of t-tests between the chains' means of two runs, (chain, draw, ...)."""
    a, b = (np.asarray(values).mean(axis=1).reshape(len(values), -1) for values in (first, second))
    return float(stats.ttest_ind(a, b, equal_var=False).pvalue.min()) * a.shape[1]


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("method", "H"),
    [
        ("augment", "identity"),
        ("exchange", "identity"),
        ("collapsed", "identity"),
        ("augment", "inferred"),
    ],
)
def test_the_posterior_of_turned_frames_is_turned(method, H):
    model, turn = MatrixLangevinModel(dist.Exponential(0.1), H=H), MIRRORED
    kernel = None if method == "exchange" else offcut.HMC(num_steps=3, jitter=0.4)
    run = RUN | {"draws": 600, "warmup": 200, "method": method, "kernel": kernel}
    plain = offcut.sample(model, frames(), **run)["posterior"]
    turned = offcut.sample(model, turn @ frames(), **run | {"seed": 9})["posterior"]
    G = np.einsum("ij,cdjk->cdik", turn, plain["G"].values)
    assert apart(plain["kappa"].values, turned["kappa"].values) > FALSE_ALARM
    assert apart(G, turned["G"].values) > FALSE_ALARM
    assert apart(G**2, turned["G"].values ** 2) > FALSE_ALARM
    assert apart(plain["G"].values, turned["G"].values) < FALSE_ALARM, "the test sees a turn"
