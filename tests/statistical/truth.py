"""Exact answers by quadrature, and the tests that compare runs with them.

Every assertion has a false-alarm rate of 1e-5: a t-test over independent chains (16 or more).
"""

from __future__ import annotations

import warnings

import jax
import numpy as np
from numpy.polynomial.legendre import leggauss
from numpyro import infer
from scipy import stats

FALSE_ALARM = 1e-5


def panels(low, high, nodes, order=40):
    """Gauss-Legendre nodes and weights on equal panels."""
    node, weight = leggauss(order)
    edges = np.linspace(low, high, max(1, nodes // order) + 1)
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[:-1] + edges[1:])[:, None]
    return (middle + half * node).ravel(), (half * weight).ravel()


class Grid:
    """A posterior on a product grid with Gauss-Legendre weights."""

    def __init__(self, log_density, **bounds):
        """``log_density(**coordinates)`` broadcasts; ``bounds`` are (low, high, nodes)."""
        axes, weights = [], []
        for low, high, nodes in bounds.values():
            node, weight = panels(low, high, nodes)
            axes.append(node)
            weights.append(weight)
        mesh = np.meshgrid(*axes, indexing="ij")
        self.values = dict(zip(bounds, mesh, strict=True))
        measure = np.ones(())
        for weight in weights:
            measure = np.multiply.outer(measure, weight)
        log_p = log_density(**self.values)
        p = np.exp(log_p - log_p.max()) * measure
        self.probability = p / p.sum()

    def mean(self, values):
        return float(np.sum(self.probability * values))

    def tilted(self, factor):
        """The grid with its probabilities multiplied by ``factor``; and the mean of the factor."""
        tilted = Grid.__new__(Grid)
        tilted.values = self.values
        c = float(np.sum(self.probability * factor))
        tilted.probability = self.probability * factor / c
        return tilted, c

    def total_variation(self, other):
        return 0.5 * float(np.abs(self.probability - other.probability).sum())


def p_value(series, truth):
    """Two-sided p-value of a t-test over the means of independent chains (chain, draw)."""
    means = np.asarray(series, float).mean(axis=1)
    assert len(means) >= 16, "a t-test over chains needs at least 16 of them"
    error = means.std(ddof=1) / np.sqrt(len(means))
    return float(2 * stats.t.sf(abs(means.mean() - truth) / error, len(means) - 1))


def moments(posterior, grid, names):
    """p-values for mean, square and pairwise products of the named parameters."""
    results = {}
    draws = {name: posterior["posterior"][name].values for name in names}
    for i, name in enumerate(names):
        results[name] = p_value(draws[name], grid.mean(grid.values[name]))
        results[f"{name}^2"] = p_value(draws[name] ** 2, grid.mean(grid.values[name] ** 2))
        for other in names[:i]:
            product = draws[name] * draws[other]
            truth = grid.mean(grid.values[name] * grid.values[other])
            results[f"{name}*{other}"] = p_value(product, truth)
    return results


def assert_agrees(posterior, grid, names):
    """The run has the grid's moments, at a false-alarm rate of 1e-5 for each test."""
    results = moments(posterior, grid, names)
    wrong = {name: p for name, p in results.items() if p < FALSE_ALARM}
    assert not wrong, f"disagrees with quadrature: {wrong}"


def assert_disagrees(posterior, grid, names):
    """A negative control is caught by the very test that the right one passes."""
    results = moments(posterior, grid, names)
    assert min(results.values()) < FALSE_ALARM, f"not caught: {results}"


def run_numpyro(model):
    """Draws of NumPyro's NUTS, (chain, draw, ...), 16 chains."""
    with jax.enable_x64(True):
        mcmc = infer.MCMC(
            infer.NUTS(model),
            num_warmup=500,
            num_samples=1500,
            num_chains=16,
            chain_method="vectorized",
            progress_bar=False,
        )
        quiet(mcmc.run, jax.random.key(0))
        return {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}


def quiet(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)
