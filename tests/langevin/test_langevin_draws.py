"""Exact draws of frames: every full conditional has its distribution, at 1e-5 with 10⁵ draws.

Given the other columns, column r of X ~ etr(FᵀX) is von Mises-Fisher among the directions that
they leave, and in a square matrix a pair of columns has an angle that is von Mises in one of two
orientations. So the distribution function of what is left to chance, at the draw, is uniform and
independent of the rest. Conditionals of all columns (pairs) together determine the distribution.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from offcut import MatrixLangevin
from offcut.langevin import draws, proposals
from offcut.langevin.distribution import _by_gibbs, _by_rejection
from offcut.numerics import keys
from statistical.truth import FALSE_ALARM

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("float64")]

N = 100_000
SHAPES = {
    (2, 1): (3.0,),
    (3, 2): (12.0, 6.0),
    (3, 3): (4.0, 3.0, 1.0),
    (5, 3): (10.0, 5.0, 1.0),
    (10, 3): (20.0, 9.0, 9.0),
    (10, 10): tuple(40.0 * 0.5 ** np.arange(10)),
}


def parameter(d, kappa, seed=1):
    rng = np.random.default_rng(seed)
    G = np.linalg.qr(rng.normal(size=(d, len(kappa))))[0]
    H = np.linalg.qr(rng.normal(size=(len(kappa), len(kappa))))[0]
    return G * np.array(kappa) @ H.T


def cosine_distribution(m, kappa, t, nodes=48):
    """P(T <= t) for the cosine T in R^m, by quadrature in the angle (m >= 2), for arrays."""
    node, weight = np.polynomial.legendre.leggauss(nodes)
    # The density in the angle is exp(-kappa (1 - cos)) sin^(m-2), at most a few widths wide.
    far = np.minimum(np.pi, 12.0 / np.sqrt(np.maximum(kappa, 1e-9)) + 0.5 * np.sqrt(m))
    far = np.minimum(far, np.pi)

    def mass(upper):
        angle = 0.5 * upper[:, None] * (1.0 + node)
        log_density = -kappa[:, None] * (1 - np.cos(angle))
        density = np.exp(log_density) * np.sin(angle) ** (m - 2)
        return 0.5 * upper * (density @ weight)

    angle = np.arccos(np.clip(t, -1, 1))
    return 1.0 - mass(np.minimum(angle, far)) / mass(far)


def column_scores(x, F, r):
    """A uniform variable for column r given the others, and what it must not depend on."""
    _, d, p = x.shape
    others = np.delete(x, r, axis=2)
    left = F[:, r] - np.einsum("nij,nkj,k->ni", others, others, F[:, r])
    kappa = np.linalg.norm(left, axis=1)
    t = np.einsum("ni,ni->n", x[:, :, r], left) / kappa
    return cosine_distribution(d - p + 1, kappa, t), kappa


def pair_scores(x, F, i, j):
    """The same for columns i, j of a square matrix; and z of the number of reflections.

    The pair is B Q, B a fixed basis of the plane that the other columns leave and Q in O(2).
    """
    U = np.linalg.svd(np.delete(x, (i, j), axis=2))[0][:, :, -2:]  # does not depend on the pair
    A = np.einsum("nia,ib->nab", U, F[:, [i, j]])
    Q = np.einsum("nia,nib->nab", U, x[:, :, [i, j]])
    reflected = np.linalg.det(Q) < 0
    sign = np.where(reflected, -1.0, 1.0)
    even, odd = A[:, 0, 0] + sign * A[:, 1, 1], A[:, 1, 0] - sign * A[:, 0, 1]
    size = np.hypot(even, odd)
    angle = np.arctan2(Q[:, 1, 0], Q[:, 0, 0]) - np.arctan2(odd, even)
    angle = np.mod(angle + np.pi, 2 * np.pi) - np.pi
    score = stats.vonmises.cdf(angle, size)
    sizes = [np.hypot(A[:, 0, 0] + s * A[:, 1, 1], A[:, 1, 0] - s * A[:, 0, 1]) for s in (1, -1)]
    log_odds = np.log(special.ive(0, sizes[1]) / special.ive(0, sizes[0])) + sizes[1] - sizes[0]
    share = special.expit(log_odds)
    z = np.sum(reflected - share) / np.sqrt(np.sum(share * (1 - share)) + 1e-12)
    return score, size, z


def smallest_p_value(x, F):
    """Over all conditionals, uniform as a whole and in both halves of what they depend on."""
    d, p = F.shape
    p_values = []
    scores = []
    if d > p:
        scores = [column_scores(x, F, r) for r in range(p)]
    else:
        for i, j in ((0, 1), (p - 2, p - 1), (0, p - 1)):
            score, size, z = pair_scores(x, F, i, j)
            scores.append((score, size))
            p_values.append(2 * stats.norm.sf(abs(z)))
    for score, other in scores:
        low = other < np.median(other)
        parts = [score, score[low], score[~low]] if low.any() else [score]
        p_values += [stats.kstest(part, "uniform").pvalue for part in parts]
    return min(1.0, min(p_values) * len(p_values))


def some(*shapes):
    """Shapes for make test; the others are for make calibrate."""
    return [s if s in shapes else pytest.param(s, marks=pytest.mark.calibrate) for s in SHAPES]


@pytest.mark.parametrize("shape", some((2, 1), (3, 2), (5, 3)))
def test_draws_have_all_their_conditional_distributions(shape):
    F = parameter(shape[0], SHAPES[shape])
    x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(3), (N,)))
    np.testing.assert_allclose(
        np.einsum("nij,nik->njk", x, x),
        np.broadcast_to(np.eye(shape[1]), (N, *2 * shape[1:])),
        atol=1e-12,
    )
    assert smallest_p_value(x, F) > FALSE_ALARM


@pytest.mark.parametrize("shape", some((3, 2))[1:4])
def test_proposals_that_nobody_judges_are_caught(shape):
    """Negative control: Hoff's proposals without the acceptance step."""
    F = parameter(shape[0], SHAPES[shape])
    U, kappa, Vt = np.linalg.svd(F, full_matrices=False)
    drawn = jax.jit(proposals.propose, static_argnums=3)(keys.from_seed(3), U, kappa, N)
    assert smallest_p_value(np.asarray(drawn.frames) @ Vt, F) < FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("shape", [(3, 2), (3, 3), (5, 3)])
