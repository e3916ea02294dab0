"""Scales for a channel, from the instrument's to one on which populations look like normal ones.

Each is an increasing function with an inverse and a slope, and all but one are formulas. The
logicle scale, linear around zero and logarithmic far from it, has one for its inverse only.

Parks, Roederer & Moore, Cytometry A 69:541 (2006), with the parameters of Moore & Parks,
Cytometry A 81:273 (2012), which are those of Gating-ML 2.0. With

    b = (M + A) ln 10,   w = W / (M + A),   y_1 = (A + W) / (M + A),
    d the root of 2 (ln d - ln b) + w (d + b) = 0,

the data value x at the place y = y_1 + u of the scale, for u >= 0, is

    x = alpha (e^{bu} - 1 - k (e^{-du} - 1)),   k = (b / d)^2,

with alpha such that x = T at y = 1; values below zero are the mirror image. Both terms have the
sign of u, so nothing cancels near zero. (The papers write a e^{by} - c e^{-dy} - f: the same
function, with alpha = a e^{b y_1} and k alpha = c e^{-d y_1}.)

The root y of this equation for given x has no formula. In u >= 0 the right-hand side is increasing
and convex, so Newton's method started above the root comes down to it and never leaves the bracket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from offcut.errors import DataError, ModelError
from offcut.tables.columns import place_of

#: Of the library that calculates: NumPy's, or JAX's inside of ``jit``.
Numbers = np.ndarray | np.floating | jax.Array


class Transform:
    """An increasing function of one channel, for arrays of any shape.

    Works on NumPy arrays in float64 and, with ``jax.numpy``, inside ``jax.jit`` and ``jax.vmap``.

    Examples
    --------
    A density on the transformed scale, carried back to the instrument's:

    >>> from offcut.cytometry import Asinh
    >>> scale, x = Asinh(150), 300.0
    >>> log_density = -0.5 * scale(x) ** 2 + scale.log_derivative(x)
    >>> round(float(log_density), 6)
    -6.857396
    """

    #: Whether it is a straight line, so that flat faces of a window stay flat.
    is_linear = False

    def __call__(self, x: ArrayLike) -> Numbers:
        """From the instrument's scale to the transformed one."""
        return self._forward(*_as_numbers(x))

    def inverse(self, y: ArrayLike) -> Numbers:
        """From the transformed scale to the instrument's."""
        return self._inverse(*_as_numbers(y))

    def log_derivative(self, x: ArrayLike) -> Numbers:
        """log |dy/dx| at ``x``, a point on the instrument's scale."""
        return self._log_derivative(*_as_numbers(x))

    # The formulas, with ``xp`` for NumPy or ``jax.numpy``.

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        raise NotImplementedError

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        raise NotImplementedError

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        raise NotImplementedError


def _as_numbers(x: ArrayLike) -> tuple[Numbers, ModuleType]:
    """An array and the library to calculate with; what is not JAX's becomes NumPy's float64."""
    return (x, jnp) if isinstance(x, jax.Array) else (np.asarray(x, dtype=float), np)


def require(fine: bool, transform: Transform, expected: str) -> None:
    """Refuse parameters for which the transform is no increasing function."""
    if not fine:
        raise ModelError(f"{transform!r} is no scale for a channel: {expected}")


#: Newton steps. Seven reach 1e-13 for all parameters that are allowed and |x| up to 1e7.
STEPS = 10


class _Coefficients(NamedTuple):
    b: float
    d: float
    k: float
    alpha: float
    zero: float  # y_1, where data are zero


@dataclass(frozen=True)
class Logicle(Transform):
    """The logicle scale: ``top`` is at 1, zero at ``(negative + width) / (decades + negative)``.

    Parameters
    ----------
    top : number
        T, the data value at the upper end of the scale.
    width : number
        W, the decades of the part around zero that is nearly linear; at most half of ``decades``.
    decades : number
        M, the decades that the logarithmic part would have on its own.
    negative : number
        A, additional decades for values below zero; from ``-width`` to ``decades - 2 width``.

    Examples
    --------
    >>> from offcut.cytometry import Logicle
    >>> scale = Logicle(top=262144, width=0.5, decades=4.5, negative=0)
    >>> scale([-100.0, 0.0, 1000.0, 262144.0]).round(6)
    array([0.009041, 0.111111, 0.454338, 1.      ])
    >>> scale.inverse(scale([-100.0, 1000.0])).round(6)
    array([-100., 1000.])
    """

    top: float = 262144.0
    width: float = 0.5
    decades: float = 4.5
    negative: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.top, self.width, self.decades, self.negative)
        require(bool(np.isfinite(numbers).all()), self, "all four parameters must be finite")
        require(self.top > 0 and self.decades > 0, self, "top and decades must be positive")
        require(0 <= 2 * self.width <= self.decades, self, "width is from 0 to decades / 2")
        require(
            -self.width <= self.negative <= self.decades - 2 * self.width,
            self,
            "negative is from -width to decades - 2 width",
        )

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        b, d, k, alpha, zero = _coefficients(self)
        size = xp.abs(x) / alpha

        def newton(_: int | jax.Array, u: Numbers) -> Numbers:
            excess = xp.expm1(b * u) - k * xp.expm1(-d * u) - size
            return u - excess / (b * xp.exp(b * u) + k * d * xp.exp(-d * u))

        # Leaving out the second term, and the chord's slope at zero: both are above the root.
        u = xp.minimum(xp.log1p(size) / b, size / (b + k * d))
        if xp is np:
            for step in range(STEPS):
                u = newton(step, u)
        else:
            u = jax.lax.fori_loop(0, STEPS, newton, u)
        return zero + xp.sign(x) * u

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        b, d, k, alpha, zero = _coefficients(self)
        u = xp.abs(y - zero)
        return xp.sign(y - zero) * alpha * (xp.expm1(b * u) - k * xp.expm1(-d * u))

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        b, d, k, alpha, zero = _coefficients(self)
        u = xp.abs(self._forward(x, xp) - zero)
        return -xp.log(alpha * (b * xp.exp(b * u) + k * d * xp.exp(-d * u)))


