"""Truncation: a proposal from the base distribution is kept if and only if it lies inside.

The acceptance probability is 0 or 1, so no uniforms are drawn, log a and log(1 - a) drop out of
the joint density, and the base is sampled as a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from offcut.errors import ModelError
from offcut.keys import with_native_fallback
from offcut.models.rejection import Point, Proposed, RejectionModel
from offcut.prior import Theta

Base = Callable[..., dist.Distribution]


def checked_base(base: Base) -> Base:
    """The user's base, refusing batches of distributions where one is meant."""
    if isinstance(base, dist.Distribution) or not callable(base):
        raise ModelError(
            f"base must be a function of theta, got {type(base).__name__}; for example "
            'base=lambda theta: numpyro.distributions.Normal(theta["loc"], 1)'
        )

    def call(theta: Theta, *covariate: Any) -> dist.Distribution:
        distribution = base(theta, *covariate)
        if not isinstance(distribution, dist.Distribution):
            came = (
                "an array" if isinstance(distribution, jax.Array) else type(distribution).__name__
            )
            raise ModelError(
                f"base must return a NumPyro distribution, got {came}; for example "
                'base=lambda theta: numpyro.distributions.Normal(theta["loc"], 1)'
            )
        if distribution.batch_shape:
            raise ModelError(
                f"base returned a batch of distributions (batch_shape "
                f"{distribution.batch_shape}) where one is needed; if one observation is a "
                "vector, add .to_event(1)"
            )
        return distribution

    return call


@with_native_fallback
def sample_base(key: jax.Array, distribution: dist.Distribution, size: int) -> Point:
    """``size`` draws from the base as one batch."""
    return distribution.sample(key, (size,))


class Truncated(RejectionModel):
    """The model that ``offcut.truncated`` makes."""

    window_is_fixed = True

    def __init__(
        self, prior: Any, base: Base, inside: Callable[..., jax.Array], **options: Any
    ) -> None:
        if not callable(inside):
            raise ModelError(f"inside must be a function of one point, got {type(inside).__name__}")
        self.base = checked_base(base)
        self.inside = inside
        super().__init__(
            prior,
            propose=lambda key, theta, *c: self.base(theta, *c).sample(key),
            log_proposal=lambda theta, y, *c: self.base(theta, *c).log_prob(y),
            log_accept=lambda theta, y, *c: jnp.where(self.is_inside(y, *c), 0.0, -jnp.inf),
            **options,
        )

    def propose_block(self, key: jax.Array, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch, no uniforms."""
        points = sample_base(key, self.base(theta), size)
        return Proposed(points, jax.vmap(self.is_inside)(points), None)

    def propose_one(self, key: jax.Array, theta: Theta, *covariate: Any) -> Proposed:
        """One base draw, no uniform."""
        point = self.propose(key, theta, *covariate)
        return Proposed(point, self.is_inside(point, *covariate), None)

    def is_inside(self, point: Point, *covariate: Any) -> jax.Array:
        """The user's predicate, which may return numbers."""
        return jnp.asarray(self.inside(point, *covariate)).astype(bool)

    def log_observed(self, theta: Theta, x: Point, *covariate: Any) -> jax.Array:
        """log q(x): log a is 0."""
        return self.log_proposal(theta, x, *covariate)

    def log_rejected(self, theta: Theta, y: Point, observed: Point, *covariate: Any) -> jax.Array:
        """log q(y): log(1 - a) is 0."""
        return self.log_proposal(theta, y, *covariate)


def truncated(
    prior: Mapping[str, dist.Distribution] | Callable[[], Any],
    base: Base,
    inside: Callable[..., jax.Array],
    *,
    exact_updates: Any = None,
) -> RejectionModel:
    """Any distribution, seen only inside a window.

    Parameters
    ----------
    prior : dict of NumPyro distributions, or NumPyro model function
        Prior on the parameters of the base.
    base : callable ``(theta[, covariate]) -> numpyro Distribution``
        The distribution before truncation.
    inside : callable ``(y[, covariate]) -> bool``
        Whether one point is recorded. It may not depend on theta: see ``selected`` for that.
    exact_updates : dict, optional
        As in ``RejectionModel``.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
    ...     inside=lambda x: (x > 0) & (x < 1),
    ... )
    >>> accepted, rejected = offcut.augment(1, model, {"loc": 0.0, "scale": 1.0}, n=3)
    >>> bool(((accepted > 0) & (accepted < 1)).all())
    True
    """
    return Truncated(prior, base, inside, exact_updates=exact_updates)
