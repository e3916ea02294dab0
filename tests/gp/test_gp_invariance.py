"""Every update of Gaussian process densities and intensities leaves the joint distribution alone.

Draw f, base and hyperparameters from their priors and n points given them, with their rejections;
run a few sweeps; the mean change of statistics of (f, base, hyperparameters, X) is zero. 1e-5 for
each call, Bonferroni over its statistics. An intensity has a random number of points: replicates
with n of them are kept.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import offcut
from offcut.base import OK
from offcut.checks.invariance import plain_stage
from offcut.driver.chain import CompiledBlock
from offcut.gp import augmented
from offcut.gp import proposals as points
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.base_density import FamilyBase
from offcut.gp.basis import Grid
from offcut.gp.exact import ExactSampler
from offcut.gp.process import DensityProcess, IntensityProcess
from offcut.gp.proposals import Points
from offcut.gp.sampler import CollapsedSampler
from offcut.gp.updates import EllipticalSlice, PolyaGamma
from offcut.numerics import keys
from offcut.numerics.normal import features as quadratic
from offcut.numerics.normal import size as number_of_features
from offcut.samplers.choice import prepare
from statistical.truth import FALSE_ALARM

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("float64")]

TRIED = 128  # proposals of a replicate; those that need more are not used
NARROW = offcut.NormalInverseWishart([0.0], 3.0, 12.0, [[10.0]])
LEARNED = {
    "length_scale": dist.LogNormal(0.0, 0.3),
    "variance": dist.LogNormal(0.3, 0.4),
}
FIXED = {"length_scale": 1.0, "variance": 1.5}


class Case:
    """A model, the number of observations, and a budget."""

    def __init__(self, model, n, d=1, budget=TRIED):
        rng = np.random.default_rng(0)
        low = 0.05 if isinstance(model, offcut.GPIntensity) else -1.0
        x = rng.uniform(low, 0.95, (n, d))
        prepare(model, x[:, 0] if d == 1 else x)
        prepared = next(iter(model._prepared.values()))
        # The arrays are constants of these tests' programs, and so JAX's.
        self.prepared = prepared._replace(data=jax.tree.map(jnp.asarray, prepared.data))
        self.n, self.d, self.budget = n, d, budget

    def exact(self, kind=ExactSampler, update=None):
        return kind(self.prepared.plan, update or PolyaGamma(), 1e-6)

    def sampler(self, kind=AugmentedSampler, update=None):
        update = PolyaGamma() if update is None else update
        return kind(self.prepared.plan, update)


@functools.cache
def case(name):
    density = functools.partial(offcut.GPDensity, basis=6)
    return {
        "learned": lambda: Case(density(NARROW, **LEARNED), 4),
        "fixed": lambda: Case(density(NARROW, **FIXED), 4),
        "plain": lambda: Case(density(NARROW, **FIXED, joint_moves=False), 4),
        "binding": lambda: Case(density(NARROW, **FIXED), 4, budget=3),
        "support": lambda: Case(density(NARROW, **FIXED, support=(-1.2, 1.5)), 4),
        "side": lambda: Case(density(NARROW, **FIXED, support=(-1.2, None)), 4),
        "uniform": lambda: Case(density("uniform", **LEARNED, support=(-1, 1)), 4),
        "matern": lambda: Case(density(NARROW, "matern32", **LEARNED), 4),
        "family": lambda: Case(
            density(
                lambda theta: dist.Laplace(theta["loc"], 1.0),
                prior={"loc": dist.Normal(0, 0.5)},
                **FIXED,
            ),
            4,
        ),
        "plane": lambda: Case(
            offcut.GPDensity(
                offcut.NormalInverseWishart([0.0, 0.0], 3.0, 14.0, 10 * np.eye(2)),
                basis=(3, 2),
                **FIXED,
            ),
            4,
            d=2,
        ),
        "sum": lambda: Case(
            offcut.GPDensity(
                offcut.NormalInverseWishart([0.0, 0.0], 3.0, 14.0, 10 * np.eye(2)),
                basis=(3, 2),
                additive=True,
                **LEARNED,
            ),
            4,
            d=2,
        ),
        "exact": lambda: Case(offcut.GPDensity(NARROW, basis=None, **LEARNED), 4),
        "exact, fixed": lambda: Case(offcut.GPDensity(NARROW, basis=None, **FIXED), 4),
        "exact, binding": lambda: Case(offcut.GPDensity(NARROW, basis=None, **FIXED), 4, budget=3),
        "exact events": lambda: Case(
            offcut.GPIntensity((0, 1), basis=None, length_scale=0.3, variance=1.5, rate=(6.0, 0.6)),
            5,
        ),
        "events": lambda: Case(
            offcut.GPIntensity((0, 1), basis=6, length_scale=0.3, variance=1.5, rate=(6.0, 0.6)), 5
        ),
        "events, binding": lambda: Case(
            offcut.GPIntensity((0, 1), basis=6, length_scale=0.3, variance=1.5, rate=(6.0, 0.6)),
            5,
            budget=5,
        ),
    }[name]()


def simulated(case, key):
    """f, base, hyperparameters and rate from the priors, X given them; and whether it is usable."""
    plan, data = case.prepared.plan, case.prepared.data
    k = jax.random.split(key, 6)
    hyper = jnp.zeros(0)
    if plan.hyper.prior is not None:
        hyper = plan.hyper.prior.unconstrain(plan.hyper.prior.sample(k[0]))
    exact = isinstance(plan.basis, Grid)
    beta = jax.random.normal(k[1], (TRIED if exact else plan.basis.number,))
    if isinstance(plan.base, FamilyBase):
        p = plan.base.prior.unconstrain(plan.base.prior.sample(k[2]))
    else:
        p = plan.base.update(k[2], jnp.zeros(number_of_features(case.d)), data)
    log_rate = jnp.zeros(())
    total = jnp.int32(TRIED)
    process = plan.process
    if isinstance(process, IntensityProcess):
        log_rate = jax.random.loggamma(k[3], data.rate[0]) - jnp.log(data.rate[1])
        total = process.number_of_proposals(k[4], log_rate, data)
    u = plan.base.propose(k[5], p, TRIED, data)
    if isinstance(plan.basis, Grid):
        f = jnp.linalg.cholesky(case.exact().covariance(u, hyper, data)) @ beta
    else:
        D = case.sampler().root_spectrum(hyper, data)
        f = plan.basis.evaluate(D * beta, u)
    low, high = data.support
    inside = jnp.all((u >= low[:, None]) & (u <= high[:, None]), axis=0)
    uniform = jax.random.uniform(jax.random.fold_in(key, 9), (TRIED,))
    accepted = (uniform < jax.nn.sigmoid(f)) & inside & (jnp.arange(TRIED) < total)
    order = jnp.argsort(~accepted, stable=True)[: case.n]
    x = u[:, order]
    if not process.rated:
        rejected = order[case.n - 1] + 1 - case.n
        usable = jnp.sum(accepted) >= case.n
    else:
        rejected = total - case.n
        usable = (jnp.sum(accepted) == case.n) & (total <= TRIED)
    if exact:  # X with f, then the rejections with f
        before = jnp.arange(TRIED) < (order[-1] if process.name == "density" else total)
        left = jnp.argsort(~(before & ~accepted), stable=True)
        everything = jnp.concatenate([order, left])
        beta = Points(u[:, everything], f[everything], jnp.int32(rejected), jnp.int32(case.n))
    return (beta, p, hyper, log_rate), x, usable & (rejected <= case.budget)


def with_data(case, x):
    """The arrays for other data of the same number."""
    plan, data = case.prepared.plan, case.prepared.data
    rows = [jnp.sin(jnp.arange(1, m + 1)[:, None] * jnp.pi / 2 * (jnp.clip(x[a], -1, 1) + 1)[None])
            for a, m in enumerate(plan.basis.sizes)]  # fmt: skip
    phi = rows[0]
    for other in rows[1:]:
        if plan.basis.additive:
            phi = jnp.concatenate([phi, other])
        else:
            phi = (phi[:, None, :] * other[None, :, :]).reshape(-1, x.shape[1])
    fit = (phi @ phi.T, phi @ quadratic(x).T) if plan.summed else data.fit
    return data._replace(
        x=padded(case, x), features=padded(case, phi), fit=fit, total=quadratic(x).sum(1)
    )


def padded(case, columns):
    """With rows behind the observations."""
    missing = case.prepared.plan.layout.rows - columns.shape[1]
    return jnp.pad(columns, ((0, 0), (0, missing)), mode="edge")


def invariance_of_exact(case, sampler, seed=7, replicates=6000, steps=3):
    """The same for the exact process, whose state is f at X and Y."""
    plan, data = case.prepared.plan, case.prepared.data
    first = sampler.resized(sampler.start(keys.from_seed(0), data, case.budget), TRIED)

    def statistics(held, p, hyper, log_rate, x):
        f, mean = held.f[: case.n], jnp.mean(x)
        own = jnp.concatenate([p, hyper] + ([log_rate[None]] if plan.process.rated else []))
        f_all = [jnp.mean(f), jnp.mean(f) ** 2, jnp.mean(f * x[0]), jnp.mean(f**2), f[0] * x[0, 0]]
        return jnp.concatenate([own, own**2, own * mean, jnp.stack(f_all), f[:2]])

    def replicate(key):
        key_data, key_steps = jax.random.split(key)
        (held, p, hyper, log_rate), x, usable = simulated(case, key_data)
        missing = first.points.f.shape[0] - held.f.shape[0]
        held = Points(
            jnp.pad(held.u, ((0, 0), (0, missing))),
            jnp.pad(held.f, (0, missing)),
            held.count,
            held.n,
        )
        state = first._replace(
            base=p, hyper=hyper, log_rate=log_rate, points=held, known=jnp.array(True)
        )
        own_data = data._replace(x=padded(case, x), total=quadratic(x).sum(1))

        def one(index, carry):
            state, fine = carry
            own_key = jax.random.fold_in(key_steps, index)
            state, info = sampler.step(own_key, state, plain_stage(case.budget), own_data)
            return state, fine & (info.status == OK)

        after, fine = jax.lax.cond(
            usable,
            lambda: jax.lax.fori_loop(0, steps, one, (state, jnp.array(True))),
            lambda: (state, jnp.array(True)),
        )
        new = statistics(after.points, after.base, after.hyper, after.log_rate, x)
        return new - statistics(held, p, hyper, log_rate, x), usable, fine, jnp.ones(())

    return judged(jax.jit(lambda k: jax.lax.map(replicate, k)), seed, replicates, 1500)


def invariance(case, sampler, seed=5, replicates=10_000, steps=3):
    plan = case.prepared.plan
    first = sampler.start(keys.from_seed(0), case.prepared.data, case.budget)
    first = sampler.resized(first, TRIED)
    small = {"joint": 0.12, "all": 0.05, "hyper": 0.5, "family": 0.2}
    tuning = {
        name: own._replace(step_size=jnp.asarray(small.get(name, own.step_size)))
        for name, own in first.tuning.items()
    }
    first = first._replace(tuning=tuning)

    def statistics(beta, p, hyper, log_rate, x, data):
        w = sampler.root_spectrum(hyper, data) * beta
        mean = jnp.mean(x)
        f = w @ data.features[:, : case.n]
        own = jnp.concatenate([p, hyper] + ([log_rate[None]] if plan.process.rated else []))
        values = [
            own, own**2, own * mean, beta[:4], beta[:4] ** 2, beta[:4] * mean,
            jnp.stack([jnp.mean(f), jnp.mean(f) ** 2, jnp.mean(f * x[0]), w @ w]),
        ]  # fmt: skip
        if plan.summed:
            values.append(jnp.log(sampler.normaliser(sampler.at_nodes(w, data, p), p, data))[None])
        return jnp.concatenate(values)

    def replicate(key):
        key_data, key_steps = jax.random.split(key)
        (beta, p, hyper, log_rate), x, usable = simulated(case, key_data)
        data = with_data(case, x)
        w = sampler.root_spectrum(hyper, data) * beta
        state = first._replace(beta=beta, w=w, base=p, hyper=hyper, log_rate=log_rate)
        if isinstance(sampler, AugmentedSampler):
            held = points.buffer_for(plan.layout, data.x, jnp.int32(data.n), TRIED)
            state = state._replace(points=held)

        def walk():
            def one(index, carry):
                state, fine, least = carry
                own_key = jax.random.fold_in(key_steps, index)
                state, info = sampler.step(own_key, state, plain_stage(case.budget), data)
                # A move that is never accepted would make the test void.
                rates = [rate for name, rate in info.stats.items() if name.endswith("acceptance")]
                rates = jnp.stack([*rates, jnp.ones(())])
                return state, fine & (info.status == OK), jnp.minimum(least, jnp.min(rates))

            return jax.lax.fori_loop(0, steps, one, (state, jnp.array(True), jnp.ones(())))

        nothing = (state, jnp.array(True), jnp.ones(()))
        after, fine, least = jax.lax.cond(usable, walk, lambda: nothing)
        new = statistics(after.beta, after.base, after.hyper, after.log_rate, x, data)
        return new - statistics(beta, p, hyper, log_rate, x, data), usable, fine, least

    return judged(jax.jit(lambda k: jax.lax.map(replicate, k)), seed, replicates, 4000)


def judged(run, seed, replicates, enough):
    """The p-value of the largest mean change, Bonferroni over statistics."""
    change, usable, fine, least = run(jax.random.split(keys.from_seed(seed), replicates))
    usable = np.asarray(usable)
    assert np.mean(np.asarray(least)[usable]) > 0.05, "a move was hardly ever accepted"
    assert np.asarray(fine)[usable].all()
    assert usable.sum() > enough
    change = np.asarray(change)[usable]
    assert (np.abs(change) > 1e-9).mean() > 0.3, "hardly moved: a void test"
    z = change.mean(0) / (change.std(0, ddof=1) / np.sqrt(len(change)))
    return float(min(1.0, 2 * stats.norm.sf(np.abs(z).max()) * z.size))


HMC = offcut.HMC(0.1, 4)
CASES = [("learned", AugmentedSampler, None)]
LONGER = [
    ("events", AugmentedSampler, None),
    ("plain", AugmentedSampler, None),
    ("binding", AugmentedSampler, None),
    ("events, binding", AugmentedSampler, None),
    ("support", AugmentedSampler, None),
    ("side", AugmentedSampler, None),
    ("uniform", AugmentedSampler, None),
    ("matern", AugmentedSampler, None),
    ("family", AugmentedSampler, None),
    ("plane", AugmentedSampler, None),
    ("sum", AugmentedSampler, None),
    ("learned", AugmentedSampler, EllipticalSlice()),
    ("fixed", AugmentedSampler, HMC),
    ("learned", CollapsedSampler, HMC),
    ("events", CollapsedSampler, HMC),
    ("plane", CollapsedSampler, HMC),
    ("side", CollapsedSampler, HMC),
]


def replicates_of(name):
    return 60_000 if name.startswith("events") else 20_000 if name == "binding" else 10_000


@pytest.mark.parametrize(("name", "kind", "update"), CASES)
def test_updates_leave_the_joint_distribution_alone(name, kind, update):
    found = invariance(case(name), case(name).sampler(kind, update), replicates=replicates_of(name))
    assert found > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize(("name", "kind", "update"), LONGER)
def test_more_updates_leave_the_joint_distribution_alone(name, kind, update):
    sampler = case(name).sampler(kind, update)
    assert invariance(case(name), sampler, 6, replicates_of(name)) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("name", "update", "replicates"),
    [
        ("exact", None, 6000),
        ("exact, fixed", EllipticalSlice(), 6000),
        ("exact, binding", None, 10_000),
        ("exact events", None, 20_000),
    ],
)
def test_the_exact_process_leaves_the_joint_distribution_alone(name, update, replicates):
    sampler = case(name).exact(update=update)
    assert invariance_of_exact(case(name), sampler, replicates=replicates) > FALSE_ALARM


class ForgetsItsValues(ExactSampler):
    """A failed attempt is repeated, f at its proposals forgotten."""

    def _everything(self, key, state, pseudo, limit, data):
        def again(carry):
            turn, _ = carry
            own = jax.random.fold_in(key, turn)
            return turn + 1, super(ForgetsItsValues, self)._everything(
                own, state, pseudo, limit, data
            )

        shapes = jax.eval_shape(lambda: again((jnp.int32(0), None))[1])
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        first = (jnp.int32(0), nothing._replace(over=jnp.array(True)))
        return jax.lax.while_loop(lambda c: c[1].over & (c[0] < 20), again, first)[1]


@pytest.mark.calibrate
def test_forgetting_values_between_attempts_is_caught():
    chosen = case("exact, binding")
    control = chosen.exact(ForgetsItsValues)
    assert invariance_of_exact(chosen, control, replicates=10_000, steps=5) < FALSE_ALARM


class BaseFromXOnly(AugmentedSampler):
    """The base is updated from what was accepted."""

    def _base(self, key, state, held, stage, data):
        return super()._base(key, state, held._replace(count=jnp.int32(0)), stage, data)


class OneSetTooFew(AugmentedSampler):
    """Rejections of n - 1 observations."""

    def _rejections(self, key, state, stage, data):
        redrawn = super()._rejections(key, state, stage, data)
        few = jnp.int32(redrawn.drawn.count * (data.n - 1) / data.n)
        return redrawn._replace(drawn=redrawn.drawn._replace(count=few))


class BudgetForgotten(AugmentedSampler):
    """Moves with Y summed out do not know of the budget."""

    def summed_moves(self, key, state, stage, data):
        return super().summed_moves(key, state, stage._replace(budget=jnp.int32(10**6)), data)


class StopsAtN(AugmentedSampler):
    """The events' proposals stop at the n-th acceptance."""

    def _rejections(self, key, state, stage, data):
        density = self.plan._replace(process=DensityProcess())
        return AugmentedSampler(density, self.kernel)._rejections(key, state, stage, data)


