"""Poisson numbers have their distribution, at small means and at large ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from offcut.numerics import keys
from offcut.numerics.poisson import poisson
from statistical.truth import FALSE_ALARM

DRAWS = 20_000
MEANS = np.array([0.0, 1e-9, 0.3, 9.9, 10.0, 40.0, 3e3, 3e7])


@pytest.fixture(scope="module")
def drawn():
    with jax.enable_x64(True):
        means = jnp.asarray(np.repeat(MEANS, DRAWS))
        numbers = jax.jit(poisson)(keys.from_seed(1), means)
        return np.asarray(numbers).reshape(len(MEANS), DRAWS)


def p_value(numbers, mean):
    """Chi-squared, over about forty sets of neighbouring numbers."""
    law = stats.poisson(mean)
    edges = np.unique(law.ppf(np.linspace(0, 1, 41)[1:-1]))
    expected = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]])) * len(numbers)
    found = np.bincount(np.searchsorted(edges, numbers), minlength=len(expected))
    enough = expected > 5
    others = [found[~enough].sum()], [expected[~enough].sum()]
    found, expected = np.append(found[enough], others[0]), np.append(expected[enough], others[1])
    kept = expected > 0
    assert found[~kept].sum() == 0
    statistic = np.sum((found[kept] - expected[kept]) ** 2 / expected[kept])
    return stats.chi2.sf(statistic, max(kept.sum() - 1, 1))


@pytest.mark.statistical
@pytest.mark.parametrize("place", range(2, len(MEANS)), ids=lambda place: f"{MEANS[place]:g}")
def test_numbers_have_their_distribution(drawn, place):
    assert p_value(drawn[place], MEANS[place]) > FALSE_ALARM
    # A mean that is off by a tenth of a standard deviation is seen.
    assert p_value(drawn[place], MEANS[place] + 0.1 * np.sqrt(MEANS[place])) < FALSE_ALARM


def test_nothing_comes_of_a_mean_of_zero(drawn):
    assert (drawn[:2] == 0).all()
