"""Regions: membership against NumPy, the algebra of sets, intervals, pictures, errors."""

from __future__ import annotations

import pickle
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from numpy import inf

import offcut
from offcut import regions
from offcut.errors import ModelError, SettingsError
from offcut.regions import (
    Ball,
    Box,
    ByGroup,
    Complement,
    Intersection,
    Orthant,
    Polytope,
    Predicate,
    Shell,
    Simplex,
    Union,
    intervals,
)

mpl.use("Agg")

#: A coarse grid has many points exactly on edges; random ones have none.
GRID = np.stack(np.meshgrid(*[np.arange(-3, 3.25, 0.25)] * 2), axis=-1).reshape(-1, 2)
POINTS = np.concatenate([GRID, np.random.default_rng(0).normal(0, 1.5, size=(500, 2))])

A = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, -1.0]])
b = np.array([2.0, 1.0, 1.5])

#: Region, and the same in NumPy for many points (n, 2).
PLANE = {
    "box": (
        Box([-1, -0.5], [1, 2]),
        lambda p: ((p >= [-1, -0.5]) & (p <= [1, 2])).all(1),
    ),
    "open box": (
        Box([-1, -0.5], [1, 2], closed="neither"),
        lambda p: ((p > [-1, -0.5]) & (p < [1, 2])).all(1),
    ),
    "sides differ": (
        Box([-1, -0.5], [1, 2], closed=["left", "right"]),
        lambda p: (p[:, 0] >= -1) & (p[:, 0] < 1) & (p[:, 1] > -0.5) & (p[:, 1] <= 2),
    ),
    "unbounded box": (
        Box([None, 0], [1, inf], closed="left"),
        lambda p: (p[:, 0] < 1) & (p[:, 1] >= 0),
    ),
    "numbers for all coordinates": (Box(-1, 0.5), lambda p: ((p >= -1) & (p <= 0.5)).all(1)),
    "number and vector": (Box(-1, [0.5, 1]), lambda p: ((p >= -1) & (p <= [0.5, 1])).all(1)),
    "orthant": (Orthant(), lambda p: (p >= 0).all(1)),
    "open orthant": (
        Orthant([1, -1], [0.5, 1], closed=False),
        lambda p: (p[:, 0] > 0.5) & (p[:, 1] < 1),
    ),
    "simplex": (Simplex(2), lambda p: (p >= 0).all(1) & (p.sum(1) <= 2)),
    "ball": (Ball([1, 0], 1.5), lambda p: np.hypot(p[:, 0] - 1, p[:, 1]) <= 1.5),
    "ball around a number": (Ball(1, 1.5), lambda p: np.hypot(p[:, 0] - 1, p[:, 1] - 1) <= 1.5),
    "shell": (
        Shell([0, 0], 1, 2),
        lambda p: (np.hypot(*p.T) >= 1) & (np.hypot(*p.T) <= 2),
    ),
    "endless shell": (Shell([0, 0], 1), lambda p: np.hypot(*p.T) >= 1),
    "polytope": (Polytope(A, b), lambda p: (p @ A.T <= b).all(1)),
    "hull": (
        Polytope.from_vertices([[0, 0], [2, 0], [0, 1], [0.1, 0.1]]),
        lambda p: (p >= 0).all(1) & (p @ [0.5, 1.0] <= 1),
    ),
    "predicate": (
        Predicate(lambda y: y[0] * y[1] > 0.3),
        lambda p: p[:, 0] * p[:, 1] > 0.3,
    ),
    "several": (
        Box([-2, -2], [2, 2]) & ~Ball([0, 0], 1) | (lambda y: y[0] > 2.2),
        lambda p: (np.abs(p) <= 2).all(1) & (np.hypot(*p.T) > 1) | (p[:, 0] > 2.2),
    ),
}


def members(region, points):
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(region))(jnp.asarray(points)))


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


# Membership


@pytest.mark.parametrize("name", PLANE)
def test_members_are_those_of_numpy(name):
    region, expected = PLANE[name]
    wanted = expected(POINTS)
    assert 0 < wanted.mean() < 1
    found = members(region, POINTS)
    assert found.dtype == bool
    # A sum in another order may move an oblique edge by a rounding, nothing else may differ.
    oblique = name == "hull"
    near = np.abs(POINTS @ [0.5, 1.0] - 1) < 1e-12 if oblique else np.zeros(len(POINTS), bool)
    np.testing.assert_array_equal(found[~near], wanted[~near])


