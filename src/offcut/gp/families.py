"""What is known of a NumPyro distribution's support: that it is kept to, and its limits."""

from __future__ import annotations

from copy import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform


def validated(distribution: Any) -> Any:
    """The distribution, zero outside its support whatever NumPyro's validation is set to.

    Without validation (``validate_args=False``, ``numpyro.enable_validation(False)``,
    ``python -O``) ``log_prob`` knows no support. It is turned on in a copy, parts of mixtures and
    of transformed distributions included.
    """
    own = copy(distribution)
    own._validate_args = True
    for name, value in list(vars(own).items()):
        if isinstance(value, dist.Distribution):
            vars(own)[name] = validated(value)
        elif isinstance(value, list | tuple) and any(
            isinstance(part, dist.Distribution) for part in value
        ):
            vars(own)[name] = type(value)(
                validated(part) if isinstance(part, dist.Distribution) else part for part in value
            )
    return own


def limits_of(distribution: Any, d: int) -> tuple[Any, Any]:
    """Lower and upper limits (d,) of the support, infinite where there are none or none known.

    They may depend on parameters, and be differentiated in them.
    """
    low, high = _limits(distribution)
    return jnp.broadcast_to(low, (d,)), jnp.broadcast_to(high, (d,))


def _limits(distribution: Any) -> tuple[Any, Any]:
    wrapped = dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution
    if isinstance(distribution, wrapped):
        return _limits(distribution.base_dist)
    if type(distribution) is dist.TransformedDistribution:
        # NumPyro takes an affine transform for one of all real numbers, whatever it is applied to.
        ends = _limits(distribution.base_dist)
        for transform in distribution.transforms:
            affine = isinstance(transform, AffineTransform)
            ends = _moved(transform, *ends) if affine else _bounds(transform.codomain)
        return ends
    return _bounds(getattr(distribution, "support", None))


def _bounds(constraint: Any) -> tuple[Any, Any]:
    """Of a constraint that is an interval; otherwise infinite."""
    while isinstance(constraint, constraints.independent):
        constraint = constraint.base_constraint
    return getattr(constraint, "lower_bound", -np.inf), getattr(constraint, "upper_bound", np.inf)


def _moved(transform: AffineTransform, low: Any, high: Any) -> tuple[Any, Any]:
    """Limits after a transform, whose scale may have either sign."""

    def at(end: Any) -> Any:  # the derivative at infinity would be 0 times infinity
        infinite = jnp.isinf(end)
        finite = transform(jnp.where(infinite, 0.0, end))
        return jnp.where(infinite, jnp.sign(transform.scale) * end, finite)

    first, second = at(low), at(high)
    return jnp.minimum(first, second), jnp.maximum(first, second)
