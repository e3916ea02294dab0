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

#: Memory that the rejected points of one chain may take.
MEMORY_LIMIT = 2**30
#: No run of the rejection sampler counts further than this (int32 with room for a block).
MOST_REJECTED = 2**31 - 2**13


class Layout(NamedTuple):
    """Static sizes of a problem.

    n : observations. block : proposals drawn at a time. chunk : points summed at a time.
    sections : parts of the buffer of rejections (see ``Rejected``).
    """

    n: int
    block: int
    chunk: int
    has_covariates: bool
    sections: int

    @classmethod
    def of(cls, n: int, point_size: int, has_covariates: bool, updates: int = 0) -> Layout:
        """Sizes that keep one block in the first levels of cache."""
        roomy = max(32, 2 ** int(math.log2(max(32768 // max(point_size, 1), 32))))
        power = 2 ** math.ceil(math.log2(max(n, 2)))
        block = int(np.clip(power // 4, 64, min(1024, roomy)))
        chunk = int(np.clip(power, 128, min(2048, max(roomy, 128))))
        return cls(n, block, chunk, has_covariates, 2 if updates < 2 else 3)

    def capacity(self, rejected: int) -> int:
        """The smallest allowed buffer capacity that holds ``rejected`` points."""
        return self.chunk * max(1, math.ceil(rejected / self.chunk))


class Rejected(NamedTuple):
    """The rejected proposals Y: rows ``offset`` to ``offset + count`` of ``points``.

    The buffer has sections: the held Y stands in the one at ``offset``, the next attempt writes
    into another, and keeping or dropping it is a matter of two integers, never of copying. (Two
    sections do for one draw of Y a step. A step that draws several needs three: the Y from before
    the step is kept to the end, in case the step must be run again.) Each has
    ``capacity + block + 1`` rows: a whole block may be written behind the last kept row, and the
    final row takes the writes that are not wanted. ``owner`` holds the index of the observation
    whose proposal it was (None where all observations share theirs).
    """

    points: Any
    owner: jax.Array | None
    offset: jax.Array
    count: jax.Array  # type: ignore[assignment] # not the method of tuple


def empty_rejected(layout: Layout, like: Any, capacity: int) -> Rejected:
    """A buffer for ``capacity`` points of the shape of ``like`` (one point)."""
    rows = layout.sections * (capacity + layout.block + 1)
    points = jax.tree.map(lambda a: jnp.zeros((rows, *a.shape), a.dtype), like)
    owner = jnp.zeros((rows,), jnp.int32) if layout.has_covariates else None
    return Rejected(points, owner, jnp.int32(0), jnp.int32(0))


def capacity_of(layout: Layout, rejected: Rejected) -> int:
    """How many points a section holds."""
    return section_rows(layout, rejected) - layout.block - 1


def section_rows(layout: Layout, rejected: Rejected) -> int:
    """Rows of one section."""
    return jax.tree.leaves(rejected.points)[0].shape[0] // layout.sections


def spare_section(layout: Layout, held: Rejected, before: Rejected) -> Rejected:
    """The buffer, pointing at a section with neither the held Y nor that from before the step."""
    rows = section_rows(layout, held)
    if layout.sections == 2:
        offset = rows - held.offset
    else:
        same = held.offset == before.offset
        third = 3 * rows - held.offset - before.offset
        offset = jnp.where(same, (held.offset + rows) % (3 * rows), third)
    return held._replace(offset=offset, count=jnp.int32(0))


def resized_rejected(layout: Layout, rejected: Rejected, capacity: int) -> Rejected:
    """The same content in a buffer with room for ``capacity`` points."""
    old, new = section_rows(layout, rejected), layout.capacity(capacity) + layout.block + 1
    if new <= old:
        return rejected

    def grow(a: jax.Array) -> jax.Array:
        held = jax.lax.dynamic_slice_in_dim(a, rejected.offset, old)
        return jnp.zeros((layout.sections * new, *a.shape[1:]), a.dtype).at[:old].set(held)

    points, owner = jax.tree.map(grow, (rejected.points, rejected.owner))
    return Rejected(points, owner, jnp.int32(0), rejected.count)


def write_rows(buffer: Any, place: jax.Array, values: Any) -> Any:
    """Scatter rows; all places are in bounds (unwanted rows go to a spare one)."""
    return jax.tree.map(lambda b, v: b.at[place].set(v, mode="promise_in_bounds"), buffer, values)


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

    A conditional is a wall to fusion; ``index`` (any traced number >= 0) keeps it from being
    folded away.
    """
    shapes = jax.eval_shape(make)
    return lax.cond(
        index >= 0, make, lambda: jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    )
