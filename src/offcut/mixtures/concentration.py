"""The concentration of a Dirichlet process: a number, or a prior on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from offcut.errors import ModelError
from offcut.slice_sampling import slice_sample
from offcut.support import in_support, log_prob


class Concentration:
    """alpha: fixed, or with a prior (a NumPyro distribution on the positive numbers)."""

    def __init__(self, value: Any, name: str = "alpha") -> None:
        self.learned = isinstance(value, dist.Distribution)
        self.prior = value if self.learned else None
        if self.learned:
            if value.batch_shape or value.event_shape or _negative(value):
                raise ModelError(
                    f"{name} needs a prior on one positive number, e.g. dist.Gamma(2, 2), got "
                    f"{type(value).__name__} on {value.support}"
                )
            self.fixed = float("nan")
            return
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or not 0 < float(value) < np.inf:
            raise ModelError(
                f"{name} must be a positive number, or a prior such as dist.Gamma(2, 2), got "
                f"{value!r}"
            )
        self.fixed = float(value)

    def first(self, key: jax.Array) -> jax.Array:
        """A value to start from."""
        drawn = self.from_prior(key)
        if self.prior is None:
            return drawn
        moderate = jnp.clip(drawn, 1e-3, 1e3)
        return jnp.where(in_support(self.prior, moderate), moderate, drawn)

    def from_prior(self, key: jax.Array) -> jax.Array:
        """A draw from the prior, or the fixed value."""
        if self.prior is None:
            return jnp.asarray(self.fixed)
        return self.prior.sample(key).astype(float)

    def update(
        self, key: jax.Array, value: jax.Array, log_likelihood: Callable[[jax.Array], jax.Array]
    ) -> jax.Array:
        """Slice-sample log alpha given what it explains."""
        prior = self.prior
        if prior is None:
            return value

        def log_density(log_value: jax.Array) -> jax.Array:
            inside = jnp.abs(log_value) < LARGEST
            alpha = jnp.exp(jnp.clip(log_value[0], -LARGEST, LARGEST))
            log_p = log_prob(prior, alpha) + jnp.log(alpha) + log_likelihood(alpha)
            return jnp.where(inside & ~jnp.isnan(log_p), log_p[None], -jnp.inf)

        start = jnp.log(value)[None]
        moved = slice_sample(key, log_density, start, -LARGEST, LARGEST, 1.0, jnp.array([True]))
        return jnp.exp(moved[0])

    def _named(self) -> dict[str, float]:
        """Parameters of the prior."""
        names = [n for n in self.prior.arg_constraints if hasattr(self.prior, n)]  # type: ignore[union-attr]
        return {n: float(getattr(self.prior, n)) for n in names}

    def __repr__(self) -> str:
        if self.prior is None:
            return f"{self.fixed:g}"
        values = ", ".join(f"{name}={value:g}" for name, value in self._named().items())
        return f"{type(self.prior).__name__}({values})"


#: log alpha stays within these; nobody's prior reaches beyond.
LARGEST = 50.0


def _negative(prior: Any) -> bool:
    """Whether the prior allows a negative number."""
    return bool(np.all(prior.support(-1.0))) or bool(np.all(prior.support(-1e-3)))
