"""Bases with a rate: each point multiplies the likelihood by r^s exp(-r t)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.conjugate.priors import constant
from offcut.conjugate.reading import Family

_TINY = np.finfo(float).tiny


class Form(NamedTuple):
    """r = parameter ** power, and what one point adds: (s, t)."""

    parameter: str
    power: Any
    share: Callable[[jax.Array], tuple[Any, Any]]


def _known(base: Family, name: str) -> np.ndarray:
    return constant(base, name, "the base")


def _exponential(base: Family) -> Form:
    return Form("rate", 1, lambda x: (1.0, x))


def _gamma(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("rate", 1, lambda x: (shape, x))


def _inverse_gamma(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("rate", 1, lambda x: (shape, 1 / x))


def _poisson(base: Family) -> Form:
    return Form("rate", 1, lambda x: (x, 1.0))


def _pareto(base: Family) -> Form:
    scale = _known(base, "scale")
    return Form("alpha", 1, lambda x: (1.0, jnp.log(x / scale)))


def _weibull(base: Family) -> Form:
    shape = _known(base, "concentration")
    return Form("scale", -shape, lambda x: (1.0, x**shape))


def _laplace(base: Family) -> Form:
    loc = _known(base, "loc")
    return Form("scale", -1, lambda x: (1.0, jnp.abs(x - loc)))


def _half_normal(base: Family) -> Form:
    return Form("scale", -2, lambda x: (0.5, 0.5 * x**2))


def _normal(base: Family) -> Form | None:
    loc = base.constant("loc")
    if loc is None:
        return None  # see normal.py
    log = base.kind == "LogNormal"
    return Form("scale", -2, lambda x: (0.5, 0.5 * ((jnp.log(x) if log else x) - loc) ** 2))


def _beta(base: Family) -> Form | None:
    """The density r x^(r - 1) or its mirror image: one concentration is 1."""
    one, zero = base.constant("concentration1"), base.constant("concentration0")
    if zero is not None and (zero == 1).all():
        # NumPyro writes the smallest of floats where a draw rounds to 0.
        return Form("concentration1", 1, lambda x: (1.0, -jnp.log(jnp.where(x > _TINY, x, 0.0))))
    if one is not None and (one == 1).all():
        return Form("concentration0", 1, lambda x: (1.0, -jnp.log(1 - x)))
    return None


#: By the base's kind; None where a parameter that must be known is not, but may be elsewhere.
FORMS: dict[str, Callable[[Family], Form | None]] = {
    "Beta": _beta,
    "Exponential": _exponential,
    "Gamma": _gamma,
    "HalfNormal": _half_normal,
    "InverseGamma": _inverse_gamma,
    "Laplace": _laplace,
    "LogNormal": _normal,
    "Normal": _normal,
    "Pareto": _pareto,
    "Poisson": _poisson,
    "Weibull": _weibull,
}
