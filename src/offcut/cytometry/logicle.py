"""The logicle scale: linear around zero, logarithmic far from it.

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

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from offcut.cytometry.scale import Transform, as_numbers, require

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

    def __call__(self, x: Any) -> Any:
        """The root of the equation, by Newton's method."""
        b, d, k, alpha, zero = _coefficients(self)
        x, xp = as_numbers(x)
        size = abs(x) / alpha

        def newton(_: int, u: Any) -> Any:
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

    def inverse(self, y: Any) -> Any:
        """The equation as it stands."""
        b, d, k, alpha, zero = _coefficients(self)
        y, xp = as_numbers(y)
        u = abs(y - zero)
        return xp.sign(y - zero) * alpha * (xp.expm1(b * u) - k * xp.expm1(-d * u))

    def log_derivative(self, x: Any) -> Any:
        """Minus the logarithm of dx/dy, at the place of ``x``."""
        b, d, k, alpha, zero = _coefficients(self)
        x, xp = as_numbers(x)
        u = abs(self(x) - zero)
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
