"""No event, one and two: intensities and densities of so few against quadrature.

No events in a window are data of a Poisson process like any other number. With two basis functions
f is two numbers; lambda ~ Gamma(a, b) is integrated out, n events leaving Gamma(a + n, b + Z).
"""

from __future__ import annotations

from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pytest
from benchmarks.birth_death import LocalDensity, LocalIntensity

import offcut
from offcut.errors import DataError, ModelError
from statistical.truth import FALSE_ALARM, Grid, p_value, panels, quiet

pytestmark = pytest.mark.statistical

X = np.array([0.3, 0.85])
LENGTH_SCALE, VARIANCE, RATE = 0.4, 4.0, (3.0, 1.0)
RUN = {"chains": 16, "draws": 600, "warmup": 200, "progress": False, "seed": 4}
SETTINGS = {"basis": 2, "length_scale": LENGTH_SCALE, "variance": VARIANCE}


def waves(x, lower, upper):
    """√S(omega_j) √(1/L) sin(omega_j (x - lower)), j = 1, 2, in the units of the data."""
    L = 0.5 * (upper - lower)
    omega = np.array([1, 2]) * np.pi / (2 * L)
    S = VARIANCE * np.sqrt(2 * np.pi) * LENGTH_SCALE * np.exp(-0.5 * (LENGTH_SCALE * omega) ** 2)
    return np.sqrt(S / L)[:, None] * np.sin(omega[:, None] * (x - lower))


@cache
def truth(process, n, lower, upper):
    """Posterior of beta on a grid, and the mean of lambda given it."""
    node, weight = panels(0, 1, 80)
    at_data, at_nodes = waves(X[:n], lower, upper), waves(node, lower, upper)
    a, b = RATE
    mean = {}

    def log_density(b1, b2):
        beta = np.stack([b1, b2], axis=-1)
        Z = (1 / (1 + np.exp(-(beta @ at_nodes)))) @ weight
        data = -np.log1p(np.exp(-(beta @ at_data))).sum(-1)
        mean["rate"], mean["Z"] = (a + n) / (b + Z), Z
        known = -n * np.log(Z) if process == "density" else -(a + n) * np.log(b + Z)
        return data + known - 0.5 * (b1**2 + b2**2)

    return Grid(log_density, b1=(-6.0, 6.0, 120), b2=(-6.0, 6.0, 120)), mean


def model_of(process, **more):
    local = "moves" in more
    if process == "density":
        kind = LocalDensity if local else offcut.GPDensity
        return kind("uniform", support=(0, 1), **SETTINGS, **more)
    kind = LocalIntensity if local else offcut.GPIntensity
    return kind((0, 1), rate=RATE, **SETTINGS, **more)


def compared(process, n, kernel=None, run=RUN, method="auto", **more):
    """p-values of Z and of what the data say about the shape of f, and of lambda."""
    model = model_of(process, **more)
    how = {"method": method, "kernel": kernel, **run}
    return judged(model, quiet(offcut.sample, model, X[:n], **how), n)


def judged(model, posterior, n):
    process = model.process
    box = (float(posterior.attrs["box_lower"][0]), float(posterior.attrs["box_upper"][0]))
    grid, mean = truth(process, n, *box)
    beta = np.stack([grid.values["b1"], grid.values["b2"]], axis=-1)
    places = np.array([0.3, 0.6])
    wanted = beta @ waves(places, *box)
    found = model.function(posterior, places)
    results = {
        "f here": p_value(found[..., 0], grid.mean(wanted[..., 0])),
        "f there": p_value(found[..., 1], grid.mean(wanted[..., 1])),
        "square": p_value(found[..., 0] ** 2, grid.mean(wanted[..., 0] ** 2)),
        "Z": p_value(
            np.exp(posterior["sample_stats"]["log_normaliser"].values), grid.mean(mean["Z"])
        ),
    }
    if process == "intensity":
        rate = posterior["posterior"]["rate"].values
        results["rate"] = p_value(rate, grid.mean(mean["rate"]))
    return results


