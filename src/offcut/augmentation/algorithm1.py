"""Algorithm 1: run the rejection sampler once for each observation; keep what it rejects.

``propose_until`` is the loop, for rejection models, mixtures and Gaussian processes alike.
Proposals come in blocks of fixed size; a *schedule* says whose turn each place of a block is and
which proposals came in time; what was drawn behind the last acceptance that was waited for does
not belong to Y.

Where all observations share one proposal (``run_shared``, ``UntilAccepted``), block b comes from
fold_in(key, b) and is walked in order up to the n-th acceptance.

Where each observation has its own (``run_per_observation``, ``OneEach``), each runs to its own
acceptance, and observation i's j-th proposal comes from fold_in(fold_in(key, i), j), whatever the
schedule. That keeps a stack of observations still pending; in each round the top of the stack
shares the places of a block, several speculative proposals each when few are pending, and those
before the first acceptance are kept. (One proposal per observation and round would leave almost
all places idle when acceptance is uneven.)

``offcut.augment`` is Algorithm 1 by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Int, PyTree

from offcut.augmentation.acceptance import Worst, no_worst, refuse_broken, update_worst
from offcut.augmentation.rejections import (
    Layout,
    Rejected,
    capacity_of,
    empty_rejected,
    section_rows,
)
from offcut.base import MEMORY_LIMIT, MOST_REJECTED
from offcut.errors import MemoryLimitError, SettingsError, StartError
from offcut.models.data import HostPoints, Observed, as_covariates, pad_rows, point_like, point_size
from offcut.models.prior import Theta
from offcut.models.rejection import Proposed, Proposer, RejectionModel
from offcut.numerics.arrays import as_argument, exclusive_count, materialised, write_rows
from offcut.numerics.keys import as_key
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Points
from offcut.programs.precision import in_float64

#: A start where so many proposals do not give n acceptances is given up (a second or so of work).
PATIENCE = 2_000_000

Count = Int[Array, ""]
Flags = Bool[Array, " block"]
Places = Int[Array, " block"]


@runtime_checkable
class Fates(Protocol):
    """A block of proposals, whatever they are, of which it is known which were accepted."""

    @property
    def accepted(self) -> Flags: ...


#: A block of proposals; what a schedule has counted, whose turn it is; what a run collects.
P = TypeVar("P", bound=Fates)
S = TypeVar("S")
T = TypeVar("T")
C = TypeVar("C")


@runtime_checkable
class Schedule(Protocol[S, T]):
    """Whose turn it is, and which proposals come in time.

    What it has counted so far, its ``counts``, is a pytree that goes through the loop.
    """

    def start(self) -> S:
        """Before the first block."""

    def unfinished(self, counts: S) -> Bool[Array, ""]:
        """Whether there is anything left to wait for."""

    def assign(self, counts: S) -> T:
        """Whose turn each place of the next block is."""

    def cut(self, counts: S, turn: T, accepted: Flags) -> tuple[Flags, Places, S]:
        """Which proposals came in time; the rank of each; and the counts after the block."""


@dataclass(frozen=True)
class UntilAccepted:
    """All share one proposal: until ``wanted`` are accepted. They are what it counts."""

    wanted: Count

    def start(self) -> Count:
        return jnp.int32(0)

    def unfinished(self, counts: Count) -> Bool[Array, ""]:
        return counts < self.wanted

    def assign(self, counts: Count) -> None:
        return

    def cut(self, counts: Count, turn: None, accepted: Flags) -> tuple[Flags, Places, Count]:
        """Up to the last acceptance that is wanted."""
        before = exclusive_count(accepted)
        in_time = before < self.wanted - counts
        now = counts + jnp.sum(accepted & in_time, dtype=jnp.int32)
        return in_time, counts + before, now


class UntilProposed(UntilAccepted):
    """Until ``wanted`` are proposed, accepted or not. They are what it counts."""

    def cut(self, counts: Count, turn: None, accepted: Flags) -> tuple[Flags, Places, Count]:
        """Up to the last that is wanted."""
        place = jnp.arange(accepted.shape[0], dtype=jnp.int32)
        in_time = place < self.wanted - counts
        return in_time, counts + place, counts + jnp.sum(in_time, dtype=jnp.int32)


class Turn(NamedTuple):
    """Who proposes at each place of a block, and for which time.

    groups, share : how many at the top of the stack propose, and how many places each has.
    """

    observation: Places
    attempt: Places
    groups: Count
    share: Count


class Pending(NamedTuple):
    """The stack of observations without acceptance, ``count`` of them, and rejections of each."""

    count: Count  # type: ignore[assignment] # not the method of tuple
    stack: Int[Array, " rows"]
    tried: Int[Array, " rows+1"]


@dataclass(frozen=True)
class OneEach:
    """Each of n observations has its own proposal: until each has one acceptance.

    There is room for ``rows`` of them. The last of ``order`` (its first n) are served first. The
    rank of a proposal is its observation.
    """

    n: Count
    rows: int
    size: int
    order: Int[Array, " rows"] | None

    def start(self) -> Pending:
        """All are pending."""
        stack = jnp.arange(self.rows + self.size, dtype=jnp.int32) % (self.rows + 1)
        if self.order is not None:
            stack = stack.at[: self.rows].set(self.order.astype(jnp.int32))
        return Pending(jnp.int32(self.n), stack, jnp.zeros((self.rows + 1,), jnp.int32))

    def unfinished(self, counts: Pending) -> Bool[Array, ""]:
        return counts.count > 0

    def assign(self, counts: Pending) -> Turn:
        """The top of the stack, in equal shares."""
        slot = jnp.arange(self.size, dtype=jnp.int32)
        groups = jnp.minimum(counts.count, self.size)
        share = self.size // groups  # speculative proposals for each
        bottom = counts.count - groups
        observation = counts.stack[bottom + jnp.minimum(slot // share, groups - 1)]
        attempt = counts.tried[observation] + slot % share
        return Turn(observation, attempt, groups, share)

    def cut(self, counts: Pending, turn: Turn, accepted: Flags) -> tuple[Flags, Places, Pending]:
        """Each up to its first acceptance."""
        spare, size, groups, share = self.rows, self.size, turn.groups, turn.share
        slot = jnp.arange(size, dtype=jnp.int32)
        group, bottom = slot // share, counts.count - groups
        active = group < groups
        accepted = accepted & active
        before = exclusive_count(accepted)
        first_slot = jnp.minimum(group, groups - 1) * share
        is_first = before == before[first_slot]
        is_accepted = accepted & is_first

        # Rejections of each observation: `share` more where the round went by, else up to the
        # acceptance. Group g looks up its own totals; unused groups write to the spare row.
        member = jnp.where(slot < groups, counts.stack[bottom + slot], spare)
        totals = jnp.append(before, before[-1] + accepted[-1])
        start = jnp.minimum(slot * share, size)
        stop = jnp.minimum(start + share, size)
        done = (totals[stop] > totals[start]) & (slot < groups)
        where_accepted = jnp.where(is_accepted, turn.observation, spare)
        tried = counts.tried.at[member].add(jnp.where(done | (slot >= groups), 0, share))
        tried = tried.at[where_accepted].add(jnp.where(is_accepted, slot - first_slot, 0))
        again = ~done & (slot < groups)
        place = jnp.where(again, bottom + exclusive_count(again), spare)
        stack = counts.stack.at[place].set(member, mode="promise_in_bounds")
        left = bottom + jnp.sum(again, dtype=jnp.int32)
        return active & is_first, turn.observation, Pending(left, stack, tried)


class Block(NamedTuple):
    """A block of proposals, whose turn each was, and what became of it.

    place : number of rejections before it in the run. rank : number of acceptances before it, of
    those whose turn it was (where each has one acceptance: whose turn it was).
    """

    proposed: PyTree
    turn: PyTree
    rejected: Flags
    accepted: Flags
    place: Places
    rank: Places


class Finished(NamedTuple):
    """What a run has collected, its rejections, and the counts of its schedule at the end."""

    collected: PyTree
    rejected: Count
    counts: PyTree


def propose_until(
    propose: Callable[[Count, T], P],
    schedule: Schedule[S, T],
    limit: Count,
    collect: Callable[[C, Block], C],
    start: C,
) -> Finished:
    """Propose until the schedule has what it waits for, or more than ``limit`` are rejected.

    ``propose(number, turn)`` makes the block of that number; what it returns says in ``accepted``
    which proposals were. ``collect(collected, block)`` keeps what is wanted of them.
    """

    def unfinished(carry: tuple[Count, Count, S, C]) -> Bool[Array, ""]:
        _, rejected, counts, _ = carry
        return schedule.unfinished(counts) & (rejected <= limit)

    def draw_block(carry: tuple[Count, Count, S, C]) -> tuple[Count, Count, S, C]:
        number, rejected, counts, collected = carry
        turn = schedule.assign(counts)
        proposed = materialised(number, lambda: propose(number, turn))
        in_time, rank, counts = schedule.cut(counts, turn, proposed.accepted)
        is_rejected = ~proposed.accepted & in_time
        is_accepted = proposed.accepted & in_time
        place = rejected + exclusive_count(is_rejected)
        block = Block(proposed, turn, is_rejected, is_accepted, place, rank)
        rejected = rejected + jnp.sum(is_rejected, dtype=jnp.int32)
        return number + 1, rejected, counts, collect(collected, block)

    carry = (jnp.int32(0), jnp.int32(0), schedule.start(), start)
    _, rejected, counts, collected = lax.while_loop(unfinished, draw_block, carry)
    return Finished(collected, rejected, counts)


class Run(NamedTuple):
    """What one run of the rejection sampler gives.

    ``accepted`` counts acceptances (n when the run ended by itself); ``kept`` holds the accepted
    points where asked for. A run that met its limit or its capacity is cut short.
    """

    rejected: Rejected
    accepted: Count
    kept: Points | None
    worst: Worst


def run_shared(
    model: RejectionModel,
    layout: Layout,
    key: KeyArray,
    theta: Theta,
    buffer: Rejected,
    limit: Count,
    wanted: Count,
    *,
    keep_accepted: bool = False,
    store: bool = True,
    beyond_capacity: bool = False,
) -> Run:
    """Propose until ``wanted`` are accepted or more than ``limit`` are rejected.

    Rejections are written to the section of ``buffer`` that its offset points at.
    With ``store=False`` rejections are only counted, and the buffer's size does not matter;
    with ``beyond_capacity`` those for which there is no room are counted only.
    """

    def propose(number: Count, turn: None) -> Proposed:
        return model.propose_block(jax.random.fold_in(key, number), theta, layout.block)

    schedule = UntilAccepted(jnp.int32(wanted))
    how = (keep_accepted, store, beyond_capacity)
    run, accepted = _run(layout, propose, schedule, buffer, limit, *how)
    return run._replace(accepted=accepted)


def run_per_observation(
    model: Proposer,
    layout: Layout,
    key: KeyArray,
    theta: Theta,
    covariates: Points,
    buffer: Rejected,
    limit: Count,
    n: Count,
    *,
    keep_accepted: bool = False,
    store: bool = True,
    beyond_capacity: bool = False,
    order: Int[Array, " rows"] | None = None,
) -> tuple[Run, Int[Array, " rows"]]:
    """Run each of n observations to its acceptance, or until more than ``limit`` are rejected.

    Returns the run and the number of rejections of each observation. The last of ``order`` (by
    default of the observations as they stand) are served first: this matters where the limit cuts
    the run short, and for nothing else.
    """

    def propose_one(observation: Count, attempt: Count) -> Proposed:
        own_key = jax.random.fold_in(jax.random.fold_in(key, observation), attempt)
        covariate = jax.tree.map(lambda a: a[observation], covariates)
        return model.propose_one(own_key, theta, covariate)

    def propose(number: Count, turn: Turn) -> Proposed:
        return jax.vmap(propose_one)(turn.observation, turn.attempt)

    schedule = OneEach(n, layout.rows, layout.block, order)
    how = (keep_accepted, store, beyond_capacity)
    run, pending = _run(layout, propose, schedule, buffer, limit, *how)
    run = run._replace(accepted=jnp.int32(n) - pending.count)
    return run, pending.tried[: layout.rows]


def _run(
    layout: Layout,
    propose: Callable[[Count, T], Proposed],
    schedule: Schedule[S, T],
    buffer: Rejected,
    limit: Count,
    keep_accepted: bool,
    store: bool,
    beyond_capacity: bool,
) -> tuple[Run, S]:
    """A run into ``buffer``, its acceptances not counted, and the schedule's counts.

    The rank of an accepted point is its row; where a buffer has owners, whose the point is.
    """
    capacity = capacity_of(layout, buffer)
    bound = jnp.minimum(limit, capacity if store and not beyond_capacity else MOST_REJECTED)
    trash = buffer.offset + section_rows(layout, buffer) - 1
    like = jax.tree.map(lambda a: a[0], buffer.points)
    kept = None
    if keep_accepted:
        kept = jax.tree.map(lambda a: jnp.zeros((layout.rows + 1, *a.shape), a.dtype), like)

    def collect(collected: tuple, block: Block) -> tuple:
        points, owner, kept, worst = collected
        proposed = block.proposed
        if store:
            kept_here = block.rejected
            if beyond_capacity:
                kept_here &= block.place < capacity
            place = jnp.where(kept_here, buffer.offset + block.place, trash)
            points = write_rows(points, place, proposed.points)
            owner = write_rows(owner, place, None if owner is None else block.rank)
        if keep_accepted:
            place = jnp.where(block.accepted, block.rank, layout.rows)
            kept = write_rows(kept, place, proposed.points)
        return points, owner, kept, update_worst(worst, proposed.log_accept, proposed.points)

    start = (buffer.points, buffer.owner, kept, no_worst(like))
    done = propose_until(propose, schedule, bound.astype(jnp.int32), collect, start)
    points, owner, kept, worst = done.collected
    if keep_accepted:
        kept = jax.tree.map(lambda a: a[: layout.rows], kept)
    rejected = buffer._replace(points=points, owner=owner, count=done.rejected)
    return Run(rejected, jnp.int32(0), kept, worst), done.counts


def run_algorithm_1(
    model: RejectionModel,
    layout: Layout,
    key: KeyArray,
    theta: Theta,
    data: Observed,
    buffer: Rejected,
    limit: Count,
    **options: bool,
) -> Run:
    """Algorithm 1, by whichever scheme the data ask for."""
    if not layout.has_covariates:
        return run_shared(model, layout, key, theta, buffer, limit, data.n, **options)
    (covariates,) = data.covariates
    run, _ = run_per_observation(
        model,
        layout,
        key,
        theta,
        covariates,
        buffer,
        limit,
        data.n,
        **options,  # type: ignore[arg-type]
    )
    return run


@in_float64
def augment(
    key: int | Array,
    model: RejectionModel,
    theta: Mapping[str, ArrayLike | Sequence[float]],
    n: int,
    *,
    covariates: object = None,
) -> tuple[HostPoints, HostPoints]:
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
    at = model.prior.completed(theta)
    model.identify(trees)

    def whole_run(
        key: KeyArray, theta: Theta, data: Observed, buffer: Rejected, limit: Count
    ) -> Run:
        return run_algorithm_1(model, layout, key, theta, data, buffer, limit, keep_accepted=True)

    program = model.compiled(("augment", layout), whole_run)
    data = Observed(None, pad_rows(trees, layout.rows), as_argument(np.int32(n)))
    capacity = layout.capacity(4 * n)
    while True:
        buffer = empty_rejected(layout, like, capacity)
        run = program(as_key(key), at, data, buffer, as_argument(np.int32(MOST_REJECTED)))
        refuse_broken(model, at, run.worst)
        count = int(run.rejected.count)
        if count <= capacity:
            break
        if int(run.accepted) == 0 and count > PATIENCE:
            raise StartError(
                f"none of {count:,} proposals was accepted at theta={shown(at)}; is the window "
                "on the scale of the proposals?"
            )
        capacity = layout.capacity(8 * capacity)
        needed = capacity * layout.sections * 8 * max(point_size(like), 1)
        if needed > MEMORY_LIMIT:
            raise MemoryLimitError(
                f"more than {count:,} proposals were rejected before {n} were accepted at "
                f"theta={shown(at)}, and room for more would take {needed / 2**30:.1f} GiB of "
                f"the {MEMORY_LIMIT / 2**30:.0f} GiB allowed; ask for fewer at a time"
            )
    accepted = jax.tree.map(lambda a: np.asarray(a)[:n], run.kept)
    rejected = jax.tree.map(lambda a: np.asarray(a)[:count], run.rejected.points)
    return accepted, rejected
