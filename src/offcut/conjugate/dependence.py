"""Whether filter and measurement error use theta, judged by what they compute, not by values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core

from offcut.keys import from_seed
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta


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
        return noise.log_prob(source.recorded(point))

    def uses_theta(function: Callable[..., Any] | None) -> bool:
        if function is None:
            return False

        def traced(theta: Theta, point: Any, covariate: tuple) -> Any:
            return function(model.prior.completed(theta), point, *covariate)

        closed = jax.make_jaxpr(traced)(theta, point, covariate)
        rest = len(closed.jaxpr.invars) - len(theta)
        return any(_reached(closed.jaxpr, [True] * len(theta) + [False] * rest))

    if uses_theta(model.log_accept) or uses_theta(model.log_reject):
        return "the probability of being recorded depends on parameters"
    if source.noise is not None and uses_theta(log_noise):
        return "the measurement error depends on parameters"
    return None


def _reached(jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs are computed from the marked inputs; only jit is looked into."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}

    def is_marked(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in marked

    for equation in jaxpr.eqns:
        marks = [is_marked(atom) for atom in equation.invars]
        if equation.primitive.name in ("jit", "pjit"):
            outputs = _reached(equation.params["jaxpr"].jaxpr, marks)
        else:
            outputs = [any(marks)] * len(equation.outvars)
        pairs = zip(equation.outvars, outputs, strict=True)
        marked.update(variable for variable, mark in pairs if mark)
    return [is_marked(atom) for atom in jaxpr.outvars]
