"""Units do not matter: rescaling, shifting or reflecting a column changes the Jacobian only.

All that a sampler knows of the data is its plan and its arrays, in coordinates of the box. If these
are the same, so are the draws; what stands for the units beside them scales along. Powers of two
make that exact; other numbers, shifts and reflections leave rounding.
"""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

import offcut

RNG = np.random.default_rng(0)
LINE = RNG.gamma(3.0, size=(25, 1))
# Mean and deviation of the second column do not fit those of the first, as with raw scatter.
PLANE = RNG.normal([3.0, 1.0], [1.0, 0.4], size=(25, 2))
#: What has units, and what the power of the unit is, for each coordinate.
UNITS = ("centre", "half", "unit", "volume", "rate")
SCALE = 2.0**-14


def prepared(model, x):
    found = model._prepared_from(x, x.shape[1] == 1)
    arrays = {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found.data._asdict())
        if not any(f"'{name}'" in jax.tree_util.keystr(path) for name in UNITS)
    }
    return found.plan.key, arrays, found


MODELS = {
    "line": (lambda a, b: offcut.GPDensity(), LINE),
    "line, side": (lambda a, b: offcut.GPDensity(support=(b, None), basis=12), LINE),
    "line, exact": (lambda a, b: offcut.GPDensity(basis=None), LINE),
    "plane": (lambda a, b: offcut.GPDensity(), PLANE),
    "plane, additive": (lambda a, b: offcut.GPDensity(additive=True), PLANE),
    "events": (lambda a, b: offcut.GPIntensity((b, 30 * a + b), basis=12), LINE),
    "events, guessed": (lambda a, b: offcut.GPIntensity(basis=12), LINE),
    "one event": (lambda a, b: offcut.GPIntensity((b, 30 * a + b), basis=12), LINE[:1]),
    "no events": (lambda a, b: offcut.GPIntensity((b, 30 * a + b), basis=12), LINE[:0]),
}


@pytest.mark.parametrize("name", MODELS)
def test_rescaling_a_column_changes_nothing(name):
    make, x = MODELS[name]
    scale = SCALE
    columns = np.ones(x.shape[1])
    columns[-1] = scale
    plan, arrays, was = prepared(make(1.0, 0.0), x)
    new_plan, new_arrays, now = prepared(make(scale, 0.0), x * columns)
    assert new_plan == plan
    for key, value in arrays.items():
        # The mass of the prior's Psi is that of a matrix product: rounding, no more.
        np.testing.assert_allclose(new_arrays[key], value, rtol=1e-12, atol=1e-14, err_msg=key)
    half, unit, volume, a, b = (
        np.asarray(v)
        for v in (was.data.half, was.data.unit, was.data.volume, was.data.rate[0], was.data.rate[1])
    )
    np.testing.assert_allclose(now.data.half, half * columns, rtol=1e-14)
    np.testing.assert_allclose(now.data.unit, unit * columns, rtol=1e-14)
    if "event" in name:
        np.testing.assert_allclose(now.data.volume, volume * scale)
        np.testing.assert_allclose(np.asarray(now.data.rate), [a, b * scale])


@pytest.mark.parametrize("name", MODELS)
def test_shifting_changes_nothing_but_rounding(name):
    make, x = MODELS[name]
    if len(x) == 1:
        return
    plan, arrays, was = prepared(make(1.0, 0.0), x)
    new_plan, new_arrays, now = prepared(make(1.0, 1000.0), x + 1000.0)
    assert new_plan == plan
    for key, value in arrays.items():
        np.testing.assert_allclose(new_arrays[key], value, rtol=1e-8, atol=1e-10, err_msg=key)
    np.testing.assert_allclose(now.data.half, was.data.half)


@pytest.mark.parametrize("name", ["line", "plane", "events, guessed"])
def test_reflecting_reflects(name):
    make, x = MODELS[name]
    plan, _, was = prepared(make(1.0, 0.0), x)
    new_plan, _, now = prepared(make(1.0, 0.0), -x)
    assert new_plan == plan
    np.testing.assert_allclose(now.data.x, -np.asarray(was.data.x), atol=1e-12)
    np.testing.assert_allclose(now.data.half, was.data.half)
    np.testing.assert_allclose(now.data.centre, -np.asarray(was.data.centre))


def test_a_column_that_is_constant_up_to_rounding_has_a_scale():
    x = np.stack([PLANE[:, 0], 0.1 + np.spacing(0.1) * RNG.integers(0, 4, 25)], axis=1)
    _, arrays, _ = prepared(offcut.GPDensity(), x)
    assert all(np.isfinite(value).all() for key, value in arrays.items() if "support" not in key)
    assert np.linalg.eigvalsh(arrays["['base'].scale"]).min() > 0


@pytest.mark.calibrate
@pytest.mark.parametrize("method", ["augment", "collapsed"])
def test_log_densities_differ_by_the_jacobian(method):
    """The same seed, a column 16,384 times smaller: the same draws."""
    model = offcut.GPDensity(basis=(6, 5))
    run = {"draws": 40, "warmup": 40, "chains": 2, "progress": False}
    found = []
    for scale in (1.0, SCALE):
        columns = np.array([1.0, scale])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = offcut.sample(model, PLANE * columns, method=method, **run)
        found.append(model.score_samples(posterior, PLANE * columns) + np.log(scale))
    np.testing.assert_allclose(*found, atol=1e-6)
