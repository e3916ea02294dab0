"""Densities of a mixture: they integrate to one, each point is alone, groups go by their names.

Most posteriors here are made by hand, so that nothing is sampled and little compiled.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import offcut
from offcut.errors import DataError, SettingsError
from offcut.mixtures.evaluation import draws_of
from offcut.mixtures.groups import as_names, find_groups
from offcut.mixtures.populations import draw_labels, probabilities
from offcut.mixtures.sampler import Mixture
from offcut.mixtures.weights import WeightState
from offcut.mixtures.window_mass import ANCHORS, importance_mass
from offcut.numerics import keys
from offcut.numerics.normal import Components, NormalInverseWishart, data_covariance
from offcut.regions import Ball, Box, ByGroup, Polytope, Predicate
from offcut.samplers.choice import prepare

RNG = np.random.default_rng(16)
DRAWS, K = 6, 6


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same, whichever ran before."""
    RNG.bit_generator.state = np.random.default_rng(16).bit_generator.state


def posterior_of(x, means, covariances, weights, window_weights=None, mass=None, group=None):
    """What ``sample`` would return, from arrays (draw, [group,] component, ...)."""
    window_weights = weights if window_weights is None else window_weights
    mass = np.ones_like(window_weights) if mass is None else mass
    by_group = ("group",) if np.ndim(window_weights) == 3 else ()
    dims = ("chain", "draw", *by_group, "component")
    draws = {
        "weights": (
            dims if np.ndim(weights) == 3 else ("chain", "draw", "component"),
            weights[None],
        ),
        "window_weights": (dims, window_weights[None]),
        "window_mass": (dims, mass[None]),
        "means": (("chain", "draw", "component", "channel"), means[None]),
        "covariances": (("chain", "draw", "component", "channel", "other"), covariances[None]),
    }
    observed = {"x": (("observation", "channel"), x)}
    if group is not None:
        observed["group"] = (("observation",), np.asarray(group))
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset(draws), "observed_data": xr.Dataset(observed)}
    )


def components(draws=DRAWS, spread=1.5):
    """Means (draw, component, 2), covariances and weights of mixtures about the origin."""
    means = RNG.normal(0, spread, (draws, K, 2))
    A = np.eye(2) + 0.4 * RNG.normal(size=(draws, K, 2, 2))
    covariances = 0.5 * A @ A.transpose(0, 1, 3, 2) + 0.1 * np.eye(2)
    return means, covariances, RNG.dirichlet(np.ones(K), draws)


# Item 11: every density integrates to one.

CORNERS = Polytope([[-1, 0], [0, -1], [1, 1]], [1.5, 1.5, 1.0])
WINDOWS = {
    "box": Box([-1, -2], [2, 1]),
    "half-infinite box": Box([-1, None], [None, 1]),
    "ball": Ball([0, 0], 1.5),
    "polytope": CORNERS,
    "with a function": Box([-2, -2], [2, 2]) & Predicate(lambda y: y[0] * y[1] < 0.5, "bent"),
    "union": Ball([-1.5, 0], 0.8) | Box([1, -1], [2, 2]),
    "complement": ~Ball([0, 0], 1.0),
    "by group": ByGroup({"wide": Box([-3, -3], [3, 3]), "round": Ball([0, 0], 1.2)}),
}
STEP = 0.05
AXIS = np.arange(-8, 8, STEP) + STEP / 2
# Turned, so that no side of a window runs along a row of points.
TURNED = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
GRID = np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2) @ TURNED.T
#: They compile as long as the others and show the same.
LONG = ("polytope", "with a function", "complement")


def seen_through(window, groups):
    """Events of every group in its window."""
    x = RNG.normal(0, 1.5, (2000, 2))
    group = np.resize(groups, len(x))
    if isinstance(window, ByGroup):
        inside = [bool(window.windows[g](one)) for one, g in zip(x, group, strict=True)]
    else:
        inside = np.asarray(jax.vmap(window)(jnp.asarray(x)))
    return x[inside][:60], group[inside][:60]


