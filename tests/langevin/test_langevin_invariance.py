"""Every update of the matrix Langevin model leaves the joint law alone; negative controls do not.

Draw kappa, G and H from their priors and n frames given them, with their rejections; run a few
sweeps; the mean change of statistics of (kappa, G, H, X) is zero. 1e-5 for each call, Bonferroni
over its statistics.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln
from scipy import stats

import offcut
from offcut.augmentation.rejections import spare_section
from offcut.base import OK
from offcut.checks.invariance import plain_stage
from offcut.langevin import draws, rejections
from offcut.langevin import sampler as turns
from offcut.langevin.augmented import AugmentedSampler
from offcut.langevin.hypergeometric import log_h
from offcut.langevin.model import ROUTES
from offcut.langevin.rejections import Held, Layout, nothing, run
from offcut.langevin.sampler import LangevinData, State
from offcut.langevin.walk import Walked, WalkSampler
from offcut.models.prior import Prior
from offcut.numerics import keys
from statistical.truth import FALSE_ALARM

pytestmark = [pytest.mark.statistical, pytest.mark.usefixtures("float64")]

ROOM = 64


class Case:
    """A shape, priors, and what the test starts from."""

    def __init__(self, d, p, n, kappa, infer_H=False, F0=0.0, F1=0.0, budget=ROOM):
        self.d, self.p, self.n, self.infer_H, self.budget = d, p, n, infer_H, budget
        self.F0 = F0 * np.eye(d, p)[:, ::-1] if F0 else np.zeros((d, p))
        self.F1 = F1 * np.array([[0, 1], [1, 0]]) if F1 else np.zeros((p, p))
        mean, shape = np.array(kappa), 6.0
        self.prior = Prior({"kappa": dist.Gamma(shape, shape / mean)})
        self.layout = Layout.of(n, d, p)

    def sampler(self, method, kernel, kind=None):
        uniform = not self.F0.any() and not self.F1.any()
        kind = kind or ROUTES[method].sampler
        return kind(self.layout, self.prior, kernel, self.infer_H, uniform)


def own_part(sampler, case, key, kappa):
    """What a stationary state keeps beside kappa, G and H; and whether it fits the budget."""
    n, budget = jnp.int32(case.n), jnp.int32(case.budget)
    fallen = jnp.sort(kappa)[::-1]
    if isinstance(sampler, AugmentedSampler):
        held = nothing(case.layout, ROOM)
        drawn = run(case.layout, key, fallen, n, budget, held.rejected)
        held = Held(drawn.rejected, drawn.along, jnp.array(True))
        return held, drawn.size <= case.budget
    if isinstance(sampler, WalkSampler):
        key_count, key_estimate = jax.random.split(key)
        count = run(case.layout, key_count, fallen, n, budget).size
        r = jnp.int32(20)
        # At stationarity an estimate is size-biased: k then comes before r + n acceptances.
        k = run(case.layout, key_estimate, fallen, r + n, jnp.int32(10**6)).size * 1.0
        x = r * 1.0
        estimate = gammaln(x + n + k) - gammaln(x + n) - gammaln(x + k) + gammaln(x)
        return Walked(count, estimate, r), count <= case.budget
    return (), jnp.array(True)


def invariance(case, sampler, seed=5, replicates=10_000, steps=3):
    def statistics(position, G, H, S):
        kappa = sampler.kappa(position)
        along = jnp.sum(G * (S @ H), axis=0)
        values = [
            position, position**2, kappa, kappa * along, along, G.ravel(), G.ravel() ** 2,
            jnp.outer(position, position)[np.triu_indices(case.p, 1)], along**2,
        ]  # fmt: skip
        if case.infer_H:
            values += [
                H.ravel(),
                H.ravel() ** 2,
                (G @ H.T).ravel(),
                ((G * kappa[None]) @ H.T).ravel(),
            ]
        return jnp.concatenate(values)

    def replicate(key):
        k = jax.random.split(key, 6)
        kappa = case.prior.sample(k[0])["kappa"]
        G = draws.by_rejection(k[1], jnp.asarray(case.F0), jnp.int32(1), 1)[0]
        H = jnp.eye(case.p)
        if case.infer_H:
            H = draws.by_rejection(k[2], jnp.asarray(case.F1), jnp.int32(1), 1)[0]
        F = (G * kappa[None]) @ H.T
        S = jnp.sum(draws.by_rejection(k[3], F, jnp.int32(case.n), case.n), axis=0)
        data = LangevinData(
            jnp.int32(case.n), S, jnp.asarray(case.F0), jnp.asarray(case.F1), jnp.eye(case.p)
        )
        own, usable = own_part(sampler, case, k[4], kappa)
        position = case.prior.unconstrain({"kappa": kappa})
        tuning = sampler.kernel.first_tuning(case.n, case.p)
        state = State(position, G, H, tuning, own, data.V)

        def one(index, carry):
            state, fine = carry
            own_key = jax.random.fold_in(k[5], index)
            state, info = sampler.step(own_key, state, plain_stage(case.budget), data)
            return state, fine & (info.status == OK)

        after, fine = jax.lax.fori_loop(0, steps, one, (state, jnp.array(True)))
        change = statistics(after.position, after.G, after.H, S) - statistics(position, G, H, S)
        return change, usable, fine

    keys_ = jax.random.split(keys.from_seed(seed), replicates)
    change, usable, fine = jax.jit(lambda k: jax.lax.map(replicate, k))(keys_)
    usable = np.asarray(usable)
    assert np.asarray(fine)[usable].all()
    assert usable.mean() > 0.5
    change = np.asarray(change)[usable]
    assert (np.abs(change[:, : case.p]) > 1e-9).mean() > 0.3, "hardly moved: a void test"
    z = change.mean(0) / (change.std(0, ddof=1) / np.sqrt(len(change)))
    return float(min(1.0, 2 * stats.norm.sf(np.abs(z).max()) * z.size))


@functools.cache
def case(name):
    return {
        "frames": lambda: Case(3, 2, 4, (5.0, 3.0)),
        "prior on G": lambda: Case(3, 2, 4, (5.0, 3.0), F0=4.0),
        "H": lambda: Case(3, 2, 4, (5.0, 3.0), infer_H=True),
        "H with priors": lambda: Case(3, 2, 4, (5.0, 3.0), infer_H=True, F0=3.0, F1=2.0),
        "rotations": lambda: Case(3, 3, 3, (5.0, 4.0, 2.0)),
        "five by three": lambda: Case(5, 3, 3, (5.0, 4.0, 2.0)),
        "binding": lambda: Case(3, 3, 3, (5.0, 4.0, 3.0), budget=3),
        "directions": lambda: Case(4, 1, 4, (5.0,)),
    }[name]()


HMC, WALK = offcut.HMC(0.4, 3), offcut.RandomWalk(0.6)
SIMULATED = offcut.RandomWalk(0.4)  # judged by simulations
CASES = [
    ("H", "augment", HMC),
]
LONGER = [
    ("frames", "exchange", SIMULATED),
    ("prior on G", "collapsed", WALK),
    ("frames", "augment", HMC),
    ("H with priors", "augment", WALK),
    ("binding", "augment", HMC),
    ("directions", "augment", HMC),
    ("frames", "pseudo_marginal", SIMULATED),
    ("frames", "augment", offcut.NUTS(0.4)),
    ("prior on G", "augment", HMC),
    ("rotations", "augment", HMC),
    ("five by three", "augment", HMC),
    ("five by three", "exchange", SIMULATED),
    ("binding", "exchange", SIMULATED),
    ("binding", "pseudo_marginal", SIMULATED),
    ("directions", "exchange", SIMULATED),
    ("rotations", "collapsed", WALK),
    ("H", "collapsed", HMC),
]


@pytest.mark.parametrize(("name", "method", "kernel"), CASES)
def test_updates_leave_the_joint_distribution_alone(name, method, kernel):
    assert invariance(case(name), case(name).sampler(method, kernel)) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize(("name", "method", "kernel"), LONGER)
def test_more_updates_leave_the_joint_distribution_alone(name, method, kernel):
    assert invariance(case(name), case(name).sampler(method, kernel), seed=6) > FALSE_ALARM


class OrderOfTheMoment(AugmentedSampler):
    """The order of columns is that of the current kappa and is frozen while kappa moves."""

    def move(self, key, state, stage, data):
        self.frozen = jnp.argsort(-self.kappa(state.position))
        return super().move(key, state, stage, data)

    def order(self, kappa):
        return self.frozen


class SumsForgotten(AugmentedSampler):
    """The rejections' own columns are left out of the joint."""

    def _rejections(self, key, state, stage, data):
        held, *rest = super()._rejections(key, state, stage, data)
        return held._replace(along=0 * held.along), *rest


