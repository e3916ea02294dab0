r"""The invariance test: does a sampler leave the joint distribution alone?

Draw theta from the prior and (X, Y) from the model, cut to |Y| <= B; run a few steps of the sampler
with X as data; theta must have kept its distribution given X. Over many replicates the mean change
of any statistic of (theta, X) is zero (Geweke 2004, in the form of Gandy & Scott 2020). It needs
no convergence, so it sees what long runs hide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import stats as distributions

from offcut.augmentation.algorithm1 import run_algorithm_1
from offcut.augmentation.rejections import Layout, empty_rejected
from offcut.base import OK, Stage
from offcut.errors import ModelError
from offcut.models.data import Observed, pad_rows
from offcut.models.prior import Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.types import KeyArray, Points


@runtime_checkable
class Stationary(Protocol):
    """A sampler that can be put into its stationary distribution, Y being a draw of the model."""

    def stationary(self, key: KeyArray, theta: Theta, data: PyTree, rejected: PyTree) -> PyTree: ...
    def step(self, key: KeyArray, state: PyTree, stage: Stage, data: PyTree) -> tuple: ...
    def record(self, state: PyTree) -> Theta: ...


class Invariance(NamedTuple):
    """z of the mean change of each statistic, the smallest p-value after Bonferroni, replicates."""

    z: dict[str, float]
    p_value: float
    replicates: int
    moved: float  # share of replicates whose theta changed; a test of nothing else would be void


#: A statistic that changes by less has not changed: theta goes to another scale and back.
ROUNDING = 1e-9


def plain_stage(budget: int) -> Stage:
    """A step outside warm-up under a budget."""
    no = jnp.array(False)
    return Stage(jnp.int32(budget), jnp.array(True), no, no, no, no)


def invariance_test(
    sampler: Stationary,
    model: RejectionModel,
    layout: Layout,
    n: int,
    key: KeyArray,
    *,
    replicates: int = 10_000,
    steps: int = 3,
    budget: int = 200,
    covariates: tuple = (),
    hide: Callable[[Points], PyTree] | None = None,
) -> Invariance:
    """Run the test; call it with x64 on.

    Parameters
    ----------
    sampler : Sampler with a method ``stationary(key, theta, data, rejected)``
        A state from the stationary distribution at theta, given a Y.
    model, layout
        What the sampler samples, and its layout for n observations.
    n : int
        Observations in each replicate.
    budget : int
        B. Priors should be narrow: replicates with |Y| > B are dropped.
    hide : callable, optional
        What of the (padded) points is hidden from the sampler: ``points -> Hidden``. It starts from
        the true values, a draw from their conditional.
    """
    like = jax.eval_shape(
        lambda k: model.propose(
            k, model.prior.sample(k), *jax.tree.map(lambda a: jnp.asarray(a[0]), covariates)
        ),
        key,
    )
    covariates = jax.tree.map(jnp.asarray, covariates)
    capacity = layout.capacity(budget)
    padded = pad_rows(covariates, layout.rows)

    def statistics(theta: Theta, points: Points) -> dict[str, Float[Array, ""]]:
        position, exact = model.prior.split(theta)
        mean = sum(jnp.mean(leaf.astype(float)) for leaf in jax.tree.leaves(points))
        values = {}
        for index in range(model.prior.size):
            values[f"u[{index}]"] = position[index]
        for name, value in exact.items():
            for index, entry in enumerate(jnp.ravel(value)):
                values[f"{name}[{index}]"] = entry
        more = {}
        for name, value in values.items():
            more[f"{name}^2"] = value**2
            more[f"{name} * mean(x)"] = value * mean
        names = list(values)
        for a, b in itertools.pairwise(names):
            more[f"{a} * {b}"] = values[a] * values[b]
        return {**values, **more}

    def replicate(key: KeyArray) -> tuple:
        key_theta, key_data, key_state, key_steps = jax.random.split(key, 4)
        theta = jax.tree.map(lambda a: jnp.asarray(a, float), model.prior.sample(key_theta))
        buffer = empty_rejected(layout, like, capacity)
        run = run_algorithm_1(
            model,
            layout,
            key_data,
            theta,
            Observed(None, padded, jnp.int32(n)),
            buffer,
            jnp.int32(budget),
            keep_accepted=True,
        )
        usable = (run.rejected.count <= budget) & (run.accepted == n)
        kept = jax.tree.map(lambda a: a[:n], run.kept)
        padded_points = pad_rows(kept, layout.rows)
        hidden = None if hide is None else hide(padded_points)
        data = Observed(padded_points, padded, jnp.int32(n), hidden)

        def walk() -> tuple:
            state = sampler.stationary(key_state, theta, data, run.rejected)

            def one(index: jax.Array, carry: tuple) -> tuple:
                state, fine = carry
                own_key = jax.random.fold_in(key_steps, index)
                state, info = sampler.step(own_key, state, plain_stage(budget), data)
                return state, fine & (info.status == OK)

            state, fine = jax.lax.fori_loop(0, steps, one, (state, jnp.array(True)))
            return statistics(sampler.record(state), kept), fine

        before = statistics(theta, kept)
        after, fine = jax.lax.cond(usable, walk, lambda: (before, jnp.array(True)))
        return jax.tree.map(jnp.subtract, after, before), usable, fine

    keys = jax.random.split(key, replicates)
    change, usable, fine = jax.jit(lambda keys: jax.lax.map(replicate, keys))(keys)
    if not bool(np.all(fine)):
        raise ModelError("a step of the invariance test was not OK: log_accept above 0 or NaN?")
    usable = np.asarray(usable)
    z, moved = {}, 0.0
    for name, values in change.items():
        kept = np.asarray(values)[usable]
        error = kept.std(ddof=1) / np.sqrt(kept.size)
        changed = float(np.mean(np.abs(kept) > ROUNDING))
        z[name] = float(kept.mean() / error) if changed > 0 else 0.0
        moved = max(moved, changed)
    worst = max(abs(value) for value in z.values())
    p_value = min(1.0, float(2 * distributions.norm.sf(worst)) * len(z))
    return Invariance(z, p_value, int(usable.sum()), moved)
