r"""log h_m(y) = log 0F1(m/2; y²/4), the normaliser of a von Mises-Fisher distribution in R^m.

h_m(y) = E exp(y e₁ᵀx) for x uniform on the unit sphere of R^m; in terms of Bessel functions
h_m(y) = Gamma(v+1) (2/y)^v I_v(y), v = m/2 - 1. Its logarithmic derivative is the Bessel ratio
A_m(y) = I_{v+1}(y) / I_v(y), the mean of e₁ᵀx.

Both come from one formula for all y >= 0 and integers m >= 1. At a large order (v >= 15) Debye's
expansion holds uniformly in y (Abramowitz & Stegun 9.7.7): with z = y/v, s = √(1+z²), t = 1/s,

    log h_m(y) = v [(s - 1) - log((1+s)/2)] - ½ log s + sum_k [D_k(t) - D_k(1)] / v^k,

where sum_k D_k/v^k is the logarithm of A&S's sum_k U_k/v^k; the value at t = 1 is Stirling's
series for Gamma(v+1), so that log h vanishes at y = 0 term by term, to full relative precision.
Smaller orders follow downwards, in the stable direction, by

    h_m(y) = h_{m+2}(y) + y² / (m (m+2)) h_{m+4}(y),      A_m(y) = (y/m) h_{m+2}(y) / h_m(y),

all terms of which are positive. What is carried along is Q = h_m/h_M - 1, M the large order's
dimension, which keeps its digits near y = 0 and cannot overflow below y = 1e18 (in single
precision, where it would, M comes down every few steps).

Relative errors are below 1e-12 for m up to 500 and y up to 1e6 (tested against mpmath).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

#: Debye's expansion is used from this order on, with this many terms: 4e-15 at worst.
LEAST_ORDER = 15
TERMS = 12
#: Steps down the ladder that single precision can carry in one product, for y up to 1e8.
SINGLE_STEPS = 4


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_h(m: int, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log h_m(y) for y >= 0, m a Python integer; twice differentiable.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     print(f"{log_h(3, jnp.float64(2.0)):.12f}")  # log(sinh(2) / 2)
    0.595220192054
    """
    here, _, logs = _descend(m, y)
    return _debye(_ladder(m)[1], y) + logs + jnp.log1p(here)


