"""Weights of a mixture: stick-breaking, for groups a hierarchy, and their concentrations.

The truncated Dirichlet process (Ishwaran & James 2001) breaks sticks

    v_k ~ Beta(1, alpha), k < K, v_K = 1,    omega_k = v_k prod_{l<k} (1 - v_l).

Given the number c_k of points in each component, v_k ~ Beta(1 + c_k, alpha + c_{>k}); with the
sticks summed out the labels have

    p(z | alpha) = prod_{k<K} B(1 + c_k, alpha + c_{>k}) / B(1, alpha),

which depends on the order of the components. Swapping the labels of two components is therefore a
move of its own (Papaspiliopoulos & Roberts 2008); without it a large component that sits behind
small ones stays there.

Groups that share components have the hierarchical Dirichlet process (Teh et al. 2006), truncated,

    beta ~ sticks(gamma),    omega_g | beta ~ Dirichlet(alpha beta_1, ..., alpha beta_K).

Given the number c_gk of points of group g in component k: omega_g ~ Dirichlet(alpha beta + c_g).
For beta the omega are summed out; with t_gk the number of tables that c_gk customers occupy in a
Chinese restaurant with concentration alpha beta_k (each customer i = 0, 1, ... opens one with
probability alpha beta_k / (alpha beta_k + i)), the sticks of beta see sum_g t_gk as counts.

A concentration is a number, or has a prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jax.scipy.special import betaln, gammaln
from jaxtyping import Array, Float, Int

from offcut.errors import ModelError
from offcut.models.prior import in_support, log_prob
from offcut.numerics.rendering import written
from offcut.numerics.slice_sampling import slice_sample
from offcut.numerics.types import KeyArray

#: log p(what alpha explains) as a function of alpha
LogLikelihood = Callable[[Float[Array, ""]], Float[Array, ""]]


class Concentration:
    """alpha: fixed, or with a prior (a NumPyro distribution on the positive numbers)."""

    def __init__(self, value: object, name: str = "alpha") -> None:
        self.learned = isinstance(value, dist.Distribution)
        self.prior: dist.Distribution | None = None
        if isinstance(value, dist.Distribution):
            self.prior = value
            if value.batch_shape or value.event_shape or _negative(value):
                raise ModelError(
                    f"{name} needs a prior on one positive number, e.g. dist.Gamma(2, 2), got "
                    f"{type(value).__name__} on {value.support}"
                )
            self.fixed = float("nan")
            return
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        self.fixed = float(value) if number else float("nan")  # type: ignore[arg-type]
        if not 0 < self.fixed < np.inf:
            raise ModelError(
                f"{name} must be a positive number, or a prior such as dist.Gamma(2, 2), got "
                f"{value!r}"
            )

    def first(self, key: KeyArray) -> Float[Array, ""]:
        """The fixed value, or a draw from the prior, a moderate one unless the prior has none."""
        if self.prior is None:
            return jnp.asarray(self.fixed)
        drawn = self.prior.sample(key).astype(float)
        moderate = jnp.clip(drawn, 1e-3, 1e3)
        return jnp.where(in_support(self.prior, moderate), moderate, drawn)

    def update(
        self, key: KeyArray, value: Float[Array, ""], log_likelihood: LogLikelihood
    ) -> Float[Array, ""]:
        """Slice-sample log alpha given what it explains."""
        prior = self.prior
        if prior is None:
            return value

        def log_density(log_value: Float[Array, " 1"]) -> Float[Array, " 1"]:
            inside = jnp.abs(log_value) < LARGEST
            alpha = jnp.exp(jnp.clip(log_value[0], -LARGEST, LARGEST))
            log_p = log_prob(prior, alpha) + jnp.log(alpha) + log_likelihood(alpha)
            return jnp.where(inside & ~jnp.isnan(log_p), log_p[None], -jnp.inf)

        start = jnp.log(value)[None]
        moved = slice_sample(key, log_density, start, -LARGEST, LARGEST, 1.0, jnp.array([True]))
        return jnp.exp(moved[0])

    def __repr__(self) -> str:
        return written(self.fixed if self.prior is None else self.prior)


#: log alpha stays within these; nobody's prior reaches beyond.
LARGEST = 50.0


def _negative(prior: dist.Distribution) -> bool:
    """Whether the prior allows a negative number."""
    return bool(np.all(prior.support(-1.0))) or bool(np.all(prior.support(-1e-3)))


#: Swaps tried in a sweep.
SWAPS = 8


class WeightState(NamedTuple):
    """log omega, a row for all groups or one for each, and alpha of the sticks.

    With a hierarchy also log beta, whose sticks they are then, and alpha of the groups.
    """

    log_weights: Float[Array, "R K"]
    alpha: Float[Array, ""]
    log_shared: Float[Array, " K"] | None = None
    group_alpha: Float[Array, ""] | None = None


@dataclass(frozen=True, eq=False)
class Sticks:
    """One set of weights for all groups."""

    alpha: Concentration
    components: int

    def first(self, key: KeyArray, counts: Float[Array, "G K"]) -> WeightState:
        """Weights given counts, at a first alpha; without points a draw from the prior."""
        key_alpha, key_sticks = jax.random.split(key)
        alpha = self.alpha.first(key_alpha)
        return WeightState(break_sticks(key_sticks, counts.sum(0), alpha)[0][None], alpha)

    def log_labels(self, state: WeightState, counts: Float[Array, "G K"]) -> Float[Array, ""]:
        """log p(z | alpha) with the sticks summed out."""
        return log_stick_labels(counts.sum(0), state.alpha)

    def update(
        self, key: KeyArray, state: WeightState, counts: Float[Array, "G K"]
    ) -> tuple[WeightState, Int[Array, " K"]]:
        """Swap labels, then draw sticks given labels and alpha given sticks.

        Also returns the order: entry k is the old label of what is now component k.
        """
        key_swap, key_sticks, key_alpha = jax.random.split(key, 3)
        order = swap_labels(key_swap, counts.sum(0), state.alpha)
        log_weights, log_rest = break_sticks(key_sticks, counts.sum(0)[order], state.alpha)
        alpha = self.alpha.update(key_alpha, state.alpha, log_sticks(log_rest, self.components))
        return WeightState(log_weights[None], alpha), order

    def log_measure(self, state: WeightState, log_rates: Float[Array, "1 K"]) -> Float[Array, ""]:
        r"""log density of omega and log u in terms of lambda = u omega, up to a constant.

        With R_k = sum_{j>=k} lambda_j, so that 1 - v_k = R_{k+1} / R_k and u = R_1, it is
        (lambda_K / u)^(alpha - 1) / (u prod_{k<K} R_k).
        """
        log_behind = _log_sums_behind(log_rates[0])
        log_u = log_behind[0]
        last = (state.alpha - 1.0) * (log_rates[0, -1] - log_u)
        return last - jnp.sum(log_behind[:-1]) - log_u

    def record(self, state: WeightState) -> dict[str, jax.Array]:
        return {"alpha": state.alpha} if self.alpha.learned else {}


def break_sticks(
    key: KeyArray, counts: Float[Array, " K"], alpha: Float[Array, ""]
) -> tuple[Float[Array, " K"], Float[Array, ""]]:
    """log omega and sum_k log(1 - v_k), in logarithms throughout: sticks may be 1 to rounding."""
    shapes = jnp.stack([1.0 + counts[:-1], alpha + _behind(counts)[:-1]])
    own, rest = jax.random.loggamma(key, shapes)
    both = jnp.logaddexp(own, rest)
    log_left = jnp.concatenate([jnp.zeros(1), jnp.cumsum(rest - both)])
    log_own = jnp.concatenate([own - both, jnp.zeros(1)])
    return log_own + log_left, jnp.sum(rest - both)


def log_sticks(log_rest: Float[Array, ""], components: int) -> LogLikelihood:
    """log p(v | alpha) as a function of alpha."""
    return lambda alpha: (components - 1) * jnp.log(alpha) + (alpha - 1) * log_rest


def log_stick_labels(counts: Float[Array, " K"], alpha: Float[Array, ""]) -> Float[Array, ""]:
    """log p(z | alpha) with the sticks summed out."""
    own, behind = counts[:-1], _behind(counts)[:-1]
    # B(1, alpha) = 1 / alpha.
    return jnp.sum(betaln(1.0 + own, alpha + behind) + jnp.log(alpha))


def swap_labels(
    key: KeyArray, counts: Float[Array, " K"], alpha: Float[Array, ""]
) -> Int[Array, " K"]:
    """A few swaps of two labels each, by Metropolis: the order of components that results."""
    K = counts.shape[0]

    if K < 2:
        return jnp.arange(K)
    uniform = jax.random.uniform(key, (SWAPS, 3))

    def swap(number: Int[Array, ""], carry: tuple) -> tuple:
        """The first, which swaps nothing, finds log p of the order as it is."""
        order, log_p = carry
        first, apart, accept = uniform[jnp.maximum(number - 1, 0)]
        i = jnp.int32(first * K)
        j = jnp.where(number == 0, i, (i + 1 + jnp.int32(apart * (K - 1))) % K)
        swapped = order.at[i].set(order[j]).at[j].set(order[i])
        new_log_p = log_stick_labels(counts[swapped], alpha)
        accepted = (number == 0) | (jnp.log(accept) < new_log_p - log_p)
        return jnp.where(accepted, swapped, order), jnp.where(accepted, new_log_p, log_p)

    start = (jnp.arange(K), jnp.zeros(()))
    return lax.fori_loop(0, 1 + SWAPS, swap, start)[0]


def _log_sums_behind(logs: Float[Array, " K"]) -> Float[Array, " K"]:
    """log of the sum of each and all behind it, one after the other.

    ``lax.cumlogsumexp`` makes several passes over the whole vector, and on a CPU takes four to ten
    times as long, for 20 components as for 1000.
    """

    def one(behind: Float[Array, ""], own: Float[Array, ""]) -> tuple:
        both = jnp.logaddexp(behind, own)
        return both, both

    return lax.scan(one, jnp.array(-jnp.inf), logs, reverse=True)[1]


def _behind(counts: Float[Array, " K"]) -> Float[Array, " K"]:
    """Points in all components behind each.

    Counts are whole, so any order of adding is as exact; this one is one instruction.
    """
    places = np.arange(counts.shape[0])
    return jnp.sum(jnp.where(places[None, :] > places[:, None], counts[None, :], 0.0), axis=1)


#: Customers seated at a time.
SEATS = 1024
#: Below this a share of beta counts as this much: 0 would make its Dirichlet degenerate.
LEAST_LOG = -600.0


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Weights of each group around shared ones."""

    alpha: Concentration
    group_alpha: Concentration
    components: int
    groups: int

    def first(self, key: KeyArray, counts: Float[Array, "G K"]) -> WeightState:
        """Weights given counts, at first concentrations; without points a draw from the prior."""
        keys = jax.random.split(key, 4)
        alpha, group_alpha = self.alpha.first(keys[0]), self.group_alpha.first(keys[1])
        shared = break_sticks(keys[2], (counts > 0).sum(0).astype(float), alpha)[0]
        return self._groups(keys[3], counts, WeightState(counts, alpha, shared, group_alpha))

    def _groups(
        self, key: KeyArray, counts: Float[Array, "G K"], around: WeightState
    ) -> WeightState:
        """omega_g ~ Dirichlet(alpha beta + c_g), in logarithms; ``around`` has alpha and beta."""
        draws = jax.random.loggamma(key, _shapes(around)[None, :] + counts)
        log_weights = draws - jax.nn.logsumexp(draws, axis=1, keepdims=True)
        return around._replace(log_weights=log_weights)

    def log_labels(self, state: WeightState, counts: Float[Array, "G K"]) -> Float[Array, ""]:
        """log p(z | beta) with the groups' weights summed out."""
        weights = _shapes(state)
        return jnp.sum(jax.vmap(log_dirichlet_multinomial, (0, None))(counts, weights))

    def update(
        self, key: KeyArray, state: WeightState, counts: Float[Array, "G K"]
    ) -> tuple[WeightState, Int[Array, " K"]]:
        """Concentration of the groups, tables, labels swapped, beta, its concentration, weights.

        Also returns the order: entry k is the old label of what is now component k.
        """
        keys = jax.random.split(key, 6)

        def log_likelihood(group_alpha: Float[Array, ""]) -> Float[Array, ""]:
            return self.log_labels(state._replace(group_alpha=group_alpha), counts)

        assert state.group_alpha is not None
        group_alpha = self.group_alpha.update(keys[0], state.group_alpha, log_likelihood)
        shapes = _shapes(state._replace(group_alpha=group_alpha))
        tables = seat_customers(keys[1], counts, shapes).sum(0)
        order = swap_labels(keys[2], tables, state.alpha)
        log_shared, log_rest = break_sticks(keys[3], tables[order], state.alpha)
        alpha = self.alpha.update(keys[4], state.alpha, log_sticks(log_rest, self.components))
        around = WeightState(state.log_weights, alpha, log_shared, group_alpha)
        return self._groups(keys[5], counts[:, order], around), order

    def log_measure(self, state: WeightState, log_rates: Float[Array, "G K"]) -> Float[Array, ""]:
        r"""log density of omega_g and log u_g in terms of lambda_g = u_g omega_g.

        With a_k = alpha beta_k it is prod_g prod_k lambda_gk^(a_k - 1) / u_g^(sum a_k).
        """
        shapes = _shapes(state)
        log_u = jax.nn.logsumexp(log_rates, axis=1)
        rates = jnp.sum((shapes[None, :] - 1.0) * log_rates)
        return rates - jnp.sum(shapes) * jnp.sum(log_u)

    def record(self, state: WeightState) -> dict[str, jax.Array]:
        assert state.log_shared is not None
        assert state.group_alpha is not None
        named = {"shared_weights": jnp.exp(state.log_shared)}
        if self.alpha.learned:
            named["alpha"] = state.alpha
        if self.group_alpha.learned:
            named["group_alpha"] = state.group_alpha
        return named


