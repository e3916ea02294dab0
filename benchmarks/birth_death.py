r"""Local updates of the rejections, as Adams, Murray & MacKay (2009) have them: a comparator.

Y is kept from sweep to sweep and changed one rejection at a time. With q(y) = 1 - sigma(f(y)) and M
rejections held, a density has (n + M - 1 choose M) orders of accepted and rejected proposals for
each order of Y, so that

    birth  y ~ g0, put in at random:  accepted with odds  c(M) q(y),
    death  of one at random:          accepted with odds  1 / (c(M - 1) q(y)),
    move   y' = y + noise:            accepted with odds  g0(y') q(y') / (g0(y) q(y)),

c(M) = (n + M) / (M + 1); for an intensity c(M) = lambda |T| / (M + 1). Births and deaths are tried
equally often.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import jax
import jax.numpy as jnp
from jax import lax

import offcut
from offcut.base import FULL, OK, Info, Kernel, Stage
from offcut.errors import SettingsError
from offcut.gp import proposals as points
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.data import GPData
from offcut.gp.plan import Plan, Prepared
from offcut.gp.proposals import Points
from offcut.gp.sampler import State

#: Noise of a move, in standard deviations of the data; of half the box, where there are none.
SHIFT, ALONE = 0.3, 1 / 3


class BirthDeathSampler(AugmentedSampler):
    """The sweep of ``AugmentedSampler`` with Y kept and changed locally."""

    redraws = False

    def __init__(self, plan: Plan, kernel: Kernel, moves: int) -> None:
        super().__init__(plan._replace(joint=False), kernel)
        self.moves = moves
        self.kernel_name = f"{kernel!r} with BirthDeath(moves={moves})"

    @property
    def key(self) -> tuple:
        return *super().key, self.moves

    def step(self, key: jax.Array, state: State, stage: Stage, data: GPData) -> tuple[State, Info]:
        k = jax.random.split(key, 4)
        held = state.points._replace(f=self._everywhere(state.w, state.points))
        room = points.capacity_of(self.plan.layout, held)
        held, accepted, full = self._local(k[0], held, state, jnp.minimum(stage.budget, room), data)
        status = jnp.where(full & (room < stage.budget), FULL, OK)
        moved, stats = self._function(k[1], state, held, stage, data)
        moved, more = self._base(k[2], moved, held, stage, data)
        log_rate = self.plan.process.update_rate(k[3], moved.log_rate, held.last, data)
        moved = moved._replace(log_rate=log_rate, points=held)
        stats = {"rejected": held.count, "local_acceptance": accepted, **stats, **more}
        return moved, Info({**stats, **self.described(moved, data)}, status, held.count)

    def _odds(self, count: jax.Array, state: State, data: GPData) -> jax.Array:
        """log c(M)."""
        M = count.astype(float)
        if self.plan.process.rated:
            return state.log_rate + jnp.log(data.volume) - jnp.log(M + 1)
        return jnp.log(data.n + M) - jnp.log(M + 1)

    def _log_q(self, f: jax.Array, u: jax.Array, data: GPData) -> jax.Array:
        """log probability that a proposal is rejected; 0 beyond the support."""
        return jnp.where(points.inside(u, data), jax.nn.log_sigmoid(-f), 0.0)

    def _local(
        self, key: jax.Array, held: Points, state: State, limit: jax.Array, data: GPData
    ) -> tuple[Points, jax.Array, jax.Array]:
        """All local moves of a sweep: Y, the share accepted, and whether a birth found no room."""
        plan, n, moves = self.plan, held.n, self.moves
        k = jax.random.split(key, 5)
        born = plan.base.propose(k[0], state.base, moves, data)
        born_f = plan.basis.evaluate(state.w, born)
        log_uniform = jnp.log(jax.random.uniform(k[1], (2, moves)))
        coin = jax.random.uniform(k[2], (moves,)) < 0.5
        which = jax.random.uniform(k[3], (2, moves))
        there = (jnp.arange(data.x.shape[1]) < n)[None, :]
        spread = jnp.where(n > 1, jnp.std(data.x, axis=1, where=there), ALONE)
        noise = SHIFT * spread[:, None] * jax.random.normal(k[4], (plan.basis.d, moves))

        def one(i: jax.Array, carry: tuple) -> tuple:
            held, accepted, full = carry
            count = held.count
            y, f = lax.dynamic_slice_in_dim(born, i, 1, axis=1), born_f[i][None]
            chosen = n + (which[0, i] * count).astype(jnp.int32)
            old_y = lax.dynamic_slice_in_dim(held.u, chosen, 1, axis=1)
            old_f = held.f[chosen][None]
            birth = self._odds(count, state, data) + self._log_q(f, y, data)[0]
            death = -self._odds(count - 1, state, data) - self._log_q(old_f, old_y, data)[0]
            willing = log_uniform[0, i] < jnp.where(coin[i], birth, death)
            is_birth = coin[i] & willing & (count < limit)
            is_death = ~coin[i] & willing & (count > 0)
            # The last one takes the place of the dead.
            last = n + count - 1
            target = jnp.where(is_birth, n + count, jnp.where(is_death, chosen, held.f.shape[0]))
            value_u = jnp.where(is_birth, y, lax.dynamic_slice_in_dim(held.u, last, 1, axis=1))
            value_f = jnp.where(is_birth, f[0], held.f[last])
            held = Points(
                held.u.at[:, target].set(value_u[:, 0], mode="drop"),
                held.f.at[target].set(value_f, mode="drop"),
                count + is_birth - is_death,
                n,
            )
            full = full | (coin[i] & willing & (count >= limit))
            held, moved = self._perturbed(i, held, state, which[1], noise, log_uniform[1], data)
            return held, accepted + (is_birth | is_death) + moved, full

        start = (held, jnp.int32(0), jnp.array(False))
        held, accepted, full = lax.fori_loop(0, moves, one, start)
        return held, accepted / (2.0 * moves), full

    def _perturbed(
        self,
        i: jax.Array,
        held: Points,
        state: State,
        which: jax.Array,
        noise: jax.Array,
        log_uniform: jax.Array,
        data: GPData,
    ) -> tuple[Points, jax.Array]:
        """One rejection moved a little, where there is any."""
        plan, n = self.plan, held.n
        chosen = n + (which[i] * held.count).astype(jnp.int32)
        y = lax.dynamic_slice_in_dim(held.u, chosen, 1, axis=1)
        other = y + lax.dynamic_slice_in_dim(noise, i, 1, axis=1)
        f = plan.basis.evaluate(state.w, other)
        log_g0 = plan.base.log_density(state.base, jnp.concatenate([y, other], axis=1), data)
        beyond = jnp.any((other < data.lower[:, None]) | (other > data.upper[:, None]))
        if plan.base.size == 0:  # a uniform base is zero beyond its box
            log_g0 = log_g0.at[1].set(jnp.where(beyond, -jnp.inf, log_g0[1]))
        odds = (
            log_g0[1] - log_g0[0] + self._log_q(f, other, data)[0]
            - self._log_q(held.f[chosen][None], y, data)[0]
        )  # fmt: skip
        moved = (log_uniform[i] < odds) & (held.count > 0)
        target = jnp.where(moved, chosen, held.f.shape[0])
        held = held._replace(
            u=held.u.at[:, target].set(other[:, 0], mode="drop"),
            f=held.f.at[target].set(f[0], mode="drop"),
        )
        return held, moved


class _Local:
    """A process whose rejections are born, die and move, in place of fresh ones.

    ``moves``: births or deaths, and as many perturbations, in each sweep.
    """

    moves: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.moves, int) or isinstance(self.moves, bool) or self.moves < 1:
            raise SettingsError(f"moves must be a whole number from 1 on, got {self.moves!r}")

    def _sampler(self, prepared: Prepared, method: str, kernel: Kernel | None) -> BirthDeathSampler:
        kernel = offcut.PolyaGamma() if kernel is None else kernel
        return BirthDeathSampler(prepared.plan, kernel, self.moves)


@dataclass(eq=False, repr=False)
class LocalDensity(_Local, offcut.GPDensity):
    """``offcut.GPDensity`` with local changes of the rejections."""

    _: KW_ONLY
    moves: int = 100


@dataclass(eq=False, repr=False)
class LocalIntensity(_Local, offcut.GPIntensity):
    """``offcut.GPIntensity`` with local changes of the rejections."""

    _: KW_ONLY
    moves: int = 100
