"""The posterior for every kind of window, against closed forms and quadrature over the window.

The truth never calls a region: windows are written down a second time, as ends of intervals in one
dimension and as quadrature nodes in two. 16 chains, t-tests at 1e-5 for each moment.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy import inf
from scipy import special, stats

import offcut
from offcut.regions import Ball, Box, ByGroup, Orthant, Polytope, Predicate, Shell, Simplex
from statistical.truth import Grid, assert_agrees, assert_disagrees, panels

pytestmark = pytest.mark.statistical

RUN = {
    "chains": 16,
    "draws": 1000,
    "warmup": 300,
    "kernel": offcut.HMC(num_steps=6),
    "progress": False,
}


def kept(draw, inside, n):
    """The first n of the draws that are inside."""
    points = draw(200 * n)
    return points[inside(points)][:n]


# On the line: a normal with unknown mean and scale. The mass of an interval is a difference of
# two values of the normal's distribution function.


def line_model(window):
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.3)},
        base=lambda theta, *c: dist.Normal(theta["loc"], theta["scale"]),
        inside=window,
    )


def line_draw(seed):
    return lambda size: np.random.default_rng(seed).normal(0.3, 1.1, size)


def between(pairs):
    return lambda x: np.any([(low < x) & (x < high) for low, high in pairs], axis=0)


def normal_mass(a, b):
    """P(a < z < b), in the lower tail: in the upper one it would be a difference of ones."""
    flip = a > 0
    return special.ndtr(np.where(flip, -a, b)) - special.ndtr(np.where(flip, -b, a))


def line_grid(x, windows):
    """``windows``: the intervals of each observation's window."""

    def log_density(loc, scale):
        total = stats.norm.logpdf(loc, 0, 0.5) + stats.lognorm.logpdf(scale, 0.3)
        masses = {}
        for value, pairs in zip(x, windows, strict=True):
            if pairs not in masses:
                ends = [[(end - loc) / scale for end in pair] for pair in pairs]
                masses[pairs] = np.log(sum(normal_mass(a, b) for a, b in ends))
            total = total - 0.5 * ((value - loc) / scale) ** 2 - np.log(scale) - masses[pairs]
        return total

    return Grid(log_density, loc=(-2.5, 2.5, 160), scale=(0.15, 4.0, 160))


#: Window, its intervals, and a window that is wrong but has the data inside.
LINE = {
    "box": (Box(-0.5, 1.2), ((-0.5, 1.2),), Box(lower=-0.5)),
    "union": (Box(upper=-0.4) | Box(0.3, 2.0), ((-inf, -0.4), (0.3, 2.0)), Box(upper=2.0)),
    "complement": (~Box(-0.3, 0.6), ((-inf, -0.3), (0.6, inf)), Box()),
    "ball without a piece": (
        Ball(0.5, 1.5) & ~Predicate(lambda y, c: jnp.abs(y) < 0.4),
        ((-1.0, -0.4), (0.4, 2.0)),
        Ball(0.5, 1.5),
    ),
}
ON_LINE = 24


@pytest.fixture(scope="module")
def line():
    """One model for all of them, because compiling takes longer than sampling: the right windows
    are groups 0, 1, ..., the wrong ones 100, 101, ...
    """
    right = {k: window for k, (window, _, _) in enumerate(LINE.values())}
    wrong = {100 + k: window for k, (_, _, window) in enumerate(LINE.values())}
    return line_model(ByGroup(right | wrong))


@pytest.mark.parametrize("name", LINE)
def test_windows_on_the_line(line, name):
    pairs, group = LINE[name][1], np.full(ON_LINE, list(LINE).index(name))
    x = kept(line_draw(11), between(pairs), ON_LINE)
    grid = line_grid(x, [pairs] * ON_LINE)
    posterior = offcut.sample(line, x, covariates=group, seed=11, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])
    wrong = offcut.sample(line, x, covariates=100 + group, seed=11, **RUN)
    assert_disagrees(wrong, grid, ["loc", "scale"])


def test_windows_that_differ_by_group(line):
    group = np.repeat([0, 1, 2, 3], [9, 3, 7, 5])
    windows = [list(LINE.values())[g][1] for g in group]
    x = np.concatenate([kept(line_draw(20 + i), between(w), 1) for i, w in enumerate(windows)])
    grid = line_grid(x, windows)
    posterior = offcut.sample(line, x, covariates=group, seed=12, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])
    wrong = offcut.sample(line, x, covariates=np.full(ON_LINE, 102), seed=12, **RUN)
    assert_disagrees(wrong, grid, ["loc", "scale"])


def test_a_union_without_covariates():
    window, pairs, _ = LINE["union"]
    x = kept(line_draw(11), between(pairs), ON_LINE)
    posterior = offcut.sample(line_model(window), x, seed=11, **RUN)
    assert_agrees(posterior, line_grid(x, [pairs] * ON_LINE), ["loc", "scale"])


