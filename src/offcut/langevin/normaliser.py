"""log Z(kappa) of the matrix Langevin distribution, exactly, where it is a single integral.

Z(kappa) = ∫ etr(kappa Gᵀ X) dX over the uniform distribution on V_{p,d}; it depends on the singular
values kappa alone. For p = 1 it is h_d(kappa). For p = 2, with the second column's projection on
the first mean direction written as sin phi,

    Z = 2 / B(1/2, (d-1)/2) ∫_0^{pi/2} cos(phi)^(d-2) h_{d-1}(k1 cos phi) h_{d-1}(k2 cos phi) dphi,

whose integrand falls to nothing beyond 8.5/√c, c = k1 A(k1) + k2 A(k2) + d - 2, where that is less
than pi/2: 40 Gauss-Legendre nodes (32 do as well) reach rounding for d from 2 to 100 and kappa up
to 1e6, as 400 confirm.

For d = p = 3 the rotations and the reflections are half of O(3) each, Z = ½ [c(k1, k2, k3) +
c(k1, k2, -k3)], and with sorted k1 >= k2 >= |k3| (Lee 2018, a form of the quaternion's Bingham
constant), w = 1 - u,

    c(k) = ½ ∫_{-1}^{1} I_0(½ (k1-k2)(1-u)) I_0(½ (k1+k2)(1+u)) exp(k3 u) du,

by tanh-sinh quadrature, because its parts live on scales from 1/kappa to 1.

For large concentrations there is Khatri & Mardia's (1977) approximation,

    log Z ≈ sum_i k_i - ½ sum_{i<j} log(k_i + k_j) - ½ (d-p) sum_i log k_i + constant.

It is the Laplace approximation at the mode; its error falls like 1/kappa, and it is off by any
amount at small kappa. The paper's approximate sampler (section 5.5) uses it, and so do
maximum-likelihood estimates where the exact Z is out of reach. Results say where it was used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.special import betaln, gammaln

from offcut.langevin.hypergeometric import drop_and_ratio, log_h, log_h_and_ratio


def approximate_log_normaliser(kappa: Float[Array, " p"], d: int) -> Float[Array, ""]:
    """log Z at large concentrations ``kappa``."""
    p = kappa.shape[0]
    i, j = np.triu_indices(p, 1)
    constant = (
        (0.5 * p * d - 0.25 * p * (p + 5)) * np.log(2.0)
        - 0.5 * p * np.log(np.pi)
        + sum(gammaln(0.5 * (d - r)) for r in range(p))
    )
    return (
        jnp.sum(kappa)
        - 0.5 * jnp.sum(jnp.log(kappa[i] + kappa[j]))
        - 0.5 * (d - p) * jnp.sum(jnp.log(kappa))
        + constant
    )


#: Nodes on the range of the integral.
NODES = 40
#: Where the integrand is cut off, in units of its width.
WIDTHS = 8.5
#: Range and step of the tanh-sinh rule.
DOUBLY_FAR, DOUBLY_STEP = 3.4, 0.025
# Lists, not arrays: an array that JAX has once met as a constant in single precision it rounds for
# good, also for later programs in double precision (JAX 0.10).
_NODES, _WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(NODES))


def is_exact(d: int, p: int) -> bool:
    """Whether log Z is known for d by p frames."""
    return p <= 2 or d == p == 3


def log_normaliser(kappa: Float[Array, " p"], d: int) -> Float[Array, ""]:
    """log Z at singular values ``kappa``, in any order; differentiable twice.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     print(f"{log_normaliser(jnp.array([12.0, 6.0]), 3):.9f}")
    12.846615950
    """
    return log_normalisers(kappa[None], d)[0]


def log_normalisers(kappa: Float[Array, "m p"], d: int) -> Float[Array, " m"]:
    """log Z at each row of singular values: one program, however many there are."""
    p = kappa.shape[1]
    if p == 1:
        return log_h(d, kappa[:, 0])
    if p == 2:
        return _two_columns(kappa, d)
    if p == d == 3:
        return _three_by_three(-jnp.sort(-kappa, axis=1), d)
    raise NotImplementedError(f"log Z is known for p <= 2 and for 3 by 3, not for {d} by {p}")


#: ``f(kappa, d) -> log Z, its gradient in kappa``.
ValueAndSlopes = Callable[[jax.Array, int], tuple[jax.Array, jax.Array]]


def _with_slopes(value_and_slopes: ValueAndSlopes) -> Callable[[jax.Array, int], jax.Array]:
    """The value alone, with the slopes as its derivative: both come out of one pass."""

    @partial(jax.custom_jvp, nondiff_argnums=(1,))
    def value(kappa: Float[Array, "m p"], d: int) -> Float[Array, " m"]:
        return value_and_slopes(kappa, d)[0]

    @value.defjvp
    def change(d: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        here, slopes = value_and_slopes(primals[0], d)
        return here, jnp.sum(slopes * tangents[0], axis=1)

    return value


@_with_slopes
def _two_columns(kappa: jax.Array, d: int) -> tuple[jax.Array, jax.Array]:
    """d log Z / d k_i is the mean of cos(phi) A(k_i cos phi) under the integrand."""
    m, y = d - 1, kappa[:, :, None]
    log_h_y, ratio = log_h_and_ratio(m, y)
    # Where the nodes lie is not differentiated: the integral does not depend on it.
    curvature = lax.stop_gradient(jnp.sum(y * ratio, axis=1)) + (d - 2)
    width = jnp.minimum(0.5 * np.pi, WIDTHS / jnp.sqrt(jnp.maximum(curvature, 1e-12)))
    nodes, weights = (jnp.asarray(part)[None, :] for part in (_NODES, _WEIGHTS))
    c = jnp.sin(0.5 * width * (nodes + 1.0)) ** 2

    def integrand() -> tuple[jax.Array, jax.Array]:
        """Logarithms of the integrand times weights, over h(k1) h(k2); and cos(phi) A."""
        drop, slope = drop_and_ratio(m, y, c[:, None, :])
        terms = jnp.log(0.5 * width * weights) + 0.5 * (d - 2) * jnp.log1p(-c)
        return terms + jnp.sum(drop, axis=1), slope

    # A conditional is a wall to fusion: logsumexp would compute the terms twice.
    nothing = jnp.full((*kappa.shape, NODES), jnp.nan)
    terms, slopes = lax.cond(kappa[0, 0] >= 0, integrand, lambda: (nothing[:, 0], nothing))
    constant = float(np.log(2.0) - betaln(0.5, 0.5 * (d - 1)))
    value = jnp.sum(log_h_y, axis=(1, 2)) + constant + jax.nn.logsumexp(terms, axis=1)
    return value, jnp.sum(jax.nn.softmax(terms, axis=1)[:, None, :] * slopes, axis=2)


@_with_slopes
def _three_by_three(kappa: jax.Array, d: int) -> tuple[jax.Array, jax.Array]:
    """For falling kappa. Rotations and reflections differ in the sign of k3.

    log c(k), with the exponent of the mode k1 + k2 + k3 taken out of every term.
    """
    w, rest, log_weight = (jnp.asarray(part)[None, :] for part in _tanh_sinh())
    k1, k2, k3 = (kappa[:, i, None] for i in range(3))
    y = jnp.stack([0.5 * (k1 - k2) * w, 0.5 * (k1 + k2) * rest], axis=1)

    def parts() -> tuple[jax.Array, ...]:
        # log I_0(y) = log h_2(y); the sum of the linear parts is k1 + k2 + k3 - w (k2 + k3).
        log_h_y, ratio = log_h_and_ratio(2, y)
        both = log_weight + jnp.sum(log_h_y - y, axis=1)
        terms = jnp.stack([both - w * (k2 + k3), both - w * (k2 - k3)], axis=1)
        near, far = 0.5 * w * (ratio[:, 0] - 1.0), 0.5 * rest * (ratio[:, 1] - 1.0)
        return terms, far + near, far - near - w

    nothing = jnp.full((kappa.shape[0], 2, w.shape[1]), jnp.nan)
    terms, by_first, by_second = lax.cond(  # a wall to fusion, as above
        kappa[0, 0] >= 0, parts, lambda: (nothing, nothing[:, 0], nothing[:, 0])
    )
    sign = jnp.array([[1.0, -1.0]])
    each = k1 + k2 + sign * k3 + jax.nn.logsumexp(terms, axis=2)
    share, weight = jax.nn.softmax(each, axis=1), jax.nn.softmax(terms, axis=2)
    mean = jnp.sum(share[:, :, None] * weight, axis=1)
    slopes = [
        1.0 + jnp.sum(mean * by_first, axis=1),
        1.0 + jnp.sum(mean * by_second, axis=1),
        jnp.sum(sign * share * (1.0 - jnp.sum(weight * w[:, None, :], axis=2)), axis=1),
    ]
    return jax.nn.logsumexp(each, axis=1) - 2 * np.log(2.0), jnp.stack(slopes, axis=1)


@cache
def _tanh_sinh() -> tuple[list[float], list[float], list[float]]:
    """w = 1 - u and 2 - w = 1 + u, both to full precision, and log weights for u in (-1, 1)."""
    t = np.arange(-DOUBLY_FAR, DOUBLY_FAR + DOUBLY_STEP / 2, DOUBLY_STEP)
    s = 0.5 * np.pi * np.sinh(t)
    w, rest = 2.0 / (1.0 + np.exp(2 * s)), 2.0 / (1.0 + np.exp(-2 * s))
    # du/dt = (pi/2) cosh t / cosh² s, and 1 / cosh² s = w (2 - w)
    log_weight = np.log(DOUBLY_STEP * 0.5 * np.pi * np.cosh(t) * w * rest)
    return w.tolist(), rest.tolist(), log_weight.tolist()


def log_normaliser_of(F: Float[Array, "d p"]) -> Float[Array, ""]:
    """log Z as a function of F, smooth where singular values meet."""
    return log_normalisers_of(F, jnp.zeros((0, F.shape[1])))[0]


@jax.custom_jvp
def log_normalisers_of(F: Float[Array, "d p"], kappa: Float[Array, "m p"]) -> Float[Array, " 1+m"]:
    """log Z(F), and log Z at each row of ``kappa``, all in one pass."""
    values = jnp.linalg.svd(F, compute_uv=False)
    return log_normalisers(jnp.concatenate([values[None], kappa]), F.shape[0])


@log_normalisers_of.defjvp
def _log_normalisers_of_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (F, kappa), (dF, dkappa) = primals, tangents
    U, values, Vt = jnp.linalg.svd(F, full_matrices=False)

    def value(kappa: Float[Array, "m p"]) -> tuple[jax.Array, jax.Array]:
        each = log_normalisers(kappa, F.shape[0])
        return jnp.sum(each), each

    slopes, each = jax.grad(value, has_aux=True)(jnp.concatenate([values[None], kappa]))
    first = jnp.sum((U * slopes[:1]) @ Vt * dF)
    return each, jnp.concatenate([first[None], jnp.sum(slopes[1:] * dkappa, axis=1)])
