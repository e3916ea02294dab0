"""Recognise a multivariate normal whose mean, covariance or both have conjugate priors."""

from __future__ import annotations

import numpy as np

from offcut.conjugate.multivariate import MeanPrior, MultivariateMatch, Precision
from offcut.conjugate.outcome import Match, Unmatched
from offcut.conjugate.priors import constant, site_of
from offcut.conjugate.reading import Family, Reading

KINDS = frozenset({"MultivariateNormal"})


def find(reading: Reading) -> Match:
    """The update of mean and covariance."""
    precision = _precision(reading, reading.base, "the base")
    mean = _mean(reading, precision)
    mu, matrix = mean.site, precision.site
    wishart = None if matrix is None else _wishart_prior(reading, matrix, precision)
    name = "inverse Wishart" if precision.site_is_covariance else "Wishart"
    if mean.precision is not None and mean.precision.site is not None:
        how = f"({mu}, {matrix}) normal-{name.replace(' ', '-')}"
    elif mu is not None and matrix is not None:
        how = f"{mu} | {matrix} normal, {matrix} | {mu} {name}"
    elif mu is not None:
        how = f"{mu} normal"
    else:
        how = f"{matrix} {name}"
    sites = tuple(site for site in (mu, matrix) if site is not None)
    return MultivariateMatch(f"multivariate normal: {how}", sites, precision, mean, wishart)


def _mean(reading: Reading, base: Precision) -> MeanPrior:
    known = reading.base.constant("loc")
    if known is not None:
        return MeanPrior(None, known, None)
    power = site_of(reading, reading.base.parameters["loc"], "loc")
    if power.exponent != 1 or (power.coefficient != 1).any():
        raise Unmatched(f"loc of the base is not {power.site!r} itself")
    prior = reading.priors[power.site]
    whose = f"the prior of {power.site!r}"
    if prior.kind == "Normal":
        scale = constant(prior, "scale", whose)
        precision = Precision(None, False, np.diag(scale**-2.0))
    elif prior.kind == "MultivariateNormal":
        precision = _precision(reading, prior, whose)
        if precision.site is not None and precision[:2] != base[:2]:
            raise Unmatched(f"{whose} depends on a parameter other than the base's covariance")
    else:
        raise Unmatched(
            f"{power.site!r} has a {prior.kind} prior; a MultivariateNormal prior or "
            "independent Normal ones would match"
        )
    return MeanPrior(power.site, constant(prior, "loc", whose), precision)


def _precision(reading: Reading, family: Family, whose: str) -> Precision:
    """The precision matrix of a multivariate normal, given in whichever of the three ways."""
    (name,) = (name for name in family.parameters if name != "loc")
    known = family.constant(name)
    if known is not None:
        if name == "scale_tril":
            known = np.tril(known) @ np.tril(known).T
        known = (known + known.T) / 2
        return Precision(None, False, known if name == "precision_matrix" else _inverse(known))
    power = reading.power_of(family.parameters[name])
    form = "cholesky" if name == "scale_tril" else "itself"
    c = 0.0 if power is None else float(power.coefficient.flat[0])
    plain = power is not None and power.form == form and power.exponent == 1
    if power is None or not plain or c <= 0 or (power.coefficient != c).any():
        raise Unmatched(
            f"{name} of {whose} is neither fixed nor a constant times one matrix of parameters"
            " (or its Cholesky factor); for the inverse of a matrix use precision_matrix="
        )
    if name == "precision_matrix":
        return Precision(power.site, False, c)
    return Precision(power.site, True, 1 / c if name == "covariance_matrix" else c**-2)


def _wishart_prior(
    reading: Reading, site: str, precision: Precision
) -> tuple[np.ndarray, np.ndarray]:
    """(nu, Psi) such that Phi ~ Wishart(nu, Psi⁻¹)."""
    prior = reading.priors[site]
    wanted = "InverseWishart" if precision.site_is_covariance else "Wishart"
    if prior.kind != wanted:
        what = "covariance" if precision.site_is_covariance else "precision"
        raise Unmatched(
            f"the {what} matrix {site!r} has a {prior.kind} prior; {wanted} would match"
        )
    whose = f"the prior of {site!r}"
    root = np.tril(constant(prior, "scale_tril", whose))
    scale = root @ root.T
    Psi = scale if precision.site_is_covariance else _inverse(scale)
    return constant(prior, "concentration", whose), Psi


def _inverse(matrix: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(matrix)
    return (inverse + inverse.T) / 2
