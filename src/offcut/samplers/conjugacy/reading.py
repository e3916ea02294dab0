"""Read a model: the family of its base and of each prior, with their parameters as monomials.

Whether filter and measurement error use theta is judged by what they compute, not by values. There
is a second opinion on what was found, the same function with numbers for theta: the rules are exact
as long as JAX's operations mean what they meant when the rules were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel
from offcut.models.support import log_prob
from offcut.numerics.keys import from_seed
from offcut.programs.identity import reached
from offcut.samplers.conjugacy.contract import Unmatched
from offcut.samplers.conjugacy.monomials import (
    CONSTANT,
    OTHER,
    Elements,
    Monomials,
    constants,
    interpret,
    other,
)


def use_of_theta_beside_the_base(model: RejectionModel, covariates: tuple) -> str | None:
    """What else in the density of X and Y is computed from a latent site, in words."""
    theta = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in model.prior.shapes.items()}
    covariate = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), covariates)
    source = model.source

    def propose(theta: Theta, covariate: tuple) -> Any:
        return model.propose(from_seed(0), model.prior.completed(theta), *covariate)

    point = jax.eval_shape(propose, theta, covariate)

    def log_noise(theta: Theta, point: Any, *covariate: Any) -> jax.Array:
        noise = source.noise(theta, source.true(point), *covariate)
        return log_prob(noise, source.recorded(point))

    def uses_theta(function: Callable[..., Any] | None) -> bool:
        if function is None:
            return False

        def traced(theta: Theta, point: Any, covariate: tuple) -> Any:
            return function(model.prior.completed(theta), point, *covariate)

        closed = jax.make_jaxpr(traced)(theta, point, covariate)
        rest = len(closed.jaxpr.invars) - len(theta)
        return any(reached(closed.jaxpr, [True] * len(theta) + [False] * rest))

    if uses_theta(model.log_accept) or uses_theta(model.log_reject):
        return "the probability of being recorded depends on parameters"
    if source.noise is not None and uses_theta(log_noise):
        return "the measurement error depends on parameters"
    return None


class Trace(NamedTuple):
    """A function of theta and a covariate, and what its outputs are claimed to be."""

    closed: Any
    covariate: list[Any]  # shapes and types
    outputs: list[Monomials]


def verify(elements: Elements, trace: Trace) -> None:
    """Refuse what does not hold at a theta and a covariate drawn at random."""
    rng = np.random.default_rng(0)
    theta = {}
    table = np.full(len(elements.positive) + 1, np.nan)
    table[CONSTANT] = 1.0  # the last entry
    for (site, form), layout in elements.layouts.items():
        if form == "itself":
            table[layout] = rng.uniform(0.2, 0.8, layout.shape)
            if layout.ndim == 2:  # so that a symmetric one is positive definite
                table[np.diagonal(layout)] += len(layout)
            theta[site] = table[layout]
    for (site, form), layout in elements.layouts.items():
        if form == "cholesky":
            lower = layout >= 0
            table[layout[lower]] = np.linalg.cholesky(theta[site])[lower]
    sites = [jnp.asarray(theta[name]) for name in sorted(theta)]
    covariate = [jnp.asarray(rng.uniform(1, 9, c.shape), c.dtype) for c in trace.covariate]
    values = interpret(elements, trace.closed, [*sites, *covariate])
    for claimed, value in zip(trace.outputs, values, strict=True):
        known = claimed.element != OTHER
        element = np.where(known, claimed.element, CONSTANT)
        expected = claimed.coefficient * table[element] ** claimed.exponent
        if not np.allclose(expected[known], np.asarray(value, float)[known], rtol=1e-9, atol=0):
            raise Unmatched(
                "what was read from prior and base does not agree with their values; this is a "
                "bug in Offcut, please report it"
            )


#: Families whose entries are independent given parameters of the same shape.
_ENTRYWISE = {
    "BernoulliProbs": ("probs",),
    "Beta": ("concentration1", "concentration0"),
    "BinomialProbs": ("probs", "total_count"),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "GeometricProbs": ("probs",),
    "HalfNormal": ("scale",),
    "InverseGamma": ("concentration", "rate"),
    "Laplace": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "Normal": ("loc", "scale"),
    "Pareto": ("scale", "alpha"),
    "Poisson": ("rate",),
    "Uniform": ("low", "high"),
    "Weibull": ("scale", "concentration"),
}
_MATRIX = {
    "InverseWishart": ("concentration", "scale_tril"),
    "Wishart": ("concentration", "scale_tril"),
}
_POSITIVE = {"Beta", "Exponential", "Gamma", "HalfNormal", "InverseGamma", "LogNormal"}
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)
#: Only these very classes: a subclass may have another density.
_KINDS = {
    getattr(dist, name): name
    for name in (*_ENTRYWISE, *_MATRIX, "MultivariateNormal")
    if hasattr(dist, name)
}


class Family(NamedTuple):
    """A distribution: its kind by NumPyro's name, the shape of a draw, and its parameters."""

    kind: str
    shape: tuple[int, ...]
    parameters: dict[str, Monomials]

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a parameter that does not depend on theta."""
        parameter = self.parameters[name]
        return parameter.coefficient if (parameter.element == CONSTANT).all() else None


class Power(NamedTuple):
    """coefficient * site ** exponent, entry by entry, or the same of the site's Cholesky factor."""

    site: str
    form: str
    exponent: float
    coefficient: np.ndarray


