"""A block of steps as one compiled call.

Step i uses fold_in(key, i), so blocks of any size give the same draws. The loop stops early where
a step is not OK: the state is then the one from before that step, put back here for all samplers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation.rejections import settle
from offcut.base import OK, Sampler, Stage

#: Bytes of draws that one call may return; bounds the longest block.
BLOCK_BYTES = 4 * 2**20
LONGEST_BLOCK = 1024


class BlockResult(NamedTuple):
    """``done`` steps went well; rows behind them are unused.

    ``draws`` has one row more, in front: the state from before the block.
    """

    state: Any
    draws: dict[str, Any]
    stats: dict[str, Any]
    done: jax.Array
    status: jax.Array
    evidence: Any


def longest_block(sampler: Sampler, state: Any) -> int:
    """How many steps one call may take, by the size of what each records."""
    row = sum(int(np.prod(a.shape)) * 8 for a in jax.eval_shape(sampler.record, state).values())
    return int(np.clip(BLOCK_BYTES // max(row, 1), 16, LONGEST_BLOCK))


@cache
def compiler_options() -> dict[str, Any]:
    """What XLA is told on a CPU: its newer fusion emitters stay off.

    Measured with jaxlib 0.10 on programs of this library: without them compiling takes 15% to 40%
    less time and half the memory, and the programs are as fast. Left out where this version of XLA
    does not know the option.
    """
    options: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x).lower(0.0).compile(options)
    except Exception:  # what XLA raises for an unknown option is not documented
        return {}
    return options


class CompiledBlock:
    """``f(key, state, first, count, budget, restricted, adapting, schedule, data)``.

    Compiled once for each buffer capacity, by the first chain that needs it; the other threads
    wait instead of compiling the same program again. ``compilations`` counts them.
    """

    def __init__(self, sampler: Sampler, size: int) -> None:
        # The old state is given away: a step never needs both, and buffers may be large.
        self._function = jax.jit(_block_function(sampler, size), donate_argnums=(1,))
        self._programs: dict[Any, Callable[..., BlockResult]] = {}
        self._lock = threading.Lock()

    @property
    def compilations(self) -> int:
        """Programs compiled so far."""
        return len(self._programs)

    def __call__(self, *arguments: Any) -> BlockResult:
        """Run a block, compiling first where these shapes are new."""
        shapes = tuple((np.shape(a), a.dtype) for a in jax.tree.leaves(arguments))
        with self._lock:
            program = self._programs.get(shapes)
            if program is None:
                program = self._function.lower(*arguments).compile(compiler_options())
                self._programs[shapes] = program
        return program(*arguments)


def _block_function(sampler: Sampler, size: int) -> Callable[..., BlockResult]:
    def run(
        key: jax.Array,
        state: Any,
        first: jax.Array,
        count: jax.Array,
        budget: jax.Array,
        restricted: jax.Array,
        adapting: jax.Array,
        schedule: jax.Array,
        data: Any,
    ) -> BlockResult:
        def one(index: jax.Array, state: Any) -> tuple:
            slow, window_end, last = schedule[index]
            stage = Stage(budget, restricted, adapting, slow, window_end, last)
            new, info = sampler.step(jax.random.fold_in(key, first + index), state, stage, data)
            return new, sampler.record(new), info

        info = jax.eval_shape(one, jnp.int32(0), state)[2]

        def rows(shape: Any) -> jax.Array:
            return jnp.zeros((size, *shape.shape), shape.dtype)

        def rows_after(first: jax.Array) -> jax.Array:
            return jnp.zeros((size + 1, *first.shape), first.dtype).at[0].set(first)

        def zeros(shape: Any) -> jax.Array:
            return jnp.zeros(shape.shape, shape.dtype)

        def body(carry: tuple) -> tuple:
            index, state, draws, stats, _, _ = carry
            new, drawn, info = one(index, state)
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
