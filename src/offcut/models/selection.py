"""Selection: a draw from the base is recorded with a probability, which theta may govern."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from offcut.models.rejection import Proposed, RejectionModel
from offcut.models.truncation import Base, checked_base, sample_base
from offcut.prior import Theta


class Selected(RejectionModel):
    """The model that ``offcut.selected`` makes; the base is sampled as a batch."""

    def __init__(
        self, prior: Any, base: Base, log_accept: Callable[..., jax.Array], **options: Any
    ) -> None:
        self.base = checked_base(base)
        super().__init__(
            prior,
            propose=lambda key, theta, *c: self.base(theta, *c).sample(key),
            log_proposal=lambda theta, y, *c: self.base(theta, *c).log_prob(y),
            log_accept=log_accept,
            **options,
        )

    def propose_block(self, key: jax.Array, theta: Theta, size: int) -> Proposed:
        """Base draws as one batch."""
        key_point, key_accept = jax.random.split(key)
        points = sample_base(key_point, self.base(theta), size)
        log_accept = jax.vmap(self.log_accept, (None, 0))(theta, points)
        uniform = jax.random.uniform(key_accept, (size,))
        return Proposed(points, uniform < jnp.exp(log_accept), log_accept)


def selected(
    prior: Mapping[str, dist.Distribution] | Callable[[], Any],
    base: Base,
    log_accept: Callable[..., jax.Array],
    *,
    log_reject: Callable[..., jax.Array] | None = None,
    exact_updates: Any = None,
) -> RejectionModel:
    """Any distribution, each draw recorded with probability ``exp(log_accept(theta, y))``.

    Parameters
    ----------
    prior, base, exact_updates
        As in ``truncated``.
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
    return Selected(prior, base, log_accept, log_reject=log_reject, exact_updates=exact_updates)
