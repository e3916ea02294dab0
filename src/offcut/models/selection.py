"""Selection: a draw from the base is recorded with a probability, which theta may govern."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from offcut.errors import ModelError
from offcut.models.rejection import Point, Proposed, RejectionModel
from offcut.models.source import Base, Source
from offcut.prior import Theta


class Selected(RejectionModel):
    """The model that ``offcut.selected`` makes; the base is sampled as a batch."""

    def __init__(
        self,
        prior: Any,
        base: Base,
        log_accept: Callable[..., jax.Array],
        *,
        log_reject: Callable[..., jax.Array] | None = None,
        noise: Callable[..., dist.Distribution] | None = None,
        **options: Any,
    ) -> None:
        self.source = Source(base, noise)
        self.base = self.source.base
        super().__init__(
            prior,
            propose=self.source.sample,
            log_proposal=self.source.log_prob,
            log_accept=self._of_recorded("log_accept", log_accept),
            log_reject=None if log_reject is None else self._of_recorded("log_reject", log_reject),
            latent=self.source.latent,
            **options,
        )

    def _of_recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The user's function of a noisy value, as one of a whole proposal."""
        if not callable(function):
            raise ModelError(f"{name} must be a function, got {type(function).__name__}")
        if self.source.noise is None:
            return function
        return lambda theta, y, *c: function(theta, self.source.recorded(y), *c)

    def propose_block(self, key: jax.Array, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch."""
        key_point, key_accept = jax.random.split(key)
        points = self.source.sample_block(key_point, theta, size)
        log_accept = jax.vmap(self.log_accept, (None, 0))(theta, points)
        uniform = jax.random.uniform(key_accept, (size,))
        return Proposed(points, uniform < jnp.exp(log_accept), log_accept)

    def recorded(self, point: Point) -> Point:
        """The noisy value where there is measurement error."""
        return self.source.recorded(point)

    def possible(self, theta: Theta, point: Point, *covariate: Any) -> jax.Array:
        """Whether base and noise can have drawn the point."""
        return self.source.in_support(theta, point, *covariate)


def selected(
    prior: Mapping[str, dist.Distribution] | Callable[[], Any],
    base: Base,
    log_accept: Callable[..., jax.Array],
    *,
    log_reject: Callable[..., jax.Array] | None = None,
    censored: Any = None,
    noise: Callable[..., dist.Distribution] | None = None,
    exact_updates: Any = None,
) -> RejectionModel:
    """Any distribution, each draw recorded with probability ``exp(log_accept(theta, y))``.

    Parameters
    ----------
    prior, base, censored, noise, exact_updates
        As in ``truncated``. With noise the probability is one of the noisy value.
    log_accept : callable ``(theta, y[, covariate]) -> scalar``
        Log probability of being recorded; may depend on theta.
    log_reject : callable, optional
        Log probability of being missed, where it is known better than 1 - exp(log_accept).

    Examples
    --------
    A survey that sees bright objects more easily; the slope is inferred too:

    >>> import jax, numpyro.distributions as dist, offcut
    >>> model = offcut.selected(
    ...     prior={"loc": dist.Normal(0, 1), "slope": dist.HalfNormal(2)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     log_accept=lambda theta, y: jax.nn.log_sigmoid(theta["slope"] * y),
    ...     log_reject=lambda theta, y: jax.nn.log_sigmoid(-theta["slope"] * y),
    ... )
    """
    return Selected(
        prior,
        base,
        log_accept,
        log_reject=log_reject,
        censored=censored,
        noise=noise,
        exact_updates=exact_updates,
    )
