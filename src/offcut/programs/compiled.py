"""A function, compiled for the shapes of its arguments: how every large program here is compiled.

JAX compiles whatever is computed outside of a compiled function one operation at a time, some ten
milliseconds each, in every process. So host code computes with NumPy, and what is compiled is few
programs, each a ``Program``: with options of XLA that suit it, by one thread while the others wait,
and kept between processes in the user's cache (``offcut.programs.stored``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from offcut.programs.stored import compiled

P = ParamSpec("P")
R = TypeVar("R")

#: Options of XLA on a CPU. Its newer fusion emitters stay off: measured with jaxlib 0.10 on
#: programs of this library, without them compiling takes 15% to 40% less time and half the memory,
#: and the programs are as fast.
OPTIONS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
#: For what runs once: code that is slower by half an order of magnitude, compiled in half the time.
QUICK: dict[str, Any] = {**OPTIONS, "xla_backend_optimization_level": 0}


class Program(Generic[P, R]):
    """``function`` compiled once for each shape of its arguments, by the first thread to need it.

    Arguments are pytrees of NumPy or JAX arrays (NumPy's cost nothing to make).

    Parameters
    ----------
    function : callable
        Pure.
    donate : tuple of int
        Arguments that are given away, so that their memory can be used for what is returned.
    quick : bool
        For a program that runs once or a few times: compiled in less time, to slower code.
    """

    def __init__(
        self, function: Callable[P, R], donate: tuple[int, ...] = (), quick: bool = False
    ) -> None:
        self.function, self.donate, self.quick = function, donate, quick
        self._programs: dict[object, Callable[..., R]] = {}
        self._lock = threading.Lock()

    @property
    def compilations(self) -> int:
        """For how many shapes it was compiled."""
        return len(self._programs)

    def __call__(self, *arguments: P.args, **_: P.kwargs) -> R:
        """Run it, compiling first where these shapes are new."""
        leaves, structure = jax.tree.flatten(arguments)
        shapes = (structure, *((np.shape(leaf), _dtype(leaf)) for leaf in leaves))
        with self._lock:
            program = self._programs.get(shapes)
            if program is None:
                # A new function each time: JAX would not look again at one that it has traced.
                new = jax.jit(lambda *values: self.function(*values), donate_argnums=self.donate)
                options = usable_options(self.quick)
                program = self._programs[shapes] = compiled(new.lower(*arguments), options)
        return program(*arguments)


def _dtype(leaf: object) -> object:
    return getattr(leaf, "dtype", type(leaf))


@cache
def usable_options(quick: bool) -> dict[str, Any]:
    """Those options that this version of XLA knows; none on anything but a CPU."""
    if jax.default_backend() != "cpu":
        return {}
    options = QUICK if quick else OPTIONS
    try:
        jax.jit(lambda x: x).lower(np.float32(0)).compile(options)
    except Exception:  # what XLA raises for an unknown option is not documented
        return {}
    return options
