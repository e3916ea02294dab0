"""The yardstick: a sweep of the truncated Dirichlet process mixture in plain NumPy.

Blocked Gibbs (Ishwaran & James 2001) with the rejections of Algorithm 1, the process on the latent
weights, no splits and merges. Written as one would write it: no loop over events, labels by
cumulative sums, statistics by ``bincount``, arrays reused in place where that costs nothing. Log
densities come in two ways: a component at a time, and, faster, as one product with quadratic
features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Base(NamedTuple):
    mean: np.ndarray
    strength: float
    degrees: float
    scale: np.ndarray


class State(NamedTuple):
    weights: np.ndarray  # (K,)
    means: np.ndarray  # (K, d)
    roots: np.ndarray  # (K, d, d), lower triangular


def base_of(x: np.ndarray) -> Base:
    """Scaled to the data, as Offcut's own."""
    d = x.shape[1]
    return Base(x.mean(0), 0.3, d + 4.0, np.cov(x, rowvar=False))


def sweep(
    rng: np.random.Generator,
    phi: np.ndarray,
    base: Base,
    alpha: float,
    lower: np.ndarray,
    upper: np.ndarray,
    state: State,
    by_component: bool = False,
) -> tuple[State, int]:
    """The next state, and |Y|.

    ``phi`` is ``features(x)``, computed once. ``by_component`` takes log densities of one component
    after the other from x itself, as most people do (scikit-learn among them), and not from a
    product of features.
    """
    K, d = state.means.shape
    y, y_label = draw_rejected(rng, len(phi), lower, upper, state)
    x = phi[:, -d - 1 : -1]
    terms = log_terms(x, state) if by_component else phi @ coefficients(state).T
    label = draw_labels(rng, terms)
    totals = totals_by_label(label, phi, K) + totals_by_label(y_label, features(y), K)
    counts, sums, outer = moments(totals, len(lower))
    weights = draw_weights(rng, counts, alpha)
    return State(weights, *draw_components(rng, base, counts, sums, outer)), len(y)


def features(x: np.ndarray) -> np.ndarray:
    """x_i x_j for i <= j, x_i, 1: a normal log density is linear in them."""
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([x[:, first] * x[:, second], x, np.ones((len(x), 1))], axis=1)


def draw_rejected(
    rng: np.random.Generator, n: int, lower: np.ndarray, upper: np.ndarray, state: State
) -> tuple[np.ndarray, np.ndarray]:
    """Propose from the mixture until n are accepted: what was rejected on the way, with labels."""
    cumulative = np.cumsum(state.weights)
    points, labels = [], []
    missing, rate = n, 0.5
    while missing:
        size = int(1.05 * missing / rate) + 16
        label = np.searchsorted(cumulative, rng.random(size) * cumulative[-1])
        noise = rng.standard_normal((size, len(lower)))
        y = state.means[label] + np.matmul(state.roots[label], noise[:, :, None])[:, :, 0]
        inside = ((y > lower) & (y < upper)).all(1)
        accepted = np.flatnonzero(inside)
        if len(accepted) >= missing:  # what comes behind the last acceptance is dropped
            last = accepted[missing - 1]
            y, label, inside = y[:last], label[:last], inside[:last]
        points.append(y[~inside])
        labels.append(label[~inside])
        missing -= min(len(accepted), missing)
        rate = max(len(accepted) / size, 1e-3)
    return np.concatenate(points), np.concatenate(labels)


def coefficients(state: State) -> np.ndarray:
    """(K, features): log omega_k + log N(x; mu_k, Sigma_k) up to a constant is its product."""
    inverse = np.linalg.inv(state.roots)
    precision = np.einsum("kji,kjl->kil", inverse, inverse)
    whitened = np.einsum("kij,kj->ki", inverse, state.means)
    first, second = np.triu_indices(state.means.shape[1])
    quadratic = np.where(first == second, -0.5, -1.0) * precision[:, first, second]
    linear = np.einsum("kij,kj->ki", precision, state.means)
    constant = (
        np.log(np.maximum(state.weights, 1e-300))
        - 0.5 * (whitened**2).sum(1)
        - np.log(np.diagonal(state.roots, axis1=1, axis2=2)).sum(1)
    )
    return np.concatenate([quadratic, linear, constant[:, None]], axis=1)


def log_terms(x: np.ndarray, state: State) -> np.ndarray:
    """log omega_k + log N(x; mu_k, Sigma_k) up to a constant, (n, K), a component at a time."""
    inverse = np.linalg.inv(state.roots)
    constant = np.log(np.maximum(state.weights, 1e-300))
    constant -= np.log(np.diagonal(state.roots, axis1=1, axis2=2)).sum(1)
    terms = np.empty((len(x), len(state.means)))
    for k, root in enumerate(inverse):
        whitened = x @ root.T - root @ state.means[k]
        terms[:, k] = constant[k] - 0.5 * np.square(whitened).sum(1)
    return terms


def draw_labels(rng: np.random.Generator, terms: np.ndarray) -> np.ndarray:
    """One label for each row of log terms, by cumulative sums; ``terms`` is overwritten."""
    terms -= terms.max(1, keepdims=True)
    np.exp(terms, out=terms)
    cumulative = np.cumsum(terms, axis=1, out=terms)
    target = rng.random(len(terms)) * cumulative[:, -1]
    return (cumulative > target[:, None]).argmax(1)


def totals_by_label(label: np.ndarray, phi: np.ndarray, K: int) -> np.ndarray:
    """(K, features): sums over the points with each label."""
    return np.stack([np.bincount(label, column, K) for column in phi.T], axis=1)


def moments(totals: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts, sums and sums of outer products."""
    first, second = np.triu_indices(d)
    outer = np.zeros((len(totals), d, d))
    outer[:, first, second] = outer[:, second, first] = totals[:, : len(first)]
    return totals[:, -1], totals[:, len(first) : -1], outer


def draw_weights(rng: np.random.Generator, counts: np.ndarray, alpha: float) -> np.ndarray:
    """Sticks given counts."""
    behind = np.cumsum(counts[::-1])[::-1] - counts
    sticks = np.append(rng.beta(1.0 + counts[:-1], alpha + behind[:-1]), 1.0)
    return sticks * np.append(1.0, np.cumprod(1.0 - sticks[:-1]))


def draw_components(
    rng: np.random.Generator, base: Base, counts: np.ndarray, sums: np.ndarray, outer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normal-inverse-Wishart draws given the points of each: means, and roots of covariances."""
    K, d = sums.shape
    strength, degrees = base.strength + counts, base.degrees + counts
    means = (base.strength * base.mean + sums) / strength[:, None]
    centre = sums / np.maximum(counts, 1)[:, None]
    away = centre - base.mean
    shrink = base.strength * counts / strength
    Psi = base.scale + outer - np.einsum("ki,kj->kij", sums, centre)
    Psi += np.einsum("k,ki,kj->kij", shrink, away, away)
    # Bartlett: Sigma = L A⁻ᵀ A⁻¹ Lᵀ with A upper triangular.
    A = np.triu(rng.standard_normal((K, d, d)), 1)
    A[:, range(d), range(d)] = np.sqrt(rng.chisquare(degrees[:, None] - np.arange(d)[::-1]))
    roots = np.linalg.cholesky(Psi) @ np.linalg.inv(A).transpose(0, 2, 1)
    noise = np.einsum("kij,kj->ki", roots, rng.standard_normal((K, d)))
    return means + noise / np.sqrt(strength)[:, None], roots
