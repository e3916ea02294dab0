"""The prior on theta, seen from unconstrained space.

Users write priors on the scale they think in; kernels move on R^d. NumPyro's transforms carry
one to the other, with the Jacobian in the density:

    log p(u) = log p(theta(u)) + log |d theta / d u|.

A prior is a dict of NumPyro distributions, or a NumPyro model (a function with
``numpyro.sample`` sites) where priors depend on one another. A number in the dict, or
``numpyro.distributions.Delta`` anywhere, fixes a parameter: it is part of theta, and no kernel
moves it.

NumPyro's families compute a formula: without validation (``validate_args=False``,
``numpyro.enable_validation(False)``, ``python -O``) that of Uniform(0, 1) is 0 everywhere. With
``log_prob`` and ``in_support``, priors and bases alike, what lies outside of the support at theta
has density zero, always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import ParamSpec, TypedDict, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.primitives import Messenger

from offcut.errors import ModelError
from offcut.numerics.keys import from_seed, rolled
from offcut.numerics.types import KeyArray
from offcut.programs.identity import reached

#: Parameters by name, on the scale of their prior; deterministic sites among them.
Theta = dict[str, Array]
#: The same on the host, as users write it and results have it.
HostTheta = Mapping[str, ArrayLike | Sequence[float]]
#: theta2, unconstrained.
Position = Float[Array, " d"]
#: What users may give as ``prior=``.
PriorLike = Mapping[str, dist.Distribution | ArrayLike] | Callable[[], object]
#: A value of a distribution, or a batch of them.
Value = Shaped[Array, "..."] | np.ndarray | float
A = ParamSpec("A")
R = TypeVar("R")
_WHOLE = (constraints.real, constraints.real_vector, constraints.real_matrix)
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
#: NumPyro keeps its handlers in one list for the whole process, so only one thread may run a prior
#: at a time. That happens while tracing, never in compiled code.
_TRACING = threading.RLock()


def log_prob(distribution: dist.Distribution, value: Value) -> Float[Array, " ..."]:
    """log density, -inf outside of the support, with a gradient that is a number."""
    if _is_everywhere(distribution):
        return distribution.log_prob(value)
    if isinstance(distribution, dist.MixtureGeneral):  # each component has a support of its own
        log_weight = jax.nn.log_softmax(distribution.mixing_distribution.logits)
        terms = log_weight + _of_components(log_prob, distribution, value)
        # A where that changes no value stops the gradient of components that are impossible.
        return jax.nn.logsumexp(jnp.where(jnp.isneginf(terms), -jnp.inf, terms), axis=-1)
    if isinstance(distribution, dist.Independent):
        terms = log_prob(distribution.base_dist, value)
        return jnp.sum(terms, axis=_last(distribution))
    possible = in_support(distribution, value)
    # The value is replaced before anything is computed: the derivative of what a formula says
    # outside, the logarithm of a negative number, would spoil that of the sum.
    inside = _inside_like(distribution, value, possible)
    return jnp.where(possible, distribution.log_prob(inside), -jnp.inf)


def in_support(distribution: dist.Distribution, value: Value) -> Bool[Array, " ..."]:
    """Whether the distribution can have drawn the value: one flag for each of its batch."""
    if isinstance(distribution, dist.MixtureGeneral):
        return jnp.any(_of_components(in_support, distribution, value), axis=-1)
    if isinstance(distribution, dist.Independent):
        return jnp.all(in_support(distribution.base_dist, value), axis=_last(distribution))
    return jnp.asarray(distribution.support(value))


def _is_everywhere(distribution: dist.Distribution) -> bool:
    """Whether nothing is outside."""
    if isinstance(distribution, dist.MixtureGeneral):
        return all(map(_is_everywhere, distribution.component_distributions))
    support = distribution.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support in _WHOLE


def _inside_like(
    distribution: dist.Distribution, value: Value, possible: Bool[Array, " ..."]
) -> Value:
    """The value where it is possible, else some point of the support."""
    value = jnp.broadcast_to(value, possible.shape + distribution.event_shape)
    try:
        spare = jax.lax.stop_gradient(distribution.support.feasible_like(value))
    except NotImplementedError:
        return value
    flag = possible.reshape(*possible.shape, *[1] * len(distribution.event_shape))
    return jnp.where(flag, value, jnp.asarray(spare, value.dtype))


def _last(distribution: dist.Independent) -> tuple[int, ...]:
    return tuple(range(-distribution.reinterpreted_batch_ndims, 0))


def _of_components(
    function: Callable[..., Array], mixture: dist.MixtureGeneral, value: Value
) -> Array:
    """``function(component, value)`` of all components, along a last axis."""
    return jnp.stack([function(part, value) for part in mixture.component_distributions], axis=-1)


def made_of_numbers(make: Callable[[], R]) -> R:
    """What ``make`` returns; NumPyro's error where that is a distribution with invalid numbers.

    NumPyro looks at the parameters of a distribution whenever one is made, also at those that are
    traced, of which nothing can be said; for matrices that takes dozens of small programs. So here
    it does not, and those that are numbers are looked at on the host.
    """
    if not dist.Distribution._validate_args:
        return make()
    with _TRACING, numpyro.validation_enabled(False):  # a setting of the whole process
        made = make()
    _refuse_invalid(made)
    return made


def _refuse_invalid(distribution: object) -> None:
    if not isinstance(distribution, dist.Distribution):
        return
    # Of its own attribute where the user has set one.
    if not vars(distribution).get("_validate_args", True):
        return
    inner = [getattr(distribution, name, None) for name in ("base_dist", "mixing_distribution")]
    components = getattr(distribution, "component_distributions", None)
    for part in (*inner, *(components or ())):
        _refuse_invalid(part)
    for name, value in distribution.get_args().items():
        constraint = distribution.arg_constraints[name]
        leaves = jax.tree.leaves((value, constraint))
        if constraints.is_dependent(constraint) or any(map(_is_traced, leaves)):
            continue
        if not np.all(constraint(np.asarray(value))):
            raise ValueError(
                f"{type(distribution).__name__} distribution got invalid {name} parameter."
            )


def _is_traced(value: object) -> bool:
    return isinstance(value, jax.core.Tracer)


def _one_thread_at_a_time(function: Callable[A, R]) -> Callable[A, R]:
    @wraps(function)
    def guarded(*arguments: A.args, **options: A.kwargs) -> R:
        with _TRACING:
            return function(*arguments, **options)

    return guarded


def _as_numpyro_model(prior: object) -> Callable[[], object]:
    if isinstance(prior, Mapping):
        sites = {name: _as_distribution(name, value) for name, value in prior.items()}

        def model() -> None:
            for name, distribution in sites.items():
                numpyro.sample(name, distribution)

        return model
    if callable(prior):
        return prior
    raise ModelError(
        "prior must be a dict of NumPyro distributions or a NumPyro model function, got "
        f"{type(prior).__name__}"
    )


def _as_distribution(name: object, value: object) -> dist.Distribution:
    """An entry of a prior given as dict: a distribution, or a number that fixes the parameter."""
    if not isinstance(name, str):
        raise ModelError(f"prior names must be strings, got {name!r}")
    if isinstance(value, dist.Distribution):
        return value
    is_number = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
    if not is_number or isinstance(value, bool) or np.asarray(value).dtype.kind not in "fiu":
        raise ModelError(
            f"prior[{name!r}] must be a NumPyro distribution such as "
            "numpyro.distributions.Normal(0, 1), or a number that fixes it, got "
            f"{type(value).__name__}"
        )
    fixed = np.asarray(value, float)
    if not np.isfinite(fixed).all():
        raise ModelError(f"prior[{name!r}] fixes the parameter at {value}; give finite numbers")
    return dist.Delta(fixed, event_dim=fixed.ndim)


class Site(TypedDict, total=False):
    """What NumPyro's trace says of a site, as far as it matters here."""

    name: str
    type: str
    fn: dist.Distribution
    value: Array
    is_observed: bool
    scale: Array | float | None


