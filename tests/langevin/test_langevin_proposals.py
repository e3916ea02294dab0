"""Von Mises-Fisher deviations and Hoff's proposals: distributions, moments, edge cases."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from offcut.langevin import proposals as hoff
from offcut.langevin.hypergeometric import bessel_ratio, log_h
from offcut.langevin.normaliser import log_normaliser
from offcut.langevin.von_mises_fisher import deviations as by_hand
from offcut.numerics import keys

# Operation by operation these would compile hundreds of small programs.
deviations = jax.jit(by_hand, static_argnums=1)
propose = jax.jit(hoff.propose, static_argnums=3)
log_accept = jax.jit(hoff.log_accept, static_argnums=0)


pytestmark = pytest.mark.usefixtures("float64")


def cosine_cdf(m, kappa):
    """P(e <= x) by fine quadrature in the angle, where the density is smooth."""
    edge = min(np.pi, 14 / np.sqrt(max(kappa, 1e-3)))
    angle = np.linspace(0, edge, 200_001)
    log_density = -kappa * (1 - np.cos(angle)) + (m - 2) * np.log(np.maximum(np.sin(angle), 1e-300))
    density = np.exp(log_density - log_density.max())
    total = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    return lambda e: np.interp(np.arccos(1 - np.minimum(e, 2.0)), angle, total / total[-1])


@pytest.mark.parametrize("m", [2, 3, 4, 9, 60])
@pytest.mark.parametrize("kappa", [0.0, 0.4, 12.0, 900.0])
def test_deviations_have_their_distribution(m, kappa):
    e = np.asarray(deviations(keys.from_seed(m), m, jnp.full(100_000, kappa)))
    assert stats.kstest(e, cosine_cdf(m, kappa)).pvalue > 1e-5


@pytest.mark.parametrize("m", [2, 3, 10])
def test_very_concentrated_directions_keep_their_digits(m):
    """kappa e tends to a Gamma((m-1)/2, 1) variable."""
    kappa = 1e10
    e = np.asarray(deviations(keys.from_seed(m), m, jnp.full(100_000, kappa)))
    assert stats.kstest(kappa * e, stats.gamma((m - 1) / 2).cdf).pvalue > 1e-5


def test_a_direction_in_one_dimension_is_a_sign():
    e = np.asarray(deviations(keys.from_seed(0), 1, jnp.full(100_000, 0.7)))
    assert set(np.unique(e)) == {0.0, 2.0}
    near = np.mean(e == 0)
    expected = 1 / (1 + np.exp(-1.4))
    assert abs(near - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 1e5)


def frame(d, p, seed=0):
    return jnp.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0])


@pytest.mark.parametrize(("d", "p"), [(2, 1), (2, 2), (3, 2), (3, 3), (5, 3), (4, 4), (500, 2)])
def test_proposals_are_frames(d, p):
    G, kappa = frame(d, p), jnp.linspace(8.0, 1.0, p)
    proposals = propose(keys.from_seed(1), G, kappa, 200)
    gram = jnp.einsum("nij,nik->njk", proposals.frames, proposals.frames)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(p), gram.shape), atol=1e-14)
    overlap = np.einsum("nij,ir->njr", proposals.frames, G)
    taken = np.sum(overlap**2 * np.triu(np.ones((p, p)), 1), axis=1)
    np.testing.assert_allclose(proposals.taken, taken, atol=1e-13)
    log_a = log_accept(d, kappa, proposals.taken)
    assert (log_a <= 1e-12).all()


@pytest.mark.parametrize(
    ("d", "kappa"), [(2, (3.0, 1.0)), (3, (12.0, 6.0)), (3, (1.0, 5.0)), (6, (4.0, 4.0))]
)
def test_share_accepted_is_z_over_the_envelope(d, kappa):
    """Z(kappa) = D(kappa) P(accepted), and the accepted frames' mean is known."""
    G, kappa, N = frame(d, 2), jnp.array(kappa), 200_000
    proposals = propose(keys.from_seed(2), G, kappa, N)
    a = np.exp(np.asarray(log_accept(d, kappa, proposals.taken)))
    expected = float(jnp.exp(log_normaliser(kappa, d) - hoff.log_envelope(d, kappa)))
    assert abs(a.mean() - expected) < 4.5 * a.std() / np.sqrt(N)
    # Weighted by a, proposals follow the matrix Langevin distribution.
    diagonal = np.einsum("nij,ij->nj", proposals.frames, G)
    mean = (a[:, None] * diagonal).sum(0) / a.sum()
    exact = np.asarray(jax.grad(log_normaliser)(kappa, d))
    error = np.sqrt((a[:, None] ** 2 * (diagonal - mean) ** 2).sum(0)) / a.sum()
    assert (np.abs(mean - exact) < 4.5 * error).all()
    # Without the weights they do not.
    plain = diagonal.mean(0)
    assert (np.abs(plain - exact) > 4.5 * diagonal.std(0) / np.sqrt(N)).any()


def test_first_column_is_von_mises_fisher():
    G, kappa, N = jnp.eye(4)[:, :1], jnp.array([5.0]), 100_000
    x = np.asarray(propose(keys.from_seed(3), G, kappa, N).frames)[:, :, 0]
    assert abs(x[:, 0].mean() - float(bessel_ratio(4, kappa[0]))) < 4.5 * x[:, 0].std() / N**0.5
    assert (np.abs(x[:, 1:].mean(0)) < 4.5 * x[:, 1:].std(0) / N**0.5).all()
    assert float(hoff.log_envelope(4, kappa)) == float(log_h(4, kappa[0]))


def test_a_mean_direction_that_is_used_up_leaves_a_uniform_column():
    """G_2 = G_1: what is left of it may vanish; the column is then uniform, and never NaN."""
    G = jnp.stack([jnp.eye(3)[0], jnp.eye(3)[0]], axis=1)
    x = propose(keys.from_seed(4), G, jnp.array([1e12, 5.0]), 1000)
    assert np.isfinite(x.frames).all()
    np.testing.assert_allclose(jnp.sum(x.frames[:, :, 0] * x.frames[:, :, 1], 1), 0.0, atol=1e-14)
