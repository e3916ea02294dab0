"""Arrays inside compiled code: counting, writing rows, keeping fusions apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, Shaped

from offcut.numerics.types import Points

T = TypeVar("T")


def as_argument(value: np.ndarray | np.number) -> Any:
    """NumPy's, where an argument of a compiled program is meant: JAX takes it over in the call.

    Nothing happens here but to types; an array of JAX's would be a small program of its own.
    """
    return value


def exclusive_count(flags: Bool[Array, " n"]) -> Int[Array, " n"]:
    """How many flags are set before each place.

    Where their number is a multiple of 32, packs 32 flags to a word and counts bits below each
    lane: an eighth of the time of a cumulative sum on a CPU.

    >>> [int(c) for c in exclusive_count(jnp.arange(32) % 2 == 0)[:4]]
    [0, 1, 1, 2]
    """
    if flags.shape[0] % 32:
        return jnp.cumsum(flags, dtype=jnp.int32) - flags
    words_shape = (flags.shape[0] // 32, 32)
    lane = lax.broadcasted_iota(jnp.uint32, words_shape, 1)
    bits = flags.reshape(words_shape).astype(jnp.uint32) << lane
    words = jnp.sum(bits, axis=1, dtype=jnp.uint32)
    per_word = lax.population_count(words).astype(jnp.int32)
    index = jnp.arange(words_shape[0])
    earlier = index[None, :] < index[:, None]
    before_word = jnp.sum(jnp.where(earlier, per_word[None, :], 0), axis=1, dtype=jnp.int32)
    below = (jnp.uint32(1) << lane) - jnp.uint32(1)
    within = lax.population_count(words[:, None] & below).astype(jnp.int32)
    return (before_word[:, None] + within).reshape(flags.shape[0])


def materialised(index: float | np.number | Shaped[Array, ""], make: Callable[[], T]) -> T:
    """``make()``, computed once: XLA on CPUs would redo random numbers in every consumer.

    A conditional is a wall to fusion; ``index`` (any traced number >= 0) keeps it from being
    folded away.
    """
    shapes = jax.eval_shape(make)
    return lax.cond(
        index >= 0, make, lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    )


def write_rows(buffer: Points, place: Int[Array, " m"], values: Points) -> Points:
    """Scatter rows; all places are in bounds (unwanted rows go to a spare one)."""
    return jax.tree.map(lambda b, v: b.at[place].set(v, mode="promise_in_bounds"), buffer, values)


def bucket(count: int, least: int = 1) -> int:
    """The smallest of 4, 5, 6 and 7 times a power of two (and 1, 2, 3) that holds ``count``.

    A quarter more at the most. Data are padded to such sizes, and their number is an argument of
    the program, so that data sets of many sizes share one.

    >>> [bucket(n) for n in (1, 3, 9, 509, 1000, 6809)]
    [1, 3, 10, 512, 1024, 7168]
    """
    count = max(count, least, 1)
    step = 2 ** max((count - 1).bit_length() - 3, 0)
    return -(-count // step) * step
