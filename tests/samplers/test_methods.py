"""One way to choose a sampler: the method is the route, the kernel moves theta on it.

Every pair of them either runs on its route or is refused with words that say what does go.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut import methods
from offcut.base import Model
from offcut.driver.chains import Settings
from offcut.errors import OffcutError, SettingsError
from offcut.samplers.choice import prepare
from offcut.sampling import _identity

#: What does not go together is answered by our own words.
pytestmark = pytest.mark.usefixtures("unchecked")

X = np.array([0.3, 0.8, 2.0])
FRAMES = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 3, 2)) + 3 * np.eye(3, 2))[0]
BOX = offcut.regions.Box(0, 3)


def conjugate() -> Any:
    return offcut.truncated(
        {"rate": dist.Gamma(2, 1)}, lambda theta: dist.Exponential(theta["rate"]), BOX
    )


def selected() -> Any:
    return offcut.selected(
        {"loc": dist.Normal(0, 1)},
        lambda theta: dist.Laplace(theta["loc"], 1),
        lambda theta, x: -0.1 * x**2,
    )


MODELS = {
    "conjugate": (conjugate(), X),
    "selected": (selected(), X),
    "mixture": (offcut.TruncatedMixture(offcut.regions.Box([0.0], [3.0]), 3), X[:, None]),
    "frames": (offcut.MatrixLangevinModel(dist.Gamma(1, 0.1)), FRAMES),
    "density": (offcut.GPDensity(basis=6, length_scale=1.0, variance=1.0), X),
    "exact density": (offcut.GPDensity(basis=None, length_scale=1.0, variance=1.0), X),
    "intensity": (offcut.GPIntensity((0, 3), basis=6), X),
}
KERNELS = [
    None,
    offcut.NUTS(),
    offcut.HMC(),
    offcut.RandomWalk(),
    offcut.Conjugate(),
    offcut.PolyaGamma(),
    offcut.EllipticalSlice(),
]
NAMES = ("auto", "augment", "direct", "collapsed", "exchange", "pseudo_marginal", "asymptotic")
#: Pairs that the kind of model has, and this very model has not.
UNFIT = {
    ("selected", "direct"): "it is for models made by offcut.truncated",
    ("selected", "Conjugate"): "does not fit this model",
    ("exact density", "collapsed"): 'has method="augment" only',
    ("exact density", "NUTS"): "the exact process moves by",
    ("exact density", "HMC"): "the exact process moves by",
}


@pytest.mark.parametrize("name", MODELS)
def test_every_method_and_kernel_goes_its_route_or_is_refused(name):
    """A kernel never changes the route, nor a route the kernel."""
    model, data = MODELS[name]
    known = {one.name: one for one in model.methods}
    for method, kernel in itertools.product(NAMES, KERNELS):
        route = model.methods[0] if method == "auto" else known.get(method)
        kind = type(kernel).__name__
        words = None
        if route is None:
            words = f"method must be one of 'auto', '{model.methods[0].name}'.*got '{method}'"
        elif kernel is not None and kernel.kind not in route.kernels:
            words = rf"takes (offcut\.\w+\(\)|no kernel).*, got {kind}\("
        elif (name, method) in UNFIT or (name, kind) in UNFIT:
            words = UNFIT.get((name, method)) or UNFIT[name, kind]
        with jax.enable_x64(True):
            if words is not None:
                with pytest.raises(OffcutError, match=words):
                    prepare(model, data, None, kernel, method)
                continue
            sampler = prepare(model, data, None, kernel, method).sampler
        assert sampler.method == route.name
        assert sampler.method_settings is None
        if kernel is not None:
            assert sampler.kernel == kernel.on(route)


def test_words_say_what_does_go_together():
    for method, kernel, words in [
        ("exchange", offcut.NUTS(),
         r"method='exchange' takes offcut\.RandomWalk\(\) as kernel, got NUTS\(.*it goes with "
         r"method='augment' or 'direct'"),
        ("auto", offcut.PolyaGamma(),
         r"method='augment' \(which is 'auto' here\) takes offcut\.NUTS\(\), offcut\.HMC\(\), "
         r"offcut\.RandomWalk\(\) or offcut\.Conjugate\(\) as kernel, got PolyaGamma\(\)$"),
        ("Exchange", None, "'pseudo_marginal' for Truncated, got 'Exchange'"),
        (offcut.NUTS(), None, r"a kernel is given as kernel=NUTS\("),
        (offcut.PseudoMarginal, None, "an instance, with parentheses"),
    ]:  # fmt: skip
        with pytest.raises(SettingsError, match=words):
            offcut.sample(conjugate(), X, method=method, kernel=kernel)
    with pytest.raises(SettingsError, match=r"TruncatedMixture.* takes no kernel, got NUTS"):
        offcut.sample(*MODELS["mixture"], kernel=offcut.NUTS())


class Plain(Model):
    """A model that says nothing of methods."""


def test_a_model_with_a_sweep_of_its_own_has_one_method_and_no_kernel():
    assert [method.name for method in Plain.methods] == ["own"]
    with pytest.raises(SettingsError, match="method must be one of 'auto', 'own' for Plain"):
        prepare(Plain(), X, method="exchange")
    for kernel in (offcut.NUTS(), "NUTS"):
        with pytest.raises(SettingsError, match="has a sweep of its own and takes no kernel"):
            prepare(Plain(), X, None, kernel)


# Old spellings are answered with the new ones.


def test_what_were_kernels_are_methods():
    with pytest.raises(AttributeError, match=r'method="exchange", kernel=offcut\.RandomWalk\(sc'):
        offcut.Exchange  # noqa: B018
    with pytest.raises(AttributeError, match=r'method="direct", kernel=offcut\.NUTS\('):
        offcut.Direct  # noqa: B018
    for kernel, words in [
        ("exchange", "give method='exchange'"),
        ("pseudo-marginal", "give method='pseudo_marginal'"),
        ("Direct", "give method='direct'"),
        (offcut.PseudoMarginal(5), r"give method=offcut\.PseudoMarginal\(acceptances=5\)"),
    ]:
        with pytest.raises(SettingsError, match=words):
            offcut.sample(conjugate(), X, kernel=kernel)
    for name, value in (("scale", 0.3), ("target_acceptance", 0.2)):
        words = rf"method=offcut\.PseudoMarginal\(\), kernel=offcut\.RandomWalk\({name}={value}\)"
        with pytest.raises(SettingsError, match=words):
            offcut.PseudoMarginal(**{name: value})


@pytest.mark.parametrize(
    ("make", "old", "new"),
    [
        (lambda **old: offcut.MatrixLangevinModel(dist.Gamma(1, 1), **old), "exchange", "exchange"),
        (lambda **old: offcut.MatrixLangevinModel(dist.Gamma(1, 1), **old), "auto", "fastest"),
        (offcut.GPDensity, "collapsed", "collapsed"),
        (offcut.GPIntensity, "augment", "augment"),
    ],
)
def test_models_are_asked_what_they_are_and_sample_how_it_draws(make, old, new):
    with pytest.raises(SettingsError, match=rf"offcut\.sample\(model, data, method='{new}'\)"):
        make(method=old)


# Settings.


def test_a_method_with_settings():
    with jax.enable_x64(True):
        asked = prepare(conjugate(), X, method=offcut.PseudoMarginal(acceptances=7)).sampler
        plain = prepare(conjugate(), X, method="pseudo_marginal").sampler
    assert asked.method_settings == offcut.PseudoMarginal(acceptances=7)
    assert plain.method_settings is None
    assert asked is not plain
    run = {"draws": 5, "warmup": 5, "chains": 1, "progress": False}
    attrs = offcut.sample(conjugate(), X, method=offcut.PseudoMarginal(acceptances=7), **run).attrs
    assert attrs["method"] == "pseudo_marginal"
    assert attrs["method_settings"] == "PseudoMarginal(acceptances=7)"
    assert attrs["kernel"] == "RandomWalk(scale=None, target_acceptance=0.2)"
    assert attrs["kernel_kind"] == "RandomWalk"


def test_the_target_acceptance_of_a_walk_is_the_methods_unless_the_user_says():
    with jax.enable_x64(True):
        for method, target in (("augment", 0.3), ("exchange", 0.25), ("pseudo_marginal", 0.2)):
            for model in ("conjugate", "frames"):
                kernel = offcut.RandomWalk()
                found = prepare(*MODELS[model], None, kernel, method).sampler.kernel
                assert found == offcut.RandomWalk(target_acceptance=target)
            kernel = offcut.RandomWalk(target_acceptance=0.4)
            assert prepare(conjugate(), X, None, kernel, method).sampler.kernel == kernel


def test_runs_of_other_methods_are_told_apart():
    """By checkpoints, which have the same kernel on two routes."""
    walk, settings, found = offcut.RandomWalk(0.3), Settings(5, 5, 1, 0, None, False), []
    asked = ["augment", "exchange", "pseudo_marginal", offcut.PseudoMarginal(3)]
    model = conjugate()
    with jax.enable_x64(True):
        for method in asked:
            found.append(_identity(model, prepare(model, X, None, walk, method), settings))
    assert len({str(one["method"]) for one in found}) == len(asked)
    assert len({one["kernel"] for one in found}) == 1


def test_what_a_model_gets_is_said_beforehand():
    chosen = offcut.kernel_for(conjugate())
    assert (chosen.method, chosen.kernel) == ("augment", offcut.Conjugate())
    assert repr(chosen).startswith("method='augment', kernel=Conjugate(): ")
    for method, kernel in [
        ("direct", offcut.NUTS()),
        ("exchange", offcut.RandomWalk(target_acceptance=0.25)),
    ]:
        assert offcut.kernel_for(conjugate(), method=method)[:2] == (method, kernel)


def test_every_method_has_words_and_kinds_that_there_are():
    for offered in (methods.REJECTION, methods.MIXTURE, methods.FRAMES, methods.CURVES):
        assert len({one.name for one in offered}) == len(offered)
        for one in offered:
            assert one.words
            assert set(one.kernels) <= set(methods.KERNELS)
    for kind, names in methods.KERNELS.items():
        assert {getattr(offcut, name).kind for name in names} == {kind}
