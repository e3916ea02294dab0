"""A family as base, cut by a support that is not its own, against quadrature of the posterior.

With g0 = N(loc, 1) on (0, inf), two basis functions and fixed hyperparameters the posterior is one
of three numbers. P0(support) = 1 for what a support cuts off, as it once was, gives another one.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from benchmarks.birth_death import LocalDensity
from scipy import stats

import offcut
from statistical.truth import FALSE_ALARM, Grid, p_value, panels, quiet

pytestmark = pytest.mark.statistical

X = np.array([0.05, 0.1, 0.3, 0.4, 0.45, 0.8, 1.0, 1.7])
LENGTH_SCALE, VARIANCE = 1.0, 2.0
RUN = {"chains": 16, "draws": 600, "warmup": 300, "progress": False, "seed": 3}


def normal(theta):
    return dist.Normal(theta["loc"], 1.0)


def uniform(theta):
    """Ends at theta: its support moves. Most draws of the prior exclude the last observation."""
    return dist.Uniform(0.0, theta["loc"])


PRIORS = {normal: dist.Normal(0.0, 1.0), uniform: dist.HalfNormal(1.0)}


def waves(x, lower, upper):
    """√S(omega_j) √(1/L) sin(omega_j (x - lower)), j = 1, 2; zero beyond the box."""
    L = 0.5 * (upper - lower)
    omega = np.array([1, 2]) * np.pi / (2 * L)
    S = VARIANCE * np.sqrt(2 * np.pi) * LENGTH_SCALE * np.exp(-0.5 * (LENGTH_SCALE * omega) ** 2)
    inside = (x > lower) & (x < upper)
    return np.sqrt(S / L)[:, None] * np.sin(omega[:, None] * (x - lower)) * inside


@cache
def truth(family, lower, upper):
    """On a grid of (loc, b1, b2)."""
    node, weight = panels(0.0, upper, 120)
    at_data, at_nodes = waves(X, lower, upper), waves(node, lower, upper)

    def log_density(loc, b1, b2):
        b = np.stack([b1[0], b2[0]], axis=-1)
        excess = 1 / (1 + np.exp(-(b @ at_nodes))) - 0.5
        data = -np.log1p(np.exp(-(b @ at_data))).sum(-1)
        values = []
        for at in loc[:, 0, 0]:
            if family is normal:
                g0 = stats.norm(at, 1.0)
                total, prior = g0.sf(0.0), stats.norm.logpdf(at)
                inner, v, share = node, weight, excess
            else:
                g0 = stats.uniform(0.0, at)
                total, prior = 1.0, stats.halfnorm.logpdf(at)
                # To where the base ends: the integrand jumps there.
                inner, v = panels(0.0, min(at, upper), 80)
                share = 1 / (1 + np.exp(-(b @ waves(inner, lower, upper)))) - 0.5
            Z = 0.5 * total + share @ (v * g0.pdf(inner))
            values.append(prior + data + g0.logpdf(X).sum() - len(X) * np.log(Z))
        return np.stack(values) - 0.5 * (b1**2 + b2**2)

    ends = (-5.0, 4.0) if family is normal else (X.max(), X.max() + 4.0)
    return Grid(log_density, loc=(*ends, 80), b1=(-5.5, 5.5, 40), b2=(-5.5, 5.5, 40))


def compared(family, kernel=None, run=RUN, method="auto", **more):
    """p-values of moments of loc."""
    kind = LocalDensity if "moves" in more else offcut.GPDensity
    model = kind(
        family,
        prior={"loc": PRIORS[family]},
        support=(0, None) if family is normal else None,
        basis=2,
        length_scale=LENGTH_SCALE,
        variance=VARIANCE,
        **more,
    )
    posterior = quiet(offcut.sample, model, X, method=method, kernel=kernel, **run)
    # What was observed is possible in every draw: no end of the base is frozen below it.
    assert np.all(model.density(posterior, X, draws=True) > 0)
    box = (float(posterior.attrs["box_lower"][0]), float(posterior.attrs["box_upper"][0]))
    grid, loc = truth(family, *box), posterior["posterior"]["loc"].values
    return {power: p_value(loc**power, grid.mean(grid.values["loc"] ** power)) for power in (1, 2)}


def test_a_family_cut_by_a_support_has_its_posterior():
    assert min(compared(normal, method="collapsed").values()) > FALSE_ALARM


def test_a_family_whose_support_moves_has_its_posterior():
    assert min(compared(uniform, method="collapsed").values()) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("family", list(PRIORS))
@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (None, {}),
        (None, {"joint_moves": False}),
        (offcut.EllipticalSlice(), {}),
        (offcut.HMC(num_steps=5), {"joint_moves": False}),
        (None, {"moves": 30}),
    ],
)
def test_every_sampler_agrees(family, kernel, more):
    # Births and deaths move little in a sweep: after 300 chains still know where they began.
    warmup = 4000 if "moves" in more else RUN["warmup"]
    found = compared(family, kernel, RUN | {"draws": 3000, "warmup": warmup}, **more)
    assert min(found.values()) > FALSE_ALARM


@pytest.mark.calibrate
def test_taking_all_of_the_base_for_supported_is_caught(monkeypatch):
    monkeypatch.setattr("offcut.gp.plan._supported", lambda *_: "all")
    assert min(compared(normal, method="collapsed").values()) < FALSE_ALARM
