"""``method="direct"``: theta moves on p(theta | X), where the mass of the window has a closed form.

Where that mass, Z(theta), is known, the honest thing is to use it; no rejections are drawn:

    log p(X | theta) = sum_i log q(x_i | theta) - n log Z(theta).

That is so for models made by ``offcut.truncated`` with single numbers as observations, a window
made of ``offcut.regions`` (intervals, their unions and complements) and a base of a family whose
tails are here (``TAILS``). Never chosen by itself; the summary of a slow run recommends it where it
applies.

log Z(theta) is the mass of a window made of intervals. Each family gives log F(x) and
log(1 - F(x)), both accurate in their far tails. Between a and b

    log {F(b) - F(a)} = log F(b) + log1mexp(log F(a) - log F(b))        below the median,
                      = log S(a) + log1mexp(log S(b) - log S(a)),  S = 1 - F,  above it:

differences of numbers near 1 would lose all digits where a window shows only a tail. Where the two
ends are so near each other that their logarithms do not tell them apart (a window of 1 under a
scale of 1e20) the mass is the density in the middle times the width.

A piece without mass, because theta's support ends before it or because it is too far out for a
float, is -inf with gradient 0, and does not touch what the others say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Array, Bool, Float, Int, PyTree

from offcut.augmentation.acceptance import no_worst, not_finite
from offcut.augmentation.algorithm1 import Run
from offcut.augmentation.impute import Imputed, first_imputed
from offcut.augmentation.joint import log_joint, total
from offcut.augmentation.rejections import Layout, Rejected
from offcut.base import BROKEN, OK, Info, Kernel, LogDensity, Stage
from offcut.errors import SettingsError, StartError
from offcut.models.data import Covariates, Observed, first_row, point_like
from offcut.models.filtered import Truncated
from offcut.models.prior import Position, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import from_seed
from offcut.numerics.log1mexp import log1mexp
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point
from offcut.regions.line import intervals
from offcut.regions.region import Region
from offcut.samplers.algorithm2 import Evidence, ModelSampler, Move
from offcut.samplers.start import Start, climb, is_possible, shaken

Scalar = Float[Array, ""]
#: log F, log S, log density; plain numbers where the base has them.
Tails = tuple[Scalar | float, Scalar | float, Scalar | float]
LOG_HALF = float(np.log(0.5))
LOG_ROOT_TAU = float(0.5 * np.log(2 * np.pi))
#: Standard scores beyond this are cut off there: their squares would overflow.
FARTHEST = 1e100
#: Of a piece whose ends have log F (or log S) within this, the middle stands for all: what that
#: neglects and what the difference of two rounded numbers loses are both below 1e-8.
NARROW = 1e-8


def _normal(base: dist.Distribution, x: float | Scalar) -> Tails:
    z = jnp.clip((x - base.loc) / base.scale, -FARTHEST, FARTHEST)
    density = -0.5 * z**2 - jnp.log(base.scale) - LOG_ROOT_TAU
    return _log_ndtr(z), _log_ndtr(-z), density


@jax.custom_jvp
def _log_ndtr(z: jax.Array) -> jax.Array:
    """log Phi(z), with a slope that stays finite.

    JAX takes the slope for exp(log phi - log Phi), which far out is the exponential of the
    rounding error of two large numbers.
    """
    return log_ndtr(z)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: tuple, tangents: tuple) -> tuple:
    (z,), (dz,) = primals, tangents
    value = log_ndtr(z)
    far = z < -1e3
    near_z = jnp.where(far, -1.0, z)
    near = jnp.exp(-0.5 * near_z**2 - LOG_ROOT_TAU - jnp.where(far, 0.0, value))
    far_z = jnp.where(far, z, -1.0)
    return value, jnp.where(far, -far_z - 1.0 / far_z, near) * dz


def _log_normal(base: dist.Distribution, x: float) -> Tails:
    def tails(x: float) -> Tails:
        log_f, log_s, density = _normal(base, jnp.log(x))
        return log_f, log_s, density - jnp.log(x)

    return _positive(x, tails)


def _exponential(base: dist.Distribution, x: float) -> Tails:
    def tails(x: float) -> Tails:
        log_s = -base.rate * x
        return log1mexp(log_s), log_s, jnp.log(base.rate) + log_s

    return _positive(x, tails)


def _weibull(base: dist.Distribution, x: float) -> Tails:
    def tails(x: float) -> Tails:
        k = base.concentration
        log_ratio = jnp.log(x) - jnp.log(base.scale)
        # Where the power overflows nothing is left, whatever theta is nearby.
        finite = k * log_ratio < np.log(FARTHEST)
        ratio = jnp.where(finite, x / base.scale, 1.0)
        log_s = jnp.where(finite, -(ratio**k), -jnp.inf)
        return log1mexp(log_s), log_s, jnp.log(k) - jnp.log(x) + k * log_ratio + log_s

    return _positive(x, tails)


def _pareto(base: dist.Distribution, x: float) -> Tails:
    above = x > base.scale
    safe = jnp.where(above, x, 2 * base.scale)
    log_s = -base.alpha * jnp.log(safe / base.scale)
    return (
        jnp.where(above, log1mexp(log_s), -jnp.inf),
        jnp.where(above, log_s, 0.0),
        jnp.where(above, jnp.log(base.alpha) - jnp.log(safe) + log_s, -jnp.inf),
    )


def _logistic(base: dist.Distribution, x: float) -> Tails:
    z = (x - base.loc) / base.scale
    log_f, log_s = jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)
    return log_f, log_s, log_f + log_s - jnp.log(base.scale)


def _laplace(base: dist.Distribution, x: float) -> Tails:
    z = (x - base.loc) / base.scale
    small = LOG_HALF - jnp.abs(z)
    return (
        jnp.where(z < 0, small, log1mexp(small)),
        jnp.where(z < 0, log1mexp(small), small),
        small - jnp.log(base.scale),
    )


def _positive(x: float, tails: Callable[[float], Tails]) -> Tails:
    """Tails of a family on the positive numbers, at a number that may be none."""
    if x <= 0:  # ends of intervals are plain numbers
        return jnp.array(-jnp.inf), jnp.array(0.0), jnp.array(-jnp.inf)
    return tails(x)


#: Only these very classes: a subclass may have another distribution.
TAILS: dict[type, Callable[[dist.Distribution, float], Tails]] = {
    dist.Exponential: _exponential,
    dist.Laplace: _laplace,
    dist.Logistic: _logistic,
    dist.LogNormal: _log_normal,
    dist.Normal: _normal,
    dist.Pareto: _pareto,
    dist.Weibull: _weibull,
}


def log_mass(base: dist.Distribution, intervals: list[tuple[float, float]]) -> jax.Array:
    """log P(x in the intervals) under a base of a known family.

    >>> import jax, numpyro.distributions as dist
    >>> with jax.enable_x64(True):
    ...     round(float(log_mass(dist.Normal(0.0, 1.0), [(-1.0, 1.0)])), 4)
    -0.3817
    """
    tails = TAILS[type(base)]
    pieces = jnp.stack([_log_between(base, tails, low, high) for low, high in intervals])
    some = jnp.any(pieces > -jnp.inf)
    return jnp.where(some, logsumexp(jnp.where(some, pieces, 0.0)), -jnp.inf)


def _log_between(
    base: dist.Distribution,
    tails: Callable[[dist.Distribution, float], Tails],
    low: float,
    high: float,
) -> Scalar:
    if not low < high:
        return jnp.array(-jnp.inf)
    if np.isneginf(low) and np.isposinf(high):
        return jnp.array(0.0)
    if np.isneginf(low):
        return _or_nothing(tails(base, high)[0])
    if np.isposinf(high):
        return _or_nothing(tails(base, low)[1])
    (below_low, above_low, _), (below_high, above_high, _) = tails(base, low), tails(base, high)
    upper = below_low > LOG_HALF
    larger = jnp.where(upper, above_low, below_high)
    smaller = jnp.where(upper, above_high, below_low)
    # Every form is given harmless numbers where it is not used, for the sake of its gradient.
    some = larger > -jnp.inf
    drop = jnp.where(some, smaller - larger, -1.0)
    narrow = drop > -NARROW
    apart = jnp.where(some, larger, 0.0) + log1mexp(jnp.where(narrow, -1.0, drop))
    middle = tails(base, low + 0.5 * (high - low))[2]
    flat = _or_nothing(middle) + np.log(high - low)
    return jnp.where(some, jnp.where(narrow, flat, apart), -jnp.inf)


def _or_nothing(value: Scalar | float) -> Scalar:
    """The same, -inf being a constant."""
    return jnp.where(value > -jnp.inf, value, -jnp.inf)


def _given_mass(log_base: Scalar, mass: Scalar) -> Scalar:
    """log base - mass; a theta whose window has no mass cannot have given data.

    Nor is it infinitely good.
    """
    possible = mass > -jnp.inf
    return jnp.where(possible, log_base - jnp.where(possible, mass, 0.0), -jnp.inf)


class State(NamedTuple):
    """theta unconstrained, what warm-up has learnt, and what stands for hidden data."""

    position: Position
    exact: Theta  # always empty; samplers of models have it
    tuning: PyTree  # a Tuning, or whatever else the kernel keeps
    imputed: Imputed | None


def why_not_direct(model: RejectionModel, covariates: Covariates) -> str | None:
    """Why the mass of the window is not known, or None where it is."""
    if not isinstance(model, Truncated):
        return "it is for models made by offcut.truncated"
    if model.exact_updates:
        return "the model has exact_updates"
    if model.source.noise is not None:
        return "the model has measurement error"
    if not isinstance(model.inside, Region) or intervals(model.inside) is None:
        return (
            "the window must be made of intervals from offcut.regions, such as Box(0, 1), not of "
            "a function"
        )
    if not intervals(model.inside):
        return "the window is empty"
    if point_like(model, covariates).shape != ():
        return "an observation must be a single number"
    kinds: list[type] = []
    jax.eval_shape(
        lambda key, first: kinds.append(type(model.base(model.prior.sample(key), *first))),
        from_seed(0),
        first_row(covariates),
    )
    if kinds[0] not in TAILS:
        known = ", ".join(sorted(kind.__name__ for kind in TAILS))
        return f"the base must be one of {known}, not {kinds[0].__name__}"
    return None


class DirectSampler(ModelSampler[State]):
    """A kernel on the exact posterior."""

    method = "direct"
    draws_rejections = False

    def __init__(
        self,
        model: RejectionModel,
        layout: Layout,
        kernel: Kernel,
        covariates: Covariates,
        settings: None = None,
    ) -> None:
        reason = why_not_direct(model, covariates)
        if reason is not None:
            raise SettingsError(f"method='direct' does not fit this model: {reason}")
        super().__init__(model, layout, kernel)
        assert isinstance(model, Truncated)
        self._base = model.base
        self._intervals = intervals(model.inside) or []  # type: ignore[arg-type]
        self._log_joint = log_joint(model, layout)
        self._log_recorded = log_joint(model, layout, self._log_one)

    def begin(
        self,
        key: KeyArray,
        data: Observed,
        limit: Int[Array, ""],
        buffer: Rejected,
        at_prior: Bool[Array, ""],
    ) -> tuple[State, Start]:
        """Near the mode of the density that forgets the window."""
        climbed = climb(self.model, self.layout, key, data)
        exact, own_key = climbed.exact, jax.random.fold_in(key, 1)
        moved, possible = shaken(self.model, own_key, climbed.position, exact, data, 0.1)
        # Through a loop, so that the density is compiled once.
        places = jnp.stack([moved, climbed.position])
        usable = jnp.isfinite(jax.lax.map(self._log_density(data), places))
        usable &= jnp.stack([possible, is_possible(self.model, climbed.position, exact, data)])
        position = jnp.where(usable[0], moved, climbed.position)
        tuning = self.kernel.first_tuning(data.n, position.shape[0])
        like = jax.tree.map(lambda a: a[0], data.points)
        nothing = Run(buffer, jnp.int32(0), None, no_worst(like))
        found = Start(climbed, position, jnp.any(usable), nothing)
        return State(position, exact, tuning, first_imputed(data)), found

    def no_run(
        self, key: KeyArray, data: Observed, found: Start, limit: int, budget: int
    ) -> StartError:
        """The window has no mass, or the density overflows."""
        position = found.climbed.position
        theta = self.model.prior.constrain(position, found.climbed.exact)
        return StartError(
            f"the posterior density is {float(self._log_density(data)(position))} at the start "
            f"theta={shown(theta)}, where all data are possible: has the window no mass there? "
            "method='augment' does not need it"
        )

    def moves(self, key: KeyArray, state: State) -> list[tuple[KeyArray, Move]]:
        """theta."""
        key_move, key_hidden = jax.random.split(key)
        hidden = [] if state.imputed is None else [(key_hidden, self.impute)]
        return [*hidden, (key_move, self.given)]

    def given(
        self, key: KeyArray, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """theta | X, with log Z in the density."""
        position, tuning, stats, sound = self.kernel_step(
            key, state.position, self._log_density(data), state.tuning, stage
        )
        stats = {name: value for name, value in stats.items() if value.ndim == 0}
        stats["rejected"] = jnp.int32(0)
        status = jnp.where(sound, OK, BROKEN).astype(jnp.int32)
        return state._replace(position=position, tuning=tuning), Info(stats, status, {})

    def explain(self, state: State, evidence: Evidence) -> Exception:
        """The density is not finite where the chain stands."""
        theta = self.model.prior.constrain(state.position, state.exact)
        return not_finite(theta, "the log density of the data in their window")

    def _log_density(self, data: Observed) -> LogDensity:
        prior = self.model.prior
        log_base = self._log_base(data)

        def log_density(position: Position) -> Scalar:
            theta = prior.constrain(position, {})
            log_prior = prior.log_density(position, {})
            if data.covariates:
                return log_prior + self._log_recorded(theta, data, None)
            mass = data.n * log_mass(self._base(theta), self._intervals)
            return log_prior + _given_mass(log_base(theta), mass)

        return log_density

    def _log_one(self, theta: Theta, x: Point, *covariate: Point) -> Scalar:
        """log q(x) - log Z where each observation has its own base."""
        mass = log_mass(self._base(theta, *covariate), self._intervals)
        return _given_mass(self.model.log_observed(theta, x, *covariate), mass)

    def _log_base(self, data: Observed) -> Callable[[Theta], Scalar]:
        """sum_i log q(x_i), from sums over the data where the family has them."""
        n, x = data.n, data.points  # behind the last stand copies of the first

        def summed(values: Float[Array, " rows"]) -> Scalar:
            return total(lambda _, v: v, {}, (values,), n, self.layout.chunk, gradient=False)

        if data.covariates:
            return lambda theta: self._log_joint(theta, data, None)
        mean = summed(x) / n
        squares = summed((x - mean) ** 2)
        positive, not_negative = jnp.all(x > 0), jnp.all(x >= 0)
        log_x = jnp.log(jnp.where(x > 0, x, 1.0))
        total_log = summed(log_x)
        log_mean = total_log / n
        log_squares = summed((log_x - log_mean) ** 2)

        def normal(base: dist.Distribution, mean: Scalar, squares: Scalar) -> Scalar:
            spread = squares + n * (mean - base.loc) ** 2
            constant = jnp.log(base.scale) + 0.5 * jnp.log(2 * jnp.pi)
            return -0.5 * spread / base.scale**2 - n * constant

        def of_sums(theta: Theta) -> Scalar:
            base = self._base(theta)
            if type(base) is dist.Normal:
                return normal(base, mean, squares)
            if type(base) is dist.LogNormal:
                return jnp.where(
                    positive, normal(base, log_mean, log_squares) - total_log, -jnp.inf
                )
            if type(base) is dist.Exponential:
                log_density = n * (jnp.log(base.rate) - base.rate * mean)
                return jnp.where(not_negative, log_density, -jnp.inf)
            return self._log_joint(theta, data, None)

        return of_sums
