"""Any distribution behind a filter: ``offcut.truncated`` and ``offcut.selected``.

A proposal is a draw of the base. With measurement error it is a pair: the true value t ~ base and
the noisy value o ~ noise(t), with density base(t) noise(o | t). The filter sees o and so do we;
t is drawn for every observation along with the parameters.

Truncation keeps a proposal if and only if it lies inside. The acceptance probability is 0 or 1, so
no uniforms are drawn, log a and log(1 - a) drop out of the joint density, and the base is sampled
as a batch. Selection records a proposal with a probability, which theta may govern.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree, Shaped

from offcut.errors import ModelError
from offcut.models.prior import PriorLike, Theta, in_support, log_prob, made_of_numbers
from offcut.models.recording import CensoringLike
from offcut.models.rejection import ExactUpdates, Proposed, RejectionModel, checked_function
from offcut.numerics.keys import with_native_fallback
from offcut.numerics.rendering import call
from offcut.numerics.types import KeyArray, Point, Points

#: ``(theta[, covariate])``, and with the true value for noise: a NumPyro distribution.
Base = Callable[..., dist.Distribution]
#: ``(theta, y[, covariate])``: a log probability. ``(y[, covariate])``: yes or no.
Filter = Callable[..., Float[Array, ""]]
Window = Callable[..., ArrayLike]
TRUE, NOISY = "true", "noisy"


class Options(TypedDict, total=False):
    """What the filters hand on to ``RejectionModel``."""

    censored: CensoringLike
    exact_updates: ExactUpdates | None


def checked_distribution(function: Base, name: str, example: str) -> Base:
    """The user's function, refusing whatever is not one distribution."""
    if isinstance(function, dist.Distribution) or not callable(function):
        raise ModelError(
            f"{name} must be a function, got {type(function).__name__}; for example {example}"
        )

    def call(*arguments: Theta | Point) -> dist.Distribution:
        distribution = made_of_numbers(lambda: function(*arguments))
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
def _sample_block(key: KeyArray, distribution: dist.Distribution, size: int) -> Array:
    if type(distribution) is dist.MultivariateNormal:  # one matrix product, not one for each point
        noise = jax.random.normal(key, (size, *distribution.event_shape))
        return distribution.loc[None] + noise @ distribution.scale_tril.T
    return distribution.sample(key, (size,))


@with_native_fallback
def _sample_one(key: KeyArray, distribution: dist.Distribution) -> Array:
    return distribution.sample(key)


class Source:
    """Draws and densities of proposals, for one point unless it says otherwise."""

    def __init__(self, base: Base, noise: Base | None) -> None:
        self.given = (base, noise)
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

    def recorded(self, point: PyTree) -> PyTree:
        """What of a proposal the filter sees."""
        return point if self.noise is None else point[NOISY]

    def true(self, point: PyTree) -> PyTree:
        """What of a proposal the base has drawn."""
        return point if self.noise is None else point[TRUE]

    def sample(self, key: KeyArray, theta: Theta, *covariate: Point) -> Point:
        """One proposal."""
        if self.noise is None:
            return _sample_one(key, self.base(theta, *covariate))
        key_true, key_noise = jax.random.split(key)
        true = _sample_one(key_true, self.base(theta, *covariate))
        return {NOISY: _sample_one(key_noise, self.noise(theta, true, *covariate)), TRUE: true}

    def sample_block(self, key: KeyArray, theta: Theta, size: int) -> Points:
        """``size`` proposals at one theta; the base as one batch."""
        if self.noise is None:
            return _sample_block(key, self.base(theta), size)
        key_true, key_noise = jax.random.split(key)
        true = _sample_block(key_true, self.base(theta), size)
        noise = self.noise

        def measure(key: KeyArray, true: Array) -> Array:
            return _sample_one(key, noise(theta, true))

        return {NOISY: jax.vmap(measure)(jax.random.split(key_noise, size), true), TRUE: true}

    def log_prob(self, theta: Theta, point: Point, *covariate: Point) -> Float[Array, ""]:
        """log q, -inf outside of the support that base and noise have at theta."""
        if self.noise is None:
            return log_prob(self.base(theta, *covariate), point)
        true = point[TRUE]
        log_true = log_prob(self.base(theta, *covariate), true)
        return log_true + log_prob(self.noise(theta, true, *covariate), point[NOISY])

    def in_support(self, theta: Theta, point: Point, *covariate: Point) -> Bool[Array, ""]:
        """Whether a proposal can be this at all."""
        true = self.true(point)
        possible = in_support(self.base(theta, *covariate), true)
        if self.noise is not None:
            possible &= in_support(self.noise(theta, true, *covariate), point[NOISY])
        return possible


