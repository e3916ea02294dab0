"""Log densities that know their support, whether NumPyro validates or not.

NumPyro's families compute a formula: without validation (``validate_args=False``,
``numpyro.enable_validation(False)``, ``python -O``) that of Uniform(0, 1) is 0 everywhere. Here
what lies outside of the support at theta has density zero, always.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Shaped
from numpyro.distributions import constraints

#: A value of a distribution, or a batch of them.
Value = Shaped[Array, "..."] | np.ndarray | float
_WHOLE = (constraints.real, constraints.real_vector, constraints.real_matrix)


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
