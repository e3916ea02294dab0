r"""log Z(kappa) of the matrix Langevin distribution, exactly, for frames of one or two columns.

Z(kappa) = ∫ etr(kappa Gᵀ X) dX over the uniform distribution on V_{p,d}; it depends on the singular
values kappa alone. For p = 1 it is h_d(kappa). For p = 2, with the second column's projection on
the first mean direction written as sin phi,

    Z = 2 / B(1/2, (d-1)/2) ∫_0^{pi/2} cos(phi)^(d-2) h_{d-1}(k1 cos phi) h_{d-1}(k2 cos phi) dphi,

whose integrand falls to nothing beyond 10/√c, c = k1 A(k1) + k2 A(k2) + d - 2, where that is less
than pi/2: 96 Gauss-Legendre nodes reach rounding for d up to 50 and kappa up to 1e6.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import betaln

from offcut.langevin.hypergeometric import bessel_ratio, log_h, log_h_drop

#: Nodes on the range of the integral.
NODES = 96
#: Where the integrand is cut off, in units of its width.
WIDTHS = 10.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)


def is_exact(p: int) -> bool:
    """Whether log Z is known for frames of p columns."""
    return p <= 2


def log_normaliser(kappa: jax.Array, d: int) -> jax.Array:
    """log Z at singular values ``kappa``, (p,), in any order; differentiable twice.

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
    raise NotImplementedError(f"log Z is known for frames of one or two columns, not of {p}")


def mean_singular_values(kappa: jax.Array, d: int) -> jax.Array:
    """Gradient of log Z: E X = G diag(this) Hᵀ."""
    return jax.grad(log_normaliser)(kappa, d)


def _two_columns(first: jax.Array, second: jax.Array, d: int) -> jax.Array:
    m = d - 1
    # Where the nodes lie is not differentiated: the integral does not depend on it.
    k1, k2 = lax.stop_gradient((first, second))
    curvature = k1 * bessel_ratio(m, k1) + k2 * bessel_ratio(m, k2) + d - 2
    width = jnp.minimum(0.5 * np.pi, WIDTHS / jnp.sqrt(jnp.maximum(curvature, 1e-12)))
    phi = 0.5 * width * (jnp.asarray(_NODES) + 1.0)
    sine = jnp.sin(phi) ** 2
    terms = (
        jnp.log(0.5 * width * jnp.asarray(_WEIGHTS))
        + 0.5 * (d - 2) * jnp.log1p(-sine)
        + log_h_drop(m, first, sine)
        + log_h_drop(m, second, sine)
    )
    log_integral = jax.nn.logsumexp(terms)
    constant = np.log(2.0) - betaln(0.5, 0.5 * (d - 1))
    return log_h(m, first) + log_h(m, second) + constant + log_integral