def with_ghosts():
    """Each draw has a component of which 1e-5 or so passes, and one that is out of reach."""
    means, covariances, weights = components()
    means[:, 3], covariances[:, 3] = [4.6, 4.6], 0.8 * np.eye(2)
    means[:, 4], covariances[:, 4] = [900.0, -700.0], 0.3 * np.eye(2)
    weights = 0.8 * weights
    weights[:, 3:5] += 0.1
    return means, covariances, weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.calibrate] if n in LONG else []) for n in WINDOWS]
)
def test_every_draw_integrates_to_one(name):
    """By a sum over a fine grid, for weights before the filter and in the window."""
    window = WINDOWS[name]
    x, group = seen_through(window, ["wide", "round"] if name == "by group" else ["all"])
    covariates = group if name == "by group" else None
    means, covariances, weights = with_ghosts()
    with jax.enable_x64(True):
        found = {}
        for process in ("latent", "window"):
            model = offcut.TruncatedMixture(window, components=K, weights=process)
            sampler, data, observed = prepare(model, x, covariates)
            if not found:
                masses = jax.jit(sampler.log_masses)
                roots = np.linalg.cholesky(covariances) / np.asarray(data.scale)[:, None]
                centred = (means - np.asarray(data.shift)) / np.asarray(data.scale)
                drawn = [
                    jax.tree.map(
                        np.asarray,
                        masses(
                            keys.from_seed(s),
                            Components(jnp.asarray(centred[s]), jnp.asarray(roots[s])),
                            jnp.log(jnp.asarray(weights[s]))[None],
                            data,
                        ),
                    )
                    for s in range(DRAWS)
                ]
            states = [
                Mixture(
                    WeightState(jnp.log(jnp.asarray(weights[s]))[None], jnp.ones(())),
                    None,
                    drawn[s].log,
                    None,
                )
                for s in range(DRAWS)
            ]
            within = np.stack([np.asarray(sampler.window_weights(state)) for state in states])
            found[process] = (model, within, observed)
    mass = np.exp(np.stack([one.log for one in drawn]))
    error = np.stack([one.error for one in drawn])
    reaches = name in ("complement", "half-infinite box")  # they hold the far component
    assert np.allclose(mass[:, :, 4], reaches, atol=1e-2)
    assert reaches or mass[:, :, 4].max() == 0
    assert (mass[:, :, 3] > 0).all()
    assert error.max() < 0.25
    for model, within, observed in found.values():
        np.testing.assert_allclose(within.sum(2), 1.0, rtol=1e-9)
        assert within[:, :, 4].max() == 0 or reaches
        posterior = posterior_of(
            x, means, covariances, weights, within, mass, observed.get("group")
        )
        for place, one in enumerate(["round", "wide"] if name == "by group" else [None]):
            each = model.density(posterior, GRID, draws=True, group=one)[0].sum(1) * STEP**2
            each += within[:, place, 4]  # beyond the grid
            assert np.abs(each - 1).max() < 0.05
            assert abs(each.mean() - 1) < 0.015


def test_a_mass_of_zero_is_not_divided_by():
    """The broken variant: what no point hit counted as 1e-300, and the density was 1e286."""
    means, covariances, weights = components(2)
    mass = np.ones((2, K))
    mass[:, 4] = 0.0
    within = np.where(mass > 0, weights, 0.0)
    within /= within.sum(1, keepdims=True)
    model = offcut.TruncatedMixture(components=K)
    point = means[0, 4][None]
    x = RNG.normal(size=(9, 2))
    sound = model.density(posterior_of(x, means, covariances, weights, within, mass), point)
    assert 0 < sound[0] < 10
    broken = posterior_of(x, means, covariances, weights, weights, np.maximum(mass, 1e-300))
    assert model.density(broken, point)[0] > 1e280