def test_a_threshold_for_each_observation():
    """Each value has limits of its own; every third has no upper one."""
    rng = np.random.default_rng(13)
    lower = rng.uniform(-1.0, 0.5, ON_LINE)
    upper = np.where(np.arange(ON_LINE) % 3 == 0, 1e6, lower + rng.uniform(1.0, 2.0, ON_LINE))
    windows = [((low, high),) for low, high in zip(lower, upper, strict=True)]
    x = np.concatenate([kept(line_draw(100 + i), between(w), 1) for i, w in enumerate(windows)])
    grid = line_grid(x, windows)
    model = line_model(lambda y, c: Box(c["lower"], c["upper"])(y))
    limits = {"lower": lower, "upper": upper}
    posterior = offcut.sample(model, x, covariates=limits, seed=14, **RUN)
    assert_agrees(posterior, grid, ["loc", "scale"])
    widest = {"lower": np.full(ON_LINE, lower.min()), "upper": np.full(ON_LINE, upper.max())}
    wrong = offcut.sample(model, x, covariates=widest, seed=14, **RUN)
    assert_disagrees(wrong, grid, ["loc", "scale"])


# In the plane: a normal with unknown mean and known, correlated covariance. A window is a list of
# quadrature nodes with weights, in the coordinates that follow its shape.


COVARIANCE = np.array([[1.0, 0.4], [0.4, 0.7]])
PRECISION = np.linalg.inv(COVARIANCE)
WHOLE = 2 * np.pi * np.sqrt(np.linalg.det(COVARIANCE))
FAR = 9.0  # stands for infinity: six standard deviations and more from every mean on the grid


@pytest.fixture
def _numpyro_promotes_ranks():
    """NumPyro's multivariate normal adds a mean to a batch; the setting is for all threads."""
    jax.config.update("jax_numpy_rank_promotion", "allow")
    yield
    jax.config.update("jax_numpy_rank_promotion", "raise")


def plane_model(window):
    scale_tril = np.linalg.cholesky(COVARIANCE)
    return offcut.truncated(
        prior={"first": dist.Normal(0.0, 0.6), "second": dist.Normal(0.0, 0.6)},
        base=lambda theta, *c: dist.MultivariateNormal(
            jnp.stack([theta["first"], theta["second"]]), scale_tril=jnp.asarray(scale_tril)
        ),
        inside=window,
    )


def plane_draw(seed):
    rng = np.random.default_rng(seed)
    return lambda size: rng.multivariate_normal([0.4, 0.2], COVARIANCE, size)


def plane_grid(x, nodes):
    points, weights, whole = nodes

    def log_density(first, second):
        prior = stats.norm.logpdf(first, 0, 0.6) + stats.norm.logpdf(second, 0, 0.6)
        mean = np.stack([first, second], axis=-1)
        # exp(-(p - m)' P (p - m) / 2), the part that is quadratic in p once for all means
        own = weights * np.exp(-0.5 * np.einsum("ki,ij,kj->k", points, PRECISION, points))
        shift = mean @ PRECISION
        quadratic = np.einsum("...i,...i->...", shift, mean)
        mass = np.exp(shift @ points.T) @ own * np.exp(-0.5 * quadratic) + whole * WHOLE
        like = shift @ x.sum(axis=0) - 0.5 * len(x) * quadratic - len(x) * np.log(mass)
        return prior + like

    # 40 nodes give moments to 2e-5, a hundredth of a run's standard error.
    return Grid(log_density, first=(-2.6, 2.6, 40), second=(-2.6, 2.6, 40))


def box_nodes(low, high):
    (u, wu), (v, wv) = (panels(a, b, 60, order=60) for a, b in zip(low, high, strict=True))
    points = np.stack(np.meshgrid(u, v, indexing="ij"), axis=-1).reshape(-1, 2)
    return points, np.outer(wu, wv).ravel(), 0


def disc_nodes(centre, inner, outer):
    """Polar coordinates: the trapezoidal rule in the angle converges exponentially."""
    (r, wr), angles = panels(inner, outer, 40), 2 * np.pi * np.arange(60) / 60
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    points = np.array(centre) + r[:, None, None] * circle
    return points.reshape(-1, 2), np.repeat(wr * r * 2 * np.pi / 60, 60), 0


def triangle_nodes(a, b, c):
    """The square, folded onto the triangle: p = a + u (b - a) + (1 - u) v (c - a)."""
    a, b, c = map(np.array, (a, b, c))
    square, weights, _ = box_nodes((0, 0), (1, 1))
    u, v = square.T
    points = a + u[:, None] * (b - a) + ((1 - u) * v)[:, None] * (c - a)
    area = abs(np.linalg.det(np.stack([b - a, c - a])))
    return points, weights * (1 - u) * area, 0


def joined(*parts, outside=False):
    """The nodes of disjoint parts together, or of what is outside of all of them."""
    points, weights, _ = zip(*parts, strict=True)
    sign = -1 if outside else 1
    return np.concatenate(points), sign * np.concatenate(weights), int(outside)


