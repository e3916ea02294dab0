"""The sweep of a truncated mixture leaves the joint distribution alone; broken twins do not.

Draw weights and components from the prior, events and rejections from the model (cut to
|Y| <= B); run a few sweeps; the mean change of any statistic of (theta, X) is zero. One call is one
test at a false-alarm rate of 1e-5 (Bonferroni over its statistics).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats as distributions

import offcut.mixtures.sampler as sampler_module
from offcut import keys
from offcut.augmentation.layout import Layout, empty_rejected
from offcut.mixtures.base import Base, Components, draw_all
from offcut.mixtures.concentration import Concentration
from offcut.mixtures.features import coefficients, features, size
from offcut.mixtures.hierarchy import Hierarchy
from offcut.mixtures.layout import MixtureData, MixtureLayout
from offcut.mixtures.sampler import MixtureSampler, MixtureState
from offcut.mixtures.sticks import Sticks
from offcut.mixtures.window import Window
from offcut.regions import Box, ByGroup
from offcut.sampler import Stage
from statistical.truth import FALSE_ALARM

pytestmark = pytest.mark.statistical

K, D, CHUNK = 3, 1, 32
BASE = Base(jnp.array([0.3]), jnp.array(0.5), jnp.array(6.0), jnp.array([[2.0]]))
HALF_LINE = Box([0.0], [np.inf])
BY_GROUP = ByGroup([Box([0.0], [np.inf]), Box([-1.0], [1.5])])


def make(prior, *, counts=(6,), region=HALF_LINE, log_accept=None, moves=2, hierarchical=False):
    """A sampler of few events, with learned concentrations."""
    groups = len(counts)
    layout = MixtureLayout(sum(counts), D, groups, K, Layout(sum(counts), CHUNK, CHUNK, True, 2))
    alpha = Concentration(dist.Gamma(4.0, 4.0))
    weights = Sticks(alpha, K)
    if hierarchical:
        weights = Hierarchy(alpha, Concentration(dist.Gamma(4.0, 2.0)), K, groups)
    sampler = MixtureSampler(layout, Window(region, log_accept), weights, prior, moves, False)
    return sampler, jnp.asarray(counts, jnp.int32)


def simulate(sampler, counts, budget, key):
    """A state with Y, the data, and whether |Y| <= budget."""
    layout, n = sampler.layout, sampler.layout.n
    key_weights, key_parts, key_label, key_noise, key_pass = jax.random.split(key, 5)
    weights = sampler.weights.from_prior(key_weights)
    components = draw_all(key_parts, BASE, jnp.zeros((K, size(D))))
    group = jnp.repeat(jnp.arange(layout.groups), counts, total_repeat_length=n)
    tries = budget + 1
    log_weights = jnp.broadcast_to(weights.log_weights, (layout.groups, K))[group]
    # Event i is the first of its proposals that passes; "window" proposes from one component.
    if sampler.in_window:
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
    like = (jax.ShapeDtypeStruct((D,), float), jax.ShapeDtypeStruct((), jnp.int32))
    buffer = empty_rejected(layout.buffer, like, layout.buffer.capacity(budget))
    order = jnp.argsort(~rejected.reshape(-1), stable=True)[:budget]
    owner = jnp.broadcast_to(jnp.arange(n)[:, None], (n, tries)) if sampler.in_window else owner_group
    points, label = buffer.points
    held = buffer._replace(
        points=(
            points.at[:budget].set(y.reshape(-1, D)[order]),
            label.at[:budget].set(labels.reshape(-1)[order].astype(jnp.int32)),
        ),
        owner=buffer.owner.at[:budget].set(owner.reshape(-1)[order].astype(jnp.int32)),
        count=total.astype(jnp.int32),
    )
    rows = layout.chunks * layout.chunk
    data = MixtureData(
        jnp.zeros((D, rows)).at[:, :n].set(x.T),
        jnp.zeros(rows, jnp.int32).at[:n].set(group.astype(jnp.int32)),
        counts,
        jnp.zeros(D),
        jnp.ones(D),
        BASE,
        jnp.arange(2),
    )
    kept = jnp.full(rows, K, jnp.int32).at[:n].set(own) if sampler.in_window else None
    frame = (jnp.zeros(D), jnp.ones(D))
    state = MixtureState(
        weights, components, kept, held, jnp.zeros((sampler.windows, K)), frame
    )
    return state, data, fits


def statistics(sampler, state, data):
    """Functions of (theta, X): of labelled components, and of the mixture."""
    n = sampler.layout.n
    x = data.x[:, :n].T
    log_weights, components = state.weights.log_weights, state.components
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
        "alpha": jnp.log(state.weights.alpha),
    }
    if isinstance(sampler.weights, Hierarchy):
        named["group alpha"] = jnp.log(state.weights.group_alpha)
        named["groups apart"] = jnp.sum((w[0] - w[-1]) ** 2)
        named["shared"] = jnp.exp(state.weights.log_shared[0])
    return named


def change(sampler, counts, *, budget=40, replicates=6000, steps=3, seed=5):
    """Smallest p-value of the mean changes, Bonferroni; the share of replicates that moved."""
    stage = Stage(
        jnp.int32(budget), jnp.array(True), jnp.array(True), *[jnp.array(False)] * 3
    )

    def one(key):
        key_start, key_steps = jax.random.split(key)
        state, data, fits = simulate(sampler, counts, budget, key_start)
        before = statistics(sampler, state, data)

        def sweep(i, carry):
            state, fine = carry
            state, info = sampler.step(jax.random.fold_in(key_steps, i), state, stage, data)
            return state, fine & (info.status == 0)

        state, fine = jax.lax.fori_loop(0, steps, sweep, (state, jnp.array(True)))
        after = statistics(sampler, state, data)
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
        z[name] = float(values.mean() / (values.std(ddof=1) / np.sqrt(len(values))))
    p = 2 * distributions.norm.sf(max(map(abs, z.values()))) * len(z)
    moved = float(np.mean(np.asarray(changes["first mean"])[fits] != 0))
    assert moved > 0.9
    print({k: round(v, 1) for k, v in z.items()})
    return p


def soft_edge(y):
    return jnp.minimum(0.0, 1.5 * y[0])


@pytest.mark.parametrize("prior", ["latent", "window"])
@pytest.mark.parametrize("budget", [40, 5])
def test_sweep_leaves_the_joint_alone(prior, budget):
    assert change(*make(prior), budget=budget) > FALSE_ALARM


@pytest.mark.parametrize("prior", ["latent", "window"])
def test_groups_with_windows_of_their_own(prior):
    assert change(*make(prior, counts=(4, 3), region=BY_GROUP)) > FALSE_ALARM


@pytest.mark.parametrize("prior", ["latent", "window"])
def test_groups_that_share_components(prior):
    sampler = make(prior, counts=(4, 3), region=BY_GROUP, hierarchical=True)
    assert change(*sampler) > FALSE_ALARM


def test_selection_probability():
    sampler = make("latent", region=None, log_accept=soft_edge)
    assert change(*sampler) > FALSE_ALARM


def test_giving_up_keeps_labelled_rejections(monkeypatch):
    monkeypatch.setattr(sampler_module, "MOST_ATTEMPTS", 1)
    assert change(*make("latent"), budget=4, replicates=10_000) > FALSE_ALARM
