"""``offcut.check``: is this model what it claims to be?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped
from scipy import stats

from offcut.augmentation.acceptance import is_broken
from offcut.augmentation.rejections import Layout
from offcut.checks.invariance import invariance_test
from offcut.errors import OffcutError
from offcut.kernels.hmc import HMC
from offcut.models.data import as_covariates, check_scalars, count_rows, point_like, point_size
from offcut.models.prior import HostTheta, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import from_seed
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point, Points
from offcut.programs.precision import in_float64
from offcut.samplers.algorithm2 import AugmentedSampler

FALSE_ALARM = 1e-5
THETAS, POINTS = 24, 512
TEST_BUDGET = 400


class Item(NamedTuple):
    """One thing that was looked at. ``passed`` is None where it could not be decided."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class Report:
    """What ``offcut.check`` found: ``ok``, ``items``; printing it prints one line for each."""

    items: list[Item]

    @property
    def ok(self) -> bool:
        return all(item.passed is not False for item in self.items)

    def __str__(self) -> str:
        marks = {True: "ok  ", False: "FAIL", None: "?   "}
        lines = [f"{marks[item.passed]}  {item.name}: {item.detail}" for item in self.items]
        closing = (
            "Nothing wrong was found. The checks are necessary, not sufficient."
            if self.ok
            else "The model is not what it claims: do not trust a posterior from it."
        )
        return "\n".join([*lines, closing])

    __repr__ = __str__


@in_float64
def check(
    model: RejectionModel,
    theta: HostTheta | None = None,
    *,
    n: int = 10,
    covariates: PyTree = None,
    replicates: int = 4000,
    seed: int = 0,
) -> Report:
    """Test by simulation that a model is a rejection sampler, and the whole sampler with it.

    Checked at ``theta`` or at draws from the prior: shapes; ``log_accept`` at most 0 and never
    NaN; finite gradients at accepted and at rejected points; ``propose`` draws from the density
    that ``log_proposal`` states (its score must have mean zero, and for one-dimensional points a
    histogram must match); and the invariance test of Algorithm 2: parameters drawn from the prior
    and moved by the sampler, with data simulated from them, keep their distribution.

    Parameters
    ----------
    model : RejectionModel
        What to test.
    theta : dict, optional
        Where to test the density; by default at 24 draws from the prior.
    n : int
        Observations in each replicate of the invariance test.
    covariates : pytree, optional
        Rows to take covariates from, for models that need them; the first n are used.
    replicates : int
        Data sets simulated for the invariance test.
    seed : int
        Seed.

    Returns
    -------
    Report
        ``report.ok`` and one line for each check. Each check's false-alarm rate is 1e-5.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> wrong = offcut.RejectionModel(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     propose=lambda key, theta: dist.Normal(theta["loc"], 1).sample(key),
    ...     log_proposal=lambda theta, y: dist.Normal(theta["loc"], 2).log_prob(y),
    ...     log_accept=lambda theta, y: -0.5 * y**2,
    ... )
    >>> offcut.check(wrong, replicates=100).ok
    False
    """
    key = from_seed(seed)
    trees: tuple = ()
    if covariates is not None:
        trees = as_covariates(covariates, len(next(iter(jax.tree.leaves(covariates)))))
        n = min(n, count_rows(trees, "covariates"))
        trees = jax.tree.map(lambda a: a[:n], trees)
    items: list[Item] = []
    try:
        like = point_like(model, trees)
        check_scalars(model, like, trees)
    except OffcutError as error:
        return Report([Item("shapes", False, str(error))])
    items.append(Item("shapes", True, "propose gives a point, the densities give numbers"))

    simulated = Simulated.of(model, key, theta, trees)
    items += [_check_log_accept(simulated), _check_gradients(simulated), _check_score(simulated)]
    leaves = jax.tree.leaves(simulated.points)
    if len(leaves) == 1 and leaves[0].ndim == 2 and leaves[0].dtype.kind == "f":
        items.append(_check_histogram(simulated))
    if all(item.passed is not False for item in items):
        items.append(_check_invariance(model, key, n, trees, like, replicates))
    return Report(items)


