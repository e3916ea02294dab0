"""Exact draws of Pólya-Gamma PG(1, z) by Devroye's method.

omega = X/4 where X has, with c = |z|/2, the density (Polson, Scott & Windle, *Bayesian inference
for logistic models using Pólya-Gamma latent variables*, JASA 2013; Devroye, *On exact simulation
algorithms for some distributions related to Jacobi theta functions*, 2009)

    cosh(c) exp(-c² x / 2) sum_n (-1)ⁿ a_n(x),
    a_n(x) = pi (n + 1/2) (2 / (pi x))^(3/2) exp(-2 (n + 1/2)² / x)      for x <= t,
             pi (n + 1/2) exp(-(n + 1/2)² pi² x / 2)                     for x > t.

Proposals have the density of exp(-c² x / 2) a_0(x). Right of t they are exponential with rate
K = pi²/8 + c²/2 and have mass pi / (2 K) exp(-K t). Left of t, a_0 is twice the density of 1/N², N
a standard normal, and there are two ways, of which the one with less mass is taken: 1/N² given
that it is below t, mass 4 Phi(-1/√t), thinned by exp(-c² x / 2); or that factor taken into the
proposal, the inverse Gaussian with mean 1/c and shape 1, mass 2 exp(-c), thinned by x <= t. Both
are the smaller root x of (1 - m x)² = N² x with m = 0 and m = c, but the inverse Gaussian takes the
larger root, 1 / (m² x), with probability m x / (1 + m x) (Michael, Schucany & Haas, 1976). Between
0.72 (|z| = 3.1) and all (0 and infinity) of the proposals are accepted.

t = 2/pi, where the two a_0 are equal; 0.64 in both sources is that rounded.

Given these variables f is normal, in whitened coordinates. With G = Phiᵀ Omega Phi, b = Phiᵀ kappa
(kappa = ½ at X, -½ at Y), D = diag(√S) and w = D beta,

    beta | omega ~ N(A⁻¹ D b, A⁻¹),   A = I + D G D,
    log p(omega, X, Y | D) = ½ bᵀ D A⁻¹ D b - ½ log|A| + what does not depend on D,

the latter with f integrated out: hyperparameters move by it, free of f (Polson, Scott & Windle
2013; never K⁻¹, whose entries overflow for smooth kernels).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtri
from jaxtyping import Array, Bool, Float, Int

from offcut.numerics.arrays import exclusive_count, materialised
from offcut.numerics.types import KeyArray

Matrix = Float[Array, "m m"]
Vector = Float[Array, " m"]


def _factored(G: Matrix, b: Vector, D: Vector) -> tuple[Matrix, Vector]:
    """L with L Lᵀ = A, and L⁻¹ D b."""
    A = jnp.eye(b.shape[0]) + D[:, None] * G * D[None, :]
    L = jnp.linalg.cholesky((A + A.T) / 2)
    return L, solve_triangular(L, D * b, lower=True)


def log_evidence(G: Matrix, b: Vector, D: Vector) -> Float[Array, ""]:
    """log p(omega, X, Y | D) up to a constant."""
    L, v = _factored(G, b, D)
    return 0.5 * v @ v - jnp.sum(jnp.log(jnp.diagonal(L)))


def draw(key: KeyArray, G: Matrix, b: Vector, D: Vector) -> Vector:
    """beta given omega."""
    L, v = _factored(G, b, D)
    noise = jax.random.normal(key, v.shape)
    return solve_triangular(L, v + noise, lower=True, trans="T")


T = 2.0 / math.pi
#: Phi(-1/√t).
NORMAL_TAIL = 0.5 * math.erfc(math.sqrt(0.5 / T))
#: The c from which on 2 exp(-c) < 4 Phi(-1/√t).
SWITCH = -math.log(2.0 * NORMAL_TAIL)


def polya_gamma(
    key: KeyArray, z: Float[Array, " rows"], count: int | Int[Array, ""], lanes: int
) -> Float[Array, " rows"]:
    """Draw PG(1, z) for the first ``count`` entries of ``z``; 0 for the others.

    Each of ``lanes`` (a multiple of 32) proposes for one entry in each round, and moves on to the
    next that nobody has as soon as a proposal is accepted. The draws depend on ``lanes``, but not
    on the capacity.
    """
    all_c = 0.5 * jnp.abs(z)

    def one_round(state: tuple) -> tuple:
        number, done, entry, omega = state
        c = all_c.at[entry].get(mode="clip")
        x = materialised(number, lambda: _propose(jax.random.fold_in(key, number), c))
        # Not x >= 0: a z that is no number is done too, and shows in the result.
        accepted = ~(x < 0.0) & (entry < count)
        omega = omega.at[jnp.where(accepted, entry, z.shape[0])].set(0.25 * x, mode="drop")
        entry = jnp.where(accepted, lanes + done + exclusive_count(accepted), entry)
        return number + 1, done + jnp.sum(accepted, dtype=jnp.int32), entry, omega

    entry = jnp.arange(lanes, dtype=jnp.int32)
    start = (jnp.int32(0), jnp.int32(0), entry, jnp.zeros_like(all_c))
    return lax.while_loop(lambda state: state[1] < count, one_round, start)[3]


def _propose(key: KeyArray, c: Float[Array, " lanes"]) -> Float[Array, " lanes"]:
    """One proposal of X for each c; -1 where it is rejected.

    One uniform in (0, 1] chooses the side and, rescaled, the place there; another the root and,
    rescaled, whether to accept.
    """
    place, uniform = 1.0 - jax.random.uniform(key, (2, *c.shape), c.dtype)
    right_over_left = _right_over_left(c)
    place = place * (1.0 + right_over_left)
    is_left = place <= 1.0

    is_tilted = c > SWITCH
    m = jnp.where(is_tilted, c, 0.0)
    square = ndtri(place * jnp.where(is_tilted, 0.5, NORMAL_TAIL)) ** 2
    smaller = 2.0 / (2.0 * m + square + jnp.sqrt(square * (4.0 * m + square)))
    uniform_left = uniform * (1.0 + m * smaller)
    is_smaller = uniform_left <= 1.0
    left = jnp.where(is_smaller, smaller, 1.0 / (m * (m * smaller)))
    uniform_left = jnp.where(is_smaller, uniform_left, (uniform_left - 1.0) / (m * smaller))

    # Rounding may take the rescaled uniform beyond 1 where hardly anything is on the right.
    right = T - jnp.log(jnp.minimum((place - 1.0) / right_over_left, 1.0)) / _rate(c)

    x = jnp.where(is_left, left, right)
    uniform = jnp.where(is_left, uniform_left, uniform)
    return jnp.where(uniform > _acceptance(c, x, is_left), -1.0, x)


def _rate(c: Float[Array, " lanes"]) -> Float[Array, " lanes"]:
    """K = pi²/8 + c²/2."""
    return math.pi**2 / 8.0 + 0.5 * c * c


def _right_over_left(c: Float[Array, " lanes"]) -> Float[Array, " lanes"]:
    """The mass of proposals right of t over that left of it; the exponent is below 0.01."""
    K = _rate(c)
    return math.pi / (4.0 * K) * jnp.exp(jnp.maximum(c, SWITCH) - K * T)


def _acceptance(
    c: Float[Array, " lanes"], x: Float[Array, " lanes"], is_left: Bool[Array, " lanes"]
) -> Float[Array, " lanes"]:
    """sum_n (-1)ⁿ a_n / a_0, times what the proposals on the left leave out.

    With q = exp(-4/x) on the left and exp(-pi² x) on the right the sum is
    1 - 3q + 5q³ - 7q⁶ + 9q¹⁰ - ...; q is largest at t, exp(-2 pi) = 0.0019, where 7q⁶ = 3e-16 and
    9q¹⁰ = 5e-27, below any rounding of the sum.
    """
    q = jnp.exp(-jnp.where(is_left, 4.0 / x, math.pi**2 * x))
    cube = q * q * q
    series = 1.0 - 3.0 * q + cube * (5.0 - 7.0 * cube)
    tilt = jnp.exp(jnp.where(is_left & (c <= SWITCH), -0.5 * c * c * x, 0.0))
    return jnp.where(is_left & (x > T), 0.0, tilt * series)
