"""Numbers as text: short for messages, as code for reprs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

#: Arrays larger than this are described in a repr, not written out.
MOST_WRITTEN = 30


def shown(value: Any, digits: int = 6) -> str:
    """A short rendering of a pytree of numbers for messages."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v, digits)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(shown(v, digits) for v in value) + ")"
    return np.array2string(np.asarray(value), precision=digits, threshold=8, separator=", ")


def written(array: Any) -> str:
    """The array as code, without the .0 of whole numbers."""
    if isinstance(array, jax.core.Tracer):
        return f"<traced{list(array.shape) or ''}>"
    if array.size > MOST_WRITTEN:
        return f"<array of shape {array.shape}>"
    if array.ndim:
        return "[" + ", ".join(written(part) for part in array) + "]"
    return repr(float(array) + 0.0).removesuffix(".0")  # + 0.0 takes the sign off -0.0
