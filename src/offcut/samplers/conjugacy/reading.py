"""Read a model: the family of its base and of each prior, with their parameters as monomials.

*The algebra.* Theta is followed through a traced function, entry by entry, as far as it stays a
monomial c x^p, a constant times a power of one entry of theta; the entries of theta are numbered,
so that each can be followed through an array program. That is all the algebra that conjugate
parameters are written in (sqrt(variance), 1 / sqrt(tau), variance / k0), so following it is enough
to recognise them, and a proof: whatever the rules below do not cover is OTHER, and nothing made
from OTHER is ever anything else. Operations that only move entries about (reshape, transpose,
slice, ...) are run as they are on coefficients, elements and exponents. What does not depend on
theta is computed.

*The second opinion* on what was found is the same function with numbers for theta (``verify``): the
rules are exact as long as JAX's operations mean what they meant when the rules were written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.extend import core
from jaxtyping import ArrayLike, Bool, Float, Int

from offcut.models.filtered import Filtered
from offcut.models.prior import Theta
from offcut.programs.compiled import Program
from offcut.samplers.conjugacy import Unmatched

CONSTANT, OTHER = -1, -2


class Monomials(NamedTuple):
    """Entry by entry, ``coefficient * x[element] ** exponent``, or CONSTANT, or OTHER."""

    coefficient: Float[np.ndarray, " ..."]
    element: Int[np.ndarray, " ..."]
    exponent: Float[np.ndarray, " ..."]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.element.shape


def monomials(coefficient: ArrayLike, element: ArrayLike, exponent: ArrayLike) -> Monomials:
    """Put in a form where x^0 is a constant, and 0 x or inf x, which hide x, are OTHER."""
    c, e, p = np.broadcast_arrays(
        np.asarray(coefficient, float), np.asarray(element, int), np.asarray(exponent, float)
    )
    e = np.where((e >= 0) & (p == 0), CONSTANT, e)
    lost = ~np.isfinite(c) | ~np.isfinite(p) | ((e >= 0) & (c == 0))
    e = np.where(lost, OTHER, e)
    known = e != OTHER
    return Monomials(np.where(known, c, np.nan), e, np.where(e >= 0, p, 0.0))


def constants(value: ArrayLike) -> Monomials:
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


def raise_to(
    a: Monomials, power: Float[np.ndarray, " ..."] | float, positive: Bool[np.ndarray, " elements"]
) -> Monomials:
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
#: An array that does not depend on theta, or what is known of one that does.
Value = Monomials | jax.Array | np.ndarray


def interpret(elements: Elements, closed: core.ClosedJaxpr, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a traced function, each an array (independent of theta) or ``Monomials``."""
    jaxpr = closed.jaxpr
    known: dict[core.Var, Value] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def value_of(atom: core.Var | core.Literal) -> Value:
        if isinstance(atom, core.Literal):
            return np.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        return known[atom]

    for equation in _needed(jaxpr):
        outputs = _apply(elements, equation, [value_of(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, outputs, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _needed(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
    """The equations that the outputs are made of: validation of arguments, for one, is not."""
    wanted: set[core.Var] = set()
    equations = []
    wanted.update(atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal))
    for equation in reversed(jaxpr.eqns):
        if any(variable in wanted for variable in equation.outvars):
            equations.append(equation)
            wanted.update(a for a in equation.invars if not isinstance(a, core.Literal))
    return equations[::-1]


def _apply(elements: Elements, equation: core.JaxprEqn, operands: list[Value]) -> Sequence[Value]:
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
    shapes = [variable.aval.shape for variable in equation.outvars]  # type: ignore[attr-defined]
    if name in _ARITHMETIC:
        result = _ARITHMETIC[name](elements, parameters, *map(_lifted, operands))
        if result.shape == shapes[0]:
            return [result]
    return [other(shape) for shape in shapes]


def _any_monomials(operands: Sequence[Value]) -> bool:
    return any(isinstance(operand, Monomials) for operand in operands)


def _broadcast(
    x: np.ndarray, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...], **_: object
) -> np.ndarray:
    sizes = [1] * len(shape)
    for size, place in zip(x.shape, broadcast_dimensions, strict=True):
        sizes[place] = size
    return np.broadcast_to(x.reshape(sizes), shape)


def _sliced(
    x: np.ndarray,
    start_indices: tuple[int, ...],
    limit_indices: tuple[int, ...],
    strides: tuple[int, ...] | None,
) -> np.ndarray:
    steps = strides or (1,) * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def _sliced_at(x: np.ndarray, *starts: np.ndarray, slice_sizes: tuple[int, ...]) -> np.ndarray:
    places = [
        int(np.clip(start, 0, size - width))
        for start, size, width in zip(starts, x.shape, slice_sizes, strict=True)
    ]
    return x[tuple(slice(a, a + width) for a, width in zip(places, slice_sizes, strict=True))]


#: What NumPy does to the bit as JAX would, which would compile each operation by itself.
_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "reshape": lambda x, new_sizes, dimensions, **_: np.transpose(x, dimensions).reshape(new_sizes),
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "broadcast_in_dim": _broadcast,
    "slice": _sliced,
    "dynamic_slice": _sliced_at,
    "copy": lambda x: x,
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
}
#: The same, of double precision.
_EXACT: dict[str, Callable[..., np.ndarray]] = {
    "neg": np.negative,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "sqrt": lambda x, **_: np.sqrt(x),
}
_NUMPY |= _EXACT


def _bind(equation: core.JaxprEqn, operands: list[Value]) -> Sequence[jax.Array | np.ndarray]:
    plain = _NUMPY.get(equation.primitive.name)
    parameters = equation.params
    if equation.primitive.name in _EXACT and any(
        np.asarray(a).dtype != np.float64 for a in operands
    ):
        plain = None  # whole numbers overflow in ways of their own
    if plain is not None:
        with contextlib.suppress(TypeError), np.errstate(all="ignore"):  # parameters of a new JAX
            return [np.asarray(plain(*map(np.asarray, operands), **parameters))]
    result = equation.primitive.bind(*operands, **parameters)
    return result if equation.primitive.multiple_results else [result]


def _lifted(value: Value) -> Monomials:
    return value if isinstance(value, Monomials) else constants(np.asarray(value, float))


def _move(
    equation: core.JaxprEqn,
    moved: list[Value],
    after: tuple[Value, ...] = (),
    before: tuple[Value, ...] = (),
) -> Monomials:
    parts = zip(*map(_lifted, moved), strict=True)
    results = [_bind(equation, [*before, *part, *after])[0] for part in parts]
    return monomials(*results)


def _power(elements: Elements, parameters: dict, base: Monomials, power: Monomials) -> Monomials:
    if (power.element != CONSTANT).any():
        return other(base.shape)  # theta in the exponent
    return raise_to(base, power.coefficient, elements.positive)


def _fixed_power(power: float) -> Callable[..., Monomials]:
    return lambda elements, parameters, a: raise_to(a, power, elements.positive)


def _divide(elements: Elements, parameters: dict, a: Monomials, b: Monomials) -> Monomials:
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


class Trace(NamedTuple):
    """A function of theta and a covariate, and what its outputs are claimed to be."""

    closed: core.ClosedJaxpr
    covariate: list[jax.ShapeDtypeStruct]
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
    sites = [theta[name] for name in sorted(theta)]
    covariate = [rng.uniform(1, 9, c.shape).astype(c.dtype) for c in trace.covariate]
    program = Program(core.jaxpr_as_fun(trace.closed), "second opinion", quick=True)
    values = program(*sites, *covariate)
    for claimed, value in zip(trace.outputs, values, strict=True):
        known = claimed.element != OTHER
        element = np.where(known, claimed.element, CONSTANT)
        expected = claimed.coefficient * table[element] ** claimed.exponent
        if not np.allclose(expected[known], np.asarray(value, float)[known], rtol=1e-9, atol=0):
            raise Unmatched(
                "what was read from prior and base does not agree with their values; this is a "
                "bug in Offcut, please report it"
            )


#: Families whose entries are independent given parameters of the same shape.
_ENTRYWISE = {
    "BernoulliProbs": ("probs",),
    "Beta": ("concentration1", "concentration0"),
    "BinomialProbs": ("probs", "total_count"),
    "Exponential": ("rate",),
    "Gamma": ("concentration", "rate"),
    "GeometricProbs": ("probs",),
    "HalfNormal": ("scale",),
    "InverseGamma": ("concentration", "rate"),
    "Laplace": ("loc", "scale"),
    "LogNormal": ("loc", "scale"),
    "Normal": ("loc", "scale"),
    "Pareto": ("scale", "alpha"),
    "Poisson": ("rate",),
    "Uniform": ("low", "high"),
    "Weibull": ("scale", "concentration"),
}
_MATRIX = {
    "InverseWishart": ("concentration", "scale_tril"),
    "Wishart": ("concentration", "scale_tril"),
}
_POSITIVE = {"Beta", "Exponential", "Gamma", "HalfNormal", "InverseGamma", "LogNormal"}
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)
#: Only these very classes: a subclass may have another density.
_KINDS = {
    getattr(dist, name): name
    for name in (*_ENTRYWISE, *_MATRIX, "MultivariateNormal")
    if hasattr(dist, name)
}


