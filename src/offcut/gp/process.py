r"""What the two processes have of their own.

Density: n points from g ∝ g0 sigma(f). Proposals stop at the n-th acceptance, so that with
Z = ∫ g0 sigma(f) the likelihood is prod g0(x_i) sigma(f(x_i)) / Z^n.

Intensity: a Poisson process on a window T with intensity lambda sigma(f(x)) (Adams, Murray & MacKay
2009). Proposals are a Poisson process of rate lambda, none is made to stop at n, and the likelihood
is lambda^n prod sigma(f(x_i)) exp(-lambda |T| Z), g0 being uniform on T. Given Y

    lambda | X, Y ~ Gamma(a + n + |Y|, b + |T|).

With Z known, Y can be summed out: the number of rejections is negative binomial (density) or
Poisson (intensity), and what a budget B excludes is

    P(|Y| <= B) = I_Z(n, B + 1)   or   Q(B + 1, lambda |T| (1 - Z)).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betainc, gammaincc

from offcut.gp import types as t
from offcut.gp.data import GPData
from offcut.numerics.keys import with_native_fallback
from offcut.numerics.types import KeyArray

_poisson = with_native_fallback(
    lambda key, mean: jax.random.poisson(key, mean, dtype=jnp.int64).astype(jnp.int32)
)
#: More proposals than this are not made in one sweep.
MOST_PROPOSED = 2.0e9
#: So many standard deviations from the mean of |Y| the budget excludes nothing, to rounding.
FAR = 45.0


class DensityProcess:
    """A sample of n points. There is no rate."""

    name = "density"
    rated = False

    def number_of_proposals(
        self, key: KeyArray, log_rate: t.Number, data: GPData
    ) -> t.Count | None:
        """How many there are in all; None where that is not known beforehand."""
        return None

    def log_likelihood(
        self, total: t.Number, Z: t.Number, log_rate: t.Number, data: GPData, budget: t.Count
    ) -> t.Number:
        """Given sum_i log g0(x_i) sigma(f(x_i)), with Y summed out up to the budget."""
        n = data.n.astype(float)
        mean = n * (1 - Z) / Z
        far = mean + FAR * jnp.sqrt(n * (1 - Z) + 1.0) / Z
        safe = jnp.clip(Z, 1e-12, 1 - 1e-12)
        fits = _log_fits(far, budget, lambda B: jnp.log(betainc(n, B + 1.0, safe)))
        return total - n * jnp.log(Z) + fits

    def log_rate_prior(self, log_rate: t.Number, data: GPData) -> t.Number:
        """log density of log lambda, up to a constant."""
        return jnp.zeros(())

    def update_rate(
        self, key: KeyArray, log_rate: t.Number, proposed: t.Count, data: GPData
    ) -> t.Number:
        """lambda given how many points were proposed in all, n + |Y|."""
        return log_rate

    def record(self, log_rate: t.Number) -> dict[str, t.Number]:
        return {}


class IntensityProcess(DensityProcess):
    """A Poisson process on a window; the upper rate has a Gamma(a, b) prior, ``data.rate``."""

    name = "intensity"
    rated = True

    def number_of_proposals(self, key: KeyArray, log_rate: t.Number, data: GPData) -> t.Count:
        """J ~ Poisson(lambda |T|)."""
        mean = jnp.minimum(jnp.exp(log_rate) * data.volume, MOST_PROPOSED)
        return _poisson(key, mean)

    def log_likelihood(
        self, total: t.Number, Z: t.Number, log_rate: t.Number, data: GPData, budget: t.Count
    ) -> t.Number:
        mean = jnp.exp(log_rate) * data.volume
        thinned = mean * (1 - Z)
        far = thinned + FAR * jnp.sqrt(thinned + 1.0)
        safe = jnp.maximum(thinned, 1e-300)
        fits = _log_fits(far, budget, lambda B: jnp.log(gammaincc(B + 1.0, safe)))
        return total + data.n * log_rate - mean * Z + fits

    def log_rate_prior(self, log_rate: t.Number, data: GPData) -> t.Number:
        a, b = data.rate
        return a * log_rate - b * jnp.exp(log_rate)

    def update_rate(
        self, key: KeyArray, log_rate: t.Number, proposed: t.Count, data: GPData
    ) -> t.Number:
        a, b = data.rate
        return jax.random.loggamma(key, a + proposed) - jnp.log(b + data.volume)

    def record(self, log_rate: t.Number) -> dict[str, t.Number]:
        return {"rate": jnp.exp(log_rate)}


PROCESSES = {one.name: one for one in (DensityProcess(), IntensityProcess())}


def _log_fits(
    far: t.Number, budget: t.Count, log_probability: Callable[[t.Number], t.Number]
) -> t.Number:
    """log P(|Y| <= B); 0 where the budget is beyond ``far``."""
    B = budget.astype(float)
    return lax.cond(far < B, lambda: jnp.zeros(()), lambda: log_probability(B))
