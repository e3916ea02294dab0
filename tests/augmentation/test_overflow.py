"""Numbers that a float cannot hold end a run and name theta; nothing is cut to the nearest float.

A Pareto with an exponent of 0.002 has every fourth draw beyond 1e308. Such a draw, as infinity,
once made the next conjugate draw 0; cut to 2e-308, the chain stayed there for good.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut.errors import ModelError
from offcut.regions import Box
from offcut.samplers.conjugacy.univariate import draw_gamma

RUN = {"chains": 1, "draws": 20, "warmup": 10, "progress": False, "seed": 1}
X = np.array([3.0, 10.0, 200.0])


@cache
def heavy(window, covariates=False):
    return offcut.truncated(
        prior={"alpha": dist.Gamma(50.0, 25_000.0)},  # 0.002
        base=(lambda t, c: dist.Pareto(1.0, t["alpha"]))
        if covariates
        else (lambda t: dist.Pareto(1.0, t["alpha"])),
        inside=(lambda x, c: x < window[1]) if covariates else Box(*window),
    )


CASES = [
    ({"kernel": offcut.Conjugate()}, (1, 1000), False, "a sum over data and rejections"),
    ({"kernel": offcut.HMC()}, (1, 1000), False, "log density of data and rejections"),
    ({"method": "exchange"}, (2, np.inf), False, "log density of pseudo-data"),
]
LONGER = [
    ({"kernel": offcut.NUTS()}, (1, 1000), False, "log density of data and rejections"),
    ({"kernel": offcut.RandomWalk()}, (1, 1000), True, "log density of data and rejections"),
    ({"kernel": offcut.HMC()}, (1, 1000), True, "log density of data and rejections"),
    ({"kernel": offcut.Conjugate()}, (1, 1000), True, "a sum over data and rejections"),
]


@pytest.mark.parametrize(
    ("how", "window", "covariates", "said"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.calibrate) for case in LONGER)],
)
def test_proposals_that_overflow_end_the_run(how, window, covariates, said):
    options = {"covariates": np.zeros(3)} if covariates else {}
    with pytest.raises(ModelError, match=rf"{said}.* not finite at theta=\{{'alpha': 0.00"):
        offcut.sample(heavy(window, covariates), X, **how, **options, **RUN)


@pytest.mark.calibrate
def test_only_the_number_of_proposals_counts_for_the_pseudo_marginal_sampler():
    method = offcut.PseudoMarginal(acceptances=3)
    posterior = offcut.sample(heavy((1, 1000)), X, method=method, **RUN)
    assert np.isfinite(posterior["posterior"]["alpha"].values).all()


@pytest.mark.calibrate
def test_proposals_that_round_to_zero_end_the_run():
    """NumPyro writes 2e-308 where a beta variable rounds to 0."""
    model = offcut.truncated(
        prior={"r": dist.Gamma(50.0, 25_000.0)},
        base=lambda t: dist.Beta(t["r"], 1.0),
        inside=Box(0.1, 1.0),
    )
    with pytest.raises(ModelError, match=r"not finite at theta=\{'r': 0.00"):
        offcut.sample(model, X / 300 + 0.2, kernel=offcut.Conjugate(), **RUN)


def test_a_conjugate_draw_is_not_cut(float64):
    drawn = np.asarray(draw_gamma(jax.random.key(1), jnp.full(1000, 0.002), jnp.array(1.0)))
    assert np.mean(drawn == 0) > 0.1  # P(phi < 1e-308) = 0.24
    assert np.mean((drawn > 0) & (drawn <= np.finfo(float).tiny)) < 0.1


@pytest.mark.calibrate
def test_heavy_tails_that_floats_hold_are_sampled():
    """An exponent of 0.2: proposals of 1e60 and more, and a posterior as by quadrature."""
    from statistical.truth import Grid, assert_agrees

    model = offcut.truncated(
        prior={"alpha": dist.Gamma(20.0, 100.0)},
        base=lambda t: dist.Pareto(1.0, t["alpha"]),
        inside=Box(1, 1000),
    )
    grid = Grid(
        lambda alpha: (
            22 * np.log(alpha)
            - alpha * (100 + np.log(X).sum())
            - 3 * np.log(-np.expm1(-alpha * np.log(1000)))
        ),
        alpha=(1e-3, 1.0, 800),
    )
    run = RUN | {"chains": 16, "draws": 1000, "warmup": 200}
    for kernel in (offcut.Conjugate(), offcut.HMC()):
        posterior = offcut.sample(model, X, kernel=kernel, **run)
        assert_agrees(posterior, grid, ["alpha"])


@pytest.mark.calibrate
def test_a_process_with_a_heavy_base_says_so():
    model = offcut.GPDensity(
        lambda t: dist.Pareto(1.0, t["alpha"]),
        prior={"alpha": dist.Gamma(50.0, 25_000.0)},
        basis=8,
        length_scale=50.0,
        variance=1.0,
        joint_moves=False,
    )
    with pytest.raises(ModelError, match=r"not finite at theta=\{'alpha': 0.00"):
        offcut.sample(model, X, **RUN)
