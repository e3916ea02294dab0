r"""Groups that share components: the hierarchical Dirichlet process (Teh et al. 2006), truncated.

    beta ~ sticks(gamma),    omega_g | beta ~ Dirichlet(alpha beta_1, ..., alpha beta_K).

Given the number c_gk of points of group g in component k: omega_g ~ Dirichlet(alpha beta + c_g).
For beta the omega are summed out; with t_gk the number of tables that c_gk customers occupy in a
Chinese restaurant with concentration alpha beta_k (each customer i = 0, 1, ... opens one with
probability alpha beta_k / (alpha beta_k + i)), the sticks of beta see sum_g t_gk as counts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from offcut.mixtures.concentration import Concentration
from offcut.mixtures.sticks import break_sticks, log_sticks, swap_labels

#: Customers seated at a time.
SEATS = 1024
#: Below this a share of beta counts as this much: 0 would make its Dirichlet degenerate.
LEAST_LOG = -600.0


class HierarchyState(NamedTuple):
    """log omega (G, K), log beta (K,), gamma of the sticks of beta, alpha of the groups."""

    log_weights: jax.Array
    log_shared: jax.Array
    alpha: jax.Array
    group_alpha: jax.Array


class Hierarchy:
    """Weights of each group around shared ones."""

    def __init__(
        self, alpha: Concentration, group_alpha: Concentration, components: int, groups: int
    ) -> None:
        self.alpha, self.group_alpha = alpha, group_alpha
        self.components, self.groups = components, groups

    def first(self, key: jax.Array, counts: jax.Array) -> HierarchyState:
        """Weights given counts (G, K), at first concentrations."""
        keys = jax.random.split(key, 4)
        alpha, group_alpha = self.alpha.first(keys[0]), self.group_alpha.first(keys[1])
        shared = break_sticks(keys[2], (counts > 0).sum(0).astype(float), alpha)[0]
        return self._groups(keys[3], shared, alpha, group_alpha, counts)

    def from_prior(self, key: jax.Array) -> HierarchyState:
        """A draw from the prior (for the invariance test)."""
        keys = jax.random.split(key, 4)
        alpha, group_alpha = self.alpha.from_prior(keys[0]), self.group_alpha.from_prior(keys[1])
        shared = break_sticks(keys[2], jnp.zeros(self.components), alpha)[0]
        nothing = jnp.zeros((self.groups, self.components))
        return self._groups(keys[3], shared, alpha, group_alpha, nothing)

    def _groups(
        self,
        key: jax.Array,
        log_shared: jax.Array,
        alpha: jax.Array,
        group_alpha: jax.Array,
        counts: jax.Array,
    ) -> HierarchyState:
        """omega_g ~ Dirichlet(alpha beta + c_g), in logarithms."""
        shapes = _shapes(log_shared, group_alpha)[None, :] + counts
        draws = jax.random.loggamma(key, shapes)
        log_weights = draws - jax.nn.logsumexp(draws, axis=1, keepdims=True)
        return HierarchyState(log_weights, log_shared, alpha, group_alpha)

    def log_labels(self, state: HierarchyState, counts: jax.Array) -> jax.Array:
        """log p(z | beta) with the groups' weights summed out."""
        weights = _shapes(state.log_shared, state.group_alpha)
        return jnp.sum(jax.vmap(log_dirichlet_multinomial, (0, None))(counts, weights))

    def update(
        self, key: jax.Array, state: HierarchyState, counts: jax.Array
    ) -> tuple[HierarchyState, jax.Array]:
        """Concentration of the groups, tables, labels swapped, beta, its concentration, weights.

        Also returns the order: entry k is the old label of what is now component k.
        """
        keys = jax.random.split(key, 6)

        def log_likelihood(group_alpha: jax.Array) -> jax.Array:
            return self.log_labels(state._replace(group_alpha=group_alpha), counts)

        group_alpha = self.group_alpha.update(keys[0], state.group_alpha, log_likelihood)
        tables = seat_customers(keys[1], counts, _shapes(state.log_shared, group_alpha)).sum(0)
        order = swap_labels(keys[2], tables, state.alpha)
        log_shared, log_rest = break_sticks(keys[3], tables[order], state.alpha)
        alpha = self.alpha.update(keys[4], state.alpha, log_sticks(log_rest, self.components))
        return self._groups(keys[5], log_shared, alpha, group_alpha, counts[:, order]), order

    def log_measure(self, state: HierarchyState, log_rates: jax.Array) -> jax.Array:
        r"""log density of omega_g and log u_g in terms of lambda_g = u_g omega_g, (G, K).

        With a_k = alpha beta_k it is prod_g prod_k lambda_gk^(a_k - 1) / u_g^(sum a_k).
        """
        shapes = _shapes(state.log_shared, state.group_alpha)
        log_u = jax.nn.logsumexp(log_rates, axis=1)
        rates = jnp.sum((shapes[None, :] - 1.0) * log_rates)
        return rates - jnp.sum(shapes) * jnp.sum(log_u)

    def record(self, state: HierarchyState) -> dict[str, jax.Array]:
        """Posterior variables beside the weights."""
        named = {"shared_weights": jnp.exp(state.log_shared)}
        if self.alpha.learned:
            named["alpha"] = state.alpha
        if self.group_alpha.learned:
            named["group_alpha"] = state.group_alpha
        return named


def _shapes(log_shared: jax.Array, group_alpha: jax.Array) -> jax.Array:
    """alpha beta, kept above zero."""
    return group_alpha * jnp.exp(jnp.maximum(log_shared, LEAST_LOG))


def seat_customers(key: jax.Array, counts: jax.Array, weights: jax.Array) -> jax.Array:
    """Tables t_gk that c_gk customers occupy: one uniform for each customer, all cells in a row."""
    shape = counts.shape
    cells = counts.astype(jnp.int32).reshape(-1)
    ends = jnp.cumsum(cells)
    starts = ends - cells
    weight = jnp.broadcast_to(weights[None, :], shape).reshape(-1)

    def seat(block: jax.Array, tables: jax.Array) -> jax.Array:
        customer = block * SEATS + jnp.arange(SEATS)
        cell = jnp.minimum(jnp.searchsorted(ends, customer, side="right"), cells.size - 1)
        before = customer - starts[cell]
        uniform = jax.random.uniform(jax.random.fold_in(key, block), (SEATS,))
        opens = (uniform * (weight[cell] + before) < weight[cell]) & (customer < ends[-1])
        return tables.at[cell].add(opens)

    blocks = -(-ends[-1] // SEATS)
    return lax.fori_loop(0, blocks, seat, jnp.zeros(cells.size, jnp.int32)).reshape(shape) * 1.0


def log_dirichlet_multinomial(counts: jax.Array, weights: jax.Array) -> jax.Array:
    """log probability of labels with the given counts where omega ~ Dirichlet(weights)."""
    total = jnp.sum(weights)
    return (
        gammaln(total)
        - gammaln(total + jnp.sum(counts))
        + jnp.sum(gammaln(weights + counts) - gammaln(weights))
    )
