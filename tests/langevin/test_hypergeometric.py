"""log h_m, its derivatives and its differences against mpmath with 60 digits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from offcut.langevin import hypergeometric
from offcut.langevin.hypergeometric import bessel_ratio, log_h, ratio_over_argument

log_h_drop = jax.jit(hypergeometric.log_h_drop, static_argnums=0)

DIMENSIONS = (1, 2, 3, 4, 5, 9, 10, 31, 32, 33, 50, 200, 500)
ARGUMENTS = (0.0, 1e-8, 1e-3, 0.1, 1.0, 3.0, 10.0, 31.0, 100.0, 1e3, 2e4, 1e6)


def exact_log_h(m, y):
    order = mpmath.mpf(m) / 2 - 1
    y = mpmath.mpf(y)
    if y == 0:
        return mpmath.mpf(0)
    if y < 50:
        return mpmath.log(mpmath.hyp0f1(order + 1, y * y / 4))
    scaled = mpmath.besseli(order, y) * mpmath.exp(-y)
    return y + mpmath.log(scaled) + mpmath.loggamma(order + 1) - order * mpmath.log(y / 2)


def exact_ratio(m, y):
    order = mpmath.mpf(m) / 2 - 1
    return mpmath.besseli(order + 1, y) / mpmath.besseli(order, y) if y else mpmath.mpf(0)


def exact_slope(m, y):
    """A' = 1 - A² - (m-1) A / y."""
    if not y:
        return 1 / mpmath.mpf(m)
    ratio = exact_ratio(m, y)
    return 1 - ratio**2 - (m - 1) * ratio / mpmath.mpf(y)


def relative(found, exact):
    return float(abs(mpmath.mpf(float(found)) - exact) / (abs(exact) if exact else 1))


@pytest.fixture(autouse=True)
def digits(float64):
    with mpmath.workdps(60):
        yield


@pytest.mark.parametrize("m", DIMENSIONS)
def test_values_and_two_derivatives(m):
    y = jnp.array(ARGUMENTS)
    value = jax.jit(lambda y: log_h(m, y))(y)
    first = jax.jit(jax.vmap(jax.grad(lambda y: log_h(m, y))))(y)
    second = jax.jit(jax.vmap(jax.grad(jax.grad(lambda y: log_h(m, y)))))(y)
    for i, at in enumerate(ARGUMENTS):
        assert relative(value[i], exact_log_h(m, at)) < 1e-12, at
        assert relative(first[i], exact_ratio(m, at)) < 1e-12, at
        exact = exact_slope(m, at)
        floor = 1e-16 if m == 1 else 0.0  # 1 / cosh² vanishes faster than any digits last
        assert abs(mpmath.mpf(float(second[i])) - exact) < 1e-11 * exact + floor, at


@pytest.mark.parametrize("m", [1, 2, 3, 9, 40])
def test_differences_keep_their_digits(m):
    """log h(κ√(1-c)) - log h(κ) at κ = 1e6 and c = 1e-9 is -5e-4, beside numbers of 1e6."""
    for y in (1e-3, 1.0, 12.0, 1e3, 1e6):
        for c in (0.0, 1e-9, 1e-3, 0.5, 1.0):
            found = log_h_drop(m, jnp.float64(y), jnp.float64(c))
            exact = exact_log_h(m, mpmath.mpf(y) * mpmath.sqrt(1 - mpmath.mpf(c))) - exact_log_h(
                m, y
            )
            error = abs(mpmath.mpf(float(found)) - exact)
            assert error < 1e-13 * (1 + abs(exact)) + 3e-14 * np.log1p(y) * m, (y, c)


def test_the_plain_difference_would_lose_them():
    y, c = jnp.float64(1e6), 1e-9
    exact = exact_log_h(4, mpmath.mpf(1e6) * mpmath.sqrt(1 - mpmath.mpf(c))) - exact_log_h(4, 1e6)
    plain = log_h(4, y * jnp.sqrt(1 - c)) - log_h(4, y)
    assert relative(plain, exact) > 1e-8 > 1e3 * relative(log_h_drop(4, y, jnp.float64(c)), exact)


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_gradients_of_differences(m):
    gradient = jax.jit(jax.grad(lambda y, c: log_h_drop(m, y, c), argnums=(0, 1)))
    for y, c in ((0.3, 0.2), (12.0, 0.9), (400.0, 0.01)):
        step = 1e-6
        numeric = [
            (log_h_drop(m, y + step, c) - log_h_drop(m, y - step, c)) / (2 * step),
            (log_h_drop(m, y, c + step) - log_h_drop(m, y, c - step)) / (2 * step),
        ]
        found = gradient(y, c)
        np.testing.assert_allclose(found, numeric, rtol=1e-6)
    edge = gradient(3.0, 1.0)
    assert np.isfinite(edge).all()
    second = jax.jit(jax.grad(jax.grad(lambda y: log_h_drop(m, y, 1.0))))(3.0)
    assert np.isfinite(second)


def test_ratio_over_argument_at_zero():
    assert float(ratio_over_argument(5, jnp.float64(0.0))) == pytest.approx(0.2, rel=1e-15)
    assert float(bessel_ratio(1, jnp.float64(2.0))) == pytest.approx(np.tanh(2.0), rel=1e-14)


def test_dimension_must_be_positive():
    with pytest.raises(ValueError, match="at least 1"):
        log_h(0, jnp.float64(1.0))
