"""What the tests of driver, checkpoints and bad input share.

Compiling takes seconds and sampling milliseconds, so models live as long as the session and keep
their compiled programs; child processes share JAX's compilation cache with this one. It has the
functions of tests as well, and where it is on there is none of Offcut's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import config as typing_config
from jaxtyping import install_import_hook

#: Rooms whose annotations are checked in every call of these tests, shapes included.
CHECKED = (
    "offcut.augmentation",
    "offcut.base",
    "offcut.checks",
    "offcut.cytometry",
    "offcut.datasets",
    "offcut.driver",
    "offcut.estimators",
    "offcut.files",
    "offcut.gp",
    "offcut.kernels",
    "offcut.langevin",
    "offcut.methods",
    "offcut.mixtures",
    "offcut.models",
    "offcut.numerics",
    "offcut.programs",
    "offcut.regions",
    "offcut.result",
    "offcut.samplers.algorithm2",
    "offcut.samplers.conjugacy",
    "offcut.samplers.conjugate",
    "offcut.samplers.direct",
    "offcut.samplers.start",
    "offcut.samplers.walk",
    "offcut.tables",
)
#: A whole number is a float too, and a complex number (numpy's ArrayLike relies on it).
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
install_import_hook(list(CHECKED), CHECKER)  # before anything of ours is imported

import kill_me  # noqa: E402
import offcut  # noqa: E402
from disk_cache import events, jax_cache  # noqa: E402, F401 # fixtures
from kill_me import arrays_of  # noqa: E402
from offcut.checks.unvisited import Beyond  # noqa: E402
from offcut.programs import cache as programs  # noqa: E402

TESTS = Path(__file__).parent
#: For workers of pytest-xdist and for children, who inherit the environment.
CACHE = {
    "jax_compilation_cache_dir": "",
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def pytest_configure(config: pytest.Config) -> None:
    jax.config.update("jax_numpy_rank_promotion", "raise")
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # from make: kept between runs
        os.environ.setdefault("OFFCUT_TEST_CACHE", os.environ["JAX_COMPILATION_CACHE_DIR"])
    if "OFFCUT_TEST_CACHE" not in os.environ:
        config.own_cache = os.environ["OFFCUT_TEST_CACHE"] = tempfile.mkdtemp(
            prefix="offcut-cache-"
        )
    CACHE["jax_compilation_cache_dir"] = os.environ["OFFCUT_TEST_CACHE"]
    for name, value in CACHE.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    # For tests that switch JAX's off: never the cache of whoever runs them.
    os.environ["OFFCUT_CACHE"] = str(Path(os.environ["OFFCUT_TEST_CACHE"]) / "offcut")


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "own_cache"):
        shutil.rmtree(config.own_cache, ignore_errors=True)
        del os.environ["OFFCUT_TEST_CACHE"]


#: Modules whose runs look at the prior beforehand and beyond themselves afterwards, as users' do.
#: Elsewhere these looks, which change no draw, would compile for longer than the tests sample.
LOOKING = {"test_trap", "test_unvisited", "test_summary", "test_prior_acceptance"}


@pytest.fixture(scope="module", autouse=True)
def no_looks(request: pytest.FixtureRequest) -> Any:
    if request.module.__name__.split(".")[-1] in LOOKING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offcut.checks.looks.LONG_RUN", np.inf)
        patch.setattr(
            "offcut.checks.unvisited.look_beyond", lambda *_: Beyond(note="not in these tests")
        )
        yield


#: Parts of the library that are in no compiled program.
HOSTS = (
    "programs",
    "driver.chain",
    "driver.checkpoints",
    "driver.machine",
    "sampling",
    "files",
    "app",
    "plots",
    "result",
    "cytometry",
    "tables",
)


@pytest.fixture(autouse=True)
def no_programs_of_patched_code(request: pytest.FixtureRequest) -> Any:
    """A test that replaces something in the library has programs of its own.

    Equal models share programs; what a test replaces is no part of a model.
    """
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    patch, shared = request.getfixturevalue("monkeypatch"), programs.CACHE
    plain, hosts = patch.setattr, tuple(f"offcut.{name}" for name in HOSTS)

    def setattr_with_own_programs(target: Any, *arguments: Any, **options: Any) -> None:
        name = getattr(target, "__module__", None) or getattr(target, "__name__", "")
        name = target if isinstance(target, str) else name
        compiled = name.startswith("offcut") and not name.startswith(hosts)
        if compiled and programs.CACHE is shared:
            programs.CACHE = type(shared)()
        plain(target, *arguments, **options)

    patch.setattr = setattr_with_own_programs
    yield
    programs.CACHE = shared


@pytest.fixture
def unchecked() -> Any:
    """No check of types: for calls that are wrong on purpose, which our own messages answer."""
    typing_config.update("jaxtyping_disable", True)
    yield
    typing_config.update("jaxtyping_disable", False)


@pytest.fixture
def float64() -> Any:
    """Double precision, for tests of parts that ``sample`` would run with it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def truncated_normal() -> offcut.RejectionModel:
    return kill_me.truncated_normal()


@pytest.fixture(scope="session")
def observations() -> np.ndarray:
    return kill_me.observations()


@pytest.fixture(scope="session")
def truncated_regression() -> offcut.RejectionModel:
    return kill_me.truncated_regression()


@pytest.fixture(scope="session")
def regression_data() -> tuple[np.ndarray, np.ndarray]:
    """Observations and covariates."""
    return kill_me.regression_data()


@pytest.fixture(scope="session")
def short_run(truncated_normal: offcut.RejectionModel, observations: np.ndarray) -> Any:
    """An uninterrupted run of the short settings."""
    return offcut.sample(truncated_normal, observations, **kill_me.SHORT)


def assert_same_draws(first: Any, second: Any) -> None:
    """Bitwise, in every variable."""
    a, b = (x if isinstance(x, dict) else arrays_of(x) for x in (first, second))
    assert a.keys() == b.keys()
    assert any(name.startswith("posterior/") for name in a)
    differing = [k for k in a if a[k].dtype != b[k].dtype or a[k].tobytes() != b[k].tobytes()]
    assert not differing


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file()
    }


class Child:
    """``kill_me.py`` with arguments, in a process of its own."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "kill_me.py"), *map(str, arguments)],
            env=os.environ | {"PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        """Poll; fail where the child ends first."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, "the child ended early: " + self.finish().stderr
            assert time.monotonic() < deadline, "the child took too long"
            time.sleep(0.005)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill it and see that it was still running."""
        self.process.send_signal(number)
        assert self.process.wait(60) == -number, "the child was not killed in mid-run"
        self.close()

    def finish(self, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Let it run to its end."""
        out, err = self.process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(self.process.args, self.process.returncode, out, err)

    def close(self) -> None:
        """Kill what still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


@pytest.fixture
def start_child():
    """``start_child(*arguments)`` starts ``kill_me.py``; whatever still runs is ended after."""
    children: list[Child] = []

    def start(*arguments: object) -> Child:
        children.append(Child(*arguments))
        return children[-1]

    yield start
    for child in children:
        child.close()
