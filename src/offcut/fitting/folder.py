"""The directory that results go to, and what is there already."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from offcut.driver.store import refuse_in_use
from offcut.errors import DataError, SettingsError

SETTINGS, REPORT = "settings.json", "report.html"
#: All that a fit writes; ``overwrite`` removes nothing else.
FOLDERS = ("tables", "figures", "checkpoint")


class Folder:
    """Where a fit puts its posterior, tables and report.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_dir():
            raise SettingsError(f"{path} is a file; give a directory with -o")

    def open(self, told: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
        """Make it ready for a fit; whether a run with these settings is finished already."""
        known = self._known()
        strangers = [*self.path.glob("posterior*.nc"), *self.path.glob(REPORT)]
        if known is None and strangers and not overwrite:
            raise SettingsError(
                f"{self.path} holds {strangers[0].name} already, and this run would write over it; "
                "name another directory with -o, or say --overwrite"
            )
        if overwrite and known is not None:
            refuse_in_use(self.path / "checkpoint")
            self._clear()
            known = None
        if known is not None and not resume:
            state = "a finished" if known.get("state") == "finished" else "an unfinished"
            go_on = (
                "--resume writes its report again"
                if known.get("state") == "finished"
                else "--resume goes on with it"
            )
            raise SettingsError(
                f"{self.path} holds {state} run already: {go_on}, --overwrite starts afresh, and "
                "-o names another directory"
            )
        if known is not None:
            self._compare(known, told)
        self.path.mkdir(parents=True, exist_ok=True)
        finished = known is not None and known.get("state") == "finished"
        if not finished:
            self.note({**told, "state": "unfinished"})
        return finished

    def note(self, told: dict[str, Any]) -> None:
        """Write ``settings.json``."""
        self._write(SETTINGS, json.dumps(told, indent=2, default=str) + "\n")

    def known(self) -> dict[str, Any]:
        """What ``settings.json`` says."""
        return self._known() or {}

    def posterior_path(self, group: str) -> Path:
        """The NetCDF file of a group, or of the only run."""
        return self.path / f"posterior{'-' + slug(group) if group else ''}.nc"

    def checkpoint(self, group: str) -> Path:
        """Where a run saves its progress."""
        return self.path / "checkpoint" / (slug(group) or "run")

    def save_posterior(self, group: str, posterior: xr.DataTree) -> Path:
        """Write the draws whole or not at all."""
        path = self.posterior_path(group)
        part = path.with_suffix(".part")
        posterior.to_netcdf(part, engine="h5netcdf")
        os.replace(part, path)
        return path

    def load_posterior(self, group: str) -> xr.DataTree | None:
        """Draws that are there already."""
        path = self.posterior_path(group)
        if not path.is_file():
            return None
        try:
            with xr.open_datatree(path, engine="h5netcdf") as stored:
                return stored.load()
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read ({error}); start afresh with --overwrite"
            ) from error

    def save_table(self, name: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
        """A CSV file among the tables."""
        path = self.path / "tables" / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows([[_cell(value) for value in row] for row in rows])
        return path

    def finish(self, told: dict[str, Any]) -> None:
        """Note that everything is here, and forget the checkpoint."""
        self.note({**told, "state": "finished"})
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    def abandon(self) -> None:
        """Leave nothing behind of a run that never began; other runs' draws stay."""
        if not any(self.path.glob("posterior*.nc")):
            self._clear()
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def _write(self, name: str, text: str) -> None:
        part = self.path / f"{name}.part"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.path / name)

    def _known(self) -> dict[str, Any] | None:
        """None where no fit has been here; an error where it cannot be told."""
        path = self.path / SETTINGS
        if not path.is_file():
            return None
        try:
            known = json.loads(path.read_text("utf-8"))
            fine = isinstance(known, dict) and "request" in known and "state" in known
        except (OSError, ValueError):
            fine = False
        if not fine:
            raise SettingsError(
                f"{path} was not written by offcut fit, or is damaged: name another directory "
                "with -o"
            )
        return known

    def _compare(self, known: dict[str, Any], told: dict[str, Any]) -> None:
        """Refuse to go on with other settings."""
        before, now = _flat(known["request"]), _flat(json.loads(json.dumps(told["request"])))
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        differing = [name for name in differing if name != "file"]  # its content is compared
        if known.get("data") != told["data"]:
            differing.append("content of the file")
            before["content of the file"], now["content of the file"] = "another", "this"
        if differing:
            said = "; ".join(
                f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in differing
            )
            raise SettingsError(
                f"the run in {self.path} had other settings, so it cannot go on with these: "
                f"{said}. Give the same command with --resume, or start afresh with --overwrite"
            )

    def _clear(self) -> None:
        for name in FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
        for path in [self.path / REPORT, self.path / SETTINGS, *self.path.glob("posterior*.nc")]:
            path.unlink(missing_ok=True)


def slug(name: str) -> str:
    """A name that every file system takes.

    >>> slug("CD4+ / low")
    'CD4_low'
    """
    return re.sub(r"[^\w.-]+", "_", name).strip("_.")


def _flat(request: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in request.items() if not isinstance(value, dict)}
    return {**flat, **request.get("sampling", {}), **request.get("options", {})}


def _cell(value: Any) -> Any:
    """Numbers with all their digits, without NumPy's names."""
    return value.item() if hasattr(value, "item") else value
