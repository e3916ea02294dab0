r"""All proposals of a sweep: X in front, then Y, in one buffer; drawing them, summing over them.

Given f and the base, Y is what the rejection sampler throws away until it has n acceptances
(density), or what a Poisson number of proposals leaves (intensity). An attempt ends where more
than the budget is rejected; attempts are independent given f, which a finite basis knows
everywhere, and are repeated until one fits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation import joint
from offcut.augmentation.algorithm1 import Block, UntilAccepted, UntilProposed, propose_until
from offcut.gp.basis import Basis
from offcut.numerics.arrays import materialised

#: Expected proposals for each observation in one block.
ROOM = 1.0
LEAST_BLOCK, LARGEST_BLOCK = 64, 2048
LEAST_CHUNK, LARGEST_CHUNK = 64, 256
#: An attempt at most so often. Beyond it the budget excludes what the data ask for.
MOST_ATTEMPTS = 10_000


class Layout(NamedTuple):
    """Static sizes, of n alone: results do not depend on the capacity of the buffer."""

    n: int
    block: int
    chunk: int
    lanes: int

    @classmethod
    def of(cls, n: int) -> Layout:
        """The layout for n observations."""
        power = 2 ** int(np.ceil(np.log2(max(n, 2))))
        return cls(
            n,
            int(np.clip(power, LEAST_BLOCK, LARGEST_BLOCK)),
            int(np.clip(power, LEAST_CHUNK, LARGEST_CHUNK)),
            64 if n < 1000 else 512,
        )

    def rows(self, capacity: int) -> int:
        """Rows of a buffer with room for X and ``capacity`` rejections."""
        return self.n + capacity + max(self.block, self.chunk)


class Points(NamedTuple):
    """The first ``n + count`` columns are proposals, those behind are void."""

    u: jax.Array  # (d, rows)
    f: jax.Array  # (rows,)
    count: jax.Array  # type: ignore[assignment] # |Y|, not the method of tuple


class Proposed(NamedTuple):
    """A block of proposals."""

    u: jax.Array
    f: jax.Array
    accepted: jax.Array


def buffer_for(layout: Layout, x: jax.Array, capacity: int) -> Points:
    """X (d, n) and room for rejections."""
    rows = layout.rows(capacity)
    u = jnp.zeros((x.shape[0], rows)).at[:, : layout.n].set(x)
    return Points(u, jnp.zeros(rows), jnp.int32(0))


def grown(layout: Layout, points: Points, capacity: int) -> Points:
    """The same content, and room for ``capacity`` rejections."""
    missing = max(0, layout.rows(capacity) - points.f.shape[0])
    return points._replace(
        u=jnp.pad(points.u, ((0, 0), (0, missing))), f=jnp.pad(points.f, (0, missing))
    )


def inside(u: jax.Array, data: Any) -> jax.Array:
    """Whether points (d, P) are in the support."""
    low, high = data.support
    return jnp.all((u >= low[:, None]) & (u <= high[:, None]), axis=0)


def capacity_of(layout: Layout, points: Points) -> int:
    """How many rejections there is room for."""
    return points.f.shape[0] - layout.rows(0)


def draw(
    layout: Layout,
    basis: Basis,
    base: Any,
    key: jax.Array,
    w: jax.Array,
    p: jax.Array,
    data: Any,
    points: Points,
    limit: jax.Array,
    total: jax.Array | None = None,
) -> Points:
    """One attempt: propose until n are accepted, or in all ``total``, or over the limit."""
    size, n = layout.block, layout.n
    void = points.f.shape[0] - 1

    def propose(number: jax.Array, turn: None) -> Proposed:
        key_place, key_accept = jax.random.split(jax.random.fold_in(key, number))

        def proposals() -> tuple:
            u = base.propose(key_place, p, size, data)
            return u, jax.random.uniform(key_accept, (size,))

        u, uniform = materialised(number, proposals)
        f = materialised(number, lambda: basis.evaluate(w, u, number))
        return Proposed(u, f, (uniform < jax.nn.sigmoid(f)) & inside(u, data))

    def collect(kept: tuple, block: Block) -> tuple:
        u, f = kept
        place = jnp.where(block.rejected, jnp.minimum(n + block.place, void), void)
        return (
            u.at[:, place].set(block.proposed.u, mode="promise_in_bounds"),
            f.at[place].set(block.proposed.f, mode="promise_in_bounds"),
        )

    schedule = UntilAccepted(jnp.int32(n)) if total is None else UntilProposed(total)
    done = propose_until(propose, schedule, limit, collect, (points.u, points.f))
    u, f = done.collected
    return Points(u, f, done.rejected)


def all_finite(layout: Layout, points: Points) -> jax.Array:
    """Whether all proposals are, and f there."""
    there = jnp.arange(points.f.shape[0]) < layout.n + points.count
    finite = jnp.isfinite(points.f) & jnp.all(jnp.isfinite(points.u), axis=0)
    return jnp.all(finite | ~there)


def in_chunks(layout: Layout, points: Points, add: Any, first: Any) -> Any:
    """Fold ``add(sums, u, at, there)`` over all proposals, chunk by chunk.

    ``at`` is the chunk's first column, ``there`` marks columns that count. Neither bits nor cost
    depend on the room behind the last proposal.
    """
    size, last = layout.chunk, layout.n + points.count

    def one(sums: Any, at: jax.Array) -> Any:
        u = lax.dynamic_slice(points.u, (jnp.int32(0), at), (points.u.shape[0], size))
        return add(sums, u, at, at + jnp.arange(size) < last)

    return joint.in_chunks(one, first, last, size)
