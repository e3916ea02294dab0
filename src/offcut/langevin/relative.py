r"""Hoff's proposals in the coordinates of G, cut off at the column that rejects them.

A proposal is accepted with probability prod_r a_r, a_r = h_m(kappa_r √(1 - c_r)) / h_m(kappa_r),
m = d-r+1, and a_r depends on the columns before r only. So a proposal that fails may fail as soon
as a_r is known: draw column 1, pass on with probability a_2, draw column 2, pass on with
probability a_3, and so on. What is accepted has the same distribution, as many proposals are
rejected, but a rejected one has only the columns before the r that stopped it, and since
q_r a_r = exp(kappa_r G_rᵀ x_r) / h_m(kappa_r) its density is

    prod_{j<r} exp(kappa_j G_jᵀ y_j) / h_{d-j+1}(kappa_j) x (1 - a_r).

That is less to draw and less missing information than Hoff's whole frames, and the concentrations
are independent given the rejections. (The paper keeps whole frames; the posterior is the same.)

The distribution of GᵀX does not depend on G, and an update of kappa needs no more of a proposal
than ``along`` = G_jᵀ x_j and ``taken`` = c_j. For two columns not even frames are drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from offcut.langevin import sequential
from offcut.langevin.hypergeometric import log_h_drop
from offcut.langevin.von_mises_fisher import deviations, uniform_cosines


class Judged(NamedTuple):
    """Proposals, and which column stopped them."""

    along: jax.Array  # (count, p) or, without the last column, (count, p-1)
    taken: jax.Array  # c, (count, p); the first column's is 0
    stopped: jax.Array  # (count,), column 1, ..., p-1 counted from 0; p where accepted

    @property
    def accepted(self) -> jax.Array:
        return self.stopped == self.taken.shape[1]


def propose(key: jax.Array, d: int, kappa: jax.Array, count: int, last: bool = False) -> Judged:
    """``count`` proposals at ``kappa`` (p,) in the order of the columns.

    ``last``: whether the last column is wanted too; no rejection needs it.
    """
    key_columns, key_judge = jax.random.split(key)
    p = kappa.shape[0]
    if p == 1:
        e = deviations(key_columns, d, jnp.broadcast_to(kappa[0], (count,)))
        return Judged((1.0 - e)[:, None], jnp.zeros((count, 1)), jnp.ones(count, jnp.int32))
    draw = _two_columns if p == 2 else _columns
    along, taken = draw(key_columns, d, kappa, count, last)
    # One uniform is enough: it is compared with the running product of the a_r.
    log_u = jnp.log(jax.random.uniform(key_judge, (count,)))
    log_passed = jnp.zeros(count)
    stopped = jnp.full(count, p, jnp.int32)
    for r in range(1, p):
        log_passed = log_passed + log_h_drop(d - r, kappa[r], taken[:, r])
        fails_here = (log_u >= log_passed) & (stopped == p)
        stopped = jnp.where(fails_here, r, stopped)
    return Judged(along, taken, stopped)


def _two_columns(
    key: jax.Array, d: int, kappa: jax.Array, count: int, last: bool
) -> tuple[jax.Array, jax.Array]:
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
    key: jax.Array, d: int, kappa: jax.Array, count: int, last: bool
) -> tuple[jax.Array, jax.Array]:
    p = kappa.shape[0]
    drawn = p if last else p - 1
    proposals = sequential.propose(key, jnp.eye(d)[:, :drawn], kappa[:drawn], count)
    along = jnp.stack([proposals.frames[:, j, j] for j in range(drawn)], axis=1)
    if last:
        return along, proposals.taken
    c = jnp.clip(jnp.sum(proposals.frames[:, p - 1, :] ** 2, axis=1), 0.0, 1.0)
    return along, jnp.concatenate([proposals.taken, c[:, None]], axis=1)
