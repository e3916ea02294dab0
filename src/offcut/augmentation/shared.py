"""Algorithm 1 where all observations share one proposal: draw until n are accepted.

Proposals come in blocks of fixed size, block b from fold_in(key, b), and are walked in order up to
the n-th acceptance; what was drawn behind it in the same block does not belong to Y.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import (
    MOST_REJECTED,
    Layout,
    Rejected,
    capacity_of,
    exclusive_count,
    materialised,
    section_rows,
    write_rows,
)
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta


class Worst(NamedTuple):
    """The largest log acceptance met, and the proposal it was met at (NaN counts as largest)."""

    log_accept: jax.Array
    point: Any


class Run(NamedTuple):
    """What one run of the rejection sampler gives.

    ``accepted`` counts acceptances (n when the run ended by itself); ``kept`` holds the accepted
    points where asked for. A run that met its limit or its capacity is cut short.
    """

    rejected: Rejected
    accepted: jax.Array
    kept: Any
    worst: Worst


def no_worst(like: Any) -> Worst:
    """Nothing met yet."""
    return Worst(jnp.array(-jnp.inf), jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like))


def update_worst(worst: Worst, log_accept: jax.Array | None, points: Any) -> Worst:
    """Fold a batch of log acceptances into the largest so far."""
    if log_accept is None:
        return worst
    place = jnp.argmax(_rank(log_accept))
    return merge_worst(worst, Worst(log_accept[place], jax.tree.map(lambda a: a[place], points)))


def merge_worst(a: Worst, b: Worst) -> Worst:
    """The worse of two."""
    new = _rank(b.log_accept) > _rank(a.log_accept)
    return jax.tree.map(lambda x, y: jnp.where(new, y, x), a, b)


def _rank(log_accept: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(log_accept), jnp.inf, log_accept)


def run_shared(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    buffer: Rejected,
    limit: jax.Array,
    *,
    wanted: jax.Array | int | None = None,
    keep_accepted: bool = False,
    store: bool = True,
) -> Run:
    """Propose until ``wanted`` (default n) are accepted or more than ``limit`` are rejected.

    Rejections are written to the section of ``buffer`` that its offset points at.
    With ``store=False`` rejections are only counted, and the buffer's size does not matter.
    """
    size = layout.block
    wanted = jnp.int32(layout.n if wanted is None else wanted)
    capacity = capacity_of(layout, buffer)
    bound = jnp.minimum(limit, capacity if store else MOST_REJECTED).astype(jnp.int32)
    trash = buffer.offset + section_rows(layout, buffer) - 1
    like = jax.tree.map(lambda a: a[0], buffer.points)
    kept = None
    if keep_accepted:
        kept = jax.tree.map(lambda a: jnp.zeros((layout.n + 1, *a.shape), a.dtype), like)

    def unfinished(carry: tuple) -> jax.Array:
        _, accepted, rejected, *_ = carry
        return (accepted < wanted) & (rejected <= bound)

    def draw_block(carry: tuple) -> tuple:
        block, accepted, rejected, points, kept, worst = carry
        proposed = materialised(
            block, lambda: model.propose_block(jax.random.fold_in(key, block), theta, size)
        )
        before = exclusive_count(proposed.accepted)
        in_time = before < wanted - accepted
        is_rejected = ~proposed.accepted & in_time
        is_accepted = proposed.accepted & in_time
        if store:
            # Every proposal in time before this one was either accepted or rejected.
            earlier = jnp.arange(size, dtype=jnp.int32) - before
            place = jnp.where(is_rejected, buffer.offset + rejected + earlier, trash)
            points = write_rows(points, place, proposed.points)
        if keep_accepted:
            place = jnp.where(is_accepted, accepted + before, layout.n)
            kept = write_rows(kept, place, proposed.points)
        return (
            block + 1,
            accepted + jnp.sum(is_accepted, dtype=jnp.int32),
            rejected + jnp.sum(is_rejected, dtype=jnp.int32),
            points,
            kept,
            update_worst(worst, proposed.log_accept, proposed.points),
        )

    start = (jnp.int32(0), jnp.int32(0), jnp.int32(0), buffer.points, kept, no_worst(like))
    _, accepted, rejected, points, kept, worst = lax.while_loop(unfinished, draw_block, start)
    if keep_accepted:
        kept = jax.tree.map(lambda a: a[: layout.n], kept)
    return Run(buffer._replace(points=points, count=rejected), accepted, kept, worst)
