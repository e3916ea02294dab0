r"""Censored observations: draw each from the model, restricted to its zone, by rejection.

Given theta a censored value has density q(y) a(y) 1[y in zone] / const, independent of all else.
Proposals of the model are drawn until one is accepted and lies in the zone. The work is capped: an
observation that is not reached keeps its value. Whether it is reached does not depend on the value
it has nor on the one it would get, so this is a mixture of an exact draw and the identity.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from offcut.augmentation.layout import Layout, empty_rejected
from offcut.augmentation.per_observation import run_per_observation
from offcut.imputation.hidden import Whole
from offcut.models.recording import Zone, in_zones
from offcut.models.rejection import Proposed, RejectionModel
from offcut.prior import Theta

#: Proposals in vain that a sweep may spend on its censored observations: so many, and so many each.
PATIENCE, PATIENCE_EACH = 20_000, 200


class InZone:
    """The model as ``run_per_observation`` sees it, accepting only what lies in the zone."""

    def __init__(self, model: RejectionModel, zones: tuple[Zone, ...]) -> None:
        self.model, self.zones = model, zones

    def propose_one(self, key: jax.Array, theta: Theta, hidden: tuple) -> Proposed:
        """A proposal marked as drawn, so that rows that were not reached can be told."""
        zone, covariate = hidden
        proposed = self.model.propose_one(key, theta, *covariate)
        inside = in_zones(self.zones, self.model.recorded(proposed.points), *covariate)[zone]
        known = zone < 0  # not censored after all: done at once, and not drawn
        return Proposed(
            (proposed.points, ~known), (proposed.accepted & inside) | known, proposed.log_accept
        )


def draw_whole(
    model: RejectionModel,
    zones: tuple[Zone, ...],
    key: jax.Array,
    theta: Theta,
    whole: Whole,
    covariates: tuple,
    held: Any,
    patience: int | None = None,
) -> tuple[Any, jax.Array]:
    """New values for the censored rows, and which of them were reached."""
    count = whole.rows.shape[0]
    one = jax.tree.map(lambda a: a[0], held)
    size = sum(leaf.size for leaf in jax.tree.leaves(one))
    layout = Layout.of(count, size, True)
    own = jax.tree.map(lambda a: a[whole.rows], covariates)
    buffer = empty_rejected(layout, (one, jnp.array(True)), layout.chunk)
    limit = PATIENCE + PATIENCE_EACH * count if patience is None else patience
    run, _ = run_per_observation(
        InZone(model, zones),  # type: ignore[arg-type]
        layout,
        key,
        theta,
        (whole.zone, own),
        buffer,
        jnp.int32(limit),
        keep_accepted=True,
        store=False,
    )
    drawn, reached = run.kept

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(reached.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, drawn, held), reached
