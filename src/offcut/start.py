"""Where a chain starts: a place with prior support where the sampler accepts something.

Starting points are climbed to on the *naive* density, the one that forgets the filter,
p(theta) prod q(x) a(x): its mode puts the proposals where the data are, so acceptance is good
there, also for each single observation of a regression. Each chain climbs from its own candidates
and is then shaken, so that chains start apart.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from offcut.augmentation.algorithm1 import run_algorithm_1
from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import Layout, Rejected, empty_rejected
from offcut.augmentation.shared import Run
from offcut.errors import StartError
from offcut.models.rejection import RejectionModel
from offcut.prior import Theta
from offcut.promises import (
    finite_sum,
    inspect_observations,
    log_accept_at_observations,
    refuse_broken,
    shown,
)

CANDIDATES = 16
CLIMB_STEPS = 200
CLIMB_ROWS = 2048  # at most this many observations are used for the climb
SHAKES = (0.3, 0.1, 0.03, 0.0)
#: A start where so many proposals do not give n acceptances is given up (a second or so of work).
PATIENCE = 2_000_000


def find_start(
    model: RejectionModel, layout: Layout, key: jax.Array, data: Observed, budget: int
) -> tuple[Theta, Rejected]:
    """A theta and a first Y with |Y| <= budget."""
    key_climb, key_shake, key_run = jax.random.split(key, 3)
    position, exact = climb_to_start(model, layout, key_climb, data)
    limit = min(budget, max(PATIENCE, 100 * layout.n))
    for attempt, shake in enumerate(SHAKES):
        noise = jax.random.normal(jax.random.fold_in(key_shake, attempt), position.shape)
        theta = model.prior.constrain(position + shake * noise, exact)
        if shake and not np.all(
            np.isfinite(log_accept_at_observations(model, layout, theta, data))
        ):
            continue  # shaken out of a window that depends on theta
        accepted, rejected = first_rejections(
            model, layout, jax.random.fold_in(key_run, attempt), theta, data, limit
        )
        if rejected is not None:
            return theta, rejected
    if limit < PATIENCE:  # would more room have been enough?
        limit = PATIENCE
        accepted, needed = first_count(model, layout, key_run, theta, data, limit)
        if needed is not None:
            raise _too_small(theta, needed, budget)
    raise _nothing_accepted(theta, accepted, limit, layout)


def climb_to_start(
    model: RejectionModel, layout: Layout, key: jax.Array, data: Observed
) -> tuple[jax.Array, Theta]:
    """The best of some candidates on the naive density, as (position, exact), or an error."""
    program = model.compiled(("climb", layout), _climb(model, layout))
    position, exact, score, prior_ok = program(key, data)
    if not np.isfinite(score):
        raise _no_support(model, layout, position, exact, data, bool(np.any(prior_ok)))
    inspect_observations(model, layout, model.prior.constrain(position, exact), data)
    return position, exact


def first_rejections(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    limit: int,
    attempts: int = 20,
) -> tuple[int, Rejected | None]:
    """Algorithm 1 from the host, the buffer growing as needed; a few attempts to meet the limit.

    Returns how many were accepted in the last attempt, and Y (None where every attempt failed).
    """
    capacity = layout.capacity(2 * layout.n)
    accepted = 0
    for attempt in range(attempts):
        own_key = jax.random.fold_in(key, attempt)
        run = _run_from_host(model, layout, own_key, theta, data, limit, capacity)
        count = int(run.rejected.count)
        if capacity < count <= limit:
            # Each capacity is compiled anew, so count first and then make room once.
            accepted, needed = first_count(model, layout, own_key, theta, data, limit)
            count = limit + 1 if needed is None else needed
            if needed is not None:
                capacity = layout.capacity(2 ** int(np.ceil(np.log2(needed))))
                run = _run_from_host(model, layout, own_key, theta, data, limit, capacity)
        else:
            accepted = int(run.accepted)
        if count <= limit:
            return accepted, run.rejected
        if accepted * 20 * attempts < layout.n:  # hopeless: do not try twenty times
            break
    return accepted, None


def first_count(
    model: RejectionModel, layout: Layout, key: jax.Array, theta: Theta, data: Observed, limit: int
) -> tuple[int, int | None]:
    """How many Algorithm 1 accepts, and |Y| (None where it exceeds the limit); Y is not kept."""
    run = _run_from_host(model, layout, key, theta, data, limit, layout.chunk, store=False)
    count = int(run.rejected.count)
    return int(run.accepted), count if count <= limit else None


def _run_from_host(
    model: RejectionModel,
    layout: Layout,
    key: jax.Array,
    theta: Theta,
    data: Observed,
    limit: int,
    capacity: int,
    store: bool = True,
) -> Run:
    """One compiled run of Algorithm 1; an error where log_accept breaks its promise."""

    def run(key: Any, theta: Theta, data: Observed, buffer: Rejected, limit: Any) -> Run:
        return run_algorithm_1(model, layout, key, theta, data, buffer, limit, store=store)

    program = model.compiled(("run", layout, store), run)
    like = jax.tree.map(lambda a: a[0], data.points)
    buffer = empty_rejected(layout, like, capacity)
    done = program(key, theta, data, buffer, jnp.int32(limit))
    refuse_broken(theta, done.worst)
    return done


def _climb(model: RejectionModel, layout: Layout) -> Any:
    """Compiled search: best of a few candidates, then Adam on the naive density."""
    prior = model.prior
    rows = np.unique(np.linspace(0, layout.n - 1, min(layout.n, CLIMB_ROWS)).astype(int))
    weight = layout.n / rows.size

    def climb(key: jax.Array, data: Observed) -> tuple:
        points, covariates = jax.tree.map(lambda a: a[rows], (data.points, data.covariates))

        def naive(position: jax.Array, exact: Theta) -> jax.Array:
            theta = prior.constrain(position, exact)
            terms = jax.vmap(model.log_observed, (None, 0, *[0] * len(covariates)))(
                theta, points, *covariates
            )
            return prior.log_density(position, exact) + weight * jnp.sum(terms)

        def candidate(key: jax.Array, index: jax.Array) -> tuple:
            key_prior, key_box = jax.random.split(key)
            position, exact = prior.split(prior.sample(key_prior))
            box = jax.random.uniform(key_box, position.shape, minval=-2.0, maxval=2.0)
            return jnp.where(index % 2 == 0, position, box), exact

        keys = jax.random.split(key, CANDIDATES)
        positions, exacts = jax.vmap(candidate)(keys, jnp.arange(CANDIDATES))
        scores = jax.vmap(lambda p, e: finite_sum(naive(p, e)))(positions, exacts)
        prior_ok = jax.vmap(lambda p, e: jnp.isfinite(prior.log_density(p, e)))(positions, exacts)
        best = jnp.argmax(scores)
        position, exact = jax.tree.map(lambda a: a[best], (positions, exacts))
        if not prior.size:
            return position, exact, scores[best], prior_ok

        # Steps on the scale of the candidates, smaller as the climb ends.
        spread = jnp.maximum(1.0, jnp.std(positions, axis=0))
        optimiser = optax.adam(optax.cosine_decay_schedule(0.2, CLIMB_STEPS, 0.02))

        def ascend(_: int, carry: tuple) -> tuple:
            position, state, best_position, best_score = carry
            score, gradient = jax.value_and_grad(naive)(position, exact)
            better = finite_sum(score) > best_score
            best_position = jnp.where(better, position, best_position)
            best_score = jnp.where(better, score, best_score)
            usable = jnp.all(jnp.isfinite(gradient))
            update, state = optimiser.update(jnp.where(usable, -gradient, 0.0), state)
            return position + spread * update, state, best_position, best_score

        carry = (position, optimiser.init(position), position, scores[best])
        _, _, position, score = jax.lax.fori_loop(0, CLIMB_STEPS, ascend, carry)
        return position, exact, score, prior_ok

    return climb


def _no_support(
    model: RejectionModel,
    layout: Layout,
    position: jax.Array,
    exact: Theta,
    data: Observed,
    prior_ok: bool,
) -> Exception:
    theta = model.prior.constrain(position, exact)
    if not prior_ok:
        return StartError(
            f"the prior density is zero or NaN at all {CANDIDATES} starting candidates, for "
            f"example at theta={shown(theta)}; check the prior's parameters (a negative scale?)"
        )
    try:
        inspect_observations(model, layout, theta, data)
    except Exception as error:
        return error
    return StartError(
        f"the data have zero or NaN density at all {CANDIDATES} starting candidates drawn from "
        f"the prior, for example at theta={shown(theta)}; either the prior has no support where "
        "the data are possible, or log_proposal is NaN there: evaluate "
        "model.log_proposal(theta, x[0]) by hand"
    )


def _too_small(theta: Theta, needed: int, budget: int) -> StartError:
    return StartError(
        f'a budget of {budget:,} rejections (with "auto": the room in warm-up) is too small: at '
        f"the start theta={shown(theta)} a sweep needs about {needed:,}. Raise the budget well "
        "above that, or tighten the prior so that more proposals are accepted"
    )


def _nothing_accepted(theta: Theta, accepted: int, limit: int, layout: Layout) -> StartError:
    return StartError(
        f"at the start theta={shown(theta)} only {accepted} of {layout.n} needed acceptances "
        f"came from more than {limit:,} proposals. The model proposes almost nothing that it "
        "accepts: is the window (or log_accept) on the scale of the data, and does the prior "
        "let the proposals reach it? offcut.check(model) may tell more"
    )
