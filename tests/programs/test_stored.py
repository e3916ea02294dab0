"""Programs that another process compiled: the same results, on the same machine, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offcut.programs import disk, stored
from offcut.programs.compiled import Program
from offcut.programs.stored import KEPT, LOADED

pytestmark = pytest.mark.usefixtures("float64")


def factor(matrix, shift):
    """Something of LAPACK's, a loop, and an output where an input may be."""
    whole = matrix @ matrix.T + jnp.eye(len(matrix), dtype=matrix.dtype)
    _, total = jax.lax.scan(lambda s, row: (s + row, jnp.sum(s)), jnp.zeros(4, matrix.dtype), whole)
    return jnp.linalg.cholesky(whole), total, shift * 2


MATRIX = np.random.default_rng(0).normal(size=(4, 4))


def test_a_program_is_compiled_once_and_loaded_after(events):
    first = Program(factor)(MATRIX, np.arange(3.0))
    assert events == [KEPT]
    again = Program(factor)(MATRIX, np.arange(3.0))
    assert events == [KEPT, LOADED]
    assert [a.dtype for a in again] == [np.float64] * 3
    assert [np.asarray(a).tobytes() for a in again] == [np.asarray(a).tobytes() for a in first]


def test_arguments_are_given_away_by_a_loaded_program_too(events):
    for expected in (KEPT, LOADED):
        shift = jax.device_put(np.arange(3.0))
        *_, doubled = Program(factor, donate=(1,))(MATRIX, shift)
        assert events[-1] == expected
        assert shift.is_deleted()
        np.testing.assert_array_equal(doubled, [0.0, 2.0, 4.0])


def test_whatever_changes_the_machine_code_has_a_key_of_its_own(events, monkeypatch):
    lowered = jax.jit(factor).lower(MATRIX, np.arange(3.0))
    variants = [
        lambda: Program(factor)(MATRIX, np.arange(3.0)),
        lambda: Program(factor)(MATRIX.astype(np.float32), np.arange(3.0)),
        lambda: Program(factor)(MATRIX, np.arange(4.0)),
        lambda: Program(factor, donate=(1,))(MATRIX, np.arange(3.0)),
        lambda: stored.compiled(lowered, {"xla_backend_optimization_level": 0}),
        lambda: Program(lambda m, s: factor(m, s + 1e-9))(MATRIX, np.arange(3.0)),
    ]
    for variant in variants:
        variant()
    for name in ("processor", "cores"):  # as on another machine with the same home
        monkeypatch.setattr(stored, name, lambda: "another")
        variants[0]()
    assert events == [KEPT] * (len(variants) + 2)
    assert len(disk.files(disk.place())) == len(variants) + 2


def test_the_processor_is_told_by_its_features(monkeypatch):
    stored.processor.cache_clear()
    told = stored.processor()
    with open("/proc/cpuinfo") as file:
        features = [line for line in file if line.lower().startswith(("flags", "features"))]
    if features:
        assert set(features[0].split(":")[1].split()) <= set(told.split())
    assert "MHz" not in told  # what changes from moment to moment would never be found again
    monkeypatch.setattr("offcut.programs.stored.Path.read_text", lambda *_, **__: "cpu MHz : 2000")
    stored.processor.cache_clear()
    assert os.uname().nodename in stored.processor()
    stored.processor.cache_clear()


# What is not kept, and what is left alone.


def test_functions_of_the_user_and_their_settings_of_jax_are_left_alone(events):
    before = dict(jax.config.values)
    mine = jax.jit(lambda x: jnp.sin(x) + 3)
    failed = []

    def compile_mine():
        try:
            mine(np.arange(5.0))
        except Exception as error:
            failed.append(error)

    def ours(x):
        other = threading.Thread(target=compile_mine)  # while ours is on its way
        other.start()
        other.join()
        return x + 1

    Program(ours)(np.arange(3.0))
    mine.lower(np.arange(7.0)).compile()
    assert not failed
    assert events == [KEPT]
    assert len(disk.files(disk.place())) == 1
    assert dict(jax.config.values) == before
    assert jax.config.jax_compilation_cache_dir is None


def test_where_the_user_has_jaxs_own_cache_that_is_used(events, jax_cache, tmp_path):
    jax_cache(str(tmp_path / "theirs"))
    Program(factor)(MATRIX, np.arange(3.0))
    assert events == []
    assert len(disk.files(disk.place())) == 0
    assert any((tmp_path / "theirs").iterdir())


def test_where_the_user_forbids_caches_there_is_none(events):
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        Program(factor)(MATRIX, np.arange(3.0))
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert events == []
    assert len(disk.files(disk.place())) == 0