@log_h.defjvp
def _log_h_jvp(m: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y,), (dy,) = primals, tangents
    return log_h(m, y), bessel_ratio(m, y) * dy


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def bessel_ratio(m: int, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A_m(y) = (log h_m)'(y), between 0 and 1."""
    here, above, _ = _descend(m, y)
    return y / m * (1.0 + above) / (1.0 + here)


@bessel_ratio.defjvp
def _bessel_ratio_jvp(m: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y,), (dy,) = primals, tangents
    _, slope = jax.jvp(partial(_ratio_by_steps, m), (y,), (jnp.ones_like(y),))
    return bessel_ratio(m, y), slope * dy


def log_h_drop(m: int, y: jax.Array, c: jax.Array) -> jax.Array:
    """log h_m(y √(1-c)) - log h_m(y) for 0 <= c <= 1, not as the difference of two large numbers.

    With s₁, s₂ belonging to the two arguments, s₁ - s₂ = -z² c / (s₁ + s₂).
    """
    # One y for many c stays one number: its half of the work is then done once.
    return _log_h_drop(m, jnp.asarray(y), jnp.asarray(c))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_h_drop(m: int, y: jax.Array, c: jax.Array) -> jax.Array:
    _, order = _ladder(m)
    rest = jnp.maximum(1.0 - c, 0.0)
    u = safe_root(1.0 - c)
    z2 = (y / order) ** 2
    large, small = jnp.sqrt(1.0 + z2), jnp.sqrt(1.0 + z2 * rest)
    change = -z2 * c / (large + small)
    quotient, _ = _expansion(order)
    t_large, t_small = 1.0 / large, 1.0 / small
    debye = (
        order * (change - jnp.log1p(change / (1.0 + large)))
        - 0.5 * jnp.log1p(change / large)
        + (t_small - 1.0) * _value(quotient, t_small)
        - (t_large - 1.0) * _value(quotient, t_large)
    )
    (there, _, logs_there), (here, _, logs_here) = _descend(m, y * u), _descend(m, y)
    debye = debye + (logs_there - logs_here)
    part = (there - here) / (1.0 + here)  # little left of it (c near 1) is better told apart
    apart = jnp.log1p(there) - jnp.log1p(here)
    return debye + jnp.where(part < -0.5, apart, jnp.log1p(jnp.maximum(part, -0.5)))


@_log_h_drop.defjvp
def _log_h_drop_jvp(m: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y, c), (dy, dc) = primals, tangents
    u = safe_root(1.0 - c)
    by_y = u * bessel_ratio(m, y * u) - bessel_ratio(m, y)
    # d/dc y√(1-c) = -y / (2u); A(yu)/u = y A(yu)/(yu), finite at u = 0.
    by_c = -0.5 * y * y * ratio_over_argument(m, y * u)
    return _log_h_drop(m, y, c), by_y * dy + by_c * dc


def ratio_over_argument(m: int, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A_m(y) / y = 1 / (m + y A_{m+2}(y)), which is 1/m at zero."""
    return 1.0 / (m + y * bessel_ratio(m + 2, y))


def _ladder(m: int) -> tuple[int, float]:
    """How many steps of two lead from m to a large order, and that order."""
    if m < 1:
        raise ValueError(f"h_m needs a dimension of at least 1, got {m}")
    steps = max(0, int(np.ceil(LEAST_ORDER - (m / 2 - 1))))
    return steps, m / 2 + steps - 1


def _descend(m: int, y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """h_m/h_k - 1, h_{m+2}/h_k - 1 and log(h_k/h_M) at y, M the large order's dimension.

    k is M in double precision, and no more than SINGLE_STEPS steps from m in single precision.
    """
    steps, order = _ladder(m)
    above = _debye_quotient(order, y) - 1.0  # of k + 2, k = M
    here = logs = jnp.zeros_like(y)
    y2 = y * y
    most = steps if y.dtype == jnp.float64 else SINGLE_STEPS
    for count, j in enumerate(reversed(range(steps)), start=1):
        low = m + 2 * j
        above, here = here, here + y2 * (1.0 / (low * (low + 2))) * (1.0 + above)
        if count % most == 0 and j > 0:
            logs, above = logs + jnp.log1p(here), (above - here) / (1.0 + here)
            here = jnp.zeros_like(y)
    return here, above, logs


def _ratio_by_steps(m: int, y: jax.Array) -> jax.Array:
    """A_m(y) = y / (m + y A_{m+2}(y)) from a large order down: slower, with a derivative that
    keeps its digits.
    """
    steps, order = _ladder(m)
    ratio = _debye_slope(order, y)
    for j in reversed(range(steps)):
        ratio = _lower(m + 2 * j, y, ratio)
    return ratio


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _lower(m: int, y: jax.Array, ratio: jax.Array) -> jax.Array:
    """A_m from A_{m+2}. Autodiff would subtract y A from y A in its derivative."""
    return y / (m + y * ratio)


@_lower.defjvp
def _lower_jvp(m: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y, ratio), (dy, d_ratio) = primals, tangents
    whole = m + y * ratio
    lower = y / whole
    return _lower(m, y, ratio), m / (whole * whole) * dy - lower * lower * d_ratio


def _debye(order: float, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log h at a large order."""
    z = y / order
    s = _root(z)
    t, w = 1.0 / s, z * z / (1.0 + s)  # w = s - 1
    return (
        order * (w - jnp.log1p(0.5 * w))
        - 0.5 * jnp.log1p(w)
        - w * t * _value(_expansion(order)[0], t)  # t - 1 = -w t
    )


def _debye_slope(order: float, y: jax.Array) -> jax.Array:
    """d/dy log h at a large order: with s' = z/(v s), t' = -t² s'."""
    z = y / order
    s = _root(z)
    t = 1.0 / s
    slope = _slope(z) / order
    correction = _value(_expansion(order)[1], t)
    return slope * (order * (1.0 - 1.0 / (1.0 + s)) - 0.5 * t - t * t * correction)


def _debye_quotient(order: float, y: jax.Array) -> jax.Array:
    """h_{M+2}(y) / h_M(y) = M A_M(y) / y at a large order, M = 2 v + 2; 1 at y = 0."""
    s = jnp.sqrt(1.0 + (y / order) ** 2)
    t = 1.0 / s
    correction = _value(_expansion(order)[1], t)
    inner = order * (1.0 - 1.0 / (1.0 + s)) - 0.5 * t - t * t * correction
    return (2.0 * order + 2.0) / (order * order) * t * inner


@jax.custom_jvp
def _root(z: jax.Array) -> jax.Array:
    """√(1+z²), whose second derivative 1/s³ autodiff would lose to cancellation."""
    return jnp.sqrt(1.0 + z * z)


@_root.defjvp
def _root_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    return _root(z), _slope(z) * dz


@jax.custom_jvp
def _slope(z: jax.Array) -> jax.Array:
    return z / jnp.sqrt(1.0 + z * z)


@_slope.defjvp
def _slope_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (z,), (dz,) = primals, tangents
    s = _root(z)
    return _slope(z), dz / (s * s * s)


def safe_root(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """√max(x, 0) with a finite derivative at zero."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


@cache
def _expansion(order: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coefficients in t of sum_k [D_k(t) - D_k(1)] / ((t-1) v^k) and of sum_k D_k'(t) / v^k."""
    total = [Fraction(0)] * (3 * TERMS + 1)
    for k, polynomial in enumerate(_logarithm(_debye_polynomials(TERMS))):
        for i, c in enumerate(polynomial):
            total[i] += c / Fraction(order) ** k
    # (t^i - 1) / (t - 1) = 1 + t + ... + t^(i-1)
    quotient = [float(sum(total[i + 1 :])) for i in range(3 * TERMS)]
    slope = [float(i * c) for i, c in enumerate(total)][1:]
    return tuple(quotient), tuple(slope)


def _debye_polynomials(terms: int) -> list[list[Fraction]]:
    """U_0 ... U_terms, by U_{k+1} = ½ t²(1-t²) U_k' + ⅛ ∫₀ᵗ (1-5x²) U_k dx (A&S 9.3.10)."""
    found = [[Fraction(1)]]
    for _ in range(terms):
        following = [Fraction(0)] * (len(found[-1]) + 3)
        for i, c in enumerate(found[-1]):
            following[i + 1] += c * (Fraction(i, 2) + Fraction(1, 8 * (i + 1)))
            following[i + 3] -= c * (Fraction(i, 2) + Fraction(5, 8 * (i + 3)))
        found.append(following)
    return found


def _logarithm(series: list[list[Fraction]]) -> list[list[Fraction]]:
    """D with sum_k D_k e^k = log sum_k U_k e^k: k D_k = k U_k - sum_{0<j<k} j D_j U_{k-j}."""
    found = [[Fraction(0)]]
    for k in range(1, len(series)):
        total = [k * c for c in series[k]]
        for j in range(1, k):
            for a, left in enumerate(found[j]):
                for b, right in enumerate(series[k - j]):
                    total[a + b] -= j * left * right
        found.append([c / k for c in total])
    return found


def _value(coefficients: tuple[float, ...], t: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Horner's rule."""
    total = jnp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * t + c
    return total
