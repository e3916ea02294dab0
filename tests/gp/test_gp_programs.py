"""How little is compiled: few programs for a first run, none for data of another number."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from compiling import compiled_programs
from conftest import assert_same_draws
from offcut.errors import TrustWarning
from offcut.gp import proposals
from offcut.numerics.arrays import bucket
from offcut.programs import cache
from offcut.samplers.choice import prepare

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


#: Programs of a first run: a start, sweeps; of a family also the limits of its support, and what is
#: measured after the run.
COUNTS = {"density": 2, "intensity": 2, "joint moves": 2, "family": 4, "collapsed": 2, "plane": 2}


@pytest.mark.parametrize("name", ["density", "intensity", "family"])
def test_a_first_run_compiles_few_programs_and_another_number_none(name, monkeypatch):
    make, x, more = MODELS[name]
    monkeypatch.setattr(cache, "CACHE", type(cache.CACHE)())
    prepare(make(), x[:70])  # what making a prior compiles is not counted here
    monkeypatch.setattr(cache, "CACHE", type(cache.CACHE)())
    with compiled_programs() as first:
        quiet(make(), x[:70], **more)
    assert len(first) == COUNTS[name]
    with compiled_programs() as others:
        quiet(make(), x[:70], **more)
        quiet(make(), x[:66], **more)
        quiet(make(), x, **more, draws=15, warmup=9, chains=3)
    assert others == []


def test_another_room_is_another_program():
    """The count above would see it."""
    make, x, more = MODELS["joint moves"]
    quiet(make(), x, **more)
    with compiled_programs() as found:
        quiet(make(), x[:60], **more)
    assert len(found) == 2


@pytest.mark.parametrize("n", [1, 60, 64, 65, 300, 999, 1000, 5000, 100_000])
def test_room_is_a_quarter_more_at_the_most(n):
    layout = proposals.Layout.of(n)
    assert n <= layout.rows <= max(1.25 * n, n + 63)
    same = proposals.Layout.of(max(n - n // 100, 1))
    assert same == layout or (same.rows, same.lanes) != (layout.rows, layout.lanes)
