"""Every draw of a Gaussian process density integrates to one, for every base, support and sampler.

What all samplers share is Z given f and the base; draws of the prior stand for those of a run, so
that no sampler needs to be compiled for each of the models here. The integrals are not Offcut's:
Gauss-Legendre panels between all places where the density may jump, beyond them with an algebraic
substitution.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from benchmarks.birth_death import LocalDensity
from numpyro.distributions.transforms import AffineTransform

import offcut
from offcut.errors import DataError, ModelError, StartError
from offcut.gp.base_density import FamilyBase, NormalBase
from offcut.gp.basis import Grid
from offcut.gp.sampler import GPSampler
from offcut.numerics.normal import size as number_of_features
from offcut.programs.precision import in_float64
from offcut.regions import Box
from statistical.truth import panels, quiet

DRAWS = 3
X = np.array([0.2, 0.5, 0.7, 0.9, 1.0, 1.1, 1.4, 2.2])
PLANE = np.stack([X, X[::-1] + 0.3 * X], axis=1)
LOC = {"loc": dist.Normal(0.5, 1.0)}
PLAIN = {"length_scale": 1.0, "variance": 4.0}


def bell(theta):
    return dist.Normal(theta["loc"], 1.0)


def heavy(theta):
    return dist.StudentT(3.0, theta["loc"], 1.0)


def gamma(theta):
    return dist.Gamma(2.5, jnp.exp(theta["loc"]))


def beta(theta):
    return dist.TransformedDistribution(
        dist.Beta(2.0, 3.0 + theta["loc"] ** 2), AffineTransform(-1.0, 5.0)
    )


def to_an_end(theta):
    return dist.Uniform(0.0, 2.2 + jnp.exp(theta["loc"]))


def from_a_start(theta):
    return dist.TransformedDistribution(
        dist.Exponential(1.0), AffineTransform(0.2 - jnp.exp(theta["loc"]), 1.0)
    )


def both_moving(theta):
    return dist.TruncatedNormal(
        theta["loc"], 1.0, low=0.2 - jnp.exp(theta["loc"]), high=2.2 + jnp.exp(-theta["loc"])
    )


def plane_normal(theta):
    return dist.MultivariateNormal(theta["loc"] + jnp.zeros(2), jnp.array([[1.0, 0.5], [0.5, 2.0]]))


def plane_uniform(theta):
    return dist.Uniform(jnp.zeros(2), 4.0 + jnp.exp(theta["loc"]) * jnp.ones(2)).to_event(1)


FAMILIES = (bell, heavy, gamma, beta, to_an_end, from_a_start, both_moving)
CASES = {
    **{
        f"{base} {support}": (base, support, X)
        for base in ("normal", "uniform", Box(-1, 5))
        for support in (None, (0.1, None), (None, 2.5), (0.0, 2.5), (-50.0, 90.0))
        if not (base == "uniform" and (support is None or None in support))
    },
    **{
        f"{base.__name__} {support}": (base, support, X)
        for base in FAMILIES
        for support in (None, (0.1, None), (0.0, 2.5))
    },
    "bell, left": (bell, (None, 2.5), X),
    "heavy, far": (heavy, (-3.0, 90.0), X),
    "plane": ("normal", None, PLANE),
    "plane, a side": ("normal", ([0.1, -np.inf], np.inf), PLANE),
    "plane, a quadrant": ("normal", (0.1, np.inf), PLANE),
    "plane, bounded": ("normal", (0.1, 4.0), PLANE),
    "plane, uniform": (Box([-1, -1], [4, 5]), (0.1, np.inf), PLANE),
    "plane, family": (plane_normal, None, PLANE),
    "plane, family on a side": (plane_normal, ([-np.inf, 0.2], np.inf), PLANE),
    "plane, moving": (plane_uniform, (None, 4.5), PLANE),
}
#: In short; what the others add is for the longer test.
SHORT = (
    "bell (0.1, None)", "Box(-1, 5) (0.1, None)", "gamma (0.1, None)", "to_an_end None",
    "from_a_start (0.1, None)", "plane, a quadrant",
)  # fmt: skip
TOLERANCE = {1: 1e-6, 2: 2e-4}


def model_of(base, support, kind=offcut.GPDensity, **more):
    prior = LOC if callable(base) else None
    return kind(base, support=support, prior=prior, **PLAIN, **more)


@in_float64
def some_draws(model, x, supported=None):
    """A posterior with draws of the prior in it, Z as the samplers compute it."""
    prepared = model._prepared_from(x.reshape(len(x), -1), x.ndim == 1)
    plan, data = prepared.plan, jax.tree.map(jnp.asarray, prepared.data)
    if supported is not None:
        plan = plan._replace(supported=supported)
    sampler = GPSampler(plan)

    def one(key):
        k = jax.random.split(key)
        p = jnp.zeros(0)
        if isinstance(plan.base, FamilyBase):
            p = plan.base.prior.unconstrain(plan.base.prior.sample(k[0]))
        elif isinstance(plan.base, NormalBase):
            nothing = jnp.zeros(number_of_features(plan.base.d))
            p = plan.base.update(k[0], nothing, data)
        if isinstance(plan.basis, Grid):  # something smooth
            waves = jax.random.normal(k[1], (plan.basis.d, 1))
            w = 2 * jnp.sum(jnp.sin(3 * data.grid + 3 * waves), axis=0)
        else:
            w = sampler.root_spectrum(jnp.zeros(0), data) * jax.random.normal(
                k[1], (plan.basis.number,)
            )
        log_Z = jnp.log(sampler.normaliser(sampler.at_nodes(w, data, p), p, data))
        limits = plan.base.limits(p, data) if plan.moving else data.support
        return w, plan.base.record(p, data.centre, data.half), log_Z, limits

    run = jax.jit(lambda keys: jax.lax.map(one, keys))
    w, base, log_Z, limits = run(jax.random.split(jax.random.key(0), DRAWS))
    variables = {"weights": w, **base}
    groups = {
        "posterior": variables,
        "sample_stats": {"log_normaliser": log_Z},
    }
    tree = xr.DataTree.from_dict(
        {
            name: xr.Dataset(
                {
                    key: (("chain", "draw", *(f"{key}_{a}" for a in range(v.ndim - 1))), v[None])
                    for key, v in {k: np.asarray(v) for k, v in group.items()}.items()
                }
            )
            for name, group in groups.items()
        }
    )
    rows = tuple(f"d{a}" for a in range(x.ndim))
    tree["observed_data"] = xr.DataTree(xr.Dataset({"x": (rows, x)}))
    edges = [prepared.box.centre + prepared.box.half * np.asarray(edge) for edge in limits]
    return tree, prepared, edges


def line(breaks, low, high, nodes):
    """Nodes and weights from ``low`` to ``high``, breaks between them."""
    inner = np.unique([b for b in breaks if low < b < high and np.isfinite(b)])
    ends = [low, *inner, high]
    parts = []
    for a, b in itertools.pairwise(ends):
        if np.isfinite(a) and np.isfinite(b):
            parts.append(panels(a, b, nodes, order=20))
        else:
            s, v = panels(0, 1, nodes, order=20)
            to, v = s / (1 - s), v / (1 - s) ** 2
            parts.append((a + to, v) if np.isfinite(a) else (b - to, v))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def integrals(model, x, supported=None):
    """Of each draw."""
    tree, prepared, edges = some_draws(model, x, supported)
    d = prepared.plan.basis.d
    support = (np.full(d, -np.inf), np.full(d, np.inf))
    if model.support is not None:
        sides = [np.inf if s is None else s for s in model.support]
        sides[0] = -np.inf if model.support[0] is None else sides[0]
        support = tuple(np.broadcast_to(np.asarray(side, float), (d,)) for side in sides)
    found = []
    for row in range(DRAWS):
        axes, parts = [], []
        for a in range(d):
            breaks = [prepared.box.lower[a], prepared.box.upper[a], 0.0, -1.0, 4.0, 5.0]
            breaks += [np.broadcast_to(edge, (DRAWS, d))[row, a] for edge in edges]
            one, part = line(breaks, support[0][a], support[1][a], 400 if d == 1 else 40)
            axes.append(one)
            parts.append(part)
        points = np.stack([p.ravel() for p in np.meshgrid(*axes, indexing="ij")], axis=1)
        weight = parts[0] if d == 1 else np.outer(*parts).ravel()
        values = model.density(tree.isel(draw=[row]), points, draws=True)
        found.append(float(values[0, 0] @ weight))
    return np.array(found)


def assert_normalised(name, basis):
    base, support, x = CASES[name]
    if basis is not None and x.ndim == 2:
        basis = (5, 4)
    with jax.numpy_rank_promotion("allow"):  # NumPyro's own families of vectors broadcast
        found = integrals(model_of(base, support, basis=basis), x)
    np.testing.assert_allclose(found, 1.0, atol=TOLERANCE[x.ndim])


@pytest.mark.parametrize("name", SHORT)
def test_every_draw_integrates_to_one(name):
    assert_normalised(name, 6)


@pytest.mark.parametrize("name", ["uniform (0.0, 2.5)", "normal (0.1, None)"])
def test_every_draw_of_the_exact_process_does_too(name):
    assert_normalised(name, None)


@pytest.mark.calibrate
@pytest.mark.parametrize("basis", [6, None])
@pytest.mark.parametrize("name", CASES)
def test_every_draw_of_every_base_and_support_integrates_to_one(name, basis):
    assert_normalised(name, basis)


def test_taking_all_of_the_base_for_supported_is_caught():
    """The error that was: P0(support) = 1 where the support cuts the base."""
    found = integrals(model_of(bell, (0.1, None), basis=6), X, supported="all")
    assert np.abs(found - 1).max() > 0.05


@pytest.mark.usefixtures("float64")
def test_limits_follow_the_parameters():
    """An end of the base's support that depends on theta is nowhere frozen."""
    model = model_of(to_an_end, None, basis=6)
    tree, prepared, _ = some_draws(model, X)
    assert prepared.plan.moving
    ends = 2.2 + np.exp(tree["posterior"]["loc"].values[0])
    places = np.concatenate([0.999 * ends, 1.001 * ends])
    positive = model.density(tree, places, draws=True)[0] > 0
    np.testing.assert_array_equal(positive, places < ends[:, None])
    assert np.all(model.density(tree, X, draws=True) > 0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("family", [gamma, to_an_end, from_a_start])
def test_the_support_is_kept_to_without_validation(family):
    """``numpyro.enable_validation(False)``, ``validate_args=False``, ``python -O``."""
    outside, inside = jnp.array([[-9.0, -5.0]]), jnp.array([[1.0, 2.0]])

    def values():
        model = model_of(family, None, basis=6)
        data = model._prepared_from(X[:, None], True).data
        base = model._prepared_from(X[:, None], True).plan.base
        data = jax.tree.map(jnp.asarray, data._replace(centre=np.zeros(1), half=np.ones(1)))
        return [
            np.asarray(jax.jit(base.log_density)(jnp.zeros(1), u, data)) for u in (outside, inside)
        ]

    with_validation = values()
    numpyro.enable_validation(False)
    try:
        without = values()
    finally:
        numpyro.enable_validation()
    assert np.all(np.isneginf(without[0]))
    assert np.all(np.isfinite(without[1]))
    np.testing.assert_array_equal(with_validation[1], without[1])


def test_a_box_and_a_support_are_both_kept_to():
    model = model_of(Box(-1, 5), (0, None), basis=6)
    prepared = model._prepared_from(X[:, None], True)
    np.testing.assert_allclose([edge[0] for edge in prepared.limits], [0.0, 5.0])
    with pytest.raises(DataError, match="outside the support"):
        model_of(Box(-1, 5), (1, None), basis=6)._prepared_from(X[:, None], True)
    with pytest.raises(ModelError, match="nothing in common"):
        model_of(Box(-1, 5), (6, None), basis=6)._prepared_from(np.zeros((0, 1)) + 7, True)


def test_a_base_that_excludes_the_data_is_refused():
    model = offcut.GPDensity(
        lambda theta: dist.Uniform(0.0, theta["end"]),
        prior={"end": dist.Uniform(0.5, 2.0)},
        basis=4,
        **PLAIN,
    )
    with pytest.raises(StartError, match="make all of the observations possible"):
        offcut.sample(model, X, progress=False, draws=10, warmup=10, chains=1)


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("kernel", "more"),
    [
        (None, {}),
        (offcut.EllipticalSlice(), {}),
        (offcut.HMC(num_steps=4), {}),
        (None, {"method": "collapsed"}),
        (None, {"kind": LocalDensity, "moves": 20}),
        (None, {"basis": None}),
    ],
    ids=["gibbs", "slice", "hmc", "collapsed", "birth and death", "exact"],
)
@pytest.mark.parametrize(
    ("base", "support"),
    [(to_an_end, None), (bell, (0.1, None))],
    ids=["moving", "side"],
)
def test_draws_of_every_sampler_integrate_to_one(base, support, kernel, more):
    method = more.pop("method", "auto")
    model = model_of(base, support, **({"basis": 6} | more))
    run = {"draws": 30, "warmup": 30, "chains": 2, "progress": False}
    posterior = quiet(offcut.sample, model, X, method=method, kernel=kernel, **run)
    ends = np.exp(posterior["posterior"]["loc"].values) + 2.2
    for chain, row in ((0, 0), (1, 29)):
        one = posterior.isel(chain=[chain], draw=[row])
        low, high = (0.0, ends[chain, row]) if support is None else (0.1, np.inf)
        box = [float(posterior.attrs[name][0]) for name in ("box_lower", "box_upper")]
        places, weights = line(box, low, high, 400)
        total = model.density(one, places, draws=True)[0, 0] @ weights
        np.testing.assert_allclose(total, 1.0, atol=1e-6)
    if more.get("basis", 6) is None:
        assert 0 <= posterior.attrs["interpolation_error"] < 0.05
        assert "spline" in posterior.attrs["basis_note"]
