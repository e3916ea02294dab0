"""Runs that are kept: what is finished is not done again, what was interrupted goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

import offcut
from offcut.reproduction.lengths import Length
from offcut.result.tree import versions


class Kept(NamedTuple):
    """A finished run; ``seconds`` is wall-clock time, ``cpu`` processor time, with compiling."""

    posterior: xr.DataTree
    seconds: float
    cpu: float


class Keeper:
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
    ) -> Kept:
        """``offcut.sample``, unless it is done; goes on where an earlier call stopped."""
        home = self.folder / name
        made_of = {
            "model": model.identity() if hasattr(model, "identity") else repr(model),
            "kernel": repr(kernel),
            "data": hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16],
            "length": list(length),
            "seed": seed,
            "versions": versions(),
        }
        file = home / "posterior.nc"
        facts = _facts(home, made_of)
        if facts is not None and file.is_file():
            with xr.open_datatree(file, engine="h5netcdf") as stored:
                posterior = stored.load()
            self.again.append(name)
            self.tell(f"{name}: finished before")
            return Kept(posterior, facts["seconds"], facts["cpu"])
        self.tell(
            f"{name}: {length.chains} chains of {length.draws * length.thin:,} sweeps after "
            f"{length.warmup:,} ..."
        )
        home.mkdir(parents=True, exist_ok=True)
        started, cpu = time.perf_counter(), time.process_time()
        posterior = self._run(home, model, data, length, seed, kernel)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        if posterior.attrs["interrupted"]:
            raise KeyboardInterrupt(name)
        partly = home / "posterior.part"
        posterior.to_netcdf(partly, engine="h5netcdf")
        partly.replace(file)
        _keep(home, made_of, {"seconds": seconds, "cpu": cpu})
        shutil.rmtree(home / "checkpoint", ignore_errors=True)
        self.tell(f"{name}: done in {seconds:.0f} s")
        return Kept(posterior, seconds, cpu)

    def _run(
        self, home: Path, model: Any, data: np.ndarray, length: Length, seed: int, kernel: Any
    ) -> xr.DataTree:
        """A checkpoint of something else is thrown away; warnings are on the page."""
        settings = {
            "draws": length.draws,
            "warmup": length.warmup,
            "thin": length.thin,
            "chains": length.chains,
            "seed": seed,
            "kernel": kernel,
            "progress": self.progress,
            "checkpoint": home / "checkpoint",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", offcut.errors.TrustWarning)
            try:
                return offcut.sample(model, data, **settings)
            except offcut.errors.CheckpointError:
                shutil.rmtree(home / "checkpoint", ignore_errors=True)
                return offcut.sample(model, data, **settings)

    def measure(self, name: str, made_of: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """What ``compute`` returns (numbers, lists, dicts), unless it is done."""
        home = self.folder / name
        made_of = {**made_of, "versions": versions()}
        facts = _facts(home, made_of)
        if facts is not None:
            self.again.append(name)
            self.tell(f"{name}: finished before")
            return facts["found"]
        self.tell(f"{name} ...")
        started = time.perf_counter()
        found = compute()
        home.mkdir(parents=True, exist_ok=True)
        _keep(home, made_of, {"found": found})
        self.tell(f"{name}: done in {time.perf_counter() - started:.0f} s")
        return found


def _facts(home: Path, made_of: dict[str, Any]) -> dict[str, Any] | None:
    """What is known of a finished thing, if it was made of the same."""
    try:
        facts = json.loads((home / "facts.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return facts if facts.get("made_of") == json.loads(json.dumps(made_of)) else None


def _keep(home: Path, made_of: dict[str, Any], facts: dict[str, Any]) -> None:
    partly = home / "facts.part"
    partly.write_text(json.dumps({"made_of": made_of, **facts}, indent=1), encoding="utf-8")
    partly.replace(home / "facts.json")