class BaseWithoutPrior(AugmentedSampler):
    """The joint move forgets the prior of the base."""

    def joint_move(self, key, state, stage, data):
        flat = data._replace(base=data.base._replace(strength=jnp.asarray(1e-3)))
        return super().joint_move(key, state, stage, flat)


NEGATIVE_CONTROLS = [("plain", BaseFromXOnly)]
MORE_CONTROLS = [
    ("plain", OneSetTooFew),
    ("binding", BudgetForgotten),
    ("events", StopsAtN),
    ("fixed", BaseWithoutPrior),
]


@pytest.mark.parametrize(("name", "kind"), NEGATIVE_CONTROLS)
def test_negative_controls_are_caught(name, kind):
    assert invariance(case(name), case(name).sampler(kind)) < FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize(("name", "kind"), MORE_CONTROLS)
def test_more_negative_controls_are_caught(name, kind):
    many = {"replicates": 3 * replicates_of(name), "steps": 5}
    assert invariance(case(name), case(name).sampler(kind), **many) < FALSE_ALARM


def test_steps_of_a_void_sweep_leave_the_state_alone():
    """The block gives back what came in where a sweep is FULL or BROKEN."""
    chosen = case("plain")
    sampler, data = chosen.sampler(), chosen.prepared.data
    state = sampler.resized(sampler.start(keys.from_seed(1), data, TRIED), TRIED)
    before = jax.tree.map(np.array, state)  # the block is given the state away
    nothing_fits, no = np.int32(-1), np.bool_(False)
    result = CompiledBlock(sampler, 2)(
        keys.from_seed(2), state, np.int32(0), np.int32(2), nothing_fits, ~no, no,
        np.zeros((2, 3), bool), data,
    )  # fmt: skip
    assert (int(result.done), int(result.status)) == (0, augmented.BROKEN)
    jax.tree.map(np.testing.assert_array_equal, result.state, before)
    assert "budget" in str(sampler.explain(result.state, result.evidence))
