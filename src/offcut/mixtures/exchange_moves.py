r"""Exchange moves of a component: mean and covariance change with the rejections summed out.

Where little of a component is in the window, rejections far outnumber its events and hold the
component where it is. The exchange algorithm (Murray et al. 2006) holds no rejections. Given the
labels, component k has density proportional to

    p(theta) prod_i N(x_i; theta) / Z(theta)^n_k.

Propose theta', run its rejection sampler to n_k acceptances x̂, and accept with probability
min{1, p(theta')/p(theta) exp[(w' - w)·(sum_i phi(x_i) - sum_i phi(x̂_i))]}, w·phi being the normal
log density: Z cancels. The rejections of the same run become Y where theta' is accepted, so that
the pair stays a draw from the joint; under a budget a pair with too many is refused.

theta' is a random walk in the natural parameters (Sigma⁻¹mu, Sigma⁻¹), in which what the events
say is nearly normal whatever is cut off, scaled by the events' own mean and covariance: with
x = m + L u, L Lᵀ the covariance of the component's events (the base added as a few events),

    Lambda_u = Lᵀ Sigma⁻¹ L,   eta_u = Lambda_u L⁻¹(mu - m),

eta_u moves by s / sqrt(n_k) normals, Lambda_u by symmetric ones with sqrt(2) on the diagonal. The
scaling depends on labels and events only, so the walk is symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, Real

from offcut.numerics.normal import Base, Components, coefficients, given
from offcut.numerics.types import KeyArray

#: Length of a step, over the square root of the number of parameters; drawn anew for each
#: component, as components differ in how far they may go.
STEPS = (0.7, 5.0)


class Shapes(NamedTuple):
    """Proposed components, the change of coefficients, and the change of log prior (-inf where
    the proposal is no covariance).
    """

    components: Components
    change: Float[Array, "K f"]
    log_prior: Float[Array, " K"]


def propose_shapes(
    key: KeyArray, components: Components, totals: Float[Array, "K f"], base: Base
) -> Shapes:
    """A step for every component; ``totals`` are sums of features of its events."""
    K, d = components.means.shape
    key_size, key_step = jax.random.split(key)
    sizes = jax.random.uniform(key_size, (K,))
    normals = jax.random.normal(key_step, (K, d + 1, d))
    return jax.vmap(_propose, (0, 0, 0, 0, 0, None))(
        sizes, normals, components.means, components.roots, totals, base
    )


def _propose(
    size: Float[Array, ""],
    normals: Float[Array, "_ d"],
    mean: Float[Array, " d"],
    root: Float[Array, "d d"],
    total: Float[Array, " f"],
    base: Base,
) -> Shapes:
    d = mean.shape[0]
    after = given(base, total)
    m, L = after.mean, jnp.linalg.cholesky(after.scale / after.degrees)
    low, high = np.log(STEPS)
    length = jnp.exp(low + (high - low) * size)
    step = length / jnp.sqrt(after.degrees * (d * (d + 3) / 2))

    inverse = solve_triangular(root, L, lower=True)
    precision = inverse.T @ inverse
    eta = precision @ solve_triangular(L, mean - m, lower=True)
    noise = jnp.triu(normals[:d])
    symmetric = jnp.where(jnp.eye(d, dtype=bool), jnp.sqrt(2.0) * noise, noise + noise.T)
    new_precision = precision + step * symmetric
    new_eta = eta + step * normals[d]

    lower = jnp.linalg.cholesky(new_precision)
    fine = jnp.all(jnp.isfinite(lower))
    lower = jnp.where(fine, lower, jnp.eye(d))
    u = solve_triangular(lower, solve_triangular(lower, new_eta, lower=True), lower=True, trans="T")
    # Sigma' = (L lower⁻ᵀ)(L lower⁻ᵀ)ᵀ, made triangular again.
    half = solve_triangular(lower, L.T, lower=True).T
    new_root = jnp.linalg.cholesky(half @ half.T)
    fine &= jnp.all(jnp.isfinite(new_root))
    new = Components(jnp.where(fine, m + L @ u, mean), jnp.where(fine, new_root, root))
    means, roots = jnp.stack([new.means, mean]), jnp.stack([new.roots, root])
    w = jax.vmap(coefficients)(means, roots)
    log_prior = jax.vmap(log_natural_prior, (0, 0, None))(means, roots, base)
    change = jnp.where(fine, log_prior[0] - log_prior[1], -jnp.inf)
    return Shapes(new, w[0] - w[1], change)


def log_natural_prior(
    mean: Float[Array, " d"], root: Float[Array, "d d"], base: Base
) -> Float[Array, ""]:
    """log density of (Sigma⁻¹ mu, Sigma⁻¹) under the base, up to a constant.

    Sigma⁻¹ is Wishart, mu normal, and d mu = |Sigma| d(Sigma⁻¹ mu).
    """
    d = mean.shape[0]
    log_precision = -2 * jnp.sum(jnp.log(jnp.diagonal(root)))
    scale = solve_triangular(root, jnp.linalg.cholesky(base.scale), lower=True)
    away = solve_triangular(root, mean - base.mean, lower=True)
    return (
        0.5 * (base.degrees - d - 1) * log_precision
        - 0.5 * jnp.sum(scale**2)
        + 0.5 * log_precision
        - 0.5 * base.strength * jnp.sum(away**2)
        - log_precision
    )


class Growth(NamedTuple):
    """How weights move along with the components; see ``rejections``.

    log_weights : log omega, a row for all groups or one for each. log_r : by how much they would
    change. log_measure : log g of log rates.
    """

    log_weights: Float[Array, "R K"]
    log_r: Float[Array, "R K"]
    log_measure: Callable[[Float[Array, "R K"]], Float[Array, ""]]


def no_growth(components: int) -> Growth:
    """Weights stay as they are."""
    nothing = jnp.zeros((1, components))
    return Growth(nothing, nothing, lambda _: jnp.zeros(()))


def log_ratio_of(shapes: Shapes, excess: Float[Array, "K f"]) -> Float[Array, " K"]:
    """The log acceptance ratio of every component where weights stay.

    excess : sums of features of events, minus those of the accepted points of the proposal's run.
    """
    return shapes.log_prior + jnp.sum(shapes.change * excess, axis=1)


def accept_in_turn(
    key: KeyArray,
    log_ratio: Float[Array, " K"],
    held: Real[Array, " K"],
    fresh: Int[Array, " K"],
    budget: Int[Array, ""],
    growth: Growth,
) -> Bool[Array, " K"]:
    """Which components take their steps, one after the other: each adds to |Y| for the next, and
    changes the weights.

    log_ratio : all terms but those of g. held, fresh : numbers of rejections that each has
    and would have.
    """
    uniform = jnp.log(jax.random.uniform(key, log_ratio.shape))
    log_r, fresh = growth.log_r, fresh.astype(held.dtype)

    def one(carry: tuple, number: Int[Array, ""]) -> tuple:
        """The first, in which nothing moves, finds log g of the weights as they are."""
        log_rates, log_g, total = carry
        k, moves = jnp.maximum(number - 1, 0), number > 0
        proposed = log_rates.at[:, k].add(jnp.where(moves, log_r[:, k], 0.0))
        new_log_g = growth.log_measure(proposed)
        more = total + jnp.where(moves, fresh[k] - held[k], 0)
        accepted = (uniform[k] < log_ratio[k] + new_log_g - log_g) & (more <= budget)
        accepted |= ~moves
        new = (proposed, new_log_g, more)
        return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, carry), accepted

    start = (growth.log_weights, jnp.zeros(()), jnp.sum(held))
    return lax.scan(one, start, jnp.arange(1 + log_ratio.shape[0]))[1][1:]
