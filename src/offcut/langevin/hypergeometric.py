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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

#: Debye's expansion is used from this order on, with this many terms: 4e-15 at worst.
LEAST_ORDER = 15
TERMS = 12
#: Steps down the ladder that single precision can carry in one product, for y up to 1e8.
SINGLE_STEPS = 4


#: m, or one for each entry along the first axis of y: one pass for columns of different dimensions.
Dimension = int | tuple[int, ...]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_h(m: Dimension, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log h_m(y) for y >= 0, m a Python integer or a tuple of them; twice differentiable.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     print(f"{log_h(3, jnp.float64(2.0)):.12f}")  # log(sinh(2) / 2)
    0.595220192054
    """
    return evaluated(m, y).log_h


@log_h.defjvp
def _log_h_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y,), (dy,) = primals, tangents
    value, ratio = log_h_and_ratio(m, y)
    return value, ratio * dy


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_h_and_ratio(m: Dimension, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log h_m(y) and A_m(y) from one pass; once differentiable."""
    at = evaluated(m, y)
    return at.log_h, at.ratio


@log_h_and_ratio.defjvp
def _log_h_and_ratio_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    (y,), (dy,) = primals, tangents
    value, ratio = log_h_and_ratio(m, y)
    return (value, ratio), (ratio * dy, _ratio_slope(m, y) * dy)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def bessel_ratio(m: Dimension, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A_m(y) = (log h_m)'(y), between 0 and 1."""
    return evaluated(m, y).ratio


@bessel_ratio.defjvp
def _bessel_ratio_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y,), (dy,) = primals, tangents
    return bessel_ratio(m, y), _ratio_slope(m, y) * dy


def _ratio_slope(m: Dimension, y: jax.Array) -> jax.Array:
    """A_m'(y)."""
    return jax.jvp(partial(_ratio_by_steps, m), (y,), (jnp.ones_like(y),))[1]


def log_h_drop(m: Dimension, y: jax.Array, c: jax.Array) -> jax.Array:
    """log h_m(y √(1-c)) - log h_m(y) for 0 <= c <= 1, not as the difference of two large numbers.

    With s₁, s₂ belonging to the two arguments, s₁ - s₂ = -z² c / (s₁ + s₂).
    """
    # One y for many c stays one number: its half of the work is then done once.
    return _log_h_drop(m, jnp.asarray(y), jnp.asarray(c))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_h_drop(m: Dimension, y: jax.Array, c: jax.Array) -> jax.Array:
    return dropped(m, evaluated(m, y), c)[0]


@_log_h_drop.defjvp
def _log_h_drop_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y, c), (dy, dc) = primals, tangents
    u = safe_root(1.0 - c)
    by_y = u * bessel_ratio(m, y * u) - bessel_ratio(m, y)
    # d/dc y√(1-c) = -y / (2u); A(yu)/u = y A(yu)/(yu), finite at u = 0.
    by_c = -0.5 * y * y * ratio_over_argument(m, y * u)
    return _log_h_drop(m, y, c), by_y * dy + by_c * dc


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def drop_and_ratio(m: Dimension, y: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``log_h_drop``, and u A_m(y u) with u = √(1-c): its derivative in y, but for A_m(y).

    Once differentiable in y, and taken for constant in c.
    """
    return dropped(m, evaluated(m, y), c)


@drop_and_ratio.defjvp
def _drop_and_ratio_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    (y, c), (dy, _) = primals, tangents
    u = safe_root(1.0 - c)
    value, ratio = drop_and_ratio(m, y, c)
    change = (ratio - bessel_ratio(m, y)) * dy
    return (value, ratio), (change, u * u * _ratio_slope(m, y * u) * dy)


def ratio_over_argument(m: Dimension, y: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A_m(y) / y = 1 / (m + y A_{m+2}(y)), which is 1/m at zero."""
    above = m + 2 if isinstance(m, int) else tuple(k + 2 for k in m)
    return 1.0 / (_constant(m, y) + y * bessel_ratio(above, y))


class Evaluated(NamedTuple):
    """All that is made of h_m at y, computed once; it has no derivative of its own.

    y : the argument. z2, s : (y/v)² and √(1+z²), v the large order. correction : Debye's series,
    which is 0 at y = 0. ratio : A_m(y). here, logs : h_m/h_k - 1 and log(h_k/h_M) (``_descend``).
    log_h : log h_m(y).
    """

    y: jax.Array
    z2: jax.Array
    s: jax.Array
    correction: jax.Array
    ratio: jax.Array
    here: jax.Array
    logs: jax.Array
    log_h: jax.Array


def evaluated(m: Dimension, y: Float[Array, "*shape"]) -> Evaluated:
    """log h_m and A_m at y from one pass down the ladder."""
    z = y / _constant(_ladder(m)[1], y)
    return _at(m, y, z * z)


@partial(jax.jit, static_argnums=0)  # long, and called at many places: traced once for a shape
def _at(m: Dimension, y: jax.Array, z2: jax.Array) -> Evaluated:
    order = _constant(_ladder(m)[1], y)
    s = jnp.sqrt(1.0 + z2)
    t, w = 1.0 / s, z2 / (1.0 + s)  # w = s - 1
    correction = -w * t * _value(_series(m, y, 0), t)  # t - 1 = -w t
    # A conditional is a wall to fusion: each of what follows would go down the ladder by itself.
    here, above, logs = lax.cond(
        ~(y.ravel()[0] < 0),
        lambda: jnp.stack(_descend(m, y, s, t)),
        lambda: jnp.zeros((3, *y.shape), y.dtype),
    )
    debye = order * (w - jnp.log1p(0.5 * w)) - 0.5 * jnp.log1p(w) + correction
    ratio = y / _constant(m, y) * (1.0 + above) / (1.0 + here)
    return Evaluated(y, z2, s, correction, ratio, here, logs, debye + logs + jnp.log1p(here))


def dropped(m: Dimension, large: Evaluated, c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``drop_and_ratio`` from what is known at the larger argument."""
    rest = jnp.maximum(1.0 - c, 0.0)
    u = safe_root(1.0 - c)
    small = _at(m, large.y * u, large.z2 * rest)
    change = -large.z2 * c / (large.s + small.s)
    debye = (
        _constant(_ladder(m)[1], change) * (change - jnp.log1p(change / (1.0 + large.s)))
        - 0.5 * jnp.log1p(change / large.s)
        + (small.correction - large.correction)
        + (small.logs - large.logs)
    )
    part = (small.here - large.here) / (1.0 + large.here)
    # Little left of it (c near 1) is better told apart.
    apart = jnp.log1p(small.here) - jnp.log1p(large.here)
    value = debye + jnp.where(part < -0.5, apart, jnp.log1p(jnp.maximum(part, -0.5)))
    return value, u * small.ratio


def _constant(value: float | tuple[float, ...], like: jax.Array) -> Any:
    """A number, or one for each entry along the first axis of ``like``."""
    if isinstance(value, int | float):
        return value
    return np.array(value, like.dtype).reshape(-1, *[1] * (like.ndim - 1))


@cache
def _ladder(m: Dimension) -> tuple[int, float | tuple[float, ...]]:
    """How many steps of two lead from m to a large order, and that order; as many for all m."""
    smallest = m if isinstance(m, int) else min(m)
    if smallest < 1:
        raise ValueError(f"h_m needs a dimension of at least 1, got {smallest}")
    steps = max(0, int(np.ceil(LEAST_ORDER - (smallest / 2 - 1))))
    if isinstance(m, int):
        return steps, m / 2 + steps - 1
    return steps, tuple(k / 2 + steps - 1 for k in m)


def _descend(
    m: Dimension, y: jax.Array, s: jax.Array, t: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """h_m/h_k - 1, h_{m+2}/h_k - 1 and log(h_k/h_M) at y, M the large order's dimension.

    k is M in double precision, and no more than SINGLE_STEPS steps from m in single precision.
    """
    steps, _ = _ladder(m)
    lowest = _constant(m, y)
    above = _debye_quotient(m, y, s, t) - 1.0  # of k + 2, k = M
    here = logs = jnp.zeros_like(y)
    y2 = y * y
    most = steps if y.dtype == jnp.float64 else SINGLE_STEPS
    for count, j in enumerate(reversed(range(steps)), start=1):
        low = lowest + 2 * j
        above, here = here, here + y2 * (1.0 / (low * (low + 2))) * (1.0 + above)
        if count % most == 0 and j > 0:
            logs, above = logs + jnp.log1p(here), (above - here) / (1.0 + here)
            here = jnp.zeros_like(y)
    return here, above, logs


def _ratio_by_steps(m: Dimension, y: jax.Array) -> jax.Array:
    """A_m(y) = y / (m + y A_{m+2}(y)) from a large order down: slower, with a derivative that
    keeps its digits.
    """
    steps, _ = _ladder(m)
    ratio = _debye_slope(m, y)
    for j in reversed(range(steps)):
        ratio = _lower(m + 2 * j if isinstance(m, int) else tuple(k + 2 * j for k in m), y, ratio)
    return ratio


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _lower(m: Dimension, y: jax.Array, ratio: jax.Array) -> jax.Array:
    """A_m from A_{m+2}. Autodiff would subtract y A from y A in its derivative."""
    return y / (_constant(m, y) + y * ratio)


@_lower.defjvp
def _lower_jvp(m: Dimension, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (y, ratio), (dy, d_ratio) = primals, tangents
    dimension = _constant(m, y)
    whole = dimension + y * ratio
    lower = y / whole
    return _lower(m, y, ratio), dimension / (whole * whole) * dy - lower * lower * d_ratio


def _debye_slope(m: Dimension, y: jax.Array) -> jax.Array:
    """d/dy log h at a large order: with s' = z/(v s), t' = -t² s'."""
    order = _constant(_ladder(m)[1], y)
    z = y / order
    s = _root(z)
    t = 1.0 / s
    slope = _slope(z) / order
    correction = _value(_series(m, y, 1), t)
    return slope * (order * (1.0 - 1.0 / (1.0 + s)) - 0.5 * t - t * t * correction)


def _debye_quotient(m: Dimension, y: jax.Array, s: jax.Array, t: jax.Array) -> jax.Array:
    """h_{M+2}(y) / h_M(y) = M A_M(y) / y at a large order, M = 2 v + 2; 1 at y = 0."""
    order = _constant(_ladder(m)[1], y)
    inner = order * (1.0 - 1.0 / (1.0 + s)) - 0.5 * t - t * t * _value(_series(m, y, 1), t)
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
    for k, polynomial in enumerate(_logarithms(TERMS)):
        for i in range(k, 3 * k + 1, 2):
            total[i] += polynomial[i] / Fraction(order) ** k
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


@cache
def _logarithms(terms: int) -> list[list[Fraction]]:
    """D with sum_k D_k e^k = log sum_k U_k e^k: k D_k = k U_k - sum_{0<j<k} j D_j U_{k-j}.

    U_k and D_k have powers k, k + 2, ..., 3k of t alone.
    """
    series = _debye_polynomials(terms)
    found = [[Fraction(0)]]
    for k in range(1, len(series)):
        total = [k * c for c in series[k]]
        for j in range(1, k):
            for a in range(j, 3 * j + 1, 2):
                left = j * found[j][a]
                for b in range(k - j, 3 * (k - j) + 1, 2):
                    total[a + b] -= left * series[k - j][b]
        found.append([c / k for c in total])
    return found


def _series(m: Dimension, like: jax.Array, part: int) -> list[Any]:
    """Coefficients of the quotient (0) or the slope (1) of Debye's expansion."""
    order = _ladder(m)[1]
    if isinstance(order, float):
        return list(_expansion(order)[part])
    together = zip(*(_expansion(v)[part] for v in order), strict=True)
    return [_constant(coefficients, like) for coefficients in together]


def _value(coefficients: list[Any], t: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Horner's rule."""
    total = jnp.zeros_like(t) + coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * t + c
    return total
