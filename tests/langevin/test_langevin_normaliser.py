"""Exact log Z against mpmath, another formula (rotations), known moments and symmetries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from offcut.langevin import normaliser
from offcut.langevin.normaliser import is_exact

log_normaliser = jax.jit(normaliser.log_normaliser, static_argnums=1)
mean_singular_values = jax.jit(jax.grad(normaliser.log_normaliser), static_argnums=1)


pytestmark = pytest.mark.usefixtures("float64")


def with_mpmath(k1, k2, d):
    """The integral over t = sin phi, adaptively, with 30 digits."""
    with mpmath.workdps(30):
        m = mpmath.mpf(d - 1)
        peak = k1 + k2

        def integrand(phi):
            c = mpmath.cos(phi)
            product = mpmath.hyp0f1(m / 2, (k1 * c) ** 2 / 4) * mpmath.hyp0f1(
                m / 2, (k2 * c) ** 2 / 4
            )
            return c ** (d - 2) * product * mpmath.exp(-peak)

        cuts = [0, 0.05, 0.2, 0.5, 1.0, mpmath.pi / 2]
        total = 2 * mpmath.quad(integrand, cuts) / mpmath.beta(0.5, (m) / 2)
        return float(mpmath.log(total) + peak)


def rotations(k, nodes=400):
    """SO(3), of which V_{2,3} is the case k3 = 0 (Lee 2018): another one-dimensional integral."""
    from scipy.special import ive

    u, w = np.polynomial.legendre.leggauss(nodes)
    a, b = 0.5 * (k[0] - k[1]) * (1 - u), 0.5 * (k[0] + k[1]) * (1 + u)
    top = k[0] + k[1]
    return np.log(np.sum(w * 0.5 * ive(0, a) * ive(0, b) * np.exp(np.abs(a) + b - top))) + top


@pytest.mark.parametrize("d", [2, 3, 4, 7, 10, 50])
def test_two_columns_against_mpmath(d):
    for k1, k2 in ((0.0, 0.0), (1.0, 0.3), (12.0, 6.0), (6.0, 12.0), (90.0, 2.0)):
        found = float(log_normaliser(jnp.array([k1, k2]), d))
        assert found == pytest.approx(with_mpmath(k1, k2, d), rel=1e-12, abs=1e-13), (k1, k2)


@pytest.mark.parametrize("kappa", [(12.0, 6.0), (3.0, 3.0), (0.1, 0.0), (300.0, 40.0)])
def test_frames_of_two_in_space_are_rotations(kappa):
    assert float(log_normaliser(jnp.array(kappa), 3)) == pytest.approx(
        rotations(kappa), rel=1e-12, abs=1e-13
    )


@pytest.mark.parametrize("d", [2, 3, 10])
def test_very_concentrated_frames_follow_the_asymptote(d):
    """log Z - k1 - k2 -> a constant less half the logarithms of the curvatures.

    In coordinates X = G exp(tangent), tr(kappa GᵀX) = k1 + k2 - (k1 + k2)/2 a² - sum k_i |b_i|²/2:
    one rotation between the columns and d - 2 directions for each.
    """
    constants = []
    for scale in (1e4, 1e6):
        k1, k2 = 3.0 * scale, 2.0 * scale
        log_z = float(log_normaliser(jnp.array([k1, k2]), d))
        constants.append(log_z - k1 - k2 + 0.5 * np.log(k1 + k2) + 0.5 * (d - 2) * np.log(k1 * k2))
    assert constants[0] == pytest.approx(constants[1], abs=5e-3)


def test_derivatives_are_those_of_the_integral():
    kappa, step = jnp.array([12.0, 6.0]), 1e-4
    gradient = mean_singular_values(kappa, 3)
    for i in range(2):
        shift = step * jnp.eye(2)[i]
        numeric = (log_normaliser(kappa + shift, 3) - log_normaliser(kappa - shift, 3)) / (2 * step)
        assert float(gradient[i]) == pytest.approx(float(numeric), rel=1e-8)
    hessian = jax.hessian(log_normaliser)(kappa, 3)
    numeric = (mean_singular_values(kappa + jnp.array([step, 0]), 3) - gradient) / step
    np.testing.assert_allclose(hessian[0], numeric, rtol=1e-3)
    assert np.linalg.eigvalsh(hessian).min() > 0  # log Z is convex


def test_near_zero_the_frame_is_uniform():
    """E X = F / d to first order, so log Z is |F|² / (2d)."""
    kappa = jnp.array([1e-4, 2e-4])
    np.testing.assert_allclose(mean_singular_values(kappa, 5), kappa / 5, rtol=1e-6)
    assert float(log_normaliser(jnp.zeros(2), 5)) == pytest.approx(0.0, abs=1e-14)


def test_three_columns_are_refused():
    assert not is_exact(5, 3)
    with pytest.raises(NotImplementedError, match="not for 5 by 3"):
        log_normaliser(jnp.ones(3), 5)
