"""What a run takes from the machine it gives back; what it cannot have it says beforehand."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import offcut
from offcut.base import OK, Info, Model, Sampler
from offcut.driver import machine
from offcut.errors import SettingsError


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_two_runs_in_threads_give_back_the_threads_of_blas() -> None:
    before = blas_threads()
    assert before
    inside, both = threading.Barrier(2), threading.Barrier(2)

    def first() -> None:
        with machine.one_blas_thread():
            inside.wait(60)
            both.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(60)
    with machine.one_blas_thread():
        both.wait(60)
        thread.join()  # the first is over, the second goes on
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_threads_are_given_back_after_an_error() -> None:
    before = blas_threads()
    with pytest.raises(KeyError), machine.one_blas_thread():
        raise KeyError
    assert blas_threads() == before


class Counting(Sampler):
    """Counts, and records a vector."""

    kernel_name = "Counting"

    def start(self, key: Any, data: Any, budget: int) -> Any:
        return jnp.zeros(())

    def step(self, key: Any, state: Any, stage: Any, data: Any) -> Any:
        return state + 1, Info({"rejected": jnp.int32(0)}, jnp.int32(OK), None)

    def record(self, state: Any) -> dict[str, Any]:
        return {"x": jnp.full(1000, state)}


class CountingModel(Model):
    """A model of a user's own."""

    def prepare(self, request: Any) -> Any:
        return Counting(), jnp.zeros(1), {"x": np.zeros(1)}


def test_more_draws_than_fit_into_memory_are_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingsError, match=r"1,000,000,000 draws of 4 chains, 8,100 bytes each, "):
        offcut.sample(CountingModel(), None, draws=10**9)
    monkeypatch.setattr(machine, "free_memory", lambda: 3 * 2**20)
    with pytest.raises(SettingsError, match=r"need about 0.0 GiB .*fewer draws=.* with thin="):
        offcut.sample(CountingModel(), None, draws=1000, warmup=0, chains=1)
    run = {"warmup": 0, "chains": 1, "budget": None, "progress": False}
    thinned = offcut.sample(CountingModel(), None, draws=100, thin=10, **run)
    assert float(thinned["posterior"]["x"][0, -1, 0]) == 1000.0
    monkeypatch.setattr(machine, "free_memory", lambda: None)  # a system that does not say
    offcut.sample(CountingModel(), None, draws=1000, **run)


def test_free_memory_is_known_here() -> None:
    if sys.platform == "linux":
        assert 2**20 < machine.free_memory() < 2**50


def test_a_model_of_ones_own_that_is_made_anew_compiles_nothing() -> None:
    compiled = []

    def listen(name: str, seconds: float, **_: Any) -> None:
        if name == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    run = {"draws": 20, "warmup": 0, "chains": 1, "budget": None, "progress": False}
    offcut.sample(CountingModel(), None, **run)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        offcut.sample(CountingModel(), None, **run)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not compiled


FORK = """
import os, signal, warnings
warnings.simplefilter("ignore")
import jax.numpy as jnp
import offcut

for used in (False, True):
    if used:
        jnp.zeros(3).block_until_ready()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # rather than wait forever
        try:
            offcut.kernel_for(None)
        except Exception as error:
            os.write(1, f"{type(error).__name__} {error}\\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_a_fork_after_the_first_use_is_refused_with_words() -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=120
    )
    before, after = said.stdout.splitlines()
    assert before.startswith("ModelError kernel_for is about rejection models")
    assert after.startswith("SettingsError this process was forked from one that had used JAX")
    assert 'multiprocessing.get_context("spawn")' in after
