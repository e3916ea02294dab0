"""Scales for channels: inverse, slope, JAX, and the published logicle."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offcut.cytometry import Asinh, Identity, Linear, Log, Logicle, Transform
from offcut.errors import ModelError

LOGICLES = [
    Logicle(),
    Logicle(262144, 0.0, 4.5, 0.0),
    Logicle(262144, 1.0, 4.5, 0.5),
    Logicle(10000, 1.0, 4.0, -0.5),
    Logicle(1000, 0.25, 4.0, 1.0),
    Logicle(262144, 2.25, 4.5, 0.0),
]
EVERYWHERE: list[Transform] = [Identity(), Linear(0.5, -3.0), Asinh(150), Asinh(5), *LOGICLES]
SIZES = np.logspace(-6, 5.4, 300)
VALUES = np.concatenate([-SIZES[::-1], [0.0], SIZES])


def domain(scale: Transform) -> np.ndarray:
    return SIZES if isinstance(scale, Log) else VALUES


@pytest.mark.parametrize("scale", [*EVERYWHERE, Log(), Log(1e4, 4)], ids=repr)
class TestEveryScale:
    def test_inverse(self, scale: Transform) -> None:
        x = domain(scale)
        back = scale.inverse(scale(x))
        # A place on the scale is known to 1e-16; the slope there says what that means for x.
        known = 4e-15 * np.exp(-scale.log_derivative(x))
        assert (abs(back - x) <= known + 1e-12 * abs(x)).all()

    def test_increasing(self, scale: Transform) -> None:
        assert (np.diff(scale(domain(scale))) > 0).all()

    def test_slope(self, scale: Transform) -> None:
        x = domain(scale)[::7]
        step = 1e-4 * np.maximum(abs(x), 1.0 if not isinstance(scale, Log) else 1e-9)
        slope = (scale(x + step) - scale(x - step)) / (2 * step)
        assert np.allclose(np.log(slope), scale.log_derivative(x), atol=1e-5)

    def test_any_shape_and_integers(self, scale: Transform) -> None:
        matrix = np.arange(1, 7).reshape(2, 3)
        assert scale(matrix).shape == (2, 3)
        assert scale(matrix).dtype == np.float64
        assert np.array_equal(scale(matrix)[1], scale([4.0, 5.0, 6.0]))
        assert np.shape(scale.log_derivative(3)) == ()

    def test_equal_hashable_and_readable(self, scale: Transform) -> None:
        again = eval(repr(scale))
        assert again == scale
        assert hash(again) == hash(scale)


COMPILED = [Identity(), Linear(0.5, -3.0), Asinh(150), Log(1e4, 4), Logicle(1000, 0.25, 4.0, 1.0)]


@pytest.mark.parametrize("scale", COMPILED, ids=repr)
def test_inside_jit_and_vmap(scale: Transform) -> None:
    x = domain(scale)[::5]
    with jax.enable_x64(True):
        for name in ("__call__", "inverse", "log_derivative"):
            method = getattr(scale, name)
            argument = scale(x) if name == "inverse" else x
            compiled = jax.jit(jax.vmap(method))(jnp.asarray(argument))
            assert isinstance(compiled, jax.Array)
            assert compiled.dtype == jnp.float64
            assert np.allclose(compiled, method(argument), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scale", LOGICLES, ids=repr)
def test_logicle_solves_the_published_equation(scale: Logicle) -> None:
    """a e^{by} - c e^{-dy} - f = x as printed, for values above zero; mirrored below."""
    T, W, M, A = scale.top, scale.width, scale.decades, scale.negative
    b, w = (M + A) * np.log(10), W / (M + A)
    x2 = A / (M + A)
    x1, x0 = x2 + w, x2 + 2 * w
    low, high = 1e-12, b  # bisection for d
    for _ in range(200):
        d = (low + high) / 2
        low, high = (low, d) if 2 * np.log(d / b) + w * (d + b) > 0 else (d, high)
    ratio = np.exp(x0 * (b + d))
    f = np.exp(b * x1) - ratio * np.exp(-d * x1)
    a = T / (np.exp(b) - f - ratio * np.exp(-d))
    x = np.logspace(0, np.log10(T), 50)
    y = scale(x)
    printed = a * (np.exp(b * y) - ratio * np.exp(-d * y) - f)
    assert np.allclose(printed, x, rtol=1e-10)
    assert np.allclose(scale(-x), 2 * x1 - y, atol=1e-14)
    assert scale(T) == pytest.approx(1.0, abs=1e-14)
    assert scale(0.0) == pytest.approx(x1, abs=1e-15)


def test_logicle_beside_flowkit() -> None:
    flowkit = pytest.importorskip("flowkit", exc_type=ImportError)
    for scale in LOGICLES[:5]:
        theirs = flowkit.transforms.LogicleTransform(
            scale.top, scale.width, scale.decades, scale.negative
        )
        x = VALUES[abs(VALUES) <= scale.top]
        assert np.allclose(theirs.apply(x[:, np.newaxis])[:, 0], scale(x), rtol=0, atol=1e-12)


def test_asinh_and_log_beside_flowkit() -> None:
    flowkit = pytest.importorskip("flowkit", exc_type=ImportError)
    x = VALUES[:, np.newaxis]
    theirs = flowkit.transforms.AsinhTransform(150 * np.sinh(1.0), 1 / np.log(10), 0.0)
    assert np.allclose(theirs.apply(x), Asinh(150)(x), atol=1e-12)
    theirs = flowkit.transforms.LogTransform(1e4, 4.0)
    assert np.allclose(theirs.apply(SIZES[:, np.newaxis])[:, 0], Log(1e4, 4)(SIZES), atol=1e-12)


def test_logarithm_of_what_has_none() -> None:
    assert Log()(0.0) == -np.inf
    assert np.isnan(Log()(-1.0))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Linear(0.0), "slope must be positive"),
        (lambda: Linear(-1.0), "slope must be positive"),
        (lambda: Linear(1.0, np.inf), "offset must be finite"),
        (lambda: Asinh(0), "cofactor must be positive"),
        (lambda: Log(top=-1), "must be positive"),
        (lambda: Logicle(top=0), "top and decades"),
        (lambda: Logicle(width=3.0), "width is from 0"),
        (lambda: Logicle(negative=-1.0), "negative is from"),
        (lambda: Logicle(negative=np.nan), "finite"),
    ],
)
def test_no_scale(make, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make()
