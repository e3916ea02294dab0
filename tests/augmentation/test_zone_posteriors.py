"""Censored values in zones that proposals hardly ever hit: narrow, far out, in several parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import offcut
from offcut.augmentation import impute as whole_module
from offcut.augmentation.hidden import zones_of
from offcut.augmentation.impute import at_rows, first_imputed
from offcut.errors import TrustWarning
from offcut.models.data import Observed
from offcut.samplers.choice import observe
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees, p_value

pytestmark = pytest.mark.statistical

CHAINS, SWEEPS, BURN = 24, 240, 20


# One step at a fixed theta: the values of every row against the law of the model in its zone.


def between(y, c):
    """The zone of a row: between its two limits; the third number is a hole in the middle."""
    return (y >= c[0]) & (y <= c[1]) & (jnp.abs(y - 0.5 * (c[0] + c[1])) >= c[2])


def p_values(model, theta, x, limits, moments):
    """A t-test over chains for mean and square of every row, in units of its own spread."""
    with jax.enable_x64(True):
        arrays, _, _ = observe(model, x, limits)
        data = Observed(*jax.tree.map(jnp.asarray, arrays))
        start = first_imputed(data).whole
        own = at_rows(data.covariates, data.hidden.whole.rows)
        censored = whole_module.InZones(model, zones_of(model, ()), data.hidden.whole, own)
        theta = {name: jnp.asarray(value) for name, value in theta.items()}

        def chain(key):
            def sweep(held, index):
                own_key = jax.random.fold_in(key, index)
                held, reached, *moved = censored.draw(own_key, theta, held)
                return held, (held, reached, moved)

            return jax.lax.scan(sweep, start, jnp.arange(SWEEPS))[1]

        keys = jax.random.split(jax.random.key(3), CHAINS)
        values, reached, moved = jax.jit(lambda keys: jax.lax.map(chain, keys))(keys)
        moved = moved[0] if moved else np.zeros_like(reached)
    values = np.asarray(values)[:, BURN:]
    results = {}
    for row, (mean, sd) in enumerate(moments):
        scaled = (values[:, :, row] - mean) / sd
        results[row, "mean"] = p_value(scaled, 0.0)
        results[row, "square"] = p_value(scaled**2, 1.0)
    reached, moved = (np.asarray(a)[..., : len(x)].mean(axis=(0, 1)) for a in (reached, moved))
    return results, reached, moved


def moments_between(density, low, high, hole):
    """Mean and standard deviation of a density, given up to a constant, in a zone."""
    middle = 0.5 * (low + high)
    parts = [(low, high)] if hole == 0 else [(low, middle - hole), (middle + hole, high)]

    def total(function):
        return sum(
            integrate.quad(function, a, b, epsabs=0, epsrel=1e-10, limit=200)[0] for a, b in parts
        )

    mass = total(density)
    mean = total(lambda y: y * density(y)) / mass
    return mean, np.sqrt(total(lambda y: (y - mean) ** 2 * density(y)) / mass)


ZONES = np.array(
    [
        (0.0, 0.5, 0.0),
        (0.7, 0.701, 0.0),  # rounded to three digits
        (-1.0, 0.1, 0.0),  # the window ends inside, at -0.5
        (6.0, 14.0, 0.0),  # far out: one of 1e9 proposals
        (6.0, 6.5, 0.0),
        (2.0, 2.05, 0.0),
        (3.0, 5.0, 0.7),  # in two parts, rare
        (-0.4, 1.6, 0.8),  # in two parts
        (-9.0, 9.0, 0.0),  # all that the window leaves
    ]
)
RECORDED = np.array([0.0, 0.7, 0.05, 6.0, 6.5, 2.0, 3.0, 1.5, 0.0])


def selected_model():
    return offcut.selected(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta, c: dist.Normal(theta["loc"], 1.0),
        log_accept=lambda theta, y, c: jnp.where(y > -0.5, jax.nn.log_sigmoid(2 * y), -jnp.inf),
        censored=between,
    )


@pytest.fixture(scope="module")
def zone_moments():
    def density(y):
        return (y > -0.5) * np.exp(-0.5 * (y - 0.2) ** 2) * special.expit(2 * y)

    return [moments_between(density, max(low, -0.5), high, hole) for low, high, hole in ZONES]


def test_every_row_is_drawn_from_its_zone(zone_moments, monkeypatch):
    monkeypatch.setattr(whole_module, "PATIENCE", 40)
    monkeypatch.setattr(whole_module, "PATIENCE_EACH", 0)
    results, reached, moved = p_values(
        selected_model(), {"loc": 0.2}, RECORDED, ZONES, zone_moments
    )
    assert min(results.values()) > FALSE_ALARM, results
    assert (reached + moved > 0.95).all()
    assert 0.1 < reached[0] < 0.9  # exact draws and slice steps take turns
    assert reached[3] == 0


@pytest.mark.calibrate
def test_a_slice_that_forgets_the_density_is_caught(zone_moments, monkeypatch):
    monkeypatch.setattr(whole_module, "PATIENCE", 40)
    monkeypatch.setattr(whole_module, "PATIENCE_EACH", 0)
    honest = whole_module.log_possible

    def flat(model, theta, point, *covariate):
        """The zone without the density."""
        return jnp.where(honest(model, theta, point, *covariate) > -jnp.inf, 0.0, -jnp.inf)

    monkeypatch.setattr(whole_module, "log_possible", flat)
    results, _, _ = p_values(selected_model(), {"loc": 0.2}, RECORDED, ZONES, zone_moments)
    assert results[3, "mean"] < FALSE_ALARM
    assert results[6, "mean"] < FALSE_ALARM


COUNT_ZONES = np.array([(0, 2, 0), (9, 30, 0), (12, 13, 0), (14, 200, 0), (2, 10, 2)], float)


@pytest.mark.calibrate
def test_counts_move_by_slices_too(monkeypatch):
    monkeypatch.setattr(whole_module, "PATIENCE", 10)
    monkeypatch.setattr(whole_module, "PATIENCE_EACH", 0)
    model = offcut.truncated(
        prior={"rate": dist.Gamma(3.0, 1.0)},
        base=lambda theta, c: dist.Poisson(theta["rate"]),
        inside=lambda y, c: y > 0,
        censored=between,
    )
    k = np.arange(1, 200)
    moments = []
    for zone in COUNT_ZONES:
        inside = np.array([bool(between(float(v), zone)) for v in k])
        p = stats.poisson.pmf(k, 2.5) * inside
        mean = np.sum(p * k) / p.sum()
        moments.append((mean, np.sqrt(np.sum(p * (k - mean) ** 2) / p.sum())))
    recorded = np.array([1, 9, 13, 14, 2])
    results, reached, moved = p_values(model, {"rate": 2.5}, recorded, COUNT_ZONES, moments)
    assert min(results.values()) > FALSE_ALARM, results
    assert reached[3] < 0.01
    assert moved[3] > 0.1


# Whole runs against quadrature, with masses of zones from distribution functions.

WIDTH = 0.45
RUN = {"chains": 16, "draws": 120, "warmup": 40, "progress": False}


def rounded_vectors(n=70, seed=5):
    """Vectors of three, seen where the first is positive, written down by their lower corners."""
    z = np.random.default_rng(seed).normal(0.4, 1.0, size=(4 * n, 3))
    z = z[z[:, 0] > 0][:n]
    return WIDTH * np.floor(z / WIDTH)


def vector_model(**options):
    return offcut.truncated(
        prior={"mean": dist.Normal(0.0, 1.0)},
        base=lambda theta, c: dist.Normal(theta["mean"], 1.0).expand([3]).to_event(1),
        inside=lambda y, c: y[0] >= 0,
        censored=lambda y, c: jnp.all((y >= c) & (y < c + WIDTH)),
        **options,
    )


@pytest.fixture(scope="module")
def corners():
    x = rounded_vectors()

    def log_density(mean):
        total = stats.norm.logpdf(mean) - len(x) * special.log_ndtr(mean)
        for low in x.ravel():
            total = total + np.log(special.ndtr(low + WIDTH - mean) - special.ndtr(low - mean))
        return total

    return x, Grid(log_density, mean=(-1.5, 2.0, 400))


def few_proposals(patch):
    """Patience for some ten rows in a sweep, the same for the sampler and its negative control."""
    patch.setattr(whole_module, "PATIENCE", 1000)
    patch.setattr(whole_module, "PATIENCE_EACH", 0)


def sample_cells(x):
    kernel = offcut.HMC(num_steps=4)
    return offcut.sample(vector_model(), x, covariates=x, kernel=kernel, seed=2, **RUN)


@pytest.mark.calibrate
def test_vectors_known_to_their_cells(corners, monkeypatch):
    few_proposals(monkeypatch)
    x, grid = corners
    posterior = sample_cells(x)
    assert_agrees(posterior, grid, ["mean"])
    assert posterior["sample_stats"]["undrawn"].max() == 0


@pytest.mark.calibrate
def test_starving_rows_are_caught_and_reported(corners, monkeypatch):
    """What the sampler did before: those at one end of the table never come to be served."""
    few_proposals(monkeypatch)
    x, grid = corners
    monkeypatch.setattr(whole_module.InZones, "slice", lambda *arguments: arguments[3])
    monkeypatch.setattr(jax.random, "permutation", lambda key, count: jnp.arange(count))
    monkeypatch.setattr("offcut.samplers.algorithm2.refuse_impossible_zones", lambda *_: None)
    with pytest.warns(TrustWarning, match="were not drawn for 100 sweeps or never"):
        posterior = sample_cells(x)
    assert_disagrees(posterior, grid, ["mean"])


LONG = {"chains": 16, "draws": 600, "warmup": 200, "progress": False}


def interval_model(window, zone):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.3, 0.5), "scale": dist.LogNormal(0.0, 0.25)},
        base=lambda theta, c: dist.Normal(theta["loc"] + 0.5 * c["z"], theta["scale"]),
        inside=window,
        censored=zone,
    )


def interval_grid(z, low, high):
    """The posterior where every value is known to lie between two limits, seen above zero."""

    def log_density(loc, scale):
        total = stats.norm.logpdf(loc, 0.3, 0.5) + stats.lognorm.logpdf(scale, 0.25)
        for a, b, shift in zip(low, high, 0.5 * z, strict=True):
            # On the side where differences of small numbers are exact.
            one, other = -(a - loc - shift) / scale, -(b - loc - shift) / scale
            left = special.ndtr(-other) - special.ndtr(-one)
            right = special.ndtr(one) - special.ndtr(other)
            mass = np.where(one < 0, right, left)
            total = total + np.log(np.maximum(mass, 1e-300))
            total = total - special.log_ndtr((loc + shift) / scale)
        return total

    return Grid(log_density, loc=(-2.5, 3.0, 160), scale=(0.25, 3.5, 160))


@pytest.mark.calibrate
@pytest.mark.parametrize("width", [0.5, 1e-3], ids=["wide", "narrow"])
def test_intervals_of_every_row_beside_truncation(width):
    """Regression; recorded are lower ends. One row in eight lies far out in the tail."""
    rng = np.random.default_rng(12)
    z = rng.normal(size=200)
    y = 0.4 + 0.5 * z + rng.normal(size=200)
    z, y = z[y > 0][:40], y[y > 0][:40]
    y[::8] += 3.0
    low = width * np.floor(y / width)
    table = {"z": z, "low": low}
    model = interval_model(
        lambda y, c: y >= 0, lambda y, c: (y >= c["low"]) & (y <= c["low"] + width)
    )
    kernel = offcut.HMC(num_steps=6)
    posterior = offcut.sample(model, low, covariates=table, kernel=kernel, seed=4, **LONG)
    assert_agrees(posterior, interval_grid(z, low, low + width), ["loc", "scale"])
    assert posterior["sample_stats"]["undrawn"].max() == 0


@pytest.mark.calibrate
def test_single_precision_at_a_clamp():
    """Written as 0.7 in single precision, which is less than 0.7."""
    y = np.random.default_rng(4).normal(0.5, 0.9, 300)
    x = np.minimum(y[y > 0][:40], 0.7).astype(np.float32)
    clamped = x == np.float32(0.7)
    assert 10 < clamped.sum() < 30

    def log_density(loc):
        total = stats.norm.logpdf(loc, 0, 1) - len(x) * special.log_ndtr(loc)
        for value in x[~clamped].astype(float):
            total = total + stats.norm.logpdf(value, loc, 1)
        return total + clamped.sum() * special.log_ndtr(loc - 0.7)

    model = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=lambda y: y > 0,
        censored=offcut.Clamped(upper=0.7),
    )
    posterior = offcut.sample(model, x, seed=6, **LONG)
    assert_agrees(posterior, Grid(log_density, loc=(-2.5, 3.0, 400)), ["loc"])
