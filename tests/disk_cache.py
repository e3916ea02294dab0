"""A cache of compiled programs that is empty, and what it does.

The tests run with JAX's own cache, where ours has nothing to do; here that is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from offcut.programs import disk

_events: list[str] = []
jax.monitoring.register_event_listener(
    lambda event, **_: _events.append(event) if event.startswith("/offcut") else None
)


@pytest.fixture
def jax_cache() -> Iterator[Callable[[str | None], None]]:
    """``jax_cache(directory)`` sets the directory of JAX's own cache; none at first."""

    def use(place: str | None) -> None:
        jax.config.update("jax_compilation_cache_dir", place)
        compilation_cache.reset_cache()

    before = jax.config.jax_compilation_cache_dir
    use(None)
    yield use
    use(before)


@pytest.fixture
def events(
    jax_cache: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """What the cache does; it is in an empty directory."""
    monkeypatch.setenv(disk.VARIABLE, str(tmp_path / "programs"))
    _events.clear()
    yield _events
    _events.clear()
