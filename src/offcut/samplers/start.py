"""Where a chain starts: a place with prior support where all data are possible and the sampler
accepts something.

Starting points are climbed to on the *naive* density, the one that forgets the filter,
p(theta) prod q(x) a(x): its mode puts the proposals where the data are, so acceptance is good
there, also for each single observation of a regression. Each chain climbs from its own candidates
and is then shaken, so that chains start apart. Where no candidate makes all observations possible
(Uniform(0, b) with b below the largest), the search goes on around the one that makes most of them
possible. A kernel cannot leave a place of density zero, so none is handed to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from offcut.augmentation.acceptance import inspect_observations, is_broken, no_worst
from offcut.augmentation.algorithm1 import Run, run_algorithm_1
from offcut.augmentation.joint import log_joint, total
from offcut.augmentation.rejections import Layout, Rejected, empty_rejected
from offcut.base import FIRST_CAPACITY, MEMORY_LIMIT
from offcut.errors import StartError
from offcut.models.data import Observed
from offcut.models.prior import Position, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point

CANDIDATES = 16
ROUNDS = 64  # of candidates, until there is one where all data are possible
CLIMB_STEPS = 200
CLIMB_ROWS = 2048  # at most this many observations are used for the climb
MOST_ROWS = 2**31 - 1  # more observations than there can be
SHAKES = (0.3, 0.1, 0.03, 0.0)
TRIES = 8  # of each shake, until one leaves all data possible
TURNS = 20  # of Algorithm 1 at each, until |Y| is within the limit
Count = Int[Array, ""]
Flag = Bool[Array, ""]


class Climbed(NamedTuple):
    """The best place on the naive density; ``score`` is -inf where there is none at all.

    prior_ok : whether any candidate had prior support.
    """

    position: Position
    exact: Theta
    score: Float[Array, ""]
    prior_ok: Flag


class Start(NamedTuple):
    """A place to start from, and a first Y there; or what was tried last.

    found : whether all data are possible there and |Y| <= limit. The buffer may be too small for
    Y even so: then ``run.rejected.count`` says how much room is needed.
    """

    climbed: Climbed
    position: Position
    found: Flag
    run: Run


def find_start(
    model: RejectionModel,
    layout: Layout,
    key: KeyArray,
    data: Observed,
    limit: Count,
    buffer: Rejected,
    at_prior: Flag,
) -> Start:
    """Climb, shake, and run Algorithm 1 there, with less of a shake where that fails (compiled).

    ``at_prior``: only run Algorithm 1, once, at a draw from the prior. So the same program tells
    how much passes there (``ModelSampler.rates_by_prior``).
    """
    key_climb, key_shake, key_run = jax.random.split(key, 3)
    climbed = climb(model, layout, key_climb, data, at_prior)
    shakes = jnp.array(SHAKES)

    def attempt(carry: tuple[Count, Count, Start]) -> tuple[Count, Count, Start]:
        number, turn, last = carry
        own_key = jax.random.fold_in(key_shake, number)
        position, possible = shaken(
            model, own_key, climbed.position, climbed.exact, data, shakes[number], at_prior
        )
        run = run_algorithm_1(
            model,
            layout,
            jax.random.fold_in(jax.random.fold_in(key_run, number), turn),
            model.prior.constrain(position, climbed.exact),
            data,
            last.run.rejected,
            jnp.where(possible, limit, -1),
            beyond_capacity=True,
        )
        hopeless = run.accepted * (20.0 * TURNS) < data.n  # do not try twenty times
        further = ~possible | hopeless | (turn == TURNS - 1) | at_prior
        found = possible & (run.rejected.count <= limit)
        return (
            number + further,
            jnp.where(further, 0, turn + 1),
            Start(climbed, position, found, run),
        )

    def goes_on(carry: tuple[Count, Count, Start]) -> Flag:
        number, _, last = carry
        return (number < len(SHAKES)) & ~last.found & ~is_broken(last.run.worst.log_accept)

    like = jax.tree.map(lambda a: a[0], data.points)
    nothing = Run(buffer, jnp.int32(0), None, no_worst(like))
    first = Start(climbed, climbed.position, jnp.array(False), nothing)
    number = jnp.where(at_prior, len(SHAKES) - 1, 0).astype(jnp.int32)
    return jax.lax.while_loop(goes_on, attempt, (number, jnp.int32(0), first))[2]


def shaken(
    model: RejectionModel,
    key: KeyArray,
    position: Position,
    exact: Theta,
    data: Observed,
    shake: Float[Array, ""] | float,
    anyhow: Flag | bool = False,
) -> tuple[Position, Flag]:
    """The position with noise on it, where all data are still possible; and whether they are.

    ``anyhow``: the position as it is, and nobody asks.
    """

    def again(carry: tuple[Count, Position, Flag]) -> tuple[Count, Position, Flag]:
        turn = carry[0]
        own_key = jnp.where(turn == 0, key, jax.random.fold_in(key, turn))
        moved = position + shake * _noise(own_key, position)
        return turn + 1, moved, is_possible(model, moved, exact, data)

    carry = (jnp.int32(0), position, jnp.asarray(anyhow))
    _, moved, possible = jax.lax.while_loop(
        lambda carry: ~carry[2] & (carry[0] < TRIES), again, carry
    )
    return moved, possible


def _noise(key: KeyArray, like: Position) -> Position:
    """Of variance one: uniform, since normal numbers are ten times as much to compile."""
    return jax.random.uniform(key, like.shape, minval=-np.sqrt(3), maxval=np.sqrt(3))


def is_possible(model: RejectionModel, position: Position, exact: Theta, data: Observed) -> Flag:
    """Whether the prior and the likelihood of every observation are finite there."""
    theta = model.prior.constrain(position, exact)

    def row(x: Point, *covariate: Point) -> Flag:
        log_accept = model.inside_at(theta, x, *covariate)
        fine = jnp.isfinite(log_accept) & ~is_broken(log_accept)
        return fine & jnp.isfinite(model.log_observed(theta, x, *covariate))

    # Behind the last row stand copies of the first.
    rows = jax.vmap(row)(data.points, *data.covariates)
    return jnp.isfinite(model.prior.log_density(position, exact)) & jnp.all(rows)


def _possible_rows(model: RejectionModel, theta: Theta, data: Observed) -> Bool[Array, " rows"]:
    """Which observations have a finite density."""
    rows = (None, 0, *[0] * len(data.covariates))
    return jnp.isfinite(jax.vmap(model.log_observed, rows)(theta, data.points, *data.covariates))


def climb(
    model: RejectionModel,
    layout: Layout,
    key: KeyArray,
    data: Observed,
    at_prior: Flag | bool = False,
) -> Climbed:
    """The best of a few candidates, then Adam on the naive density (compiled).

    ``at_prior``: nothing but a draw from the prior.
    """
    prior = model.prior
    most = min(layout.rows, CLIMB_ROWS)
    seen, weight = _some_rows(data, most)
    log_likelihood = log_joint(model, layout)

    def naive(position: Position, exact: Theta) -> Float[Array, ""]:
        theta = prior.constrain(position, exact)
        return prior.log_density(position, exact) + weight * log_likelihood(theta, seen, None)

    def of_row(theta: Theta, x: Point, *covariate: Point) -> Float[Array, 2]:
        value = model.log_observed(theta, x, *covariate)
        fine = jnp.isfinite(value)
        return jnp.stack([jnp.where(fine, value, 0.0), (~fine).astype(float)])

    def look(position: Position, exact: Theta) -> tuple[Float[Array, ""], Count]:
        theta, rows = prior.constrain(position, exact), (data.points, *data.covariates)
        n = jnp.where(at_prior, 0, data.n)
        value, count = total(of_row, theta, rows, n, layout.chunk, gradient=False)
        return value, count.astype(jnp.int32)

    found = _best_candidate(model, key, look, jnp.where(at_prior, 1, CANDIDATES))
    position, exact, score, prior_ok = found.position, found.exact, found.score, found.prior_ok
    if not prior.size:
        return Climbed(position, exact, score, prior_ok)

    # Steps on the scale of the candidates, smaller as the climb ends.
    optimiser = optax.adam(optax.cosine_decay_schedule(0.2, CLIMB_STEPS, 0.02))

    def ascend(_: Int[Array, ""], carry: tuple) -> tuple:
        position, state, best_position, best_score = carry
        score, gradient = jax.value_and_grad(naive)(position, exact)
        better = jnp.isfinite(score) & (score > best_score)
        best_position = jnp.where(better, position, best_position)
        best_score = jnp.where(better, score, best_score)
        usable = jnp.all(jnp.isfinite(gradient))
        update, state = optimiser.update(jnp.where(usable, -gradient, 0.0), state)
        # From where the density is zero no gradient leads back.
        further = position + found.spread * update
        position = jnp.where(jnp.isfinite(score), further, best_position)
        return position, state, best_position, best_score

    carry = (position, optimiser.init(position), position, jnp.array(-jnp.inf))
    steps = jnp.where(at_prior, 0, CLIMB_STEPS)
    _, _, top, score = jax.lax.fori_loop(0, steps, ascend, carry)
    if layout.rows <= CLIMB_ROWS:
        return Climbed(top, exact, score, prior_ok)

    # The climb has seen some rows only: back towards its start until all are possible.
    def back(carry: tuple) -> tuple:
        _, share = carry
        share = jnp.where(share > 1e-3, share / 2, 0.0)
        return position + share * (top - position), share

    def is_short(carry: tuple) -> jax.Array:
        return ~jnp.asarray(at_prior) & (carry[1] > 0) & (look(carry[0], exact)[1] > 0)

    top, _ = jax.lax.while_loop(is_short, back, (top, jnp.ones(())))
    return Climbed(top, exact, score, prior_ok)


def _some_rows(data: Observed, most: int) -> tuple[Observed, Float[Array, ""]]:
    """At most so many observations, evenly spread, and how many each of them stands for."""
    index = jnp.arange(most, dtype=jnp.int32)
    count = jnp.minimum(data.n, most)
    spread = jnp.floor(index * ((data.n - 1) / max(most - 1, 1))).astype(jnp.int32)
    rows = jnp.where(data.n <= most, index, spread)
    points, covariates = jax.tree.map(lambda a: a[rows], (data.points, data.covariates))
    return Observed(points, covariates, count), data.n / count


class _Search(NamedTuple):
    """The best candidate so far; ``score`` is -inf where some observations are impossible."""

    turn: Int[Array, ""]
    position: Position
    exact: Theta
    score: Float[Array, ""]
    impossible: Int[Array, ""]  # so many of the observations are
    prior_ok: Bool[Array, ""]
    spread: Position


def _best_candidate(
    model: RejectionModel,
    key: KeyArray,
    look: Callable[[Position, Theta], tuple[Float[Array, ""], Count]],
    candidates: Count,
) -> _Search:
    """The candidate with the largest naive density; if all are impossible, more of them.

    The first of all is a draw from the prior.

    ``look(position, exact)`` gives the log likelihood of the possible observations, and how many of
    them are impossible.

    Half of the candidates are draws from the prior, half in a box of unconstrained space. From the
    second round on the box grows, and half of all candidates lie around the one with the most
    possible observations, at distances from a hundredth to ten.
    """
    prior = model.prior
    scales = jnp.logspace(-2.0, 1.0, CANDIDATES)

    def candidate(key: KeyArray, index: Int[Array, ""], so_far: _Search) -> tuple[Position, Theta]:
        key_prior, key_noise = jax.random.split(key)
        position, exact = prior.split(prior.sample(key_prior))
        noise = _noise(key_noise, position)
        position = jnp.where(index % 2 == 0, position, (1 + so_far.turn) * noise)
        near = so_far.position + scales[index] * noise
        around = (so_far.turn > 0) & (index % 4 >= 2)
        return jax.tree.map(
            lambda a, b: jnp.where(around, a, b), (near, so_far.exact), (position, exact)
        )

    def one_round(so_far: _Search) -> _Search:
        own_key = jnp.where(so_far.turn == 0, key, jax.random.fold_in(key, so_far.turn))

        def judged(index: Count) -> tuple[Position, Theta, Float[Array, ""], Flag, Count]:
            position, exact = candidate(jax.random.fold_in(own_key, index), index, so_far)
            log_prior = prior.log_density(position, exact)
            log_likelihood, impossible = look(position, exact)
            return position, exact, log_prior + log_likelihood, jnp.isfinite(log_prior), impossible

        def write(index: Count, rows: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: a.at[index].set(b), rows, judged(index))

        blank = (so_far.position, so_far.exact, jnp.array(-jnp.inf), False, jnp.int32(0))
        rows = jax.tree.map(lambda a: jnp.stack([a] * CANDIDATES), blank)
        rows = jax.lax.fori_loop(0, candidates, write, rows)
        positions, exacts, scores, prior_ok, counts = rows
        counts = jnp.where(prior_ok, counts, MOST_ROWS)
        scores = jnp.where((counts == 0) & jnp.isfinite(scores), scores, -jnp.inf)
        best = jnp.where(jnp.any(jnp.isfinite(scores)), jnp.argmax(scores), jnp.argmin(counts))
        position, exact = jax.tree.map(lambda a: a[best], (positions, exacts))
        new = _Search(
            so_far.turn + 1,
            position,
            exact,
            scores[best],
            counts[best],
            so_far.prior_ok | jnp.any(prior_ok),
            jnp.maximum(1.0, jnp.std(positions, axis=0)),
        )
        better = jnp.isfinite(new.score) | (new.impossible <= so_far.impossible)
        kept = so_far._replace(turn=new.turn, prior_ok=new.prior_ok)
        return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, kept)

    like = {name: jnp.zeros(prior.shapes[name]) for name in prior.exact}
    first = _Search(
        jnp.int32(0),
        jnp.zeros(prior.size),
        like,
        jnp.array(-jnp.inf),
        jnp.int32(MOST_ROWS),
        jnp.array(False),
        jnp.ones(prior.size),
    )

    def goes_on(search: _Search) -> Flag:
        return (search.turn < ROUNDS) & ~jnp.isfinite(search.score)

    return jax.lax.while_loop(goes_on, one_round, first)


def first_buffer(layout: Layout, data: Observed, needed: int) -> Rejected:
    """An empty buffer on the host, with room for a start with so many rejections or the usual."""
    like = jax.tree.map(lambda a: a[0], data.points)
    row = sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
    fits = MEMORY_LIMIT // (layout.sections * max(row, 1))
    room = min(FIRST_CAPACITY, fits) if needed <= min(FIRST_CAPACITY, fits) else needed
    return empty_rejected(layout, like, layout.capacity(room), np.zeros)  # type: ignore[arg-type]


def no_start(
    model: RejectionModel, layout: Layout, data: Observed, climbed: Climbed
) -> Exception | None:
    """Why nothing can start near the place that was climbed to; None where something could."""
    theta = model.prior.constrain(climbed.position, climbed.exact)
    if not np.isfinite(climbed.score) and not climbed.prior_ok:
        return StartError(
            f"the prior density is zero or NaN at all {CANDIDATES * ROUNDS} starting candidates, "
            f"for example at theta={shown(theta)}; check the prior's parameters (a negative scale?)"
        )
    try:
        inspect_observations(model, layout, theta, data)
    except Exception as error:
        return error
    possible = np.asarray(_possible_rows(model, theta, data))[: int(data.n)]
    if np.isfinite(climbed.score) and possible.all():
        return None
    first = int(np.argmin(possible))
    value = shown(jax.tree.map(lambda a: np.asarray(a)[first], data.points))
    return StartError(
        f"no place to start: at the best of {CANDIDATES * ROUNDS} candidates drawn from the prior "
        f"and around, theta={shown(theta)}, {int((~possible).sum())} of {int(data.n)} observations "
        f"have zero, infinite or NaN density, the first at index {first} (value {value}). Either "
        "the prior has no support where the data are possible, or the data do not fit the family, "
        "or log_proposal is NaN there: evaluate model.log_proposal(theta, x) by hand"
    )


def too_small(theta: Theta, needed: int, budget: int) -> StartError:
    """The error for a budget that a first run does not meet."""
    return StartError(
        f'a budget of {budget:,} rejections (with "auto": the room in warm-up) is too small: at '
        f"the start theta={shown(theta)} a sweep needs about {needed:,}. Raise the budget well "
        "above that, or tighten the prior so that more proposals are accepted"
    )


def nothing_accepted(theta: Theta, accepted: int, limit: int, n: int) -> StartError:
    """The error for a model that proposes next to nothing that it accepts."""
    return StartError(
        f"at the start theta={shown(theta)} only {accepted} of {n} needed acceptances "
        f"came from more than {limit:,} proposals. The model proposes almost nothing that it "
        "accepts: is the window (or log_accept) on the scale of the data, and does the prior "
        "let the proposals reach it? offcut.check(model) may tell more"
    )
