r"""Arrays whose entries are c x^p: a constant times a power of one entry of theta.

That is all the algebra that conjugate parameters are written in (sqrt(variance), 1 / sqrt(tau),
variance / k0), so following it is enough to recognise them, and a proof: whatever the rules below
do not cover is OTHER, and nothing made from OTHER is ever anything else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CONSTANT, OTHER = -1, -2


class Monomials(NamedTuple):
    """Entry by entry, ``coefficient * x[element] ** exponent``, or CONSTANT, or OTHER."""

    coefficient: np.ndarray
    element: np.ndarray
    exponent: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array that this describes."""
        return self.element.shape


def monomials(coefficient: object, element: object, exponent: object) -> Monomials:
    """Put in a form where x^0 is a constant, and 0 x or inf x, which hide x, are OTHER."""
    c, e, p = np.broadcast_arrays(
        np.asarray(coefficient, float), np.asarray(element, int), np.asarray(exponent, float)
    )
    e = np.where((e >= 0) & (p == 0), CONSTANT, e)
    lost = ~np.isfinite(c) | ~np.isfinite(p) | ((e >= 0) & (c == 0))
    e = np.where(lost, OTHER, e)
    known = e != OTHER
    return Monomials(np.where(known, c, np.nan), e, np.where(e >= 0, p, 0.0))


def constants(value: object) -> Monomials:
    """An array that does not depend on theta."""
    return monomials(value, CONSTANT, 0.0)


def other(shape: tuple[int, ...]) -> Monomials:
    """An array of which nothing is known."""
    return monomials(np.full(shape, np.nan), OTHER, 0.0)


def multiply(a: Monomials, b: Monomials) -> Monomials:
    """c x^p times d x^q; products of different entries are OTHER."""
    either = np.where(a.element == CONSTANT, b.element, a.element)
    mixed = (a.element >= 0) & (b.element >= 0) & (a.element != b.element)
    lost = mixed | (a.element == OTHER) | (b.element == OTHER)
    element = np.where(lost, OTHER, either)
    return monomials(a.coefficient * b.coefficient, element, a.exponent + b.exponent)


def add(a: Monomials, b: Monomials) -> Monomials:
    """c x^p + d x^p, or anything plus the constant 0."""
    alike = (a.element == b.element) & (a.exponent == b.exponent) & (a.element != OTHER)
    a_is_zero = (a.element == CONSTANT) & (a.coefficient == 0)
    b_is_zero = (b.element == CONSTANT) & (b.coefficient == 0)
    choose = [a_is_zero, b_is_zero, alike]
    return monomials(
        np.select(choose, [b.coefficient, a.coefficient, a.coefficient + b.coefficient], np.nan),
        np.select(choose, [b.element, a.element, a.element], OTHER),
        np.select(choose, [b.exponent, a.exponent, a.exponent], 0.0),
    )


def negate(a: Monomials) -> Monomials:
    """-c x^p."""
    return monomials(-a.coefficient, a.element, a.exponent)


def raise_to(a: Monomials, power: np.ndarray | float, positive: np.ndarray) -> Monomials:
    """(c x^p)^q = c^q x^(pq): for whole p and q, or where c > 0 and x > 0 (``positive``)."""
    power = np.asarray(power, float)
    # The last entry stands in for CONSTANT, whose power depends on its coefficient only.
    safe = np.append(positive, True)[np.maximum(a.element, CONSTANT)]
    whole = (a.exponent == np.round(a.exponent)) & (power == np.round(power))
    fine = (whole | (safe & (a.coefficient > 0))) & (a.element != OTHER)
    with np.errstate(all="ignore"):
        coefficient = np.where(fine, a.coefficient, np.nan) ** power
    return monomials(coefficient, np.where(fine, a.element, OTHER), a.exponent * power)