class Family(NamedTuple):
    """A distribution: its kind by NumPyro's name, the shape of a draw, and its parameters."""

    kind: str
    shape: tuple[int, ...]
    parameters: dict[str, Monomials]

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a parameter that does not depend on theta."""
        parameter = self.parameters[name]
        return parameter.coefficient if (parameter.element == CONSTANT).all() else None

    def fixed(self, name: str, whose: str) -> np.ndarray:
        """The same, of a parameter that must be a fixed number."""
        value = self.constant(name)
        if value is None:
            raise Unmatched(f"{name} of {whose} is not a fixed number")
        return value


class Power(NamedTuple):
    """coefficient * site ** exponent, entry by entry, or the same of the site's Cholesky factor."""

    site: str
    form: str
    exponent: float
    coefficient: np.ndarray


class Reading(NamedTuple):
    """A model as far as conjugacy is concerned, and the trace that it was read from."""

    base: Family
    priors: dict[str, Family]
    elements: Elements
    trace: Trace

    def power_of(self, parameter: Monomials) -> Power | None:
        """The site that a parameter is a power of, all of it and in its own order."""
        for (site, form), layout in self.elements.layouts.items():
            # Above its diagonal a Cholesky factor is 0, and CONSTANT.
            wanted = np.where(layout < 0, CONSTANT, layout)
            if np.array_equal(wanted, parameter.element):
                used = layout >= 0
                zero_elsewhere = (parameter.coefficient[~used] == 0).all()
                exponents = parameter.exponent[used]
                if zero_elsewhere and (exponents == exponents[0]).all():
                    first = parameter.coefficient[used][0]
                    coefficient = np.where(used, parameter.coefficient, first)
                    return Power(site, form, round(float(exponents[0]), 12), coefficient)
        return None

    def site_of(self, parameter: Monomials, name: str) -> Power:
        """The site of which a parameter of the base is a constant times a power."""
        power = self.power_of(parameter)
        if power is None or power.form != "itself":
            raise Unmatched(
                f"{name} of the base is neither a fixed number nor a power of one parameter of the "
                "same shape"
            )
        return power

    def itself(self, name: str) -> str:
        """The site that a parameter of the base is, as it stands."""
        power = self.site_of(self.base.parameters[name], name)
        if power.exponent != 1 or (power.coefficient != 1).any():
            raise Unmatched(f"{name} of the base is not {power.site!r} itself")
        return power.site


