"""Follow theta through a traced function, entry by entry, as far as it stays a monomial.

Arithmetic follows the rules of ``Monomials``. Operations that only move entries about (reshape,
transpose, slice, ...) are run as they are on coefficients, elements and exponents. What does not
depend on theta is computed. Everything else makes OTHER.

Entries are c x^p, a constant times a power of one entry of theta; the entries of theta are
numbered, so that each can be followed through an array program. That is all the algebra that
conjugate parameters are written in (sqrt(variance), 1 / sqrt(tau), variance / k0), so following it
is enough to recognise them, and a proof: whatever the rules below do not cover is OTHER, and
nothing made from OTHER is ever anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core

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


class Elements:
    """The entries of theta, numbered; those of Cholesky factors are added as they turn up."""

    def __init__(self) -> None:
        self.layouts: dict[tuple[str, str], np.ndarray] = {}  # (site, "itself" or "cholesky")
        self.positive = np.zeros(0, bool)

    def add(
        self, site: str, shape: tuple[int, ...], positive: bool, symmetric: bool = False
    ) -> Monomials:
        """The entries of a site; (i, j) and (j, i) are the same one in a symmetric matrix."""
        layout = self._number(shape, positive)
        if symmetric:
            layout = np.minimum(layout, layout.T)
        self.layouts[site, "itself"] = layout
        return monomials(1.0, layout, 1.0)

    def cholesky(self, a: Monomials) -> Monomials:
        """chol(c S) = sqrt(c) chol(S), for a whole symmetric site S; above its diagonal OTHER."""
        for (site, form), layout in list(self.layouts.items()):
            c = a.coefficient
            symmetric = layout.ndim == 2 and np.array_equal(layout, layout.T)
            if form == "itself" and symmetric and np.array_equal(layout, a.element):
                if not ((a.exponent == 1).all() and (c == c.flat[0]).all() and c.flat[0] > 0):
                    break
                if (site, "cholesky") not in self.layouts:
                    root = self._number(a.shape, positive=False)
                    self.layouts[site, "cholesky"] = np.where(np.tri(len(root)), root, OTHER)
                return monomials(np.sqrt(c), self.layouts[site, "cholesky"], 1.0)
        return other(a.shape)

    def _number(self, shape: tuple[int, ...], positive: bool) -> np.ndarray:
        start, size = len(self.positive), int(np.prod(shape, dtype=int))
        self.positive = np.append(self.positive, np.full(size, positive))
        return np.arange(start, start + size).reshape(shape)


#: Operations that move entries about; the first operand, or all of them, hold what is moved.
_MOVES_FIRST = {
    "broadcast_in_dim",
    "copy",
    "copy_p",
    "dynamic_slice",
    "expand_dims",
    "gather",
    "reshape",
    "rev",
    "slice",
    "squeeze",
    "transpose",
}
_MOVES_ALL = {"concatenate", "stack"}
Value = Any  # an array that does not depend on theta, or Monomials


def interpret(elements: Elements, closed: core.ClosedJaxpr, inputs: Sequence[Value]) -> list:
    """The outputs of a traced function, each an array (independent of theta) or ``Monomials``."""
    jaxpr = closed.jaxpr
    known: dict[Any, Value] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def value_of(atom: Any) -> Value:
        if isinstance(atom, core.Literal):
            return np.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        return known[atom]

    for equation in _needed(jaxpr):
        outputs = _apply(elements, equation, [value_of(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, outputs, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: core.Jaxpr) -> list[Any]:
    """The equations that the outputs are made of: validation of arguments, for one, is not."""
    wanted: set[Any] = set()
    equations = []
    wanted.update(atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal))
    for equation in reversed(jaxpr.eqns):
        if any(variable in wanted for variable in equation.outvars):
            equations.append(equation)
            wanted.update(a for a in equation.invars if not isinstance(a, core.Literal))
    return equations[::-1]


def _apply(elements: Elements, equation: Any, operands: list[Value]) -> Sequence[Value]:
    name, parameters = equation.primitive.name, equation.params
    inner = parameters.get("jaxpr" if name in ("jit", "pjit") else "call_jaxpr")
    if isinstance(inner, core.ClosedJaxpr):  # also functions with derivatives of their own
        return interpret(elements, inner, operands)
    if not _any_monomials(operands):
        return _bind(equation, operands)
    fills = parameters.get("fill_value") is not None  # a number would appear among the elements
    if name in _MOVES_FIRST and not fills and not _any_monomials(operands[1:]):
        return [_move(equation, operands[:1], tuple(operands[1:]))]
    if name in _MOVES_ALL:
        return [_move(equation, operands)]
    if name == "select_n" and not isinstance(operands[0], Monomials):
        return [_move(equation, operands[1:], before=(operands[0],))]
    if name == "convert_element_type" and parameters["new_dtype"] == np.float64:
        return operands
    if name in _ARITHMETIC:
        result = _ARITHMETIC[name](elements, parameters, *map(_lifted, operands))
        if result.shape == equation.outvars[0].aval.shape:
            return [result]
    return [other(variable.aval.shape) for variable in equation.outvars]


def _any_monomials(operands: Sequence[Value]) -> bool:
    return any(isinstance(operand, Monomials) for operand in operands)


def _bind(equation: Any, operands: list[Any]) -> Sequence[Any]:
    result = equation.primitive.bind(*operands, **equation.params)
    return result if equation.primitive.multiple_results else [result]


def _lifted(value: Value) -> Monomials:
    return value if isinstance(value, Monomials) else constants(np.asarray(value, float))


def _move(equation: Any, moved: list[Value], after: tuple = (), before: tuple = ()) -> Monomials:
    parts = zip(*map(_lifted, moved), strict=True)
    results = [_bind(equation, [*before, *map(jnp.asarray, part), *after])[0] for part in parts]
    return monomials(*results)


def _power(elements: Elements, parameters: Any, base: Monomials, power: Monomials) -> Monomials:
    if (power.element != CONSTANT).any():
        return other(base.shape)  # theta in the exponent
    return raise_to(base, power.coefficient, elements.positive)


def _fixed_power(power: float) -> Callable[..., Monomials]:
    return lambda elements, parameters, a: raise_to(a, power, elements.positive)


def _divide(elements: Elements, parameters: Any, a: Monomials, b: Monomials) -> Monomials:
    return multiply(a, raise_to(b, -1.0, elements.positive))


_ARITHMETIC: dict[str, Callable[..., Monomials]] = {
    "mul": lambda elements, parameters, a, b: multiply(a, b),
    "div": _divide,
    "add": lambda elements, parameters, a, b: add(a, b),
    "sub": lambda elements, parameters, a, b: add(a, negate(b)),
    "neg": lambda elements, parameters, a: negate(a),
    "sqrt": _fixed_power(0.5),
    "rsqrt": _fixed_power(-0.5),
    "square": _fixed_power(2.0),
    "integer_pow": lambda elements, parameters, a: raise_to(a, parameters["y"], elements.positive),
    "pow": _power,
    "cholesky": lambda elements, parameters, a: elements.cholesky(a),
}