def test_masses_of_far_components_are_estimated_and_their_errors_known(float64):
    """A ball, seen from components up to twelve deviations away: against quadrature by rings."""
    distance = np.array([0.0, 1.0, 3.0, 6.0, 12.0])
    means = np.stack([0.8 * distance, 0.6 * distance], axis=1)
    root = np.array([[1.0, 0.0], [0.6, 0.8]])
    made = Components(jnp.asarray(means), jnp.broadcast_to(jnp.asarray(root), (5, 2, 2)))
    x = RNG.normal(size=(400, 2))
    events = jnp.asarray(x[(x**2).sum(1) < 1][:ANCHORS])
    estimate = jax.jit(
        lambda key: importance_mass(
            key, made, 2048, lambda y: 1.0 * (jnp.sum(y**2, axis=1) < 1), events
        )
    )
    radius, weight = np.polynomial.legendre.leggauss(200)
    radius, angle = (radius + 1) / 2, np.linspace(0, 2 * np.pi, 800, endpoint=False)
    rings = np.stack([np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle))], axis=-1)
    area = np.outer(weight / 2 * radius, np.full(800, 2 * np.pi / 800))
    truth = [np.sum(area * multivariate_normal(m, root @ root.T).pdf(rings)) for m in means]
    found = [estimate(keys.from_seed(seed)) for seed in range(16)]
    ratio = np.exp(np.stack([one.log for one in found])) / truth
    error = np.stack([one.error for one in found])
    assert truth[-1] < 1e-18
    assert np.abs(ratio.mean(0) - 1).max() < 0.03
    assert (ratio.std(0) < 1.5 * error.mean(0)).all()  # a lattice does better than it says
    assert error.max() < 0.1


# Item 15: each point is alone.

WILD = np.array(
    [
        [0.3, 0.4],
        [1e9, 1.0],
        [np.inf, 0.0],
        [-1.0, 0.2],
        [np.nan, 1.0],
        [-np.inf, np.inf],
        [1e200, -1e200],
        [1e300, 1e-300],
        [2.0, -1.0],
        [-1e15, 3.0],
    ]
)


@pytest.mark.parametrize("truncated", [True, False])
@pytest.mark.parametrize("shift", [0.0, 1e8])
def test_a_density_does_not_depend_on_the_other_points(truncated, shift):
    means, covariances, weights = components(3)
    window = Ball([shift, shift], 40.0)
    x = shift + RNG.normal(size=(20, 2))
    model = offcut.TruncatedMixture(window, components=K)
    posterior = posterior_of(x, means + shift, covariances, weights)
    points = WILD + shift
    together = model.density(posterior, points, truncated=truncated)
    alone = [model.density(posterior, one[None], truncated=truncated)[0] for one in points]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    regular = [0, 3, 8]
    assert np.isnan(together[4])
    assert (np.delete(together, [4, *regular]) == 0).all()
    truth = [
        np.sum(
            [
                w * multivariate_normal(m + shift, c).pdf(points[i])
                for m, c, w in zip(means[s], covariances[s], weights[s], strict=True)
            ]
        )
        for i in regular
        for s in range(3)
    ]
    np.testing.assert_allclose(
        together[regular], np.mean(np.reshape(truth, (3, 3)), axis=1), rtol=1e-6
    )
    each = model.density(posterior, points, draws=True, truncated=truncated)
    np.testing.assert_allclose(each[0].mean(0)[regular], together[regular], rtol=1e-12)


def test_marginals_do_not_depend_on_the_other_points():
    means, covariances, weights = components(2)
    model = offcut.TruncatedMixture(Ball([0, 0], 40.0), components=K)
    posterior = posterior_of(RNG.normal(size=(20, 2)), means, covariances, weights)
    points = WILD[:, :1]
    for truncated in (True, False):
        together = model.marginal(posterior, points, (0,), truncated=truncated)
        alone = [
            model.marginal(posterior, one[None], (0,), truncated=truncated)[0] for one in points
        ]
        np.testing.assert_allclose(together, alone, rtol=1e-12)
        assert (together[[0, 3, 8]] > 0).all()


def test_labels_do_not_depend_on_how_far_other_events_are(float64):
    means, covariances, weights = components(4)
    x = RNG.normal(size=(50, 2))
    drawn = draws_of(posterior_of(x, means, covariances, weights), None)
    none = np.zeros(len(x), np.int32)
    far = x.copy()
    far[40:] = [1e12, -1e9]
    near, wild = draw_labels(drawn, x, none, 0), draw_labels(drawn, far, none, 0)
    np.testing.assert_array_equal(near[:, :40], wild[:, :40])


