"""Draws of matrix Langevin frames: independent ones by rejection, else by Gibbs sweeps.

All proposals for one F are alike, so accepted ones are gathered from a common pool until there are
enough: no lane waits for another. Columns are sorted by concentration, which is free here because
nothing but the accepted frames is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.algorithm1 import Block, UntilAccepted, propose_until
from offcut.base import MOST_REJECTED
from offcut.errors import TrustWarning
from offcut.langevin import bingham, columns, proposals
from offcut.langevin.hypergeometric import evaluated
from offcut.models.rejection import Proposed
from offcut.numerics.arrays import write_rows
from offcut.numerics.types import KeyArray, Points

#: Proposals in one block.
LEAST_BLOCK, LARGEST_BLOCK = 8, 1024
#: Up to so many columns at least an eighth of the proposals are accepted, whatever kappa.
ALWAYS_FEASIBLE = 4
#: Where fewer proposals than this are accepted, independent draws are hopeless.
HOPELESS = 1e-4
#: Gibbs sweeps that stand for one independent draw there.
GIBBS_SWEEPS = 200
#: Room for so many draws at least, so that few of them, one or ten, share a compiled program.
LEAST_ROOM = 64


def by_rejection(
    key: KeyArray, F: Float[Array, "d p"], wanted: Int[Array, ""], room: int
) -> Float[Array, "{room} d p"]:
    """``wanted`` <= ``room`` frames from etr(Fᵀ X) / Z, in the first rows."""
    d, p = F.shape
    if d == p == 2:  # nothing need be rejected
        return columns.orthogonal(key, jnp.broadcast_to(F[None], (room, 2, 2)))
    U, kappa, Vt = jnp.linalg.svd(F, full_matrices=False)  # kappa falls: the best order of columns
    if (d, p) == (3, 2):
        basis = jnp.concatenate([U, jnp.cross(U[:, 0], U[:, 1])[:, None]], axis=1)
        drawn = _gather(key, partial(bingham.propose, kappa=kappa), wanted, room)
        columns_ = bingham.first_columns(drawn)
        rows = [[sum(basis[i, j] * x[j] for j in range(3)) for x in columns_] for i in range(3)]
        entries = [row[0] * Vt[0, k] + row[1] * Vt[1, k] for row in rows for k in range(2)]
        return jnp.stack(entries, axis=1).reshape(-1, 3, 2)

    def propose_frames(
        key: KeyArray, count: int
    ) -> tuple[Float[Array, "n d p"], Float[Array, " n"]]:
        drawn = proposals.propose(key, U, kappa, count)
        return drawn.frames, proposals.log_accept(d, kappa, drawn.taken)

    return jnp.einsum("nij,jk->nik", _gather(key, propose_frames, wanted, room), Vt)


def by_gibbs(
    key: KeyArray, F: Float[Array, "d p"], count: int, sweeps: int
) -> Float[Array, "{count} d p"]:
    """``count`` chains from the mode, each of ``sweeps`` sweeps: not exact, for hopeless cases."""
    U, _, Vt = jnp.linalg.svd(F, full_matrices=False)
    start = jnp.broadcast_to((U @ Vt)[None], (count, *F.shape))

    def sweep(i: Int[Array, ""], frames: Float[Array, "n d p"]) -> Float[Array, "n d p"]:
        return columns.sweep(jax.random.fold_in(key, i), F, frames)

    return lax.fori_loop(0, sweeps, sweep, start)


def update(
    key: KeyArray, F: Float[Array, "d p"], current: Float[Array, "d p"]
) -> tuple[Float[Array, "d p"], Bool[Array, ""]]:
    """A step that leaves ML(F) alone, and whether it was an independent draw.

    Where rejection is hopeless it is a sweep of Gibbs steps from ``current``. Which of the two
    depends on F alone, so that the mixture of both is invariant.
    """
    if F.shape[1] <= ALWAYS_FEASIBLE:
        return by_rejection(key, F, jnp.int32(1), 1)[0], jnp.array(True)
    feasible = _feasible(F)
    frame = lax.cond(
        feasible,
        lambda: by_rejection(key, F, jnp.int32(1), 1)[0],
        lambda: columns.sweep(key, F, current[None])[0],
    )
    return frame, feasible


def independent(key: KeyArray, F: Float[Array, "d p"], count: int) -> Float[Array, "{count} d p"]:
    """``count`` frames: exact, or where that is hopeless the ends of Gibbs runs."""
    if F.shape[1] <= ALWAYS_FEASIBLE:
        return by_rejection(key, F, jnp.int32(count), count)
    return lax.cond(
        _feasible(F),
        lambda: by_rejection(key, F, jnp.int32(count), count),
        lambda: by_gibbs(key, F, count, GIBBS_SWEEPS),
    )


def _feasible(F: Float[Array, "d p"]) -> Bool[Array, ""]:
    return expected_acceptance(jnp.linalg.svd(F, compute_uv=False), F.shape[0]) > HOPELESS


def is_hopeless(kappa: np.ndarray, d: int, stacklevel: int) -> bool:
    """Whether rejection sampling would hardly ever accept (host side); if so a warning is given."""
    if len(kappa) <= ALWAYS_FEASIBLE:
        return False
    share = float(acceptance(kappa, d))
    if share > HOPELESS:
        return False
    warnings.warn(
        f"rejection sampling would accept about {share:.0e} of its proposals at concentrations "
        f"{np.round(kappa, 3).tolist()}: each draw is the end of {GIBBS_SWEEPS} Gibbs sweeps from "
        "the mode instead, which is not exact",
        TrustWarning,
        stacklevel=stacklevel + 1,
    )
    return True


def room_for(count: int) -> int:
    """At least ``count``, from 512 on at most a quarter more: few different programs."""
    unit = max(LEAST_ROOM, 1 << max(0, (count - 1).bit_length() - 3))
    return unit * -(-count // unit)


def expected_acceptance(kappa: Float[Array, " p"], d: int) -> Float[Array, ""]:
    """About the share of Hoff's proposals that are accepted at ``kappa``.

    At large kappa it is prod_{i<j} (1 + k_j/k_i)^-½, columns by decreasing kappa; for any kappa
    k_j/k_i becomes k_j A_{d-j}(k_j) A_d(k_i)/k_i (j from 0): how much of G_j column i takes up, and
    what that costs. Against simulation it is right within a factor of about 2.5.
    """
    k = jnp.sort(kappa)[::-1]
    p = k.shape[0]
    if p == 1:
        return jnp.ones(())
    dimensions = (d,) * (p - 1) + tuple(d - j for j in range(1, p))
    ratio = evaluated(dimensions, jnp.concatenate([k[:-1], k[1:]])).ratio
    taken = ratio[: p - 1] / jnp.maximum(k[:-1], float(jnp.finfo(k.dtype).tiny))
    cost = k[1:] * ratio[p - 1 :]
    terms = jnp.log1p(cost[:, None] * taken[None, :])
    return jnp.exp(-0.5 * jnp.sum(jnp.tril(terms)))


#: ``expected_acceptance`` for the host: operation by operation it would take seconds.
acceptance = jax.jit(expected_acceptance, static_argnums=1)


def _gather(
    key: KeyArray,
    propose: Callable[..., tuple[Points, Float[Array, " n"]]],
    wanted: Int[Array, ""],
    room: int,
) -> Points:
    """The first ``wanted`` accepted proposals of ``propose(key, count=)``, in order.

    Proposals may be any pytree of arrays with ``count`` rows.
    """
    size = min(max(2 * room, LEAST_BLOCK), LARGEST_BLOCK)

    def proposed(number: Int[Array, ""], turn: None) -> Proposed:
        key_propose, key_accept = jax.random.split(jax.random.fold_in(key, number))
        points, log_accept = propose(key_propose, count=size)
        # NaN, from a NaN in F, must come out as NaN and not as a loop without end.
        wrong = jnp.isnan(log_accept)
        accepted = wrong | (jnp.log(jax.random.uniform(key_accept, (size,))) < log_accept)

        def marked(a: jax.Array) -> jax.Array:
            return jnp.where(wrong.reshape(-1, *(1 for _ in a.shape[1:])), jnp.nan, a)

        return Proposed(jax.tree.map(marked, points), accepted, None)

    def collect(kept: Points, block: Block) -> Points:
        place = jnp.where(block.accepted, block.rank, room)  # the row behind is for the others
        return write_rows(kept, place, block.proposed.points)

    shapes = jax.eval_shape(proposed, jnp.int32(0), None).points
    empty = jax.tree.map(lambda a: jnp.zeros((room + 1, *a.shape[1:]), a.dtype), shapes)
    limit = jnp.int32(MOST_REJECTED)
    found = propose_until(proposed, UntilAccepted(wanted), limit, collect, empty).collected
    return jax.tree.map(lambda a: a[:room], found)
