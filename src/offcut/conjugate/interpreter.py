"""Follow theta through a traced function, entry by entry, as far as it stays a monomial.

Arithmetic follows the rules of ``monomials``. Operations that only move entries about (reshape,
transpose, slice, ...) are run as they are on coefficients, elements and exponents. What does not
depend on theta is computed. Everything else makes OTHER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from offcut.conjugate.elements import Elements
from offcut.conjugate.monomials import (
    CONSTANT,
    Monomials,
    add,
    constants,
    monomials,
    multiply,
    negate,
    other,
    raise_to,
)

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
