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
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.acceptance import inspect_observations, refuse_broken
from offcut.augmentation.algorithm1 import PATIENCE, Run, run_algorithm_1
from offcut.augmentation.rejections import Layout, Rejected, empty_rejected
from offcut.errors import StartError
from offcut.models.data import Observed
from offcut.models.prior import Position, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray

CANDIDATES = 16
ROUNDS = 64  # of candidates, until there is one where all data are possible
CLIMB_STEPS = 200
CLIMB_ROWS = 2048  # at most this many observations are used for the climb
MOST_ROWS = 2**62  # more observations than there can be
#: A score of a place: its log density, or how many observations are impossible there.
Score = Callable[[Position, Theta], Array]
SHAKES = (0.3, 0.1, 0.03, 0.0)
TRIES = 8  # of each shake, until one leaves all data possible


def find_start(
    model: RejectionModel, layout: Layout, key: KeyArray, data: Observed, budget: int
) -> tuple[Theta, Rejected]:
    """A theta and a first Y with |Y| <= budget."""
    key_climb, key_shake, key_run = jax.random.split(key, 3)
    position, exact = climb_to_start(model, layout, key_climb, data)
    limit = min(budget, max(PATIENCE, 100 * int(data.n)))
    for attempt, shake in enumerate(SHAKES):
        shaken = shake_start(
            model, layout, jax.random.fold_in(key_shake, attempt), position, exact, data, shake
        )
        if shaken is None:
            continue
        theta = model.prior.constrain(shaken, exact)
        runs = FirstRuns(model, layout, theta, data, limit)
        accepted, rejected = runs.rejections(jax.random.fold_in(key_run, attempt))
        if rejected is not None:
            return theta, rejected
    if limit < PATIENCE:  # would more room have been enough?
        limit = PATIENCE
        accepted, needed = FirstRuns(model, layout, theta, data, limit).count(key_run)
        if needed is not None:
            raise _too_small(theta, needed, budget)
    raise _nothing_accepted(theta, accepted, limit, int(data.n))


def climb_to_start(
    model: RejectionModel, layout: Layout, key: KeyArray, data: Observed
) -> tuple[Position, Theta]:
    """The best of some candidates on the naive density, as (position, exact), or an error."""
    n = int(data.n)
    program = model.compiled(("climb", n, layout), _climb(model, n, layout))
    position, exact, score, prior_ok = program(key, data)
    if not np.isfinite(score):
        raise _no_support(model, layout, position, exact, data, bool(prior_ok))
    theta = model.prior.constrain(position, exact)
    inspect_observations(model, layout, theta, data)
    if not is_possible(model, layout, position, exact, data):
        raise _impossible_data(model, layout, theta, data)
    return position, exact


def shake_start(
    model: RejectionModel,
    layout: Layout,
    key: KeyArray,
    position: Position,
    exact: Theta,
    data: Observed,
    shake: float,
) -> Position | None:
    """The position with noise on it, where all data are still possible; None if none was found."""
    if not shake:
        return position
    for turn in range(TRIES):
        own_key = jax.random.fold_in(key, turn) if turn else key
        shaken = position + shake * jax.random.normal(own_key, position.shape)
        if is_possible(model, layout, shaken, exact, data):
            return shaken
    return None


def is_possible(
    model: RejectionModel, layout: Layout, position: Position, exact: Theta, data: Observed
) -> bool:
    """Whether the prior and the likelihood of every observation are finite there."""

    def possible(position: Position, exact: Theta, data: Observed) -> Bool[Array, ""]:
        theta = model.prior.constrain(position, exact)
        rows = (None, 0, *[0] * len(data.covariates))
        log_accept = jax.vmap(model.inside_at, rows)(theta, data.points, *data.covariates)
        return (
            jnp.isfinite(model.prior.log_density(position, exact))
            & jnp.all(_possible_rows(model, theta, data))
            & jnp.all(jnp.isfinite(log_accept))
        )

    return bool(model.compiled(("possible start", layout), possible)(position, exact, data))


def _possible_rows(model: RejectionModel, theta: Theta, data: Observed) -> Bool[Array, " rows"]:
    """Which observations have a finite density."""
    rows = (None, 0, *[0] * len(data.covariates))
    return jnp.isfinite(jax.vmap(model.log_observed, rows)(theta, data.points, *data.covariates))


