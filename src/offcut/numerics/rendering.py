"""Numbers as short text, for messages; settings as code, which is what models and regions print.

For people only: identities and checkpoints are made of what a model computes, not of its text.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree

#: Arrays with more numbers are printed by their shape.
MOST_WRITTEN = 30
#: Digits of the numbers in a distribution, which NumPyro may hold in single precision.
DIGITS = 6


def shown(value: PyTree, digits: int = 6) -> str:
    """A short rendering of a pytree of numbers for messages."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v, digits)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(shown(v, digits) for v in value) + ")"
    return np.array2string(np.asarray(value), precision=digits, threshold=8, separator=", ")


def call(name: str, *arguments: object, **settings: object) -> str:
    """A call as code; settings that are None or empty are left out.

    >>> import numpyro.distributions as dist
    >>> call("truncated", call, prior={"loc": dist.Normal(0, 1)}, noise=None)
    "truncated(call, prior={'loc': Normal(0, 1)})"
    """
    given = {key: value for key, value in settings.items() if not _is_empty(value)}
    parts = [*map(written, arguments), *(f"{key}={written(value)}" for key, value in given.items())]
    return f"{name}({', '.join(parts)})"


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, tuple | Mapping) and not value)


def written(value: object, digits: int | None = None) -> str:
    """A value as code: numbers without the .0 of whole ones, functions by name, no addresses."""
    if isinstance(value, dist.Distribution):
        return _distribution(value)
    if isinstance(value, jax.core.Tracer):
        return f"<traced{list(value.shape) or ''}>"
    if isinstance(value, str | bool):
        return repr(value)
    if isinstance(value, int | float | np.number | np.ndarray | jax.Array):
        return _numbers(np.asarray(value), digits)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{written(k)}: {written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if type(value) is tuple:
        return "(" + ", ".join(map(written, value)) + (",)" if len(value) == 1 else ")")
    if callable(value) and (hasattr(value, "__name__") or isinstance(value, functools.partial)):
        return _function(value)
    return type(value).__name__ if type(value).__repr__ is object.__repr__ else repr(value)


def _numbers(array: np.ndarray | np.generic, digits: int | None) -> str:
    if array.dtype.kind not in "fiu":
        return repr(array.tolist())
    if array.size > MOST_WRITTEN:
        return f"<array of shape {array.shape}>"
    if array.ndim:
        return "[" + ", ".join(_numbers(part, digits) for part in np.asarray(array)) + "]"
    number = float(array) + 0.0  # + 0.0 takes the sign off -0.0
    return repr(number if digits is None else float(f"{number:.{digits}g}")).removesuffix(".0")


def _function(function: Callable[..., object]) -> str:
    """Its name; of one without a name its arguments."""
    if isinstance(function, functools.partial):
        return call("partial", function.func, *function.args, **function.keywords)
    if function.__name__ != "<lambda>":
        return function.__name__
    return f"lambda {', '.join(inspect.signature(function).parameters)}: ..."


def _distribution(value: dist.Distribution) -> str:
    if type(value) is dist.Delta:
        return written(value.v, DIGITS)
    if isinstance(value, dist.ExpandedDistribution):
        return f"{written(value.base_dist)}.expand({list(value.batch_shape)})"
    if isinstance(value, dist.Independent):
        return f"{written(value.base_dist)}.to_event({value.reinterpreted_batch_ndims})"
    parameters = {
        name: written(getattr(value, name), DIGITS)
        for name in value.arg_constraints
        if name in vars(value) or isinstance(getattr(type(value), name, None), property)
    }
    within = [] if isinstance(value, dist.TransformedDistribution) and parameters else ["base_dist"]
    parts = [written(getattr(value, name)) for name in within if hasattr(value, name)]
    if type(value) is dist.TransformedDistribution:
        parts.append(written([type(transform).__name__ for transform in value.transforms]))
    every = list(parameters) == list(value.arg_constraints) and not parts
    parts += [text if every else f"{name}={text}" for name, text in parameters.items()]
    return f"{type(value).__name__}({', '.join(parts)})"
