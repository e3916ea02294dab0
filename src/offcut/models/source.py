"""Where proposals come from: a base distribution, perhaps seen through measurement error.

Without noise a proposal is a draw of the base. With noise it is a pair: the true value t ~ base and
the noisy value o ~ noise(t), with density base(t) noise(o | t). The filter sees o and so do we;
t is drawn for every observation along with the parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpyro.distributions as dist

from offcut.errors import ModelError
from offcut.keys import with_native_fallback
from offcut.prior import Theta
from offcut.support import in_support, log_prob

Base = Callable[..., dist.Distribution]

TRUE, NOISY = "true", "noisy"


def checked_distribution(function: Callable[..., Any], name: str, example: str) -> Base:
    """The user's function, refusing whatever is not one distribution."""
    if isinstance(function, dist.Distribution) or not callable(function):
        raise ModelError(
            f"{name} must be a function, got {type(function).__name__}; for example {example}"
        )

    def call(*arguments: Any) -> dist.Distribution:
        distribution = function(*arguments)
        if not isinstance(distribution, dist.Distribution):
            came = (
                "an array" if isinstance(distribution, jax.Array) else type(distribution).__name__
            )
            raise ModelError(
                f"{name} must return a NumPyro distribution, got {came}; for example {example}"
            )
        if distribution.batch_shape:
            raise ModelError(
                f"{name} returned a batch of distributions (batch_shape "
                f"{distribution.batch_shape}) where one is needed; if one observation is a "
                "vector, add .to_event(1)"
            )
        return distribution

    return call


@with_native_fallback
def _sample_block(key: jax.Array, distribution: dist.Distribution, size: int) -> jax.Array:
    if type(distribution) is dist.MultivariateNormal:  # one matrix product, not one for each point
        noise = jax.random.normal(key, (size, *distribution.event_shape))
        return distribution.loc[None] + noise @ distribution.scale_tril.T
    return distribution.sample(key, (size,))


@with_native_fallback
def _sample_one(key: jax.Array, distribution: dist.Distribution) -> jax.Array:
    return distribution.sample(key)


class Source:
    """Draws and densities of proposals, for one point unless it says otherwise."""

    def __init__(self, base: Base, noise: Callable[..., dist.Distribution] | None) -> None:
        self.base = checked_distribution(
            base, "base", 'base=lambda theta: numpyro.distributions.Normal(theta["loc"], 1)'
        )
        self.noise = None
        if noise is not None:
            self.noise = checked_distribution(
                noise, "noise", "noise=lambda theta, true: numpyro.distributions.Normal(true, 0.1)"
            )

    @property
    def latent(self) -> tuple[str, ...]:
        """Parts of a proposal that are never observed."""
        return () if self.noise is None else (TRUE,)

    def recorded(self, point: Any) -> Any:
        """What of a proposal the filter sees."""
        return point if self.noise is None else point[NOISY]

    def true(self, point: Any) -> Any:
        """What of a proposal the base has drawn."""
        return point if self.noise is None else point[TRUE]

    def sample(self, key: jax.Array, theta: Theta, *covariate: Any) -> Any:
        """One proposal."""
        if self.noise is None:
            return _sample_one(key, self.base(theta, *covariate))
        key_true, key_noise = jax.random.split(key)
        true = _sample_one(key_true, self.base(theta, *covariate))
        return {NOISY: _sample_one(key_noise, self.noise(theta, true, *covariate)), TRUE: true}

    def sample_block(self, key: jax.Array, theta: Theta, size: int) -> Any:
        """``size`` proposals at one theta; the base as one batch."""
        if self.noise is None:
            return _sample_block(key, self.base(theta), size)
        key_true, key_noise = jax.random.split(key)
        true = _sample_block(key_true, self.base(theta), size)
        noise = self.noise

        def measure(key: jax.Array, true: Any) -> jax.Array:
            return _sample_one(key, noise(theta, true))

        return {NOISY: jax.vmap(measure)(jax.random.split(key_noise, size), true), TRUE: true}

    def log_prob(self, theta: Theta, point: Any, *covariate: Any) -> jax.Array:
        """log q, -inf outside of the support that base and noise have at theta."""
        if self.noise is None:
            return log_prob(self.base(theta, *covariate), point)
        true = point[TRUE]
        log_true = log_prob(self.base(theta, *covariate), true)
        return log_true + log_prob(self.noise(theta, true, *covariate), point[NOISY])

    def in_support(self, theta: Theta, point: Any, *covariate: Any) -> jax.Array:
        """Whether a proposal can be this at all."""
        true = self.true(point)
        possible = in_support(self.base(theta, *covariate), true)
        if self.noise is not None:
            possible &= in_support(self.noise(theta, true, *covariate), point[NOISY])
        return possible