class Simulated(NamedTuple):
    """THETAS parameter values with POINTS proposals each, and one covariate (or none) each."""

    model: RejectionModel
    thetas: Theta
    points: PyTree[Shaped[Array, "thetas points ..."]]
    covariate: tuple

    @classmethod
    def of(
        cls, model: RejectionModel, key: KeyArray, theta: HostTheta | None, trees: tuple
    ) -> Simulated:
        """At draws from the prior, or at one theta."""
        if theta is None:
            keys = jax.random.split(jax.random.fold_in(key, 1), THETAS)
            thetas = jax.vmap(model.prior.sample)(keys)
        else:
            thetas = jax.tree.map(lambda a: a[None], model.prior.completed(theta))
        count = len(jax.tree.leaves(thetas)[0])
        covariate = jax.tree.map(lambda a: a[jnp.arange(count) % a.shape[0]], trees)
        keys = jax.random.split(jax.random.fold_in(key, 2), (count, POINTS))

        def propose(keys: Key[Array, " points"], theta: Theta, *c: PyTree) -> Points:
            return jax.vmap(lambda k: model.propose(k, theta, *c))(keys)

        points = jax.jit(jax.vmap(propose))(keys, thetas, *covariate)
        return cls(model, thetas, points, covariate)

    def each(self, function: Callable[..., PyTree]) -> Any:
        """``function(theta, y, *covariate)`` at every simulated pair."""

        def at(theta: Theta, points: Points, *c: PyTree) -> PyTree:
            return jax.vmap(lambda y: function(theta, y, *c))(points)

        found = jax.jit(jax.vmap(at))(self.thetas, self.points, *self.covariate)
        return jax.tree.map(np.asarray, found)

    def place(self, index: tuple[int, ...]) -> str:
        """One pair in words."""
        theta = jax.tree.map(lambda a: np.asarray(a[index[0]]), self.thetas)
        point = jax.tree.map(lambda a: np.asarray(a[index]), self.points)
        return f"theta={shown(theta)}, y={shown(point)}"


def _check_log_accept(simulated: Simulated) -> Item:
    name = "log_accept <= 0"
    model = simulated.model
    values = simulated.each(lambda t, y, *c: jnp.asarray(model.log_accept(t, y, *c)))
    wrong = is_broken(values)
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        return Item(
            name,
            False,
            f"{values[index]:.6g} at {simulated.place(index)}; an acceptance probability "
            "is a number that cannot exceed 1: is the bound too small?",
        )
    rate = np.exp(values).mean(axis=1)
    detail = f"acceptance {np.median(rate):.2g} in the median over theta, lowest {rate.min():.2g}"
    return Item(name, True, detail)


def _check_gradients(simulated: Simulated) -> Item:
    name, model = "finite gradients", simulated.model

    def both(theta: Theta, y: Point, *c: PyTree) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        log_accept = model.log_accept(theta, y, *c)
        observed = jax.grad(lambda t: model.log_observed(t, y, *c))(theta)
        rejected = jax.grad(lambda t: model.log_rejected(t, y, y, *c))(theta)
        possible = jnp.isfinite(log_accept)

        def good(gradient: Theta) -> Bool[Array, ""]:
            leaves = jax.tree.leaves(gradient)
            return jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in leaves])) | ~possible

        # A y that is never accepted stands beside an accepted one in the engine.
        return good(observed), good(rejected)

    observed, rejected = simulated.each(both)
    for what, good in {"accepted": observed, "rejected": rejected}.items():
        if not good.all():
            index = tuple(np.argwhere(~good)[0].tolist())
            return Item(name, False, f"NaN or inf for an {what} point at {simulated.place(index)}")
    return Item(name, True, f"at {observed.size:,} simulated points")


def _check_score(simulated: Simulated) -> Item:
    """E[d log q(y | theta) / d theta] = 0 where y ~ q(. | theta)."""
    name, model = "propose matches log_proposal", simulated.model
    free = list(model.prior.shapes)

    def score(theta: Theta, y: Point, *c: PyTree) -> Float[Array, " d"]:
        inner = {k: theta[k] for k in free}
        fixed = {k: v for k, v in theta.items() if k not in free}
        gradient = jax.grad(lambda t: model.log_proposal({**fixed, **t}, y, *c))(inner)
        return jnp.concatenate([jnp.ravel(g) for g in jax.tree.leaves(gradient)])

    log_q = simulated.each(model.log_proposal)
    if not np.isfinite(log_q).all():
        index = tuple(np.argwhere(~np.isfinite(log_q))[0].tolist())
        return Item(
            name,
            False,
            f"log_proposal is {log_q[index]} at a point that propose gave, "
            f"{simulated.place(index)}: a parameter outside its range (a negative scale?)",
        )
    scores = simulated.each(score)
    mean, spread = scores.mean(axis=1), scores.std(axis=1, ddof=1)
    moving = spread > 0
    if not moving.any():
        return Item(name, None, "the proposal does not depend on theta: nothing to compare")
    z = np.where(moving, mean / np.where(moving, spread, 1) * np.sqrt(POINTS), 0.0)
    # Scores may have heavy tails; Student's t with few degrees of freedom is the safe side.
    p = 2 * stats.t.sf(np.abs(z), 30) * moving.sum()
    if p.min() < FALSE_ALARM:
        index = np.unravel_index(np.argmin(p), p.shape)
        theta = jax.tree.map(lambda a: np.asarray(a[index[0]]), simulated.thetas)
        return Item(
            name,
            False,
            f"the score of log_proposal at its own draws should average 0, but is "
            f"{mean[index]:.3g} (z = {z[index]:.1f}) at theta={shown(theta)}: propose and "
            "log_proposal are different distributions",
        )
    return Item(name, True, f"score averages 0 at {len(mean)} values of theta")


