"""Look for a conjugate family, and say which, or why there is none.

A wrong match would give a wrong posterior, so every doubt is a NoMatch: an unknown class, an
operation that is not plain algebra, a parameter used twice or not at all. Whether filter and
measurement error use theta is decided by what they compute, not by values.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from offcut.models.filtered import Filtered, Selected, Truncated
from offcut.models.prior import Theta, log_prob
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import from_seed
from offcut.numerics.types import Point
from offcut.programs.identity import reached
from offcut.programs.precision import in_float64
from offcut.samplers.conjugacy import Match, NoMatch, Unmatched, multivariate, univariate
from offcut.samplers.conjugacy.reading import arguments_like, read, verify


def find_conjugate(model: RejectionModel, covariates: tuple) -> Match | NoMatch:
    """The conjugate update of an identified model, looked for once."""
    return model.programs.kept("conjugate", lambda: match(model, covariates))


@in_float64
def match(model: RejectionModel, covariates: tuple | None = None) -> Match | NoMatch:
    """The exact update of all parameters given X and Y, if prior and base are conjugate.

    Parameters
    ----------
    model : RejectionModel
        Made by ``offcut.truncated`` or ``offcut.selected``.
    covariates : tuple, optional
        () or (pytree with a row for each observation,), as in ``augmentation.joint.Observed``. The
        window may use them, the base may not.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro.distributions as dist, offcut
    >>> from offcut.samplers.conjugacy.match import match
    >>> model = offcut.truncated(
    ...     prior={"mean": dist.Normal(0, 1), "variance": dist.InverseGamma(3, 2)},
    ...     base=lambda theta: dist.Normal(theta["mean"], jnp.sqrt(theta["variance"])),
    ...     inside=lambda x: x > 0,
    ... )
    >>> match(model).description
    'normal: mean | variance normal, variance | mean inverse gamma'
    """
    if not isinstance(model, Filtered) or type(model) not in (Truncated, Selected):
        return NoMatch("conjugate updates are for models made by truncated or selected")
    if model.exact_updates:
        return NoMatch("the model has exact_updates of its own")
    if model.prior.has_likelihood:
        return NoMatch("the prior has factors or observed sites")
    covariates = jax.tree.map(np.asarray, () if covariates is None else tuple(covariates))
    try:
        used = use_of_theta_beside_the_base(model, covariates)
        if used is not None:
            return NoMatch(used)
        reading = read(model, covariates)
        found = univariate.find(reading) or multivariate.find(reading)
        if found is None:
            kind = reading.base.kind
            raise Unmatched(f"no conjugate update is known for a base of this kind: {kind}")
        unused = sorted(set(model.prior.shapes) - set(found.sites))
        if unused:
            names = ", ".join(map(repr, unused))
            raise Unmatched(f"{names} is not a parameter of the base by itself")
        verify(reading.elements, reading.trace)
    except jax.errors.ConcretizationTypeError:
        return NoMatch("prior or base chooses its form by the values of parameters")
    except Unmatched as unmatched:
        return NoMatch(str(unmatched))
    return found


def use_of_theta_beside_the_base(model: Filtered, covariates: tuple) -> str | None:
    """What else in the density of X and Y is computed from a latent site, in words."""
    theta, covariate = arguments_like(model, covariates)
    source, noise = model.source, model.source.noise

    def propose(theta: Theta, covariate: tuple) -> Point:
        return model.propose(from_seed(0), model.prior.completed(theta), *covariate)

    point = jax.eval_shape(propose, theta, covariate)

    def log_noise(theta: Theta, point: Point, *covariate: Point) -> jax.Array:
        assert noise is not None
        return log_prob(noise(theta, source.true(point), *covariate), source.recorded(point))

    def uses_theta(function: Callable[..., jax.Array] | None) -> bool:
        if function is None:
            return False

        def traced(theta: Theta, point: Point, covariate: tuple) -> jax.Array:
            return function(model.prior.completed(theta), point, *covariate)

        closed = jax.make_jaxpr(traced)(theta, point, covariate)
        rest = len(closed.jaxpr.invars) - len(theta)
        return any(reached(closed.jaxpr, [True] * len(theta) + [False] * rest))

    if uses_theta(model.log_accept) or uses_theta(model.log_reject):
        return "the probability of being recorded depends on parameters"
    if noise is not None and uses_theta(log_noise):
        return "the measurement error depends on parameters"
    return None
