"""All chains: warm-up, the budget, draws, and restarts where the budget turns out small."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import jax
import numpy as np

from offcut.base import FIRST_CAPACITY, MOST_REJECTED, Prepared
from offcut.driver.budget import budget_after_warmup, grown_budget, warmup_budget
from offcut.driver.chain import (
    BEFORE,
    DRAW,
    STATISTIC,
    Chain,
    CompiledBlock,
    Phase,
    longest_block,
    most_in_memory,
)
from offcut.driver.checkpoints import Store
from offcut.driver.machine import one_blas_thread, refuse_more_than_memory
from offcut.driver.progress import Progress
from offcut.kernels.tuning import warmup_schedule
from offcut.numerics import keys
from offcut.programs.cache import blocks_of

#: "auto" restarts the draws with a larger budget at most so often.
MOST_RESTARTS = 3
#: Where chains outnumber threads they take turns of so many seconds, so that all of them have
#: draws when Ctrl-C comes.
TURN_SECONDS = 0.5


class Settings(NamedTuple):
    """What ``offcut.sample`` was asked for."""

    draws: int
    warmup: int
    chains: int
    seed: int
    budget: int | str | None
    progress: bool
    threads: int | None = None  # by default as many as there are cores
    block: int | None = None  # longest block; by default from the size of a draw
    capacity: int | None = None  # first buffer capacity; by default from the start
    thin: int = 1  # of so many sweeps the last is kept


class Drawn(NamedTuple):
    """What the chains give: arrays with (chain, draw) in front."""

    draws: dict[str, np.ndarray]
    stats: dict[str, np.ndarray]
    before: dict[str, np.ndarray]  # each draw's sweep, where draws are thinned; else empty
    budget: int | None
    restarts: int
    interrupted: bool


def run_chains(prepared: Prepared, settings: Settings, store: Store | None) -> Drawn:
    """Drive ``settings.chains`` chains of a sampler to the end, or to Ctrl-C."""
    stop, n = threading.Event(), prepared.n
    first_budget = warmup_budget(settings.budget, n)
    with one_blas_thread(), _watched(settings) as progress:
        chains = make_chains(prepared, settings, first_budget, store, progress)
        workers = _Workers(settings, stop)
        try:
            most = most_in_memory(prepared.sampler, chains[0].state)
            first_budget = warmup_budget(settings.budget, n, most)
            phase = warmup_phase(settings, first_budget)
            interrupted = workers.run(chains, phase)
            if interrupted:
                raise KeyboardInterrupt("interrupted in warm-up: nothing has been drawn yet")
            budget = after_warmup(chains, settings, store, n, most)
            # A resumed run may have restarted its draws already.
            restarts = max(0, max(chain.phase_number for chain in chains) - 1)
            if restarts and store is not None:
                budget = store.budget(1 + restarts)
            previous: Drawn | None = None
            while True:
                steps = settings.draws * settings.thin
                phase = Phase(1 + restarts, steps, budget, None, settings.thin)
                interrupted = workers.run(chains, phase)
                if (
                    interrupted
                    and previous is not None
                    and chains_done(chains) < settings.draws // 2
                ):
                    return previous._replace(interrupted=True)  # a restart had just begun
                drawn = collect(chains, budget, restarts, interrupted)
                larger = None
                may_grow = settings.budget == "auto" and not interrupted
                if may_grow and budget is not None and restarts < MOST_RESTARTS:
                    larger = grown_budget(drawn.stats["rejected"], budget, most)
                if larger is None:
                    return drawn
                previous = drawn
                restarts += 1
                budget = _noted(store, 1 + restarts, larger)
        finally:
            stop.set()
            workers.close()


def _watched(settings: Settings) -> AbstractContextManager[Progress | None]:
    """The progress bar, where it was asked for and there is a terminal."""
    seen = settings.progress and sys.stderr.isatty()
    return Progress(settings.chains) if seen else nullcontext()


def warmup_phase(settings: Settings, budget: int | None) -> Phase:
    """The phase before the draws."""
    return Phase(0, settings.warmup, budget, warmup_schedule(settings.warmup))


def make_chains(
    prepared: Prepared,
    settings: Settings,
    budget: int | None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> list[Chain]:
    """All chains, each at its own start, or where the store left it."""
    sampler, data, programs = prepared.sampler, prepared.arrays, blocks_of(prepared.sampler)
    root = keys.from_seed(settings.seed)
    chain_keys = [keys.fold_in(root, c) for c in range(settings.chains)]
    limit = MOST_REJECTED if budget is None else budget
    states = [sampler.start(keys.fold_in(key, 0), data, limit) for key in chain_keys]
    refuse_more_than_memory(sampler, states[0], settings.draws, settings.warmup, settings.chains)
    capacities = [sampler.capacity(state) for state in states]
    if capacities[0] is not None:
        # One size for all, in powers of two, so that one compiled program serves all chains.
        most = max(sampler.rejected(state) for state in states)
        room = settings.capacity or 2 ** int(np.ceil(np.log2(max(2 * most, FIRST_CAPACITY))))
        room = max(min(room, most_in_memory(sampler, states[0])), most)
        states = [sampler.resized(state, room) for state in states]
    size = settings.block or longest_block(sampler, states[0])
    block = programs.get(("block", size))
    if block is None:
        block = programs[("block", size)] = CompiledBlock(sampler, size)
    return [
        Chain(c, sampler, key, state, block, data, store, progress)
        for c, (key, state) in enumerate(zip(chain_keys, states, strict=True))
    ]


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Workers:
    """Threads that run chains; compiled code lets go of the GIL, so cores are used."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        threads = settings.threads or usable_cores()
        self._threads = min(settings.chains, threads)
        self._turn = TURN_SECONDS if self._threads < settings.chains else math.inf
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="offcut-chain")
        self._stop = stop

    def run(self, chains: list[Chain], phase: Phase) -> bool:
        """Run one phase of all chains; True where Ctrl-C cut it short."""
        for chain in chains:
            chain.begin(phase)
        waiting = deque(chains)
        futures = [self._pool.submit(self._work, waiting, phase) for _ in range(self._threads)]
        interrupted = False
        try:
            while not all(f.done() for f in futures):
                wait(futures, timeout=0.1, return_when=FIRST_EXCEPTION)
                if any(f.done() and f.exception() for f in futures):
                    break
        except KeyboardInterrupt:
            interrupted = True
        if interrupted or any(f.done() and f.exception() for f in futures):
            self._stop.set()
        wait(futures)  # a second Ctrl-C ends this wait and the run
        for future in futures:
            future.result()  # raises what went wrong
        for chain in chains:
            chain.save()  # Ctrl-C may have come while a chain waited for its turn
        return interrupted

    def _work(self, waiting: deque[Chain], phase: Phase) -> None:
        """Give turns to waiting chains until none is left."""
        with jax.enable_x64(True):
            while not self._stop.is_set():
                try:
                    chain = waiting.popleft()
                except IndexError:
                    return  # every unfinished chain is in the hands of another thread
                if not chain.run(phase, self._stop, self._turn):
                    waiting.append(chain)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def after_warmup(
    chains: list[Chain], settings: Settings, store: Store | None, n: int, most: int
) -> int | None:
    """The budget of the draws."""
    if not isinstance(settings.budget, str):
        return settings.budget
    noted = store.budget(1) if store is not None else None
    if noted is not None:
        return noted
    rejected = np.zeros((len(chains), 0), int)
    if settings.warmup:
        rejected = np.stack([chain.column(STATISTIC + "rejected") for chain in chains])
    held = max(chain.sampler.rejected(chain.state) for chain in chains)
    return _noted(store, 1, budget_after_warmup(rejected, held, n, most))


def _noted(store: Store | None, phase: int, budget: int) -> int:
    if store is None:
        return budget
    before = store.budget(phase)
    if before is not None:
        return before
    store.note_budget(phase, budget)
    return budget


def chains_done(chains: list[Chain]) -> int:
    """Draws that every chain has."""
    return min(chain.kept for chain in chains)


def collect(chains: list[Chain], budget: int | None, restarts: int, interrupted: bool) -> Drawn:
    """Chains side by side, cut to the shortest."""
    length = chains_done(chains)
    if length == 0:
        raise KeyboardInterrupt("interrupted before every chain had a draw")

    def columns(kind: str) -> dict[str, np.ndarray]:
        return {
            name.removeprefix(kind): np.stack([chain.rows[name][:length] for chain in chains])
            for name in chains[0].rows
            if name.startswith(kind)
        }

    return Drawn(columns(DRAW), columns(STATISTIC), columns(BEFORE), budget, restarts, interrupted)
