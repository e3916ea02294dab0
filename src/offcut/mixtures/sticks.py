r"""Stick-breaking weights: the truncated Dirichlet process (Ishwaran & James 2001).

    v_k ~ Beta(1, alpha), k < K, v_K = 1,    omega_k = v_k prod_{l<k} (1 - v_l).

Given the number c_k of points in each component, v_k ~ Beta(1 + c_k, alpha + c_{>k}); with the
sticks summed out the labels have

    p(z | alpha) = prod_{k<K} B(1 + c_k, alpha + c_{>k}) / B(1, alpha),

which depends on the order of the components. Swapping the labels of two components is therefore a
move of its own (Papaspiliopoulos & Roberts 2008); without it a large component that sits behind
small ones stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betaln

from offcut.mixtures.concentration import Concentration

#: Swaps tried in a sweep.
SWAPS = 8


class StickState(NamedTuple):
    """log omega, (1, K) as all groups share it, and alpha."""

    log_weights: jax.Array
    alpha: jax.Array


class Sticks:
    """One set of weights for all groups."""

    def __init__(self, alpha: Concentration, components: int) -> None:
        self.alpha, self.components = alpha, components

    def first(self, key: jax.Array, counts: jax.Array) -> StickState:
        """Weights given counts (G, K), at a first alpha."""
        key_alpha, key_sticks = jax.random.split(key)
        alpha = self.alpha.first(key_alpha)
        return StickState(break_sticks(key_sticks, counts.sum(0), alpha)[0][None], alpha)

    def from_prior(self, key: jax.Array) -> StickState:
        """A draw from the prior (for the invariance test)."""
        key_alpha, key_sticks = jax.random.split(key)
        alpha = self.alpha.from_prior(key_alpha)
        nothing = jnp.zeros(self.components)
        return StickState(break_sticks(key_sticks, nothing, alpha)[0][None], alpha)

    def log_labels(self, state: StickState, counts: jax.Array) -> jax.Array:
        """log p(z | alpha) with the sticks summed out; ``counts`` is (G, K)."""
        return log_stick_labels(counts.sum(0), state.alpha)

    def update(
        self, key: jax.Array, state: StickState, counts: jax.Array
    ) -> tuple[StickState, jax.Array]:
        """Swap labels, then draw sticks given labels and alpha given sticks.

        Also returns the order: entry k is the old label of what is now component k.
        """
        key_swap, key_sticks, key_alpha = jax.random.split(key, 3)
        order = swap_labels(key_swap, counts.sum(0), state.alpha)
        log_weights, log_rest = break_sticks(key_sticks, counts.sum(0)[order], state.alpha)
        alpha = self.alpha.update(key_alpha, state.alpha, log_sticks(log_rest, self.components))
        return StickState(log_weights[None], alpha), order

    def log_measure(self, state: StickState, log_rates: jax.Array) -> jax.Array:
        r"""log density of omega and log u in terms of lambda = u omega, (1, K), up to a constant.

        With R_k = sum_{j>=k} lambda_j, so that 1 - v_k = R_{k+1} / R_k and u = R_1, it is
        (lambda_K / u)^(alpha - 1) / (u prod_{k<K} R_k).
        """
        log_behind = lax.cumlogsumexp(log_rates[0], reverse=True)
        log_u = log_behind[0]
        last = (state.alpha - 1.0) * (log_rates[0, -1] - log_u)
        return last - jnp.sum(log_behind[:-1]) - log_u

    def record(self, state: StickState) -> dict[str, jax.Array]:
        """Posterior variables beside the weights."""
        return {"alpha": state.alpha} if self.alpha.learned else {}


def break_sticks(
    key: jax.Array, counts: jax.Array, alpha: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """log omega and sum_k log(1 - v_k), in logarithms throughout: sticks may be 1 to rounding."""
    shapes = jnp.stack([1.0 + counts[:-1], alpha + _behind(counts)[:-1]])
    own, rest = jax.random.loggamma(key, shapes)
    both = jnp.logaddexp(own, rest)
    log_left = jnp.concatenate([jnp.zeros(1), jnp.cumsum(rest - both)])
    log_own = jnp.concatenate([own - both, jnp.zeros(1)])
    return log_own + log_left, jnp.sum(rest - both)


def log_sticks(log_rest: jax.Array, components: int) -> Callable[[jax.Array], jax.Array]:
    """log p(v | alpha) as a function of alpha."""
    return lambda alpha: (components - 1) * jnp.log(alpha) + (alpha - 1) * log_rest


def log_stick_labels(counts: jax.Array, alpha: jax.Array) -> jax.Array:
    """log p(z | alpha) with the sticks summed out."""
    own, behind = counts[:-1], _behind(counts)[:-1]
    # B(1, alpha) = 1 / alpha.
    return jnp.sum(betaln(1.0 + own, alpha + behind) + jnp.log(alpha))


def swap_labels(key: jax.Array, counts: jax.Array, alpha: jax.Array) -> jax.Array:
    """A few swaps of two labels each, by Metropolis: the order of components that results."""
    K = counts.shape[0]

    if K < 2:
        return jnp.arange(K)
    uniform = jax.random.uniform(key, (SWAPS, 3))

    def swap(turn: int, carry: tuple) -> tuple:
        order, log_p = carry
        first, apart, accept = uniform[turn]
        i = jnp.int32(first * K)
        j = (i + 1 + jnp.int32(apart * (K - 1))) % K
        swapped = order.at[i].set(order[j]).at[j].set(order[i])
        new_log_p = log_stick_labels(counts[swapped], alpha)
        accepted = jnp.log(accept) < new_log_p - log_p
        return jnp.where(accepted, swapped, order), jnp.where(accepted, new_log_p, log_p)

    start = (jnp.arange(K), log_stick_labels(counts, alpha))
    return lax.fori_loop(0, SWAPS, swap, start)[0]


def _behind(counts: jax.Array) -> jax.Array:
    """Points in all components behind each."""
    return jnp.cumsum(counts[::-1])[::-1] - counts
