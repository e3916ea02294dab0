"""log p(X, Y | theta), summed in fixed chunks over the points that are there.

A masked sum over a padded buffer would change its bits with the buffer's capacity and cost as much
as the padding. Here a loop adds chunks of fixed size, as many as |Y| needs; value and gradient
come out of one pass, and a custom derivative hands the gradient to HMC and NUTS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.rejections import Layout, Rejected
from offcut.models.data import Observed
from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel


def log_joint(model: RejectionModel, layout: Layout) -> Callable[..., jax.Array]:
    """``f(theta, observed, rejected) -> log p(X, Y | theta)``, differentiable in theta.

    Where ``rejected`` is None the sum goes over X alone.
    """

    def value_and_gradient(
        smooth: Theta, fixed: Theta, observed: Observed, rejected: Rejected | None
    ) -> tuple:
        first_x = jax.tree.map(lambda a: a[0], observed.points)

        def observed_point(smooth: Theta, x: Any, *covariate: Any) -> jax.Array:
            return model.log_observed({**smooth, **fixed}, x, *covariate)

        def rejected_point(smooth: Theta, y: Any, owner: Any) -> jax.Array:
            theta = {**smooth, **fixed}
            if not layout.has_covariates:
                return model.log_rejected(theta, y, first_x)
            own_x = jax.tree.map(lambda a: a[owner], observed.points)
            covariate = jax.tree.map(lambda a: a[owner], observed.covariates)
            return model.log_rejected(theta, y, own_x, *covariate)

        over_x = _chunked_sum(
            observed_point, smooth, (observed.points, *observed.covariates), layout.n, layout.chunk
        )
        if rejected is None:
            return over_x
        over_y = _chunked_sum(
            rejected_point,
            smooth,
            (rejected.points, rejected.owner),
            rejected.count,
            layout.chunk,
            offset=rejected.offset,
        )
        return jax.tree.map(jnp.add, over_x, over_y)

    @jax.custom_vjp
    def joint(
        smooth: Theta, fixed: Theta, observed: Observed, rejected: Rejected | None
    ) -> jax.Array:
        return value_and_gradient(smooth, fixed, observed, rejected)[0]

    def backward(gradient: Theta, cotangent: jax.Array) -> tuple:
        return jax.tree.map(lambda g: g * cotangent, gradient), None, None, None

    joint.defvjp(value_and_gradient, backward)

    def of_theta(theta: Theta, observed: Observed, rejected: Rejected | None) -> jax.Array:
        # Deterministic sites may be whole numbers or flags, which have no gradient.
        smooth = {k: v for k, v in theta.items() if jnp.issubdtype(jnp.result_type(v), jnp.inexact)}
        fixed = {k: v for k, v in theta.items() if k not in smooth}
        return joint(smooth, fixed, observed, rejected)

    return of_theta


def log_unnormalised(model: RejectionModel, layout: Layout) -> Callable[..., jax.Array]:
    """``f(theta, points, covariates) -> sum of log q + log a`` over n points (no gradient)."""

    def over(theta: Theta, points: Any, covariates: tuple) -> jax.Array:
        def one(theta: Theta, x: Any, *covariate: Any) -> jax.Array:
            return model.log_observed(theta, x, *covariate)

        return _chunked_sum(
            one, theta, (points, *covariates), layout.n, layout.chunk, gradient=False
        )

    return over


def total(
    statistic: Callable[[Any], Any], observed: Observed, rejected: Rejected, layout: Layout
) -> Any:
    """The sum of a pytree ``statistic(point)`` over X and Y, in the same fixed chunks."""

    def of_row(_: Theta, point: Any) -> Any:
        return statistic(point)

    over_x = _chunked_sum(of_row, {}, (observed.points,), layout.n, layout.chunk, gradient=False)
    over_y = _chunked_sum(
        of_row,
        {},
        (rejected.points,),
        rejected.count,
        layout.chunk,
        gradient=False,
        offset=rejected.offset,
    )
    return jax.tree.map(jnp.add, over_x, over_y)


def _chunked_sum(
    point: Callable[..., Any],
    theta: Theta,
    rows: tuple,
    count: jax.Array | int,
    chunk: int,
    gradient: bool = True,
    offset: jax.Array | int = 0,
) -> Any:
    """Sum of ``point(theta, *row)`` over ``count`` rows from ``offset``, with its gradient.

    Rows behind the last are replaced by the first before anything is computed, so that neither
    values nor derivatives of leftovers can spoil the sum.
    """
    first = jax.tree.map(lambda a: a[offset], rows)

    def chunk_sum(theta: Theta, start: jax.Array) -> Any:
        used = start + jnp.arange(chunk, dtype=jnp.int32) < count

        def add_used(values: jax.Array) -> jax.Array:
            mask = used.reshape(-1, *[1] * (values.ndim - 1))
            return jnp.sum(jnp.where(mask, values, 0.0), axis=0)

        def take(a: jax.Array, spare: jax.Array) -> jax.Array:
            part = lax.dynamic_slice_in_dim(a, offset + start, chunk)
            return jnp.where(used.reshape(-1, *[1] * (part.ndim - 1)), part, spare)

        part = jax.tree.map(take, rows, first)
        values = jax.vmap(point, (None, *[0] * len(rows)))(theta, *part)
        return jax.tree.map(add_used, values)

    evaluate = jax.value_and_grad(chunk_sum) if gradient else chunk_sum

    def add_chunk(carry: tuple) -> tuple:
        trip, total = carry
        return trip + 1, jax.tree.map(jnp.add, total, evaluate(theta, trip * chunk))

    shapes = jax.eval_shape(evaluate, theta, jnp.int32(0))
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    # Trips are counted by one: of `start < 1; start += chunk` XLA (jaxlib 0.10.2) makes no trip.
    trips = (count + chunk - 1) // chunk
    return lax.while_loop(lambda carry: carry[0] < trips, add_chunk, (jnp.int32(0), zero))[1]
