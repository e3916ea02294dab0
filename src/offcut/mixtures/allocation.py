r"""Labels of events, and sums over components: one pass over the data.

An event with features phi belongs to component k with probability proportional to
omega_gk exp(w_k·phi). One uniform chooses: the first k at which the running sum of these terms
exceeds its share of the total. A *unit* is what has one label: an event or a rejection where the
Dirichlet process is on the latent weights; an event with its own rejections where it is on the
weights in the window. Behind the features of a unit stand G indicators of its group, so that log
weights are coefficients and counts by group are sums, like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.rejections import Rejected
from offcut.mixtures.data import MixtureData, MixtureLayout
from offcut.numerics.arrays import materialised
from offcut.numerics.normal import Components, coefficients, features
from offcut.numerics.types import AnyArray, KeyArray


def unit_features(
    layout: MixtureLayout, x: Float[AnyArray, "d m"], group: Int[AnyArray, " m"]
) -> Float[AnyArray, "F m"]:
    """Features of points and indicators of their groups. Of NumPy's on the host."""
    package = np if isinstance(x, np.ndarray) else jnp
    groups = np.arange(layout.groups, dtype=group.dtype)
    own = (group[None, :] == groups[:, None]).astype(x.dtype)
    return package.concatenate([features(x), own])


def event_chunk(
    layout: MixtureLayout, data: MixtureData, chunk: Int[Array, ""]
) -> Float[Array, "F m"]:
    """Features of one chunk of events."""
    size = layout.chunk
    x = lax.dynamic_slice_in_dim(data.x, chunk * size, size, 1)
    group = lax.dynamic_slice_in_dim(data.group, chunk * size, size)
    return unit_features(layout, x, group)


class RejectedChunk(NamedTuple):
    """Part of the buffer of rejections; what is not ``real`` lies behind Y."""

    x: Float[Array, "d m"]
    label: Int[Array, " m"]
    owner: Int[Array, " m"]
    real: Bool[Array, " m"]


def rejected_chunk(
    layout: MixtureLayout, rejected: Rejected, chunk: Int[Array, ""]
) -> RejectedChunk:
    """One chunk of the held rejections."""
    size = layout.chunk
    at = rejected.offset + chunk * size
    points, label = rejected.points
    assert rejected.owner is not None
    x, label, owner = (
        lax.dynamic_slice_in_dim(array, at, size) for array in (points, label, rejected.owner)
    )
    real = chunk * size + jnp.arange(size, dtype=jnp.int32) < rejected.count
    return RejectedChunk(x.T, label, owner, real)


def add_by_label(
    totals: Float[Array, "labels F"], label: Int[Array, " m"], phi: Float[Array, "F m"]
) -> Float[Array, "labels F"]:
    """Add columns of ``phi`` to the rows that their labels name; row K takes what is not real."""
    return totals.at[label].add(phi.T, mode="promise_in_bounds")


def label_coefficients(
    components: Components, log_weights: Float[Array, "rows K"], groups: int
) -> Float[Array, "K F"]:
    """Its product with a unit's features is log omega_gk + log N_k(x)."""
    w = jax.vmap(coefficients)(components.means, components.roots)
    log_weights = jnp.broadcast_to(log_weights, (groups, log_weights.shape[1]))
    # 0 times -inf must not be NaN: a weight too small for a number is a very small one.
    return jnp.concatenate([w, jnp.maximum(log_weights, -1e30).T], axis=1)


def choose(terms: Float[Array, "K m"], uniform: Float[Array, " m"]) -> Int[Array, " m"]:
    """A label for each column of log terms, by one uniform each."""
    K = terms.shape[0]
    weights = jnp.exp(terms - jnp.max(terms, axis=0, keepdims=True))
    target = uniform * jnp.sum(weights, axis=0)

    def walk(k: Int[Array, ""], carry: tuple) -> tuple:
        running, label = carry
        running = running + weights[k]
        return running, label + (running <= target).astype(jnp.int32)

    start = (jnp.zeros_like(target), jnp.zeros(target.shape, jnp.int32))
    _, label = lax.fori_loop(0, K, walk, start, unroll=10)
    return jnp.minimum(label, K - 1)


def allocate(
    layout: MixtureLayout,
    key: KeyArray,
    w: Float[Array, "K F"],
    n: Int[Array, ""],
    phi_of: Callable[[Int[Array, ""]], Float[Array, "F m"]],
) -> tuple[Int[Array, " rows"], Float[Array, "K+1 F"]]:
    """Labels of all events, and totals by label.

    ``phi_of(chunk)`` gives the features of a chunk of units. Rows behind n get label K.
    """
    size, K = layout.chunk, layout.components

    def one(chunk: Int[Array, ""], carry: tuple) -> tuple:
        labels, totals = carry
        # Computed once: otherwise features are worked out again inside the product.
        phi = materialised(chunk, lambda: phi_of(chunk))
        uniform = jax.random.uniform(jax.random.fold_in(key, chunk), (size,))
        label = choose(w @ phi, uniform)
        real = chunk * size + jnp.arange(size, dtype=jnp.int32) < n
        label = jnp.where(real, label, K)
        labels = lax.dynamic_update_slice_in_dim(labels, label, chunk * size, 0)
        return labels, add_by_label(totals, label, phi)

    start = (jnp.full(layout.rows, K, jnp.int32), jnp.zeros((K + 1, w.shape[1])))
    return lax.fori_loop(0, layout.chunks(n), one, start)


def add_rejected(
    layout: MixtureLayout, totals: Float[Array, "labels F"], rejected: Rejected
) -> Float[Array, "labels F"]:
    """Totals with the rejections added, each to the component that it came from."""

    def one(chunk: Int[Array, ""], totals: Float[Array, "labels F"]) -> Float[Array, "labels F"]:
        part = rejected_chunk(layout, rejected, chunk)
        label = jnp.where(part.real, part.label, layout.components)
        return add_by_label(totals, label, unit_features(layout, part.x, part.owner))

    return lax.fori_loop(0, layout.chunks(rejected.count), one, totals)


def all_events(layout: MixtureLayout, data: MixtureData) -> Float[Array, "rows F"]:
    """Features of all events; what lies behind their last chunk is 0."""
    size = layout.chunk

    def events(chunk: Int[Array, ""], phi: Float[Array, "rows F"]) -> Float[Array, "rows F"]:
        part = event_chunk(layout, data, chunk).T
        return lax.dynamic_update_slice_in_dim(phi, part, chunk * size, 0)

    width = features(data.x[:, :1]).shape[0] + layout.groups
    start = jnp.zeros((layout.rows, width))
    return lax.fori_loop(0, layout.chunks(data.n), events, start)


def rows_of(
    layout: MixtureLayout, own: Float[Array, "rows F"], chunk: Int[Array, ""]
) -> Float[Array, "F m"]:
    """One chunk of ``all_events``, as columns."""
    return lax.dynamic_slice_in_dim(own, chunk * layout.chunk, layout.chunk).T
