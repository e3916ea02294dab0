"""What examples in docstrings begin with, in place of the same dozen lines in each of them.

An example of a picture draws ``posterior``, and says in a line which one that is. Here it is made:
one for the pictures of each kind of model, by the module's name. (Run by ``make check``:
``pytest --doctest-modules src/offcut``.)
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import offcut

os.environ.setdefault("OFFCUT_CACHE", "off")  # not the cache of whoever runs them
SHORT = {"draws": 50, "warmup": 50, "chains": 2}


@cache
def truncated_normal() -> dict[str, Any]:
    """Five positive numbers, and the normal distribution that they are left of."""
    model = offcut.truncated(
        prior={"loc": dist.Normal(0, 1)},
        base=lambda theta: dist.Normal(theta["loc"], 1),
        inside=lambda x: x > 0,
    )
    x, kernel = np.array([0.1, 0.5, 0.7, 1.2, 2.0]), offcut.HMC(0.3, 5)
    posterior = offcut.sample(model, x, kernel=kernel, budget=500, **SHORT)
    return {"model": model, "x": x, "posterior": posterior}


@cache
def smooth_density() -> dict[str, Any]:
    """A hundred positive numbers, and their density."""
    model = offcut.GPDensity(length_scale=1.0, variance=1.0)
    x = np.random.default_rng(0).gamma(3.0, size=100)
    posterior = offcut.sample(model, x, method="collapsed", **SHORT)
    return {"model": model, "x": x, "posterior": posterior}


@cache
def pairs_of_directions() -> dict[str, Any]:
    """Fifty frames of two columns in space, with a posterior that is made up."""
    random = np.random.default_rng(0)
    x = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(50, 3, 2))).Q
    G = np.linalg.qr(np.eye(3, 2) + 0.05 * random.normal(size=(4, 100, 3, 2))).Q
    kappa = np.random.default_rng(0).gamma(40, [0.3, 0.15], (4, 100, 2))
    variables = {
        "G": (("chain", "draw", "row", "column"), G),
        "kappa": (("chain", "draw", "column"), kappa),
    }
    observed = xr.Dataset({"x": (("n", "row", "column"), x)})
    tree = {"posterior": xr.Dataset(variables), "observed_data": observed}
    return {"x": x, "posterior": xr.DataTree.from_dict(tree)}


GIVEN = {
    "offcut.plots.rejection_models": truncated_normal,
    "offcut.plots.gp_models": smooth_density,
    "offcut.plots.langevin_models": pairs_of_directions,
}


@pytest.fixture(autouse=True)
def names_of_the_example(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """What the example's module has in ``GIVEN``."""
    for module, given in GIVEN.items():
        if request.node.name.startswith(module):
            doctest_namespace.update(given(), offcut=offcut)
