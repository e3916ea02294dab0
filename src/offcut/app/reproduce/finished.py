"""Runs that are kept: what is finished is not done again, what was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xarray as xr

import offcut
from offcut.app.html.runs import processor
from offcut.app.reproduce.versus_paper import Length
from offcut.base import Kernel, Model
from offcut.driver.checkpoints import forget
from offcut.files import load_netcdf, made, save_netcdf, write
from offcut.methods import AUTO
from offcut.programs.identity import digest
from offcut.result.tree import versions

Found = TypeVar("Found")


class FinishedRun(NamedTuple):
    """A finished run; ``seconds`` is wall-clock time, ``cpu`` processor time, with compiling."""

    posterior: xr.DataTree
    seconds: float
    cpu: float

    @property
    def rejected(self) -> np.ndarray:
        """|Y| of each sweep, (chain, draw)."""
        return self.posterior["sample_stats"].dataset["rejected"].values

    def minutes(self, iterations: int) -> float:
        """CPU-minutes that so many sweeps took."""
        attrs = self.posterior.attrs
        sweeps = attrs["chains"] * (attrs["warmup"] + attrs["draws"] * attrs["thin"])
        return iterations * self.cpu / sweeps / 60


class RunStore:
    """Finished runs and measurements in a folder, each with what it was made of.

    Parameters
    ----------
    folder : Path
        Gets a folder for each run: ``posterior.nc``, ``facts.json``, and while it is under way
        ``checkpoint``.
    log : callable
        Called with a line of text when something begins or ends.

    Attributes
    ----------
    again : list of str
        Names of what was found finished.
    runs : list of (label, posterior, seconds)
        All that were asked for.
    """

    def __init__(self, folder: Path, log: Callable[[str], None]) -> None:
        self.folder, self.log = folder, log
        self.again: list[str] = []
        self.runs: list[tuple[str, xr.DataTree, float]] = []

    def sample(
        self,
        name: str,
        model: Model,
        data: np.ndarray,
        length: Length,
        *,
        label: str = "",
        seed: int = 0,
        kernel: Kernel | None = None,
        method: str = AUTO,
    ) -> FinishedRun:
        """``offcut.sample``, unless it is done; goes on where an earlier call stopped."""
        home = self.folder / name
        made_of = {
            "model": str(model.identity()),
            "method": method,
            "kernel": repr(kernel),
            "data": digest(data),
            "length": list(length),
            "seed": seed,
            **where_it_ran(),
        }
        file = home / "posterior.nc"
        facts = _facts(home, made_of)
        posterior = None if facts is None else self._stored(file)
        if facts is not None and posterior is not None:
            self._found(name)
            return self._run(label, FinishedRun(posterior, facts["seconds"], facts["cpu"]))
        self.log(
            f"{name}: {length.chains} chains of {length.draws * length.thin:,} sweeps after "
            f"{length.warmup:,} ..."
        )
        # Named after what it is of, so that nothing else can take it for its own.
        clock = _Clock(home / f"checkpoint-{digest(json.dumps(made_of))}")
        settings = {**length._asdict(), "seed": seed, "kernel": kernel, "progress": False}
        with warnings.catch_warnings(), clock:
            warnings.simplefilter("ignore", offcut.errors.TrustWarning)  # they are on the page
            posterior = offcut.sample(
                model, data, method=method, checkpoint=clock.checkpoint, **settings
            )
            if posterior.attrs["interrupted"]:
                raise KeyboardInterrupt(name)
        (home / "facts.json").unlink(missing_ok=True)  # until the new ones are there
        save_netcdf(posterior, file)
        _keep(home, made_of, {"seconds": clock.seconds, "cpu": clock.cpu})
        clock.forget()
        self.log(f"{name}: done in {clock.seconds:.0f} s")
        return self._run(label, FinishedRun(posterior, clock.seconds, clock.cpu))

    def _run(self, label: str, finished: FinishedRun) -> FinishedRun:
        self.runs.append((label, finished.posterior, finished.seconds))
        return finished

    def _stored(self, file: Path) -> xr.DataTree | None:
        """Draws of an earlier call, unless they are damaged."""
        try:
            return load_netcdf(file) if file.is_file() else None
        except Exception as error:  # a damaged file can fail at any byte
            self.log(f"{file} cannot be read ({error}); it is made again")
            return None

    def measure(self, name: str, made_of: dict[str, object], compute: Callable[[], Found]) -> Found:
        """What ``compute`` returns (numbers, lists, dicts), unless it is done."""
        home = self.folder / name
        made_of = {**made_of, **where_it_ran()}
        facts = _facts(home, made_of)
        if facts is not None:
            self._found(name)
            return facts["found"]
        self.log(f"{name} ...")
        started = time.perf_counter()
        found = compute()
        _keep(made(home), made_of, {"found": found})
        self.log(f"{name}: done in {time.perf_counter() - started:.0f} s")
        return found

    def _found(self, name: str) -> None:
        self.again.append(name)
        self.log(f"{name}: finished before")


class _Clock:
    """Time that a run took, over all calls that it took; unknown where one was killed."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint, self._file = checkpoint, checkpoint.with_suffix(".json")
        self.seconds = self.cpu = 0.0
        if checkpoint.exists():
            try:
                self.seconds, self.cpu = json.loads(self._file.read_text("utf-8"))
            except (OSError, ValueError):
                self.seconds = self.cpu = float("nan")
        made(checkpoint.parent)

    def __enter__(self) -> _Clock:
        self._file.unlink(missing_ok=True)
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started[0]
        self.cpu += time.process_time() - self._started[1]
        if kind is not None:
            write(self._file, json.dumps([self.seconds, self.cpu]))

    def forget(self) -> None:
        forget(self.checkpoint)
        self._file.unlink(missing_ok=True)


@cache
def where_it_ran() -> dict[str, object]:
    """Versions, the code of this package and the processor: what else a result depends on."""
    code = hashlib.sha256()
    root = Path(offcut.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if "cli" not in file.parts:
            code.update(file.read_bytes())
    return {"versions": versions(), "code": code.hexdigest()[:16], "processor": processor()}


def _facts(home: Path, made_of: dict[str, object]) -> dict[str, Any] | None:
    """What is known of a finished thing, if it was made of the same."""
    try:
        facts = json.loads((home / "facts.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if facts.get("made_of") == json.loads(json.dumps(made_of)) else None


def _keep(home: Path, made_of: dict[str, object], facts: dict[str, object]) -> None:
    write(home / "facts.json", json.dumps({"made_of": made_of, **facts}, indent=1))
