r"""What the two processes have of their own.

Density: n points from g ∝ g0 sigma(f). Proposals stop at the n-th acceptance, so that with
Z = ∫ g0 sigma(f) the likelihood is prod g0(x_i) sigma(f(x_i)) / Z^n.

Intensity: a Poisson process on a window T with intensity lambda sigma(f(x)) (Adams, Murray & MacKay
2009). Proposals are a Poisson process of rate lambda, none is made to stop at n, and the likelihood
is lambda^n prod sigma(f(x_i)) exp(-lambda |T| Z), g0 being uniform on T. Given Y

    lambda | X, Y ~ Gamma(a + n + |Y|, b + |T|).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from offcut.gp.quadrature import log_fits_density, log_fits_intensity
from offcut.numerics.keys import with_native_fallback

_poisson = with_native_fallback(
    lambda key, mean: jax.random.poisson(key, mean, dtype=jnp.int64).astype(jnp.int32)
)
#: More proposals than this are not made in one sweep.
MOST_PROPOSED = 2.0e9


class DensityProcess:
    """A sample of n points."""

    name = "density"
    rated = False

    def number_of_proposals(self, key: jax.Array, log_rate: jax.Array, data: Any) -> None:
        """Not known beforehand."""
        return

    def log_likelihood(
        self,
        n: int,
        total: jax.Array,
        Z: jax.Array,
        log_rate: jax.Array,
        data: Any,
        budget: jax.Array,
    ) -> jax.Array:
        """Given sum_i log g0(x_i) sigma(f(x_i)), with Y summed out up to the budget."""
        return total - n * jnp.log(Z) + log_fits_density(n, Z, budget)

    def log_rate_prior(self, log_rate: jax.Array, data: Any) -> jax.Array:
        """There is no rate."""
        return jnp.zeros(())

    def update_rate(
        self, key: jax.Array, log_rate: jax.Array, proposed: jax.Array, data: Any
    ) -> jax.Array:
        """There is no rate."""
        return log_rate

    def record(self, log_rate: jax.Array) -> dict[str, jax.Array]:
        """Nothing of its own."""
        return {}


class IntensityProcess:
    """A Poisson process on a window; the upper rate has a Gamma(a, b) prior, ``data.rate``."""

    name = "intensity"
    rated = True

    def number_of_proposals(self, key: jax.Array, log_rate: jax.Array, data: Any) -> jax.Array:
        """J ~ Poisson(lambda |T|), less those that are known: none."""
        mean = jnp.minimum(jnp.exp(log_rate) * data.volume, MOST_PROPOSED)
        return _poisson(key, mean)

    def log_likelihood(
        self,
        n: int,
        total: jax.Array,
        Z: jax.Array,
        log_rate: jax.Array,
        data: Any,
        budget: jax.Array,
    ) -> jax.Array:
        """Given sum_i log g0(x_i) sigma(f(x_i)), with Y summed out up to the budget."""
        mean = jnp.exp(log_rate) * data.volume
        fits = log_fits_intensity(mean * (1 - Z), budget)
        return total + n * log_rate - mean * Z + fits

    def log_rate_prior(self, log_rate: jax.Array, data: Any) -> jax.Array:
        """log density of log lambda."""
        a, b = data.rate
        return a * (jnp.log(b) + log_rate) - b * jnp.exp(log_rate) - gammaln(a)

    def update_rate(
        self, key: jax.Array, log_rate: jax.Array, proposed: jax.Array, data: Any
    ) -> jax.Array:
        """lambda given how many points were proposed in all, n + |Y|."""
        a, b = data.rate
        return jax.random.loggamma(key, a + proposed) - jnp.log(b + data.volume)

    def record(self, log_rate: jax.Array) -> dict[str, jax.Array]:
        """The upper rate."""
        return {"rate": jnp.exp(log_rate)}
