"""How little is compiled: few programs for a first run, none for data of another number."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from conftest import assert_same_draws
from offcut.errors import TrustWarning
from offcut.gp import proposals
from offcut.numerics.arrays import bucket

RUN = {"draws": 12, "warmup": 12, "chains": 2, "progress": False}
LINE = np.random.default_rng(0).uniform(0.05, 0.95, 75)
PLANE = np.random.default_rng(1).normal(size=(75, 2))
FIXED = {"length_scale": 0.5, "variance": 1.0}


def quiet(model, x, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        return offcut.sample(model, x, **{**RUN, **more})


def family():
    return offcut.GPDensity(
        lambda theta: dist.Laplace(theta["loc"], 1.0),
        prior={"loc": dist.Normal(0.0, 0.5)},
        basis=6,
        **FIXED,
    )


#: Models, data, more of the run.
MODELS = {
    "density": (lambda: offcut.GPDensity(basis=6), LINE, {}),
    "intensity": (lambda: offcut.GPIntensity((0, 1), basis=6), LINE, {}),
    "joint moves": (lambda: offcut.GPDensity(basis=6, **FIXED), LINE, {}),
    "family": (family, LINE, {}),
    "collapsed": (lambda: offcut.GPDensity(basis=6), LINE, {"method": "collapsed"}),
    "plane": (lambda: offcut.GPDensity(basis=(4, 3)), PLANE, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_draws_do_not_depend_on_the_room_for_data(name, monkeypatch):
    make, x, more = MODELS[name]
    first = quiet(make(), x, **more)
    monkeypatch.setattr(proposals, "bucket", lambda count: bucket(count) + 3)
    assert proposals.Layout.of(len(x)).rows == 64 * 5
    assert_same_draws(first, quiet(make(), x, **more))
