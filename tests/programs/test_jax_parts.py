"""The parts of JAX that are none of its public interface: what the cache relies on, in one place.

Where one is missing, runs go on and nothing is kept. With a new version of JAX, run this first.
"""

from __future__ import annotations

import inspect
import sys

import jax
import numpy as np
import pytest
from jax._src import cache_key, compiler

from offcut.programs import disk, stored
from offcut.programs.compiled import Program
from offcut.programs.stored import KEPT


def lowered():
    return jax.jit(lambda x: x + 1).lower(np.arange(3.0))


def test_a_lowered_program_has_the_arguments_of_its_compilation():
    arguments = lowered()._lowering.compile_args
    assert isinstance(arguments, dict)
    assert {"backend", "host_callbacks", "keepalive"} <= arguments.keys()
    assert not arguments["host_callbacks"]
    assert not arguments["keepalive"]


def test_a_backend_compiles_and_loads():
    backend = lowered()._lowering.compile_args["backend"]
    assert backend.platform == "cpu"
    assert callable(backend.compile_and_load)
    assert callable(backend.deserialize_executable)
    source = inspect.getsource(compiler.backend_compile_and_load)
    assert "backend.compile_and_load(" in source
    assert "executable_devices=executable_devices" in source
    assert "compile_options=options" in source


def test_the_key_of_jaxs_own_cache_is_a_function_of_these():
    taken = list(inspect.signature(cache_key.get).parameters)
    assert taken[:4] == ["module", "devices", "compile_options", "backend"]


def without_arguments(patch):
    patch.setattr(stored, "getattr", lambda *_: None, raising=False)


def without_key(patch):
    patch.setitem(sys.modules, "jax._src.cache_key", None)


def without_loading(patch):
    class Lacking:
        def __init__(self, backend):
            self._whole = backend

        def __getattr__(self, name):
            if name == "deserialize_executable":
                raise AttributeError(name)
            return getattr(self._whole, name)

    patch.setattr(
        stored._Backend, "__init__", lambda self, b: vars(self).update(_backend=Lacking(b))
    )


def without_our_backend(patch):
    """JAX looks at the type of what it is given."""
    compile_and_load = compiler.backend_compile_and_load

    def strict(backend, *arguments, **named):
        if isinstance(backend, stored._Backend):
            raise TypeError("incompatible function arguments")
        return compile_and_load(backend, *arguments, **named)

    patch.setattr(compiler, "backend_compile_and_load", strict)


def with_another_call(patch):
    """It is given something that we do not know of."""
    key = stored._Backend._key
    patch.setattr(stored._Backend, "_key", lambda self, m, **n: key(self, m, **n, unknown=1))


@pytest.mark.parametrize(
    "hide",
    [without_arguments, without_key, without_loading, without_our_backend, with_another_call],
)
def test_where_one_is_missing_programs_are_compiled(hide, events, monkeypatch):
    hide(monkeypatch)
    for _ in range(2):
        result = Program(lambda x: x * 3)(np.arange(3.0))
        np.testing.assert_array_equal(result, [0.0, 3.0, 6.0])
    if hide is without_loading:
        assert events == [KEPT, KEPT]  # each finds what it cannot load, and replaces it
    else:
        assert len(disk.files(disk.place())) == 0