class OneFrameShort(AugmentedSampler):
    """Rejections of n - 1 frames."""

    def _rejections(self, key, state, stage, data):
        return super()._rejections(key, state, stage, data._replace(n=data.n - 1))


class ForgottenPrior(AugmentedSampler):
    """G is drawn as if its prior were uniform."""

    def draw_frames(self, key, state, data):
        return super().draw_frames(key, state, data._replace(F0=0 * data.F0))


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("control", "name"),
    [(SumsForgotten, "frames"), (ForgottenPrior, "prior on G"), (OneFrameShort, "frames")],
)
def test_negative_controls_are_caught(control, name):
    sampler = case(name).sampler("augment", HMC, control)
    assert invariance(case(name), sampler) < FALSE_ALARM


@pytest.mark.calibrate
def test_the_joint_as_printed_in_section_5_2_is_caught(monkeypatch):
    """n in the place of N = n + |Y| before log D."""
    right = rejections.log_joint

    def printed(layout, kappa, n, along, held):
        count, d = held.rejected.count, layout.d
        missing = sum(jnp.sum(count[j:]) * log_h(d - j, kappa[j]) for j in range(layout.p))
        return right(layout, kappa, n, along, held) + missing

    monkeypatch.setattr("offcut.langevin.augmented.log_joint", printed)
    assert invariance(case("frames"), case("frames").sampler("augment", HMC)) < FALSE_ALARM


