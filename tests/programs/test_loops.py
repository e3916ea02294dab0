"""Sums over n = 1, 2 and around a chunk; loops that count by one.

XLA (jaxlib 0.10.2) takes `i < 1; i += k` for a loop without a trip, so that the only observation
was ignored. Hence the sums below against plain ones, and a reading of every sampler's program.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.extend.core import ClosedJaxpr, Literal
from scipy import stats

import offcut
from offcut.augmentation.joint import log_joint, log_unnormalised, sum_statistics
from offcut.augmentation.rejections import Layout, empty_rejected
from offcut.gp import proposals as gp_points
from offcut.models.data import Observed, pad_rows
from offcut.regions import Box

pytestmark = pytest.mark.usefixtures("float64")

CHUNK = 128
COUNTS = [1, 2, CHUNK - 1, CHUNK, CHUNK + 1]
MOST = CHUNK + 1
THETA = {"loc": 0.3, "scale": 1.2}


@cache
def model(covariates):
    base = (lambda t, c: dist.Normal(t["loc"] + c, t["scale"])) if covariates else None
    base = base or (lambda t: dist.Normal(t["loc"], t["scale"]))
    prior = {"loc": dist.Normal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.3)}
    return offcut.truncated(prior, base, inside=lambda y, *c: y > 0)


def arrays(n, held, covariates):
    """Data and rejections as the engine has them, and each point less its covariate."""
    rng = np.random.default_rng(n)
    layout = Layout(2 * CHUNK, 64, CHUNK, covariates, 2)
    x, y, c = rng.exponential(size=n), -rng.exponential(size=held), rng.normal(size=n)
    owner = rng.integers(n, size=held).astype(np.int32)
    data = Observed(pad_rows(jnp.asarray(x), layout.rows), (), jnp.int32(n))
    rejected = empty_rejected(layout, jnp.zeros(()), layout.capacity(MOST))
    rejected = rejected._replace(points=rejected.points.at[:held].set(y), count=jnp.int32(held))
    if covariates:
        data = data._replace(covariates=(pad_rows(jnp.asarray(c), layout.rows),))
        rejected = rejected._replace(owner=rejected.owner.at[:held].set(owner))
        x, y = x - c, y - c[owner]
    return layout, data, rejected, x, y


def plain(points):
    """The sum of the log densities of a normal at THETA, and its gradient."""
    loc, scale = THETA["loc"], THETA["scale"]
    z = (points - loc) / scale
    gradient = {"loc": np.sum(z) / scale, "scale": np.sum(z**2 - 1) / scale}
    return np.sum(stats.norm.logpdf(points, loc, scale)), gradient


def assert_same(found, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, wanted)


@pytest.mark.parametrize("covariates", [False, True])
@pytest.mark.parametrize("n", COUNTS)
def test_sums_over_data_and_rejections_are_plain_sums(n, covariates):
    """Those of NUTS, HMC and RandomWalk; of exchange and pseudo-marginal; of Conjugate."""
    here, layout = model(covariates), arrays(n, 0, covariates)[0]

    @jax.jit  # the data are arguments, as in a sampler, and so is n
    def compiled(data, rejected):
        theta = jax.tree.map(jnp.asarray, THETA)
        joint = jax.value_and_grad(log_joint(here, layout))(theta, data, rejected)
        over_x = log_unnormalised(here, layout)(theta, data.points, data.covariates, data.n)
        return joint, over_x, sum_statistics(lambda x: (x, x**2), data, rejected, layout)

    for held in (0, 1, MOST):
        _, data, rejected, x, y = arrays(n, held, covariates)
        joint, over_x, sums = compiled(data, rejected)
        assert_same(joint, plain(np.append(x, y)))
        assert_same(over_x, plain(x)[0])
        if not covariates:
            points = np.append(x, y)
            assert_same(sums, (np.sum(points), np.sum(points**2)))


@pytest.mark.parametrize("n", COUNTS)
def test_sums_over_proposals_of_a_process_are_plain_sums(n):
    layout = gp_points.Layout(n, 64, CHUNK, 64)
    x = np.random.default_rng(n).normal(size=(1, n))
    held = gp_points.buffer_for(layout, jnp.asarray(x), jnp.int32(n), 10)

    def add(sums, chunk):
        return sums + jnp.sum(jnp.where(chunk.there, chunk.u[0], 0.0))

    # Both with |Y| as an argument and with an empty Y that the compiler knows of.
    with_count = jax.jit(lambda held: gp_points.in_chunks(layout, held, add, jnp.zeros(())))
    empty = jax.jit(lambda u: gp_points.in_chunks(layout, held._replace(u=u), add, jnp.zeros(())))
    np.testing.assert_allclose(with_count(held), x.sum(), rtol=1e-10)
    np.testing.assert_allclose(empty(held.u), x.sum(), rtol=1e-10)


# Every loop of every sampler, read from its program.


def inner(equation):
    for part in jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda p: isinstance(p, ClosedJaxpr)
    ):
        if isinstance(part, ClosedJaxpr):
            yield part.jaxpr
        elif hasattr(part, "eqns"):
            yield part


def strides(jaxpr):
    """By how much the compared counters of all loops grow, where that is a constant."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "while":
            condition = equation.params["cond_jaxpr"].jaxpr
            body = equation.params["body_jaxpr"].jaxpr
            skip, free = equation.params["cond_nconsts"], equation.params["body_nconsts"]
            compared = {
                v
                for e in condition.eqns
                if e.primitive.name in ("lt", "le", "gt", "ge", "ne")
                for v in e.invars
                if not isinstance(v, Literal)
            }
            places = [i for i, v in enumerate(condition.invars[skip:]) if v in compared]
            for place in places:
                counter, result = body.invars[free + place], body.outvars[place]
                for e in body.eqns:
                    if result in e.outvars and e.primitive.name == "add" and counter in e.invars:
                        step = next(v for v in e.invars if v is not counter)
                        if isinstance(step, Literal):
                            yield int(step.val)
        for part in inner(equation):
            yield from strides(part)


