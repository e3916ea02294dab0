"""One draw of everything hidden, given theta; and the data completed by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.joint import Observed
from offcut.imputation.hidden import Hidden, clamp_of, recorded_shape, zones_of
from offcut.imputation.parts import draw_parts, hidden_columns
from offcut.imputation.possible import no_room
from offcut.imputation.whole import draw_whole, sweep_patience
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.promises import shown

#: Proposals in vain for all censored observations before a start is given up.
FIRST_PATIENCE = 2_000_000
#: An observation that was not drawn in so many sweeps in a row, or never, is said to be undrawn.
LONG_WAIT = 100
NEVER = 2**30


class Imputed(NamedTuple):
    """Present values of what is hidden: rows of points, None where there is nothing of a kind.

    ``waited`` counts for each of these rows, first whole ones, then parts, the sweeps since it was
    last drawn.
    """

    whole: Any
    parts: Any
    waited: Any


def first_imputed(data: Observed) -> Imputed | None:
    """First values: the recorded ones where they are possible."""
    hidden: Hidden | None = data.hidden
    if hidden is None:
        return None

    def rows(kind: Any) -> Any:
        return None if kind is None else jax.tree.map(lambda a: a[kind.rows], data.points)

    count = sum(kind.rows.shape[0] for kind in hidden if kind is not None)
    waited = jnp.full(count, NEVER, jnp.int32)
    return Imputed(rows(hidden.whole), rows(hidden.parts), waited)


def completed(data: Observed, imputed: Imputed | None) -> Observed:
    """The data with present values in place of what is hidden."""
    if imputed is None:
        return data
    points = data.points
    for kind, values in zip(data.hidden, imputed[:2], strict=True):
        if kind is not None:
            points = jax.tree.map(lambda a, b, kind=kind: a.at[kind.rows].set(b), points, values)
    return data._replace(points=points)


def impute(
    model: RejectionModel, key: jax.Array, theta: Theta, data: Observed, imputed: Imputed | None
) -> tuple[Imputed | None, dict[str, jax.Array]]:
    """Draw all hidden values given theta; and statistics of how it went.

    ``imputed`` is the share of censored observations drawn afresh by rejection (the others made a
    slice step), ``undrawn`` the number of observations that have neither been drawn nor moved for
    long: what they say about theta is stale.
    """
    if imputed is None:
        return None, {}
    values, moved, reached = _draw(model, key, theta, data, imputed)
    drawn = [jnp.all(kind, axis=1) for kind in moved if kind is not None]
    waited = jnp.where(jnp.concatenate(drawn), 0, jnp.minimum(imputed.waited + 1, NEVER))
    stats = {} if reached is None else {"imputed": jnp.mean(reached.astype(float))}
    stats["undrawn"] = jnp.sum(waited >= LONG_WAIT)
    whole, parts = values
    return Imputed(whole, parts, waited), stats


def _draw(
    model: RejectionModel,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    imputed: Imputed,
    patience: jax.Array | None = None,
) -> tuple[tuple, tuple, jax.Array | None]:
    """New values, whether each coordinate was drawn (or is known), and whole rows drawn afresh."""
    key_whole, key_parts = jax.random.split(key)
    hidden: Hidden = data.hidden
    like = jax.tree.map(lambda a: a[0], data.points)
    shape = recorded_shape(model.recorded(like))
    whole, parts = imputed[:2]
    moved_whole = moved_parts = reached = None
    if hidden.whole is not None:
        zones = zones_of(model, shape)
        whole, reached, moved = draw_whole(
            model, zones, key_whole, theta, hidden.whole, data.covariates, whole, patience
        )
        moved_whole = (reached | moved | (hidden.whole.zone < 0))[:, None]
    if hidden.parts is not None:
        columns = hidden_columns(model, like, clamp_of(model, shape))
        parts, moved = draw_parts(
            model, key_parts, theta, hidden.parts, columns, data.covariates, parts
        )
        moved_parts = moved | ~hidden.parts.free
    return (whole, parts), (moved_whole, moved_parts), reached


def refuse_impossible_zones(
    model: RejectionModel, key: jax.Array, theta: Theta, data: Observed, imputed: Imputed | None
) -> None:
    """Raise where an observation with something hidden can be nothing but what was recorded.

    Every one must be reached by a proposal or move inside its zone, with ordinary patience or with
    a great deal; otherwise what stands for it would never change, and count as if it were known.
    """
    if imputed is None:
        return
    hidden: Hidden = data.hidden

    def run(key: Any, theta: Any, data: Any, imputed: Any, patience: Any) -> Any:
        return _draw(model, key, theta, data, imputed, patience)[:2]

    program = model.compiled("first zones", run)
    count = 0 if hidden.whole is None else hidden.whole.rows.shape[0]
    patience = sweep_patience(count)
    moved = [np.array(False)] * 2
    for attempt, limit in enumerate((patience, patience, FIRST_PATIENCE)):
        own_key = jax.random.fold_in(key, attempt)
        values, now = program(own_key, theta, data, imputed, jnp.int32(limit))
        imputed = imputed._replace(whole=values[0], parts=values[1])
        moved = [
            a | (True if b is None else np.asarray(b)) for a, b in zip(moved, now, strict=True)
        ]
        if all(kind.all() for kind in moved):
            return
    for kind, fine in zip(hidden, moved, strict=True):
        members = np.flatnonzero(~np.atleast_2d(fine).all(axis=1))
        if kind is None or not members.size:
            continue
        if kind is hidden.parts:
            raise no_room(model, data.points, kind, members, np.flatnonzero(~fine.all(axis=0)))
        tried = (
            f"Of more than {FIRST_PATIENCE:,} proposals at theta={shown(theta)} none was recorded "
            "there. "
        )
        raise no_room(model, data.points, kind, members, tried=tried)
