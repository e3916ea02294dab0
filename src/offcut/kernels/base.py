"""What kernels share: checks of their settings, where an untuned one starts, and the score.

The score is that of the density where a move begins, which gradient kernels have computed anyway.
At stationarity the pair (position before the move, fresh Y) is a draw from their joint posterior,
and there the score tells how much of the information is missing
(``offcut.result.missing_information``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real
from typing import ClassVar, Self

import jax
import jax.numpy as jnp

from offcut.base import Kernel, Stats
from offcut.errors import SettingsError
from offcut.kernels.tuning import Tuning, first_tuning
from offcut.methods import Method


def check_positive(name: str, value: object, whole: bool = False) -> None:
    """Refuse a tuning constant that cannot be one."""
    if value is None:
        return
    kind = Integral if whole else Real
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 < float(value) < math.inf:
        wanted = "a positive whole number" if whole else "a positive number"
        raise SettingsError(f"{name} must be {wanted}, got {value!r}")


def check_target(value: object) -> None:
    """Refuse a target acceptance rate outside (0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise SettingsError(f"target_acceptance must lie between 0 and 1, got {value!r}")


#: Random walks learn a full covariance up to this many parameters.
MOST_DENSE = 40


class GradientKernel(Kernel):
    """A kernel with a ``step_size``: the user's as it is, else learnt with a diagonal metric."""

    step_size: float | None

    @property
    def adapts(self) -> bool:
        """Whether warm-up tunes this kernel."""
        return self.step_size is None

    def first_tuning(self, points: int, size: int) -> Tuning:
        """The user's step as it is, or one on the scale of a regular model with such points."""
        if self.step_size is not None:
            return first_tuning(size, self.step_size)
        return first_tuning(size, 1.0, variance=1.0 / max(points, 1))


class WalkKernel(Kernel):
    """A kernel with a ``scale``: the user's as it is, else learnt with the posterior covariance.

    A random walk does not know the direction of a ridge unless it is told: up to MOST_DENSE
    parameters it learns all covariances, beyond that variances only. It is a frozen dataclass with
    fields ``scale`` and ``target_acceptance``.
    """

    kind: ClassVar[str] = "walk"
    scale: float | None

    def on(self, method: Method) -> Self:
        """With the target acceptance of the method, where the user gave none."""
        if self.target_acceptance is not None or not self.adapts:
            return self
        return replace(self, target_acceptance=method.target_acceptance)  # type: ignore[type-var]

    def propose(self, key: jax.Array, position: jax.Array, tuning: Tuning) -> jax.Array:
        """A normal step, scaled by what warm-up has learnt."""
        noise = jax.random.normal(key, position.shape)
        if tuning.inverse_mass.ndim == 2:
            return position + tuning.step_size * (jnp.linalg.cholesky(tuning.inverse_mass) @ noise)
        return position + tuning.step_size * jnp.sqrt(tuning.inverse_mass) * noise

    @property
    def adapts(self) -> bool:
        """Whether warm-up tunes this kernel."""
        return self.scale is None

    def first_tuning(self, points: int, size: int) -> Tuning:
        """The user's scale as it is, or 2.4/sqrt(d) times the scale of a regular model."""
        if self.scale is not None:
            return first_tuning(size, self.scale)
        scale = 2.4 / max(size, 1) ** 0.5
        return first_tuning(size, scale, 1.0 / max(points, 1), dense=size <= MOST_DENSE)


#: Beyond this dimension the score is not kept: two vectors a draw, and d^2 moments from few draws.
MOST_DIMENSIONS = 100


def score_at(position: jax.Array, gradient: jax.Array) -> Stats:
    """The statistics ``position`` and ``gradient``; none where there are too many dimensions.

    They are helpers: the result keeps what was made of them, and drops them.
    """
    if position.shape[0] > MOST_DIMENSIONS:
        return {}
    return {"position": position, "gradient": gradient}
