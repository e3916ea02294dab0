"""One draw of everything hidden, given theta; and the data completed by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.joint import Observed
from offcut.errors import StartError
from offcut.imputation.hidden import Hidden, clamp_of, recorded_shape, zones_of
from offcut.imputation.parts import draw_parts, hidden_columns
from offcut.imputation.whole import draw_whole
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.promises import shown

#: Proposals in vain for all censored observations before a start is given up.
FIRST_PATIENCE = 2_000_000


class Imputed(NamedTuple):
    """Present values of what is hidden: rows of points, None where there is nothing of a kind."""

    whole: Any
    parts: Any


def first_imputed(data: Observed) -> Imputed | None:
    """The recorded values and first guesses."""
    hidden: Hidden | None = data.hidden
    if hidden is None:
        return None

    def rows(kind: Any) -> Any:
        return None if kind is None else jax.tree.map(lambda a: a[kind.rows], data.points)

    return Imputed(rows(hidden.whole), rows(hidden.parts))


def completed(data: Observed, imputed: Imputed | None) -> Observed:
    """The data with present values in place of what is hidden."""
    if imputed is None:
        return data
    points = data.points
    for kind, values in zip(data.hidden, imputed, strict=True):
        if kind is not None:
            points = jax.tree.map(lambda a, b, kind=kind: a.at[kind.rows].set(b), points, values)
    return data._replace(points=points)


def impute(
    model: RejectionModel,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    imputed: Imputed | None,
    patience: int | None = None,
) -> tuple[Imputed | None, dict[str, jax.Array]]:
    """Draw all hidden values given theta; and statistics of how it went."""
    if imputed is None:
        return None, {}
    key_whole, key_parts = jax.random.split(key)
    hidden: Hidden = data.hidden
    like = jax.tree.map(lambda a: a[0], data.points)
    shape = recorded_shape(model.recorded(like))
    stats: dict[str, jax.Array] = {}
    whole, parts = imputed
    if hidden.whole is not None:
        zones = zones_of(model, shape)
        whole, reached = draw_whole(
            model, zones, key_whole, theta, hidden.whole, data.covariates, whole, patience
        )
        stats["imputed"] = jnp.mean(reached.astype(float))
    if hidden.parts is not None:
        columns = hidden_columns(model, like, clamp_of(model, shape))
        parts = draw_parts(model, key_parts, theta, hidden.parts, columns, data.covariates, parts)
    return Imputed(whole, parts), stats


def refuse_impossible_zones(
    model: RejectionModel, key: jax.Array, theta: Theta, data: Observed, imputed: Imputed | None
) -> None:
    """Raise where no proposal falls into the zone of any censored observation."""
    if imputed is None or data.hidden.whole is None:
        return

    def run(key: Any, theta: Any, data: Any, imputed: Any) -> Any:
        return impute(model, key, theta, data, imputed, FIRST_PATIENCE)[1]["imputed"]

    program = model.compiled("first zones", run)
    if float(np.asarray(program(key, theta, data, imputed))) == 0:
        count = data.hidden.whole.rows.shape[0]
        raise StartError(
            f"{count} observations are censored, but of more than {FIRST_PATIENCE:,} proposals at "
            f"theta={shown(theta)} none was recorded in their zones. Values in a zone are "
            "recorded (as the limit), so the window must include the zone: with values above 10 "
            "written as 10 and those below 0 lost, the window is x > 0 and not 0 < x < 10"
        )
