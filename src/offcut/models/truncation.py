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
            log_accept=self._log_inside,
            latent=self.source.latent,
            **options,
        )

    def propose_block(self, key: jax.Array, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch, no uniforms."""
        points = self.source.sample_block(key, theta, size)
        answers = jax.vmap(self._answer)(points)
        log_accept = None if answers.dtype == bool else _log_of(answers)
        return Proposed(points, answers.astype(bool), log_accept)

    def propose_one(self, key: jax.Array, theta: Theta, *covariate: Any) -> Proposed:
        """One base draw, no uniform."""
        point = self.propose(key, theta, *covariate)
        answer = self._answer(point, *covariate)
        log_accept = None if answer.dtype == bool else _log_of(answer)
        return Proposed(point, answer.astype(bool), log_accept)

    def is_inside(self, point: Point, *covariate: Any) -> jax.Array:
        """The user's predicate as a boolean."""
        return self._answer(point, *covariate).astype(bool)

    def _answer(self, point: Point, *covariate: Any) -> jax.Array:
        """What the user's predicate says: a boolean, or a number that must be 0 or 1."""
        return jnp.asarray(self.inside(self.recorded(point), *covariate))

    def _log_inside(self, theta: Theta, point: Point, *covariate: Any) -> jax.Array:
        return _log_of(self._answer(point, *covariate))

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


def _log_of(answer: jax.Array) -> jax.Array:
    """0 inside, -inf outside, NaN (a broken promise) where the answer is neither yes nor no."""
    log_accept = jnp.where(answer.astype(bool), 0.0, -jnp.inf)
    if answer.dtype == bool:
        return log_accept
    return jnp.where((answer == 0) | (answer == 1), log_accept, jnp.nan)


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
        Prior on the parameters of the base. A number in the dict (or a Delta) fixes a parameter.
    base : callable ``(theta[, covariate]) -> numpyro Distribution``
        The distribution before truncation.
    inside : region, or callable ``(y[, covariate]) -> bool``
        Whether one point is recorded: one of ``offcut.regions``, or any function that returns a
        boolean (or exactly 0 or 1). It may not depend on theta, nor be a probability: see
        ``selected`` for that. With covariates a function takes the
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