@pytest.mark.calibrate
def test_an_order_that_is_frozen_while_kappa_moves_is_caught():
    """Where columns are alike the order changes often. One that moves along passes the test."""
    alike = Case(3, 3, 3, (4.0, 4.0, 4.0))
    control = alike.sampler("augment", HMC, OrderOfTheMoment)
    assert invariance(alike, control, replicates=30_000) < FALSE_ALARM
    right = alike.sampler("augment", HMC)
    assert invariance(alike, right, replicates=30_000) > FALSE_ALARM


@pytest.mark.calibrate
def test_a_turn_that_is_not_halved_is_caught(monkeypatch):
    """2 phi is von Mises, not phi."""
    half = turns._von_mises
    monkeypatch.setattr(turns, "_von_mises", lambda *a: 2 * half(*a))
    turned = Case(3, 2, 4, (5.0, 3.0), infer_H=True)
    assert invariance(turned, turned.sampler("augment", HMC)) < FALSE_ALARM


def test_rejections_have_their_law():
    """|Y| is negative binomial with success probability Z / D."""
    from offcut.langevin.normaliser import log_normaliser
    from offcut.langevin.proposals import log_envelope

    layout, kappa = Layout.of(200, 3, 2), jnp.array([12.0, 6.0])
    found = jax.jit(
        lambda k: jax.lax.map(
            lambda key: run(layout, key, kappa, jnp.int32(200), jnp.int32(10**6)).size,
            jax.random.split(k, 3000),
        )
    )(keys.from_seed(0))
    share = float(jnp.exp(log_normaliser(kappa, 3) - log_envelope(3, kappa)))
    mean, variance = 200 * (1 - share) / share, 200 * (1 - share) / share**2
    counts = np.asarray(found)
    assert abs(counts.mean() - mean) < 4.5 * np.sqrt(variance / len(counts))
    assert counts.var() == pytest.approx(variance, rel=0.15)


def test_the_sum_over_rejections_does_not_depend_on_the_buffer():
    layout = Layout.of(98, 3, 2)
    c = np.random.default_rng(0).uniform(0.01, 0.4, 100)
    along, at = jnp.array([90.0, 80.0]), jnp.array([12.0, 6.0])
    joint = jax.jit(
        jax.value_and_grad(
            lambda kappa, held: rejections.log_joint(layout, kappa, jnp.int32(98), along, held),
            allow_int=True,
        )
    )
    values = []
    for capacity in (128, 1000):
        held = nothing(layout, capacity)
        spare = spare_section(layout.rows, held.rejected, held.rejected)
        rows = spare.offset + np.arange(100)
        spare = spare._replace(
            points=(spare.points[0].at[rows].set(c),), count=jnp.array([100], jnp.int32)
        )
        values.append(joint(at, held._replace(rejected=spare)))
    for first, second in zip(*values, strict=True):
        np.testing.assert_array_equal(first, second)