@dataclass(frozen=True)
class FirstRuns:
    """Algorithm 1 from the host, at one theta, with at most ``limit`` rejections."""

    model: RejectionModel
    layout: Layout
    theta: Theta
    data: Observed
    limit: int

    def rejections(self, key: KeyArray, attempts: int = 20) -> tuple[int, Rejected | None]:
        """Y, the buffer growing as needed; a few attempts to meet the limit.

        Returns how many were accepted in the last attempt, and Y (None where every attempt failed).
        """
        layout, limit = self.layout, self.limit
        capacity = layout.capacity(2 * int(self.data.n))
        accepted = 0
        for attempt in range(attempts):
            own_key = jax.random.fold_in(key, attempt)
            run = self._run(own_key, capacity)
            count = int(run.rejected.count)
            if capacity < count <= limit:
                # Each capacity is compiled anew, so count first and then make room once.
                accepted, needed = self.count(own_key)
                count = limit + 1 if needed is None else needed
                if needed is not None:
                    capacity = layout.capacity(2 ** int(np.ceil(np.log2(needed))))
                    run = self._run(own_key, capacity)
            else:
                accepted = int(run.accepted)
            if count <= limit:
                return accepted, run.rejected
            if accepted * 20 * attempts < int(self.data.n):  # hopeless: do not try twenty times
                break
        return accepted, None

    def count(self, key: KeyArray) -> tuple[int, int | None]:
        """How many are accepted, and |Y| (None where it exceeds the limit); Y is not kept."""
        run = self._run(key, self.layout.chunk, store=False)
        count = int(run.rejected.count)
        return int(run.accepted), count if count <= self.limit else None

    def _run(self, key: KeyArray, capacity: int, store: bool = True) -> Run:
        """One compiled run; an error where log_accept exceeds 0 or is NaN."""
        model, layout = self.model, self.layout

        def run(
            key: KeyArray, theta: Theta, data: Observed, buffer: Rejected, limit: Int[Array, ""]
        ) -> Run:
            return run_algorithm_1(model, layout, key, theta, data, buffer, limit, store=store)

        program = model.compiled(("run", layout, store), run)
        like = jax.tree.map(lambda a: a[0], self.data.points)
        buffer = empty_rejected(layout, like, capacity)
        done = program(key, self.theta, self.data, buffer, jnp.int32(self.limit))
        refuse_broken(model, self.theta, done.worst)
        return done


def _climb(
    model: RejectionModel, n: int, layout: Layout
) -> Callable[[KeyArray, Observed], tuple[Position, Theta, Float[Array, ""], Bool[Array, ""]]]:
    """Compiled search: best of a few candidates, then Adam on the naive density."""
    prior = model.prior
    rows = np.unique(np.linspace(0, n - 1, min(n, CLIMB_ROWS)).astype(int))
    weight = n / rows.size

    def climb(
        key: KeyArray, data: Observed
    ) -> tuple[Position, Theta, Float[Array, ""], Bool[Array, ""]]:
        points, covariates = jax.tree.map(lambda a: a[rows], (data.points, data.covariates))

        def naive(position: Position, exact: Theta) -> Float[Array, ""]:
            theta = prior.constrain(position, exact)
            terms = jax.vmap(model.log_observed, (None, 0, *[0] * len(covariates)))(
                theta, points, *covariates
            )
            return prior.log_density(position, exact) + weight * jnp.sum(terms)

        def impossible(position: Position, exact: Theta) -> Int[Array, ""]:
            return jnp.sum(~_possible_rows(model, prior.constrain(position, exact), data))

        found = _best_candidate(model, key, naive, impossible)
        position, exact, score, prior_ok = found.position, found.exact, found.score, found.prior_ok
        if not prior.size:
            return position, exact, score, prior_ok

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

        carry = (position, optimiser.init(position), position, score)
        _, _, top, score = jax.lax.fori_loop(0, CLIMB_STEPS, ascend, carry)
        if rows.size == n:
            return top, exact, score, prior_ok

        # The climb has seen some rows only: back towards its start until all are possible.
        def back(carry: tuple) -> tuple:
            _, share = carry
            share = jnp.where(share > 1e-3, share / 2, 0.0)
            return position + share * (top - position), share

        def is_short(carry: tuple) -> jax.Array:
            return (carry[1] > 0) & (impossible(carry[0], exact) > 0)

        top, _ = jax.lax.while_loop(is_short, back, (top, jnp.ones(())))
        return top, exact, score, prior_ok

    return climb


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
    model: RejectionModel, key: KeyArray, naive: Score, impossible: Score
) -> _Search:
    """The candidate with the largest naive density; if all are impossible, more of them.

    Half of the candidates are draws from the prior, half uniform in a box of unconstrained space.
    From the second round on the box grows, and half of all candidates lie around the one with the
    most possible observations, at distances from a hundredth to ten.
    """
    prior = model.prior

    def candidate(key: KeyArray, index: Int[Array, ""], so_far: _Search) -> tuple[Position, Theta]:
        key_prior, key_box = jax.random.split(key)
        position, exact = prior.split(prior.sample(key_prior))
        box = jax.random.uniform(key_box, position.shape, minval=-2.0, maxval=2.0)
        position = jnp.where(index % 2 == 0, position, (1 + so_far.turn) * box)
        key_scale, key_near = jax.random.split(jax.random.fold_in(key, 2))
        scale = 10 ** jax.random.uniform(key_scale, minval=-2.0, maxval=1.0)
        near = so_far.position + scale * jax.random.normal(key_near, position.shape)
        around = (so_far.turn > 0) & (index % 4 >= 2)
        return jax.tree.map(
            lambda a, b: jnp.where(around, a, b), (near, so_far.exact), (position, exact)
        )

    def one_round(so_far: _Search) -> _Search:
        own_key = jnp.where(so_far.turn == 0, key, jax.random.fold_in(key, so_far.turn))
        keys = jax.random.split(own_key, CANDIDATES)
        positions, exacts = jax.vmap(candidate, (0, 0, None))(keys, jnp.arange(CANDIDATES), so_far)
        scores = jax.vmap(naive)(positions, exacts)
        prior_ok = jnp.isfinite(jax.vmap(prior.log_density)(positions, exacts))
        counts = jax.lax.map(lambda at: impossible(*at), (positions, exacts))
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

    position, exact = prior.split(prior.sample(key))
    first = _Search(
        jnp.int32(0),
        position,
        exact,
        jnp.array(-jnp.inf),
        jnp.array(MOST_ROWS),
        jnp.array(False),
        jnp.ones(position.shape),
    )
    return jax.lax.while_loop(
        lambda search: (search.turn < ROUNDS) & ~jnp.isfinite(search.score), one_round, first
    )