class _Fixing(Messenger):
    """Sites with a Delta as distribution become deterministic ones: nothing moves them.

    NumPyro says that the support of a Delta is the real line, on which a kernel would move.
    """

    def process_message(self, msg: Site) -> None:
        """Put the value in, and what the Delta adds to the density aside."""
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        core, shape = msg["fn"], msg["fn"].shape()
        while isinstance(core, _WRAPPERS):
            core = core.base_dist
        if type(core) is not dist.Delta:
            return
        msg["type"] = "deterministic"
        msg["value"] = jnp.broadcast_to(jnp.asarray(core.v, float), shape)
        if isinstance(core.log_density, jax.Array) or np.any(core.log_density):
            numpyro.factor(f"_{msg['name']}_log_density", jnp.sum(core.log_density))


def is_positive(distribution: dist.Distribution) -> bool:
    """Whether a NumPyro distribution has all its mass on positive numbers, by its support."""
    support = distribution.support
    lower = getattr(support, "lower_bound", None)
    if support in (constraints.positive, constraints.nonnegative):
        return True
    return lower is not None and bool(np.all(np.asarray(lower) >= 0))


def _is_structured(distribution: dist.Distribution) -> bool:
    """Whether the support is one of whole vectors or matrices, not of numbers one by one."""
    support = distribution.support
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support.event_dim > 0 and support is not constraints.real_vector


