"""The parts of BlackJAX that are none of its public interface: what we rely on, in one place.

pyproject.toml bounds BlackJAX from above because of them. With a new version, run this first.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc import hmc, nuts

import offcut


def test_dual_averaging_is_three_functions_of_a_state_with_a_log_step_size():
    first, update, final = dual_averaging_adaptation(0.8)
    state = first(jnp.asarray(0.5))
    for rate in (0.1, 0.1, 0.1):
        state = update(state, jnp.asarray(rate))
    assert float(jnp.exp(state.log_step_size)) < 0.5  # too few acceptances: smaller steps
    assert 0.0 < float(final(state)) < 0.5


@pytest.mark.parametrize("dense", [False, True])
def test_moments_learn_a_covariance_shrunk_towards_a_thousandth(dense):
    first, update, final = mass_matrix_adaptation(is_diagonal_matrix=not dense)
    state = first(2)
    draws = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 3.0]
    for draw in draws:
        state = update(state, jnp.asarray(draw))
    learnt = np.asarray(final(state).inverse_mass_matrix)
    found = np.cov(draws.T) if dense else np.var(draws, axis=0, ddof=1)
    identity = np.eye(2) if dense else np.ones(2)
    shrunk = 200 / 205 * found + 1e-3 * 5 / 205 * identity
    np.testing.assert_allclose(learnt, shrunk, rtol=1e-5)


def test_the_schedule_is_stans_in_rows_of_slow_and_window_end():
    rows = np.asarray(build_schedule(1000))
    assert rows.shape == (1000, 2)
    slow, ends = rows[:, 0].astype(bool), np.flatnonzero(rows[:, 1])
    assert (slow.argmax(), len(slow) - slow[::-1].argmax()) == (75, 950)
    assert ends.tolist() == [99, 149, 249, 449, 949]


@pytest.mark.parametrize("module", [hmc, nuts])
def test_kernels_take_what_ours_pass_and_return_what_ours_read(module):
    taken = list(inspect.signature(module.build_kernel()).parameters)
    assert taken[:5] == ["rng_key", "state", "logdensity_fn", "step_size", "inverse_mass_matrix"]

    def log_density(x):
        return -0.5 * jnp.sum(x**2)

    start = hmc.init(jnp.ones(2), log_density)
    assert float(start.logdensity) == -1.0
    np.testing.assert_array_equal(start.logdensity_grad, [-1.0, -1.0])
    last = 5  # steps of HMC, doublings of NUTS
    state, info = module.build_kernel()(
        jax.random.key(0), start, log_density, 0.3, jnp.ones(2), last
    )
    assert state.position.shape == (2,)
    assert 0.0 <= float(info.acceptance_rate) <= 1.0
    assert not bool(info.is_divergent)
    assert int(info.num_integration_steps) >= 1


@pytest.mark.parametrize("seed", range(3))
def test_our_hmc_is_theirs(seed, float64):
    """Ours evaluates the density at one place, for the compiler's sake."""
    kernel, at, key = offcut.HMC(0.9, 5), jnp.array([0.3, -1.2]), jax.random.key(seed)
    tuning = kernel.first_tuning(1, 2)

    def log_density(x):
        return -0.5 * jnp.sum(jnp.array([1.0, 4.0]) * x**2) - 0.1 * jnp.sum(x**4)

    theirs, info = hmc.build_kernel()(
        key, hmc.init(at, log_density), log_density, 0.9, tuning.inverse_mass, 5
    )
    position, stats = kernel.step(key, at, log_density, tuning)
    np.testing.assert_allclose(position, theirs.position, rtol=1e-12)
    assert float(stats["acceptance_rate"]) == pytest.approx(float(info.acceptance_rate), rel=1e-12)
    assert float(stats["log_density"]) == pytest.approx(float(log_density(at)), rel=1e-14)
    assert bool(stats["diverging"]) == bool(info.is_divergent)
