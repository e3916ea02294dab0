r"""Hoff's (2009) proposal for the matrix Langevin distribution: one column after the other.

For F = G diag(kappa) column r is drawn from the von Mises-Fisher distribution proportional to
exp(kappa_r G_rᵀ x) among unit vectors orthogonal to the columns before it. With g the part of G_r
orthogonal to them, |g|² = 1 - c_r and c_r = sum_{j<r} (X_jᵀ G_r)², the proposal has density

    etr(kappa Gᵀ X) / D(X, kappa),   log D(X, kappa) = sum_r log h_{d-r+1}(kappa_r √(1 - c_r)),

with respect to the uniform distribution, and is accepted with probability D(X, kappa) / D(kappa),
D(kappa) being the same at c = 0 (the largest value). The target etr(kappa Gᵀ X) / Z(kappa) follows,
and Z(kappa) = D(kappa) P(accepted).

The order of columns matters: by decreasing kappa most proposals are accepted. It is part of the
density: where rejections are kept for an update of kappa it must not be frozen at the old kappa.

*Cut off at the column that rejects.* A proposal is accepted with probability prod_r a_r,
a_r = h_m(kappa_r √(1 - c_r)) / h_m(kappa_r), m = d-r+1, and a_r depends on the columns before r
only. So a proposal that fails may fail as soon as a_r is known: draw column 1, pass on with
probability a_2, draw column 2, pass on with probability a_3, and so on. What is accepted has the
same distribution, as many proposals are rejected, but a rejected one has only the columns before
the r that stopped it, and since q_r a_r = exp(kappa_r G_rᵀ x_r) / h_m(kappa_r) its density is

    prod_{j<r} exp(kappa_j G_jᵀ y_j) / h_{d-j+1}(kappa_j) x (1 - a_r).

That is less to draw and less missing information than Hoff's whole frames, and the concentrations
are independent given the rejections. (The paper keeps whole frames; the posterior is the same.)

The distribution of GᵀX does not depend on G, and an update of kappa needs no more of a proposal
than ``along`` = G_jᵀ x_j and ``taken`` = c_j. For two columns not even frames are drawn.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.langevin.hypergeometric import log_h, log_h_drop
from offcut.langevin.von_mises_fisher import (
    deviations,
    deviations_of_column,
    uniform_cosines,
    unit,
    without,
)
from offcut.numerics.arrays import materialised
from offcut.numerics.types import KeyArray


class Proposals(NamedTuple):
    """Frames and how much of each mean direction the earlier columns had taken up."""

    frames: Float[Array, "n d p"]
    taken: Float[Array, "n p"]  # c; the first column's is 0


def propose(
    key: KeyArray, G: Float[Array, "d p"], kappa: Float[Array, " p"], count: int
) -> Proposals:
    """``count`` proposals, in the order of the columns."""
    d, p = G.shape
    shortest = float(jnp.finfo(G.dtype).tiny) ** 0.5

    def draw_column(r: Int[Array, ""], drawn: Proposals) -> Proposals:
        """Columns that are not drawn yet are 0, and in nobody's way."""
        frames, taken = drawn
        key_angle, key_around = jax.random.split(jax.random.fold_in(key, r))
        overlap = jnp.einsum("nij,i->nj", frames, G[:, r])
        c = jnp.clip(jnp.sum(overlap**2, axis=1), 0.0, 1.0)
        left = G[:, r][None, :] - jnp.einsum("nij,nj->ni", frames, overlap)
        # Where nothing of G_r is left the column is uniform, and any direction will do.
        lost = (jnp.linalg.norm(left, axis=1) < shortest)[:, None]
        left = jnp.where(lost, jnp.cos(jnp.arange(1.0, d + 1.0))[None, :], left)
        towards = unit(without(frames, unit(left)))
        e = deviations_of_column(key_angle, d, p, r, kappa[r] * jnp.sqrt(1.0 - c))
        normals = materialised(kappa[r], partial(jax.random.normal, key_around, (count, d)))
        around = unit(without(frames.at[:, :, r].set(towards), normals))
        # In a square frame e of the last column is 0 or 2: there is nothing around it.
        column = (1.0 - e)[:, None] * towards + jnp.sqrt(e * (2.0 - e))[:, None] * around
        return Proposals(frames.at[:, :, r].set(column), taken.at[:, r].set(c))

    nothing = Proposals(jnp.zeros((count, d, p)), jnp.zeros((count, p)))
    return lax.fori_loop(0, p, draw_column, nothing)  # a program of one size, whatever p