def _shapes(state: WeightState) -> Float[Array, " K"]:
    """alpha beta, kept above zero."""
    assert state.log_shared is not None
    assert state.group_alpha is not None
    return state.group_alpha * jnp.exp(jnp.maximum(state.log_shared, LEAST_LOG))


def seat_customers(
    key: KeyArray, counts: Float[Array, "G K"], weights: Float[Array, " K"]
) -> Float[Array, "G K"]:
    """Tables t_gk that c_gk customers occupy: one uniform for each customer, all cells in a row."""
    shape = counts.shape
    cells = counts.astype(jnp.int32).reshape(-1)
    ends = jnp.cumsum(cells)
    starts = ends - cells
    weight = jnp.broadcast_to(weights[None, :], shape).reshape(-1)

    def seat(block: Int[Array, ""], tables: Int[Array, " cells"]) -> Int[Array, " cells"]:
        customer = block * SEATS + jnp.arange(SEATS)
        cell = jnp.minimum(jnp.searchsorted(ends, customer, side="right"), cells.size - 1)
        before = customer - starts[cell]
        uniform = jax.random.uniform(jax.random.fold_in(key, block), (SEATS,))
        opens = (uniform * (weight[cell] + before) < weight[cell]) & (customer < ends[-1])
        return tables.at[cell].add(opens)

    blocks = -(-ends[-1] // SEATS)
    return lax.fori_loop(0, blocks, seat, jnp.zeros(cells.size, jnp.int32)).reshape(shape) * 1.0


def log_dirichlet_multinomial(
    counts: Float[Array, " K"], weights: Float[Array, " K"]
) -> Float[Array, ""]:
    """log probability of labels with the given counts where omega ~ Dirichlet(weights)."""
    total = jnp.sum(weights)
    return (
        gammaln(total)
        - gammaln(total + jnp.sum(counts))
        + jnp.sum(gammaln(weights + counts) - gammaln(weights))
    )
