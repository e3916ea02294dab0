"""Posteriors of one and of two observations, which a prior must not be taken for.

Every kernel against quadrature; a run that sees none of the data is caught by the same test.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import offcut
from gp import test_gp_posteriors as gp
from langevin import test_langevin_invariance as langevin
from mixtures import test_mixture_invariance as mixtures
from offcut.regions import Box
from statistical.truth import FALSE_ALARM, Grid, assert_agrees, assert_disagrees, quiet

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 600, "warmup": 200, "progress": False, "seed": 3}
KERNELS = {
    "NUTS": {"kernel": offcut.NUTS()},
    "HMC": {"kernel": offcut.HMC(num_steps=5, jitter=0.3)},
    "RandomWalk": {"kernel": offcut.RandomWalk()},
    "Exchange": {"method": "exchange"},
    "PseudoMarginal": {"method": offcut.PseudoMarginal(acceptances=20)},
    "Conjugate": {"kernel": offcut.Conjugate()},
    "Direct": {"method": "direct"},
}
#: Far from where the prior expects them.
X, C = np.array([2.6, 1.9]), np.array([0.4, -0.3])
PRIOR = {"loc": dist.Normal(0.0, 0.6)}


@cache
def model(kernel, covariates):
    """A normal seen above zero. Each kernel has covariates where it may."""
    if not covariates:
        base = lambda theta: dist.Normal(theta["loc"], 1.0)  # noqa: E731
        return offcut.truncated(PRIOR, base, inside=Box(0, np.inf))
    if kernel == "Conjugate":  # the window alone knows the covariate
        base = lambda theta, c: dist.Normal(theta["loc"], 1.0)  # noqa: E731
        return offcut.truncated(PRIOR, base, inside=lambda y, c: y > c)
    base = lambda theta, c: dist.Normal(theta["loc"] + c, 1.0)  # noqa: E731
    return offcut.truncated(PRIOR, base, inside=Box(0, np.inf))


def quadrature(x, shift, low):
    def log_density(loc):
        total = stats.norm.logpdf(loc, 0, 0.6)
        for value, c, end in zip(x, shift, low, strict=True):
            total = total - 0.5 * (value - loc - c) ** 2 - special.log_ndtr(loc + c - end)
        return total

    return Grid(log_density, loc=(-4.0, 5.0, 800))


IN_TEST = {("HMC", 1, False), ("Conjugate", 1, True)}


@pytest.mark.parametrize(
    ("kernel", "n", "covariates"),
    [
        pytest.param(*case, marks=() if case in IN_TEST else pytest.mark.calibrate)
        for case in [(k, n, c) for k in KERNELS for n in (1, 2) for c in (False, True)]
    ],
)
def test_every_kernel_sees_a_single_observation(kernel, n, covariates):
    x, c, none = X[:n], C[:n], np.zeros(n)
    grid = quadrature(x, none, none)
    options = {}
    if covariates:
        options["covariates"] = c
        grid = quadrature(x, none, c) if kernel == "Conjugate" else quadrature(x, c, none)
    posterior = quiet(
        offcut.sample, model(kernel, covariates), x, **KERNELS[kernel], **options, **RUN
    )
    assert_agrees(posterior, grid, ["loc"])
    assert_disagrees(posterior, quadrature([], [], []), ["loc"])  # the prior
    if n == 2:
        assert_disagrees(posterior, quadrature(x[:1], none[:1], none[:1]), ["loc"])


# Ready-made models; tests/programs/test_loops.py has short tests of the same claim.


@pytest.mark.calibrate
@pytest.mark.parametrize("process", ["density", "intensity"])
@pytest.mark.parametrize("n", [1, 2])
def test_gaussian_process_models(process, n, monkeypatch):
    monkeypatch.setattr(gp, "X", gp.X[[0, 9]][:n])
    gp.truth.cache_clear()
    assert min(gp.compared(process).values()) > FALSE_ALARM
    gp.truth.cache_clear()


@pytest.mark.calibrate
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("weights", ["latent", "window"])
def test_mixtures(weights, n):
    assert mixtures.change(*mixtures.make(weights, counts=(n,))) > FALSE_ALARM


LANGEVIN = {
    "augment": langevin.HMC,
    "collapsed": langevin.WALK,
    "exchange": langevin.SIMULATED,
    "pseudo_marginal": langevin.SIMULATED,
}


@pytest.mark.calibrate
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("method", LANGEVIN)
@pytest.mark.parametrize("n", [1, 2])
def test_matrix_langevin(method, n):
    case = langevin.Case(3, 2, n, (5.0, 3.0))
    sampler = case.sampler(method, LANGEVIN[method])
    assert langevin.invariance(case, sampler, replicates=5000) > FALSE_ALARM
