"""A function, compiled for the shapes of its arguments: how every large program here is compiled.

JAX compiles whatever is computed outside of a compiled function one operation at a time, some ten
milliseconds each, in every process. So host code computes with NumPy, and what is compiled is few
programs, each a ``Program``: with options of XLA that suit it, by one thread while the others wait,
and kept between processes in the user's cache (``offcut.programs.stored``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import numpy as np
from jax.stages import Compiled, Lowered
from jaxtyping import PyTree

from offcut.programs.stored import compiled

R = TypeVar("R")

#: Options of XLA on a CPU. Its newer fusion emitters stay off: measured with jaxlib 0.10 on
#: programs of this library, without them compiling takes 15% to 40% less time and half the memory,
#: and the programs are as fast.
OPTIONS: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
#: Options that XLA turned out not to know.
_UNKNOWN: set[str] = set()
#: For what runs once: code that is slower by half an order of magnitude, compiled in half the time.
QUICK: dict[str, Any] = {**OPTIONS, "xla_backend_optimization_level": 0}


class Program(Generic[R]):
    """``function`` compiled once for each shape of its arguments, by the first thread to need it.

    Arguments are pytrees of NumPy or JAX arrays (NumPy's cost nothing to make).

    Parameters
    ----------
    function : callable
        Pure.
    name : str
        What it is called in the compiler's messages and in profiles.
    donate : tuple of int
        Arguments that are given away, so that their memory can be used for what is returned.
    quick : bool
        For a program that runs once or a few times: compiled in less time, to slower code.
    """

    def __init__(
        self,
        function: Callable[..., R],
        name: str = "program",
        donate: tuple[int, ...] = (),
        quick: bool = False,
    ) -> None:
        self.function, self.name, self.donate, self.quick = function, name, donate, quick
        self._programs: dict[object, Callable[..., R]] = {}
        self._lock = threading.Lock()

    @property
    def compilations(self) -> int:
        """For how many shapes it was compiled."""
        return len(self._programs)

    def __call__(self, *arguments: PyTree) -> R:
        """Run it, compiling first where these shapes are new."""
        leaves, structure = jax.tree.flatten(arguments)
        shapes = (structure, *((np.shape(leaf), _dtype(leaf)) for leaf in leaves))
        with self._lock:
            program = self._programs.get(shapes)
            if program is None:
                program = self._programs[shapes] = self._compiled(*arguments)
        return program(*arguments)

    def _compiled(self, *arguments: PyTree) -> Callable[..., R]:
        def program(*values: PyTree) -> R:
            return self.function(*values)

        program.__name__ = self.name
        # A new function each time: JAX would not look again at one that it has traced.
        lowered = jax.jit(program, donate_argnums=self.donate).lower(*arguments)
        return _with_options(lowered, QUICK if self.quick else OPTIONS)


def _dtype(leaf: object) -> object:
    return getattr(leaf, "dtype", type(leaf))


def _with_options(lowered: Lowered, options: dict[str, Any]) -> Compiled:
    """Compiled with those options that this version of XLA knows; none on anything but a CPU."""
    if jax.default_backend() != "cpu":
        return compiled(lowered, {})
    try:
        return compiled(lowered, _without(options))
    except Exception:  # what XLA raises for an unknown option is not documented
        if not _find_unknown(options):
            raise
        return compiled(lowered, _without(options))


def _without(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _UNKNOWN}


def _find_unknown(options: dict[str, Any]) -> bool:
    """Try each option by itself on nothing at all; whether XLA does not know one."""
    for name in _without(options):
        try:
            jax.jit(lambda: None).lower().compile({name: options[name]})
        except Exception:
            _UNKNOWN.add(name)
    return bool(_UNKNOWN)
