"""What a run takes from the machine: LAPACK's threads, and memory."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree
from threadpoolctl import threadpool_limits

from offcut.base import Sampler
from offcut.errors import SettingsError

_lock = threading.Lock()
_runs = 0
_limits = contextlib.ExitStack()
#: One thread sets the limit and takes it back: threadpoolctl lets the thread that set one first
#: change it, and ignores all others without a word.
_setter = ThreadPoolExecutor(1, thread_name_prefix="offcut-blas")
#: Bytes of statistics that a draw has, about: a dozen numbers.
STATISTICS = 100
#: Draws are held twice at the end, when chains are put side by side.
COPIES = 2


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """LAPACK with one thread while any run is under way, and as before after the last.

    Chains are what runs side by side. LAPACK's own threads would fight over the same cores: on two
    of them sweeps with a Cholesky factor of 129 rows took four times as long. The limit is that of
    the whole process: of two runs in threads the second would take the first one's limit for the
    number to go back to, so runs are counted.
    """
    global _runs
    with _lock:
        if _runs == 0:
            _setter.submit(_limit).result()
        _runs += 1
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if _runs == 0:
                _setter.submit(_limits.close).result()


def _limit() -> None:
    _limits.enter_context(threadpool_limits(limits=1, user_api="blas"))


def refuse_more_than_memory(
    sampler: Sampler, state: PyTree, draws: int, warmup: int, chains: int
) -> None:
    """Raise where the draws of all chains would not fit into the memory that is free."""
    recorded = jax.eval_shape(sampler.record, state).values()
    row = sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in recorded)
    needed = chains * (COPIES * draws * (row + STATISTICS) + warmup * STATISTICS)
    free = free_memory()
    if free is not None and needed > free:
        raise SettingsError(
            f"{draws:,} draws of {chains} chains, {row + STATISTICS:,} bytes each, need about "
            f"{needed / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB are free. Ask for "
            "fewer draws=, or keep one of many with thin= (a checkpoint does not help: all draws "
            "are in memory at the end)"
        )


def free_memory() -> int | None:
    """Bytes that may still be used; None where the system does not say."""
    found = [_available(), _left_in_group()]
    return min((value for value in found if value is not None), default=None)


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _left_in_group() -> int | None:
    """Of what a container may use."""
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text())
        return max(0, most - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no limit is written as a word
        return None
