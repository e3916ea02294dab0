"""Scales for a channel, from the instrument's to one on which populations look like normal ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offcut.cytometry.logicle import Logicle
from offcut.cytometry.scale import Transform, as_numbers, require

__all__ = ["Asinh", "Identity", "Linear", "Log", "Logicle", "Transform"]


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

    def __call__(self, x: Any) -> Any:
        """X."""
        return as_numbers(x)[0]

    def inverse(self, y: Any) -> Any:
        """Y."""
        return as_numbers(y)[0]

    def log_derivative(self, x: Any) -> Any:
        """Zero."""
        x, xp = as_numbers(x)
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

    def __call__(self, x: Any) -> Any:
        """Scale x + offset."""
        return self.scale * as_numbers(x)[0] + self.offset

    def inverse(self, y: Any) -> Any:
        """(y - offset) / scale."""
        return (as_numbers(y)[0] - self.offset) / self.scale

    def log_derivative(self, x: Any) -> Any:
        """Log scale, everywhere."""
        x, xp = as_numbers(x)
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

    def __call__(self, x: Any) -> Any:
        """asinh(x / cofactor)."""
        x, xp = as_numbers(x)
        return xp.arcsinh(x / self.cofactor)

    def inverse(self, y: Any) -> Any:
        """Cofactor times sinh y."""
        y, xp = as_numbers(y)
        return self.cofactor * xp.sinh(y)

    def log_derivative(self, x: Any) -> Any:
        """-log sqrt(cofactor^2 + x^2)."""
        x, xp = as_numbers(x)
        return -xp.log(xp.hypot(x, self.cofactor * xp.ones_like(x, dtype=float)))


@dataclass(frozen=True)
class Log(Transform):
    """y = 1 + log10(x / top) / decades, for positive values: ``flog`` of Gating-ML 2.0.

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

    def __call__(self, x: Any) -> Any:
        """1 + log10(x / top) / decades; minus infinity at 0, NaN below."""
        x, xp = as_numbers(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 + xp.log10(x / self.top) / self.decades

    def inverse(self, y: Any) -> Any:
        """Top times 10^(decades (y - 1))."""
        y, xp = as_numbers(y)
        return self.top * xp.power(10.0, self.decades * (y - 1))

    def log_derivative(self, x: Any) -> Any:
        """-log(x decades ln 10)."""
        x, xp = as_numbers(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            return -xp.log(x * float(self.decades * np.log(10.0)))