def test_off_is_off(events, monkeypatch, tmp_path):
    monkeypatch.setenv(disk.VARIABLE, "off")
    Program(factor)(MATRIX, np.arange(3.0))
    assert events == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pure", "debug", "ordered"])
def test_a_program_that_calls_python_is_not_kept(events, kind):
    for offset in (1.0, 2.0):  # the second must not call the function of the first
        called = []

        def host(x, offset=offset, called=called):
            called.append(offset)
            return np.asarray(x) + offset

        def program(x, host=host):
            if kind == "pure":
                return jax.pure_callback(host, jax.ShapeDtypeStruct((3,), np.float64), x)
            jax.debug.callback(host, x, ordered=kind == "ordered")
            return x

        Program(program)(np.arange(3.0))
        jax.effects_barrier()
        assert called == [offset]
    assert events == []
    assert len(disk.files(disk.place())) == 0


# What goes wrong.


def test_what_xla_cannot_read_is_compiled_and_replaced(events, capfd):
    Program(factor)(MATRIX, np.arange(3.0))
    (file,) = disk.files(disk.place())
    disk.write(file.path.stem, b"no program, with a checksum that is right")
    first = Program(factor)(MATRIX, np.arange(3.0))
    again = Program(factor)(MATRIX, np.arange(3.0))
    assert events == [KEPT, KEPT, LOADED]
    np.testing.assert_array_equal(first[0], again[0])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("refused", ["read", "write"])
def test_nothing_that_the_disk_does_is_an_error(events, monkeypatch, refused):
    def fail(*_):
        raise ValueError("unheard of")

    monkeypatch.setattr(disk, refused, fail)
    *_, doubled = Program(factor)(MATRIX, np.arange(3.0))
    np.testing.assert_array_equal(doubled, [0.0, 2.0, 4.0])


def test_an_error_of_the_compiler_is_raised_as_ever(events):
    with pytest.raises(Exception, match="no_such_option"):
        stored.compiled(jax.jit(jnp.sin).lower(np.arange(3.0)), {"no_such_option": True})
    assert len(disk.files(disk.place())) == 0


# Other processes.

CHILD = """
import json, os, sys
import jax, numpy as np
import jax.numpy as jnp
events = []
jax.monitoring.register_event_listener(
    lambda event, **_: events.append(event) if event.startswith("/offcut") else None
)
from offcut.programs.compiled import Program
with jax.enable_x64(True):
    found = [
        Program(lambda x, k=k: jnp.linalg.cholesky(x @ x.T + k * jnp.eye(6)))(np.full((6, 6), 0.3))
        for k in (1.0, 2.0)
    ]
print(json.dumps([events, [np.asarray(f).tobytes().hex() for f in found]]))
"""
SAMPLE = """
import hashlib, json, warnings
import jax, numpy as np, numpyro.distributions as dist
events = []
jax.monitoring.register_event_listener(
    lambda event, **_: events.append(event) if event.startswith("/offcut") else None
)
import offcut
warnings.simplefilter("ignore", offcut.errors.TrustWarning)
model = offcut.truncated(
    {"loc": dist.Normal(0, 1)}, lambda t: dist.Normal(t["loc"], 1), inside=lambda x: x > 0
)
tree = offcut.sample(
    model, np.array([0.3, 0.7, 1.5]), draws=50, warmup=50, chains=2, kernel=offcut.RandomWalk()
)
print(json.dumps([events, hashlib.sha256(tree["posterior"]["loc"].values.tobytes()).hexdigest()]))
"""


def start(code, place, **more):
    without = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env=without | {disk.VARIABLE: str(place)} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(child):
    told, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")
    return json.loads(told)


def test_two_processes_at_once_and_a_third_that_compiles_nothing(tmp_path):
    place = tmp_path / "programs"
    first, second = map(finish, [start(CHILD, place) for _ in range(2)])
    assert {*first[0], *second[0]} <= {KEPT, LOADED}
    assert len(disk.files(place)) == 2
    (tmp_path / "file").write_text("")
    third, without = map(finish, [start(CHILD, place), start(CHILD, tmp_path / "file")])
    assert (third[0], without[0]) == ([LOADED, LOADED], [])
    assert first[1] == second[1] == third[1] == without[1]


def test_a_run_in_another_process_compiles_none_of_its_programs_again(tmp_path):
    events, draws = finish(start(SAMPLE, tmp_path / "programs"))
    assert set(events) == {KEPT}
    loaded, again = finish(start(SAMPLE, tmp_path / "programs"))
    assert loaded == [LOADED] * len(events)
    assert draws == again
