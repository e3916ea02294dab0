"""Posteriors of f against quadrature, and of the basis against the exact process.

With a uniform base and two basis functions the posterior of f is one of two numbers, computed here
from its definition in plain NumPy.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from benchmarks.birth_death import BirthDeathSampler, LocalDensity, LocalIntensity

import offcut
from offcut.gp.covariance import COVARIANCES
from statistical.truth import FALSE_ALARM, Grid, p_value, panels, quiet

pytestmark = pytest.mark.statistical

X = np.array([0.05, 0.12, 0.2, 0.22, 0.3, 0.33, 0.4, 0.45, 0.6, 0.85])
LENGTH_SCALE, VARIANCE = 0.4, 4.0
RUN = {"chains": 16, "draws": 1000, "warmup": 200, "progress": False, "seed": 2}
SETTINGS = {"basis": 2, "length_scale": LENGTH_SCALE, "variance": VARIANCE}


def waves(x, lower, upper):
    """√S(omega_j) √(1/L) sin(omega_j (x - lower)), j = 1, 2, in the units of the data."""
    L = 0.5 * (upper - lower)
    omega = np.array([1, 2]) * np.pi / (2 * L)
    S = VARIANCE * np.sqrt(2 * np.pi) * LENGTH_SCALE * np.exp(-0.5 * (LENGTH_SCALE * omega) ** 2)
    return np.sqrt(S / L)[:, None] * np.sin(omega[:, None] * (x - lower))


def sigmoid(f):
    return 1 / (1 + np.exp(-f))


@cache
def truth(process, lower, upper):
    """Posterior of beta on a grid: prior x prod sigma(f(x_i)) / Z^n, or that of an intensity."""
    node, weight = panels(0, 1, 80)
    at_data, at_nodes = waves(X, lower, upper), waves(node, lower, upper)

    def log_density(b1, b2):
        b = np.stack([b1, b2], axis=-1)
        Z = sigmoid(b @ at_nodes) @ weight
        data = np.log(sigmoid(b @ at_data)).sum(-1)
        if process == "density":
            likelihood = data - len(X) * np.log(Z)
        else:  # lambda ~ Gamma(3, 0.1) integrated out
            likelihood = data - (3 + len(X)) * np.log(0.1 + Z)
        return likelihood - 0.5 * (b1**2 + b2**2)

    return Grid(log_density, b1=(-6.0, 6.0, 120), b2=(-6.0, 6.0, 120))


def statistics(b1, b2):
    return {"b1": b1, "b2": b2, "b1^2": b1**2, "b2^2": b2**2, "b1 b2": b1 * b2}


def model(process, **more):
    local = "moves" in more
    if process == "density":
        kind = LocalDensity if local else offcut.GPDensity
        return kind("uniform", support=(0, 1), **SETTINGS, **more)
    kind = LocalIntensity if local else offcut.GPIntensity
    return kind((0, 1), rate=(3.0, 0.1), **SETTINGS, **more)


def compared(process, kernel=None, run=RUN, method="auto", **more):
    """p-values of all statistics."""
    how = {"method": method, "kernel": kernel, **run}
    posterior = quiet(offcut.sample, model(process, **more), X, **how)
    box = (float(posterior.attrs["box_lower"][0]), float(posterior.attrs["box_upper"][0]))
    grid = truth(process, *box)
    # Weights of the result are w = √(S/L) beta.
    L = 0.5 * (box[1] - box[0])  # the middle of the left half is a place where neither is zero
    scale = waves(np.array([box[0] + L / 2]), *box)[:, 0] / np.sin(np.array([1, 2]) * np.pi / 4)
    b = posterior["posterior"]["weights"].values / scale
    wanted = statistics(grid.values["b1"], grid.values["b2"])
    found = statistics(b[..., 0], b[..., 1])
    return {name: p_value(found[name], grid.mean(wanted[name])) for name in wanted}


@pytest.mark.parametrize("process", ["density", "intensity"])
def test_the_posterior_of_f_is_that_of_quadrature(process):
    assert min(compared(process).values()) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("process", ["density", "intensity"])
@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (None, {"joint_moves": False}),
        (offcut.EllipticalSlice(), {}),
        (offcut.HMC(num_steps=5), {"joint_moves": False}),
        (None, {"method": "collapsed"}),
        (None, {"moves": 30}),
    ],
)
def test_more_samplers_agree_with_quadrature(process, kernel, more):
    run = RUN | {"draws": 3000}
    assert min(compared(process, kernel, run, **more).values()) > FALSE_ALARM


@pytest.mark.calibrate
def test_local_moves_with_wrong_odds_are_caught(monkeypatch):
    """Orders of accepted and rejected proposals not counted: n - 1 for n."""
    right = BirthDeathSampler._odds
    monkeypatch.setattr(
        BirthDeathSampler, "_odds", lambda self, *arguments: right(self, *arguments) - 0.3
    )
    found = compared("density", moves=31)
    assert min(found.values()) < FALSE_ALARM


def shimmer():
    voices = offcut.datasets.parkinsons()
    x = voices["MDVP:Shimmer"]
    return (5 * (x - x.min()) / (x.max() - x.min()))[voices.status == 0]


@pytest.mark.calibrate
@pytest.mark.parametrize("kind", COVARIANCES)
def test_the_basis_agrees_with_the_exact_process(kind):
    """Shimmer of the 48 controls, scaled as in the paper; log density at five places."""
    base = offcut.NormalInverseWishart([1.0], 1.0, 8.0, [[4.0]])
    settings = {"base": base, "covariance": kind, "length_scale": 1.0, "variance": 1.0}
    run = {"chains": 16, "warmup": 100, "progress": False}
    both = [
        quiet(offcut.sample, offcut.GPDensity(**settings, basis=basis), shimmer(), **run, draws=n)
        for basis, n in (("auto", 1000), (None, 500))
    ]
    for name in ("log_density", "log_normaliser"):
        ours, exact = (
            values.reshape(*values.shape[:2], -1)
            for values in (tree["sample_stats"][name].values for tree in both)
        )
        for place in range(ours.shape[-1]):
            a, b = ours[..., place].mean(1), exact[..., place].mean(1)
            error = np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 16)
            assert abs(a.mean() - b.mean()) < 5 * error
            assert error < 0.05  # otherwise the comparison says little