def _no_support(
    model: RejectionModel,
    layout: Layout,
    position: Position,
    exact: Theta,
    data: Observed,
    prior_ok: bool,
) -> Exception:
    theta = model.prior.constrain(position, exact)
    if not prior_ok:
        return StartError(
            f"the prior density is zero or NaN at all {CANDIDATES * ROUNDS} starting candidates, "
            f"for example at theta={shown(theta)}; check the prior's parameters (a negative scale?)"
        )
    try:
        inspect_observations(model, layout, theta, data)
    except Exception as error:
        return error
    return _impossible_data(model, layout, theta, data)


def _impossible_data(
    model: RejectionModel, layout: Layout, theta: Theta, data: Observed
) -> StartError:
    program = model.compiled(
        ("possible rows", layout), lambda theta, data: _possible_rows(model, theta, data)
    )
    possible = np.asarray(program(theta, data))[: int(data.n)]
    first = int(np.argmin(possible))
    value = shown(jax.tree.map(lambda a: np.asarray(a[first]), data.points))
    return StartError(
        f"no place to start: at the best of {CANDIDATES * ROUNDS} candidates drawn from the prior "
        f"and around, theta={shown(theta)}, {int((~possible).sum())} of {int(data.n)} observations "
        f"have zero, infinite or NaN density, the first at index {first} (value {value}). Either "
        "the prior has no support where the data are possible, or the data do not fit the family, "
        "or log_proposal is NaN there: evaluate model.log_proposal(theta, x) by hand"
    )


def _too_small(theta: Theta, needed: int, budget: int) -> StartError:
    return StartError(
        f'a budget of {budget:,} rejections (with "auto": the room in warm-up) is too small: at '
        f"the start theta={shown(theta)} a sweep needs about {needed:,}. Raise the budget well "
        "above that, or tighten the prior so that more proposals are accepted"
    )


def _nothing_accepted(theta: Theta, accepted: int, limit: int, n: int) -> StartError:
    return StartError(
        f"at the start theta={shown(theta)} only {accepted} of {n} needed acceptances "
        f"came from more than {limit:,} proposals. The model proposes almost nothing that it "
        "accepts: is the window (or log_accept) on the scale of the data, and does the prior "
        "let the proposals reach it? offcut.check(model) may tell more"
    )
