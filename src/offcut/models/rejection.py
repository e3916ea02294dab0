r"""A rejection model: a proposal and an acceptance probability, both of which may depend on theta.

An observation is a proposal y ~ q(y | theta) that was accepted with probability a(y, theta).
Its density f(x, theta) / Z(theta), f = q a, has an intractable Z; the joint density with the
rejected proposals Y has none (Rao, Lin & Dunson 2016, equation 1):

    log p(X, Y | theta) = sum_x [log q(x) + log a(x)] + sum_y [log q(y) + log(1 - a(y))].

Everything here is written for one point. The engine calls four methods, which a faster
special case may override: ``propose_block``, ``propose_one``, ``log_observed``, ``log_rejected``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from offcut.base import Model, Prepared
from offcut.errors import ModelError
from offcut.methods import REJECTION
from offcut.models.prior import Position, Prior, PriorLike, Theta
from offcut.models.recording import CensoringLike, Clamped, checked_censoring
from offcut.numerics.keys import from_seed, with_native_fallback
from offcut.numerics.log1mexp import log1mexp
from offcut.numerics.rendering import call
from offcut.numerics.types import KeyArray, Point, Points
from offcut.programs.cache import Kept, Programs
from offcut.programs.identity import UnidentifiedError, digest, skeleton, traced, unknown

if TYPE_CHECKING:
    from offcut.models.filtered import Source

#: A log density, or a log probability, at one point.
Scalar = Float[Array, ""]
#: What users may give as ``exact_updates=``: ``{names: function(key, theta, data) -> dict}``.
ExactUpdates = Mapping[str | tuple[str, ...], Callable[..., Theta]]
F = TypeVar("F", bound=Callable)
A = ParamSpec("A")
R = TypeVar("R")


class Proposed(NamedTuple):
    """Proposals, one or a block, with their fate.

    ``log_accept`` is None where it is 0 or -inf by construction.
    """

    points: Points
    accepted: Bool[Array, "*block"]
    log_accept: Float[Array, "*block"] | None


@runtime_checkable
class Proposer(Protocol):
    """What makes proposals for one observation: a model, or part of one."""

    def propose_one(self, key: KeyArray, theta: Theta, *covariate: Point) -> Proposed: ...


def checked_function(name: str, function: F) -> F:
    """What the user gave as ``name``, refused if it cannot be called."""
    if not callable(function):
        raise ModelError(f"{name} must be a function, got {type(function).__name__}")
    return function


class RejectionModel(Model):
    """A model for data that passed a rejection sampler.

    Parameters
    ----------
    prior : dict of NumPyro distributions, or NumPyro model function
        ``theta`` is the dict of its sites, deterministic ones included. A number in the dict (or a
        ``numpyro.distributions.Delta``) fixes a parameter.
    propose : callable ``(key, theta[, covariate]) -> y``
        One proposal, any pytree of arrays.
    log_proposal : callable ``(theta, y[, covariate]) -> scalar``
        Log density of a proposal, log q.
    log_accept : callable ``(theta, y[, covariate]) -> scalar``
        Log acceptance probability, at most 0; -inf where nothing is accepted.
    log_reject : callable, optional
        log(1 - a), where the model knows it better than ``log1mexp(log_accept)`` does, for
        example ``log_sigmoid(-eta)`` for a logistic selection.
    exact_updates : dict, optional
        Blocks of theta with their own exact conditional given the data, theta_1 of Algorithm 2:
        ``{names: function(key, theta, data) -> dict}``, names a string or a tuple of strings. The
        function draws from p(names | data, rest of theta), the rejected points summed out. The
        rest keeps its values, also where its support depends on the names.
    censored : Clamped, or a zone or list of zones, optional
        Observations of which only this is known: that the value lies in a zone. A zone is a
        function ``(y[, covariate]) -> bool`` or a region; an observation recorded inside it is
        censored, and its value is drawn anew in every sweep, from proposals that hit the zone
        or by slice sampling inside it. ``offcut.Clamped(lower, upper)`` is for recorders that
        write a limit for what lies beyond, coordinate by coordinate.
    latent : str or tuple of str, optional
        Parts of a proposal (keys of its dict) that the data lack; they are drawn as well.

    Examples
    --------
    A normal, observed with a probability that falls off away from zero:

    >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, offcut
    >>> model = offcut.RejectionModel(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     propose=lambda key, theta: theta["loc"] + jax.random.normal(key),
    ...     log_proposal=lambda theta, y: dist.Normal(theta["loc"], 1).log_prob(y),
    ...     log_accept=lambda theta, y: -0.5 * y**2,
    ... )
    >>> accepted, rejected = offcut.augment(0, model, {"loc": 0.3}, n=5)
    >>> accepted.shape
    (5,)
    """

    #: Whether log a at an observation never depends on theta.
    methods = REJECTION
    window_is_fixed = False
    #: The window, where the filter is one; and the base with its noise, where proposals have one.
    inside: Callable[..., ArrayLike] | None = None
    source: Source | None = None

    def __init__(
        self,
        prior: PriorLike,
        propose: Callable[..., Point],
        log_proposal: Callable[..., Scalar],
        log_accept: Callable[..., Scalar],
        log_reject: Callable[..., Scalar] | None = None,
        *,
        exact_updates: ExactUpdates | None = None,
        censored: CensoringLike = None,
        latent: str | tuple[str, ...] = (),
    ) -> None:
        self.propose = with_native_fallback(checked_function("propose", propose))
        self.log_proposal = checked_function("log_proposal", log_proposal)
        self.log_accept = checked_function("log_accept", log_accept)
        self.log_reject = log_reject
        if log_reject is not None:
            checked_function("log_reject", log_reject)
        self.censored = None if censored is None else checked_censoring(censored)
        self.latent = (latent,) if isinstance(latent, str) else tuple(latent)
        self.exact_updates = {
            (names,) if isinstance(names, str) else tuple(names): function
            for names, function in (exact_updates or {}).items()
        }
        named = [name for names in self.exact_updates for name in names]
        if len(named) != len(set(named)):
            raise ModelError(f"exact_updates name a parameter twice: {sorted(named)}")
        with jax.enable_x64(True):
            self.prior = Prior(prior, exact=tuple(named))
        self._identity: str = unknown(type(self).__name__)

    def rejection_model(self) -> RejectionModel:
        """This model."""
        return self

    def identity(self) -> None:
        """Samplers have the whole of it: ``identify``."""

    def data_identity(self, prepared: Prepared) -> list[jax.Array | np.ndarray | np.generic]:
        """All arrays: they know which observations are censored."""
        return jax.tree.leaves(prepared.arrays)

    def __repr__(self) -> str:
        return call(
            type(self).__name__,
            prior=self.prior.given,
            propose=self.propose,
            log_proposal=self.log_proposal,
            log_accept=self.log_accept,
            log_reject=self.log_reject,
            latent=self.latent,
            **self._options(),
        )

    def _options(self) -> dict[str, object]:
        """Settings that all rejection models have, as they are printed."""
        updates = {names if names[1:] else names[0]: f for names, f in self.exact_updates.items()}
        zones = self.censored
        censored = zones[0] if isinstance(zones, tuple) and len(zones) == 1 else zones
        return {"censored": censored, "exact_updates": updates}

    @property
    def programs(self) -> Programs:
        """Compiled programs and what was found out about this model, as it was identified last."""
        return Programs(self._identity)

    def compiled(
        self, name: Hashable, function: Callable[A, R], quick: bool = False
    ) -> Callable[A, R]:
        """``function`` compiled, kept under a name that says all it depends on beside arguments.

        ``quick``: for a program that has not much to do.
        """
        kept = self.programs.kept(name, lambda: Kept(function, name, quick))
        kept.function = function
        return cast(Callable[A, R], kept.program)

    def identify(
        self,
        covariates: tuple[Points, ...],
        points: Points | PyTree[jax.ShapeDtypeStruct] | None = None,
    ) -> str:
        """A digest of all that the model computes, at this moment, for such data.

        Everything is traced: a global, a closure or a prior that was changed in place makes it
        another model, with programs of its own. Of covariates and points (rows in front, needed
        for ``exact_updates``) shapes and dtypes count.

        Call it with x64 on, before anything compiled is used.
        """
        kinds: list[list[tuple[str, list[type]]]] = []

        def everything(
            key: KeyArray, position: Position, points: Points | None, covariate: tuple[Point, ...]
        ) -> PyTree:
            theta = self.prior.sample(key)
            y = self.propose(key, theta, *covariate)
            exact = {name: theta[name] for name in self.prior.exact}
            kinds.append(self._kinds(theta, covariate))
            return (
                theta,
                self.prior.constrain(position, exact),
                self.prior.log_density(position, exact),
                y,
                self.propose_one(key, theta, *covariate),
                () if covariate else self.propose_block(key, theta, 2),
                self.log_proposal(theta, y, *covariate),
                self.log_accept(theta, y, *covariate),
                self.log_observed(theta, y, *covariate),
                self.log_rejected(theta, y, y, *covariate),
                self.inside_at(theta, y, *covariate),
                self.possible(theta, y, *covariate),
                self._recording(y, covariate),
                [] if points is None else self._updated(key, theta, points),
            )

        program = traced(
            everything,
            from_seed(0),
            np.zeros(self.prior.size),
            points,
            jax.tree.map(lambda a: np.asarray(a[0]), covariates),
        )
        settings = (type(self), self.window_is_fixed, self.latent, self.prior.names)
        updates = (self.prior.exact, self.prior.deterministic, tuple(self.exact_updates))
        # A window made of known intervals has a known mass.
        classes = skeleton(settings, updates, type(self.censored), kinds, self.inside)
        try:
            self._identity = digest(classes, program)
        except UnidentifiedError as error:  # what it calls in Python has a state of its own
            self._identity = unknown(error)
        return self._identity

    def _updated(self, key: KeyArray, theta: Theta, points: Points) -> list[Theta]:
        return [update(key, theta, points) for update in self.exact_updates.values()]

    def _recording(self, point: Point, covariate: tuple[Point, ...]) -> PyTree:
        """What is recorded of a point, and what ``censored`` computes there."""
        recorded = self.recorded(point)
        if isinstance(self.censored, Clamped):
            return recorded, self.censored.limits(*covariate)
        return recorded, [zone(recorded, *covariate) for zone in self.censored or ()]

    def _kinds(self, theta: Theta, covariate: tuple[Point, ...]) -> list[tuple[str, list[type]]]:
        """Classes of prior and base: by these exact updates and known masses are recognised."""
        latent = {name: theta[name] for name in self.prior.shapes}
        sites = self.prior.sites(latent)
        drawn = [site for site in sites.values() if site["type"] == "sample"]
        kinds = [(site["name"], _classes(site["fn"])) for site in drawn]
        if self.source is not None:
            kinds.append(("base", _classes(self.source.base(theta, *covariate))))
        return kinds

    # What the engine calls; theta is a dict, covariate is () or (c_i,).

    def propose_block(self, key: KeyArray, theta: Theta, size: int) -> Proposed:
        """``size`` proposals at one theta, with their acceptance decided."""
        key_point, key_accept = jax.random.split(key)
        points = self.propose_points(key_point, theta, size)
        log_accept = jax.vmap(self.log_accept, (None, 0))(theta, points)
        uniform = jax.random.uniform(key_accept, (size,))
        return Proposed(points, uniform < jnp.exp(log_accept), log_accept)

    def propose_points(self, key: KeyArray, theta: Theta, size: int) -> Points:
        """``size`` proposals at one theta, nothing decided."""
        return jax.vmap(self.propose, (0, None))(jax.random.split(key, size), theta)

    def propose_one(self, key: KeyArray, theta: Theta, *covariate: Point) -> Proposed:
        """One proposal for one observation, with its acceptance decided."""
        key_point, key_accept = jax.random.split(key)
        point = self.propose(key_point, theta, *covariate)
        log_accept = self.log_accept(theta, point, *covariate)
        uniform = jax.random.uniform(key_accept)
        return Proposed(point, uniform < jnp.exp(log_accept), log_accept)

    def log_observed(self, theta: Theta, x: Point, *covariate: Point) -> Scalar:
        """log q(x) + log a(x)."""
        return self.log_proposal(theta, x, *covariate) + self.log_accept(theta, x, *covariate)

    def log_rejected(self, theta: Theta, y: Point, observed: Point, *covariate: Point) -> Scalar:
        """log q(y) + log(1 - a(y)).

        Where a(y) = 0 the second term is 0 with gradient 0, but the derivative of log a is NaN
        there: such a y is replaced by an ``observed`` point, where log a is finite, before
        differentiation (a single ``where`` after it would still give NaN).
        """
        log_proposal = self.log_proposal(theta, y, *covariate)
        if self.log_reject is not None:
            return log_proposal + self.log_reject(theta, y, *covariate)
        frozen = jax.lax.stop_gradient(theta)
        never = jnp.isneginf(self.log_accept(frozen, y, *covariate))
        safe = jax.tree.map(lambda a, b: jnp.where(never, b, a), y, observed)
        log_accept = self.log_accept(theta, safe, *covariate)
        return log_proposal + jnp.where(never, 0.0, log1mexp(log_accept))

    @property
    def leaves_open(self) -> bool:
        """Whether data may leave something open: values in zones, parts that nobody records."""
        return self.censored is not None or bool(self.latent)

    def recorded(self, point: PyTree) -> PyTree:
        """What of a proposal the data have: a part of its tree, whatever the leaves are."""
        if not self.latent:
            return point
        if (
            not isinstance(point, dict)
            or set(self.latent) - set(point)
            or set(point) <= set(self.latent)
        ):
            came = sorted(point) if isinstance(point, dict) else type(point).__name__
            raise ModelError(
                f"latent={self.latent} names parts of a proposal, which must then be a dict with "
                f"these and others, got {came}"
            )
        return {name: part for name, part in point.items() if name not in self.latent}

    def possible(self, theta: Theta, point: Point, *covariate: Point) -> Bool[Array, ""]:
        """Whether a point is in the support of the proposals, as far as this is known."""
        return jnp.array(True)

    def inside_at(self, theta: Theta, x: Point, *covariate: Point) -> Scalar:
        """log a at an observation: -inf says that the model cannot have produced it."""
        return jnp.asarray(self.log_accept(theta, x, *covariate))


def _classes(distribution: dist.Distribution | None) -> list[type]:
    """The class of a distribution, and those of what it wraps."""
    classes = []
    while distribution is not None:
        classes.append(type(distribution))
        distribution = getattr(distribution, "base_dist", None)
    return classes
