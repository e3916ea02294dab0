"""Algorithm 1 where each observation has its own proposal: each runs to its own acceptance.

Observation i's j-th proposal comes from fold_in(fold_in(key, i), j), whatever the schedule. The
schedule keeps a stack of observations still pending; in each round the top of the stack shares a
fixed number of slots, several speculative proposals each when few are pending, and those
before the first acceptance are kept. (One proposal per observation and round would leave almost
all slots idle when acceptance is uneven.)
"""

from __future__ import annotations

from typing import Any

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
from offcut.augmentation.shared import Run, no_worst, update_worst
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta


def run_per_observation(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    covariates: Any,
    buffer: Rejected,
    limit: jax.Array,
    *,
    keep_accepted: bool = False,
    store: bool = True,
    order: jax.Array | None = None,
) -> tuple[Run, jax.Array]:
    """Run every observation to its acceptance, or until more than ``limit`` are rejected.

    Returns the run and the number of rejections of each observation. The last of ``order`` (by
    default of the observations as they stand) are served first: this matters where the limit cuts
    the run short, and for nothing else.
    """
    n, size = layout.n, layout.block
    capacity = capacity_of(layout, buffer)
    bound = jnp.minimum(limit, capacity if store else MOST_REJECTED).astype(jnp.int32)
    trash = buffer.offset + section_rows(layout, buffer) - 1
    like = jax.tree.map(lambda a: a[0], buffer.points)
    slot = jnp.arange(size, dtype=jnp.int32)
    kept = None
    if keep_accepted:
        kept = jax.tree.map(lambda a: jnp.zeros((n + 1, *a.shape), a.dtype), like)

    def propose(observation: jax.Array, attempt: jax.Array) -> Any:
        own_key = jax.random.fold_in(jax.random.fold_in(key, observation), attempt)
        covariate = jax.tree.map(lambda a: a[observation], covariates)
        return model.propose_one(own_key, theta, covariate)

    def unfinished(carry: tuple) -> jax.Array:
        pending, rejected = carry[1], carry[2]
        return (pending > 0) & (rejected <= bound)

    def play_round(carry: tuple) -> tuple:
        turn, pending, rejected, stack, tried, points, owner, kept, worst = carry
        groups = jnp.minimum(pending, size)
        share = size // groups  # speculative proposals for each
        group = slot // share
        active = group < groups
        bottom = pending - groups
        observation = stack[bottom + jnp.minimum(group, groups - 1)]
        attempt = tried[observation] + slot % share
        proposed = materialised(turn, lambda: jax.vmap(propose)(observation, attempt))

        accepted = proposed.accepted & active
        before = exclusive_count(accepted)
        first_slot = jnp.minimum(group, groups - 1) * share
        is_first = before == before[first_slot]
        is_rejected = active & ~proposed.accepted & is_first
        is_accepted = accepted & is_first
        if store:
            row = buffer.offset + rejected + exclusive_count(is_rejected)
            place = jnp.where(is_rejected, row, trash)
            points = write_rows(points, place, proposed.points)
            owner = owner.at[place].set(observation, mode="promise_in_bounds")
        if keep_accepted:
            place = jnp.where(is_accepted, observation, n)
            kept = write_rows(kept, place, proposed.points)

        # Rejections of each observation: `share` more where the round went by, else up to the
        # acceptance. Group g looks up its own totals; unused groups write to the spare row.
        member = jnp.where(slot < groups, stack[bottom + slot], n)
        totals = jnp.append(before, before[-1] + accepted[-1])
        start = jnp.minimum(slot * share, size)
        stop = jnp.minimum(start + share, size)
        done = (totals[stop] > totals[start]) & (slot < groups)
        where_accepted = jnp.where(is_accepted, observation, n)
        tried = tried.at[member].add(jnp.where(done | (slot >= groups), 0, share))
        tried = tried.at[where_accepted].add(jnp.where(is_accepted, slot - first_slot, 0))
        again = ~done & (slot < groups)
        place = jnp.where(again, bottom + exclusive_count(again), n)
        stack = stack.at[place].set(member, mode="promise_in_bounds")
        return (
            turn + 1,
            bottom + jnp.sum(again, dtype=jnp.int32),
            rejected + jnp.sum(is_rejected, dtype=jnp.int32),
            stack,
            tried,
            points,
            owner,
            kept,
            update_worst(worst, proposed.log_accept, proposed.points),
        )

    stack = jnp.arange(n + size, dtype=jnp.int32) % (n + 1)
    if order is not None:
        stack = stack.at[:n].set(order.astype(jnp.int32))
    carry = (
        jnp.int32(0),
        jnp.int32(n),
        jnp.int32(0),
        stack,
        jnp.zeros((n + 1,), jnp.int32),
        buffer.points,
        buffer.owner,
        kept,
        no_worst(like),
    )
    carry = lax.while_loop(unfinished, play_round, carry)
    _, pending, rejected, _, tried, points, owner, kept, worst = carry
    if keep_accepted:
        kept = jax.tree.map(lambda a: a[:n], kept)
    held = buffer._replace(points=points, owner=owner, count=rejected)
    run = Run(held, jnp.int32(n) - pending, kept, worst)
    return run, tried[:n]