@pytest.mark.parametrize("name", [name for name in PLANE if name != "predicate"])
def test_numpy_points_give_the_same_in_numpy_and_in_full_precision(name):
    region, _ = PLANE[name]
    some = POINTS[::7]
    plain = [region(point) for point in some]
    np.testing.assert_array_equal(plain, members(region, some))
    assert plain == [region(list(point)) for point in some]
    if name != "several":  # it has a predicate
        assert all(isinstance(value, np.bool_) for value in plain)


def test_numpy_points_are_not_rounded_to_float32():
    assert not jax.config.jax_enable_x64
    assert Box(0, 1)(1.0)
    assert not Box(0, 1)(1.0 + 1e-12)
    assert not Ball([0.0, 0.0], 1)(np.array([1.0 + 1e-12, 0.0]))


@pytest.mark.parametrize(
    ("closed", "low", "high"),
    [
        ("both", True, True),
        ("left", True, False),
        ("right", False, True),
        ("neither", False, False),
    ],
)
def test_ends_belong_to_a_box_as_closed_says(closed, low, high):
    box = Box(0, 1, closed=closed)
    for value, wanted in ((0.0, low), (1.0, high), (0.5, True), (-1e-300, False), (1.001, False)):
        assert bool(box(value)) is wanted
        assert bool(members(box, [value])[0]) is wanted


def test_integers_are_points():
    counts = jnp.arange(5)
    assert list(np.asarray(jax.vmap(Box(1, 3))(counts))) == [False, True, True, True, False]
    assert list(np.asarray(jax.vmap(Shell(2, 1, 2))(counts))) == [True, True, False, True, True]
    assert Box(1, 3)(2)


def test_points_of_a_hull_lie_in_it():
    points = np.random.default_rng(1).normal(size=(40, 3))
    hull = Polytope.from_vertices(points)
    assert all(hull(point) for point in points)
    assert not hull([9.0, 0.0, 0.0])
    cube = Polytope.from_vertices(list(np.ndindex(2, 2, 2)))
    assert cube.A.shape == (6, 3)  # Qhull makes triangles of its sides
    interval = Polytope.from_vertices([[3], [1], [2]])
    found = members(interval, [[0.9], [1.0], [3.0], [3.1]])
    assert found.tolist() == [False, True, True, False]


# Traced parameters


def test_limits_may_be_traced():
    @jax.jit
    def inside(y, low, high):
        return Box(low, high)(y)

    assert inside(0.5, 0.0, 1.0)
    assert not inside(0.5, 0.6, 1.0)
    assert not inside(0.5, 1.0, 0.0)  # cannot be refused, accepts nothing
    assert not inside(0.5, jnp.nan, 1.0)


def test_windows_by_observation_under_vmap():
    y = POINTS[:50]
    low, radius = y - np.random.default_rng(2).uniform(-0.5, 1, y.shape), np.abs(y[:, 0])

    def inside(y, low, radius):
        box = Box([low[0], low[1]], [None, 1.0])
        return box(y) & (Ball(low, radius) | Shell(low, radius, radius + 1))(y)

    with jax.enable_x64(True):
        found = np.asarray(jax.jit(jax.vmap(inside))(*map(jnp.asarray, (y, low, radius))))
    far = np.hypot(*(y - low).T)
    np.testing.assert_array_equal(found, (y >= low).all(1) & (y[:, 1] <= 1) & (far <= radius + 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: Box(t, 1.0),
        lambda t: Box([t, -5.0], [None, None]),
        lambda t: Orthant([1, -1], t),
        lambda t: Ball(t, 1.0),
        lambda t: Ball([0.0, 0.0], t),
        lambda t: Shell([0.0, 0.0], t),
        lambda t: Simplex(t),
        lambda t: Polytope([[1.0, 1.0]], t),
        lambda t: Polytope([[t, 1.0]], [2.0]),
        lambda t: ~(Box(t) & Ball(t, 2)),
    ],
)
def test_traced_regions_do_all_that_others_do(make):
    """A constant point too; and what cannot be known is said not to be known."""
    point = np.array([0.4, 0.3])

    def inside(t):
        region = make(t)
        assert "<traced" in repr(region)
        assert region == region
        assert hash(region) == hash(region)
        assert intervals(region) is None
        assert all(np.isfinite(value) for _, value in region.edges())
        return region(point), region(jnp.asarray(point))

    assert all(value.dtype == bool and value.shape == () for value in jax.jit(inside)(0.5))
    if "Polytope" not in repr(make(0.5)):
        assert bool(jax.jit(inside)(0.5)[0]) == bool(make(0.5)(point))


# The algebra of sets


def random_region(rng, depth, dimension):
    """An expression of random shapes, and the same in NumPy."""
    if depth == 0 or rng.random() < 0.2:
        c = np.round(rng.normal(size=dimension or None), 1)
        size = rng.uniform(0.3, 2)

        def distance(p):
            return np.linalg.norm(p - c, axis=-1) if dimension else np.abs(p - c)

        def every(inside):
            return inside.all(-1) if dimension else inside

        return (
            (Box(c - size, c + size), lambda p: every(np.abs(p - c) <= size)),
            (Box(lower=c), lambda p: every(p >= c)),
            (Orthant(-1, c), lambda p: every(p <= c)),
            (Ball(c, size), lambda p: distance(p) <= size),
            (Shell(c, size, 2 * size), lambda p: (distance(p) >= size) & (distance(p) <= 2 * size)),
        )[rng.integers(5)]
    a, in_a = random_region(rng, depth - 1, dimension)
    b, in_b = random_region(rng, depth - 1, dimension)
    return (
        (a & b, lambda p: in_a(p) & in_b(p)),
        (a | b, lambda p: in_a(p) | in_b(p)),
        (~a, lambda p: ~in_a(p)),
    )[rng.integers(3)]


def test_random_expressions_have_the_members_that_numpy_finds():
    rng = np.random.default_rng(3)
    p = rng.normal(0, 2, size=(400, 2))
    for _ in range(25):
        region, expected = random_region(rng, 3, 2)
        np.testing.assert_array_equal(members(region, p), expected(p), err_msg=repr(region))


def test_laws_of_sets():
    rng = np.random.default_rng(4)
    p = rng.normal(0, 2, size=(300, 2))
    for _ in range(3):
        a, b, c = (random_region(rng, 1, 2)[0] for _ in range(3))
        for left, right in (
            (~(a & b), ~a | ~b),
            (~(a | b), ~a & ~b),
            (a & (b | c), a & b | a & c),
            (a | b & c, (a | b) & (a | c)),
            (a | a & b, a),
        ):
            np.testing.assert_array_equal(members(left, p), members(right, p))
        assert not members(a & ~a, p).any()
        assert members(a | ~a, p).all()


def test_a_function_on_either_side_becomes_a_predicate():
    def positive(y):
        return y > 0

    for window in (Box(-1, 1) & positive, positive & Box(-1, 1)):
        assert isinstance(window, Intersection)
        assert members(window, [-0.5, 0.5, 1.5]).tolist() == [False, True, False]
    for window in (Box(-1, 1) | positive, positive | Box(-1, 1)):
        assert isinstance(window, Union)
        assert members(window, [-1.5, -0.5, 1.5]).tolist() == [False, True, True]
    assert repr(positive & Box(0, 1)) == "Predicate(positive) & Box(0, 1)"


def test_the_complement_of_numbers_is_not_that_of_bits():
    odd = Predicate(lambda y: y % 2)  # 0 or 1, and ~1 is -2
    assert members(~odd, np.arange(4)).tolist() == [True, False, True, False]
    assert not (~odd)(3)


def test_nested_combinations_of_one_kind_are_flat():
    a, b, c = Box(0, 1), Box(2, 3), Box(4, 5)
    assert (a | b | c).parts == (a | (b | c)).parts == (a, b, c)
    assert (a & (b & c)).parts == (a, b, c)
    assert (a & (b | c)).parts == (a, b | c)
    assert ~~a is a


def test_anything_else_is_no_part_of_a_region():
    for wrong in (True, 3, np.array(1.0)):
        with pytest.raises(TypeError):
            Box(0, 1) & wrong
        with pytest.raises(TypeError):
            wrong | Box(0, 1)
    with pytest.raises(ModelError, match="combine regions with &"):
        Box(0, 1) and Box(2, 3)
    with pytest.raises(ModelError, match="neither true nor false"):
        not Box(0, 1)


def test_regions_are_equal_by_content():
    assert Box(0, 1) == Box(0.0, jnp.asarray(1.0))
    assert Box(0, [1, 2]) == Box([0, 0], [1, 2])
    assert Box(0, 1) != Box(0, 1, closed="left")
    assert Box(0, 1) != Box([0], [1])
    assert Orthant([1, -1]) == Box([0, None], [None, 0])
    assert Box(0, 1) | Ball(3, 1) == Ball(3, 1) | Box(0, 1)
    assert Box(0, 1) & Ball(3, 1) != Ball(3, 1) | Box(0, 1)
    assert ~Box(0, 1) == ~Box(0, 1) != Box(0, 1)
    assert Predicate(np.isfinite) == Predicate(np.isfinite) != Predicate(np.isnan)
    assert Box(0, 1) != "Box(0, 1)"
    assert ByGroup([Box(0, 1)]) == ByGroup({0: Box(0, 1)}) != ByGroup([Box(0, 1)], group="site")
    assert len({Box(0, 1), Box(0, 1), Box(0, 2), ~Box(0, 1), Box(0, 1) & Box(0, 2)}) == 4

    class Unhashable:
        __hash__ = None

        def __call__(self, y):
            return y > 0

    function = Unhashable()
    assert Box(0) & function == Box(0) & function


def test_parameters_cannot_be_changed_behind_the_hash():
    limits = np.array([0.0, 1.0])
    box = Box(limits)
    limits[0] = 5.0
    assert box.lower[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        box.lower[0] = 5.0


def test_regions_can_be_pickled():
    region = Box([0, 0], [1, None]) & ~Ball([0, 0], 1) | Polytope(A, b)
    assert pickle.loads(pickle.dumps(region)) == region


# Repr


@pytest.mark.parametrize(
    ("region", "text"),
    [
        (Box([0, 0], [1, None]) & ~Ball([0, 0], 1.0), "Box([0, 0], [1, inf]) & ~Ball([0, 0], 1)"),
        (Box(-0.0, 0.5, closed="left"), "Box(0, 0.5, closed='left')"),
        (Box(0, 1, ["left", "both"]), "Box([0, 0], [1, 1], closed=['left', 'both'])"),
        (Orthant([1, -1], closed=False), "Orthant([1, -1], 0, closed=False)"),
        (Shell(0, 1), "Shell(0, 1, inf)"),
        (Simplex(), "Simplex(1)"),
        (Polytope([[1, 2]], 3), "Polytope([[1, 2]], [3])"),
        ((Box(0, 1) | Box(2, 3)) & Box(0, 9), "(Box(0, 1) | Box(2, 3)) & Box(0, 9)"),
        (Box(0, 1) & Box(2, 3) | Box(0, 9), "Box(0, 1) & Box(2, 3) | Box(0, 9)"),
        (~(Box(0, 1) | Box(2, 3)), "~(Box(0, 1) | Box(2, 3))"),
        (ByGroup({3: Box(0, 1)}, "site"), "ByGroup({3: Box(0, 1)}, group='site')"),
    ],
)  # fmt: skip
def test_repr_is_the_code_that_makes_the_region(region, text):
    assert repr(region) == text
    assert eval(text, vars(regions) | {"inf": inf}) == region


def test_repr_of_functions_and_large_arrays():
    assert repr(Predicate(lambda y: y > 0, name="bright")) == "Predicate(bright)"
    assert repr(Predicate(lambda y: y > 0)) == "Predicate(<lambda>)"
    assert repr(Polytope(np.ones((20, 5)), 1)) == (
        f"Polytope(<array of shape (20, 5)>, [{', '.join(['1'] * 20)}])"
    )


# Intervals and edges


def test_intervals_of_random_expressions_cover_what_a_grid_finds():
    rng = np.random.default_rng(5)
    grid = np.linspace(-8, 8, 20_001) + 1e-5  # off every end, which are round numbers or random
    for _ in range(60):
        region, expected = random_region(rng, 4, 0)
        pairs = intervals(region)
        covered = np.zeros(len(grid), bool)
        for low, high in pairs:
            covered |= (low < grid) & (grid < high)
        np.testing.assert_array_equal(covered, expected(grid), err_msg=repr(region))
        ends = np.array(pairs).ravel()
        assert (np.diff(ends) > 0).all(), "sorted, disjoint, not touching"


@pytest.mark.parametrize(
    ("region", "pairs"),
    [
        (Box(), [(-inf, inf)]),
        (~Box(), []),
        (Box(0, 1) & Box(2, 3), []),
        (Box(0, 1) | Box(1, 2, closed="neither"), [(0, 2)]),
        (Box(3, 3), []),
        (~Box(3, 3), [(-inf, inf)]),
        (Box(0.1, 0.3) & Box(lower=0.2), [(0.2, 0.3)]),
        (~(Box(0.1, 0.3) | Box(lower=0.7)), [(-inf, 0.1), (0.3, 0.7)]),
        (Ball(1, 2), [(-1, 3)]),
        (Shell(1, 2), [(-inf, -1), (3, inf)]),
        (Shell(0, 0, 1), [(-1, 1)]),
        (Simplex(3), [(0, 3)]),
        (Orthant(-1, 2), [(-inf, 2)]),
        (Box([0], [1]) | Ball([3], 1), [(0, 1), (2, 4)]),
        (Polytope([[2.0], [-1.0], [0.0]], [3.0, 1.0, 0.0]), [(-1, 1.5)]),
        (Box([0, 0], [1, 1]), None),
        (Ball([0, 0], 1), None),
        (Box(0, 1) & Predicate(np.isfinite), None),
        (~Predicate(np.isfinite) | Box(0, 1), None),
        (ByGroup([Box(0, 1)]), None),
    ],
)
def test_intervals(region, pairs):
    assert intervals(region) == pairs


@pytest.mark.usefixtures("unchecked")
def test_intervals_wants_a_region():
    with pytest.raises(ModelError, match="needs a region, got function"):
        intervals(lambda y: y > 0)


@pytest.mark.parametrize(
    ("region", "edges"),
    [
        (Box(0, None), [(None, 0)]),
        (Box(), []),
        (Box([0, None], [1, 2]), [(0, 0), (0, 1), (1, 2)]),
        (Box(3, 3), [(None, 3)]),
        (Orthant([1, -1], [5, 6]), [(0, 5), (1, 6)]),
        (Simplex(2), [(None, 0), (None, 2)]),
        (Ball([0, 0], 1), []),
        (Ball(0, 1), [(None, -1), (None, 1)]),
        (Shell(0, 1, 2), [(None, -2), (None, -1), (None, 1), (None, 2)]),
        (Polytope([[0, -2], [1, 1], [1, 0]], [4, 1, inf]), [(1, -2)]),
        (Box(0, 1) | ~Box(1, 3) & Predicate(np.isfinite), [(None, 0), (None, 1), (None, 3)]),
        (ByGroup([Box(0), Box(1)]), [(None, 0), (None, 1)]),
        (Predicate(np.isfinite), []),
    ],
)
def test_edges_are_the_finite_limits_along_the_axes(region, edges):
    assert region.edges() == edges


# Groups


WINDOWS = [Box(0, 1), ~Box(-1, 1), Box(lower=2) | Box(upper=-2)]


def test_windows_by_group():
    rng = np.random.default_rng(6)
    y, g = rng.normal(0, 2, 300), rng.integers(0, 3, 300)
    wanted = np.array([bool(WINDOWS[k](value)) for value, k in zip(y, g, strict=True)])
    listed, keyed = ByGroup(WINDOWS), ByGroup({10 * k: w for k, w in enumerate(WINDOWS)}, "site")
    with jax.enable_x64(True):
        points = jnp.asarray(y)
        np.testing.assert_array_equal(jax.vmap(listed)(points, jnp.asarray(g)), wanted)
        sites = {"site": jnp.asarray(10 * g), "other": points}
        np.testing.assert_array_equal(jax.jit(jax.vmap(keyed))(points, sites), wanted)
    assert [bool(listed(value, k)) for value, k in zip(y, g, strict=True)] == wanted.tolist()


def test_a_group_without_a_window_accepts_nothing():
    everything = ByGroup([Box(), Box()])
    groups = jnp.array([-3, -1, 0, 1, 2, 99])
    found = jax.vmap(everything, (None, 0))(0.0, groups)
    assert found.tolist() == [False, False, True, True, False, False]
    assert not everything(0.0, 2)
    assert not everything(0.0, 0.5)


def test_windows_of_groups_may_be_functions_of_covariates_and_combine():
    window = ByGroup([lambda y, c: y > c["low"], Box(0, 1)], lambda c: c["g"]) & Box(-5, 5)
    assert window(-3.0, {"g": 0, "low": -4.0})
    assert not window(-3.0, {"g": 1, "low": -4.0})
    assert not window(9.0, {"g": 0, "low": -4.0})


def test_a_fixed_window_ignores_covariates():
    assert Box(0, 1)(0.5, {"year": 3})
    assert (~Box(0, 1) | Ball(0, 1))(0.5, 3)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ByGroup([]), "at least one window"),
        (lambda: ByGroup(Box(0, 1)), "windows must be a list or a dict, got Box"),
        (lambda: ByGroup({0: Box(0, 1), "a": Box(0, 1)}), "all of them names, got the key 'a'"),
        (lambda: ByGroup([Box(0, 1)], group=3), "got int"),
        (lambda: ByGroup([3]), "a region or a function of one point, got int"),
        (lambda: ByGroup([Ball([0, 0], 1), Ball([0], 1)]), "different dimensions"),
        (lambda: ByGroup([Box(0, 1)])(0.5), "give covariates="),
        (lambda: ByGroup([Box(0, 1)])(0.5, {"site": 0}), "a dict with .'site'.: say which part"),
        (lambda: ByGroup([Box(0, 1)], "place")(0.5, {"site": 0}), "no part 'place'"),
        (lambda: ByGroup([Box(0, 1)])(0.5, np.array([0, 1])), r"one integer, got shape \(2,\)"),
    ],
)
def test_mistakes_with_groups(call, message):
    with pytest.raises(ModelError, match=message):
        call()