def test_memberships_of_far_points_are_finite():
    means, covariances, weights = components(3)
    drawn = draws_of(posterior_of(WILD, means, covariances, weights), None)
    matches = np.tile(np.arange(K), (3, 1))
    finite = WILD[np.isfinite(WILD).all(1)]
    shares = probabilities(drawn, matches, K, finite)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    alone = [probabilities(drawn, matches, K, one[None])[0] for one in finite]
    np.testing.assert_allclose(shares, alone, rtol=1e-9, atol=1e-12)


# Items 14 and 15: groups go by their names.

PRE, POST = Box([-1, -9], [9, 9]), Box([-9, -9], [1, 9])


def in_groups(first="pre", second="post"):
    """Events of two groups, in the windows PRE and POST."""
    x = RNG.normal(size=(60, 2))
    group = np.resize([first, second], len(x))
    inside = np.where(group == first, x[:, 0] > -1, x[:, 0] < 1)
    return x[inside], group[inside]


@pytest.mark.parametrize("names", [("pre", "post"), ("a", "b"), (7, 100_023), (100_023, 7)])
def test_windows_are_looked_up_by_name(names, float64):
    """Whatever the alphabet says; and the masses are those of the named windows."""
    x, group = in_groups(*names)
    window = ByGroup(dict(zip(names, (PRE, POST), strict=True)))
    model = offcut.TruncatedMixture(window, components=2)
    sampler, data, observed = prepare(model, x, group)
    data = jax.tree.map(jnp.asarray, data)  # as in a program
    assert sampler.layout.groups == 2
    assert sampler.layout.names == tuple(map(str, sorted(names)))
    np.testing.assert_array_equal(observed["group"], group)
    there = ((jnp.array([5.0, 0.0]) - data.shift) / data.scale)[None]  # only PRE reaches there
    right = Components(there, 0.1 * jnp.eye(2)[None])
    mass = sampler.log_masses(keys.from_seed(0), right, jnp.zeros((1, 1)), data)
    place = [str(one) for one in sorted(names)].index(str(names[0]))
    assert np.asarray(jnp.exp(mass.log))[place, 0] == pytest.approx(1.0, abs=1e-3)
    assert np.asarray(jnp.exp(mass.log))[1 - place, 0] < 1e-3
    swapped = offcut.TruncatedMixture(ByGroup(dict(zip(names, (POST, PRE), strict=True))))
    with pytest.raises(DataError, match="outside the window"):
        prepare(swapped, x, group)


def test_windows_in_a_list_are_for_numbered_groups(float64):
    x, group = in_groups()
    listed = offcut.TruncatedMixture(ByGroup([PRE, POST]), components=2)
    with pytest.raises(DataError, match=r"groups are 'post', 'pre': say which window is whose"):
        prepare(listed, x, group)
    prepare(listed, x, np.where(group == "pre", 0, 1))
    with pytest.raises(DataError, match="groups are 1, 2: say"):
        prepare(listed, x, np.where(group == "pre", 1, 2))
    named = offcut.TruncatedMixture(ByGroup({"pre": PRE, "after": POST}), components=2)
    with pytest.raises(DataError, match="no window for 'post'; ByGroup has windows for 'pre'"):
        prepare(named, x, group)


def test_functions_of_the_group_get_its_number(float64):
    """The number that names it, not its place; where names are no numbers they are refused."""
    x, group = in_groups(100_023, 7)
    bent = lambda y, g: jnp.where(g == 7, y[0] < 1, y[0] > -1)  # noqa: E731
    prepare(offcut.TruncatedMixture(bent, components=2), x, group)
    thinned = offcut.TruncatedMixture(log_accept=lambda y, g: jnp.where(g >= 7, -0.1, 9.0))
    prepare(thinned, x, group)
    for model in (
        offcut.TruncatedMixture(bent),
        thinned,
        offcut.TruncatedMixture(ByGroup({"a": bent, "b": PRE})),
    ):
        with pytest.raises(DataError, match="gets its number"):
            prepare(model, x, np.where(group == 7, "a", "b"))


