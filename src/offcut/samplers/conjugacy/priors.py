"""Recognise the prior of one site as normal, gamma, inverse gamma or beta with fixed numbers."""

from __future__ import annotations

import numpy as np

from offcut.samplers.conjugacy.contract import Unmatched
from offcut.samplers.conjugacy.monomials import Monomials
from offcut.samplers.conjugacy.reading import Family, Power, Reading


def constant(family: Family, name: str, whose: str) -> np.ndarray:
    """A parameter that must be a fixed number."""
    value = family.constant(name)
    if value is None:
        raise Unmatched(f"{name} of {whose} is not a fixed number")
    return value


def site_of(reading: Reading, parameter: Monomials, name: str) -> Power:
    """The site of which a parameter of the base is a constant times a power."""
    power = reading.power_of(parameter)
    if power is None or power.form != "itself":
        raise Unmatched(
            f"{name} of the base is neither a fixed number nor a power of one parameter of the "
            "same shape"
        )
    return power


def gamma_prior(reading: Reading, power: Power, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(a, b) such that site ** power.exponent ~ Gamma(a, rate b); ``name`` is what it should be."""
    prior = reading.priors[power.site]
    whose = f"the prior of {power.site!r}"
    if power.exponent == 1 and prior.kind == "Gamma":
        return constant(prior, "concentration", whose), constant(prior, "rate", whose)
    if power.exponent == 1 and prior.kind == "Exponential":
        rate = constant(prior, "rate", whose)
        return np.ones_like(rate), rate
    if power.exponent == -1 and prior.kind == "InverseGamma":
        return constant(prior, "concentration", whose), constant(prior, "rate", whose)
    raise Unmatched(
        f"{name} is {_spelled(power)} with a {prior.kind} prior on {power.site!r}; a Gamma prior "
        f"on {name}, or an InverseGamma prior on its inverse, would match"
    )


def beta_prior(reading: Reading, site: str) -> tuple[np.ndarray, np.ndarray]:
    """(a, b) such that site ~ Beta(a, b); Uniform(0, 1) is one."""
    prior = reading.priors[site]
    whose = f"the prior of {site!r}"
    if prior.kind == "Beta":
        return constant(prior, "concentration1", whose), constant(prior, "concentration0", whose)
    if prior.kind == "Uniform":
        low, high = constant(prior, "low", whose), constant(prior, "high", whose)
        if (low == 0).all() and (high == 1).all():
            return np.ones(prior.shape), np.ones(prior.shape)
    raise Unmatched(f"{site!r} has a {prior.kind} prior; a Beta prior would match")


def _spelled(power: Power) -> str:
    factor = "" if (power.coefficient == 1).all() else "a constant times "
    return f"{factor}{power.site!r}" + ("" if power.exponent == 1 else f" ** {power.exponent:g}")
