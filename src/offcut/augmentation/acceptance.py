"""What a rejection model must satisfy, checked where the chain is (necessary, not sufficient)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from offcut.augmentation.rejections import Layout
from offcut.errors import DataError, ModelError
from offcut.models.data import Observed, PointLike
from offcut.models.prior import HostTheta, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.rendering import shown
from offcut.numerics.types import Point, Points


class Worst(NamedTuple):
    """The largest log acceptance met, and the proposal it was met at (NaN counts as largest)."""

    log_accept: Float[Array, ""]
    point: Point


def no_worst(like: PointLike) -> Worst:
    """Nothing met yet."""
    return Worst(jnp.array(-jnp.inf), jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like))


def update_worst(worst: Worst, log_accept: Float[Array, " block"] | None, points: Points) -> Worst:
    """Fold a batch of log acceptances into the largest so far."""
    if log_accept is None:
        return worst
    place = jnp.argmax(_rank(log_accept))
    return merge_worst(worst, Worst(log_accept[place], jax.tree.map(lambda a: a[place], points)))


def merge_worst(a: Worst, b: Worst) -> Worst:
    """The worse of two."""
    new = _rank(b.log_accept) > _rank(a.log_accept)
    return jax.tree.map(lambda x, y: jnp.where(new, y, x), a, b)


def _rank(log_accept: Float[Array, "*block"]) -> Float[Array, "*block"]:
    return jnp.where(jnp.isnan(log_accept), jnp.inf, log_accept)


#: log_accept may exceed 0 by rounding, no more.
LARGEST_LOG_ACCEPT = 1e-8


def is_broken(
    log_accept: Float[Array | np.ndarray, "*n"],
) -> Bool[Array | np.ndarray, "*n"] | np.bool_:
    """Whether a log acceptance cannot be one: NaN, or above 0 by more than rounding."""
    return ~(log_accept <= LARGEST_LOG_ACCEPT)


def refuse_broken(model: RejectionModel, theta: HostTheta, worst: Worst) -> None:
    """Raise where the worst log acceptance that a finished run met is broken."""
    if is_broken(np.asarray(worst.log_accept)):
        raise broken_promise(model, theta, worst.point, float(worst.log_accept))


def broken_promise(
    model: RejectionModel, theta: HostTheta, point: PointLike, log_accept: float
) -> ModelError:
    """The error for a log_accept that is NaN or above 0, or a window that is no window."""
    place = f"theta={shown(theta)}, y={shown(point)}"
    if model.inside is not None:  # the filter is a window
        return ModelError(
            f"inside returned neither yes nor no at y={shown(point)}, but a number that is not 0 "
            "or 1 (or NaN); return a boolean, for example with a comparison. If recording is a "
            "matter of probability, use offcut.selected with log_accept, the logarithm of it"
        )
    if np.isnan(log_accept):
        return ModelError(
            f"log_accept returned NaN at {place}; it must be a number, or -inf where nothing is "
            "accepted: look for 0 * inf, log of a negative number or inf - inf there"
        )
    return ModelError(
        f"log_accept returned {log_accept:.6g} at {place}; an acceptance probability cannot "
        "exceed 1: is the bound M(theta) on f/q too small?"
    )


def not_finite(theta: HostTheta, what: str) -> ModelError:
    """The error for numbers that a float cannot hold."""
    return ModelError(
        f"{what} is not finite at theta={shown(theta)}: proposals there overflow to infinity or "
        "round to 0, or their density is NaN. Nothing was cut to what a float can hold, for the "
        "chain would not leave that place again. Keep theta from such tails by a tighter prior, "
        "or model the logarithm of the data; if there are no such tails, evaluate "
        "model.log_proposal at this theta"
    )


def log_accept_at_observations(
    model: RejectionModel, layout: Layout, theta: Theta, data: Observed
) -> Float[np.ndarray, " n"]:
    """log a(x_i, theta) for every observation."""
    program = model.compiled(
        ("log_accept", layout),
        lambda theta, data: jax.vmap(model.inside_at, (None, 0, *[0] * len(data.covariates)))(
            theta, data.points, *data.covariates
        ),
    )
    return np.asarray(program(theta, data))[: int(data.n)]


def inspect_observations(
    model: RejectionModel, layout: Layout, theta: Theta, data: Observed
) -> None:
    """Raise where log a at an observation is NaN, above 0, or -inf."""
    log_accept = log_accept_at_observations(model, layout, theta, data)

    def row(index: int | np.integer) -> PointLike:
        return jax.tree.map(lambda a: np.asarray(a[index]), data.points)

    wrong = np.flatnonzero(is_broken(log_accept))
    if wrong.size:
        raise broken_promise(model, theta, row(wrong[0]), float(log_accept[wrong[0]]))
    never = np.flatnonzero(np.isneginf(log_accept))
    if never.size:
        listed = ", ".join(f"{i} (value {shown(row(i))})" for i in never[:3])
        more = f" and {never.size - 3} more" if never.size > 3 else ""
        raise DataError(
            f"{never.size} of {int(data.n)} observations lie where the model accepts nothing "
            f"(log_accept = -inf): index {listed}{more}. The model says that such a value "
            "cannot be observed: widen the window, or remove these rows if they are errors"
            f"{_censored_hint([row(int(i)) for i in never])}"
        )


def _censored_hint(points: list[PointLike]) -> str:
    """Several impossible values that are all the same may have been written for a limit."""
    values = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(p)]) for p in points]
    if len(values) < 3 or any(len(v) != 1 or v[0] != values[0][0] for v in values):
        return ""
    return (
        f". All of them are {values[0][0]:g}: if that was written down for every value beyond it, "
        "they are censored; say censored=offcut.Clamped(...) in the model, and let the window "
        "include what lies beyond"
    )