def by_name(names=("pre", "post")):
    """A posterior of two groups with different weights, made by hand."""
    means, covariances, _ = components(3)
    x, group = in_groups(*names)
    shares = np.stack([RNG.dirichlet(np.ones(K), 2) for _ in range(3)])
    return posterior_of(x, means, covariances, shares, group=group), x, group, shares


@pytest.mark.usefixtures("unchecked")  # 0.0 names no group
def test_groups_are_asked_for_by_name():
    posterior, x, _, shares = by_name()
    model = offcut.TruncatedMixture(components=K, hierarchical=True)
    drawn = draws_of(posterior, None)
    assert drawn.names == ("post", "pre")
    for place, name in enumerate(drawn.names):
        truth = np.mean(
            [
                sum(
                    w * multivariate_normal(m, c).pdf(x[:3])
                    for m, c, w in zip(
                        drawn.means[s], drawn.covariances[s], shares[s, place], strict=True
                    )
                )
                for s in range(3)
            ],
            axis=0,
        )
        np.testing.assert_allclose(model.density(posterior, x[:3], group=name), truth, rtol=1e-9)
    for wrong in (0, 7, "b", 0.0, True):
        with pytest.raises(SettingsError, match="the fit knows 'post', 'pre'"):
            model.density(posterior, x[:3], group=wrong)
        with pytest.raises(SettingsError, match="the fit knows 'post', 'pre'"):
            model.predict(posterior, 3, group=wrong)
    for ask in (model.density, lambda *of: model.marginal(*of, (0, 1))):
        with pytest.raises(SettingsError, match="2 groups: say which"):
            ask(posterior, x[:3])
    assert model.predict(posterior, 3, group="pre").shape == (3, 2)


def test_labels_look_groups_up():
    posterior, x, group, _ = by_name()
    model = offcut.TruncatedMixture(components=K, hierarchical=True)
    fitted, again = model.labels(posterior), model.labels(posterior, x, groups=group)
    np.testing.assert_array_equal(fitted.labels, again.labels)
    np.testing.assert_array_equal(fitted.group, group == "pre")
    assert fitted.group_names == ("post", "pre")
    with pytest.raises(DataError, match="2 groups, 'post', 'pre': give groups="):
        model.labels(posterior, x)
    with pytest.raises(DataError, match="knows the groups 'post', 'pre', not 'b'"):
        model.labels(posterior, x, groups=np.where(group == "pre", "b", group))
    with pytest.raises(DataError, match="not 7"):
        model.labels(posterior, x, groups=np.full(len(x), 7))
    with pytest.raises(SettingsError, match="those of X"):
        model.labels(posterior, groups=group)
    first = model.compare(fitted)[0]
    assert first.groups == ("post", "pre")
    assert "in post against" in repr(first)
    assert model.compare(fitted, "pre", "post")[0].groups == ("pre", "post")
    for pair in ((0, 1), ("pre", "b")):
        with pytest.raises(SettingsError, match="there is no group"):
            model.compare(fitted, *pair)
    with pytest.raises(SettingsError, match="two different groups"):
        model.compare(fitted, "pre", "pre")
    alone = posterior_of(x, *components(2))
    with pytest.raises(DataError, match="the fit had no groups"):
        model.labels(alone, x, groups=group)


def test_names_of_groups():
    codes, names = find_groups(np.array([100_023, 7, 100_023]), 3)
    assert codes.tolist() == [1, 0, 1]
    assert names == ("7", "100023")
    assert find_groups(["10", "9", "b"], 3)[1] == ("10", "9", "b")
    assert find_groups(np.array([10, 9], object), 2)[1] == ("9", "10")
    assert find_groups([-1, 3], 2)[1] == ("-1", "3")
    with pytest.raises(DataError, match=r"no group in covariates, the first in row 1 .*None"):
        as_names(np.array(["a", None], object), 2)
    with pytest.raises(DataError, match="got real numbers"):
        as_names([0.0, 1.0], 2)
    with pytest.raises(DataError, match="an identifier"):
        prepare(
            offcut.TruncatedMixture(hierarchical=True), RNG.normal(size=(2000, 2)), np.arange(2000)
        )


