r"""The rejections of n frames: drawing them, holding them, and their part of the log joint.

With Y held, kappa in the order of the columns, s = diag(GᵀSH) of the data, t_j the sum of G_jᵀ y_j
over rejections that have a column j, and N_j = n + their number,

    log p(X, Y | kappa, G, H) = sum_j [kappa_j (s_j + t_j) - N_j log h_{d-j+1}(kappa_j)]
                                + sum_r sum_{y stopped by r} log(1 - a_r(c_y, kappa_r)).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation import joint
from offcut.augmentation.rejections import settle
from offcut.langevin.hypergeometric import log_h, log_h_drop
from offcut.langevin.relative import propose
from offcut.numerics.arrays import materialised
from offcut.numerics.log1mexp import log1mexp

#: Expected proposals for each observation in one block; most runs need one block.
ROOM = 1.3
LEAST_BLOCK, LARGEST_BLOCK = 32, 4096
#: Rejections in one piece of the sum over them.
LEAST_CHUNK, LARGEST_CHUNK = 32, 512


class Layout(NamedTuple):
    """What a program is compiled for. Results do not depend on the capacity of the buffer."""

    d: int
    p: int
    block: int
    chunk: int

    @classmethod
    def of(cls, n: int, d: int, p: int) -> Layout:
        """The layout for n frames."""
        block = 32 * int(np.ceil(ROOM * n / 32))
        chunk = 1 << int(np.ceil(np.log2(max(n / 4, 1))))
        return cls(
            d,
            p,
            int(np.clip(block, LEAST_BLOCK, LARGEST_BLOCK)),
            int(np.clip(chunk, LEAST_CHUNK, LARGEST_CHUNK)),
        )


class Held(NamedTuple):
    """Y: what an update of kappa needs of it.

    ``taken[r-1, section]`` has the c of the ``stopped[r-1]`` rejections that column r stopped; the
    other section is for the next Y, so that keeping the old one costs nothing.
    """

    taken: jax.Array  # (p-1, 2, capacity)
    section: jax.Array
    stopped: jax.Array  # (p-1,)
    along: jax.Array  # (p,) sums of G_jᵀ y_j

    def settled(self, ok: jax.Array, old: Held) -> Held:
        """This Y where ok, else the old one, which stands in this buffer, too."""
        return Held(self.taken, *settle(ok, tuple(self[1:]), tuple(old[1:])))

    @property
    def size(self) -> jax.Array:
        """|Y|."""
        return jnp.sum(self.stopped, dtype=jnp.int32)


class Run(NamedTuple):
    """A run of the rejection sampler to its n-th acceptance, or over its limit."""

    taken: Any  # the buffer, or None where only counts matter
    stopped: jax.Array
    along: jax.Array
    accepted: jax.Array
    accepted_along: jax.Array  # (p,) sums over what was accepted, where wanted

    @property
    def rejected(self) -> jax.Array:
        """|Y|."""
        return jnp.sum(self.stopped, dtype=jnp.int32)


def nothing(layout: Layout, capacity: int) -> Held:
    """No rejections, room for ``capacity`` at each column."""
    stages = layout.p - 1
    return Held(
        jnp.zeros((stages, 2, whole_chunks(layout, capacity))),
        jnp.int32(0),
        jnp.zeros(stages, jnp.int32),
        jnp.zeros(layout.p),
    )


def whole_chunks(layout: Layout, capacity: int) -> int:
    """Room for at least ``capacity``, in whole pieces of the sum."""
    return layout.chunk * max(1, -(-capacity // layout.chunk))


def resized(layout: Layout, held: Held, capacity: int) -> Held:
    """The same rejections in a buffer of another size."""
    old, capacity = held.taken.shape[2], whole_chunks(layout, capacity)
    kept = held.taken[:, :, : min(old, capacity)]
    missing = ((0, 0), (0, 0), (0, max(capacity - old, 0)))
    return held._replace(taken=jnp.pad(kept, missing))


def run(
    layout: Layout,
    key: jax.Array,
    kappa: jax.Array,
    wanted: jax.Array,
    limit: jax.Array,
    taken: jax.Array | None = None,
    section: jax.Array | int = 0,
    last: bool = False,
) -> Run:
    """Propose at ``kappa`` until ``wanted`` are accepted or more than ``limit`` are rejected.

    ``taken`` is the buffer to write into, or None where only counts matter; with ``last`` the
    accepted frames are complete and their ``along`` is summed.
    """
    d, p, size = layout.d, layout.p, layout.block

    def unfinished(carry: tuple) -> jax.Array:
        _, found = carry
        return (found.accepted < wanted) & (found.rejected <= limit)

    def one_block(carry: tuple) -> tuple:
        turn, found = carry
        own_key = jax.random.fold_in(key, turn)
        judged = materialised(turn, lambda: propose(own_key, d, kappa, size, last))
        accepted = judged.stopped == p
        before = jnp.cumsum(accepted, dtype=jnp.int32) - accepted
        in_time = before < wanted - found.accepted
        along, taken, stopped = found.along, found.taken, found.stopped
        for r in range(1, p):
            here = in_time & (judged.stopped == r)
            if taken is not None:
                place = stopped[r - 1] + jnp.cumsum(here, dtype=jnp.int32) - 1
                place = jnp.where(here, place, taken.shape[2])
                values = judged.taken[:, r]
                taken = taken.at[r - 1, section, place].set(values, mode="drop")
            stopped = stopped.at[r - 1].add(jnp.sum(here, dtype=jnp.int32))
        for j in range(p - 1):
            has_column = in_time & (judged.stopped > j) & ~accepted
            along = along.at[j].add(jnp.sum(jnp.where(has_column, judged.along[:, j], 0.0)))
        kept = in_time & accepted
        mine = found.accepted_along
        if last:
            rows = jnp.where(kept[:, None], judged.along, 0.0)
            mine = mine + jnp.sum(rows, axis=0)
        return turn + 1, Run(
            taken, stopped, along, found.accepted + jnp.sum(kept, dtype=jnp.int32), mine
        )

    return lax.while_loop(unfinished, one_block, (jnp.int32(0), no_run(layout, taken)))[1]


def no_run(layout: Layout, taken: jax.Array | None) -> Run:
    """A run before its first proposal."""
    p = layout.p
    return Run(taken, jnp.zeros(p - 1, jnp.int32), jnp.zeros(p), jnp.int32(0), jnp.zeros(p))


def log_joint(
    layout: Layout, kappa: jax.Array, n: jax.Array, along: jax.Array, held: Held
) -> jax.Array:
    """log p(X, Y | kappa, G, H) up to a constant, kappa and ``along`` in the order of columns."""
    d, p = layout.d, layout.p
    total = jnp.sum(kappa * (along + held.along))
    for j in range(p):
        drawn = n + jnp.sum(held.stopped[j:])
        total = total - drawn * log_h(d - j, kappa[j])
    for r in range(1, p):
        count = held.stopped[r - 1]
        taken = lax.dynamic_index_in_dim(held.taken[r - 1], held.section, keepdims=False)
        log_rejected = joint.with_gradient(partial(_log_rejected_and_slope, d - r, layout.chunk))
        total = total + log_rejected(kappa[r], taken, count)
    return total


def _log_rejected_and_slope(
    m: int, chunk: int, kappa: jax.Array, taken: jax.Array, count: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Sum of log(1 - h_m(kappa √(1-c)) / h_m(kappa)) over the first ``count`` of ``taken``.

    And its derivative in kappa.
    """

    def of_one(kappa: jax.Array, c: jax.Array) -> jax.Array:
        return log1mexp(log_h_drop(m, kappa, c))

    return joint.total(of_one, kappa, (taken,), count, chunk)
