"""The sampler behind ``offcut.Direct``: NUTS on p(theta | X) with the window's mass in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from offcut.augmentation.joint import Observed, log_joint
from offcut.augmentation.layout import Layout
from offcut.errors import SettingsError, StartError
from offcut.imputation.impute import first_imputed, refuse_impossible_zones
from offcut.kernels.direct import Direct
from offcut.kernels.tuning import Tuning
from offcut.model_sampler import ModelSampler
from offcut.models.rejection import RejectionModel
from offcut.models.truncation import Truncated
from offcut.observations import point_like
from offcut.prior import Theta
from offcut.promises import not_finite, shown
from offcut.regions.intervals import intervals
from offcut.regions.region import Region
from offcut.sampler import BROKEN, OK, Info, Stage
from offcut.start import climb_to_start, shake_start
from offcut.window_mass import TAILS, log_mass


class State(NamedTuple):
    """theta unconstrained, what warm-up has learnt, and what stands for hidden data."""

    position: jax.Array
    exact: Theta  # always empty; samplers of models have it
    tuning: Tuning
    imputed: Any


def why_not_direct(model: RejectionModel, covariates: tuple) -> str | None:
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
    first = jax.tree.map(lambda a: a[0], covariates)
    kinds: list[type] = []
    jax.eval_shape(
        lambda key: kinds.append(type(model.base(model.prior.sample(key), *first))),
        jax.random.key(0),
    )
    if kinds[0] not in TAILS:
        known = ", ".join(sorted(kind.__name__ for kind in TAILS))
        return f"the base must be one of {known}, not {kinds[0].__name__}"
    return None


class DirectSampler(ModelSampler):
    """NUTS on the exact posterior."""

    draws_rejections = False

    def __init__(
        self, model: RejectionModel, layout: Layout, kernel: Direct, covariates: tuple
    ) -> None:
        reason = why_not_direct(model, covariates)
        if reason is not None:
            raise SettingsError(f"Direct() does not fit this model: {reason}")
        super().__init__(model, layout, kernel)
        assert isinstance(model, Truncated)
        self._base = model.base
        self._intervals = intervals(model.inside) or []  # type: ignore[arg-type]
        self._log_joint = log_joint(model, layout)

    def start(self, key: jax.Array, data: Observed, budget: int) -> State:
        """Near the mode of the density that forgets the window."""
        position, exact = climb_to_start(self.model, self.layout, key, data)
        log_density = self._log_density(data)
        own_key = jax.random.fold_in(key, 1)
        shaken = shake_start(self.model, self.layout, own_key, position, exact, data, 0.1)
        if shaken is None or not jnp.isfinite(log_density(shaken)):
            shaken = position
        if not jnp.isfinite(log_density(shaken)):
            raise StartError(
                f"the posterior density is {log_density(shaken)} at the start theta="
                f"{shown(self.model.prior.constrain(shaken, exact))}, where all data are possible: "
                "has the window no mass there? kernel=offcut.NUTS() does not need it"
            )
        imputed = first_imputed(data)
        theta = self.model.prior.constrain(shaken, exact)
        refuse_impossible_zones(self.model, key, theta, data, imputed)
        tuning = self.kernel.first_tuning(self.layout.n, shaken.shape[0])
        return State(shaken, exact, tuning, imputed)

    def step(
        self, key: jax.Array, state: State, stage: Stage, data: Observed
    ) -> tuple[State, Info]:
        """One NUTS transition, after a draw of what is hidden."""
        key_move, key_hidden = jax.random.split(key)
        before = state
        state, data, imputing = self.complete(key_hidden, state, data)
        position, tuning, stats, sound = self.kernel_step(
            key_move, state.position, self._log_density(data), state.tuning, stage
        )
        stats = {name: value for name, value in stats.items() if value.ndim == 0}
        status = jnp.where(sound, OK, BROKEN)
        moved = state._replace(position=position, tuning=tuning)
        kept = jax.tree.map(lambda new, old: jnp.where(sound, new, old), moved, before)
        stats = {"rejected": jnp.int32(0), **imputing, **stats}
        return kept, Info(stats, status.astype(jnp.int32), None)

    def explain(self, state: State, evidence: Any) -> Exception:
        """The density is not finite where the chain stands."""
        theta = self.model.prior.constrain(state.position, state.exact)
        return not_finite(theta, "the log density of the data in their window")

    def _log_density(self, data: Observed) -> Callable[[jax.Array], jax.Array]:
        prior, n = self.model.prior, self.layout.n
        log_base = self._log_base(data)

        def log_z(theta: Theta, *covariate: Any) -> jax.Array:
            return log_mass(self._base(theta, *covariate), self._intervals)

        def log_density(position: jax.Array) -> jax.Array:
            theta = prior.constrain(position, {})
            if data.covariates:
                rows = jax.tree.map(lambda a: a[:n], data.covariates)
                mass = jnp.sum(jax.vmap(lambda c: log_z(theta, *c))(rows))
            else:
                mass = n * log_z(theta)
            # A theta whose window has no mass cannot have given data; nor is it infinitely good.
            possible = mass > -jnp.inf
            log_likelihood = log_base(theta) - jnp.where(possible, mass, 0.0)
            value = prior.log_density(position, {}) + log_likelihood
            return jnp.where(possible, value, -jnp.inf)

        return log_density

    def _log_base(self, data: Observed) -> Callable[[Theta], jax.Array]:
        """sum_i log q(x_i), from sums over the data where the family has them."""
        n = self.layout.n

        def one_by_one(theta: Theta) -> jax.Array:
            return self._log_joint(theta, data, None)

        if data.covariates:
            return one_by_one
        x = data.points[:n]
        mean = jnp.mean(x)
        squares = jnp.sum((x - mean) ** 2)
        positive, not_negative = jnp.all(x > 0), jnp.all(x >= 0)
        log_x = jnp.log(jnp.where(x > 0, x, 1.0))
        log_mean, total_log = jnp.mean(log_x), jnp.sum(log_x)
        log_squares = jnp.sum((log_x - log_mean) ** 2)

        def normal(base: Any, mean: jax.Array, squares: jax.Array) -> jax.Array:
            spread = squares + n * (mean - base.loc) ** 2
            constant = jnp.log(base.scale) + 0.5 * jnp.log(2 * jnp.pi)
            return -0.5 * spread / base.scale**2 - n * constant

        def of_sums(theta: Theta) -> jax.Array:
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
            return one_by_one(theta)

        return of_sums
