"""Counts what XLA compiles, for tests that say how much that may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"
_listening: list[list[str]] = []


def _note(event: str, seconds: float, **more: object) -> None:
    if event == _EVENT:
        for names in _listening:
            names.append(str(more.get("fun_name", "?")))


jax.monitoring.register_event_duration_secs_listener(_note)


@contextmanager
def compiled_programs() -> Iterator[list[str]]:
    """Names of all programs that are compiled (or read from a cache) inside, in any thread."""
    names: list[str] = []
    _listening.append(names)
    try:
        yield names
    finally:
        _listening.remove(names)
