"""Models drawn at random against quadrature: what no list of cases would have thought of.

Hypothesis draws family, window, covariates, censoring, noise, kernel and n (``random_models``).
Every run of 16 chains is compared with the posterior that SciPy gives. False alarms: 1e-5 for all
models of a test together, whatever their number.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import offcut
from offcut.augmentation import joint
from offcut.errors import ModelError
from statistical.random_models import KERNELS, Spec, model_and_data, posterior_grid, specs
from statistical.truth import FALSE_ALARM, moments

pytestmark = pytest.mark.statistical

RUN = {"chains": 16, "draws": 600, "warmup": 300, "progress": False}
#: t, t^2, s, s^2, t s.
MOST_MOMENTS = 5
SHARDS, MODELS_IN_SHARD = 10, 20
#: Where the dozen is drawn: 8 families and 6 kernels; a model with one observation and one whose
#: support moves are among the first three, so that the negative controls end soon.
DOZEN = 31


def compared(spec: Spec) -> dict[str, float]:
    """p-values of one model."""
    grid = posterior_grid(spec)
    model, x, covariates = model_and_data(spec)
    posterior = offcut.sample(
        model, x, covariates=covariates, **KERNELS[spec.kernel], seed=spec.seed, **RUN
    )
    if spec.spread in ("number", "delta"):
        np.testing.assert_array_equal(posterior["posterior"]["s"], 1.0)
    return moments(posterior, grid, spec.names)


def compare(count: int, start: int, total: int | None = None, **fixed) -> None:
    """Draw ``count`` models and compare each; ``total``: models that share the false-alarm rate."""
    false_alarm = FALSE_ALARM / (MOST_MOMENTS * (total or count))

    @seed(start)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(specs(**fixed))
    def every_model(spec: Spec) -> None:
        results = compared(spec)
        wrong = {name: p for name, p in results.items() if not p > false_alarm}
        assert not wrong, f"disagrees with quadrature: {wrong}"

    every_model()


def test_a_dozen_models():
    compare(12, DOZEN)


@pytest.mark.calibrate
@pytest.mark.parametrize("shard", range(SHARDS))
def test_two_hundred_models(shard):
    compare(MODELS_IN_SHARD, 100 + shard, total=SHARDS * MODELS_IN_SHARD)


def test_the_dozen_finds_an_observation_that_is_left_out(monkeypatch):
    """The negative control: every sum goes to the last but one."""
    counted = joint.total

    def one_less(point, theta, rows, count, *arguments, **options):
        return counted(point, theta, rows, jnp.maximum(count - 1, 0), *arguments, **options)

    monkeypatch.setattr(joint, "total", one_less)
    with pytest.raises(AssertionError, match="disagrees with quadrature"):
        compare(12, DOZEN)


def test_the_dozen_finds_starts_where_data_are_impossible(monkeypatch):
    """Uniform(0, b): a chain is shaken to b below a datum, and stays there or says so."""
    monkeypatch.setattr("offcut.samplers.start.is_possible", lambda *_: jnp.array(True))
    with pytest.raises((AssertionError, ModelError), match=r"disagrees|not finite at theta"):
        compare(12, DOZEN)