#: Window, the same in NumPy to make data with, and its nodes.
PLANE = {
    "box": (
        Box([-0.5, -1.0], [1.5, 0.8]),
        lambda p: (np.abs(p - [0.5, -0.1]) < [1.0, 0.9]).all(1),
        box_nodes((-0.5, -1.0), (1.5, 0.8)),
    ),
    "orthant": (
        Orthant([1, -1], [-0.5, 0.7]),
        lambda p: (p[:, 0] > -0.5) & (p[:, 1] < 0.7),
        box_nodes((-0.5, -FAR), (FAR, 0.7)),
    ),
    "simplex": (
        Simplex(2.5),
        lambda p: (p > 0).all(1) & (p.sum(1) < 2.5),
        triangle_nodes((0, 0), (2.5, 0), (0, 2.5)),
    ),
    "ball": (
        Ball([0.3, 0.5], 1.2),
        lambda p: np.hypot(*(p - [0.3, 0.5]).T) < 1.2,
        disc_nodes((0.3, 0.5), 0, 1.2),
    ),
    "shell": (
        Shell([0.0, 0.0], 0.7, 2.0),
        lambda p: (np.hypot(*p.T) > 0.7) & (np.hypot(*p.T) < 2.0),
        disc_nodes((0, 0), 0.7, 2.0),
    ),
    "polytope": (
        Polytope.from_vertices([[-1, -1], [1.5, -0.5], [0.5, 1.5], [-1.5, 0.5]]),
        lambda p: (
            (-0.5 * p[:, 0] + 2.5 * p[:, 1] > -2.0)  # to the left of each side, counter-clockwise
            & (-2.0 * p[:, 0] - 1.0 * p[:, 1] > -2.5)
            & (1.0 * p[:, 0] - 2.0 * p[:, 1] > -2.5)
            & (1.5 * p[:, 0] + 0.5 * p[:, 1] > -2.0)
        ),
        joined(
            triangle_nodes((-1, -1), (1.5, -0.5), (0.5, 1.5)),
            triangle_nodes((-1, -1), (0.5, 1.5), (-1.5, 0.5)),
        ),
    ),
    "union": (
        Ball([-0.8, 0.0], 0.7) | Box([0.4, -1.0], [2.0, 0.8]),
        lambda p: (
            (np.hypot(*(p - [-0.8, 0]).T) < 0.7) | (np.abs(p - [1.2, -0.1]) < [0.8, 0.9]).all(1)
        ),
        joined(disc_nodes((-0.8, 0), 0, 0.7), box_nodes((0.4, -1.0), (2.0, 0.8))),
    ),
    "complement": (
        ~(Ball([0.4, 0.2], 0.9) | Box([1.5, -1.0], [2.5, 1.0])),
        lambda p: ~((np.hypot(*(p - [0.4, 0.2]).T) < 0.9) | (np.abs(p - [2, 0]) < [0.5, 1]).all(1)),
        joined(disc_nodes((0.4, 0.2), 0, 0.9), box_nodes((1.5, -1.0), (2.5, 1.0)), outside=True),
    ),
}


@pytest.mark.parametrize("name", PLANE)
def test_nodes_and_formula_describe_the_same_window(name):
    """The truth itself: P(window) by its nodes against 400,000 draws, at 1e-5."""
    _, inside, (points, weights, whole) = PLANE[name]
    draws = np.random.default_rng(15).multivariate_normal([0.4, 0.2], COVARIANCE, 400_000)
    mass = whole + weights @ stats.multivariate_normal([0.4, 0.2], COVARIANCE).pdf(points)
    hits = int(inside(draws).sum())
    assert stats.binomtest(hits, len(draws), mass).pvalue > 1e-5


IN_PLANE = 16


@pytest.fixture(scope="module")
def plane():
    """One model for all of them, and for two windows that are wrong."""
    right = {k: window for k, (window, _, _) in enumerate(PLANE.values())}
    around_the_ball, hole_forgotten = Box([-0.9, -0.7], [1.5, 1.7]), ~Ball([0.4, 0.2], 0.9)
    return plane_model(ByGroup(right | {100: around_the_ball, 101: hole_forgotten}))


@pytest.mark.usefixtures("_numpyro_promotes_ranks")
@pytest.mark.parametrize("name", PLANE)
def test_windows_in_the_plane(plane, name):
    _, inside, nodes = PLANE[name]
    group = np.full(IN_PLANE, list(PLANE).index(name))
    x = kept(plane_draw(16), inside, IN_PLANE)
    grid = plane_grid(x, nodes)
    posterior = offcut.sample(plane, x, covariates=group, seed=16, **RUN)
    assert_agrees(posterior, grid, ["first", "second"])
    wrong = {"ball": 100, "complement": 101}
    if name in wrong:
        group = np.full(IN_PLANE, wrong[name])
        posterior = offcut.sample(plane, x, covariates=group, seed=16, **RUN)
        assert_disagrees(posterior, grid, ["first", "second"])


@pytest.mark.usefixtures("_numpyro_promotes_ranks")
def test_a_complement_in_the_plane_without_covariates():
    window, inside, nodes = PLANE["complement"]
    x = kept(plane_draw(17), inside, IN_PLANE)
    posterior = offcut.sample(plane_model(window), x, seed=17, **RUN)
    assert_agrees(posterior, plane_grid(x, nodes), ["first", "second"])
