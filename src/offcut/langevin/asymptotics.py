r"""Khatri & Mardia's (1977) approximation of Z for large concentrations.

    log Z ≈ sum_i k_i - ½ sum_{i<j} log(k_i + k_j) - ½ (d-p) sum_i log k_i + constant.

It is the Laplace approximation at the mode; its error falls like 1/kappa, and it is off by any
amount at small kappa. The paper's approximate sampler (section 5.5) uses it, and so do
maximum-likelihood estimates where the exact Z is out of reach. Results say where it was used.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln


def approximate_log_normaliser(kappa: jax.Array, d: int) -> jax.Array:
    """log Z at large concentrations ``kappa`` (p,)."""
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
