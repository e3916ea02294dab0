"""Runs that are kept: what is finished is not done again, what was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import offcut
from offcut.app.html.runs import processor
from offcut.app.reproduce.versus_paper import Length
from offcut.driver.checkpoints import forget
from offcut.files import load_netcdf, made, save_netcdf, write
from offcut.result.tree import versions


class FinishedRun(NamedTuple):
    """A finished run; ``seconds`` is wall-clock time, ``cpu`` processor time, with compiling."""

    posterior: xr.DataTree
    seconds: float
    cpu: float


class RunStore:
    """Finished runs and measurements in a folder, each with what it was made of.

    Parameters
    ----------
    folder : path
        Gets a folder for each run: ``posterior.nc``, ``facts.json``, and while it is under way
        ``checkpoint``.
    tell : callable
        Called with a line of text when something begins or ends.
    progress : bool
        Whether runs show their bars on a terminal.
    """

    def __init__(self, folder: Any, tell: Callable[[str], None], progress: bool = True) -> None:
        self.folder, self.tell, self.progress = Path(folder), tell, progress
        #: Names of what was found finished.
        self.again: list[str] = []

    def sample(
        self,
        name: str,
        model: Any,
        data: np.ndarray,
        length: Length,
        *,
        seed: int = 0,
        kernel: Any = None,
        method: str = "auto",
    ) -> FinishedRun:
        """``offcut.sample``, unless it is done; goes on where an earlier call stopped."""
        home = self.folder / name
        made_of = {
            "model": model.identity() if hasattr(model, "identity") else repr(model),
            "method": method,
            "kernel": repr(kernel),
            "data": hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16],
            "length": list(length),
            "seed": seed,
            **where_it_ran(),
        }
        file = home / "posterior.nc"
        facts = _facts(home, made_of)
        posterior = None if facts is None else self._stored(file)
        if facts is not None and posterior is not None:
            self.again.append(name)
            self.tell(f"{name}: finished before")
            return FinishedRun(posterior, facts["seconds"], facts["cpu"])
        self.tell(
            f"{name}: {length.chains} chains of {length.draws * length.thin:,} sweeps after "
            f"{length.warmup:,} ..."
        )
        # Named after what it is of, so that nothing else can take it for its own.
        digest = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]
        clock = _Clock(home / f"checkpoint-{digest}")
        settings = {**length._asdict(), "seed": seed, "kernel": kernel, "progress": self.progress}
        settings["method"] = method
        with warnings.catch_warnings(), clock:
            warnings.simplefilter("ignore", offcut.errors.TrustWarning)  # they are on the page
            posterior = offcut.sample(model, data, checkpoint=clock.checkpoint, **settings)
            if posterior.attrs["interrupted"]:
                raise KeyboardInterrupt(name)
        (home / "facts.json").unlink(missing_ok=True)  # until the new ones are there
        save_netcdf(posterior, file)
        _keep(home, made_of, {"seconds": clock.seconds, "cpu": clock.cpu})
        clock.forget()
        self.tell(f"{name}: done in {clock.seconds:.0f} s")
        return FinishedRun(posterior, clock.seconds, clock.cpu)

    def _stored(self, file: Path) -> xr.DataTree | None:
        """Draws of an earlier call, unless they are damaged."""
        if not file.is_file():
            return None
        try:
            return load_netcdf(file)
        except Exception as error:  # a damaged file can fail at any byte
            self.tell(f"{file} cannot be read ({error}); it is made again")
            return None

    def measure(self, name: str, made_of: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """What ``compute`` returns (numbers, lists, dicts), unless it is done."""
        home = self.folder / name
        made_of = {**made_of, **where_it_ran()}
        facts = _facts(home, made_of)
        if facts is not None:
            self.again.append(name)
            self.tell(f"{name}: finished before")
            return facts["found"]
        self.tell(f"{name} ...")
        started = time.perf_counter()
        found = compute()
        made(home)
        _keep(home, made_of, {"found": found})
        self.tell(f"{name}: done in {time.perf_counter() - started:.0f} s")
        return found


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
        """The run is finished."""
        forget(self.checkpoint)
        self._file.unlink(missing_ok=True)


@cache
def where_it_ran() -> dict[str, Any]:
    """Versions, the code of this package and the processor: what else a result depends on."""
    code = hashlib.sha256()
    root = Path(offcut.__file__).parent
    for file in sorted(root.rglob("*.py")):
        if "cli" not in file.parts:
            code.update(file.read_bytes())
    return {"versions": versions(), "code": code.hexdigest()[:16], "processor": processor()}


def _facts(home: Path, made_of: dict[str, Any]) -> dict[str, Any] | None:
    """What is known of a finished thing, if it was made of the same."""
    try:
        facts = json.loads((home / "facts.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if facts.get("made_of") == json.loads(json.dumps(made_of)) else None


def _keep(home: Path, made_of: dict[str, Any], facts: dict[str, Any]) -> None:
    write(home / "facts.json", json.dumps({"made_of": made_of, **facts}, indent=1))
