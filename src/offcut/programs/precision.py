"""What a process must be before Offcut computes in it: no fork of one that used JAX; in float64.

A forked child has none of JAX's threads and would wait forever. Float64 is on inside, whatever the
user's global setting of JAX, which is left alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from offcut.errors import SettingsError

P = ParamSpec("P")
R = TypeVar("R")
_state = {"used": False, "forked": False}


def _after_fork() -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")  # JAX may have been used without Offcut
    started = getattr(bridge, "backends_are_initialized", lambda: False)
    _state["forked"] = _state["forked"] or _state["used"] or bool(started())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def refuse_fork() -> None:
    """Raise in a child that was forked after JAX had been used."""
    if _state["forked"]:
        raise SettingsError(
            "this process was forked from one that had used JAX, whose threads it lacks: it would "
            'wait forever. Start processes with multiprocessing.get_context("spawn"), or fork '
            "before anything is computed"
        )


def in_float64(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` with x64 on in this thread (the setting is thread-local); not in a fork."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_fork()
        _state["used"] = True
        import jax  # here: ``import offcut`` reads this file and stays light

        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped
