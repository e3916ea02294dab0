"""Algorithm 2: one sweep of the sampler, with a budget.

Given theta = (theta1, theta2): draw theta1 from its exact conditional with Y summed out, draw Y
given theta by Algorithm 1, then update theta2 given X and Y. The budget B restricts the joint
to |Y| <= B by redrawing: the pair (theta1, Y) is drawn anew until it fits, which is an exact draw
from the restricted conditional. (Redrawing Y beside a fixed theta1 would be wrong: under the
restriction the conditional of theta1 carries the factor P(|Y| <= B | theta1, theta2).) After a set
number of attempts the sweep keeps the old pair: given the rest, a mixture of the exact draw and
the identity, so the target stays and the cost has a hard bound.

``ModelSampler`` is what every sampler of a rejection model shares: its step is a list of moves, run
in order, each of which leaves the restricted joint invariant by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from offcut.augmentation.acceptance import (
    broken_promise,
    inspect_observations,
    is_broken,
    merge_worst,
    no_worst,
    not_finite,
    refuse_broken,
)
from offcut.augmentation.algorithm1 import PATIENCE, Run, run_algorithm_1
from offcut.augmentation.impute import (
    Imputed,
    Moved,
    completed,
    first_imputed,
    first_moves,
    impute,
    refuse_impossible_zones,
)
from offcut.augmentation.joint import log_joint
from offcut.augmentation.rejections import (
    MOST_ATTEMPTS,
    Layout,
    Redrawn,
    Rejected,
    capacity_of,
    outcome,
    redraw,
    resized_rejected,
    settle,
    spare_section,
)
from offcut.base import BROKEN, OK, Info, Kernel, LogDensity, Sampler, Stage, Stats, Variable
from offcut.errors import ModelError, StartError
from offcut.kernels.tuning import Tuning, stepped_from
from offcut.models.data import Observed
from offcut.models.prior import Position, Prior, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import fold_in, from_seed, rolled
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray
from offcut.programs.compiled import Program
from offcut.samplers.start import (
    Start,
    find_start,
    first_buffer,
    no_start,
    nothing_accepted,
    too_small,
)

Flag = Bool[Array, ""]
#: An exact update of a block of theta1: ``(key, theta, data) -> {name: value}``.
Update = Callable[..., Theta]


@runtime_checkable
class HasTheta(Protocol):
    """What the states of all samplers of a model have: theta, and what the data leave open."""

    @property
    def position(self) -> Position: ...
    @property
    def exact(self) -> Theta: ...
    @property
    def imputed(self) -> Imputed | None: ...


S = TypeVar("S", bound=HasTheta)
#: What ``explain`` needs, by name.
Evidence = dict[str, PyTree]
#: ``(key, state, stage, data) -> (state, info)``: leaves p(theta, Y, hidden | X) restricted to
#: |Y| <= B invariant, by itself. ``data`` are completed by what stands for hidden values.
Move = Callable[[KeyArray, S, Stage, Observed], tuple[S, Info]]


class ModelSampler(Sampler, Generic[S]):
    """A sampler of one model at one data shape."""

    draws_rejections = True
    kernel: Kernel

    def __init__(self, model: RejectionModel, layout: Layout, kernel: Kernel) -> None:
        self.model, self.layout, self.kernel = model, layout, kernel
        self.adapts = kernel.adapts
        self.kernel_name = repr(kernel)
        self._accepts = Program(self.accepts, "observations accepted")
        self._start = Program(self._first, "start", quick=True)

    def record(self, state: HasTheta) -> Theta:
        """theta with its deterministic sites."""
        return self.model.prior.constrain(state.position, state.exact)

    def variables(self) -> dict[str, Variable]:
        """What is computed or fixed, and entries that no theta changes (the ones on the diagonal of
        a correlation matrix).
        """
        prior = self.model.prior
        marks = {name: Variable(None, derived=True) for name in prior.deterministic}
        drawn: Theta = {}
        if prior.structured:
            drawn = self.model.compiled("prior draws", _three_draws(prior), True)(from_seed(0))
        for name, shape in prior.shapes.items():
            same = np.zeros(math.prod(shape), bool)
            if name in prior.structured:
                rows = np.asarray(drawn[name]).reshape(3, -1)
                same = np.all(rows == rows[0], axis=0)
            marks[name] = Variable(None, constant=tuple(bool(flag) for flag in same))
        return marks

    def begin(
        self,
        key: KeyArray,
        data: Observed,
        limit: Int[Array, ""],
        buffer: Rejected,
        at_prior: Flag,
    ) -> tuple[S, Start]:
        """A first state (compiled), and where it was found; ``start`` looks whether it was.

        ``at_prior``: nothing but a run of Algorithm 1 at a draw from the prior is wanted.
        """
        raise NotImplementedError

    def start(self, key: KeyArray, data: Observed, budget: int) -> S:
        """A place where the model accepts, with a first Y: one program, whatever it tries."""
        limit = min(budget, max(PATIENCE, 100 * int(data.n)))
        state, found, moved = self._begun(key, data, limit)
        stuck = moved is not None and not all(
            np.asarray(flags).all() for flags in jax.tree.leaves(moved)
        )
        broken = bool(is_broken(np.asarray(found.run.worst.log_accept)))
        if found.found and not stuck and not broken:
            return state
        theta = self.model.prior.constrain(found.position, found.climbed.exact)
        refuse_broken(self.model, theta, found.run.worst)
        if not found.found:
            error = no_start(self.model, self.layout, data, found.climbed)
            raise error or self.no_run(key, data, found, limit, budget)
        assert moved is not None
        refuse_impossible_zones(self.model, theta, data, moved)
        return state

    def no_run(
        self, key: KeyArray, data: Observed, found: Start, limit: int, budget: int
    ) -> StartError:
        """Why there is no first Y although all data are possible (host side)."""
        if limit < PATIENCE:  # would more room have been enough?
            limit = PATIENCE
            _, found, _ = self._begun(key, data, limit)
        theta = self.model.prior.constrain(found.position, found.climbed.exact)
        if found.found:
            return too_small(theta, int(found.run.rejected.count), budget)
        return nothing_accepted(theta, int(found.run.accepted), limit, int(data.n))

    def _begun(self, key: KeyArray, data: Observed, limit: int) -> tuple[S, Start, Moved | None]:
        """What the program of the start gives, with room for all of its rejections."""
        room = 0
        while True:
            buffer = first_buffer(self.layout, data, room)
            state, found, moved = self._start(key, data, np.int32(limit), buffer, np.False_)
            needed = int(found.run.rejected.count)
            if not found.found or needed <= capacity_of(self.layout, buffer):
                return state, found, moved
            room = 2 ** int(np.ceil(np.log2(needed)))

    def _first(
        self,
        key: KeyArray,
        data: Observed,
        limit: Int[Array, ""],
        buffer: Rejected,
        at_prior: Flag,
    ) -> tuple[S, Start, Moved | None]:
        """The program of the start: a state, and whether what is hidden can move there."""
        key = rolled(key)
        state, found = self.begin(key, data, limit, buffer, at_prior)
        moved = None
        if state.imputed is not None:
            theta = self.model.prior.constrain(state.position, state.exact)
            most = jnp.where(at_prior | ~found.found, 0, 3)
            moved = first_moves(self.model, key, theta, data, state.imputed, most)
        return state, found, moved

    def rates_by_prior(
        self, key: KeyArray, data: Observed, draws: int, limit: int
    ) -> tuple[Int[np.ndarray, " draws"], Int[np.ndarray, " draws"]]:
        """Acceptances and rejections of Algorithm 1 at draws from the prior (host side).

        Each is cut where more than ``limit`` are rejected. The program is that of the start.
        """
        buffer = first_buffer(self.layout, data, 0)
        counts = np.zeros((2, draws), np.int64)
        for number in range(draws):
            own_key = fold_in(key, number)
            _, found, _ = self._start(own_key, data, np.int32(limit), buffer, np.True_)
            if is_broken(np.asarray(found.run.worst.log_accept)):
                theta = self.model.prior.constrain(found.position, found.climbed.exact)
                refuse_broken(self.model, theta, found.run.worst)
            counts[:, number] = found.run.accepted, found.run.rejected.count
        return counts[0], counts[1]

    def moves(self, key: KeyArray, state: S) -> list[tuple[KeyArray, Move]]:
        """The moves of a sweep in their order, each with its key; which they are is static."""
        raise NotImplementedError

    def step(self, key: KeyArray, state: S, stage: Stage, data: Observed) -> tuple[S, Info]:
        """One sweep: its moves in order; the first status that is not OK is that of the sweep."""
        stats: Stats = {}
        evidence: Evidence = {}
        status = jnp.int32(OK)
        for own_key, move in self.moves(key, state):
            whole = data if state.imputed is None else completed(data, state.imputed)
            state, info = move(own_key, state, stage, whole)
            stats |= info.stats
            evidence |= info.evidence
            status = jnp.where(status == OK, info.status, status)
        return state, Info(stats, status, evidence)

    def impute(self, key: KeyArray, state: S, stage: Stage, data: Observed) -> tuple[S, Info]:
        """What is hidden | theta, X."""
        assert state.imputed is not None
        theta = self.model.prior.constrain(state.position, state.exact)
        imputed, stats = impute(self.model, key, theta, data, state.imputed)
        new = state._replace(imputed=imputed)  # type: ignore[attr-defined] # states are tuples
        return new, Info(stats, jnp.int32(OK), {})

    def kernel_step(
        self,
        key: KeyArray,
        position: Position,
        log_density: LogDensity,
        tuning: Tuning,
        stage: Stage,
    ) -> tuple[Position, Tuning, Stats, Flag]:
        """The kernel's step on a density, what warm-up learns from it, and whether it is sound.

        A density that is not finite where the chain stands (a proposal has overflowed, say) lets
        nothing move any more: the chain would stay there for good.
        """
        position, tuning, stats, before = stepped_from(
            self.kernel, key, position, log_density, tuning, stage
        )
        return position, tuning, stats, jnp.isfinite(before)

    def inspect(self, state: HasTheta, data: Observed) -> None:
        """log_accept at the observations, at this state (once for all where it is fixed)."""
        if self.model.window_is_fixed or self._accepts(state, data):
            return
        whole = completed(data, state.imputed)
        inspect_observations(self.model, self.layout, self.record(state), whole)

    def accepts(self, state: HasTheta, data: Observed) -> Flag:
        """Whether log a at every observation is one of an observation: a number up to 0."""
        theta, whole = self.record(state), completed(data, state.imputed)
        log_accept = jax.vmap(lambda x, *c: self.model.inside_at(theta, x, *c))
        values = log_accept(whole.points, *whole.covariates)
        return jnp.all(~is_broken(values) & (values > -jnp.inf))


def _three_draws(prior: Prior) -> Callable[[KeyArray], Theta]:
    return lambda key: jax.lax.map(prior.sample, jax.random.split(rolled(key), 3))


class State(NamedTuple):
    """theta2 unconstrained, theta1 on its own scale, the held Y, what warm-up learnt, and what
    stands for hidden data.
    """

    position: Position
    exact: Theta
    rejected: Rejected
    tuning: PyTree  # a Tuning, or whatever else the kernel keeps
    imputed: Imputed | None = None


class Pair(NamedTuple):
    """theta1 and Y, drawn together."""

    position: Position  # that of theta2 beside the new theta1
    exact: Theta
    latent: Theta  # both on their own scales, to be named where the draw is impossible
    run: Run
    impossible: Flag  # theta1 was drawn where the prior is zero


class AugmentedSampler(ModelSampler[State]):
    """Algorithm 2 with a kernel that moves theta2 given X and Y (NUTS, HMC, RandomWalk)."""

    method = "augment"
    redraws = True
    #: What is not finite where ``move`` is not sound.
    unsound = "the log density of data and rejections"

    def __init__(self, model: RejectionModel, layout: Layout, kernel: Kernel) -> None:
        super().__init__(model, layout, kernel)
        self._log_joint = log_joint(model, layout)
        self._log_target = jax.jit(self.log_target)  # traced once, wherever a kernel asks for it

    def begin(
        self,
        key: KeyArray,
        data: Observed,
        limit: Int[Array, ""],
        buffer: Rejected,
        at_prior: Flag,
    ) -> tuple[State, Start]:
        """A place where the model accepts, with a first Y."""
        found = find_start(self.model, self.layout, key, data, limit, buffer, at_prior)
        position, exact, rejected = found.position, found.climbed.exact, found.run.rejected
        tuning = self.kernel.first_tuning(data.n + rejected.count, position.shape[0])
        imputed = None if data.hidden is None else first_imputed(data)
        return State(position, exact, rejected, tuning, imputed), found

    def stationary(self, key: KeyArray, theta: Theta, data: Observed, rejected: Rejected) -> State:
        """The state at theta with a Y drawn from the model (for the invariance test)."""
        position, exact = self.model.prior.split(theta)
        tuning = self.kernel.first_tuning(2 * data.n, position.shape[0])
        return State(position, exact, rejected, tuning, first_imputed(data))

    def moves(self, key: KeyArray, state: State) -> list[tuple[KeyArray, Move]]:
        """Y (with theta1), then theta2."""
        key_pair, key_kernel = jax.random.split(key)
        moves: list[tuple[KeyArray, Move]] = [(key_pair, self.augment)]
        if state.imputed is not None:  # its own fold: models with nothing hidden keep their bits
            moves.insert(0, (jax.random.fold_in(key, 2), self.impute))
        if self.model.prior.size:  # else every parameter has an exact update
            moves.append((key_kernel, self.given))
        return moves

    def given(
        self, key: KeyArray, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """theta2 | X, Y, theta1."""
        theta = self.model.prior.constrain(state.position, state.exact)
        position, tuning, stats, sound = self.move(key, state, stage, data)
        status = jnp.where(sound, OK, BROKEN).astype(jnp.int32)
        evidence = {"theta": theta, "sound": sound}
        return state._replace(position=position, tuning=tuning), Info(stats, status, evidence)

    def move(
        self, key: KeyArray, drawn: State, stage: Stage, data: Observed
    ) -> tuple[Position, PyTree, Stats, Flag]:
        """Update theta2 given X, Y and theta1: the new position, tuning and statistics.

        And whether all that it was made of was finite.
        """

        def log_density(position: Position) -> Float[Array, ""]:
            return self._log_target(position, drawn.exact, data, drawn.rejected)

        return self.kernel_step(key, drawn.position, log_density, drawn.tuning, stage)

    def log_target(
        self, position: Position, exact: Theta, data: Observed, rejected: Rejected
    ) -> Float[Array, ""]:
        """log p(theta, X, Y) at a position of theta2."""
        theta = self.model.prior.constrain(position, exact)
        prior = self.model.prior.log_density(position, exact)
        return prior + self._log_joint(theta, data, rejected)

    def augment(
        self, key: KeyArray, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """(theta1, Y) | theta2, X, block by block of theta1; Y alone where there is none.

        Each block of theta1 needs its own pair under a budget: a chain of block updates followed
        by one redraw of Y would not be an exact draw. Without a budget Y is needed once only.
        theta2 stays what it is on its own scale, so its position is part of what is drawn: where
        its support depends on theta1, the same position would be another theta2.
        """
        updates: list[Update | None] = [*self.model.exact_updates.values()] or [None]
        over, status = jnp.array(False), jnp.int32(OK)
        worst, held = no_worst(jax.tree.map(lambda a: a[0], state.rejected.points)), state
        impossible, blamed = jnp.array(False), self._latent(state)
        for index, update in enumerate(updates):
            last = index == len(updates) - 1
            skip = jnp.array(False) if last else ~stage.restricted
            scratch = spare_section(self.layout, held.rejected, state.rejected)
            redrawn = self._attempt(
                jax.random.fold_in(key, index), held, scratch, update, stage.budget, data, skip
            )
            pair, run = redrawn.drawn, redrawn.drawn.run
            full = run.rejected.count > capacity_of(self.layout, state.rejected)
            outcome_here = outcome(redrawn.over, full, known=True)
            status = jnp.where(status == OK, outcome_here, status)
            worst = merge_worst(worst, run.worst)
            attempts, over = redrawn.attempts, over | redrawn.over
            success = ~redrawn.over & ~pair.impossible & (status == OK)
            blamed = settle(pair.impossible & ~impossible, pair.latent, blamed)
            impossible |= pair.impossible
            position, exact = settle(
                success, (pair.position, pair.exact), (held.position, held.exact)
            )
            rejected = settle(success & ~skip, run.rejected, held.rejected)
            held = held._replace(position=position, exact=exact, rejected=rejected)
        status = jnp.where(is_broken(worst.log_accept) | impossible, BROKEN, status)
        stats = {"rejected": held.rejected.count, "attempts": attempts, "gave_up": over}
        evidence = {"worst": worst, "impossible": impossible, "blamed": blamed}
        return held, Info(stats, status, evidence)

    def _latent(self, state: State) -> Theta:
        """theta2 and theta1 on their own scales; nothing where there is no theta1."""
        if not state.exact:
            return {}
        theta = self.model.prior.constrain(state.position, state.exact)
        return {name: theta[name] for name in self.model.prior.shapes}

    def _attempt(
        self,
        key: KeyArray,
        held: State,
        scratch: Rejected,
        update: Update | None,
        budget: Int[Array, ""],
        data: Observed,
        skip_rejections: Flag,
    ) -> Redrawn:
        """Draw one block of theta1 and Y until |Y| <= budget, MOST_ATTEMPTS times at the most."""
        prior = self.model.prior

        def draw_pair(number: Int[Array, ""], last: Pair) -> tuple[Pair, Flag]:
            key_exact, key_y = jax.random.split(jax.random.fold_in(key, number))
            position, exact, latent = held.position, held.exact, self._latent(held)
            impossible = jnp.array(False)
            if update is not None:
                theta = prior.constrain(position, exact)
                new = self._exact_draw(update, key_exact, theta, data)
                exact, latent = {**exact, **new}, {**latent, **new}
                position = prior.beside(position, held.exact, exact)
                impossible = ~jnp.isfinite(prior.log_density(position, exact))
            theta = prior.constrain(position, exact)
            limit = jnp.where(skip_rejections | impossible, -1, budget)
            run = self.run_sampler(key_y, theta, data, last.run.rejected, limit)
            over = (run.rejected.count > budget) & ~skip_rejections & ~impossible
            return Pair(position, exact, latent, run, impossible), over

        like = jax.tree.map(lambda a: a[0], held.rejected.points)
        blank = Run(scratch, jnp.int32(0), None, no_worst(like))
        start = Pair(held.position, held.exact, self._latent(held), blank, jnp.array(False))
        return redraw(draw_pair, start, MOST_ATTEMPTS)

    def run_sampler(
        self, key: KeyArray, theta: Theta, data: Observed, buffer: Rejected, limit: Int[Array, ""]
    ) -> Run:
        """Algorithm 1 at theta."""
        return run_algorithm_1(self.model, self.layout, key, theta, data, buffer, limit)

    def _exact_draw(self, update: Update, key: KeyArray, theta: Theta, data: Observed) -> Theta:
        points = jax.tree.map(lambda a: a[: self.layout.exact_rows], data.points)
        new = update(key, theta, points)
        return {name: jnp.asarray(value, theta[name].dtype) for name, value in new.items()}

    def capacity(self, state: State) -> int:
        """Rows of the buffer of rejected points."""
        return capacity_of(self.layout, state.rejected)

    def rejected(self, state: State) -> int:
        """|Y|."""
        return int(state.rejected.count)

    def row_bytes(self, state: State) -> int:
        """Bytes for one more rejected point, in all sections of the buffer."""
        rows = jax.tree.leaves((state.rejected.points, state.rejected.owner))
        return self.layout.sections * sum(
            int(np.prod(a.shape[1:])) * a.dtype.itemsize for a in rows
        )

    def resized(self, state: State, capacity: int) -> State:
        """More room, same content."""
        return state._replace(rejected=resized_rejected(self.layout, state.rejected, capacity))

    def explain(self, state: State, evidence: Evidence) -> Exception:
        """log_accept was NaN or above 0, an exact update drew what the prior excludes, or numbers
        overflowed.
        """
        if evidence["impossible"]:
            names = ", ".join(name for names in self.model.exact_updates for name in names)
            return ModelError(
                f"an exact update ({names}) has drawn theta={shown(evidence['blamed'])}, where the "
                "prior density is zero or NaN; it must draw from p(names | data, rest of theta), "
                "in which the prior of the rest given its names is a factor"
            )
        worst = evidence["worst"]
        if is_broken(worst.log_accept) or evidence.get("sound", True):
            theta = self.model.prior.constrain(state.position, state.exact)
            return broken_promise(self.model, theta, worst.point, float(worst.log_accept))
        return not_finite(evidence["theta"], self.unsound)