# Item 12: units do not change the answer.


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("factor", [1e-12, 1e-4, -1.0, 1e7])
def test_the_base_follows_the_units_of_every_column(column, factor):
    x = RNG.normal([3.0, -400.0, 0.01], [1.0, 50.0, 1e-3], size=(40, 3))
    x[:, 2] += 1e-4 * x[:, 0]
    shift = np.where(np.arange(3) == column, 17.0 * np.abs(factor), 0.0)
    scale = np.where(np.arange(3) == column, factor, 1.0)
    one, other = (NormalInverseWishart().for_data(data) for data in (x, x * scale + shift))
    np.testing.assert_allclose(other.mean, one.mean * scale + shift, rtol=1e-9)
    deviation = np.sqrt(np.diagonal(other.scale))
    expected = one.scale * np.outer(scale, scale) / np.outer(deviation, deviation)
    np.testing.assert_allclose(other.scale / np.outer(deviation, deviation), expected, atol=1e-9)


def test_only_what_is_constant_up_to_rounding_counts_as_constant():
    rounded = 0.1 * (1 + 2e-16 * np.arange(10))
    x = np.stack([RNG.normal(size=10), rounded, np.zeros(10), 1e9 + np.linspace(0, 3e-3, 10)]).T
    covariance = data_covariance(x)
    assert covariance[3, 3] == pytest.approx(1e-6, rel=0.1)
    assert covariance[1, 1] == pytest.approx(1e-5)
    assert covariance[2, 2] == pytest.approx(1e-3)
    assert (covariance[1, [0, 2, 3]] == 0).all()


def three_populations():
    """128 events on a grid of powers of two, so that sums of them are exact."""
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 6.0]])
    x = centres[np.arange(128) % 3] + RNG.normal(size=(128, 2))
    return np.round(x * 256) / 256


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("factor", [2.0**-20, 2.0**30, -1.0])
def test_the_sampler_sees_the_same_numbers_in_any_units(column, factor, float64):
    """By a power of two, digit by digit; a reflected column is reflected there too."""
    x, model = three_populations(), offcut.TruncatedMixture(components=6)
    scale = np.where(np.arange(2) == column, factor, 1.0)
    shift = np.where(np.arange(2) == column, 64.0 * abs(factor), 0.0)
    one, other = (prepare(model, data)[1] for data in (x, x * scale + shift))
    sign = np.sign(scale)
    np.testing.assert_array_equal(other.x, one.x * sign[:, None])
    np.testing.assert_array_equal(other.scale, one.scale * np.abs(scale))
    np.testing.assert_array_equal(other.shift, one.shift * scale + shift)
    np.testing.assert_array_equal(other.base.mean, one.base.mean * sign)
    np.testing.assert_allclose(
        other.base.scale, one.base.scale * np.outer(sign, sign), rtol=1e-14, atol=1e-15
    )


@pytest.mark.calibrate
def test_three_populations_stay_three_in_any_units():
    """A column in other units, by a power of two: the same draws, digit by digit."""
    x, model = three_populations(), offcut.TruncatedMixture(components=6)
    settings = {"draws": 40, "warmup": 100, "chains": 2, "progress": False, "seed": 3}
    one = offcut.sample(model, x, **settings)
    factor = np.array([2.0**-20, 1.0])
    other = offcut.sample(model, x * factor, **settings)
    for name, power in (("means", factor), ("covariances", np.outer(factor, factor))):
        np.testing.assert_array_equal(
            other["posterior"][name].values, one["posterior"][name].values * power
        )
    labels = model.labels(other)
    assert labels.populations == 3
    np.testing.assert_array_equal(labels.labels, model.labels(one).labels)
    np.testing.assert_allclose(
        model.density(other, x[:5] * factor), model.density(one, x[:5]) / factor[0], rtol=1e-9
    )
