"""Whether filter and measurement error use theta, judged by what they compute, not by values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from offcut.keys import from_seed
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.reach import reached
from offcut.support import log_prob


def use_of_theta_beside_the_base(model: RejectionModel, covariates: tuple) -> str | None:
    """What else in the density of X and Y is computed from a latent site, in words."""
    theta = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in model.prior.shapes.items()}
    covariate = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), covariates)
    source = model.source  # type: ignore[attr-defined]

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
