"""Pólya-Gamma draws: Laplace transform, moments, acceptance rate, and what they depend on.

A mean is compared with its exact value in standard errors; all comparisons of one set of draws
together raise a false alarm with probability 1e-5.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from offcut.gp import polya_gamma as module
from offcut.numerics import keys

pytestmark = pytest.mark.usefixtures("float64")

#: Both ways on the left of t, which change at 3.12, and both signs.
Z = np.array([0.0, 0.3, -2.0, 3.1, 3.15, 6.0, -30.0])
S = np.array([1.0, 10.0, 50.0])
DRAWS = 60_000
LANES = 512

draw = jax.jit(module.polya_gamma, static_argnums=3)


def log_cosh(x):
    return np.logaddexp(x, -x) - np.log(2.0)


def laplace(z, s):
    return np.exp(log_cosh(z / 2.0) - log_cosh(np.sqrt(z**2 / 4.0 + s / 2.0)))


def mean(z):
    return np.tanh(z / 2.0) / (2.0 * z) if z else 0.25


def variance(z):
    return (np.sinh(z) - z) / (4.0 * z**3 * np.cosh(z / 2.0) ** 2) if z else 1.0 / 24.0


def standard_errors(sample, exact):
    """How far the mean of ``sample`` is off."""
    return abs(sample.mean() - exact) / (sample.std() / np.sqrt(sample.size))


def worst(draws, seed=1):
    """The largest deviation over what is allowed, of everything known about PG(1, z)."""
    z = jnp.asarray(np.repeat(Z, DRAWS))
    omega = np.asarray(draws(keys.from_seed(seed), z, z.size, LANES)).reshape(Z.size, DRAWS)
    deviations = []
    for own, own_z in zip(omega, Z, strict=True):
        deviations += [standard_errors(np.exp(-s * own), laplace(own_z, s)) for s in S]
        deviations.append(standard_errors(own, mean(own_z)))
        deviations.append(standard_errors((own - mean(own_z)) ** 2, variance(own_z)))
    return max(deviations) / stats.norm.isf(0.5e-5 / len(deviations))


def test_laplace_transform_mean_and_variance():
    assert worst(draw) < 1.0


def without_tilt(c, x, is_left, acceptance=module._acceptance):
    return acceptance(jnp.zeros_like(c), x, is_left)


def masses_at_zero(c, right_over_left=module._right_over_left):
    return right_over_left(jnp.zeros_like(c))


@pytest.mark.parametrize(
    ("part", "broken"), [("_acceptance", without_tilt), ("_right_over_left", masses_at_zero)]
)
def test_twins_fail(monkeypatch, part, broken):
    monkeypatch.setattr(module, part, broken)
    control = jax.jit(lambda key, z, count, _: module.polya_gamma(key, z, count, LANES))
    assert worst(control) > 2.0


def rate_off(seed=2, proposals=200_000):
    """The largest deviation of acceptance rates from 1 / cosh(c) over the mass of the proposals."""
    c = np.abs(Z) / 2.0
    K = np.pi**2 / 8.0 + c**2 / 2.0
    left = np.minimum(4.0 * stats.norm.cdf(-1.0 / np.sqrt(module.T)), 2.0 * np.exp(-c))
    right = np.pi / (2.0 * K) * np.exp(-K * module.T)
    rate = 1.0 / np.cosh(c) / (left + right)
    propose = jax.jit(lambda key, c: module._propose(key, c))
    x = np.asarray(propose(keys.from_seed(seed), jnp.asarray(np.repeat(c, proposals))))
    accepted = (x >= 0.0).reshape(c.size, proposals).mean(axis=1)
    # At z = 30 hardly one is rejected: the error is at least that of one proposal.
    error = np.sqrt(np.maximum(rate * (1.0 - rate), 1.0 / proposals) / proposals)
    return np.max(np.abs(accepted - rate) / error) / stats.norm.isf(0.5e-5 / c.size)


def test_acceptance_rate():
    assert rate_off() < 1.0


def test_acceptance_rate_sees_the_series(monkeypatch):
    """Small as it is, it rejects 0.0007 of the proposals at z = 0."""

    def without_series(c, x, is_left):
        tilt = jnp.where(is_left & (c <= module.SWITCH), jnp.exp(-0.5 * c * c * x), 1.0)
        return jnp.where(is_left & (x > module.T), 0.0, tilt)

    monkeypatch.setattr(module, "_acceptance", without_series)
    assert rate_off() > 2.0


def test_series_against_many_terms():
    n = np.arange(20)[:, None]
    for is_left, x in ((True, np.linspace(0.01, module.T, 50)), (False, np.linspace(0.64, 9, 50))):
        rise = 2.0 * n * (n + 1)  # 2 ((n + 1/2)² - 1/4)
        exponent = rise / x if is_left else rise * np.pi**2 * x / 4.0
        exact = np.sum((-1.0) ** n * (2 * n + 1) * np.exp(-exponent), axis=0)
        found = module._acceptance(jnp.zeros(50), jnp.asarray(x), jnp.full(50, is_left))
        np.testing.assert_allclose(found, exact, rtol=1e-15)


def test_draws_do_not_depend_on_capacity_nor_on_what_lies_beyond_count():
    z = np.linspace(-5.0, 5.0, 700)
    key = keys.from_seed(3)
    exact_fit = np.asarray(draw(key, jnp.asarray(z), 700, 64))
    roomy = np.asarray(draw(key, jnp.asarray(np.append(z, np.full(500, np.nan))), 700, 64))
    assert (exact_fit > 0.0).all()
    assert exact_fit.tobytes() == roomy[:700].tobytes()
    assert not roomy[700:].any()


def test_any_count_with_one_compilation():
    counted = jax.jit(lambda key, z, count: module.polya_gamma(key, z, count, 64))
    z = jnp.full(100, 2.0)
    for count in (0, 1, 63, 64, 65, 100):
        omega = np.asarray(counted(keys.from_seed(count), z, jnp.int32(count)))
        assert (omega[:count] > 0.0).all()
        assert not omega[count:].any()
    assert counted._cache_size() == 1


@pytest.mark.parametrize("z", [1e3, -1e6, 1e12, 1e100])
def test_huge_z(z):
    """2 |z| omega is 1 up to √(2 / |z|) times a normal, where that is above rounding."""
    omega = np.asarray(draw(keys.from_seed(4), jnp.full(700, z), 700, 64))
    spread = max(np.sqrt(2.0 / abs(z)), 4e-16)
    deviation = (2.0 * abs(z) * omega - 1.0) / spread
    assert np.max(np.abs(deviation)) < 6.0
    if abs(z) < 1e20:
        assert standard_errors(deviation, 0.0) < stats.norm.isf(0.5e-5)
        assert standard_errors(deviation**2, 1.0) < stats.norm.isf(0.5e-5)


def test_what_is_no_number_ends_and_shows():
    z = jnp.zeros(700).at[5].set(jnp.nan)
    omega = np.asarray(draw(keys.from_seed(5), z, 700, 64))
    assert np.flatnonzero(np.isnan(omega)).tolist() == [5]
