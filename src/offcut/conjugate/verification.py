"""A second opinion on what ``interpret`` found: the same function with numbers for theta.

The rules are exact as long as JAX's operations mean what they meant when the rules were written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from offcut.conjugate.elements import Elements
from offcut.conjugate.interpreter import interpret
from offcut.conjugate.monomials import CONSTANT, OTHER, Monomials
from offcut.conjugate.outcome import Unmatched


class Trace(NamedTuple):
    """A function of theta and a covariate, and what its outputs are claimed to be."""

    closed: Any
    covariate: list[Any]  # shapes and types
    outputs: list[Monomials]


def verify(elements: Elements, trace: Trace) -> None:
    """Refuse what does not hold at a theta and a covariate drawn at random."""
    rng = np.random.default_rng(0)
    theta = {}
    table = np.full(len(elements.positive) + 1, np.nan)
    table[CONSTANT] = 1.0  # the last entry
    for (site, form), layout in elements.layouts.items():
        if form == "itself":
            table[layout] = rng.uniform(0.2, 0.8, layout.shape)
            if layout.ndim == 2:  # so that a symmetric one is positive definite
                table[np.diagonal(layout)] += len(layout)
            theta[site] = table[layout]
    for (site, form), layout in elements.layouts.items():
        if form == "cholesky":
            lower = layout >= 0
            table[layout[lower]] = np.linalg.cholesky(theta[site])[lower]
    sites = [jnp.asarray(theta[name]) for name in sorted(theta)]
    covariate = [jnp.asarray(rng.uniform(1, 9, c.shape), c.dtype) for c in trace.covariate]
    values = interpret(elements, trace.closed, [*sites, *covariate])
    for claimed, value in zip(trace.outputs, values, strict=True):
        known = claimed.element != OTHER
        element = np.where(known, claimed.element, CONSTANT)
        expected = claimed.coefficient * table[element] ** claimed.exponent
        if not np.allclose(expected[known], np.asarray(value, float)[known], rtol=1e-9, atol=0):
            raise Unmatched(
                "what was read from prior and base does not agree with their values; this is a "
                "bug in Offcut, please report it"
            )
