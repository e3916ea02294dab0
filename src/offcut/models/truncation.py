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
from offcut.models.rejection import Point, Proposed, RejectionModel
from offcut.models.source import Base, Source
from offcut.prior import Theta


class Truncated(RejectionModel):
    """The model that ``offcut.truncated`` makes."""

    window_is_fixed = True

    def __init__(
        self,
        prior: Any,
        base: Base,
        inside: Callable[..., jax.Array],
        *,
        noise: Callable[..., dist.Distribution] | None = None,
        **options: Any,
    ) -> None:
        if not callable(inside):
            raise ModelError(
                f"inside must be a region or a function of one point, got {type(inside).__name__}"
            )
        self.source = Source(base, noise)
        self.base = self.source.base
        self.inside = inside
        super().__init__(
            prior,
            propose=self.source.sample,
            log_proposal=self.source.log_prob,
            log_accept=lambda theta, y, *c: jnp.where(self.is_inside(y, *c), 0.0, -jnp.inf),
            latent=self.source.latent,
            **options,
        )

    def propose_block(self, key: jax.Array, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch, no uniforms."""
        points = self.source.sample_block(key, theta, size)
        return Proposed(points, jax.vmap(self.is_inside)(points), None)

    def propose_one(self, key: jax.Array, theta: Theta, *covariate: Any) -> Proposed:
        """One base draw, no uniform."""
        point = self.propose(key, theta, *covariate)
        return Proposed(point, self.is_inside(point, *covariate), None)

    def is_inside(self, point: Point, *covariate: Any) -> jax.Array:
        """The user's predicate, which may return numbers."""
        return jnp.asarray(self.inside(self.recorded(point), *covariate)).astype(bool)

    def recorded(self, point: Point) -> Point:
        """The noisy value where there is measurement error."""
        return self.source.recorded(point)

    def possible(self, theta: Theta, point: Point, *covariate: Any) -> jax.Array:
        """Whether base and noise can have drawn the point."""
        return self.source.in_support(theta, point, *covariate)

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
    censored: Any = None,
    noise: Callable[..., dist.Distribution] | None = None,
    exact_updates: Any = None,
) -> RejectionModel:
    """Any distribution, seen only inside a window.

    Parameters
    ----------
    prior : dict of NumPyro distributions, or NumPyro model function
        Prior on the parameters of the base.
    base : callable ``(theta[, covariate]) -> numpyro Distribution``
        The distribution before truncation.
    inside : region, or callable ``(y[, covariate]) -> bool``
        Whether one point is recorded: one of ``offcut.regions``, or any function. It may not
        depend on theta: see ``selected`` for that. With covariates a function takes the
        observation's covariate, so every observation may have its own window
        (``offcut.regions.ByGroup`` has one for each group).
    censored : Clamped, or a zone or list of zones, optional
        Observations whose value is not known, only that it lies in a zone, as in
        ``RejectionModel``. Zones are part of the window: such values *are* recorded.
    noise : callable ``(theta, true[, covariate]) -> numpyro Distribution``, optional
        Measurement error. The base is then about true values; data, window and zones about the
        noisy ones.
    exact_updates : dict, optional
        As in ``RejectionModel``.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
    ...     inside=offcut.regions.Box(0, 1),
    ... )
    >>> accepted, rejected = offcut.augment(1, model, {"loc": 0.0, "scale": 1.0}, n=3)
    >>> bool(((accepted > 0) & (accepted < 1)).all())
    True
    """
    return Truncated(
        prior, base, inside, censored=censored, noise=noise, exact_updates=exact_updates
    )