class Filtered(RejectionModel):
    """A base behind a filter, perhaps measured with error: what truncation and selection share."""

    source: Source

    def __init__(
        self,
        prior: PriorLike,
        base: Base,
        noise: Base | None,
        log_accept: Filter,
        log_reject: Filter | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.source = Source(base, noise)
        self.base = self.source.base
        super().__init__(
            prior,
            propose=self.source.sample,
            log_proposal=self.source.log_prob,
            log_accept=log_accept,
            log_reject=log_reject,
            latent=self.source.latent,
            **options,
        )

    def _called(self, name: str, **settings: object) -> str:
        """The call that made this model, as it is printed."""
        base, noise = self.source.given
        return call(name, base, prior=self.prior.given, **settings, noise=noise, **self._options())

    def propose_points(self, key: KeyArray, theta: Theta, size: int) -> Points:
        """The base as one batch."""
        return self.source.sample_block(key, theta, size)

    def recorded(self, point: PyTree) -> PyTree:
        """The noisy value where there is measurement error."""
        return self.source.recorded(point)

    def possible(self, theta: Theta, point: Point, *covariate: Point) -> Bool[Array, ""]:
        """Whether base and noise can have drawn the point."""
        return self.source.in_support(theta, point, *covariate)


class Selected(Filtered):
    """The model that ``offcut.selected`` makes."""

    def __init__(
        self,
        prior: PriorLike,
        base: Base,
        log_accept: Filter,
        *,
        log_reject: Filter | None = None,
        noise: Base | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._given = {"log_accept": log_accept, "log_reject": log_reject}
        if noise is not None:
            log_accept = _of_noisy("log_accept", log_accept)
            if log_reject is not None:
                log_reject = _of_noisy("log_reject", log_reject)
        super().__init__(prior, base, noise, log_accept, log_reject, **options)

    def __repr__(self) -> str:
        return self._called("selected", **self._given)


def _of_noisy(name: str, function: Filter) -> Filter:
    """The user's function of a noisy value, as one of a whole proposal."""
    checked_function(name, function)
    return lambda theta, point, *covariate: function(theta, point[NOISY], *covariate)


def selected(
    prior: PriorLike,
    base: Base,
    log_accept: Filter,
    *,
    log_reject: Filter | None = None,
    censored: CensoringLike = None,
    noise: Base | None = None,
    exact_updates: ExactUpdates | None = None,
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


class Truncated(Filtered):
    """The model that ``offcut.truncated`` makes."""

    window_is_fixed = True
    inside: Window

    def __init__(
        self,
        prior: PriorLike,
        base: Base,
        inside: Window,
        *,
        noise: Base | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not callable(inside):
            raise ModelError(
                f"inside must be a region or a function of one point, got {type(inside).__name__}"
            )
        self.inside = inside
        super().__init__(prior, base, noise, self._log_inside, **options)

    def __repr__(self) -> str:
        return self._called("truncated", inside=self.inside)

    def propose_block(self, key: KeyArray, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch, no uniforms."""
        points = self.propose_points(key, theta, size)
        answers = jax.vmap(self._answer)(points)
        log_accept = None if answers.dtype == bool else _log_of(answers)
        return Proposed(points, answers.astype(bool), log_accept)

    def propose_one(self, key: KeyArray, theta: Theta, *covariate: Point) -> Proposed:
        """One base draw, no uniform."""
        point = self.propose(key, theta, *covariate)
        answer = self._answer(point, *covariate)
        log_accept = None if answer.dtype == bool else _log_of(answer)
        return Proposed(point, answer.astype(bool), log_accept)

    def is_inside(self, point: Point, *covariate: Point) -> Bool[Array, ""]:
        """The user's predicate as a boolean."""
        return self._answer(point, *covariate).astype(bool)

    def _answer(self, point: Point, *covariate: Point) -> Shaped[Array, ""]:
        """What the user's predicate says: a boolean, or a number that must be 0 or 1."""
        return jnp.asarray(self.inside(self.recorded(point), *covariate))

    def _log_inside(self, theta: Theta, point: Point, *covariate: Point) -> Float[Array, ""]:
        return _log_of(self._answer(point, *covariate))

    def log_observed(self, theta: Theta, x: Point, *covariate: Point) -> Float[Array, ""]:
        """log q(x): log a is 0."""
        return self.log_proposal(theta, x, *covariate)

    def log_rejected(
        self, theta: Theta, y: Point, observed: Point, *covariate: Point
    ) -> Float[Array, ""]:
        """log q(y): log(1 - a) is 0."""
        return self.log_proposal(theta, y, *covariate)


def _log_of(answer: Shaped[Array, "*block"]) -> Float[Array, "*block"]:
    """0 inside, -inf outside, NaN (an error) where the answer is neither yes nor no."""
    log_accept = jnp.where(answer.astype(bool), 0.0, -jnp.inf)
    if answer.dtype == bool:
        return log_accept
    return jnp.where((answer == 0) | (answer == 1), log_accept, jnp.nan)


def truncated(
    prior: PriorLike,
    base: Base,
    inside: Window,
    *,
    censored: CensoringLike = None,
    noise: Base | None = None,
    exact_updates: ExactUpdates | None = None,
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