class ReadError(Exception):
    """The program has been read; there is no need to run it."""


@pytest.fixture
def read_program(monkeypatch):
    """``read(model, data, ...)``: strides of the loops of the sampler that would be run."""
    found = []

    def note(self, *arguments):
        found.extend(strides(jax.make_jaxpr(self.function)(*arguments).jaxpr))
        raise ReadError

    monkeypatch.setattr("offcut.driver.chain.CompiledBlock.__call__", note)

    def read(*arguments, **options):
        found.clear()
        with pytest.raises(ReadError):
            offcut.sample(*arguments, chains=1, draws=10, warmup=10, progress=False, **options)
        return list(found)

    return read


def test_a_loop_that_counts_by_chunks_is_seen():
    def loop(x):
        return jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 128, c[1] + x), (0, 0.0))

    assert list(strides(jax.make_jaxpr(jax.jit(loop))(1.0).jaxpr)) == [128]


def seen_mean(prior):
    return offcut.truncated(prior, lambda t: dist.Normal(t["loc"], 1.0), inside=Box(0, np.inf))


ROUTES = {
    "NUTS": {"kernel": offcut.NUTS()},
    "HMC": {"kernel": offcut.HMC()},
    "RandomWalk": {"kernel": offcut.RandomWalk()},
    "exchange": {"method": "exchange"},
    "pseudo-marginal": {"method": offcut.PseudoMarginal(acceptances=5)},
    "Conjugate": {"kernel": offcut.Conjugate()},
    "direct": {"method": "direct"},
}
ONE_MODEL = seen_mean({"loc": dist.Normal(0.0, 0.5)})


@pytest.mark.parametrize("name", ROUTES)
def test_every_sampler_counts_its_trips_by_one(read_program, name):
    found = read_program(ONE_MODEL, np.array([2.0]), **ROUTES[name], seed=1)
    assert found
    assert set(found) == {1}


FRAME = np.linalg.qr(np.random.default_rng(1).normal(size=(1, 3, 2)))[0]
READY_MADE = {
    "mixture": (lambda: offcut.TruncatedMixture(Box([0.0], [np.inf])), np.array([[0.4], [1.0]])),
    "mixture in its window": (
        lambda: offcut.TruncatedMixture(Box([0.0], [np.inf]), weights="window"),
        np.array([[0.4], [1.0]]),
    ),
    "matrix Langevin": (lambda: offcut.MatrixLangevinModel(dist.Exponential(0.1)), FRAME),
    "density": (lambda: offcut.GPDensity("uniform", support=(0, 1)), np.array([0.4])),
    "intensity": (lambda: offcut.GPIntensity((0, 1), rate=(3.0, 0.1)), np.array([0.4])),
}


@pytest.mark.parametrize(
    "name",
    [
        n if n == "matrix Langevin" else pytest.param(n, marks=pytest.mark.calibrate)
        for n in READY_MADE
    ],
)
def test_every_ready_made_model_counts_its_trips_by_one(read_program, name):
    make, data = READY_MADE[name]
    found = read_program(make(), data, seed=1)
    assert found
    assert set(found) == {1}
