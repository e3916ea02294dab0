"""The trap: a weak prior on a truncated normal, a long run, a small error bar, a wrong answer.

As loc falls and scale grows with it, a normal above zero becomes an exponential distribution, which
data that look half-normal do not exclude. So a vague prior leaves a ridge in the posterior where
fewer and fewer proposals pass, down to 1 in 10^20. A chain moves there by tiny steps and a budget
keeps it away: the run reports the part that it can reach. It must say so.
"""

from __future__ import annotations

import warnings

import pytest

import offcut
from checks.test_unvisited import above_zero, data, posterior_grid
from offcut.errors import TrustWarning

pytestmark = [pytest.mark.statistical, pytest.mark.calibrate]

N = 60
HMC = offcut.HMC(num_steps=8)
WEAK, INFORMATIVE = (100.0, 1.5), (0.5, 0.1)  # of loc and of log scale


def long_run(model, x, kernel, chains=1):
    """30,000 sweeps, which warn of all that their summary finds."""
    run = {"chains": chains, "draws": 30_000 // chains, "seed": 1, "progress": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = offcut.sample(model, x, kernel=kernel, **run)
    said = [str(w.message) for w in caught if issubclass(w.category, TrustWarning)]
    assert said == offcut.summary(posterior).trouble  # nobody needs to ask for it
    return posterior


def errors(posterior, grid):
    """By how many of its own error bars each mean is wrong."""
    table = offcut.summary(posterior).table
    return {k: (row["mean"] - grid.mean(grid.values[k])) / row["mcse"] for k, row in table.items()}


@pytest.fixture(scope="module")
def weak():
    """Three data sets, one chain or four, two kernels."""
    model = above_zero(*WEAK)
    runs = []
    for seed, kernel, chains in ((0, HMC, 1), (1, HMC, 4), (2, offcut.NUTS(), 1)):
        x = data(0.5, seed, N)
        runs.append((long_run(model, x, kernel, chains), posterior_grid(x, *WEAK)))
    return runs


def test_the_truth_does_not_depend_on_the_grid():
    x = data(0.5, 2, N)
    coarse, fine = posterior_grid(x, *WEAK), posterior_grid(x, *WEAK, finer=2)
    for name in ("loc", "scale"):
        assert coarse.mean(coarse.values[name]) == pytest.approx(
            fine.mean(fine.values[name]), rel=1e-6
        )


def test_runs_with_a_weak_prior_are_wrong_and_say_so(weak):
    for posterior, grid in weak:
        assert max(map(abs, errors(posterior, grid).values())) > 5  # the trap is real
        trouble = offcut.summary(posterior).trouble
        assert trouble[0].startswith("The posterior goes on where the run has not been")


def test_the_summary_says_what_may_help(weak):
    for posterior, _ in weak:
        said = str(offcut.summary(posterior))
        assert "What may help:" in said
        assert "offcut.prior_acceptance(model)" in said
        assert 'method="exchange"' in said
        assert posterior.attrs["missing_information"] > 0.9


@pytest.mark.calibrate
def test_an_informative_prior_is_right_and_silent():
    """The healthy control: the same data and sweeps."""
    model = above_zero(*INFORMATIVE)
    x = data(0.5, 0, N)
    posterior = long_run(model, x, offcut.NUTS())
    report = offcut.summary(posterior)
    assert report.trouble == []
    assert report.advice == []
    assert max(map(abs, errors(posterior, posterior_grid(x, *INFORMATIVE)).values())) < 5
