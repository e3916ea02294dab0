"""Forks: a child of a process that has used JAX has none of its threads and would wait forever."""

from __future__ import annotations

import os
import sys

from offcut.errors import SettingsError

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


def note_use() -> None:
    """Remember that JAX is used from here on, or raise in a forked child."""
    refuse_fork()
    _state["used"] = True
