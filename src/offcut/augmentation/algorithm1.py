"""Algorithm 1: run the rejection sampler once for each observation; keep what it rejects.

Algorithm 1 where all observations share one proposal: draw until n are accepted.

Proposals come in blocks of fixed size, block b from fold_in(key, b), and are walked in order up to
the n-th acceptance; what was drawn behind it in the same block does not belong to Y.

Algorithm 1 where each observation has its own proposal: each runs to its own acceptance.

Observation i's j-th proposal comes from fold_in(fold_in(key, i), j), whatever the schedule. The
schedule keeps a stack of observations still pending; in each round the top of the stack shares a
fixed number of slots, several speculative proposals each when few are pending, and those
before the first acceptance are kept. (One proposal per observation and round would leave almost
all slots idle when acceptance is uneven.)

``offcut.augment``: Algorithm 1 by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.augmentation.acceptance import (
    Worst,
    no_worst,
    refuse_broken,
    update_worst,
)
from offcut.augmentation.rejections import (
    Layout,
    Rejected,
    capacity_of,
    empty_rejected,
    section_rows,
)
from offcut.base import MEMORY_LIMIT, MOST_REJECTED
from offcut.errors import MemoryLimitError, SettingsError, StartError
from offcut.models.data import Observed, as_covariates, pad_rows, point_like, point_size
from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.arrays import exclusive_count, materialised, write_rows
from offcut.numerics.keys import as_key
from offcut.numerics.rendering import shown
from offcut.programs.precision import in_float64

#: A start where so many proposals do not give n acceptances is given up (a second or so of work).
PATIENCE = 2_000_000


class Run(NamedTuple):
    """What one run of the rejection sampler gives.

    ``accepted`` counts acceptances (n when the run ended by itself); ``kept`` holds the accepted
    points where asked for. A run that met its limit or its capacity is cut short.
    """

    rejected: Rejected
    accepted: jax.Array
    kept: Any
    worst: Worst


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


def run_algorithm_1(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    buffer: Rejected,
    limit: jax.Array,
    **options: Any,
) -> Run:
    """Algorithm 1, by whichever scheme the data ask for."""
    if layout.has_covariates:
        (covariates,) = data.covariates
        return run_per_observation(model, layout, key, theta, covariates, buffer, limit, **options)[
            0
        ]
    return run_shared(model, layout, key, theta, buffer, limit, **options)


@in_float64
def augment(
    key: Any, model: RejectionModel, theta: dict[str, Any], n: int, *, covariates: Any = None
) -> tuple[Any, Any]:
    """Algorithm 1: run the rejection sampler to ``n`` acceptances.

    Parameters
    ----------
    key : JAX random key or int
        Source of randomness.
    model : RejectionModel
        Any rejection model.
    theta : dict
        Parameter values, on their constrained scale.
    n : int
        How many acceptances to wait for.
    covariates : pytree with n rows, optional
        Each observation then runs to its own acceptance.

    Returns
    -------
    accepted, rejected
        Pytrees of NumPy arrays: n accepted draws, and all proposals rejected before the last.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     {"loc": dist.Normal(0, 1)}, lambda theta: dist.Normal(theta["loc"], 1), lambda x: x > 0
    ... )
    >>> accepted, rejected = offcut.augment(0, model, {"loc": 0.0}, n=100)
    >>> accepted.shape, bool((rejected <= 0).all())
    ((100,), True)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"n must be a whole number of at least 1, got {n!r}")
    trees = as_covariates(covariates, int(n))
    like = point_like(model, trees)
    layout = Layout.of(int(n), point_size(like), covariates is not None)
    theta = model.prior.completed(theta)
    model.identify(trees)

    def whole_run(key: Any, theta: Any, data: Any, buffer: Any, limit: Any) -> Any:
        return run_algorithm_1(model, layout, key, theta, data, buffer, limit, keep_accepted=True)

    program = model.compiled(("augment", layout), whole_run)
    data = Observed(None, pad_rows(trees, layout.chunk))
    capacity = layout.capacity(4 * n)
    while True:
        run = program(
            as_key(key),
            theta,
            data,
            empty_rejected(layout, like, capacity),
            jnp.int32(MOST_REJECTED),
        )
        refuse_broken(model, theta, run.worst)
        count = int(run.rejected.count)
        if count <= capacity:
            break
        if int(run.accepted) == 0 and count > PATIENCE:
            raise StartError(
                f"none of {count:,} proposals was accepted at theta={shown(theta)}; is the window "
                "on the scale of the proposals?"
            )
        capacity = layout.capacity(8 * capacity)
        needed = capacity * layout.sections * 8 * max(point_size(like), 1)
        if needed > MEMORY_LIMIT:
            raise MemoryLimitError(
                f"more than {count:,} proposals were rejected before {n} were accepted at "
                f"theta={shown(theta)}, and room for more would take {needed / 2**30:.1f} GiB of "
                f"the {MEMORY_LIMIT / 2**30:.0f} GiB allowed; ask for fewer at a time"
            )
    accepted = jax.tree.map(np.asarray, run.kept)
    rejected = jax.tree.map(lambda a: np.asarray(a[:count]), run.rejected.points)
    return accepted, rejected
