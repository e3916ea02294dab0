"""Compiled programs: one cache for all models, which forgets what was not used for long.

A program is kept under the identity of what it computes (``offcut.programs.identity``) and a name,
so that models that are the same share it, and one that was changed gets another. Compiled code is
large (a sampler takes some tens of megabytes and hundreds of memory maps), so there is a limit, and
what is beyond it is dropped whether or not its model lives.
"""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from jax.stages import Wrapped
from jaxtyping import PyTree

from offcut.programs.compiled import Program

#: Small programs that are kept at most, and how many of them a sampler with its blocks counts for.
MOST, SAMPLER = 128, 8


#: What is kept: a compiled function, a sampler with its programs, or something said once.
T = TypeVar("T")


class _Cache:
    """Values by key; the least recently used go first. Threads may share it."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, object], tuple[Any, int]] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: tuple[str, object]) -> Any:
        with self._lock:
            value, _ = self._held[key]
            self._held.move_to_end(key)
            return value

    def put(self, key: tuple[str, object], value: T, weight: int) -> T:
        """Keep a value; the one that is there already, if another thread was faster."""
        with self._lock:
            if key in self._held:
                return self.get(key)
            self._held[key] = (value, weight)
            forgotten = []
            while sum(w for _, w in self._held.values()) > MOST and len(self._held) > 1:
                forgotten.append(self._held.popitem(last=False))
        if any(weight == SAMPLER for _, (_, weight) in forgotten):
            forgotten.clear()
            gc.collect()  # programs and what they were traced from refer to each other
        return value

    def __iter__(self) -> Iterator[tuple[str, object]]:
        with self._lock:
            return iter(list(self._held))

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
        gc.collect()


CACHE = _Cache()


class Programs(Mapping):
    """The programs of one identity, by name."""

    def __init__(self, identity: str) -> None:
        self.identity = identity

    def __getitem__(self, name: object) -> Any:
        return CACHE.get((self.identity, name))

    def kept(self, name: object, make: Callable[[], T]) -> T:
        """What is kept under a name, made where there is nothing yet."""
        try:
            return self[name]
        except KeyError:
            return CACHE.put((self.identity, name), make(), 1)

    def __iter__(self) -> Iterator[Any]:
        return (name for identity, name in CACHE if identity == self.identity)

    def __len__(self) -> int:
        return len(list(iter(self)))


class Kept:
    """A function compiled once; for new shapes it is traced again, as it was given last.

    The last one is the same as the first, by their identity. But the first may have been changed
    since, by a global or a list that it looks at.
    """

    def __init__(
        self, function: Callable[..., PyTree], name: object = "program", quick: bool = False
    ) -> None:
        self.function = function
        self.program = Program(lambda *arguments: self.function(*arguments), f"{name}", quick=quick)


def kept_sampler(identity: str, name: object, make: Callable[[], T]) -> T:
    """The sampler of this identity and name (all else that it depends on).

    It is made anew and takes over what was compiled for one that was the same. It knows its
    ``identity``.
    """
    key = (identity, name)
    sampler = make()
    vars(sampler)["identity"] = identity
    try:
        kept = CACHE.get(key)
    except KeyError:
        return CACHE.put(key, sampler, SAMPLER)
    compiled = {n for n, value in vars(kept).items() if isinstance(value, Wrapped | Program)} | {
        "_blocks"
    }
    vars(kept).update({n: value for n, value in vars(sampler).items() if n not in compiled})
    return kept


def blocks_of(sampler: object) -> dict[object, Any]:
    """Compiled blocks of a sampler, by size: they live as long as it does."""
    return vars(sampler).setdefault("_blocks", {})
