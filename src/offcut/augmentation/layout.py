"""How many points are handled at a time, fixed by the data alone.

Results must not depend on buffer capacity, draw block or retries, so every size that enters a
random stream or the order of a sum is a function of n and of the size of one point, and of
nothing that changes during a run.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

#: No run of the rejection sampler counts further than this (int32 with room for a block).
MOST_REJECTED = 2**31 - 2**13


class Layout(NamedTuple):
    """Static sizes of a problem.

    n : observations. block : proposals drawn at a time. chunk : points summed at a time.
    """

    n: int
    block: int
    chunk: int
    has_covariates: bool

    @classmethod
    def of(cls, n: int, point_size: int, has_covariates: bool) -> Layout:
        """Sizes that keep one block in the first levels of cache."""
        roomy = max(32, 2 ** int(math.log2(max(32768 // max(point_size, 1), 32))))
        power = 2 ** math.ceil(math.log2(max(n, 2)))
        block = int(np.clip(power // 2, 64, min(2048, roomy)))
        chunk = int(np.clip(power, 256, min(4096, max(roomy, 256))))
        return cls(n, block, chunk, has_covariates)

    def capacity(self, rejected: int) -> int:
        """The smallest allowed buffer capacity that holds ``rejected`` points."""
        return self.chunk * max(1, math.ceil(rejected / self.chunk))


class Rejected(NamedTuple):
    """The rejected proposals Y: ``count`` rows of ``points`` are in use.

    Buffers have ``capacity + block + 1`` rows: a whole block may be written behind the last
    kept row, and the final row takes the writes that are not wanted. ``owner`` holds the index
    of the observation whose proposal it was (None where all observations share theirs).
    """

    points: Any
    owner: jax.Array | None
    count: jax.Array


def empty_rejected(layout: Layout, like: Any, capacity: int) -> Rejected:
    """A buffer for ``capacity`` points of the shape of ``like`` (one point)."""
    rows = capacity + layout.block + 1
    points = jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), like)
    owner = jnp.zeros((rows,), jnp.int32) if layout.has_covariates else None
    return Rejected(points, owner, jnp.int32(0))


def capacity_of(layout: Layout, rejected: Rejected) -> int:
    """How many points the buffer holds."""
    return jax.tree.leaves(rejected.points)[0].shape[0] - layout.block - 1


def exclusive_count(flags: jax.Array) -> jax.Array:
    """How many flags are set before each place; the length is a multiple of 32.

    Packs 32 flags to a word and counts bits below each lane: an eighth of the time of a
    cumulative sum on a CPU.

    >>> [int(c) for c in exclusive_count(jnp.arange(32) % 2 == 0)[:4]]
    [0, 1, 1, 2]
    """
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


def materialised(index: jax.Array, make: Any) -> Any:
    """``make()``, computed once: XLA on CPUs would redo random numbers in every consumer.

    A conditional is a wall to fusion; ``index`` (any traced integer >= 0) keeps it from being
    folded away.
    """
    shapes = jax.eval_shape(make)
    return lax.cond(
        index >= 0, make, lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    )
