"""Posteriors of kappa against quadrature with G integrated out, and between samplers.

The vectorcardiograms (98 children, two lead systems) are read from the path in the environment
variable OFFCUT_VECTORCARDIOGRAM, or from ../shared/data/vcg.csv beside the repository; where there
is no such file these tests are skipped, and a simulated set of the same size stands in.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut import MatrixLangevin, MatrixLangevinModel
from offcut.datasets import vectorcardiogram
from offcut.langevin.normaliser import log_normaliser, log_normaliser_of
from offcut.numerics import keys
from statistical.truth import FALSE_ALARM, Grid, p_value, quiet

pytestmark = pytest.mark.statistical

ROOT = Path(__file__).parents[2]
FILE = Path(os.environ.get("OFFCUT_VECTORCARDIOGRAM", ROOT.parent / "shared" / "data" / "vcg.csv"))
PRIOR = dist.Exponential(0.1)  # the paper's
RUN = {"chains": 16, "draws": 1000, "warmup": 300, "progress": False, "seed": 4}
#: The simplest programs do: each kernel is another compilation.
METHODS = {
    "augment": None,
    "collapsed": offcut.HMC(num_steps=3, jitter=0.4),
    "exchange": None,
}


MODEL = MatrixLangevinModel(PRIOR)


@cache
def data(name):
    if name == "simulated":
        with jax.enable_x64(True):
            G = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 2)))[0]
            there = MatrixLangevin.from_svd(G, np.array([7.0, 12.0]))
            return np.asarray(there.sample(keys.from_seed(1), (98,)))
    if not FILE.is_file():
        pytest.skip(f"the vectorcardiograms do not come with Offcut, and there is no file {FILE}")
    return getattr(vectorcardiogram(FILE), name)


@cache
def quadrature(name):
    """p(kappa | X) on a grid in log kappa: prior x Z(S kappa) / Z(kappa)^n."""
    x = data(name)
    n, d, _ = x.shape
    S = jnp.asarray(x.sum(0))
    found = offcut.MatrixLangevin.mle(x).kappa

    with jax.enable_x64(True):
        both = jax.jit(
            jax.vmap(lambda k: log_normaliser_of(S * k[None, :]) - n * log_normaliser(k, d))
        )

        def log_density(u1, u2):
            kappa = np.exp(np.stack([u1.ravel(), u2.ravel()], 1))
            likelihood = np.asarray(both(jnp.asarray(kappa))).reshape(u1.shape)
            return likelihood - 0.1 * (np.exp(u1) + np.exp(u2)) + u1 + u2

        low, high = np.log(found.min()) - 1.2, np.log(found.max()) + 1.0
        return Grid(log_density, u1=(low, high, 160), u2=(low, high, 160))


def truths(grid):
    k1, k2 = np.exp(grid.values["u1"]), np.exp(grid.values["u2"])
    functions = {"k1": k1, "k2": k2, "k1^2": k1**2, "k2^2": k2**2, "k1 k2": k1 * k2}
    return {name: grid.mean(value) for name, value in functions.items()}


def statistics(posterior):
    kappa = posterior["posterior"]["kappa"].values
    k1, k2 = kappa[..., 0], kappa[..., 1]
    return {"k1": k1, "k2": k2, "k1^2": k1**2, "k2^2": k2**2, "k1 k2": k1 * k2}


@pytest.mark.parametrize("name", ["simulated", "frank", "mcfee"])
@pytest.mark.parametrize("method", METHODS)
def test_the_posterior_of_kappa_is_that_of_quadrature(name, method):
    wanted = truths(quadrature(name))
    how = {"method": method, "kernel": METHODS[method]}
    posterior = quiet(offcut.sample, MODEL, data(name), **how, **RUN)
    found = statistics(posterior)
    wrong = {key: p for key in wanted if (p := p_value(found[key], wanted[key])) < FALSE_ALARM}
    assert not wrong
    for key in ("k1", "k2"):  # each mean within four Monte Carlo standard errors
        means = found[key].mean(axis=1)
        assert abs(means.mean() - wanted[key]) < 4 * means.std(ddof=1) / np.sqrt(len(means))


def test_the_asymptotic_sampler_is_caught_and_says_so():
    wanted = truths(quadrature("simulated"))
    with pytest.warns(offcut.errors.TrustWarning, match="asymptotic normaliser"):
        posterior = offcut.sample(MODEL, data("simulated"), method="asymptotic", **RUN)
    found = statistics(posterior)
    assert min(p_value(found[key], wanted[key]) for key in wanted) < FALSE_ALARM
    assert "asymptotic" in posterior.attrs["approximation"]


@pytest.mark.calibrate
@pytest.mark.parametrize("method", ["augment", "pseudo_marginal"])
def test_more_samplers_agree_with_quadrature(method):
    wanted = truths(quadrature("simulated"))
    how = {"method": method, "kernel": offcut.NUTS() if method == "augment" else None}
    run = RUN | {"draws": 3000} if method == "pseudo_marginal" else RUN
    posterior = quiet(offcut.sample, MODEL, data("simulated"), **how, **run)
    found = statistics(posterior)
    assert min(p_value(found[key], wanted[key]) for key in wanted) > FALSE_ALARM


@pytest.mark.calibrate
def test_samplers_agree_on_rotations_with_both_frames_inferred():
    """augment, collapsed and exchange: t-tests between methods."""
    with jax.enable_x64(True):
        there = MatrixLangevin(np.diag([9.0, 5.0, 2.0]))
        x = np.asarray(there.sample(keys.from_seed(2), (40,)))
    means = {}
    for method, draws in (("augment", 1000), ("collapsed", 500), ("exchange", 2000)):
        shared, run = MatrixLangevinModel(PRIOR, H="inferred"), RUN | {"draws": draws}
        group = quiet(offcut.sample, shared, x, method=method, **run)["posterior"]
        modes = np.einsum("cdij,cdkj->cdik", group["G"].values, group["H"].values)
        values = np.concatenate([group["kappa"].values, modes[..., 0, :2]], axis=-1)
        means[method] = values.mean(axis=1)
    for method in ("collapsed", "exchange"):
        a, b = means["augment"], means[method]
        error = np.sqrt(a.var(0, ddof=1) / len(a) + b.var(0, ddof=1) / len(b))
        assert (np.abs(a.mean(0) - b.mean(0)) < 5.5 * error).all(), method
