"""Float64 inside, whatever the user's global JAX setting, which is left alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

from offcut.programs.forks import note_use

P = ParamSpec("P")
R = TypeVar("R")


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` with x64 on in this thread (the setting is thread-local)."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        note_use()
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped
