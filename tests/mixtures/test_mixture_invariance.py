"""The sweep of a truncated mixture leaves the joint distribution alone; negative controls do not.

Draw weights and components from the prior, events and rejections from the model (cut to
|Y| <= B); run a few sweeps; the mean change of any statistic of (theta, X) is zero. One call is one
test at a false-alarm rate of 1e-5 (Bonferroni over its statistics).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats as distributions

from offcut.augmentation.rejections import Layout, empty_rejected
from offcut.base import Stage
from offcut.mixtures.allocation import all_events
from offcut.mixtures.data import MixtureData, MixtureLayout
from offcut.mixtures.in_window import WindowSampler, WindowState
from offcut.mixtures.latent import LatentSampler, LatentState
from offcut.mixtures.sampler import Mixture
from offcut.mixtures.weights import Concentration, Hierarchy, Sticks
from offcut.mixtures.window import Window
from offcut.numerics import keys
from offcut.numerics.normal import Base, coefficients, draw_all, features, size
from offcut.regions import Box, ByGroup
from statistical.truth import FALSE_ALARM

pytestmark = pytest.mark.statistical

K, D, CHUNK = 3, 1, 32
BASE = Base(jnp.array([0.3]), jnp.array(0.5), jnp.array(6.0), jnp.array([[2.0]]))
HALF_LINE = Box([0.0], [np.inf])
BY_GROUP = ByGroup([Box([0.0], [np.inf]), Box([-1.0], [1.5])])


SAMPLERS = {"latent": LatentSampler, "window": WindowSampler}


def make(
    sampler,
    *,
    counts=(6,),
    components=K,
    region=HALF_LINE,
    log_accept=None,
    moves=2,
    reshape=True,
    hierarchical=False,
):
    """A sampler of few events, with learned concentrations."""
    groups = len(counts)
    layout = MixtureLayout(CHUNK, D, groups, components, Layout(CHUNK, CHUNK, CHUNK, True, 2))
    alpha = Concentration(dist.Gamma(4.0, 4.0))
    weights = Sticks(alpha, components)
    if hierarchical:
        weights = Hierarchy(alpha, Concentration(dist.Gamma(4.0, 2.0)), components, groups)
    kind = SAMPLERS.get(sampler, sampler)
    made = kind(layout, Window(region, log_accept), weights, moves, reshape, False)
    return made, counts


def simulate(sampler, counts, budget, key):
    """A state with Y, the data, occupied components, and whether |Y| <= budget."""
    layout, n, K = sampler.layout, sum(counts), sampler.layout.components
    counts = jnp.asarray(counts, jnp.int32)
    key_weights, key_parts, key_label, key_noise, key_pass = jax.random.split(key, 5)
    weights = sampler.weights.first(key_weights, jnp.zeros((layout.groups, K)))
    components = draw_all(key_parts, BASE, jnp.zeros((K, size(D))))
    group = jnp.repeat(jnp.arange(layout.groups), counts, total_repeat_length=n)
    tries = budget + 1
    log_weights = jnp.broadcast_to(weights.log_weights, (layout.groups, K))[group]
    # Event i is the first of its proposals that passes; "window" proposes from one component.
    in_window = isinstance(sampler, WindowSampler)
    if in_window:
        z = jax.random.categorical(key_label, log_weights)
        labels = jnp.broadcast_to(z[:, None], (n, tries))
    else:
        shape = (tries, n)
        labels = jax.random.categorical(key_label, log_weights, shape=shape).T
    noise = jax.random.normal(key_noise, (n, tries, D))
    y = components.means[labels] + jnp.einsum("ntij,ntj->nti", components.roots[labels], noise)
    owner_group = jnp.broadcast_to(group[:, None], (n, tries))
    passed = sampler.window.passes(key_pass, y.reshape(-1, D), owner_group.reshape(-1))
    passed = passed.reshape(n, tries)
    first = jnp.argmax(passed, axis=1)
    rejected = jnp.arange(tries)[None, :] < first[:, None]
    total = jnp.sum(rejected)
    fits = jnp.all(jnp.any(passed, axis=1)) & (total <= budget)

    x = y[jnp.arange(n), first]
    own = labels[jnp.arange(n), first].astype(jnp.int32)
    occupied = jnp.sum(jnp.zeros(K, bool).at[own].set(True))
    rows = layout.rows
    data = MixtureData(
        jnp.zeros((D, rows)).at[:, :n].set(x.T),
        jnp.zeros(rows, jnp.int32).at[:n].set(group.astype(jnp.int32)),
        counts,
        jnp.zeros(D),
        jnp.ones(D),
        BASE,
        jnp.arange(2),
    )
    log_mass = jnp.zeros((sampler.windows, K))
    mixture = Mixture(weights, components, log_mass, (jnp.zeros(D), jnp.ones(D)))
    if in_window:
        phi = features(y.reshape(-1, D).T).T.reshape(n, tries, -1)
        extra = jnp.sum(jnp.where(rejected[:, :, None], phi, 0.0), axis=1)
        held = all_events(layout, data).at[:n, : size(D)].add(extra)
        kept = jnp.full(rows, K, jnp.int32).at[:n].set(own)
        state = WindowState(mixture, kept, held, total.astype(jnp.int32))
        return state, data, occupied, fits
    like = (jax.ShapeDtypeStruct((D,), float), jax.ShapeDtypeStruct((), jnp.int32))
    buffer = empty_rejected(layout.buffer, like, layout.buffer.capacity(budget))
    order = jnp.argsort(~rejected.reshape(-1), stable=True)[:budget]
    owner = owner_group
    points, label = buffer.points
    held = buffer._replace(
        points=(
            points.at[:budget].set(y.reshape(-1, D)[order]),
            label.at[:budget].set(labels.reshape(-1)[order].astype(jnp.int32)),
        ),
        owner=buffer.owner.at[:budget].set(owner.reshape(-1)[order].astype(jnp.int32)),
        count=total.astype(jnp.int32),
    )
    return LatentState(mixture, held), data, occupied, fits


def statistics(sampler, state, data, n):
    """Functions of (theta, X): of labelled components, and of the mixture."""
    x = data.x[:, :n].T
    weights, components = state.mixture.weights, state.mixture.components
    log_weights = weights.log_weights
    w = jnp.exp(log_weights)
    mean = jnp.sum(w[:, :, None] * components.means[None], axis=1)
    spread = jnp.log(components.roots[:, 0, 0])
    phi = features(x.T)
    log_normal = jax.vmap(coefficients)(components.means, components.roots) @ phi
    log_terms = jax.nn.logsumexp(log_normal[None] + log_weights[:, :, None], axis=1)
    named = {
        "first weight": w[0, 0],
        "last weight": w[-1, -1],
        "first mean": components.means[0, 0],
        "last mean": components.means[-1, 0],
        "first spread": spread[0],
        "squares": jnp.sum(w**2),
        "mixture mean": mean[0, 0],
        "mixture mean x": mean[0, 0] * jnp.mean(x),
        "weight x": w[0, 0] * jnp.mean(x),
        "mean spread x": jnp.sum(w[0] * spread) * jnp.std(x),
        "heaviest": jnp.max(w[-1]) * jnp.max(x),
        "density": jnp.clip(log_terms[0, 0], -20, 20),
        "densities": jnp.clip(jnp.mean(log_terms[-1]), -20, 20),
        "alpha": jnp.log(weights.alpha),
    }
    if isinstance(sampler.weights, Hierarchy):
        named["group alpha"] = jnp.log(weights.group_alpha)
        named["groups apart"] = jnp.sum((w[0] - w[-1]) ** 2)
        named["shared"] = jnp.exp(weights.log_shared[0])
    return named


def change(sampler, counts, *, budget=40, replicates=4000, steps=2, seed=5):
    """Smallest p-value of the mean changes, Bonferroni; the share of replicates that moved."""
    stage = Stage(jnp.int32(budget), jnp.array(True), jnp.array(True), *[jnp.array(False)] * 3)

    n = sum(counts)

    def one(key):
        key_start, key_steps = jax.random.split(key)
        state, data, occupied, fits = simulate(sampler, counts, budget, key_start)
        before = {**statistics(sampler, state, data, n), "occupied": 1.0 * occupied}

        def sweep(i, carry):
            state, _, fine = carry
            state, info = sampler.step(jax.random.fold_in(key_steps, i), state, stage, data)
            return state, info.stats["occupied"], fine & (info.status == 0)

        start = (state, occupied.astype(jnp.int32), jnp.array(True))
        state, occupied, fine = jax.lax.fori_loop(0, steps, sweep, start)
        after = {**statistics(sampler, state, data, n), "occupied": 1.0 * occupied}
        return jax.tree.map(lambda a, b: a - b, after, before), fits, fine

    with jax.enable_x64(True):
        run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500))
        changes, fits, fine = run(jax.random.split(keys.from_seed(seed), replicates))
    fits = np.asarray(fits)
    assert np.asarray(fine)[fits].all(), "a sweep broke or its buffer was full"
    assert fits.mean() > 0.3
    z = {}
    for name, values in changes.items():
        values = np.asarray(values)[fits]
        assert np.isfinite(values).all(), name
        if values.any():  # the spread of one event is 0 before and after
            z[name] = float(values.mean() / (values.std(ddof=1) / np.sqrt(len(values))))
    p = 2 * distributions.norm.sf(max(map(abs, z.values()))) * len(z)
    moved = float(np.mean(np.asarray(changes["first mean"])[fits] != 0))
    assert moved > 0.9
    print({k: round(v, 1) for k, v in z.items()})
    return p


def soft_edge(y):
    return jnp.minimum(0.0, 1.5 * y[0])


@pytest.mark.parametrize("weights", ["latent", pytest.param("window", marks=pytest.mark.calibrate)])
def test_sweep_leaves_the_joint_alone(weights):
    """Groups that share components and have windows of their own, under a budget that binds."""
    sampler = make(weights, counts=(4, 3), region=BY_GROUP, hierarchical=True)
    assert change(*sampler, budget=12) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("weights", ["latent", "window"])
@pytest.mark.parametrize("budget", [40, 5])
def test_one_group(weights, budget):
    assert change(*make(weights), budget=budget) > FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("weights", ["latent", "window"])
def test_groups_that_share_weights(weights):
    assert change(*make(weights, counts=(4, 3), region=BY_GROUP)) > FALSE_ALARM


@pytest.mark.calibrate
def test_selection_probability():
    sampler = make("latent", region=None, log_accept=soft_edge)
    assert change(*sampler) > FALSE_ALARM


@pytest.mark.calibrate
def test_giving_up_keeps_labelled_rejections(monkeypatch):
    monkeypatch.setattr("offcut.mixtures.sampler.MOST_ATTEMPTS", 1)
    assert change(*make("latent"), budget=4) > FALSE_ALARM


class WeightsFromEventsOnly(LatentSampler):
    """Rejections forgotten where the weights are drawn."""

    def given_labels(self, key, state, units, totals, stage, data):
        width = size(self.layout.d)
        real = jnp.zeros_like(totals).at[units.labels].add(all_events(self.layout, data))
        return super().given_labels(
            key, state, units, totals.at[:, width:].set(real[:, width:]), stage, data
        )


class GrowthForgotten(LatentSampler):
    """Exchange moves without the change of variables of the weights."""

    def _growth(self, components, proposed, data):
        return jnp.zeros_like(super()._growth(components, proposed, data)) + 0.5


class OwnRejectionsForgotten(WindowSampler):
    """Labels of events change as if they had no rejections."""

    def _given_rejections(self, key, state, stage, data):
        bare = state._replace(own=all_events(self.layout, data))
        return super()._given_rejections(key, bare, stage, data)


NEGATIVE_CONTROLS = [WeightsFromEventsOnly, GrowthForgotten, OwnRejectionsForgotten]


def test_weights_from_events_only_are_caught():
    assert change(*make(WeightsFromEventsOnly, moves=0, reshape=False)) < FALSE_ALARM


@pytest.mark.calibrate
@pytest.mark.parametrize("control", NEGATIVE_CONTROLS[1:])
def test_other_negative_controls_are_caught(control):
    assert change(*make(control)) < FALSE_ALARM


@pytest.mark.calibrate
def test_split_without_its_number_of_empty_components_is_caught(monkeypatch):
    """The factor E of the acceptance ratio left out, where up to seven of eight are empty."""
    assert change(*make("latent", components=8, moves=4)) > FALSE_ALARM
    monkeypatch.setattr("offcut.mixtures.split_merge.log_places", lambda empties: 0.0 * empties)
    assert change(*make("latent", components=8, moves=4)) < FALSE_ALARM
