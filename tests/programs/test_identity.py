"""Identity: models that differ in one setting are different, equal ones made anew are the same.

The same digest stands in checkpoints and finds compiled programs, so a setting that it misses would
resume another model's run, or run with another model's program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from benchmarks.birth_death import LocalDensity

import offcut
from offcut.errors import CheckpointError
from offcut.mixtures.data import MixtureLayout
from offcut.programs import identity
from offcut.programs.cache import CACHE, Kept, Programs, kept_sampler
from offcut.regions import Ball, Box, ByGroup, Orthant, Polytope, Predicate
from offcut.samplers.choice import observe, prepare
from offcut.sampling import _model_digest

ONE = np.linspace(0.1, 0.9, 12)
TWO = np.stack([np.linspace(0.1, 0.9, 12), np.linspace(0.8, 0.2, 12) ** 2], axis=1)
LIMIT = [0.95]  # a global that functions of the models look at
TABLE = np.linspace(0.5, 1.5, 3000)  # longer than NumPy writes out


def identities(
    model: Any, data: np.ndarray, covariates: Any = None, kernel: Any = None
) -> tuple[str, str]:
    """What a checkpoint holds, and what compiled programs are kept under."""
    with jax.enable_x64(True):
        sampler, _, _ = prepare(model, data, covariates, kernel)
        return _model_digest(model, sampler), sampler.identity


def check_all_differ(
    variants: dict[str, Callable[[], Any]], identify: Callable[[Any], str]
) -> None:
    """All have identities of their own, and have them again when they are made anew."""
    found = {name: identify(make()) for name, make in variants.items()}
    told = list(found.values())
    assert not [name for name, digest in found.items() if told.count(digest) > 1]
    assert {name: identify(make()) for name, make in variants.items()} == found


# Rejection models: every argument of every function that makes one.


def normal(prior_scale=1.0, base_scale=1.0, window=lambda x: x > 0, **options):
    return offcut.truncated(
        {"loc": dist.Normal(0.0, prior_scale)},
        lambda theta: dist.Normal(theta["loc"], base_scale),
        window,
        **options,
    )


def two_parameters(shift=1.0, names="other"):
    return offcut.truncated(
        {"loc": dist.Normal(0, 1), "other": dist.Normal(0, 1)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda x: x > 0,
        exact_updates={names: lambda key, theta, x: {"other": shift + theta["loc"] + jnp.mean(x)}},
    )


def selected(slope=1.0, log_reject=None):
    return offcut.selected(
        {"loc": dist.Normal(0, 1)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda theta, y: -slope * y**2,
        log_reject=log_reject,
    )


def from_table(table):
    def log_accept(theta, y):
        return -jnp.asarray(table)[jnp.clip(y.astype(int), 0, 2999)] * y**2

    return offcut.selected(
        {"loc": dist.Normal(0, 1)}, lambda theta: dist.Normal(theta["loc"], 1.0), log_accept
    )


def with_inner(kind, number):
    """The constant sits in a program inside the program."""

    def shifted(y):
        return y - number

    if kind == "jit":
        inner = jax.jit(shifted)
    elif kind == "scan":

        def inner(y):
            return jax.lax.scan(lambda c, _: (c - number, None), y, None, length=2)[0]
    elif kind == "cond":

        def inner(y):
            return jax.lax.cond(y > 0, shifted, lambda y: y, y)
    elif kind == "custom_jvp":
        inner = jax.custom_jvp(shifted)
        inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))
    else:  # the derivative alone

        @jax.custom_jvp
        def inner(y):
            return y

        inner.defjvp(lambda primals, tangents: (inner(*primals), number * tangents[0]))
    return offcut.selected(
        {"loc": dist.Normal(0, 1)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda theta, y: -(inner(y) ** 2),
    )


def by_model_function(scale):
    def prior():
        loc = numpyro.sample("loc", dist.Normal(0, 1))
        numpyro.sample("other", dist.Normal(loc, scale))

    return offcut.truncated(
        prior, lambda theta: dist.Normal(theta["loc"], jnp.exp(theta["other"])), lambda x: x > 0
    )


def numpy_table(index, value):
    table = TABLE.copy()
    table[index] = value
    return table


REJECTION: dict[str, Callable[[], Any]] = {
    "as it is": normal,
    "prior": lambda: normal(prior_scale=1 + 1e-12),
    "prior's family": lambda: offcut.truncated(
        {"loc": dist.StudentT(5.0, 0.0, 1.0)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda x: x > 0,
    ),
    "prior depends": lambda: by_model_function(1.0),
    "prior depends otherwise": lambda: by_model_function(1.5),
    "base": lambda: normal(base_scale=1 + 1e-12),
    "base's family": lambda: offcut.truncated(
        {"loc": dist.Normal(0, 1)}, lambda theta: dist.Laplace(theta["loc"], 1.0), lambda x: x > 0
    ),
    "window": lambda: normal(window=lambda x: x > 1e-12),
    "window a box": lambda: normal(window=Box(0)),
    "window another box": lambda: normal(window=Box(0, 1)),
    "window a box and a function": lambda: normal(window=Box(0, 1) & (lambda x: x < 0.95)),
    "window a box and another": lambda: normal(window=Box(0, 1) & (lambda x: x < 0.96)),
    "window a union": lambda: normal(window=Box(0, 0.5) | Box(0.5, 1)),
    "clamped": lambda: normal(censored=offcut.Clamped(upper=0.9)),
    "clamped elsewhere": lambda: normal(censored=offcut.Clamped(upper=0.95)),
    "a zone": lambda: normal(censored=lambda x: x > 0.9),
    "another zone": lambda: normal(censored=lambda x: x > 0.91),
    "two zones": lambda: normal(censored=[lambda x: x > 0.91, lambda x: x < 0.05]),
    "noise": lambda: normal(noise=lambda theta, true: dist.Normal(true, 0.1)),
    "other noise": lambda: normal(noise=lambda theta, true: dist.Normal(true, 0.11)),
    "an exact update": two_parameters,
    "another exact update": lambda: two_parameters(1.5),
    "selected": selected,
    "selected otherwise": lambda: selected(1.1),
    "selected, log_reject": lambda: selected(log_reject=lambda theta, y: jnp.log1p(-0.5 * y)),
    "selected, other log_reject": lambda: selected(log_reject=lambda theta, y: jnp.log1p(-0.6 * y)),
    "a table": lambda: from_table(TABLE),
    "a table that differs in its middle": lambda: from_table(numpy_table(1500, 1.0)),
    **{
        f"{kind} {number}": lambda kind=kind, number=number: with_inner(kind, number)
        for kind in ("jit", "scan", "cond", "custom_jvp", "derivative")
        for number in (0.5, 0.75)
    },
}


def test_rejection_models_that_differ_in_one_setting_have_identities_of_their_own():
    def identify(model: Any) -> str:
        with jax.enable_x64(True):
            arrays, _, _ = observe(model, ONE, None)
            return model.identify((), arrays.points)

    check_all_differ(REJECTION, identify)


def test_a_checkpoint_and_the_programs_of_a_rejection_model_go_by_its_identity():
    model = normal()
    told = identities(model, ONE, kernel=offcut.RandomWalk(0.3))
    assert told[0] == told[1] == model.programs.identity


# Mixtures.


def polytope(moved=None):
    """A window with so many sides that NumPy does not write them out."""
    angles = np.linspace(0, 2 * np.pi, 800, endpoint=False)
    offsets = np.full(800, 3.0)
    if moved is not None:
        offsets[moved] = 2.5
    return Polytope(np.stack([np.cos(angles), np.sin(angles)], axis=1), offsets)


def mixture(region=None, components=4, alpha=1.0, base=None, **options):
    return offcut.TruncatedMixture(region, components, alpha, base, **options)


SHIFT = offcut.NormalInverseWishart([0.5, 0.5], 1.0, 6.0, np.eye(2))
MIXTURES: dict[str, Callable[[], Any]] = {
    "as it is": mixture,
    "components": lambda: mixture(components=5),
    "weights": lambda: mixture(weights="window"),
    "alpha": lambda: mixture(alpha=1.5),
    "alpha's prior": lambda: mixture(alpha=dist.Gamma(2, 2)),
    "alpha's other prior": lambda: mixture(alpha=dist.Gamma(2, 3)),
    "alpha truncated": lambda: mixture(alpha=dist.TruncatedNormal(1.0, 0.1, low=0.0)),
    "alpha truncated elsewhere": lambda: mixture(alpha=dist.TruncatedNormal(50.0, 0.1, low=0.0)),
    "alpha truncated with a width": lambda: mixture(alpha=dist.TruncatedNormal(50.0, 0.2, low=0.0)),
    "alpha transformed": lambda: mixture(
        alpha=dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.ExpTransform())
    ),
    "alpha transformed otherwise": lambda: mixture(
        alpha=dist.TransformedDistribution(dist.Normal(0.1, 1), dist.transforms.ExpTransform())
    ),
    "base": lambda: mixture(base=SHIFT),
    "base's mean": lambda: mixture(
        base=offcut.NormalInverseWishart([0.5, 0.5 + 1e-12], 1.0, 6.0, np.eye(2))
    ),
    "split_merge": lambda: mixture(split_merge=1),
    "reshape": lambda: mixture(reshape=False),
    "orthant": lambda: mixture(Orthant([1, 1])),
    "box": lambda: mixture(Box([0, 0], [1, 1])),
    "another box": lambda: mixture(Box([0, 0], [1, 1.5])),
    "a function": lambda: mixture(lambda y: y[0] > 0),
    "another function": lambda: mixture(lambda y: y[0] > 1e-9),
    "a predicate": lambda: mixture(Predicate(lambda y: y[1] > 0, name="same")),
    "another predicate": lambda: mixture(Predicate(lambda y: y[1] > 1e-9, name="same")),
    "a box and a function": lambda: mixture(Box([0, 0]) & (lambda y: y[0] < 1)),
    "a box and another": lambda: mixture(Box([0, 0]) & (lambda y: y[0] < 2)),
    "not a ball": lambda: mixture(~Ball([3, 3], 1)),
    "not a larger ball": lambda: mixture(~Ball([3, 3], 1.5)),
    "a large polytope": lambda: mixture(polytope()),
    "a large polytope, one side moved": lambda: mixture(polytope(400)),
    "log_accept": lambda: mixture(log_accept=lambda y: -0.1 * y[0] ** 2),
    "other log_accept": lambda: mixture(log_accept=lambda y: -0.2 * y[0] ** 2),
}
IN_GROUPS: dict[str, Callable[[], Any]] = {
    "groups": lambda: mixture(hierarchical=True),
    "group_alpha": lambda: mixture(hierarchical=True, group_alpha=2.0),
    "group_alpha's prior": lambda: mixture(
        hierarchical=True, group_alpha=dist.TruncatedNormal(1.0, 0.1, low=0.0)
    ),
    "group_alpha's other prior": lambda: mixture(
        hierarchical=True, group_alpha=dist.TruncatedNormal(50.0, 0.1, low=0.0)
    ),
    "windows": lambda: mixture(ByGroup([Box([0, 0]), Box([0, -1])])),
    "windows the other way": lambda: mixture(ByGroup([Box([0, -1]), Box([0, 0])])),
    "functions": lambda: mixture(ByGroup([lambda y, g: y[0] > 0, lambda y, g: y[1] > 0])),
    "other functions": lambda: mixture(ByGroup([lambda y, g: y[0] > 0, lambda y, g: y[1] > -1])),
    "log_accept": lambda: mixture(log_accept=lambda y, g: -0.1 * g * y[0] ** 2),
    "other log_accept": lambda: mixture(log_accept=lambda y, g: -0.2 * g * y[0] ** 2),
}


def test_mixtures_that_differ_in_one_setting_have_identities_of_their_own(monkeypatch):
    # Each sampler forgets an older one and collects garbage: seconds in a process full of tests.
    monkeypatch.setattr("offcut.programs.cache.gc.collect", lambda: 0)

    def identify(model: Any, groups: int = 1) -> str:
        layout = MixtureLayout.of(len(TWO), 2, groups, model.components)
        return _model_digest(model, model._sampler(layout, False))

    check_all_differ(MIXTURES, identify)
    check_all_differ(IN_GROUPS, lambda model: identify(model, 2))


# Gaussian processes.


def family(loc=1.0, scale=1.0, base=dist.Laplace):
    return offcut.GPDensity(
        lambda theta: base(theta["loc"], scale), prior={"loc": dist.Normal(0.0, loc)}
    )


GP = offcut.GPDensity
PROCESSES: dict[str, Callable[[], Any]] = {
    "as it is": GP,
    "length_scale": lambda: GP(length_scale=1.0),
    "other length_scale": lambda: GP(length_scale=1 + 1e-12),
    "length_scale's prior": lambda: GP(length_scale=dist.TruncatedNormal(1.0, 0.5, low=0.0)),
    "length_scale's other prior": lambda: GP(length_scale=dist.TruncatedNormal(2.0, 0.5, low=0.0)),
    "variance": lambda: GP(variance=1.0),
    "variance's prior": lambda: GP(variance=dist.LogNormal(0.0, 0.5)),
    "variance's other prior": lambda: GP(variance=dist.LogNormal(0.1, 0.5)),
    "covariance": lambda: GP(covariance="matern32"),
    "basis": lambda: GP(basis=20),
    "exact": lambda: GP(basis=None),
    "nugget": lambda: GP(basis=None, nugget=1e-5),
    "support": lambda: GP(support=(0, 1)),
    "other support": lambda: GP(support=(0, 2)),
    "uniform": lambda: GP("uniform", support=(0, 1)),
    "box": lambda: GP(Box(0, 1)),
    "other box": lambda: GP(Box(0, 1.5)),
    "base": lambda: GP(offcut.NormalInverseWishart([0.0], 1.0, 5.0, [[1.0]])),
    "base's mean": lambda: GP(offcut.NormalInverseWishart([1e-9], 1.0, 5.0, [[1.0]])),
    "family": family,
    "family's prior": lambda: family(loc=1.5),
    "family's scale": lambda: family(scale=1.5),
    "family's class": lambda: family(base=dist.Logistic),
    "birth and death": lambda: LocalDensity(moves=30),
    "more births and deaths": lambda: LocalDensity(moves=31),
    "intensity": lambda: offcut.GPIntensity((0, 1)),
    "intensity, other window": lambda: offcut.GPIntensity((0, 1.5)),
}


def test_processes_that_differ_in_one_setting_have_identities_of_their_own():
    check_all_differ(PROCESSES, lambda model: model.identity())


# Frames.


FRAMES: dict[str, Callable[[], Any]] = {
    "as it is": lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1)),
    "prior": lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1 + 1e-9)),
    "prior's family": lambda: offcut.MatrixLangevinModel(dist.LogNormal(1.0, 0.1)),
    "prior truncated": lambda: offcut.MatrixLangevinModel(dist.TruncatedNormal(1.0, 0.1, low=0.0)),
    "prior truncated elsewhere": lambda: offcut.MatrixLangevinModel(
        dist.TruncatedNormal(5.0, 0.1, low=0.0)
    ),
    "prior by column": lambda: offcut.MatrixLangevinModel(
        dist.Gamma(np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    ),
    "G's prior": lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1), G_prior=np.eye(3, 2)),
    "H": lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1), H="inferred"),
    "H's prior": lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1), H=2 * np.eye(2)),
}


def test_models_of_frames_that_differ_in_one_setting_have_identities_of_their_own():
    frames = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 3, 2)))[0]
    check_all_differ(FRAMES, lambda model: identities(model, frames)[0])


# What is changed in place is seen, by the checkpoint and by the program that runs.

SHORT = {"draws": 60, "warmup": 0, "chains": 2, "seed": 1, "progress": False}


def test_a_global_that_changed_between_two_calls_is_another_model(tmp_path, monkeypatch):
    data = np.linspace(-0.5, 0.5, 8)
    model = offcut.truncated(
        {"loc": dist.Normal(0.0, 0.3)},
        lambda theta: dist.Normal(theta["loc"] + LIMIT[0], 1.0),
        Box(-1.0, 1.0),
    )
    run = SHORT | {"kernel": offcut.RandomWalk(0.3), "budget": 10_000}
    monkeypatch.setitem(globals(), "LIMIT", [0.0])
    before = offcut.sample(model, data, checkpoint=tmp_path / "c", **run)
    monkeypatch.setitem(globals(), "LIMIT", [2.0])
    after = offcut.sample(model, data, **run)
    assert float(after["posterior"]["loc"].mean()) < float(before["posterior"]["loc"].mean()) - 0.1
    with pytest.raises(CheckpointError, match=r"another run \(model: "):
        offcut.sample(model, data, checkpoint=tmp_path / "c", **run)
    monkeypatch.setitem(globals(), "LIMIT", [0.0])
    again = offcut.sample(model, data, checkpoint=tmp_path / "c", **run)
    assert np.array_equal(again["posterior"]["loc"], before["posterior"]["loc"])


def test_what_was_changed_back_is_traced_as_it_is_now():
    """A program is kept, but the function it was first traced from has been changed since."""
    number = [1.0]
    programs = Programs(identity.digest("a test of kept programs"))

    def compiled(function):
        kept = programs.kept("f", lambda: Kept(function))
        kept.function = function
        return kept.program

    assert float(compiled(lambda x: x * number[0])(jnp.ones(()))) == 1.0
    number[0] = 5.0
    assert np.array_equal(compiled(lambda x: x * 1.0)(jnp.ones(3)), np.ones(3))


def test_a_prior_of_a_family_that_is_edited_in_place_is_seen():
    prior = {"loc": dist.Normal(0.0, 1.0)}
    model = offcut.GPDensity(lambda theta: dist.Normal(theta["loc"], 0.5), prior=prior)
    before = identities(model, ONE)
    sampler, _, _ = prepare(model, ONE)
    assert sampler.plan.base.prior.sites({"loc": 0.0})["loc"]["fn"].loc == 0.0
    prior["loc"] = dist.Normal(7.0, 1.0)
    assert all(one != other for one, other in zip(before, identities(model, ONE), strict=True))
    sampler, _, _ = prepare(model, ONE)
    assert sampler.plan.base.prior.sites({"loc": 0.0})["loc"]["fn"].loc == 7.0
    prior["loc"] = dist.Normal(0.0, 1.0)
    assert identities(model, ONE) == before


def test_a_sampler_has_the_concentration_that_was_asked_for():
    for middle in (1.0, 50.0):
        model = mixture(alpha=dist.TruncatedNormal(middle, 0.1, low=0.0))
        sampler, _, _ = prepare(model, TWO)
        drawn = sampler.weights.alpha.first(jax.random.key(0))
        assert abs(float(drawn) - middle) < 1.0


@pytest.mark.calibrate
def test_runs_with_other_concentrations_end_there():
    for middle in (1.0, 50.0):
        model = mixture(
            components=3, alpha=dist.TruncatedNormal(middle, 0.1, low=0.0), split_merge=0,
            reshape=False,
        )  # fmt: skip
        posterior = offcut.sample(model, TWO[:, 0], draws=5, warmup=5, chains=1, progress=False)
        assert float(posterior["posterior"]["alpha"].mean()) == pytest.approx(middle, rel=0.3)


# The identity is the same in every process, and nothing that has none is resumed.

ELSEWHERE = """
import sys; sys.path.insert(0, sys.argv[1])
import test_identity as t
print(t.identities(t.mixture(t.Box([0, 0]) & (lambda y: y[0] < 1)), t.TWO)[0])
print(t.identities(t.mixture(alpha=t.dist.TruncatedNormal(1.0, 0.1, low=0.0)), t.TWO)[0])
print(t.identities(t.family(), t.ONE)[0])
print(t.identities(t.GP(length_scale=t.dist.Gamma(2.0, 3.0)), t.ONE)[0])
print(t.identities(t.normal(), t.ONE)[0])
print(t.identity.digest(t.normal, {"a", "b", "c"}))
"""


def test_identities_are_the_same_in_every_process():
    said = [
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE, os.path.dirname(__file__)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(said[0].split())) == 6


def test_functions_are_told_apart_by_code_defaults_closures_and_globals():
    def made(number, default=0.0):
        def function(x, y=default):
            return x + number + y + LIMIT[0]

        return function

    same = identity.digest(made(1.0))
    assert identity.digest(made(1.0)) == same
    assert identity.digest(made(2.0)) != same
    assert identity.digest(made(1.0, 1.0)) != same
    LIMIT.append(1.0)
    try:
        assert identity.digest(made(1.0)) != same
    finally:
        LIMIT.pop()
    assert identity.digest(lambda x: x + 1) != identity.digest(lambda x: x + 2)


def test_a_model_with_a_state_in_python_runs_but_is_not_checkpointed(tmp_path):
    lock = threading.Lock()

    def looked_up(y):
        with lock:
            return np.asarray(-0.5 * y**2)

    model = offcut.selected(
        {"loc": dist.Normal(0.0, 1.0)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda theta, y: jax.pure_callback(
            looked_up, jax.ShapeDtypeStruct((), float), y, vmap_method="sequential"
        ),
        log_reject=lambda theta, y: 0.0 * y,
    )
    with jax.enable_x64(True):
        sampler, _, _ = prepare(model, ONE, None, offcut.RandomWalk(0.3))
    with pytest.raises(CheckpointError, match=r"cannot be checkpointed: it computes with .*lock"):
        _model_digest(model, sampler)


# Compiled programs are forgotten.


class Held:
    """Stands for a sampler."""


def test_the_cache_forgets_what_was_not_used_for_longest():
    CACHE.clear()
    for number in range(20):
        kept_sampler("first", "used all the time", Held)
        kept_sampler(f"identity {number}", "name", Held)
    held = [name for name, _ in CACHE]
    assert len(held) == 16
    assert "first" in held
    assert "identity 19" in held
    assert "identity 4" not in held
    CACHE.clear()


def memory_maps():
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())


@pytest.mark.calibrate
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("same", [True, False])
def test_many_sizes_and_dropped_models_take_a_bounded_number_of_memory_maps(same):
    def sizes(first, last):
        for n in range(first, last):
            own = model if same else normal(prior_scale=1 + n / 1000)
            offcut.sample(own, np.linspace(0.1, 0.9, 20 + n), kernel=offcut.HMC(0.3, 3), **SHORT)

    CACHE.clear()
    model = normal()
    sizes(0, 18)  # full
    before = memory_maps()
    sizes(18, 42)
    # Kept, each would take about 340 of them.
    assert memory_maps() - before < 24 * 340 / 4
    CACHE.clear()


def test_two_threads_may_sample_at_once():
    model = normal(prior_scale=0.8)
    run = SHORT | {"kernel": offcut.RandomWalk(0.3), "budget": 5000}
    alone = offcut.sample(model, ONE, **run)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        found[number] = offcut.sample(model, ONE if number else ONE[:7], **run)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(found[1]["posterior"]["loc"], alone["posterior"]["loc"])
    assert not np.array_equal(found[0]["posterior"]["loc"], alone["posterior"]["loc"])