def log_accept(d: int, kappa: Float[Array, " p"], taken: Float[Array, "n p"]) -> Float[Array, " n"]:
    """log D(X, kappa) - log D(kappa) of proposals with c = ``taken``."""
    return jnp.sum(_log_passes(d, kappa, taken), axis=0)


def _log_passes(
    d: int, kappa: Float[Array, " p"], taken: Float[Array, "n p"]
) -> Float[Array, "p-1 n"]:
    """log a_r of the columns behind the first, all in one pass."""
    m = tuple(d - r for r in range(1, kappa.shape[0]))
    return log_h_drop(m, kappa[1:, None], taken[:, 1:].T) if m else jnp.zeros((0, taken.shape[0]))


def log_envelope(d: int, kappa: Float[Array, " p"]) -> Float[Array, ""]:
    """log D(kappa) = sum_r log h_{d-r+1}(kappa_r)."""
    return jnp.sum(log_h(tuple(d - r for r in range(kappa.shape[0])), kappa))


class PartialFrames(NamedTuple):
    """Proposals, up to the column that stopped them."""

    along: Float[Array, "n drawn"]  # p or, without the last column, p-1 of them
    taken: Float[Array, "n p"]  # c; the first column's is 0
    stopped: Int[Array, " n"]  # column 1, ..., p-1 counted from 0; p where accepted

    @property
    def accepted(self) -> Bool[Array, " n"]:
        return self.stopped == self.taken.shape[1]


def propose_partial(
    key: KeyArray, d: int, kappa: Float[Array, " p"], count: int, last: bool = False
) -> PartialFrames:
    """``count`` proposals in the coordinates of G, each up to the column that stops it.

    ``last``: whether the last column is wanted too; no rejection needs it.
    """
    key_columns, key_accept = jax.random.split(key)
    p = kappa.shape[0]
    if p == 1:
        e = deviations(key_columns, d, jnp.broadcast_to(kappa[0], (count,)))
        return PartialFrames((1.0 - e)[:, None], jnp.zeros((count, 1)), jnp.ones(count, jnp.int32))
    draw = _two_columns if p == 2 else _columns
    along, taken = draw(key_columns, d, kappa, count, last)
    # One uniform is enough: it is compared with the running product of the a_r.
    log_u = jnp.log(jax.random.uniform(key_accept, (count,)))
    log_passed = jnp.cumsum(_log_passes(d, kappa, taken), axis=0)
    # A product falls from column to column: where it fails once it fails ever after.
    stopped = p - jnp.sum(log_u[None, :] >= log_passed, axis=0, dtype=jnp.int32)
    return PartialFrames(along, taken, stopped)


def _two_columns(
    key: KeyArray, d: int, kappa: Float[Array, " p"], count: int, last: bool
) -> tuple[Float[Array, "n drawn"], Float[Array, "n p"]]:
    """c = sin²(angle of x_1 to G_1) cos²(angle of the rest to G_2)."""
    key_first, key_around, key_second = jax.random.split(key, 3)
    e = deviations(key_first, d, jnp.broadcast_to(kappa[0], (count,)))
    c = jnp.clip(e * (2.0 - e) * uniform_cosines(key_around, d - 1, count) ** 2, 0.0, 1.0)
    along = [1.0 - e]
    if last:
        left = jnp.sqrt(1.0 - c)
        along.append(left * (1.0 - deviations(key_second, d - 1, kappa[1] * left)))
    return jnp.stack(along, axis=1), jnp.stack([jnp.zeros(count), c], axis=1)


def _columns(
    key: KeyArray, d: int, kappa: Float[Array, " p"], count: int, last: bool
) -> tuple[Float[Array, "n drawn"], Float[Array, "n p"]]:
    p = kappa.shape[0]
    drawn = p if last else p - 1
    proposals = propose(key, jnp.eye(d)[:, :drawn], kappa[:drawn], count)
    along = jnp.stack([proposals.frames[:, j, j] for j in range(drawn)], axis=1)
    if last:
        return along, proposals.taken
    c = jnp.clip(jnp.sum(proposals.frames[:, p - 1, :] ** 2, axis=1), 0.0, 1.0)
    return along, jnp.concatenate([proposals.taken, c[:, None]], axis=1)