def test_gibbs_sweeps_agree_with_exact_draws(shape):
    """Moments of long Gibbs runs and of independent draws: E X and E tr(FᵀX)²."""
    F = parameter(shape[0], SHAPES[shape])
    exact = np.asarray(_by_rejection(keys.from_seed(4), F, jnp.int32(N), room=1 << 17))[:N]
    chains = np.asarray(_by_gibbs(keys.from_seed(5), jnp.asarray(F), count=20_000, sweeps=60))
    for statistic in (
        lambda x: x.reshape(len(x), -1),
        lambda x: np.einsum("nij,ij->n", x, F)[:, None] ** np.array([1, 2]),
    ):
        a, b = statistic(exact), statistic(chains)
        error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
        assert (np.abs(a.mean(0) - b.mean(0)) < 5.0 * error).all()


@pytest.mark.calibrate
def test_a_step_of_the_gibbs_sampler_leaves_exact_draws_alone():
    """Square matrices move in pairs of columns. The negative control's F is 5% too large."""
    F = parameter(4, (3.0, 2.0, 1.0, 0.5))
    x = _by_rejection(keys.from_seed(6), F, jnp.int32(N), room=1 << 17)[:N]
    sweep = jax.jit(draws.columns.sweep)
    moved = np.asarray(sweep(keys.from_seed(7), jnp.asarray(F), x))
    assert smallest_p_value(moved, F) > FALSE_ALARM
    wrong = np.asarray(sweep(keys.from_seed(7), jnp.asarray(1.05 * F), x))
    assert smallest_p_value(wrong, F) < FALSE_ALARM


def test_very_concentrated_frames():
    """kappa of 1e5 and 1e7, as for G given ten thousand frames: deviations are normal."""
    kappa = np.array([1e7, 1e5])
    F = np.vstack([np.diag(kappa), np.zeros((1, 2))])
    x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(8), (N,)))
    # x = exp(tangent): x31 ~ N(0, 1/k1), x32 ~ N(0, 1/k2), x21 = -x12 ~ N(0, 1/(k1 + k2)).
    for entry, precision in ((x[:, 2, 0], 1e7), (x[:, 2, 1], 1e5), (x[:, 1, 0], 1.01e7)):
        assert stats.kstest(entry * np.sqrt(precision), "norm").pvalue > FALSE_ALARM
    # Frames of 10 by 3, by Hoff's proposals
    kappa = np.array([3e6, 2e5, 1e5])
    F = np.vstack([np.diag(kappa), np.zeros((7, 3))])
    x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(9), (N,)))
    for entry, precision in ((x[:, 5, 1], 2e5), (x[:, 2, 1], 3e5), (x[:, 9, 2], 1e5)):
        assert stats.kstest(entry * np.sqrt(precision), "norm").pvalue > FALSE_ALARM


def test_hopeless_cases_are_said_to_be_approximate():
    F = 30.0 * np.eye(10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(1), (300,)))
    assert ["Gibbs sweeps" in str(w.message) for w in caught] == [True]
    assert np.allclose(np.einsum("nij,nik->njk", x, x), np.eye(10), atol=1e-10)
    assert smallest_p_value(x, F) > FALSE_ALARM
