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

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.special import betaln, gammaln

from offcut.langevin.hypergeometric import bessel_ratio, log_h, log_h_drop, safe_root


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
    p = kappa.shape[0]
    if p == 1:
        return log_h(d, kappa[0])
    if p == 2:
        return _two_columns(kappa[0], kappa[1], d)
    if p == d == 3:
        return _three_by_three(kappa)
    raise NotImplementedError(f"log Z is known for p <= 2 and for 3 by 3, not for {d} by {p}")


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _two_columns(first: jax.Array, second: jax.Array, d: int) -> jax.Array:
    # A conditional is a wall to fusion: logsumexp would compute the terms twice.
    terms = lax.cond(
        first >= 0, lambda: _terms(first, second, d)[0], lambda: jnp.full(NODES, jnp.nan)
    )
    whole = log_h(d - 1, first) + log_h(d - 1, second) + _constant(d)
    return whole + jax.nn.logsumexp(terms)


def _constant(d: int) -> float:
    return float(np.log(2.0) - betaln(0.5, 0.5 * (d - 1)))


@_two_columns.defjvp
def _two_columns_jvp(d: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """d log Z / d k_i is the mean of cos(phi) A(k_i cos phi) under the integrand."""

    first, second = primals

    def parts() -> tuple[jax.Array, ...]:
        terms, c = _terms(first, second, d)
        cosine = safe_root(1.0 - c)
        return terms, *(cosine * bessel_ratio(d - 1, k * cosine) for k in primals)

    terms, *slopes = lax.cond(first >= 0, parts, lambda: (jnp.full(NODES, jnp.nan),) * 3)
    weights = jax.nn.softmax(terms)
    change = sum(jnp.sum(weights * slope) * dk for slope, dk in zip(slopes, tangents, strict=True))
    value = log_h(d - 1, first) + log_h(d - 1, second) + _constant(d)
    return value + jax.nn.logsumexp(terms), change


def _terms(
    first: Float[Array, ""], second: Float[Array, ""], d: int
) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
    """Logarithms of the integrand times weights, over h_{d-1}(k1) h_{d-1}(k2); and sin² phi."""
    m = d - 1
    # Where the nodes lie is not differentiated: the integral does not depend on it.
    k1, k2 = lax.stop_gradient((first, second))
    curvature = k1 * bessel_ratio(m, k1) + k2 * bessel_ratio(m, k2) + d - 2
    width = jnp.minimum(0.5 * np.pi, WIDTHS / jnp.sqrt(jnp.maximum(curvature, 1e-12)))
    phi = 0.5 * width * (jnp.asarray(_NODES) + 1.0)
    c = jnp.sin(phi) ** 2
    terms = (
        jnp.log(0.5 * width * jnp.asarray(_WEIGHTS))
        + 0.5 * (d - 2) * jnp.log1p(-c)
        + log_h_drop(m, first, c)
        + log_h_drop(m, second, c)
    )
    return terms, c


def _three_by_three(kappa: Float[Array, 3]) -> Float[Array, ""]:
    k = jnp.sort(kappa)[::-1]
    rotations = _rotations(k[0], k[1], k[2])
    reflections = _rotations(k[0], k[1], -k[2])
    return jnp.logaddexp(rotations, reflections) - np.log(2.0)


def _rotations(
    k1: Float[Array, ""], k2: Float[Array, ""], k3: Float[Array, ""]
) -> Float[Array, ""]:
    """log c(k), with the exponent of the mode k1 + k2 + k3 taken out of every term."""
    w, rest, log_weight = (jnp.asarray(part) for part in _tanh_sinh())
    near, far = 0.5 * (k1 - k2) * w, 0.5 * (k1 + k2) * rest
    # log I_0(y) = log h_2(y); the sum of the linear parts is k1 + k2 + k3 - w (k2 + k3).
    terms = log_weight + (log_h(2, near) - near) + (log_h(2, far) - far) - w * (k2 + k3)
    return k1 + k2 + k3 + jax.nn.logsumexp(terms) - np.log(2.0)


@cache
def _tanh_sinh() -> tuple[list[float], list[float], list[float]]:
    """w = 1 - u and 2 - w = 1 + u, both to full precision, and log weights for u in (-1, 1)."""
    t = np.arange(-DOUBLY_FAR, DOUBLY_FAR + DOUBLY_STEP / 2, DOUBLY_STEP)
    s = 0.5 * np.pi * np.sinh(t)
    w, rest = 2.0 / (1.0 + np.exp(2 * s)), 2.0 / (1.0 + np.exp(-2 * s))
    # du/dt = (pi/2) cosh t / cosh² s, and 1 / cosh² s = w (2 - w)
    log_weight = np.log(DOUBLY_STEP * 0.5 * np.pi * np.cosh(t) * w * rest)
    return w.tolist(), rest.tolist(), log_weight.tolist()


@jax.custom_jvp
def log_normaliser_of(F: Float[Array, "d p"]) -> Float[Array, ""]:
    """log Z as a function of F, smooth where singular values meet."""
    return log_normaliser(jnp.linalg.svd(F, compute_uv=False), F.shape[0])


@log_normaliser_of.defjvp
def _log_normaliser_of_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (F,), (dF,) = primals, tangents
    U, kappa, Vt = jnp.linalg.svd(F, full_matrices=False)
    value, slope = jax.value_and_grad(log_normaliser)(kappa, F.shape[0])
    return value, jnp.sum((U * slope[None, :]) @ Vt * dF)