class Prior:
    """A prior with some sites (``exact``) left out of the unconstrained vector.

    Attributes
    ----------
    names : tuple of str
        Sites that kernels move, in the order of the flat vector.
    exact : tuple of str
        Sites that have their own conditional update; they stay on their constrained scale.
    deterministic : tuple of str
        ``numpyro.deterministic`` sites and fixed parameters; part of theta and of the posterior.
    fixed : tuple of str
        Those of them that have a Delta as prior.
    size : int
        Dimension of the unconstrained vector.
    structured : tuple of str
        Sites whose entries depend on each other by their support, so that some may be constants: a
        correlation matrix, a simplex.
    given : dict or callable
        The prior as it came, to print it.
    """

    @_one_thread_at_a_time
    def __init__(self, prior: PriorLike, exact: tuple[str, ...] = ()) -> None:
        self.given = dict(prior) if isinstance(prior, Mapping) else prior
        self._model = _Fixing(_as_numpyro_model(prior))
        try:
            sites = self._traced_sites()
        except TypeError as error:
            raise ModelError(
                f"the prior could not be run: {error}. A NumPyro model given as prior takes no "
                "arguments; covariates go to the base, proposal and acceptance functions instead"
            ) from error
        except ValueError as error:
            raise ModelError(
                f"the prior could not be run: {error}. Check the parameters of its distributions"
            ) from error
        except NotImplementedError as error:
            raise ModelError(
                "the prior cannot be sampled from (is it improper?); use a wide proper one instead"
            ) from error
        latent: dict[str, Site] = {}
        deterministic = []
        for name, site in sites.items():
            if site["type"] == "deterministic":
                deterministic.append(name)
            elif site["type"] == "sample" and not site["is_observed"]:
                if site["fn"].support.is_discrete:
                    raise ModelError(
                        f"prior site {name!r} is discrete ({type(site['fn']).__name__}); kernels "
                        "need continuous parameters: sum it out"
                    )
                latent[name] = site
            elif site["type"] == "param":
                raise ModelError(f"prior site {name!r} is a numpyro.param; use numpyro.sample")
        if not latent:
            fixed = f": all are fixed ({', '.join(deterministic)})" if deterministic else ""
            raise ModelError(
                f"the prior has no parameters to infer{fixed}. Give a distribution to what is to "
                "be inferred"
            )
        unknown = set(exact) - set(latent)
        if unknown:
            raise ModelError(
                f"exact_updates names {sorted(unknown)}, but the prior has {sorted(latent)}"
            )
        self.exact = tuple(sorted(exact))
        self.names = tuple(sorted(set(latent) - set(exact)))
        self.deterministic = tuple(deterministic)
        self.fixed = tuple(name for name in deterministic if sites[name].get("fn") is not None)
        #: Whether factors or observed sites add to the density what sampling does not know of.
        self.has_likelihood = any(
            site["type"] == "sample" and site["is_observed"] for site in sites.values()
        )
        self.shapes = {name: jnp.shape(site["value"]) for name, site in latent.items()}
        self.structured = tuple(name for name, site in latent.items() if _is_structured(site["fn"]))
        like = {n: jax.ShapeDtypeStruct(shape, float) for n, shape in self.shapes.items()}
        unravels: list[Callable[[Position], Theta]] = []

        def flattened(theta: Theta) -> Position:
            flat, unravel = ravel_pytree(self._unconstrain_dict(theta))
            unravels.append(unravel)
            return flat

        try:
            self.size = int(jax.eval_shape(flattened, like).shape[0])
        except jax.errors.ConcretizationTypeError:
            self.size = int(flattened({n: site["value"] for n, site in latent.items()}).shape[0])
        self._unravel = unravels[-1]
        self._masked = self.has_likelihood or bool(self.exact)
        self._follows_exact = self.size > 0 and bool(self.exact) and self._support_uses_exact()

    def _traced_sites(self) -> dict[str, Site]:
        """All sites, traced and not drawn: what is drawn here would be compiled piece by piece."""
        met: list[dict[str, Site]] = []

        def run(key: KeyArray) -> None:
            met.append(handlers.trace(handlers.seed(self._model, key)).get_trace())

        try:
            jax.eval_shape(run, rolled(from_seed(0)))  # discrete ones, too, are refused later
        except jax.errors.ConcretizationTypeError:  # it decides by values; who samples says so
            run(rolled(from_seed(0)))
        return met[0]

    def _support_uses_exact(self) -> bool:
        """Whether theta at a position is computed from exact sites: a support depends on them."""
        shapes = {name: jax.ShapeDtypeStruct(self.shapes[name], float) for name in self.exact}

        def free_sites(exact: Theta, position: Position) -> Theta:
            theta = self.constrain(position, exact)
            return {name: theta[name] for name in self.names}

        closed = jax.make_jaxpr(free_sites)(shapes, jax.ShapeDtypeStruct((self.size,), float))
        return any(reached(closed.jaxpr, [True] * len(shapes) + [False]))

    def _given(self, exact: Theta) -> Callable[[], object]:
        return handlers.substitute(self._model, data=exact) if exact else self._model

    @_one_thread_at_a_time
    def _unconstrain_dict(self, theta: Theta) -> Theta:
        everything = unconstrain_fn(self._model, (), {}, {n: theta[n] for n in self.shapes})
        return {name: jnp.asarray(everything[name], float) for name in self.names}

    def unconstrain(self, theta: Theta) -> Position:
        """The flat vector u with theta(u) = theta."""
        return ravel_pytree(self._unconstrain_dict(theta))[0]

    @_one_thread_at_a_time
    def constrain(self, position: Position, exact: Theta) -> Theta:
        """theta, deterministic sites included, at the unconstrained ``position``."""
        free = constrain_fn(
            self._given(exact), (), {}, self._unravel(position), return_deterministic=True
        )
        return {**free, **exact}

    @_one_thread_at_a_time
    def log_density(self, position: Position, exact: Theta) -> Float[Array, ""]:
        """log p(theta) + log |d theta/d u| at the unconstrained ``position``."""
        log_p = -potential_energy(self._given(exact), (), {}, self._unravel(position))
        if not self._masked:
            return log_p  # theta(u) is inside every support
        # What has a value of its own, exact or observed, may lie outside.
        sites = self.sites(self.constrain(position, exact))
        possible = jnp.array(True)
        for name, site in sites.items():
            if site["type"] == "sample" and (site["is_observed"] or name in self.exact):
                possible &= jnp.all(in_support(site["fn"], site["value"]))
        return jnp.where(possible, log_p, -jnp.inf)

    def beside(self, position: Position, exact: Theta, new: Theta) -> Position:
        """The position that keeps theta2 on its own scale where theta1 becomes ``new``.

        The same vector stands for another theta2 where a support depends on theta1; not finite
        where theta2 lies outside of the new support.
        """
        if not self._follows_exact:
            return position
        theta = self.constrain(position, exact)
        return self.unconstrain({**theta, **new})

    @_one_thread_at_a_time
    def sample(self, key: KeyArray) -> Theta:
        """One draw of theta, deterministic sites included."""
        sites = handlers.trace(handlers.seed(self._model, key)).get_trace()
        return {
            name: site["value"]
            for name, site in sites.items()
            if name in self.shapes or site["type"] == "deterministic"
        }

    @_one_thread_at_a_time
    def completed(self, theta: HostTheta) -> Theta:
        """The user's theta as float64 arrays of the right shapes, deterministic sites added."""
        missing = set(self.shapes) - set(theta)
        if missing:
            raise ModelError(f"theta lacks {sorted(missing)}; it has {sorted(theta)}")
        given = {name: jnp.asarray(theta[name], float) for name in self.shapes}
        for name, value in given.items():
            if value.shape != self.shapes[name]:
                wanted = self.shapes[name]
                raise ModelError(f"theta[{name!r}] has shape {value.shape}, the prior has {wanted}")
        sites = self.sites(given)
        derived = {name: sites[name]["value"] for name in self.deterministic}
        for name in self.fixed:
            if name in theta and not np.array_equal(theta[name], derived[name]):
                raise ModelError(
                    f"theta[{name!r}] is fixed at {derived[name]} by the prior, got {theta[name]}; "
                    "leave it out"
                )
        return given | derived

    @_one_thread_at_a_time
    def sites(self, theta: HostTheta) -> dict[str, Site]:
        """NumPyro's record of every site at theta (values of all latent sites, on their scale)."""
        return handlers.trace(handlers.substitute(self._model, data=theta)).get_trace()

    def split(self, theta: Theta) -> tuple[Position, Theta]:
        """theta as (unconstrained vector of the free sites, dict of the exact ones)."""
        return self.unconstrain(theta), {name: theta[name] for name in self.exact}