def _check_histogram(simulated: Simulated) -> Item:
    """Counts of one-dimensional proposals between their quantiles against the density."""
    name, (model, thetas, points, covariate) = "histogram of proposals", simulated
    bins, inner = 12, 33
    values = np.asarray(jax.tree.leaves(points)[0])
    structure = jax.tree.structure(points)
    total = 0.0
    for row in range(len(values)):
        # Edges from one half of the draws, counts from the other.
        edges = np.quantile(values[row, ::2], np.linspace(0.05, 0.95, bins + 1))
        if np.unique(edges).size < bins + 1:
            return Item(name, None, "proposals repeat values: not compared")
        grid = np.linspace(edges[:-1], edges[1:], inner, axis=1)
        at = jax.tree.map(lambda a, row=row: jnp.asarray(a[row]), (thetas, covariate))
        tree = jax.tree.unflatten(structure, [jnp.asarray(grid.ravel())])
        log_q = jax.vmap(lambda y, at=at: model.log_proposal(at[0], y, *at[1]))(tree)
        density = np.exp(np.asarray(log_q)).reshape(grid.shape)
        mass = np.trapezoid(density, grid, axis=1)
        counts = np.histogram(values[row, 1::2], edges)[0]
        if mass.sum() <= 0 or not np.isfinite(mass).all():
            return Item(name, False, "log_proposal is zero or NaN where proposals fall")
        expected = mass / mass.sum() * counts.sum()
        total += ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    p_value = float(stats.chi2.sf(total, len(values) * (bins - 1)))
    if p_value < FALSE_ALARM:
        detail = f"draws of propose do not follow exp(log_proposal) (p = {p_value:.1g})"
        return Item(name, False, detail)
    return Item(name, True, f"follows log_proposal at {len(values)} values of theta")


def _check_invariance(
    model: RejectionModel, key: KeyArray, n: int, trees: tuple, like: PyTree, replicates: int
) -> Item:
    name = "the sampler leaves the model invariant"
    if model.prior.has_likelihood:
        detail = "not tested: the prior has factors or observed sites, which cannot be simulated"
        return Item(name, None, detail)
    layout = Layout.of(n, point_size(like), bool(trees), len(model.exact_updates))
    kernel = HMC(step_size=float(0.4 / np.sqrt(2 * n)), num_steps=4)
    sampler = AugmentedSampler(model, layout, kernel)
    try:
        result = invariance_test(
            sampler,
            model,
            layout,
            n,
            jax.random.fold_in(key, 3),
            replicates=replicates,
            steps=3,
            budget=TEST_BUDGET,
            covariates=trees,
        )
    except OffcutError as error:
        return Item(name, False, str(error))
    if result.replicates < 0.1 * replicates:
        return Item(
            name,
            None,
            f"under this prior {1 - result.replicates / replicates:.0%} of simulated data sets "
            f"need more than {TEST_BUDGET} rejections for {n} observations: too few are left to "
            "test with. Such a prior will also be slow to sample under",
        )
    worst = max(result.z, key=lambda k: abs(result.z[k]))
    detail = (
        f"{result.replicates:,} simulated data sets, largest |z| {abs(result.z[worst]):.1f} "
        f"({worst}), p = {result.p_value:.2g}"
    )
    if result.moved < 0.2:
        return Item(name, None, f"the kernel hardly moved ({result.moved:.0%}): {detail}")
    return Item(name, result.p_value > FALSE_ALARM, detail)
