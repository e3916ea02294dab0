"""What every transform of a channel is: an increasing function with an inverse and a slope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

import numpy as np

from offcut.errors import ModelError
from offcut.regions.arrays import namespace


class Transform(ABC):
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

    @abstractmethod
    def __call__(self, x: Any) -> Any:
        """From the instrument's scale to the transformed one."""

    @abstractmethod
    def inverse(self, y: Any) -> Any:
        """From the transformed scale to the instrument's."""

    @abstractmethod
    def log_derivative(self, x: Any) -> Any:
        """log |dy/dx| at ``x``, a point on the instrument's scale."""


def as_numbers(x: Any) -> tuple[Any, ModuleType]:
    """An array and the library to calculate with; what is not JAX's becomes NumPy's float64."""
    xp = namespace(x)
    return (x if xp is not np else np.asarray(x, dtype=float)), xp


def require(fine: bool, transform: Transform, expected: str) -> None:
    """Refuse parameters for which the transform is no increasing function."""
    if not fine:
        raise ModelError(f"{transform!r} is no scale for a channel: {expected}")