def arguments_like(model: Filtered, covariates: tuple) -> tuple[dict, tuple]:
    """Shapes and types of the latent sites, and of one observation's covariate."""
    theta = {name: jax.ShapeDtypeStruct(shape, float) for name, shape in model.prior.shapes.items()}
    return theta, jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), covariates)


def read(model: Filtered, covariates: tuple) -> Reading:
    """Trace base and prior once, and interpret what came out."""
    kinds: dict[str | None, tuple[str, tuple[int, ...]]] = {}  # None is the base

    def describe(theta: Theta, covariate: tuple) -> tuple:
        sites = model.prior.sites(theta)
        for name, site in sites.items():
            if site["type"] == "sample" and site["scale"] is not None:
                raise Unmatched(f"the density of {name!r} is scaled by a NumPyro handler")
        distributions = {name: sites[name]["fn"] for name in theta}
        whole = {**theta, **{name: sites[name]["value"] for name in model.prior.deterministic}}
        base = model.base(whole, *covariate)
        kinds[None], parameters = _unwrapped(base)
        priors = {}
        for name, distribution in distributions.items():
            kinds[name], priors[name] = _unwrapped(distribution)
            if kinds[name][1] != theta[name].shape:
                raise Unmatched(f"{name!r} is several draws of its prior, by sample_shape")
        return parameters, priors

    theta, covariate = arguments_like(model, covariates)
    closed, shapes = jax.make_jaxpr(describe, return_shape=True)(theta, covariate)

    elements = Elements()
    inputs = [
        elements.add(
            name, theta[name].shape, kinds[name][0] in _POSITIVE, kinds[name][0] in _MATRIX
        )
        for name in sorted(theta)
    ]
    inputs += [other(leaf.shape) for leaf in jax.tree.leaves(covariate)]
    outputs = [_lifted(value) for value in interpret(elements, closed, inputs)]
    base, priors = jax.tree.unflatten(jax.tree.structure(shapes), outputs)
    return Reading(
        Family(*kinds[None], base),
        {name: Family(*kinds[name], priors[name]) for name in theta},
        elements,
        Trace(closed, jax.tree.leaves(covariate), outputs),
    )


def _unwrapped(distribution: dist.Distribution) -> tuple[tuple[str, tuple[int, ...]], dict]:
    """Kind and shape, and the parameters; independent and repeated entries are told by the shape.

    A mask, a truncation, a transformation or an unknown family keeps its own name and gives no
    parameters, so that no conjugate family can take it for its own.
    """
    shape = (*distribution.batch_shape, *distribution.event_shape)
    plain = distribution
    while type(plain) in _WRAPPERS:
        plain = plain.base_dist
    kind = _KINDS.get(type(plain), f"{type(plain).__name__} (not a family known here)")
    parameters: dict[str, jax.Array] = {}
    if kind in _ENTRYWISE:
        values = {name: jnp.asarray(getattr(plain, name)) for name in _ENTRYWISE[kind]}
        parameters = {name: jnp.broadcast_to(value, shape) for name, value in values.items()}
    elif plain is not distribution or distribution.batch_shape:
        kind = f"a batch of {kind}"
    elif kind == "MultivariateNormal":
        given = [name for name in ("covariance_matrix", "precision_matrix") if name in vars(plain)]
        matrix = given[0] if given else "scale_tril"
        parameters = {"loc": jnp.broadcast_to(plain.loc, shape), matrix: getattr(plain, matrix)}
    elif kind in _MATRIX:
        parameters = {name: jnp.asarray(getattr(plain, name)) for name in _MATRIX[kind]}
    return (kind, shape), parameters
