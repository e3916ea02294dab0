"""What models print: calls that a reader recognises, and nothing that identities depend on."""

import functools

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from offcut.models.filtered import Truncated
from offcut.numerics.rendering import written
from offcut.regions import Box

PRIOR = {"mean": dist.Normal(170, 10), "sd": dist.LogNormal(1.5, 0.05)}


def normal(theta):
    return dist.Normal(theta["mean"], theta["sd"])


def soft_edge(theta, y):
    return jax.nn.log_sigmoid(y)


def draw(key, theta):
    return theta["mean"] + jax.random.normal(key)


def blur(theta, true):
    return dist.Normal(true, 0.1)


MODELS = {
    "truncated(normal, prior={'mean': Normal(170, 10), 'sd': LogNormal(1.5, 0.05)}, "
    "inside=Box(165, inf))": lambda: offcut.truncated(PRIOR, normal, Box(165, np.inf)),
    "truncated(lambda theta: ..., prior={'mean': Normal(170, 10), 'sd': 5}, "
    "inside=lambda height: ..., noise=blur, censored=Clamped(lower=-inf, upper=180))": (
        lambda: offcut.truncated(
            {**PRIOR, "sd": 5.0},
            lambda theta: normal(theta),
            lambda height: height > 165,
            noise=blur,
            censored=offcut.Clamped(upper=180),
        )
    ),
    "selected(normal, prior={'mean': Normal(170, 10), 'sd': LogNormal(1.5, 0.05)}, "
    "log_accept=soft_edge, noise=blur)": (
        lambda: offcut.selected(PRIOR, normal, soft_edge, noise=blur)
    ),
    "RejectionModel(prior={'mean': Normal(0, 1)}, propose=draw, "
    "log_proposal=lambda theta, y: ..., log_accept=soft_edge, exact_updates={'mean': blur})": (
        lambda: offcut.RejectionModel(
            {"mean": dist.Normal(0, 1)},
            draw,
            lambda theta, y: -0.5 * (y - theta["mean"]) ** 2,
            soft_edge,
            exact_updates={"mean": blur},
        )
    ),
    "TruncatedMixture(Box([0, 0], [1, 1]), components=7, alpha=Gamma(2, 4), "
    "log_accept=lambda y: ..., weights='window', hierarchical=True, group_alpha=1)": (
        lambda: offcut.TruncatedMixture(
            Box([0, 0], [1, 1]),
            7,
            dist.Gamma(2, 4),
            log_accept=lambda y: -y[0],
            weights="window",
            hierarchical=True,
        )
    ),
    "MatrixLangevinModel(Gamma(1, 0.1))": (
        lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1))
    ),
    "MatrixLangevinModel(Gamma(1, 0.1), G_prior=[[1, 0], [0, 1], [0, 0]], H='inferred')": (
        lambda: offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1), np.eye(3, 2), "inferred")
    ),
    "GPDensity()": offcut.GPDensity,
    "GPDensity(base=normal, covariance='matern32', length_scale=LogNormal(0, 0.5), "
    "support=(0, None), joint_moves=False, prior={'mean': Normal(170, 10), "
    "'sd': LogNormal(1.5, 0.05)})": lambda: offcut.GPDensity(
        normal,
        "matern32",
        length_scale=dist.LogNormal(0, 0.5),
        support=(0, None),
        prior=PRIOR,
        joint_moves=False,
    ),
    "GPIntensity(window=(0, 24), basis=8, variance=1, rate=(2, 3))": (
        lambda: offcut.GPIntensity((0, 24), basis=8, variance=1.0, rate=(2, 3))
    ),
}


@pytest.mark.parametrize("text", MODELS)
def test_models_print_as_what_they_are(text):
    assert repr(MODELS[text]()) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (dist.TruncatedNormal(1, 0.5, low=0), "LeftTruncatedDistribution(Normal(1, 0.5), low=0)"),
        (dist.Normal(0, 0.3).expand([2]).to_event(1), "Normal(0, 0.3).expand([2]).to_event(1)"),
        (dist.InverseGamma(2, 3), "InverseGamma(2, 3)"),
        (dist.Delta(3.0), "3"),
        (jax.jit(draw), "draw"),
        (functools.partial(draw, theta=1), "partial(draw, theta=1)"),
        (np.ones((20, 5)), "<array of shape (20, 5)>"),
        ([1.0, -0.0, 0.5], "[1, 0, 0.5]"),
        (object(), "object"),
    ],
)
def test_settings_are_written_as_code(value, text):
    assert written(value) == text


@pytest.mark.parametrize("text", [text for text in MODELS if not text.startswith(("t", "s", "R"))])
def test_identities_do_not_depend_on_what_is_printed(text, monkeypatch):
    model = MODELS[text]()
    before = model.identity()
    monkeypatch.setattr(type(model), "__repr__", lambda self: "something else")
    assert model.identity() == before


def test_nor_do_those_of_rejection_models(monkeypatch):
    with jax.enable_x64(True):
        model = MODELS[next(iter(MODELS))]()
        before = model.identify(())
        monkeypatch.setattr(Truncated, "__repr__", lambda self: "something else")
        assert model.identify(()) == before
