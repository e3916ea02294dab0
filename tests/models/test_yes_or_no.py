"""Windows and zones say yes or no; a probability is neither."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut.errors import ModelError
from offcut.regions import Box, Predicate
from offcut.samplers.choice import prepare

#: Calls are wrong on purpose; our own messages answer, not the check of types.
pytestmark = pytest.mark.usefixtures("unchecked")

X = np.array([0.3, 0.7, 1.2, 0.4])


def model(inside, **options):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=inside,
        **options,
    )


def only_at_proposals(x):
    """Yes at all data, a probability of the rest."""
    return jnp.where(x > 0, 1.0, 0.5)


VAGUE = {
    "probability": jax.nn.sigmoid,
    "log probability": jax.nn.log_sigmoid,
    "NaN": lambda x: x * jnp.nan,
    "only at proposals": only_at_proposals,
    "whole number": lambda x: jnp.where(x > 0, 2, 0),
    "where data are": lambda x: jnp.where(x > 1, 0.3, x > 0),
}


LONG = {"NaN", "log probability", "whole number", "where data are"}


@pytest.mark.parametrize(
    "name", [pytest.param(k, marks=[pytest.mark.calibrate] if k in LONG else []) for k in VAGUE]
)
def test_a_window_that_is_none_is_refused(name):
    vague = model(VAGUE[name])
    with jax.enable_x64(True):
        sampler, arrays, _ = prepare(vague, X, None, offcut.NUTS())
        with pytest.raises(ModelError, match=r"inside returned neither yes nor no.*selected"):
            sampler.start(jax.random.key(0), arrays, 10_000)
    with pytest.raises(ModelError, match="neither yes nor no"):
        offcut.augment(0, vague, {"loc": 0.0}, n=20)
    assert not offcut.check(vague, replicates=10).ok


@pytest.mark.calibrate
def test_a_window_that_is_none_is_seen_in_the_run():
    """The first proposals are all above -2.5, later ones are not."""
    seldom = model(lambda x: jnp.where(x > -2.5, x > 0, 0.5))
    with pytest.raises(ModelError, match="neither yes nor no"):
        offcut.sample(seldom, X, kernel=offcut.HMC(0.3, 3), draws=3000, chains=1, progress=False)


@pytest.mark.calibrate
def test_booleans_and_exact_numbers_are_the_same_window():
    windows = Box(0, np.inf), lambda x: jnp.where(x > 0, 1.0, 0.0)
    first, second = (
        offcut.sample(model(window), X, draws=20, warmup=10, chains=1, progress=False)
        for window in windows
    )
    assert np.array_equal(first["posterior"]["loc"].values, second["posterior"]["loc"].values)


def test_functions_in_regions_say_yes_or_no():
    for vague in (jax.nn.sigmoid, lambda y: y * np.nan):
        window = Box(-5, 5) & Predicate(vague)
        with pytest.raises(ModelError, match=r"yes or no.*selected"):
            window(0.3)
        with pytest.raises(ModelError, match=r"a number \(float"):
            jax.vmap(window)(jnp.asarray(X))
        with pytest.raises(ModelError, match="yes or no"):
            offcut.sample(offcut.TruncatedMixture(region=vague), X, progress=False)
    assert Predicate(lambda y: 1.0 if y > 0 else 0.0)(0.3)
    assert not Predicate(lambda y: 0)(0.3)


def test_zones_say_yes_or_no():
    for zone in (jax.nn.sigmoid, lambda y: y * jnp.nan, lambda y: jnp.where(y < 0, 0.5, y > 1)):
        with pytest.raises(ModelError, match=r"zone of censored= returned .* yes or no"):
            prepare(model(lambda x: x > -9, censored=zone), X, None, None)
    prepare(model(lambda x: x > -9, censored=lambda y: y > 1), X, None, None)
    prepare(model(lambda x: x > -9, censored=lambda y: jnp.where(y > 1, 1.0, 0.0)), X, None, None)
