"""One notion of identity: a digest of everything that a model computes with.

Checkpoints are told apart by it, and compiled programs are kept under it, so that two models share
a program, or a run, if and only if they compute the same:

- a function that can be called is *traced*: the digest is that of its program, with every literal
  and every constant baked into it or into a program inside it, all bytes of them;
- a setting is read part by part, classes by name, arrays by all their bytes (a ``repr`` leaves out
  the middle of a long one), distributions by what they are made of and by their traced densities;
- a function that cannot be called here (arguments unknown) is read: its code, defaults, closure and
  the globals that it names.

The same reading of traced programs tells which outputs of one are computed from which inputs.

Nothing depends on memory addresses or on the process, and nothing is kept: what was edited in place
is seen the next time.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import re
import struct
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeGuard

import jax
import numpy as np
import numpyro.distributions as dist
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jaxtyping import PyTree, jaxtyped
from numpyro.distributions.util import lazy_property

from offcut.numerics.arrays import as_argument

_numbers = itertools.count()
#: Attributes that hold compiled code or what can be made again, never a setting.
_NO_SETTINGS = ("programs", "_blocks")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib"))


class UnidentifiedError(Exception):
    """Something has no identity that would be the same in another process."""


def digest(*values: object) -> str:
    """Sixteen hexadecimal digits that are the same for the same values, in every process.

    >>> digest(np.arange(3.0)) == digest(np.array([0.0, 1.0, 2.0])) != digest(np.arange(3))
    True
    >>> digest(dist.Gamma(2, 1)) == digest(dist.Gamma(2, 1)) != digest(dist.Gamma(2, 1 + 1e-9))
    True
    """
    return _Reader().of(values).hex()[:16]


def traced(function: Callable[..., PyTree], *arguments: PyTree) -> ClosedJaxpr:
    """The program of a function at arguments of which only shape and dtype count."""
    # A new function each time: JAX would not look again at one that it has traced already.
    return jax.make_jaxpr(lambda *values: function(*values))(*arguments)


def reached(jaxpr: Jaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs are computed from the marked inputs; only jit is looked into."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}

    def is_marked(atom: Var | Literal) -> bool:
        return not isinstance(atom, Literal) and atom in marked

    for equation in jaxpr.eqns:
        marks = [is_marked(atom) for atom in equation.invars]
        if equation.primitive.name in ("jit", "pjit"):
            outputs = reached(equation.params["jaxpr"].jaxpr, marks)
        else:
            outputs = [any(marks)] * len(equation.outvars)
        pairs = zip(equation.outvars, outputs, strict=True)
        marked.update(variable for variable, mark in pairs if mark)
    return [is_marked(atom) for atom in jaxpr.outvars]


def skeleton(*values: object) -> str:
    """A digest of classes and numbers of settings whose functions are traced elsewhere."""
    return _Reader(code=False).of(values).hex()[:16]


class Unknown(str):
    """An identity that says nothing to another process; ``reason`` is what has none."""

    reason: str


def unknown(what: object) -> Unknown:
    """An identity that nothing else has, now or later."""
    identity = Unknown(f"unknown: {what} ({next(_numbers)})")
    identity.reason = str(what)
    return identity


class _Reader:
    """Turns values into digests; an object met again is referred to."""

    def __init__(self, code: bool = True) -> None:
        self._code, self._within = code, False
        self._met: dict[int, tuple[int, object]] = {}
        self._programs: dict[int, tuple[bytes, object]] = {}

    def of(self, value: object) -> bytes:
        """The digest of a value."""
        whole = hashlib.sha256()
        for part in self._parts(value):
            whole.update(struct.pack("<q", len(part)))
            whole.update(part)
        return whole.digest()

    def _parts(self, value: object) -> Iterator[bytes]:
        """What a value is made of, as bytes."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield f"{type(value).__name__} {value!r}".encode()
        elif isinstance(value, np.ndarray | np.generic | jax.Array) or _is_literal(value):
            yield from self._array(value)
        elif isinstance(value, ClosedJaxpr | Jaxpr):
            yield self._program(value)
        elif isinstance(value, jax.ShapeDtypeStruct | np.dtype):
            yield str(value).encode()
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, types.ModuleType):
            yield value.__name__.encode()
        elif isinstance(value, set | frozenset):
            yield _name(type(value))
            yield from sorted(self.of(part) for part in value)
        else:
            yield from self._object(value)

    def _object(self, value: object) -> Iterator[bytes]:
        if id(value) in self._met:
            yield f"met as {self._met[id(value)][0]}".encode()
            return
        self._met[id(value)] = (len(self._met), value)  # held, so that no other gets its id
        yield self.of(type(value))
        if isinstance(value, tuple | list):
            yield from map(self.of, value)
        elif isinstance(value, Mapping):
            # In their order: it decides in which order sites of a prior are drawn.
            yield from map(self.of, (part for item in value.items() for part in item))
        elif isinstance(value, dist.Distribution):
            whole, self._within = not self._within, True
            yield from map(self.of, _made_of(value))
            if whole:
                yield from map(self.of, _computed(value))
                self._within = False
        elif isinstance(value, dist.transforms.Transform):  # it keeps its inverse once that is used
            yield from map(self.of, value.tree_flatten())
        elif isinstance(value, functools.partial):
            yield from map(self.of, (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            yield from map(self.of, (value.__func__, value.__self__))
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif hasattr(value, "__wrapped__") and callable(value):  # a function under jax.jit
            yield self.of(value.__wrapped__)
        elif isinstance(value, types.CodeType):
            yield from self._compiled_code(value)
        else:
            yield from self._settings(value)

    def _settings(self, value: object) -> Iterator[bytes]:
        """The attributes of an object, or what its repr says where it has none."""
        named = _attributes(value)
        if named is None:
            said = repr(value)
            if _ADDRESS.search(said):
                raise UnidentifiedError(said)
            yield said.encode()
            return
        for name in sorted(named):
            if name not in _NO_SETTINGS:
                yield name.encode()
                yield self.of(named[name])

    def _class(self, kind: type) -> Iterator[bytes]:
        """Its name; and what the user wrote in it, who may write it anew under the same name."""
        yield _name(kind)
        if not self._code or _is_library(kind) or id(kind) in self._met:
            return
        self._met[id(kind)] = (len(self._met), kind)
        yield from map(self.of, kind.__bases__)
        for name, part in sorted(vars(kind).items()):
            inner = getattr(part, "__func__", getattr(part, "fget", part))
            if isinstance(inner, types.FunctionType) or not name.startswith("_"):
                yield name.encode()
                yield self.of(inner)

    def _array(self, value: np.ndarray | np.generic | jax.Array) -> Iterator[bytes]:
        if isinstance(value, jax.core.Tracer):
            raise UnidentifiedError(f"a traced value {value}")
        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            yield str(value.dtype).encode()
            value = jax.random.key_data(value)
        array = np.asarray(value)
        yield f"array {array.dtype} {array.shape}".encode()
        if array.dtype == object:
            yield from map(self.of, array.ravel().tolist())
        else:
            yield np.ascontiguousarray(array).tobytes()

    def _function(self, function: types.FunctionType) -> Iterator[bytes]:
        if not self._code:
            return
        if _is_library(function):
            yield _name(function)
            return
        code = function.__code__
        yield self.of(code)
        yield self.of((function.__defaults__, function.__kwdefaults__))
        yield from map(self.of, map(_content, function.__closure__ or ()))
        for name in _global_names(code):
            if name in function.__globals__:
                yield name.encode()
                yield self.of(function.__globals__[name])

    def _compiled_code(self, code: types.CodeType) -> Iterator[bytes]:
        """Instructions, names and constants; not where in which file they stand."""
        yield code.co_code
        yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars)).encode()
        yield from map(self.of, code.co_consts)

    def _program(self, program: ClosedJaxpr | Jaxpr) -> bytes:
        """A traced program: equations, literals, constants, programs inside it."""
        known = self._programs.get(id(program))
        if known is not None:
            return known[0]
        jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
        whole = hashlib.sha256()
        number: dict[Var, int] = {}

        def add(*parts: str | bytes) -> None:
            for part in parts:
                raw = part.encode() if isinstance(part, str) else part
                whole.update(struct.pack("<q", len(raw)))
                whole.update(raw)

        def variable(var: Var | Literal) -> str | bytes:
            if isinstance(var, Literal):
                return str(var.aval).encode() + self.of(var.val)
            return f"{number.setdefault(var, len(number))} {var.aval}"

        for constant in program.consts if isinstance(program, ClosedJaxpr) else ():
            add(self.of(constant))
        add(*map(variable, (*jaxpr.constvars, *jaxpr.invars)))
        for equation in jaxpr.eqns:
            add(equation.primitive.name, *map(variable, equation.invars))
            for name, value in sorted(equation.params.items()):
                add(name, self._setting_of_equation(value))
            add(*map(variable, equation.outvars))
        add(*map(variable, jaxpr.outvars))
        found = whole.digest()
        self._programs[id(program)] = (found, program)
        return found

    def _setting_of_equation(self, value: object) -> bytes:
        if isinstance(value, ClosedJaxpr | Jaxpr):
            return self._program(value)
        if isinstance(value, tuple | list):
            return b"".join(map(self._setting_of_equation, value)) + f"of {len(value)}".encode()
        if isinstance(value, np.ndarray | jax.Array):
            return self.of(value)
        # What the program calls in Python, and derivatives that the user wrote.
        functions = tuple(_written_by_users(value))
        if functions:
            return self.of(functions)
        return b"" if callable(value) else _ADDRESS.sub("", str(value)).encode()