# Errors


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Box(float("nan"), 1), "lower has NaN"),
        (lambda: Box([0, 0], [1, float("nan")]), "upper has NaN"),
        (lambda: Box(2, 1), "lower exceeds upper: from 2 to 1"),
        (lambda: Box([0, 2, 0], [1, 1, 1]), "lower exceeds upper in coordinate 1: from 2 to 1"),
        (lambda: Box(1, 1, "left"), "is empty: from 1 to 1"),
        (lambda: Box(1, [2, 1], ["both", "neither"]), "is empty in coordinate 1"),
        (lambda: Box(inf), "nothing lies beyond infinity"),
        (lambda: Box(upper=-inf), "nothing lies beyond infinity"),
        (lambda: Box([0, 0], [1, 1, 1]), "lower 2 and upper 3 entries"),
        (lambda: Box([0, 0], [1, 1], ["both"] * 3), "closed 3 entries"),
        (lambda: Box([], []), "at least one coordinate"),
        (lambda: Box(np.zeros((2, 2))), r"a number or a vector, got an array of shape \(2, 2\)"),
        (lambda: Box("low", 1), "lower must be a number"),
        (lambda: Box(0, 1, "open"), "closed must be one of both, left, right, neither, got 'open'"),
        (lambda: Orthant([1, 0]), "signs are 1 or -1"),
        (lambda: Orthant(1, inf), "corner must be finite"),
        (lambda: Orthant([1, 1], [0, 0, 0]), "signs 2 and corner 3"),
        (lambda: Simplex(0), "total must be positive"),
        (lambda: Ball([0, 0], 0), "radius must be positive and finite, got 0"),
        (lambda: Ball([0, 0], [1, 1]), r"radius must be a number, got an array of shape \(2,\)"),
        (lambda: Ball([0, inf], 1), "centre must be finite"),
        (lambda: Shell(0, 2, 1), "0 <= inner < outer, got inner 2 and outer 1"),
        (lambda: Shell(0, -1, 1), "0 <= inner < outer"),
        (lambda: Polytope([1, 2], [1]), r"A must be a matrix .* got shape \(2,\)"),
        (lambda: Polytope([[1, 2]], [1, 2]), "A has 1 rows, so b needs 1 entries"),
        (lambda: Polytope([[1, inf]], [1]), "A must be finite"),
        (lambda: Polytope([[1.0], [-1.0]], [0, -1]), "no point satisfies A x <= b"),
        (lambda: Polytope.from_vertices([[0, 0], [1, 1], [2, 2]]), "no volume in 2 dimensions"),
        (lambda: Polytope.from_vertices([[0, 0]]), "no volume in 2 dimensions"),
        (lambda: Polytope.from_vertices([0, 1]), "points must be a matrix"),
        (lambda: Predicate(3), "got int"),
        (lambda: Complement("x"), "got str"),
        (lambda: Union([]), "at least one region"),
        (lambda: Box([0, 0], 1) & Ball([0, 0, 0], 1), r"shape \(2,\), Ball\(.*\) for \(3,\)"),
        (lambda: Box([0, 0], 1)(0.5), r"points of shape \(2,\), got a point of shape \(\)"),
        (lambda: Box([0, 0], 1)(np.zeros(3)), r"shape \(2,\), got a point of shape \(3,\)"),
        (lambda: Box([0, 0], 1)(np.zeros((7, 2))), r"shape \(7, 2\); for many .* jax.vmap"),
        (lambda: Box(0, 1)({"a": 1.0}), r"the point is a dict with \['a'\]"),
        (lambda: Box(0, 1)((1.0, np.zeros(2))), "is about numbers or vectors"),
        (lambda: Predicate(lambda y: y > 0)(np.zeros(2)), r"shape \(2,\) for one point"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call, message):
    with pytest.raises(ModelError, match=message):
        call()


