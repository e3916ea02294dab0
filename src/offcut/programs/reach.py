"""What of a traced program is computed from what, judged by the program and not by values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core


def reached(jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs are computed from the marked inputs; only jit is looked into."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}

    def is_marked(atom: Any) -> bool:
        return not isinstance(atom, core.Literal) and atom in marked

    for equation in jaxpr.eqns:
        marks = [is_marked(atom) for atom in equation.invars]
        if equation.primitive.name in ("jit", "pjit"):
            outputs = reached(equation.params["jaxpr"].jaxpr, marks)
        else:
            outputs = [any(marks)] * len(equation.outvars)
        pairs = zip(equation.outvars, outputs, strict=True)
        marked.update(variable for variable, mark in pairs if mark)
    return [is_marked(atom) for atom in jaxpr.outvars]
