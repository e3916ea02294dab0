"""First values for what is hidden: possible ones, or the chain would start where no data can be.

What was written down for a hidden value need not be one: 0 for a non-detect of something positive,
a limit that lies outside of the window. A recorded value that the model can have produced is
taken; else places around it are tried, the widest way off first, and then proposals of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from offcut.augmentation.hidden import (
    FEWEST,
    Flat,
    Vector,
    log_possible,
    recorded_shape,
    spread,
    zones_of,
)
from offcut.errors import StartError
from offcut.models.data import Covariates, Hidden, HostPoints, Parts, Whole, pad_rows
from offcut.models.prior import Theta
from offcut.models.recording import Clamped, in_zones
from offcut.models.rejection import RejectionModel
from offcut.numerics.arrays import bucket
from offcut.numerics.keys import from_seed
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point, Points

#: Draws of theta from the prior at which a value may be possible.
THETAS = 16
#: Distances from the recorded value, as powers of two of the data's scale, and tries at each.
POWERS, TRIES = tuple(range(6, -30, -1)), 16
#: Proposals for a value.
PROPOSALS = 512


def with_possible_values(
    model: RejectionModel, points: HostPoints, hidden: Hidden, covariates: Covariates
) -> HostPoints:
    """The points with possible values in place of what is hidden; an error where there are none."""
    key = from_seed(0)
    scale = spread(points, jax.tree.leaves(points)[0].shape[0])
    for kind in hidden:
        if kind is None:
            continue
        count = int(kind.count)
        rows = kind.rows[:count]
        is_possible = model.compiled("is possible", _is_possible(model), quick=True)
        given = jax.tree.map(lambda a, rows=rows: a[rows], (points, covariates))
        padded = pad_rows(given, bucket(count, FEWEST))
        wanted = np.flatnonzero(~np.asarray(is_possible(key, *padded))[:count])
        if not wanted.size:
            continue
        known = jax.tree.map(lambda a, count=count: a[:count], kind[:-2])
        facts, given = jax.tree.map(lambda a, wanted=wanted: a[wanted], (known, given))
        search = model.compiled(("possible values", type(kind)), _search(model, type(kind)), True)
        found, good = search(key, scale, facts, *given)
        if not np.all(good):
            raise no_room(model, points, kind, wanted[~np.asarray(good)])
        points = jax.tree.map(lambda a, b, at=rows[wanted]: _put(a, at, b), points, found)
    return points


def _put(
    a: Shaped[np.ndarray, "n ..."], rows: Int[np.ndarray, " m"], values: Shaped[Array, "m ..."]
) -> Shaped[np.ndarray, "n ..."]:
    copy = np.array(a)
    copy[rows] = values
    return copy


def _thetas(model: RejectionModel, key: KeyArray) -> Theta:
    return jax.vmap(model.prior.sample)(jax.random.split(key, THETAS))


def _is_possible(model: RejectionModel) -> Callable[..., Bool[Array, " m"]]:
    """For each point whether it is possible at one theta at least."""

    def of(key: KeyArray, points: Points, covariates: Covariates) -> Bool[Array, " m"]:
        def at(theta: Theta, point: Point, covariate: tuple[Point, ...]) -> Bool[Array, ""]:
            return log_possible(model, theta, point, *covariate) > -jnp.inf

        over_points = jax.vmap(at, (None, 0, 0))
        over_thetas = jax.vmap(over_points, (0, None, None))
        return jnp.any(over_thetas(_thetas(model, key), points, covariates), axis=0)

    return of


def _search(model: RejectionModel, kind: type) -> Callable[..., tuple[Points, Bool[Array, " m"]]]:
    """For each row a possible point that agrees with what is known, and whether one was found."""

    def of(
        key: KeyArray,
        scale: Vector,
        facts: tuple[Shaped[Array, "m ..."], ...],
        points: Points,
        covariates: Covariates,
    ) -> tuple[Points, Bool[Array, " m"]]:
        one = jax.tree.map(lambda a: a[0], points)
        flat, thetas = Flat(one), _thetas(model, key)
        zones = zones_of(model, recorded_shape(model.recorded(one)))
        steps = jnp.repeat(2.0 ** jnp.asarray(POWERS, float), TRIES)

        def for_row(row: PyTree) -> tuple[Point, Bool[Array, ""]]:
            (index, *known), present, covariate = row
            here = flat.vector(present)
            key_near, key_far = jax.random.split(jax.random.fold_in(key, index))

            def theta_of(turn: Int[Array, ""]) -> Theta:
                return jax.tree.map(lambda a: a[turn % THETAS], thetas)

            def fate(vector: Vector, turn: Int[Array, ""]) -> tuple[Vector, Bool[Array, ""]]:
                vector = jnp.where(jnp.asarray(flat.discrete), jnp.round(vector), vector)
                if kind is Parts:
                    free, low, high = known
                    vector = jnp.where(free, vector, here)
                    fine = jnp.all((vector >= low) & (vector <= high))
                point = flat.point(vector)
                if kind is Whole:
                    (zone,) = known
                    fine = in_zones(zones, model.recorded(point), *covariate)[zone]
                fine &= log_possible(model, theta_of(turn), point, *covariate) > -jnp.inf
                return vector, fine & flat.is_point(vector)

            def propose(key: KeyArray, turn: Int[Array, ""]) -> Vector:
                return flat.vector(model.propose(key, theta_of(turn), *covariate))

            away = jax.random.normal(key_near, (steps.size, flat.size))
            near = here[None] + steps[:, None] * scale[None] * away
            turns = jnp.arange(PROPOSALS)
            far = jax.vmap(propose)(jax.random.split(key_far, PROPOSALS), turns)
            vectors, fine = jax.vmap(fate)(
                jnp.concatenate([near, far]), jnp.append(jnp.arange(steps.size), turns)
            )
            return flat.point(vectors[jnp.argmax(fine)]), jnp.any(fine)

        return jax.lax.map(for_row, (facts, points, covariates))

    return of


def no_room(
    model: RejectionModel,
    points: Points | HostPoints,
    kind: Whole | Parts,
    members: Int[np.ndarray, " m"],
    columns: Int[np.ndarray, " d"] | None = None,
    tried: str = "",
) -> StartError:
    """The error for members of ``kind`` that can be nothing but what was recorded, if that.

    ``columns`` are the coordinates at fault, where they are known.
    """
    rows = np.asarray(kind.rows)[members]
    places = []
    if isinstance(kind, Whole):
        zone = np.asarray(kind.zone)[members]
        for number in np.unique(zone):
            first = rows[zone == number][0]
            places.append(
                f"{(zone == number).sum()} in {_zone_name(model, int(number))}, the first at "
                f"index {first} (value {_value(model, points, first)})"
            )
    else:
        where = "" if columns is None else f" (coordinate {', '.join(map(str, columns))})"
        places.append(
            f"{rows.size} in parts{where}, the first at index {rows[0]} (value "
            f"{_value(model, points, rows[0])})"
        )
    return StartError(
        f"{rows.size} observations of which something is hidden cannot be drawn: "
        f"{'; '.join(places)}. {tried}No value is possible there but what was recorded, if that "
        "is. Values in a zone are recorded (as the limit), so the window must include the zone: "
        "with values above 10 written as 10 and those below 0 lost, the window is x > 0 and not "
        "0 < x < 10; and the base must be able to produce them"
    )


def _value(model: RejectionModel, points: Points | HostPoints, row: int | np.integer) -> str:
    return shown(model.recorded(jax.tree.map(lambda a: np.asarray(a[row]), points)))


def _zone_name(model: RejectionModel, number: int) -> str:
    if isinstance(model.censored, Clamped):
        side = ("below", "above")[number]
        limit = (model.censored.lower, model.censored.upper)[number]
        return f"the zone {side} {'its limit' if callable(limit) else limit}"
    return f"zone {number} of censored="
