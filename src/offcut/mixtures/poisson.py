r"""Components made independent: a gamma variable in place of the power of the normalising constant.

With the Dirichlet process on the latent weights all components share one constant,
Z = sum_k omega_k Z_k, to the power n. But

    Z⁻ⁿ ∝ ∫ u^(n-1) exp(-u sum_k omega_k Z_k) du,

and given u component k has a Poisson number of proposals with mean lambda_k = u omega_k, those that
pass being its events: density prod_i N_k(x_i) exp(-lambda_k Z_k), each component on its own. Its
rejections are what does not pass. Given all rejections u ~ Gamma(n + |Y|, 1); with u summed out
|Y| is negative binomial, as in Algorithm 1. Groups have a u each.

So the exchange moves of ``reshape`` apply here, too: the run at theta' proposes a Poisson number of
points; those that pass are x̂, and their number need not be that of the events. A component that
goes further out must grow for as many to pass, so its weight moves along: lambda_k' = r lambda_k
with r = Z~_k / Z~_k', Z~ being a rough, fixed approximation to the mass in the window. It is used
for proposing only, r being the inverse on the way back, so the move is exact however rough it is:

    log ratio = log p(theta')/p(theta) + (w' - w)·(sum phi(x) - sum phi(x̂)) + (n_k - n̂_k) log r
                + log r + log g(lambda') - log g(lambda),

the second log r from the change of variables, g the prior density of the weights omega and of
log u, in terms of lambda (see ``log_measure`` of ``sticks`` and ``hierarchy``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import (
    Rejected,
    capacity_of,
    exclusive_count,
    materialised,
    section_rows,
    write_rows,
)
from offcut.mixtures.allocation import add_by_label, chunks_of, rejected_chunk, unit_features
from offcut.mixtures.base import Components
from offcut.mixtures.features import size
from offcut.mixtures.layout import MixtureData, MixtureLayout
from offcut.mixtures.rejections import Filter, propose


class PoissonRun(NamedTuple):
    """Rejections (count may exceed the room: then it was cut short), totals of what passed."""

    rejected: Rejected
    accepted: jax.Array  # (K + 1, features + G)


def draw_rates(key: jax.Array, log_weights: jax.Array, proposals: jax.Array) -> jax.Array:
    """lambda_gk = u_g omega_gk with u_g ~ Gamma(n_g + |Y_g|, 1); ``proposals`` is (G,)."""
    u = jax.random.gamma(key, proposals.astype(float))
    return u[:, None] * jnp.exp(log_weights)


def accept_rates(
    key: jax.Array,
    log_ratio: jax.Array,
    log_weights: jax.Array,
    log_r: jax.Array,
    log_measure: Callable[[jax.Array], jax.Array],
    held: jax.Array,
    fresh: jax.Array,
    budget: jax.Array,
) -> jax.Array:
    """Which components are taken, one after the other; each changes the weights for the next.

    log_ratio : all terms but those of g, (K,). log_r : (R, K), R being 1 or G like the rows of
    ``log_weights``. held, fresh : numbers of rejections that each has and would have.
    """
    uniform = jnp.log(jax.random.uniform(key, log_ratio.shape))

    def one(carry: tuple, k: jax.Array) -> tuple:
        log_rates, total = carry
        proposed = log_rates.at[:, k].add(log_r[:, k])
        ratio = log_ratio[k] + log_measure(proposed) - log_measure(log_rates)
        more = total + fresh[k] - held[k]
        accepted = (uniform[k] < ratio) & (more <= budget)
        carry = (jnp.where(accepted, proposed, log_rates), jnp.where(accepted, more, total))
        return carry, accepted

    return lax.scan(one, (log_weights, jnp.sum(held)), jnp.arange(log_ratio.shape[0]))[1]


def run_poisson(
    layout: MixtureLayout,
    key: jax.Array,
    passes: Filter,
    components: Components,
    rates: jax.Array,
    data: MixtureData,
    buffer: Rejected,
    limit: jax.Array,
) -> PoissonRun:
    """Poisson(lambda_gk) proposals from each component in each group."""
    K, size_of_block = layout.components, layout.buffer.block
    key_numbers, key_points = jax.random.split(key)
    # JAX's Poisson sampler insists on its own implementation of the same generator.
    plain = jax.random.wrap_key_data(jax.random.key_data(key_numbers), impl="threefry2x32")
    numbers = jax.random.poisson(plain, rates.reshape(-1), dtype=jnp.int32)
    ends = jnp.cumsum(numbers)
    room = jnp.minimum(limit, capacity_of(layout.buffer, buffer))
    trash = buffer.offset + section_rows(layout.buffer, buffer) - 1

    def unfinished(carry: tuple) -> jax.Array:
        block, run = carry
        return (block * size_of_block < ends[-1]) & (run.rejected.count <= room)

    def draw_block(carry: tuple) -> tuple:
        block, run = carry
        place = block * size_of_block + jnp.arange(size_of_block, dtype=jnp.int32)
        real = place < ends[-1]
        cell = jnp.searchsorted(ends, place, side="right", method="compare_all")
        cell = jnp.minimum(cell, ends.shape[0] - 1).astype(jnp.int32)
        label, group = cell % K, cell // K
        own_key = jax.random.fold_in(key_points, block)
        proposed = materialised(
            block, lambda: propose(own_key, passes, components, label, group, data)
        )
        is_rejected = real & ~proposed.accepted
        rejected = run.rejected
        row = rejected.offset + rejected.count + exclusive_count(is_rejected)
        row = jnp.where(is_rejected, row, trash)
        rejected = rejected._replace(
            points=write_rows(rejected.points, row, (proposed.points, label)),
            owner=write_rows(rejected.owner, row, group),
            count=rejected.count + jnp.sum(is_rejected, dtype=jnp.int32),
        )
        passed = jnp.where(real & proposed.accepted, label, K)
        phi = unit_features(layout, proposed.points.T, group)
        accepted = add_by_label(run.accepted, passed, phi)
        return block + 1, PoissonRun(rejected, accepted)

    nothing = jnp.zeros((K + 1, size(layout.d) + layout.groups))
    start = PoissonRun(buffer._replace(count=jnp.int32(0)), nothing)
    return lax.while_loop(unfinished, draw_block, (jnp.int32(0), start))[1]


def merged(
    layout: MixtureLayout, old: Rejected, new: Rejected, chosen: jax.Array, offset: jax.Array
) -> Rejected:
    """Rejections of the ``chosen`` components (K + 1,) from ``new``, of the others from ``old``.

    Both stand in sections of one buffer, ``new`` being the later version of it; what comes out
    stands in the section at ``offset``.
    """
    trash = offset + section_rows(layout.buffer, new) - 1

    def copied(source: Rejected, take: jax.Array, into: Rejected) -> Rejected:
        def one(chunk: jax.Array, into: Rejected) -> Rejected:
            part = rejected_chunk(
                layout, source._replace(points=into.points, owner=into.owner), chunk
            )
            keep = part.real & take[part.label]
            row = jnp.where(keep, offset + into.count + exclusive_count(keep), trash)
            return into._replace(
                points=write_rows(into.points, row, (part.x.T, part.label)),
                owner=write_rows(into.owner, row, part.owner),
                count=into.count + jnp.sum(keep, dtype=jnp.int32),
            )

        return lax.fori_loop(0, chunks_of(layout, source), one, into)

    into = new._replace(offset=offset, count=jnp.int32(0))
    return copied(new, chosen, copied(old, ~chosen, into))


def counts_of(layout: MixtureLayout, rejected: Rejected) -> tuple[jax.Array, jax.Array]:
    """Rejections of each component, (K,), and of each group, (G,)."""

    def one(chunk: jax.Array, counts: tuple) -> tuple:
        part = rejected_chunk(layout, rejected, chunk)
        by_label, by_group = counts
        return (
            by_label.at[jnp.where(part.real, part.label, layout.components)].add(1),
            by_group.at[jnp.where(part.real, part.owner, layout.groups)].add(1),
        )

    start = (
        jnp.zeros(layout.components + 1, jnp.int32),
        jnp.zeros(layout.groups + 1, jnp.int32),
    )
    by_label, by_group = lax.fori_loop(0, chunks_of(layout, rejected), one, start)
    return by_label[:-1], by_group[:-1]
