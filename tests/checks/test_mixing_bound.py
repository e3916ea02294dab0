"""Theorem 1 against the true second eigenvalue of a small discrete chain."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln, softmax

import offcut
from offcut.errors import SettingsError


def chain(q, a, prior, observed, most=400):
    """Transition matrix of Algorithm 2 with theta drawn exactly, on finite spaces.

    Rows of q and a are values of theta, columns the two points of the space. Y matters only
    through how often each point was rejected.
    """
    n = len(observed)
    miss = q * (1 - a)
    z = (q * a).sum(axis=1)
    first, second = np.meshgrid(np.arange(most), np.arange(most), indexing="ij")
    keep = first + second < most
    first, second = first[keep], second[keep]
    total = first + second
    log_ways = gammaln(n + total) - gammaln(n) - gammaln(first + 1.0) - gammaln(second + 1.0)
    with np.errstate(divide="ignore"):
        log_miss = np.log(miss)
    log_y = log_ways + first * log_miss[:, [0]] + second * log_miss[:, [1]]
    weight = prior * np.prod((q * a)[:, observed], axis=1)
    given_theta = np.exp(log_y + n * np.log(z)[:, None])  # P(Y | theta)
    assert np.all(given_theta.sum(axis=1) > 1 - 1e-9)
    return given_theta @ softmax(np.log(weight)[:, None] + log_y, axis=0).T  # p(theta | X, Y)


def second_eigenvalue(matrix):
    return np.sort(np.abs(np.linalg.eigvals(matrix)))[-2]


def instance(seed, same_bound):
    rng = np.random.default_rng(seed)
    thetas = 4
    q = rng.uniform(0.3, 0.7, size=thetas)
    q = np.stack([q, 1 - q], axis=1)
    if same_bound:  # f = M q a with one M: f is the free choice, a = f / (M q) <= 1
        f = rng.uniform(0.25, 0.35, size=(thetas, 2))
        bound = (f / q).max() * rng.uniform(1.0, 1.4)
        a = f / (bound * q)
    else:
        a = rng.uniform(0.4, 0.95, size=(thetas, 2))
        f, bound = None, None
    observed = rng.integers(0, 2, size=rng.integers(1, 4))
    return q, a, f, bound, rng.dirichlet(np.ones(thetas)), observed


@pytest.mark.parametrize("seed", range(25))
def test_both_forms_bound_the_second_eigenvalue_and_the_sharp_one_is_never_looser(seed):
    q, a, f, _, prior, observed = instance(seed, same_bound=True)
    true = second_eigenvalue(chain(q, a, prior, observed))
    constants = {
        "min_acceptance": ((q * a).sum(axis=1)).min(),
        "f_ratio": f.min() / f.max(),
        "q_ratio": q.min() / q.max(),
        "min_rejection": (1 - a).min(),
    }
    sharp = offcut.mixing_rate_bound(len(observed), **constants)
    paper = offcut.mixing_rate_bound(len(observed), form="paper", **constants)
    assert true <= sharp <= paper < 1


@pytest.mark.parametrize("seed", range(25))
def test_a_bound_that_depends_on_theta_needs_the_varying_form(seed):
    q, a, _, _, prior, observed = instance(seed, same_bound=False)
    true = second_eigenvalue(chain(q, a, prior, observed))
    z = (q * a).sum(axis=1)
    miss = q * (1 - a)
    beta = (miss.min(axis=0) / miss.max(axis=0)).min()
    varying = offcut.mixing_rate_bound(
        len(observed), min_acceptance=z.min(), max_acceptance=z.max(), beta=beta, form="varying"
    )
    assert true <= varying < 1


def test_the_sign_slip_of_the_proof_would_break_the_bound():
    """The proof's last line has (1 - beta)/R - beta; with it some chain mixes slower than claimed.

    With one theta-free proposal accepted everywhere alike the bound is tight enough to show it.
    """
    broken = 0
    for seed in range(400):
        q, a, f, _, prior, observed = instance(seed, same_bound=True)
        z = (q * a).sum(axis=1)
        miss = q * (1 - a)
        beta = (miss.min(axis=0) / miss.max(axis=0)).min()
        wrong = (f.min() / f.max()) / ((1 - beta) / z.min() - beta)
        claimed = 1 - min(max(wrong, 0), 1e9) ** len(observed)
        broken += second_eigenvalue(chain(q, a, prior, observed)) > claimed
    assert broken > 0


def test_limits_and_bad_constants():
    assert offcut.mixing_rate_bound(5, min_acceptance=0.0, f_ratio=0.5) == 1.0
    assert offcut.mixing_rate_bound(5, min_acceptance=0.5, f_ratio=0.0) == 1.0  # truncation
    assert offcut.mixing_rate_bound(1, min_acceptance=1.0, f_ratio=1.0) == 0.0
    with pytest.raises(SettingsError, match="between 0 and 1"):
        offcut.mixing_rate_bound(5, min_acceptance=1.5, f_ratio=0.5)
    with pytest.raises(SettingsError, match="max_acceptance"):
        offcut.mixing_rate_bound(5, min_acceptance=0.5, form="varying")
    with pytest.raises(SettingsError, match='"sharp", "paper" or "varying"'):
        offcut.mixing_rate_bound(5, min_acceptance=0.5, f_ratio=0.5, form="best")
