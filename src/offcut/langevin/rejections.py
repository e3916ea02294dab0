r"""The rejections of n frames: drawing them, holding them, and their part of the log joint.

With Y held, kappa in the order of the columns, s = diag(GᵀSH) of the data, t_j the sum of G_jᵀ y_j
over rejections that have a column j, and N_j = n + their number,

    log p(X, Y | kappa, G, H) = sum_j [kappa_j (s_j + t_j) - N_j log h_{d-j+1}(kappa_j)]
                                + sum_r sum_{y stopped by r} log(1 - a_r(c_y, kappa_r)).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation import joint
from offcut.augmentation import rejections as core
from offcut.augmentation.algorithm1 import Block, UntilAccepted, propose_until
from offcut.augmentation.rejections import Rejected
from offcut.langevin.hypergeometric import dropped, evaluated
from offcut.langevin.proposals import PartialFrames, propose_partial
from offcut.numerics.arrays import bucket, exclusive_count, write_rows
from offcut.numerics.log1mexp import log1mexp, slope_of_log1mexp
from offcut.numerics.types import KeyArray

#: Expected proposals for each observation in one block; most runs need one block.
ROOM = 1.3
LEAST_BLOCK, LARGEST_BLOCK = 32, 4096
#: Rejections in one piece of the sum over them.
LEAST_CHUNK, LARGEST_CHUNK = 32, 512


class Layout(NamedTuple):
    """What a program is compiled for. Results do not depend on the capacity of the buffer.

    n is data, and of the frames only their sum matters: there are no rows of data, and samples of
    about the same size share a program.
    """

    d: int
    p: int
    rows: core.Layout

    @classmethod
    def of(cls, n: int, d: int, p: int) -> Layout:
        """The layout for n frames: few different ones, with blocks a quarter larger at most."""
        block = 32 * bucket(int(np.ceil(ROOM * n / 32)))
        block = int(np.clip(block, LEAST_BLOCK, LARGEST_BLOCK))
        chunk = 1 << int(np.ceil(np.log2(max(n / 4, 1))))
        chunk = int(np.clip(chunk, LEAST_CHUNK, LARGEST_CHUNK))
        return cls(d, p, core.Layout(0, block, chunk, has_covariates=False, sections=2))


class Held(NamedTuple):
    """Y: what an update of kappa needs of it.

    ``rejected.points[r-1]`` has the c of the ``rejected.count[r-1]`` proposals that column r
    stopped; ``along`` the sums of G_jᵀ y_j. ``known``: whether a Y was ever drawn.
    """

    rejected: Rejected
    along: Float[Array, " p"]
    known: Bool[Array, ""]

    @property
    def size(self) -> Int[Array, ""]:
        """|Y|."""
        return jnp.sum(self.rejected.count, dtype=jnp.int32)


def nothing(layout: Layout, capacity: int) -> Held:
    """No rejections, room for ``capacity`` at each column."""
    like = (jnp.zeros(()),) * (layout.p - 1)
    buffer = core.empty_rejected(layout.rows, like, layout.rows.capacity(capacity))
    return Held(no_run(layout, buffer).rejected, jnp.zeros(layout.p), jnp.array(False))


class Run(NamedTuple):
    """A run of the rejection sampler to its n-th acceptance, or over its limit.

    ``along`` are sums over rejections, ``accepted_along`` over acceptances, where wanted.
    """

    rejected: Rejected  # points are None where only counts matter
    along: Float[Array, " p"]
    accepted_along: Float[Array, " p"]

    @property
    def size(self) -> Int[Array, ""]:
        """|Y|."""
        return jnp.sum(self.rejected.count, dtype=jnp.int32)


def no_run(layout: Layout, buffer: Rejected | None) -> Run:
    """A run before its first proposal."""
    nobody = Rejected(None, None, jnp.int32(0), jnp.int32(0)) if buffer is None else buffer
    blank = nobody._replace(count=jnp.zeros(layout.p - 1, jnp.int32))
    return Run(blank, jnp.zeros(layout.p), jnp.zeros(layout.p))


def run(
    layout: Layout,
    key: KeyArray,
    kappa: Float[Array, " p"],
    wanted: Int[Array, ""],
    limit: Int[Array, ""],
    buffer: Rejected | None = None,
    last: bool = False,
) -> Run:
    """Propose at ``kappa`` until ``wanted`` are accepted or more than ``limit`` are rejected.

    Rejections are written to the section of ``buffer`` that its offset points at, as many as it has
    room for; without a buffer they are only counted. With ``last`` the accepted frames are complete
    and their ``along`` is summed.
    """
    d, p, rows = layout.d, layout.p, layout.rows

    def propose_block(number: Int[Array, ""], turn: None) -> PartialFrames:
        return propose_partial(jax.random.fold_in(key, number), d, kappa, rows.block, last)

    def collect(found: Run, block: Block) -> Run:
        (points, _, offset, count), along, accepted_along = found
        proposed = block.proposed
        for r in range(1, p):
            here = block.rejected & (proposed.stopped == r)
            if points is not None:
                place = count[r - 1] + exclusive_count(here)
                fits = here & (place < core.capacity_of(rows, found.rejected))
                trash = core.section_rows(rows, found.rejected) - 1
                place = offset + jnp.where(fits, place, trash)
                written = write_rows(points[r - 1], place, proposed.taken[:, r])
                points = (*points[: r - 1], written, *points[r:])
            count = count.at[r - 1].add(jnp.sum(here, dtype=jnp.int32))
        for j in range(p - 1):
            has_column = block.rejected & (proposed.stopped > j)
            along = along.at[j].add(jnp.sum(jnp.where(has_column, proposed.along[:, j], 0.0)))
        if last:
            whole = jnp.where(block.accepted[:, None], proposed.along, 0.0)
            accepted_along = accepted_along + jnp.sum(whole, axis=0)
        return Run(Rejected(points, None, offset, count), along, accepted_along)

    start = no_run(layout, buffer)
    return propose_until(propose_block, UntilAccepted(wanted), limit, collect, start).collected


def log_joint(
    layout: Layout,
    kappa: Float[Array, " p"],
    n: Int[Array, ""],
    along: Float[Array, " p"],
    held: Held,
) -> Float[Array, ""]:
    """log p(X, Y | kappa, G, H) up to a constant, kappa and ``along`` in the order of columns.

    Differentiable in kappa.
    """
    joint_and_slopes = joint.with_gradient(partial(_joint_and_slopes, layout))
    return joint_and_slopes(kappa, n, along + held.along, held.rejected)


def _joint_and_slopes(
    layout: Layout,
    kappa: Float[Array, " p"],
    n: Int[Array, ""],
    along: Float[Array, " p"],
    rejected: Rejected,
) -> tuple[Float[Array, ""], Float[Array, " p"]]:
    """The log joint and its gradient: one pass for all columns, and one for all rejections."""
    d, p = layout.d, layout.p
    at = evaluated(tuple(d - j for j in range(p)), kappa)
    later = jnp.cumsum(jnp.append(rejected.count, 0)[::-1])[::-1]  # stopped behind column j
    drawn = n + later
    value = jnp.sum(kappa * along - drawn * at.log_h)
    slopes = along - drawn * at.ratio
    if p == 1:
        return value, slopes
    over_y, by_kappa = _over_rejections(layout, kappa[1:], rejected)
    return value + jnp.sum(over_y), slopes + jnp.append(0.0, by_kappa)


def _over_rejections(
    layout: Layout, kappa: Float[Array, " stops"], rejected: Rejected
) -> tuple[Float[Array, " stops"], Float[Array, " stops"]]:
    """Sums of log(1 - h_m(kappa √(1-c)) / h_m(kappa)) over the rejections at each column.

    And their derivatives in kappa. Chunks of all columns go side by side; what is behind the last
    rejection of a column adds nothing.
    """
    chunk, count = layout.rows.chunk, rejected.count[:, None]
    m = tuple(layout.d - r for r in range(1, layout.p))
    large = evaluated(m, kappa[:, None])

    def add(
        sums: tuple[Float[Array, " stops"], Float[Array, " stops"]], start: Int[Array, ""]
    ) -> tuple[Float[Array, " stops"], Float[Array, " stops"]]:
        first = rejected.offset + start
        rows = [lax.dynamic_slice_in_dim(c, first, chunk) for c in rejected.points]
        used = start + jnp.arange(chunk, dtype=jnp.int32)[None, :] < count
        drop, ratio = dropped(m, large, jnp.where(used, jnp.stack(rows), 0.5))
        slope = slope_of_log1mexp(drop) * (ratio - large.ratio)
        parts = (jnp.sum(jnp.where(used, x, 0.0), axis=1) for x in (log1mexp(drop), slope))
        return sums[0] + next(parts), sums[1] + next(parts)

    nothing = jnp.zeros_like(kappa), jnp.zeros_like(kappa)
    return joint.in_chunks(add, nothing, jnp.max(rejected.count), chunk)
