"""The rejected proposals Y: the buffer that holds them, and drawing them until they fit a budget.

Results must not depend on buffer capacity, draw block or retries, so every size that enters a
random stream or the order of a sum (``Layout``) is a function of n and of the size of one point,
and of nothing that changes during a run.

A budget B restricts the joint to |Y| <= B by redrawing (``redraw``): what is drawn together with Y
is drawn anew until it fits, which is an exact draw from the restricted conditional. After a set
number of attempts the old Y is kept, with what it was drawn under: given the rest, a mixture of
the exact draw and the identity, so the target stays and the cost has a hard bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from offcut.base import BROKEN, FULL, OK
from offcut.models.data import PointLike
from offcut.numerics.arrays import as_argument, bucket
from offcut.numerics.types import Points

Count = Int[Array, ""]
Flag = Bool[Array, ""]
#: What is drawn together with Y; a state, or part of one.
Drawn = TypeVar("Drawn")
State = TypeVar("State", bound=PyTree)

#: A sweep gives up after this many attempts and keeps its previous Y.
MOST_ATTEMPTS = 100


class Layout(NamedTuple):
    """Static sizes of a problem: what a program is compiled for. The number n is data.

    rows : observations and padding, a whole number of chunks; n of many sizes share one. block :
    proposals drawn at a time. chunk : points summed at a time. sections : parts of the buffer of
    rejections (see ``Rejected``). exact_rows : n, where users' own updates take the data as they
    are (``exact_updates``): there n is a shape.
    """

    rows: int
    block: int
    chunk: int
    has_covariates: bool
    sections: int
    exact_rows: int | None = None

    @classmethod
    def of(cls, n: int, point_size: int, has_covariates: bool, updates: int = 0) -> Layout:
        """Sizes that keep one block in the first levels of cache; a quarter more rows at most."""
        roomy = max(32, 2 ** int(math.log2(max(32768 // max(point_size, 1), 32))))
        power = 2 ** math.ceil(math.log2(max(n, 2)))
        block = int(np.clip(power // 4, 64, min(1024, roomy)))
        chunk = int(np.clip(power, 128, min(2048, max(roomy, 128))))
        rows = chunk * bucket(math.ceil(n / chunk))
        exact_rows = n if updates else None
        return cls(rows, block, chunk, has_covariates, 2 if updates < 2 else 3, exact_rows)

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

    points: Points
    owner: Int[Array, " rows"] | None
    offset: Count
    # One number; of frames one for each column that stops, with as many lists of points.
    count: Int[Array, "*lists"]  # type: ignore[assignment] # not the method of tuple

    def settled(self, ok: Flag, old: Rejected) -> Rejected:
        """This Y where ok, else the old one, which stands in this buffer, too."""
        return self._replace(
            offset=jnp.where(ok, self.offset, old.offset),
            count=jnp.where(ok, self.count, old.count),
        )


def empty_rejected(
    layout: Layout, like: PointLike, capacity: int, zeros: Callable[..., Array] = jnp.zeros
) -> Rejected:
    """A buffer for ``capacity`` points of the shape of ``like`` (one point)."""
    rows = layout.sections * (capacity + layout.block + 1)
    points = jax.tree.map(lambda a: zeros((rows, *a.shape), a.dtype), like)
    owner = zeros((rows,), np.int32) if layout.has_covariates else None
    return Rejected(points, owner, zeros((), np.int32), zeros((), np.int32))


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
    return held._replace(offset=offset, count=jnp.zeros_like(held.count))


def resized_rejected(layout: Layout, rejected: Rejected, capacity: int) -> Rejected:
    """The same content in a buffer with room for ``capacity`` points (on the host)."""
    old, new = section_rows(layout, rejected), layout.capacity(capacity) + layout.block + 1
    if new == old:
        return rejected
    start, kept = int(rejected.offset), min(old, new)

    def grow(a: Shaped[Array | np.ndarray, " rows *d"]) -> Shaped[np.ndarray, " more *d"]:
        larger = np.zeros((layout.sections * new, *a.shape[1:]), a.dtype)
        larger[:kept] = np.asarray(a)[start : start + kept]
        return larger

    points, owner = jax.tree.map(grow, (rejected.points, rejected.owner))
    return Rejected(points, owner, as_argument(np.int32(0)), rejected.count)


@runtime_checkable
class Buffer(Protocol):
    """Holds the old Y beside the new one, so that choosing is a matter of numbers, not of copies.

    ``Rejected`` is one, and the buffers of frames are.
    """

    def settled(self, ok: Flag, old: Buffer) -> Buffer:
        """This Y where ok, else the old one."""


def settle(ok: Flag, new: State, old: State) -> State:
    """The new state where ok, else the old one: leaf by leaf, but of buffers only their numbers."""

    def choose(new: Array | Buffer, old: Array | Buffer) -> Array | Buffer:
        if isinstance(new, Buffer):
            return new.settled(ok, old)  # type: ignore[arg-type]
        return jnp.where(ok, new, old)  # type: ignore[arg-type]

    return jax.tree.map(choose, new, old, is_leaf=lambda part: isinstance(part, Buffer))


class Redrawn(NamedTuple):
    """The last of ``attempts`` attempts; ``over``: it exceeds the budget, as all before it did."""

    attempts: Count
    drawn: PyTree
    over: Flag


def redraw(
    attempt: Callable[[Count, Drawn], tuple[Drawn, Flag]], start: Drawn, most: int
) -> Redrawn:
    """Draw until it fits the budget, ``most`` times at the most.

    ``attempt(number, last)`` gives what it draws and whether that exceeds the budget; its
    randomness is its own by its number. ``start`` stands for the last attempt at the first.
    """

    def again(before: Redrawn) -> Redrawn:
        drawn, over = attempt(before.attempts, before.drawn)
        return Redrawn(before.attempts + 1, drawn, over)

    return lax.while_loop(
        lambda so_far: so_far.over & (so_far.attempts < most),
        again,
        Redrawn(jnp.int32(0), start, jnp.array(True)),
    )


def outcome(over: Flag, full: Flag | bool, known: Flag | bool) -> Count:
    """The status of a redraw: OK where there is a Y to go on with, the new one or the old.

    over : no attempt fitted the budget, the old Y is kept. full : the new Y fits the budget but
    not the buffer. known : whether there is an old Y to keep.
    """
    given_up = jnp.where(known, OK, BROKEN)
    return jnp.where(over, given_up, jnp.where(full, FULL, OK)).astype(jnp.int32)
