"""Numbers of a region: constants that NumPy checks and hashes, or traced values that JAX carries.

A constant stays in NumPy's float64 and is compared there, unless the point is a JAX array: outside
Offcut's own float64 JAX would round it to float32.
"""

from __future__ import annotations

from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.errors import ModelError

#: Arrays larger than this are described in a repr, not written out.
MOST_WRITTEN = 30


def is_traced(*values: Any) -> bool:
    """Whether any value, or part of one, is known only when the compiled program runs."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def namespace(*values: Any) -> ModuleType:
    """jax.numpy where any of the arrays is JAX's, else numpy."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def parameter(value: Any, name: str, missing: float | None = None, rank: int = 1) -> Any:
    """A read-only float array of at most ``rank`` axes; ``missing`` takes the place of None."""
    if missing is not None:
        value = _filled(value, missing)
    array: Any
    if is_traced(value):
        array = jnp.asarray(value)
    else:
        try:
            array = np.array(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{name} must be a number or an array of numbers: {error}") from error
        array.flags.writeable = False  # it is hashed
        if np.isnan(array).any():
            raise ModelError(f"{name} has NaN: {written(array)}; use None or inf for no limit")
    if array.ndim > rank:
        expected = ("a number", "a number or a vector", "a matrix")[rank]
        raise ModelError(f"{name} must be {expected}, got an array of shape {array.shape}")
    return array


def _filled(value: Any, missing: float) -> Any:
    if value is None:
        return missing
    if isinstance(value, list | tuple):
        return [_filled(part, missing) for part in value]
    return value


def common_length(**arrays: Any) -> int | None:
    """The length that all vectors among the named arrays share; None where all are numbers."""
    lengths = {name: array.shape[0] for name, array in arrays.items() if array.ndim}
    if len(set(lengths.values())) > 1:
        said = " and ".join(f"{name} {length}" for name, length in lengths.items())
        raise ModelError(f"one entry for each coordinate, or a number for all: got {said} entries")
    length = next(iter(lengths.values()), None)
    if length == 0:
        raise ModelError(f"{' and '.join(lengths)} must have at least one coordinate")
    return length


def identity(array: Any) -> Hashable:
    """What two parameters must share to be the same: their numbers, or being one traced value."""
    if isinstance(array, jax.core.Tracer):
        return ("traced", id(array))
    return (array.shape, tuple(array.ravel().tolist()))


def written(array: Any) -> str:
    """The array as code, without the .0 of whole numbers."""
    if isinstance(array, jax.core.Tracer):
        return f"<traced{list(array.shape) or ''}>"
    if array.size > MOST_WRITTEN:
        return f"<array of shape {array.shape}>"
    if array.ndim:
        return "[" + ", ".join(written(part) for part in array) + "]"
    return repr(float(array) + 0.0).removesuffix(".0")  # + 0.0 takes the sign off -0.0
