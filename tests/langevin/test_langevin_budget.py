"""Frames under a budget that binds: every chain and every method has the same target.

With Y the rejections of n frames the target is p(kappa | X) P(|Y| <= B | kappa). |Y| is negative
binomial with success probability Z(kappa) / D(kappa), and the envelope D depends on the order of
the columns: it is part of the target.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut import MatrixLangevin, MatrixLangevinModel
from offcut.driver.chains import Settings, run_chains
from offcut.langevin.augmented import AugmentedSampler
from offcut.langevin.normaliser import log_normaliser, log_normaliser_of
from offcut.langevin.proposals import log_envelope
from offcut.numerics import keys
from offcut.samplers.choice import prepare
from statistical.truth import FALSE_ALARM, Grid, p_value

pytestmark = pytest.mark.statistical

N, D, BUDGET = 6, 3, 1
RATE = 0.15  # of the exponential prior
RUN = {"chains": 16, "draws": 1000, "warmup": 200, "progress": False, "seed": 3}
KERNEL = offcut.HMC(num_steps=3)


@cache
def frames():
    """The two columns are alike: chains cannot agree on which is the more concentrated."""
    with jax.enable_x64(True):
        there = MatrixLangevin.from_svd(np.eye(D)[:, :2], np.array([4.0, 4.0]))
        half = np.asarray(there.sample(keys.from_seed(7), (N // 2,)))
    return np.concatenate([half, half[:, [1, 0, 2]][:, :, [1, 0]]])


@cache
def grid(order):
    """The posterior restricted by the budget, columns proposed in ``order`` or "falling"."""
    S = jnp.asarray(frames().sum(0))

    def log_density(u1, u2):
        kappa = np.exp(np.stack([u1.ravel(), u2.ravel()], 1))
        with jax.enable_x64(True):
            log_z = jax.vmap(lambda k: log_normaliser(k, D))(kappa)
            data = jax.vmap(lambda k: log_normaliser_of(S * k[None, :]))(kappa) - N * log_z
            placed = -np.sort(-kappa, axis=1) if order == "falling" else kappa[:, list(order)]
            share = np.exp(log_z - jax.vmap(lambda k: log_envelope(D, k))(placed))
        within = stats.nbinom.logcdf(BUDGET, N, np.asarray(share))
        whole = np.asarray(data) + within - RATE * kappa.sum(1) + np.log(kappa).sum(1)
        return whole.reshape(u1.shape)

    return Grid(log_density, u1=(-6.0, 4.5, 120), u2=(-6.0, 4.5, 120))


def mean_kappa(order):
    found = grid(order)
    return [found.mean(np.exp(found.values[name])) for name in ("u1", "u2")]


def smallest_p(kappa, order):
    """Of t-tests of both columns' means."""
    return min(p_value(kappa[..., j], truth) for j, truth in enumerate(mean_kappa(order)))


def test_chains_under_a_budget_have_the_target_of_falling_concentrations():
    model = MatrixLangevinModel(dist.Exponential(RATE))
    posterior = offcut.sample(model, frames(), kernel=KERNEL, budget=BUDGET, **RUN)
    assert posterior["sample_stats"]["rejected"].max() <= BUDGET
    kappa = posterior["posterior"]["kappa"].values
    assert smallest_p(kappa, "falling") > FALSE_ALARM
    # Chains agree with one another: they differ by no more than halves of chains do.
    halves = kappa.reshape(16, 2, 500, 2).mean(axis=2)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    within = (0.25 * (halves[:, 0] - halves[:, 1]) ** 2).mean(axis=0)
    assert (stats.f.sf(between / within, 15, 16) > FALSE_ALARM).all()


class OneOrder(AugmentedSampler):
    """Columns in the same order at every kappa, as each chain had it after its own warm-up."""

    fixed = (0, 1)

    def order(self, kappa):
        return jnp.array(self.fixed)


class OtherOrder(OneOrder):
    fixed = (1, 0)


@pytest.mark.calibrate
@pytest.mark.parametrize("control", [OneOrder, OtherOrder])
def test_another_order_is_another_target(control):
    with jax.enable_x64(True):
        model = MatrixLangevinModel(dist.Exponential(RATE))
        prepared = prepare(model, frames(), None, KERNEL)
        right = prepared.sampler
        wrong = prepared._replace(sampler=control(right.layout, right.prior, KERNEL, False, True))
        settings = Settings(RUN["draws"], RUN["warmup"], RUN["chains"], 3, BUDGET, False)
        kappa = run_chains(wrong, settings, None).draws["kappa"]
    assert smallest_p(kappa, control.fixed) > FALSE_ALARM
    assert smallest_p(kappa, "falling") < FALSE_ALARM
    assert smallest_p(kappa, control.fixed[::-1]) < FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("method", ["exchange", "pseudo_marginal"])
def test_other_methods_have_the_same_target(method):
    model, run = MatrixLangevinModel(dist.Exponential(RATE)), RUN | {"draws": 6000}
    posterior = offcut.sample(model, frames(), method=method, budget=BUDGET, **run)
    assert smallest_p(posterior["posterior"]["kappa"].values, "falling") > FALSE_ALARM
