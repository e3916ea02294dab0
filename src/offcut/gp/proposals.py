r"""All proposals of a sweep: X in front, then Y, in one buffer; drawing them, summing over them.

Given f and the base, Y is what the rejection sampler throws away until it has n acceptances
(density), or what a Poisson number of proposals leaves (intensity). An attempt ends where more
than the budget is rejected; attempts are independent given f, which a finite basis knows
everywhere, and are repeated until one fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from offcut.augmentation import joint
from offcut.augmentation.algorithm1 import Block, UntilAccepted, UntilProposed, propose_until
from offcut.gp import types as t
from offcut.gp.base_density import BaseDensity
from offcut.gp.basis import Basis
from offcut.gp.data import GPData
from offcut.numerics.arrays import bucket, materialised
from offcut.numerics.types import KeyArray

#: Room for observations comes in pieces of so many.
PIECE = 64
LEAST_BLOCK, LARGEST_BLOCK = 64, 2048
LEAST_CHUNK, LARGEST_CHUNK = 64, 256
#: An attempt at most so often. Beyond it the budget excludes what the data ask for.
MOST_ATTEMPTS = 10_000

Sums = TypeVar("Sums")


class Layout(NamedTuple):
    """Static sizes, of n alone: results do not depend on the capacity of the buffer.

    ``rows`` are room for X, a quarter more than n at the most (or a piece): data sets of many sizes
    share a program. Results depend on the other sizes, which are powers of two, but not on it.
    """

    rows: int
    block: int
    chunk: int
    lanes: int

    @classmethod
    def of(cls, n: int) -> Layout:
        """The layout for n observations."""
        power = 2 ** int(np.ceil(np.log2(max(n, 2))))
        return cls(
            PIECE * bucket(-(-n // PIECE)),
            int(np.clip(power, LEAST_BLOCK, LARGEST_BLOCK)),
            int(np.clip(power, LEAST_CHUNK, LARGEST_CHUNK)),
            64 if n < 1000 else 512,
        )

    def room(self, capacity: int) -> int:
        """Rows of a buffer with room for X and ``capacity`` rejections."""
        return self.rows + capacity + max(self.block, self.chunk)


class Points(NamedTuple):
    """The first n columns are X, the next ``count`` are Y, those behind are void."""

    u: Float[Array, "d rows"]
    f: Float[Array, " rows"]
    count: t.Count  # type: ignore[assignment] # |Y|, not the method of tuple
    n: t.Count

    @property
    def last(self) -> t.Count:
        """How many columns are proposals, n + |Y|."""
        return self.n + self.count


class Proposed(NamedTuple):
    """A block of proposals."""

    u: Float[Array, "d block"]
    f: Float[Array, " block"]
    accepted: Bool[Array, " block"]


def none(d: int) -> Points:
    """Of a sampler that holds no rejections."""
    return Points(jnp.zeros((d, 0)), jnp.zeros(0), jnp.int32(0), jnp.int32(0))


def buffer_for(layout: Layout, x: Float[Array, "d rows"], n: t.Count, capacity: int) -> Points:
    """X and room for rejections."""
    u = jnp.pad(x, ((0, 0), (0, layout.room(capacity) - layout.rows)))
    return Points(u, jnp.zeros(u.shape[1]), jnp.int32(0), n)


def grown(layout: Layout, points: Points, capacity: int) -> Points:
    """The same content, and room for ``capacity`` rejections."""
    missing = max(0, layout.room(capacity) - points.f.shape[0])
    wider: dict[str, Any] = {  # on the host: a step takes NumPy's arrays too
        "u": np.pad(np.asarray(points.u), ((0, 0), (0, missing))),
        "f": np.pad(np.asarray(points.f), (0, missing)),
    }
    return points._replace(**wider)


def inside(u: t.Columns, data: GPData) -> Bool[Array, " P"]:
    """Whether points are in the support."""
    low, high = data.support
    return jnp.all((u >= low[:, None]) & (u <= high[:, None]), axis=0)


def capacity_of(layout: Layout, points: Points) -> int:
    """How many rejections there is room for."""
    return points.f.shape[0] - layout.room(0)


def draw(
    layout: Layout,
    basis: Basis,
    base: BaseDensity,
    key: KeyArray,
    w: t.Weights,
    p: t.Parameters,
    data: GPData,
    points: Points,
    limit: t.Count,
    total: t.Count | None = None,
) -> Points:
    """One attempt: propose until n are accepted, or in all ``total``, or over the limit."""
    size, n = layout.block, points.n
    void = points.f.shape[0] - 1

    def propose(number: t.Count, turn: None) -> Proposed:
        key_place, key_accept = jax.random.split(jax.random.fold_in(key, number))

        def proposals() -> tuple[Float[Array, "d block"], Float[Array, " block"]]:
            u = base.propose(key_place, p, size, data)
            return u, jax.random.uniform(key_accept, (size,))

        u, uniform = materialised(number, proposals)
        f = lax.optimization_barrier(basis.evaluate(w, u))
        return Proposed(u, f, (uniform < jax.nn.sigmoid(f)) & inside(u, data))

    def collect(kept: tuple, block: Block) -> tuple:
        u, f = kept
        place = jnp.where(block.rejected, jnp.minimum(n + block.place, void), void)
        return (
            u.at[:, place].set(block.proposed.u, mode="promise_in_bounds"),
            f.at[place].set(block.proposed.f, mode="promise_in_bounds"),
        )

    schedule = UntilAccepted(n) if total is None else UntilProposed(total)
    done = propose_until(propose, schedule, limit, collect, (points.u, points.f))
    u, f = done.collected
    return points._replace(u=u, f=f, count=done.rejected)


def all_finite(points: Points) -> t.Flag:
    """Whether all proposals are, and f there."""
    there = jnp.arange(points.f.shape[0]) < points.last
    finite = jnp.isfinite(points.f) & jnp.all(jnp.isfinite(points.u), axis=0)
    return jnp.all(finite | ~there)


class Chunk(NamedTuple):
    """Neighbouring columns of the buffer.

    at : the first. there : which of them count. sign : 1 at observations, -1 at rejections.
    """

    u: Float[Array, "d chunk"]
    at: t.Count
    there: Bool[Array, " chunk"]
    sign: Float[Array, " chunk"]


def in_chunks(
    layout: Layout, points: Points, add: Callable[[Sums, Chunk], Sums], first: Sums
) -> Sums:
    """Fold ``add(sums, chunk)`` over all proposals.

    Neither bits nor cost depend on the room behind the last proposal.
    """
    size, last = layout.chunk, points.last

    def one(sums: Sums, at: t.Count) -> Sums:
        u = lax.dynamic_slice(points.u, (jnp.int32(0), at), (points.u.shape[0], size))
        column = at + jnp.arange(size)
        sign = jnp.where(column < points.n, 1.0, -1.0)
        return add(sums, Chunk(u, at, column < last, sign))

    return joint.in_chunks(one, first, last, size)