def _made_of(value: dist.Distribution) -> Iterator[tuple[str, object]]:
    """The parts of a distribution, by name.

    The order in which NumPyro flattens them is another one in each process, and what it computes
    from them when it is first asked for is no part.
    """
    kind = type(value)
    for name in sorted({*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields()}):
        if not isinstance(inspect.getattr_static(kind, name, None), lazy_property):
            yield (name, getattr(value, name, None))


def _computed(value: dist.Distribution) -> Iterator[ClosedJaxpr | type]:
    """The traced density and draw of a distribution, whose class may have settings of its own."""
    point = jax.ShapeDtypeStruct((*value.batch_shape, *value.event_shape), np.float64)
    # jax.random.key(0), without a program to make it
    key = jax.random.wrap_key_data(as_argument(np.zeros(2, np.uint32)), impl="threefry2x32")
    with jax.enable_x64(True):
        for function, argument in ((value.log_prob, point), (value.sample, key)):
            try:
                yield traced(function, argument)
            except Exception as error:  # an improper one has no draws
                yield type(error)


def _written_by_users(value: object, depth: int = 6) -> Iterator[types.FunctionType]:
    """Functions of no library inside JAX's own wrappers of functions."""
    if isinstance(value, types.FunctionType):
        value = _unchecked(value)
        if not _is_library(value):
            yield value
            return
        inner = [_content(cell) for cell in value.__closure__ or ()]
    elif isinstance(value, functools.partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    else:
        names = ("f", "callback_func", "__wrapped__", "__func__", "fun", "jvp", "fwd", "bwd")
        inner = [getattr(value, name, None) for name in names]
    for part in inner if depth else ():
        if callable(part) or type(part).__name__ == "WrappedFun":
            yield from _written_by_users(part, depth - 1)


def _unchecked(function: types.FunctionType) -> types.FunctionType:
    """A function without the check of its types that tests put around it (``tests/conftest.py``).

    Not to be seen: with the check a model is the same as without, in this process or another.
    """
    while function.__code__.co_filename == jaxtyped.__code__.co_filename:
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function


def _attributes(value: object) -> dict[str, object] | None:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    if not hasattr(value, "__dict__") and not slots:
        return None
    named = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return named | getattr(value, "__dict__", {})


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _global_names(code: types.CodeType) -> list[str]:
    """Names that a function, or one inside it, may look up in its module."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return sorted({*code.co_names, *(name for part in inner for name in _global_names(part))})


def _is_library(value: types.FunctionType | type) -> bool:
    """Whether a function or class is part of an installed library, known by its version."""
    module = value.__module__ or ""
    if module.split(".")[0] in ("offcut", "builtins"):
        return True
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename.startswith(_LIBRARIES)
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return file.startswith(_LIBRARIES) or module in sys.builtin_module_names


def _is_literal(value: object) -> TypeGuard[np.ndarray]:
    """JAX's own classes of baked-in numbers."""
    return type(value).__module__.startswith("jax.") and hasattr(value, "__array__")


def _name(value: types.FunctionType | type) -> bytes:
    return f"{value.__module__}.{value.__qualname__}".encode()
