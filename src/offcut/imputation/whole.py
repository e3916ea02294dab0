r"""Censored observations: draw each from the model, restricted to its zone.

Given theta a censored value has density q(y) a(y) 1[y in zone] / const, independent of all else.
Proposals of the model are drawn until one is accepted and lies in the zone: an exact draw. The
work is capped, and a zone may be so small (a value known to three digits, say) that proposals
hardly ever hit it. An observation that was not reached moves by slice sampling inside its zone
instead, from the value it has, which leaves the same density alone.

Why this is right. How many proposals an observation needs is independent of the value it gets (a
rejection sampler's number of trials and its result are), and both are independent of the values
held. The schedule, and with it the set of observations that are reached before the cap, depends
on these numbers and on an order drawn anew in every sweep, and on nothing else. So given theta and
that set, those in it have independent exact draws, and each of the others has made a step of a
kernel that leaves its density alone: a mixture of such sweeps, chosen without looking at values.
The order is random because the cap cuts off those who are served last: with a fixed order these
would be the same ones in every sweep.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from offcut.augmentation.layout import Layout, empty_rejected
from offcut.augmentation.per_observation import run_per_observation
from offcut.imputation.flat import Flat, log_possible
from offcut.imputation.hidden import Whole
from offcut.models.recording import Zone, in_zones
from offcut.models.rejection import Proposed, RejectionModel
from offcut.prior import Theta
from offcut.slice_sampling import slice_sample

#: Proposals in vain that a sweep may spend on its censored observations: so many, and so many each.
#: A slice step costs about as much as thirty.
PATIENCE, PATIENCE_EACH = 2_000, 100
#: The slice sampler's first interval is up to two to this power times wider than usual, so that it
#: can reach from one part of a zone to another.
WIDER = 6


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
    patience: jax.Array | None = None,
) -> tuple[Any, jax.Array, jax.Array]:
    """New values for the censored rows; which were reached by proposals, and which have moved."""
    count = whole.rows.shape[0]
    one = jax.tree.map(lambda a: a[0], held)
    layout = Layout.of(count, Flat(one).size, True)
    own = jax.tree.map(lambda a: a[whole.rows], covariates)
    buffer = empty_rejected(layout, (one, jnp.array(True)), layout.chunk)
    run, _ = run_per_observation(
        InZone(model, zones),  # type: ignore[arg-type]
        layout,
        key,
        theta,
        (whole.zone, own),
        buffer,
        jnp.int32(sweep_patience(count)) if patience is None else patience,
        keep_accepted=True,
        store=False,
        # Row i has the keys below fold_in(key, i), i < count.
        order=jax.random.permutation(jax.random.fold_in(key, count), count),
    )
    drawn, reached = run.kept
    left = (whole.zone >= 0) & ~reached

    def step() -> Any:
        own_key = jax.random.fold_in(key, count + 1)
        return slice_in_zones(model, zones, own_key, theta, whole, own, held, left)

    stepped = lax.cond(jnp.any(left), step, lambda: held)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(reached.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    def differs(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.any((new != old).reshape(count, -1), axis=1)

    changed = jax.tree.leaves(jax.tree.map(differs, stepped, held))
    moved = left & jnp.any(jnp.stack(changed), axis=0)
    return jax.tree.map(choose, drawn, stepped), reached, moved


def sweep_patience(count: int) -> int:
    """Proposals in vain that a sweep may spend on ``count`` observations."""
    return PATIENCE + PATIENCE_EACH * count


def slice_in_zones(
    model: RejectionModel,
    zones: tuple[Zone, ...],
    key: jax.Array,
    theta: Theta,
    whole: Whole,
    covariates: tuple,
    held: Any,
    free: jax.Array,
) -> Any:
    """One slice update of every coordinate of the rows that are ``free``, each inside its zone.

    A whole number k stands for the interval from k to k + 1, with the density of k all over it:
    the place in it is drawn first and forgotten afterwards. The first interval's width is drawn
    without looking at the values.
    """
    flat = Flat(jax.tree.map(lambda a: a[0], held))
    discrete = jnp.asarray(flat.discrete)
    key_width, key_columns = jax.random.split(key)
    width = whole.width * 2.0 ** jax.random.randint(key_width, (), 0, WIDER + 1)

    def log_density(vectors: jax.Array) -> jax.Array:
        def at(vector: jax.Array, zone: jax.Array, *covariate: Any) -> jax.Array:
            point = flat.point(vector)
            inside = in_zones(zones, model.recorded(point), *covariate)[zone]
            value = log_possible(model, theta, point, *covariate)
            return jnp.where(inside & flat.is_point(vector), value, -jnp.inf)

        return jax.vmap(at)(vectors, whole.zone, *covariates)

    def update(column: jax.Array, vectors: jax.Array) -> jax.Array:
        key_place, key_slice = jax.random.split(jax.random.fold_in(key_columns, column))
        here = vectors[:, column]
        here += jnp.where(discrete[column], jax.random.uniform(key_place, here.shape), 0.0)

        def put(value: jax.Array) -> jax.Array:
            value = jnp.where(discrete[column], jnp.floor(value), value)
            return vectors.at[:, column].set(value)

        chosen = slice_sample(
            key_slice,
            lambda value: log_density(put(value)),
            here,
            -jnp.inf,
            jnp.inf,
            width[column],
            free,
        )
        return put(chosen)

    return flat.points(lax.fori_loop(0, flat.size, update, flat.vectors(held)))
