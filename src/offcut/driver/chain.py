"""One chain: steps in compiled blocks, phases of blocks, a growing buffer, checkpoints.

A block of steps is one compiled call. Step i uses fold_in(key, i), so blocks of any size give the
same draws. The loop stops early where a step is not OK: the state is then the one from before that
step, put back here for all samplers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree

from offcut.augmentation.rejections import settle
from offcut.base import BROKEN, FULL, MEMORY_LIMIT, MOST_REJECTED, OK, Sampler, Stage
from offcut.driver.checkpoints import Store
from offcut.driver.progress import Progress
from offcut.errors import MemoryLimitError
from offcut.numerics import keys
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program

#: A block is sized to take about this long, so that Ctrl-C and progress are prompt.
BLOCK_SECONDS = 0.2
SAVE_SECONDS = 2.0
#: Kinds of rows that a chain keeps: statistics of a step, draws after it, and, where sweeps are
#: thinned, what variables were before the kept sweep. (What one sweep does to them, of which
#: ``result/missing_information.py`` needs to know, cannot be seen from draws that are far apart.)
STATISTIC, DRAW, BEFORE = "stat:", "draw:", "before:"
#: The latter for variables with at most so many entries.
MOST_ENTRIES = 100
#: Bytes of draws that one call may return; bounds the longest block.
BLOCK_BYTES = 4 * 2**20
LONGEST_BLOCK = 1024


class BlockResult(NamedTuple):
    """``done`` steps went well; rows behind them are unused.

    ``draws`` has one row more, in front: the state from before the block.
    """

    state: PyTree
    draws: dict[str, jax.Array]
    stats: dict[str, jax.Array]
    done: Int[Array, ""]
    status: Int[Array, ""]
    evidence: PyTree


def longest_block(sampler: Sampler, state: PyTree) -> int:
    """How many steps one call may take, by the size of what each records."""
    row = sum(int(np.prod(a.shape)) * 8 for a in jax.eval_shape(sampler.record, state).values())
    return int(np.clip(BLOCK_BYTES // max(row, 1), 16, LONGEST_BLOCK))


class CompiledBlock(Program):
    """``f(key, state, first, count, budget, restricted, adapting, schedule, data)``.

    Compiled once for each buffer capacity. ``compilations`` counts them.
    """

    def __init__(self, sampler: Sampler, size: int) -> None:
        self.size = size
        # The old state is given away: a step never needs both, and buffers may be large.
        super().__init__(_block_function(sampler, size), "sweeps", donate=(1,))

    def run(
        self,
        key: KeyArray,
        state: PyTree,
        first: int,
        count: int,
        budget: int | None,
        adapting: bool,
        schedule: Bool[np.ndarray, "count 3"] | None,
        data: PyTree,
    ) -> BlockResult:
        """``count`` steps from number ``first`` on, with their rows of the schedule in warm-up."""
        rows = np.zeros((self.size, 3), bool)
        if schedule is not None:
            rows[: len(schedule)] = schedule
        return self(
            key,
            state,
            np.int32(first),
            np.int32(count),
            np.int32(MOST_REJECTED if budget is None else budget),
            np.bool_(budget is not None),
            np.bool_(adapting),
            rows,
            data,
        )


def _block_function(sampler: Sampler, size: int) -> Callable[..., BlockResult]:
    def run(
        key: KeyArray,
        state: PyTree,
        first: Int[Array, ""],
        count: Int[Array, ""],
        budget: Int[Array, ""],
        restricted: Bool[Array, ""],
        adapting: Bool[Array, ""],
        schedule: Bool[Array, "size 3"],
        data: PyTree,
    ) -> BlockResult:
        fixed = (key, first, budget, restricted, adapting, schedule, data)

        @jax.jit  # traced once, although it is asked for its shapes and then called
        def one(index: Int[Array, ""], state: PyTree, fixed: tuple) -> tuple:
            key, first, budget, restricted, adapting, schedule, data = fixed
            slow, window_end, last = schedule[index]
            stage = Stage(budget, restricted, adapting, slow, window_end, last)
            new, info = sampler.step(jax.random.fold_in(key, first + index), state, stage, data)
            return new, sampler.record(new), info

        info = jax.eval_shape(one, jnp.int32(0), state, fixed)[2]

        def rows(shape: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros((size, *shape.shape), shape.dtype)

        def rows_after(first: jax.Array) -> jax.Array:
            return jnp.zeros((size + 1, *first.shape), first.dtype).at[0].set(first)

        def zeros(shape: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros(shape.shape, shape.dtype)

        def body(carry: tuple) -> tuple:
            index, state, draws, stats, _, _ = carry
            new, drawn, info = one(index, state, fixed)
            draws = jax.tree.map(lambda b, v: b.at[index + 1].set(v), draws, drawn)
            stats = jax.tree.map(lambda b, v: b.at[index].set(v), stats, info.stats)
            status = info.status.astype(jnp.int32)
            fine = status == OK
            went_on = index + fine.astype(jnp.int32)
            return went_on, settle(fine, new, state), draws, stats, status, info.evidence

        carry = (
            jnp.int32(0),
            state,
            jax.tree.map(rows_after, jax.tree.map(jnp.asarray, sampler.record(state))),
            jax.tree.map(rows, info.stats),
            jnp.int32(OK),
            jax.tree.map(zeros, info.evidence),
        )
        carry = lax.while_loop(lambda c: (c[0] < count) & (c[4] == OK), body, carry)
        done, state, draws, stats, status, evidence = carry
        return BlockResult(state, draws, stats, done, status, evidence)

    return run


class Phase(NamedTuple):
    """Warm-up is phase 0; phases of draws follow, one more for each restart with a new budget."""

    number: int
    steps: int
    budget: int | None
    schedule: Bool[np.ndarray, "steps 3"] | None  # rows of (slow, window_end, last) in warm-up
    thin: int = 1  # of so many steps the last is kept

    @property
    def name(self) -> str:
        return "warm-up" if self.number == 0 else "sampling"


def most_in_memory(sampler: Sampler, state: PyTree) -> int:
    """How many rejections fit into the sampler, and into the memory that a chain may use."""
    row, most = sampler.row_bytes(state), min(MOST_REJECTED, sampler.limit(state))
    return most if row == 0 else min(most, MEMORY_LIMIT // row)


class Chain:
    """A chain's state on the host side, and its rows of the current phase."""

    def __init__(
        self,
        number: int,
        sampler: Sampler,
        key: KeyArray,
        state: PyTree,
        block: CompiledBlock,
        data: PyTree,
        store: Store | None,
        progress: Progress | None,
    ) -> None:
        self.number, self.sampler, self.key, self.state = number, sampler, key, state
        self.data, self.store, self.progress = data, store, progress
        self._block = block
        self.phase_number, self.done, self._thin = 0, 0, 1
        self.rows: dict[str, np.ndarray] = {}
        self._saved, self._last_save, self._began = 0, 0.0, time.monotonic()
        self._save_cost = 0.0
        self._pace, self._measured = 0.0, False  # seconds for a step; the first call compiles
        if store is not None:
            self._resume(store)

    def _resume(self, store: Store) -> None:
        saved = store.load(self.number)
        if saved is None:
            return
        leaves, structure = jax.tree.flatten(self.state)
        pairs = zip(saved.state, leaves, strict=True)
        restored = [np.asarray(new, old.dtype) for new, old in pairs]
        self.state = jax.tree.unflatten(structure, restored)
        self.phase_number, self.done, self.rows = saved.phase, saved.done, saved.rows

    def begin(self, phase: Phase) -> None:
        """Enter a phase, unless a checkpoint is in it already or further on."""
        if self.phase_number < phase.number:
            self.phase_number, self.done, self.rows = phase.number, 0, {}
        self._saved, self._last_save = self.done, time.monotonic()
        if self.phase_number == phase.number:
            self._thin = phase.thin
            if self.progress is not None:
                self.progress.phase(self.number, phase.name, self.done, phase.steps)

    def run(self, phase: Phase, stop: threading.Event, turn: float) -> bool:
        """Work on a phase that was begun for ``turn`` seconds; True once all its steps are done.

        Call it with x64 on.
        """
        if self.phase_number > phase.number:
            return True  # a checkpoint is further on
        until = time.monotonic() + turn
        key = keys.fold_in(self.key, phase.number + 1)
        while self.done < phase.steps and not stop.is_set() and time.monotonic() < until:
            wanted = int(BLOCK_SECONDS / self._pace) if self._pace else 8
            count = max(1, min(wanted, self._block.size, phase.steps - self.done))
            started = time.monotonic()
            stats = self._advance(phase, key, count)
            seconds = time.monotonic() - started
            if stats is None:
                continue  # the buffer has grown: the same step again
            steps = len(stats["rejected"])
            self._pace = seconds / max(steps, 1) if self._measured else 0.0
            self._measured = True
            if self.progress is not None:
                self.progress.advance(self.number, steps, seconds, stats)
            if time.monotonic() - self._last_save > self._save_interval():
                self.save()
        if self.done < phase.steps:
            return False
        self.save()
        return True

    def _save_interval(self) -> float:
        """Every few seconds; rarer in long runs and where saving itself takes long."""
        age = min(0.01 * (time.monotonic() - self._began), 30.0)
        return max(SAVE_SECONDS, age, 20 * self._save_cost)

    def save(self) -> None:
        """Write what is new since the last time, if there is a checkpoint."""
        if self.store is None or self.done == self._saved:
            return
        new = slice(self._saved // self._thin, self.kept)
        rows = {name: values[new] for name, values in self.rows.items()}
        state = [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]
        started = time.monotonic()
        self.store.save(self.number, self.phase_number, self._saved, self.done, rows, state)
        self._saved, self._last_save = self.done, time.monotonic()
        self._save_cost = self._last_save - started

    def _advance(self, phase: Phase, key: KeyArray, count: int) -> dict[str, np.ndarray] | None:
        """One compiled call; None where it made no step because the buffer was full."""
        adapting = phase.number == 0 and self.sampler.adapts
        schedule = phase.schedule
        part = None if schedule is None else schedule[self.done : self.done + count]
        result = self._block.run(
            key, self.state, self.done, count, phase.budget, adapting, part, self.data
        )
        done, status = int(result.done), int(result.status)
        self.state = result.state
        stats = {name: np.asarray(values)[:done] for name, values in result.stats.items()}
        every = {} if phase.number == 0 else jax.tree.map(np.asarray, result.draws)
        draws = {name: values[1 : done + 1] for name, values in every.items()}
        before = {}
        if self._thin > 1 and self.sampler.draws_rejections:
            before = {
                name: values[:done]
                for name, values in every.items()
                if values[0].size <= MOST_ENTRIES
            }
        kinds = {STATISTIC: stats, DRAW: draws, BEFORE: before}
        self._append(kinds, done, phase.steps)
        if status == BROKEN:
            raise self.sampler.explain(self.state, result.evidence)
        self.sampler.inspect(self.state, self.data)
        if status == FULL:
            self._grow(phase)
            if done == 0:
                return None
        return stats

    def _append(self, kinds: dict[str, dict[str, np.ndarray]], done: int, steps: int) -> None:
        named = {kind + name: v for kind, rows in kinds.items() for name, v in rows.items()}
        steps //= self._thin
        keep = slice(-(self.done + 1) % self._thin, None, self._thin)
        for name, every in named.items():
            values = every[keep]
            held = self.rows.get(name)
            if held is None or len(held) < steps:
                whole = np.empty((steps, *values.shape[1:]), values.dtype)
                if held is not None:
                    whole[: len(held)] = held
                self.rows[name] = whole
            self.rows[name][self.kept : self.kept + len(values)] = values
        self.done += done

    def _grow(self, phase: Phase) -> None:
        capacity = self.sampler.capacity(self.state) or 0
        wanted = 2 * capacity if phase.budget is None else min(2 * capacity, phase.budget)
        needed = wanted * self.sampler.row_bytes(self.state)
        why = ""
        if capacity >= self.sampler.limit(self.state):
            why = "which is all that this sampler can hold"
        elif needed > MEMORY_LIMIT:
            why = (
                f"and room for more would take {needed / 2**30:.1f} GiB of the "
                f"{MEMORY_LIMIT / 2**30:.0f} GiB that a chain may use"
            )
        if why:
            raise MemoryLimitError(
                f"chain {self.number}: one sweep has more than {capacity:,} rejected proposals, "
                f"{why} (budget={phase.budget}). With vague priors the expected number can be "
                'infinite: use budget="auto" or a number, which bounds it and reports what that '
                "changes, or a tighter prior"
            )
        self.state = self.sampler.resized(self.state, wanted)

    def column(self, name: str) -> np.ndarray:
        return self.rows[name][: self.kept]

    @property
    def kept(self) -> int:
        return self.done // self._thin