class Reading(NamedTuple):
    """A model as far as conjugacy is concerned, and the trace that it was read from."""

    base: Family
    priors: dict[str, Family]
    elements: Elements
    trace: Trace

    def power_of(self, parameter: Monomials) -> Power | None:
        """The site that a parameter is a power of, all of it and in its own order."""
        for (site, form), layout in self.elements.layouts.items():
            # Above its diagonal a Cholesky factor is 0, and CONSTANT.
            wanted = np.where(layout < 0, CONSTANT, layout)
            if np.array_equal(wanted, parameter.element):
                used = layout >= 0
                zero_elsewhere = (parameter.coefficient[~used] == 0).all()
                exponents = parameter.exponent[used]
                if zero_elsewhere and (exponents == exponents[0]).all():
                    first = parameter.coefficient[used][0]
                    coefficient = np.where(used, parameter.coefficient, first)
                    return Power(site, form, round(float(exponents[0]), 12), coefficient)
        return None


def read(model: RejectionModel, covariates: tuple) -> Reading:
    """Trace base and prior once, and interpret what came out."""
    kinds: dict[str | None, tuple[str, tuple[int, ...]]] = {}  # None is the base

    def describe(theta: Theta, covariate: tuple) -> tuple:
        sites = model.prior.sites(theta)
        for name, site in sites.items():
            if site["type"] == "sample" and site["scale"] is not None:
                raise Unmatched(f"the density of {name!r} is scaled by a NumPyro handler")
        distributions = {name: sites[name]["fn"] for name in theta}
        whole = {**theta, **{name: sites[name]["value"] for name in model.prior.deterministic}}
        base = model.base(whole, *covariate)  # type: ignore[attr-defined]
        kinds[None], parameters = _unwrapped(base)
        priors = {}
        for name, distribution in distributions.items():
            kinds[name], priors[name] = _unwrapped(distribution)
            if kinds[name][1] != theta[name].shape:
                raise Unmatched(f"{name!r} is several draws of its prior, by sample_shape")
        return parameters, priors

    theta = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in model.prior.shapes.items()}
    covariate = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), covariates)
    closed, shapes = jax.make_jaxpr(describe, return_shape=True)(theta, covariate)

    elements = Elements()
    inputs = [
        elements.add(
            name, theta[name].shape, kinds[name][0] in _POSITIVE, kinds[name][0] in _MATRIX
        )
        for name in sorted(theta)
    ]
    inputs += [other(leaf.shape) for leaf in jax.tree.leaves(covariate)]
    outputs = [
        value if isinstance(value, Monomials) else constants(np.asarray(value, float))
        for value in interpret(elements, closed, inputs)
    ]
    base, priors = jax.tree.unflatten(jax.tree.structure(shapes), outputs)
    return Reading(
        Family(*kinds[None], base),
        {name: Family(*kinds[name], priors[name]) for name in theta},
        elements,
        Trace(closed, jax.tree.leaves(covariate), outputs),
    )


def _unwrapped(distribution: dist.Distribution) -> tuple[tuple[str, tuple[int, ...]], dict]:
    """Kind and shape, and the parameters; independent and repeated entries are told by the shape.

    A mask, a truncation, a transformation or an unknown family keeps its own name and gives no
    parameters, so that no conjugate family can take it for its own.
    """
    shape = (*distribution.batch_shape, *distribution.event_shape)
    core: Any = distribution
    while type(core) in _WRAPPERS:
        core = core.base_dist
    kind = _KINDS.get(type(core), f"{type(core).__name__} (not a family known here)")
    parameters: dict[str, Any] = {}
    if kind in _ENTRYWISE:
        values = {name: jnp.asarray(getattr(core, name)) for name in _ENTRYWISE[kind]}
        parameters = {name: jnp.broadcast_to(value, shape) for name, value in values.items()}
    elif core is not distribution or distribution.batch_shape:
        kind = f"a batch of {kind}"
    elif kind == "MultivariateNormal":
        given = [name for name in ("covariance_matrix", "precision_matrix") if name in vars(core)]
        matrix = given[0] if given else "scale_tril"
        parameters = {"loc": jnp.broadcast_to(core.loc, shape), matrix: getattr(core, matrix)}
    elif kind in _MATRIX:
        parameters = {name: jnp.asarray(getattr(core, name)) for name in _MATRIX[kind]}
    return (kind, shape), parameters
