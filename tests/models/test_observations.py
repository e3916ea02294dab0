"""From what a user has to what the engine takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut.samplers.choice import observe

X = np.linspace(0.1, 2.0, 7)


def observed(model: offcut.RejectionModel, data: Any, covariates: Any = None) -> tuple:
    with jax.enable_x64(True):
        return observe(model, data, covariates)


def scalar() -> offcut.RejectionModel:
    return offcut.truncated(
        {"loc": dist.Normal(0.0, 1.0)},
        lambda theta, *c: dist.Normal(theta["loc"], 1.0),
        lambda x, *c: x > 0,
    )


def structured(like: Any) -> offcut.RejectionModel:
    """A model whose points look like ``like``."""

    def propose(key: jax.Array, theta: dict) -> Any:
        return jax.tree.map(lambda example: jax.random.normal(key, example.shape), like)

    return offcut.RejectionModel(
        {"loc": dist.Normal(0.0, 1.0)},
        propose,
        log_proposal=lambda theta, y: -(theta["loc"] ** 2),
        log_accept=lambda theta, y: jnp.array(-0.1),
    )


@pytest.mark.parametrize(
    "data",
    [
        X,
        list(X),
        X.astype(object),
        np.ma.array(X, mask=False),
        X.astype(np.longdouble),
        jnp.asarray(X),
    ],
)
def test_whatever_holds_numbers_becomes_one_array(data: Any) -> None:
    arrays, layout, named = observed(scalar(), data)
    assert arrays.n == 7
    assert not layout.has_covariates
    assert list(named) == ["x"]
    assert named["x"].dtype == np.float64
    assert np.allclose(named["x"], X, rtol=1e-6)
    assert arrays.points.shape[0] % layout.chunk == 0


def test_padding_repeats_an_observation() -> None:
    """Padded rows are points where everything is finite."""
    arrays, layout, _ = observed(scalar(), X, {"dose": X + 1})
    points, dose = np.asarray(arrays.points), np.asarray(arrays.covariates[0]["dose"])
    assert np.array_equal(points[:7], X)
    assert np.all(points[7:] == X[0])
    assert np.all(dose[7:] == X[0] + 1)
    assert layout.has_covariates


@pytest.mark.parametrize("integers", [np.arange(1, 8), np.arange(1, 8) > 3, list(range(1, 8))])
def test_integers_for_a_continuous_model(integers: Any) -> None:
    _, _, named = observed(scalar(), integers)
    assert named["x"].dtype == np.float64
    assert np.array_equal(named["x"], integers)


def test_whole_floats_for_a_count_model() -> None:
    model = offcut.truncated(
        {"rate": dist.Gamma(2.0, 1.0)}, lambda theta: dist.Poisson(theta["rate"]), lambda x: x > 0
    )
    _, _, named = observed(model, [1.0, 2.0, 3.0])
    assert named["x"].dtype.kind == "i"
    assert np.array_equal(named["x"], [1, 2, 3])


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (X, ["x"]),
        ({"mass": X, "place": np.ones((7, 3))}, ["mass", "place"]),
        ((X, X + 1), ["x_0", "x_1"]),
        (Pair(X, np.ones((7, 2))), ["x_0", "x_1"]),
        ({"a": {"v": X}, "b": {"v": X + 1}}, ["a_v", "b_v"]),
    ],
)
def test_every_leaf_has_its_name_in_the_result(data: Any, names: list[str]) -> None:
    _, _, named = observed(structured(jax.tree.map(lambda a: a[0], data)), data)
    assert sorted(named) == names
    for array, leaf in zip(named.values(), jax.tree.leaves(data), strict=True):
        assert np.array_equal(array, leaf)


def test_covariates_never_replace_the_data() -> None:
    """A covariate called x is common."""
    _, _, named = observed(scalar(), X, {"x": X + 5, "z": X})
    assert sorted(named) == ["covariate_x", "x", "z"]
    assert np.array_equal(named["x"], X)
    assert np.array_equal(named["covariate_x"], X + 5)
    assert list(observed(scalar(), X, X + 5)[2]) == ["x", "covariate"]