def test_no_events_are_data():
    """The posterior, and everything that is asked of it afterwards."""
    model = model_of("intensity")
    posterior = quiet(offcut.sample, model, [], method="collapsed", **RUN)
    assert min(judged(model, posterior, 0).values()) > FALSE_ALARM
    places = np.linspace(0, 1, 5)
    bands = model.bands(posterior, places)
    assert np.all((bands.lower < bands.median) & (bands.median < bands.upper))
    assert [len(y) >= 0 for y in model.rejections(posterior, 3)] == [True] * 3
    posterior.attrs |= {"draws_rejections": 1, "missing_information": np.nan}
    assert "nan%" not in str(offcut.summary(posterior))
    for picture in (offcut.plots.intensity, offcut.plots.function_band):
        plt.close(picture(posterior, model))
    plt.close(offcut.plots.rejected_proposals(posterior, model, draws=5))


@pytest.mark.parametrize("n", [1])
def test_one_observation_counts(n):
    assert min(compared("density", n, run=RUN | {"draws": 400}).values()) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("process", "n"),
    [("intensity", 0), ("intensity", 1), ("intensity", 2), ("density", 1), ("density", 2)],
)
@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (None, {}),
        (None, {"joint_moves": False}),
        (offcut.EllipticalSlice(), {}),
        (offcut.HMC(num_steps=5), {"joint_moves": False}),
        (None, {"method": "collapsed"}),
        (None, {"moves": 30}),
    ],
)
def test_few_events_by_every_sampler(process, n, kernel, more):
    found = compared(process, n, kernel, RUN | {"draws": 3000}, **more)
    assert min(found.values()) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("n", [0, 1])
def test_few_events_of_the_exact_process(n):
    """The mean of lambda: over draws of f from its prior, weighted by their likelihood."""
    model = offcut.GPIntensity(
        (0, 1), rate=RATE, basis=None, length_scale=LENGTH_SCALE, variance=VARIANCE, nugget=1e-6
    )
    posterior = quiet(offcut.sample, model, X[:n], **RUN)
    node, weight = panels(0, 1, 40)
    places = np.concatenate([node, X[:n]])
    K = VARIANCE * np.exp(-0.5 * ((places[:, None] - places) / LENGTH_SCALE) ** 2)
    root = np.linalg.cholesky(K + 1e-6 * np.eye(len(places)))
    f = np.random.default_rng(0).normal(size=(200_000, len(places))) @ root.T
    accepted = 1 / (1 + np.exp(-f))
    Z, (a, b) = accepted[:, : len(node)] @ weight, RATE
    likelihood = np.prod(accepted[:, len(node) :], axis=1) * (b + Z) ** -(a + n)
    mean = np.sum(likelihood * (a + n) / (b + Z)) / np.sum(likelihood)
    assert p_value(posterior["posterior"]["rate"].values, mean) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("broken", ["density", "intensity"])
def test_an_observation_that_is_ignored_is_caught(broken, monkeypatch):
    """As if XLA had made no trip over it: the loop's length of one less."""
    from offcut.gp import proposals as points

    right = points.in_chunks

    def short(layout, held, add, first):
        return right(layout, held._replace(n=held.n - 1), add, first)

    monkeypatch.setattr(points, "in_chunks", short)
    found = compared(broken, 1, joint_moves=False)
    assert min(found.values()) < FALSE_ALARM


def test_no_events_without_a_window_are_refused():
    with pytest.raises(DataError, match="no window="):
        offcut.sample(offcut.GPIntensity(), [], progress=False)
    with pytest.raises(DataError, match="at least one observation"):
        offcut.sample(offcut.GPDensity(), [], progress=False)
    with pytest.raises(ModelError, match="coordinates"):
        offcut.sample(offcut.GPIntensity(([0, 0], [1, 1])), np.zeros((0, 3)), progress=False)
