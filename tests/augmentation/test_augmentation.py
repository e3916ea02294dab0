"""Algorithm 1 and the joint density: small parts, exact answers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import special, stats

import offcut
from offcut.augmentation.joint import log_joint
from offcut.augmentation.rejections import (
    Layout,
    Rejected,
    empty_rejected,
    outcome,
    redraw,
    resized_rejected,
    settle,
    spare_section,
)
from offcut.base import BROKEN, FULL, OK
from offcut.models.data import pad_rows
from offcut.numerics import keys
from offcut.numerics.arrays import exclusive_count
from offcut.numerics.log1mexp import log1mexp
from offcut.samplers.choice import observe
from statistical import models

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("size", [32, 64, 512])
def test_exclusive_count_is_a_cumulative_sum(size):
    flags = np.random.default_rng(size).random(size) < 0.3
    assert np.array_equal(exclusive_count(jnp.asarray(flags)), np.cumsum(flags) - flags)


def test_keys_give_the_bits_of_jax():
    ours, theirs = keys.from_seed(123456789012345), jax.random.key(np.int64(123456789012345))
    for a, b in ((ours, theirs), (jax.random.fold_in(ours, 7), jax.random.fold_in(theirs, 7))):
        assert np.array_equal(jax.random.normal(a, (100,)), jax.random.normal(b, (100,)))
        assert np.array_equal(jax.random.bits(a, (9,), "uint8"), jax.random.bits(b, (9,), "uint8"))
        assert np.array_equal(
            jax.random.uniform(jax.random.split(a, 3)[2], (5,)),
            jax.random.uniform(jax.random.split(b, 3)[2], (5,)),
        )


@pytest.mark.parametrize("x", [-1e-300, -1e-12, -0.3, -0.7, -5.0, -800.0])
def test_log1mexp_and_its_slope(x):
    from decimal import Decimal, getcontext

    getcontext().prec = 400
    exact = (1 - Decimal(x).exp()).ln()
    assert float(log1mexp(x)) == pytest.approx(float(exact), rel=1e-14, abs=1e-320)
    slope = -(Decimal(x).exp()) / (1 - Decimal(x).exp())
    assert float(jax.grad(log1mexp)(x)) == pytest.approx(float(slope), rel=1e-13)


def test_log1mexp_is_finite_where_it_must_be():
    assert float(jax.grad(log1mexp)(-jnp.inf)) == 0.0
    assert float(jax.grad(log1mexp)(0.0)) == 0.0
    assert np.isneginf(log1mexp(0.0))


@pytest.mark.calibrate
def test_the_number_of_rejections_is_negative_binomial():
    """4,000 runs, a chi-square test at 1e-5."""
    model = models.half_normal()
    theta = {"loc": 0.2, "scale": 0.8}
    n = 5
    counts = np.array([len(offcut.augment(s, model, theta, n)[1]) for s in range(4000)])
    accept = special.ndtr(theta["loc"] / theta["scale"])
    edges = np.arange(13)
    expected = np.append(stats.nbinom.pmf(edges[:-1], n, accept), stats.nbinom.sf(11, n, accept))
    seen = np.append(np.bincount(counts[counts < 12], minlength=12), np.sum(counts >= 12))
    assert stats.chisquare(seen, expected * len(counts)).pvalue > 1e-5
    short = np.append(
        stats.nbinom.pmf(edges[:-1], n - 1, accept), stats.nbinom.sf(11, n - 1, accept)
    )
    assert stats.chisquare(seen, short / short.sum() * len(counts)).pvalue < 1e-5


def test_accepted_and_rejected_points_have_their_laws():
    model = models.half_normal()
    accepted, rejected = offcut.augment(1, model, {"loc": 0.2, "scale": 0.8}, 20_000)
    inside = stats.truncnorm(-0.25, np.inf, 0.2, 0.8)
    outside = stats.truncnorm(-np.inf, -0.25, 0.2, 0.8)
    assert stats.kstest(accepted, inside.cdf).pvalue > 1e-5
    assert stats.kstest(rejected, outside.cdf).pvalue > 1e-5
    assert stats.kstest(accepted, stats.norm(0.2, 0.8).cdf).pvalue < 1e-5


def test_observations_with_own_proposals_each_run_to_their_acceptance():
    """Counts of observation i are geometric with its own acceptance."""
    from offcut.augmentation.algorithm1 import run_per_observation
    from offcut.base import MOST_REJECTED

    model = models.regression()
    c = jnp.linspace(-2, 2, 64)
    n, repeats, most = 64, 300, jnp.int32(MOST_REJECTED)
    layout = Layout.of(n, 1, True)
    rows = pad_rows(c, layout.rows)
    theta = {"intercept": jnp.array(0.2), "slope": jnp.array(0.9)}
    like = jax.ShapeDtypeStruct((), jnp.float64)
    buffer = empty_rejected(layout, like, layout.capacity(4096))

    @jax.jit
    def run(key):
        done, failures = run_per_observation(
            model, layout, key, theta, rows, buffer, most, jnp.int32(n), keep_accepted=True
        )
        return done._replace(kept=done.kept[:n]), failures[:n]

    totals = np.zeros(n)
    accepted = []
    for seed in range(repeats):
        done, failures = run(keys.from_seed(seed))
        count = int(done.rejected.count)
        owner = np.asarray(done.rejected.owner[:count])
        assert np.array_equal(np.bincount(owner, minlength=n), failures)
        assert np.all(np.asarray(done.rejected.points[:count]) <= 0)
        assert np.all(np.asarray(done.kept) > 0)
        totals += np.asarray(failures)
        accepted.append(np.asarray(done.kept))
    accept = special.ndtr(0.2 + 0.9 * np.asarray(c))
    mean, variance = (1 - accept) / accept, (1 - accept) / accept**2
    z = (totals / repeats - mean) / np.sqrt(variance / repeats)
    assert np.all(np.abs(z) < 6)
    law = stats.truncnorm(-(0.2 + 0.9 * -2.0), np.inf, 0.2 + 0.9 * -2.0, 1.0)
    assert stats.kstest(np.array(accepted)[:, 0], law.cdf).pvalue > 1e-5


def problem(n=300, seed=0):
    x = np.abs(np.random.default_rng(seed).normal(size=n))
    model = models.half_normal()
    data, layout, _ = observe(model, x, None)
    return model, x, data, layout


def test_the_joint_density_is_the_sum_and_its_gradient_is_right():
    model, x, data, layout = problem()
    y = -np.abs(np.random.default_rng(1).normal(size=417))
    buffer = empty_rejected(layout, jax.ShapeDtypeStruct((), jnp.float64), layout.capacity(1000))
    points = buffer.points.at[:417].set(y).at[417:].set(jnp.nan)  # leftovers must not matter
    rejected = Rejected(points, None, jnp.int32(0), jnp.int32(417))
    joint = log_joint(model, layout)

    def direct(theta):
        base = dist.Normal(theta["loc"], theta["scale"])
        return jnp.sum(base.log_prob(x)) + jnp.sum(base.log_prob(y))

    theta = {"loc": jnp.array(0.3), "scale": jnp.array(0.8)}
    value, gradient = jax.value_and_grad(joint)(theta, data, rejected)
    expected, slope = jax.value_and_grad(direct)(theta)
    assert float(value) == pytest.approx(float(expected), rel=1e-12)
    for name in theta:
        assert float(gradient[name]) == pytest.approx(float(slope[name]), rel=1e-10)


def test_the_joint_density_has_the_same_bits_at_any_capacity_and_section():
    model, _, data, layout = problem()
    y = -np.abs(np.random.default_rng(1).normal(size=417))
    like = jax.ShapeDtypeStruct((), jnp.float64)
    theta = {"loc": jnp.array(0.3), "scale": jnp.array(0.8)}
    joint = jax.jit(jax.value_and_grad(log_joint(model, layout)))
    seen = []
    for capacity in (417, 2000, 70_000):
        buffer = empty_rejected(layout, like, layout.capacity(capacity))
        for rejected in (buffer, spare_section(layout, buffer, buffer)):
            start = int(rejected.offset)
            points = rejected.points.at[start : start + 417].set(y)
            value, gradient = joint(
                theta, data, rejected._replace(points=points, count=jnp.int32(417))
            )
            seen.append((float(value), float(gradient["loc"]), float(gradient["scale"])))
    assert len(set(seen)) == 1


def test_growing_the_buffer_keeps_its_content():
    _, _, _, layout = problem()
    like = jax.ShapeDtypeStruct((), jnp.float64)
    buffer = spare_section(layout, *[empty_rejected(layout, like, layout.capacity(100))] * 2)
    start = int(buffer.offset)
    points = buffer.points.at[start : start + 3].set(jnp.array([1.0, 2.0, 3.0]))
    grown = resized_rejected(layout, buffer._replace(points=points, count=jnp.int32(3)), 5000)
    held = grown.points[int(grown.offset) : int(grown.offset) + 3]
    assert np.array_equal(held, [1.0, 2.0, 3.0])
    assert int(grown.count) == 3


def test_gradients_are_finite_where_nothing_is_accepted():
    """log a = -inf at rejected points of a hard window: value 0, gradient 0, never NaN."""
    model = offcut.selected(
        prior={"loc": dist.Normal(0, 1), "power": dist.HalfNormal(1)},
        base=lambda theta: dist.Normal(theta["loc"], 1),
        log_accept=lambda theta, y: jnp.where(y > 0, -theta["power"] * jnp.log1p(1 / y), -jnp.inf),
    )
    theta = {"loc": jnp.array(0.1), "power": jnp.array(0.5)}
    for y in (-1.0, 0.0, 0.4):
        value, gradient = jax.value_and_grad(model.log_rejected)(
            theta, jnp.array(y), jnp.array(1.0)
        )
        assert np.isfinite(value), y
        assert all(np.isfinite(g) for g in gradient.values()), y
    outside = jax.grad(model.log_rejected)(theta, jnp.array(-1.0), jnp.array(1.0))
    assert float(outside["power"]) == 0.0


def test_augment_takes_int_seeds_and_both_kinds_of_jax_keys():
    model = models.half_normal()
    theta = {"loc": 0.2, "scale": 0.8}
    results = [
        offcut.augment(key, model, theta, 10)[0]
        for key in (5, jax.random.key(5), jax.random.PRNGKey(5))
    ]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_the_users_jax_settings_are_left_alone():
    with jax.enable_x64(False):
        accepted, _ = offcut.augment(0, models.half_normal(), {"loc": 0.2, "scale": 0.8}, 10)
        assert accepted.dtype == np.float64
        assert jnp.zeros(()).dtype == jnp.float32


def test_a_redraw_ends_with_what_fits_or_gives_up():
    def attempt(number, last):
        return last + number, number < 3

    assert [int(part) for part in redraw(attempt, jnp.int32(10), 100)] == [4, 16, False]
    assert [int(part) for part in redraw(attempt, jnp.int32(10), 2)] == [2, 11, True]


@pytest.mark.parametrize(
    ("over", "full", "known", "status"),
    [
        (False, False, False, OK),
        (False, True, True, FULL),
        (True, False, True, OK),  # the old Y is kept
        (True, True, True, OK),  # so that room for the new one does not matter
        (True, True, False, BROKEN),
    ],
)
def test_a_redraw_that_gives_up_needs_an_old_y(over, full, known, status):
    assert int(outcome(jnp.array(over), full, known)) == status


@pytest.mark.parametrize("ok", [True, False])
def test_settling_chooses_which_y_is_held_and_copies_none(ok):
    old = Rejected(jnp.zeros(8), None, jnp.int32(0), jnp.int32(2))
    new = Rejected(jnp.ones(8), None, jnp.int32(4), jnp.int32(3))
    kept = settle(jnp.array(ok), (new, jnp.array(1.5)), (old, jnp.array(2.5)))
    assert kept[0].points is new.points  # both stand in the one buffer
    chosen = (4, 3, 1.5) if ok else (0, 2, 2.5)
    assert (int(kept[0].offset), int(kept[0].count), float(kept[1])) == chosen