@lru_cache(maxsize=64)
def _coefficients(scale: Logicle) -> _Coefficients:
    from scipy.special import lambertw

    whole = scale.decades + scale.negative
    b, w = whole * np.log(10.0), scale.width / whole
    zero = (scale.negative + scale.width) / whole
    # The equation for d is (wd/2) e^{wd/2} = (wb/2) e^{-wb/2}.
    half = w * b / 2
    d = b if half == 0 else 2 / w * float(lambertw(half * np.exp(-half)).real)
    k = (b / d) ** 2
    alpha = scale.top / (np.expm1(b * (1 - zero)) - k * np.expm1(-d * (1 - zero)))
    return _Coefficients(float(b), float(d), float(k), float(alpha), float(zero))


@dataclass(frozen=True)
class Identity(Transform):
    """The instrument's scale itself.

    Examples
    --------
    >>> from offcut.cytometry import Identity
    >>> Identity()(3.0), Identity().log_derivative(3.0)
    (array(3.), array(0.))
    """

    is_linear = True

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        return x

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        return y

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        return xp.zeros_like(x)


@dataclass(frozen=True)
class Linear(Transform):
    """y = scale x + offset.

    Parameters
    ----------
    scale : number
        Positive.
    offset : number

    Examples
    --------
    >>> from offcut.cytometry import Linear
    >>> Linear(1 / 1024)([0.0, 512.0, 1024.0])
    array([0. , 0.5, 1. ])
    """

    scale: float
    offset: float = 0.0

    is_linear = True

    def __post_init__(self) -> None:
        require(0 < self.scale < np.inf, self, "its slope must be positive and finite")
        require(bool(np.isfinite(self.offset)), self, "its offset must be finite")

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        return self.scale * x + self.offset

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        return (y - self.offset) / self.scale

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        return xp.full_like(x, float(np.log(self.scale)), dtype=float)


@dataclass(frozen=True)
class Asinh(Transform):
    """y = asinh(x / cofactor): linear up to about the cofactor, logarithmic beyond.

    Parameters
    ----------
    cofactor : number
        Positive; about 150 is common for fluorescence, 5 for mass cytometry.

    Examples
    --------
    >>> from offcut.cytometry import Asinh
    >>> Asinh(150)([-150.0, 0.0, 15000.0]).round(6)
    array([-0.881374,  0.      ,  5.298342])
    """

    cofactor: float = 150.0

    def __post_init__(self) -> None:
        require(0 < self.cofactor < np.inf, self, "its cofactor must be positive and finite")

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        return xp.arcsinh(x / self.cofactor)

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        return self.cofactor * xp.sinh(y)

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        return -xp.log(xp.hypot(x, self.cofactor * xp.ones_like(x, dtype=float)))


@dataclass(frozen=True)
class Log(Transform):
    """y = 1 + log10(x / top) / decades, for positive values: ``flog`` of Gating-ML 2.0.

    Minus infinity at 0, NaN below.

    Parameters
    ----------
    top : number
        The value at 1.
    decades : number
        How many of them lie between 0 and 1.

    Examples
    --------
    >>> from offcut.cytometry import Log
    >>> Log(top=10000, decades=4)([1.0, 100.0, 10000.0])
    array([0. , 0.5, 1. ])
    """

    top: float = 262144.0
    decades: float = 4.5

    def __post_init__(self) -> None:
        fine = 0 < self.top < np.inf and 0 < self.decades < np.inf
        require(fine, self, "top and decades must be positive and finite")

    def _forward(self, x: Numbers, xp: ModuleType) -> Numbers:
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 + xp.log10(x / self.top) / self.decades

    def _inverse(self, y: Numbers, xp: ModuleType) -> Numbers:
        return self.top * xp.power(10.0, self.decades * (y - 1))

    def _log_derivative(self, x: Numbers, xp: ModuleType) -> Numbers:
        with np.errstate(divide="ignore", invalid="ignore"):
            return -xp.log(x * float(self.decades * np.log(10.0)))


def as_transforms(transform: object, channels: Sequence[str]) -> tuple[Transform, ...]:
    """One for each channel, from None, one, a sequence, or a dict by channel."""
    if transform is None:
        transform = Identity()
    if isinstance(transform, Transform):
        return (transform,) * len(channels)
    given: list[object] = [transform]
    if isinstance(transform, Mapping):
        given = [Identity()] * len(channels)
        for name, one in transform.items():
            given[place_of(name, [channels], "a transform is for a channel not chosen")] = one
    elif isinstance(transform, list | tuple):
        given = list(transform)
    found = tuple(one for one in given if isinstance(one, Transform))
    if not len(found) == len(given) == len(channels):
        raise DataError(
            f"transform must be one of Identity, Linear, Asinh, Log, Logicle for all "
            f"{len(channels)} channels, a list with one for each, or a dict by channel; got "
            f"{transform!r}"
        )
    return found
