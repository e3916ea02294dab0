"""Looking where a run has not been: against quadrature, on runs that are exact by construction."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import offcut
from offcut.checks import unvisited
from offcut.checks.unvisited import Seen, cloud_of, likelihoods, look_beyond
from offcut.driver.chains import Drawn
from offcut.samplers.choice import observe
from statistical.truth import Grid

pytestmark = pytest.mark.statistical

N = 40


def above_zero(loc_scale, log_scale):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, loc_scale), "scale": dist.LogNormal(0.0, log_scale)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )


def posterior_grid(x, loc_scale, log_scale, finer=1):
    """On (loc / scale^2, log scale): far out the posterior is a ridge in these."""

    def log_density(slope, log_s):
        scale = np.exp(log_s)
        loc = slope * scale**2
        like = -len(x) * (log_s + special.log_ndtr(loc / scale))
        like = like - (np.sum(x**2) - 2 * loc * np.sum(x) + len(x) * loc**2) / (2 * scale**2)
        prior = stats.norm.logpdf(loc, 0, loc_scale) + stats.norm.logpdf(log_s, 0, log_scale)
        return like + prior + 2 * log_s

    grid = Grid(log_density, slope=(-12.0, 12.0, finer * 800), log_s=(-2.5, 4.5, finer * 400))
    scale = np.exp(grid.values["log_s"])
    grid.values = {"loc": grid.values["slope"] * scale**2, "scale": scale}
    return grid


def exact_run(grid, n, budget, seed, draws=8000):
    """Independent draws from the posterior under a budget, with their |Y|: no chain at all."""
    rng = np.random.default_rng(seed)
    rate = np.maximum(special.ndtr(grid.values["loc"] / grid.values["scale"]), 1e-12)
    restricted, _ = grid.tilted(stats.nbinom.cdf(budget, n, rate))
    p = restricted.probability.ravel()
    rows = rng.choice(p.size, size=draws, p=p / p.sum())
    theta = {name: values.ravel()[rows] for name, values in grid.values.items()}
    below = stats.nbinom.cdf(budget, n, rate.ravel()[rows])
    rejected = stats.nbinom.ppf(rng.uniform(size=draws) * below, n, rate.ravel()[rows])
    shaped = {name: values.reshape(4, -1) for name, values in theta.items()}
    return Drawn(shaped, {"rejected": rejected.astype(int).reshape(4, -1)}, {}, budget, 0, False)


def exact_share(grid, n, drawn):
    most = 2.0 * drawn.stats["rejected"].max()
    log_rate = special.log_ndtr(grid.values["loc"] / grid.values["scale"])
    return grid.mean(log_rate < np.log(n) - np.log(n + most))


def look(model, x, drawn, seed=0):
    with jax.enable_x64(True):
        arrays, _, _ = observe(model, x, None)
        return look_beyond(model, arrays, drawn, len(x), seed)


def data(loc, seed, n=N):
    z = np.random.default_rng(seed).normal(loc, 1.0, size=200 * n)
    return z[z > 0][:n]


@pytest.fixture(scope="module")
def vague():
    return above_zero(30.0, 1.5)


@pytest.fixture(scope="module")
def informative():
    return above_zero(1.0, 0.2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_share_beyond_is_that_of_quadrature(vague, seed):
    """Within a factor of two, whatever it is; and the shift that goes with it."""
    x = data(0.0, seed)
    grid = posterior_grid(x, 30.0, 1.5)
    drawn = exact_run(grid, N, 2000, seed)
    truth = exact_share(grid, N, drawn)
    assert truth > 0.02
    found = look(vague, x, drawn)
    assert found.note == ""
    assert truth / 2 < found.share < 2 * truth
    loc = drawn.draws["loc"]
    error = loc.std() / np.sqrt(loc.size)
    shift = abs(grid.mean(grid.values["loc"]) - loc.mean()) / error
    assert shift > 5  # these runs are wrong, and their error bars are small
    assert shift / 3 < found.shift < 3 * shift
    assert found.place.startswith("{'loc': -")


@pytest.mark.parametrize("seed", range(10))
def test_nothing_lies_beyond_a_healthy_run(informative, seed):
    """The same look finds nothing worth a word."""
    x = data(0.0, seed)
    grid = posterior_grid(x, 1.0, 0.2)
    drawn = exact_run(grid, N, 100_000, seed)
    found = look(informative, x, drawn)
    assert found.note == ""
    assert found.share < 1e-3
    assert found.shift < 1


def test_the_constant_is_known_where_nothing_is_accepted(vague):
    """log Z at acceptance rates down to 1e-30, from points that were drawn where it is high."""
    x = data(0.0, 0)
    wide, near = unvisited.PRIOR_REFERENCES, unvisited.RUN_REFERENCES
    references = {
        "loc": np.concatenate([np.zeros(wide), np.resize([-1.0, 0.0, 0.3], near)]),
        "scale": np.concatenate([np.full(wide, 3.0), np.ones(near)]),
    }
    size = 8192
    loc, scale = np.array([-1.5, -9.0, -30.0, -60.0]), np.array([1.2, 2.6, 5.0, 7.0])
    with jax.enable_x64(True):
        drawn = jax.jit(lambda *given: unvisited._points_from(vague, *given))
        points, used, rates = drawn(jax.random.key(0), references, np.int32(size))
        over = jax.vmap(jax.vmap(vague.log_observed, (None, 0)), (0, None))
        nothing = np.zeros((0, 2))
        cloud = cloud_of(
            Seen(nothing, {}, nothing, points, over(references, points), used, rates), size
        )
        at = np.zeros((unvisited.BATCH, 2))
        at[:4] = np.stack([loc, np.log(scale)], axis=1)
        observed = observe(vague, x, None)[0]
        found = jax.jit(likelihoods(vague))(
            at, np.int32(4), observed, cloud.points, cloud.log_mixture, np.int32(size)
        )
    found = {name: np.asarray(found[name])[:4] for name in ("log_z", "spread")}
    log_z = found["log_z"] + cloud.log_scale
    assert special.log_ndtr(loc / scale).min() < np.log(1e-15)
    noise = np.sqrt(found["spread"] / size)
    assert np.all(noise < 0.05)
    # Noise of these points, and that of the rate which fixes the scale of all.
    assert np.all(np.abs(log_z - special.log_ndtr(loc / scale)) < 6 * np.hypot(noise, 0.02))


def test_it_says_why_it_did_not_look(vague):
    x = data(0.0, 0)
    drawn = exact_run(posterior_grid(x, 30.0, 1.5), N, 2000, 0)
    assert "observations" in look(vague, np.tile(x, 30), drawn).note
    regression = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta, c: dist.Normal(theta["loc"] + c, 1.0),
        inside=lambda y, c: y > 0,
    )
    with jax.enable_x64(True):
        arrays, _, _ = observe(regression, x, np.zeros(N))
        assert "covariates" in look_beyond(regression, arrays, drawn, N, 0).note
        assert "kind of model" in look_beyond(None, arrays, drawn, N, 0).note


def test_the_same_seed_sees_the_same(vague):
    x = data(0.0, 1)
    drawn = exact_run(posterior_grid(x, 30.0, 1.5), N, 2000, 1)
    assert look(vague, x, drawn, seed=5) == look(vague, x, drawn, seed=5)