# In a model


def test_truncated_takes_a_region():
    window = Box([0, 0], [1, None]) & ~Ball([0, 0], 0.5)
    model = offcut.truncated(
        prior={"loc": dist.Normal(0, 1)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0).expand([2]).to_event(1),
        inside=window,
    )
    accepted, rejected = offcut.augment(0, model, {"loc": 0.3}, n=50)
    assert members(window, accepted).all()
    assert not members(window, rejected).any()


def test_a_region_of_the_wrong_dimension_is_refused_with_both_shapes():
    model = offcut.truncated(
        prior={"loc": dist.Normal(0, 1)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        inside=Ball([0, 0], 1),
    )
    with pytest.raises(ModelError, match=r"points of shape \(2,\), got a point of shape \(\)"):
        offcut.sample(model, np.array([0.1, 0.2]), progress=False)


# Pictures


def spans(ax):
    return [
        (patch.get_x(), patch.get_x() + patch.get_width())
        for patch in ax.patches
        if isinstance(patch, mpl.patches.Rectangle)
    ]


def test_intervals_are_bands_with_lines_at_their_ends():
    ax = (Box(upper=-0.5) | Box(0.5, 1.5)).draw(label="seen")
    left, right = spans(ax)
    low, high = ax.get_xlim()
    assert left[0] <= low < -0.5 < 1.5 < high
    assert left[1] == -0.5
    assert right == (0.5, 1.5)
    assert [line.get_xdata()[0] for line in ax.get_lines()] == [-0.5, 0.5, 1.5]
    assert ax.get_legend_handles_labels()[1] == ["seen"]
    assert not len(ax.get_yticks())


def test_a_predicate_of_numbers_is_drawn_from_a_grid():
    ax = Predicate(lambda y: jnp.abs(y - 1) < 0.5).draw(dimension=1, xlim=(0, 4))
    np.testing.assert_allclose(spans(ax), [(0.5, 1.5)], atol=1e-3)
    assert ax.get_xlim() == (0, 4)


@pytest.mark.parametrize(
    ("region", "patch"),
    [
        (Box([0, 0], [1, None]), "Rectangle"),
        (Orthant([1, -1]), "Rectangle"),
        (Ball([0, 0], 1), "Circle"),
        (Shell([0, 0], 1, 2), "Annulus"),
        (Polytope(A, b), "Polygon"),
        (Polytope([[-1, 1]], [0]), "Polygon"),
        (Polytope.from_vertices([[0, 0], [1, 0], [0, 1]]), "Polygon"),
    ],
)
def test_shapes_of_the_plane_are_patches_that_hold_what_they_hold(region, patch):
    ax = region.draw(color="red", label="window")
    (drawn,) = ax.patches
    assert type(drawn).__name__ == patch
    assert drawn.get_label() == "window"
    assert mpl.colors.same_color(drawn.get_edgecolor(), "red")
    assert_shows(ax, region)


def test_a_simplex_is_drawn_as_asked():
    assert spans(Simplex(2).draw()) == [(0, 2)]
    triangle = Simplex(2).draw(dimension=2)
    assert type(triangle.patches[0]).__name__ == "Polygon"
    assert Simplex(2).draw(ylim=(0, 1)).get_ylim() == (0, 1)


@pytest.mark.parametrize(
    "region",
    [
        Box([0, 0], [1, None]) & ~Ball([0, 0], 1),
        Ball([0, 0], 1) | Ball([1.5, 0], 1),
        ~Polytope(A, b),
        Shell([0, 0], 1),
        Predicate(lambda y: y[0] * y[1] > 0.1) & Box([-1, -1], [1, 1]),
    ],
)
def test_other_regions_of_the_plane_are_filled_contours(region):
    ax = region.draw()
    assert not ax.patches
    _, outline = ax.collections
    assert outline.get_paths()
    assert_shows(ax, region)


def assert_shows(ax, region):
    """Pixels have colour where the region has points, at random places off the outline."""
    rng = np.random.default_rng(7)
    ax.figure.canvas.draw()
    image = np.asarray(ax.figure.canvas.buffer_rgba()).astype(int)[::-1]
    points = np.stack([rng.uniform(*ax.get_xlim(), 900), rng.uniform(*ax.get_ylim(), 900)], axis=1)
    columns, rows = ax.transData.transform(points).astype(int).T
    plain = np.array([np.ptp(image[r - 3 : r + 4, c - 3 : c + 4], axis=(0, 1)).max() == 0
                      for r, c in zip(rows, columns, strict=True)])  # fmt: skip
    assert plain.mean() > 0.7
    filled = (image[rows, columns] < 250).any(axis=1)
    inside = members(region, points)
    assert 0.05 < inside[plain].mean() < 0.95
    np.testing.assert_array_equal(filled[plain], inside[plain])


def test_all_or_nothing_has_no_outline():
    whole = (Box([-9, -9], [9, 9]) | Ball([0, 0], 9)).draw(xlim=(0, 1), ylim=(0, 1), label="all")
    assert len(whole.patches) == 2
    assert whole.get_legend_handles_labels()[1] == ["all"]
    none = (Box([0, 0], [1, 1]) & Box([2, 2], [3, 3])).draw()
    assert not none.patches
    assert not none.collections


def test_limits_of_axes_in_use_stay():
    _, ax = plt.subplots()
    ax.plot([0, 10], [0, 5])
    limits = ax.get_xlim(), ax.get_ylim()
    for region in (Ball([3, 3], 30), Ball([3, 3], 1) | Box([5, 0], [None, 9])):
        assert region.draw(ax) is ax
        assert (ax.get_xlim(), ax.get_ylim()) == limits
    assert Box(0, None).draw(ax, dimension=1).get_xlim() == limits[0]
    ax.plot([20], [20])
    assert ax.get_xlim()[1] > 20
    ax.invert_yaxis()
    assert (Ball([3, 3], 1) | Box([5, 0], [None, 9])).draw(ax).get_ylim()[0] > 20


def test_what_cannot_be_drawn_says_what_to_do():
    ball = Ball([0, 0, 0], 1)
    with pytest.raises(ModelError, match="3 dimensions cannot be drawn; draw a slice"):
        ball.draw()
    piece = Predicate(lambda y: ball([y[0], y[1], 0.6]))
    ax = piece.draw(dimension=2, xlim=(-1, 1), ylim=(-1, 1))
    outline = ax.collections[1].get_paths()[0].vertices
    np.testing.assert_allclose(np.abs(outline).max(), 0.8, atol=0.01)
    with pytest.raises(SettingsError, match="say dimension=1 or 2"):
        Predicate(np.isfinite).draw()
    with pytest.raises(SettingsError, match=r"dimension=1, but the region has 2"):
        Ball([0, 0], 1).draw(dimension=1)
    with pytest.raises(SettingsError, match=r"no finite limits to show; give xlim=\(low, high\)$"):
        Box().draw()
    with pytest.raises(SettingsError, match="and ylim="):
        Predicate(lambda y: y[0] > 0).draw(dimension=2)
    with pytest.raises(SettingsError, match="finite and different"):
        Box(0, 1).draw(xlim=(1, 1))
    with pytest.raises(ModelError, match=r"region.windows\[3\].draw\(\)"):
        ByGroup({3: Box(0, 1)}).draw()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"offcut\[plots\]"):
        Box(0, 1).draw()


def test_regions_are_part_of_the_package():
    assert offcut.regions is regions
    assert "regions" in dir(offcut)
