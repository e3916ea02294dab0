"""log p(X, Y | theta), and sums in fixed chunks over the points that are there.

A masked sum over a padded buffer would change its bits with the buffer's capacity and cost as much
as the padding. Here a loop (``in_chunks``) adds chunks of fixed size, as many as |Y| needs; value
and gradient come out of one pass (``total``), and a custom derivative (``with_gradient``) hands the
gradient to HMC and NUTS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree, Shaped

from offcut.augmentation.rejections import Layout, Rejected
from offcut.models.data import Covariates, Observed
from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.types import Point, Points

Scalar = Float[Array, ""]
Count = int | Int[Array, ""]
#: Sums of one shape: a number, or a pytree of arrays; with a gradient, the pair.
Sums = TypeVar("Sums")
#: What a sum is differentiated in: theta, or a vector.
At = TypeVar("At", bound=PyTree[Shaped[Array, "..."]])
#: ``(theta, observed, rejected) -> log p(X, Y | theta)``.
LogJoint = Callable[[Theta, Observed, Rejected | None], Scalar]


def log_joint(
    model: RejectionModel, layout: Layout, log_observed: Callable[..., Scalar] | None = None
) -> LogJoint:
    """``f(theta, observed, rejected) -> log p(X, Y | theta)``, differentiable in theta.

    Where ``rejected`` is None the sum goes over X alone. ``log_observed(theta, x[, covariate])`` is
    the model's own, unless another is given.
    """
    of_observation = log_observed or model.log_observed

    @jax.jit  # traced once, however often a sweep asks for it
    def value_and_gradient(
        smooth: Theta, fixed: Theta, observed: Observed, rejected: Rejected | None
    ) -> tuple[Scalar, Theta]:
        first_x = jax.tree.map(lambda a: a[0], observed.points)

        def observed_point(smooth: Theta, x: Point, *covariate: Point) -> Scalar:
            return of_observation({**smooth, **fixed}, x, *covariate)

        def rejected_point(smooth: Theta, y: Point, owner: Int[Array, ""] | None) -> Scalar:
            theta = {**smooth, **fixed}
            if not layout.has_covariates:
                return model.log_rejected(theta, y, first_x)
            own_x = jax.tree.map(lambda a: a[owner], observed.points)
            covariate = jax.tree.map(lambda a: a[owner], observed.covariates)
            return model.log_rejected(theta, y, own_x, *covariate)

        over_x = total(
            observed_point,
            smooth,
            (observed.points, *observed.covariates),
            observed.n,
            layout.chunk,
        )
        if rejected is None:
            return over_x
        over_y = total(
            rejected_point,
            smooth,
            (rejected.points, rejected.owner),
            rejected.count,
            layout.chunk,
            offset=rejected.offset,
        )
        return jax.tree.map(jnp.add, over_x, over_y)

    joint = with_gradient(value_and_gradient)

    def of_theta(theta: Theta, observed: Observed, rejected: Rejected | None) -> Scalar:
        # Deterministic sites may be whole numbers or flags, which have no gradient.
        smooth = {k: v for k, v in theta.items() if jnp.issubdtype(jnp.result_type(v), jnp.inexact)}
        fixed = {k: v for k, v in theta.items() if k not in smooth}
        return joint(smooth, fixed, observed, rejected)

    return of_theta


def log_unnormalised(
    model: RejectionModel, layout: Layout
) -> Callable[[Theta, Points, Covariates, Count], Scalar]:
    """``f(theta, points, covariates, n) -> sum of log q + log a`` over n points (no gradient)."""

    def over(theta: Theta, points: Points, covariates: Covariates, n: Count) -> Scalar:
        def one(theta: Theta, x: Point, *covariate: Point) -> Scalar:
            return model.log_observed(theta, x, *covariate)

        return total(one, theta, (points, *covariates), n, layout.chunk, gradient=False)

    return over


def sum_statistics(
    statistic: Callable[[Point], Sums], observed: Observed, rejected: Rejected, layout: Layout
) -> Sums:
    """The sum of a pytree ``statistic(point)`` over X and Y, in the same fixed chunks."""

    def of_row(_: Theta, point: Point) -> Sums:
        return statistic(point)

    over_x = total(of_row, {}, (observed.points,), observed.n, layout.chunk, gradient=False)
    over_y = total(
        of_row,
        {},
        (rejected.points,),
        rejected.count,
        layout.chunk,
        gradient=False,
        offset=rejected.offset,
    )
    return jax.tree.map(jnp.add, over_x, over_y)


def total(
    of_point: Callable[..., PyTree[Shaped[Array, " ..."]]],
    theta: PyTree[Shaped[Array, " ..."]],
    rows: tuple[Points | None, ...],
    count: Count,
    chunk: int,
    gradient: bool = True,
    offset: Count = 0,
) -> PyTree[Shaped[Array, " ..."]]:
    """Sum of ``of_point(theta, *row)`` over ``count`` rows from ``offset``, with its gradient.

    Rows behind the last are replaced by the first before anything is computed, so that neither
    values nor derivatives of leftovers can spoil the sum.
    """
    first = jax.tree.map(lambda a: a[offset], rows)

    def chunk_sum(
        theta: At, rows: tuple, first: tuple, start: Count, count: Count, offset: Count
    ) -> PyTree[Shaped[Array, " ..."]]:
        used = start + jnp.arange(chunk, dtype=jnp.int32) < count

        def add_used(values: Shaped[Array, " chunk *sum"]) -> Shaped[Array, "*sum"]:
            mask = used.reshape(-1, *[1] * (values.ndim - 1))
            return jnp.sum(jnp.where(mask, values, 0.0), axis=0)

        def take(
            a: Shaped[Array, " rows *d"], spare: Shaped[Array, "*d"]
        ) -> Shaped[Array, " chunk *d"]:
            part = lax.dynamic_slice_in_dim(a, offset + start, chunk)
            return jnp.where(used.reshape(-1, *[1] * (part.ndim - 1)), part, spare)

        part = jax.tree.map(take, rows, first)
        values = jax.vmap(of_point, (None, *[0] * len(rows)))(theta, *part)
        return jax.tree.map(add_used, values)

    # Compiled functions are traced once, although this is asked for its shapes and then called.
    evaluate = jax.jit(jax.value_and_grad(chunk_sum) if gradient else chunk_sum)
    count, offset = jnp.asarray(count, jnp.int32), jnp.asarray(offset, jnp.int32)
    shapes = jax.eval_shape(evaluate, theta, rows, first, jnp.int32(0), count, offset)
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    def add(sums: Sums, start: Int[Array, ""]) -> Sums:
        return jax.tree.map(jnp.add, sums, evaluate(theta, rows, first, start, count, offset))

    return in_chunks(add, zero, count, chunk)


def in_chunks(
    add: Callable[[Sums, Int[Array, ""]], Sums], first: Sums, count: Count, chunk: int
) -> Sums:
    """Fold ``add(sums, start)`` over the chunks that begin at ``start`` < ``count``."""

    def add_chunk(carry: tuple[Int[Array, ""], Sums]) -> tuple[Int[Array, ""], Sums]:
        trip, sums = carry
        return trip + 1, add(sums, trip * chunk)

    # Trips are counted by one: of `start < 1; start += chunk` XLA (jaxlib 0.10.2) makes no trip.
    trips = (count + chunk - 1) // chunk
    return lax.while_loop(lambda carry: carry[0] < trips, add_chunk, (jnp.int32(0), first))[1]


def with_gradient(
    value_and_gradient: Callable[..., tuple[Scalar, PyTree[Shaped[Array, " ..."]]]],
) -> Callable[..., Scalar]:
    """``f(at, *rest)``, the first part of ``value_and_gradient(at, *rest)``.

    Its derivative in ``at`` is the second part; it has none in the rest.
    """

    @jax.custom_jvp
    def value(at: At, *rest: PyTree) -> Scalar:
        return value_and_gradient(at, *rest)[0]

    @value.defjvp
    def change(primals: tuple, tangents: tuple) -> tuple[Scalar, Scalar]:
        here, gradient = value_and_gradient(*primals)
        parts = jax.tree.map(jnp.vdot, gradient, tangents[0])
        return here, sum(jax.tree.leaves(parts), jnp.zeros(()))

    return value
