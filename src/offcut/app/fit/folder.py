"""The directory that results go to, and what is there already."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from offcut.app.fit.manifest import CHECKPOINTS, MANIFEST, Manifest
from offcut.driver.checkpoints import forget, refuse_in_use
from offcut.errors import DataError, SettingsError
from offcut.files import load_netcdf, save_netcdf, writing

SETTINGS, REPORT = "settings.json", "report.html"
#: Directories that a fit may write into, and what it may write there.
TABLES, FIGURES = "tables", "figures"
#: Behind the name of a checkpoint whose run is being overwritten.
EARLIER = ".earlier"
INSIDE = (f"{TABLES}/*.csv", f"{FIGURES}/*.svg")


class Folder:
    """Where a fit puts its posterior, tables and report.

    What it wrote is listed in a manifest, and it removes nothing else. Files of an earlier run
    that is overwritten stay until the new one has drawn.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = Manifest(path, "offcut fit")
        self._settings_before: bytes | None = None
        self._checkpoints_before: list[str] = []
        self._drawn = False

    def open(
        self,
        told: dict[str, Any],
        *,
        resume: bool,
        overwrite: bool,
        groups: Collection[str] = ("",),
    ) -> bool:
        """Make it ready for a fit; whether a run with these settings is finished already.

        Everything is checked before anything is changed.
        """
        known = self._known()
        self._check_room(known, resume, overwrite, groups)
        if known is not None and not resume and not overwrite:
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
        if known is not None and not overwrite:
            self._compare(known, told)
        settings = self.path / SETTINGS
        self._settings_before = settings.read_bytes() if known is not None else None
        if overwrite:
            self._retire()
        elif known is not None and not self.manifest.there:
            self._adopt(groups)
        self._checkpoints_before = list(self.manifest.checkpoints)
        finished = not overwrite and known is not None and known.get("state") == "finished"
        if not finished:
            self.note({**told, "state": "unfinished"})
        return finished

    def _check_room(
        self, known: dict[str, Any] | None, resume: bool, overwrite: bool, groups: Collection[str]
    ) -> None:
        """Refuse to write over what this command did not write, or what was changed since."""
        manifest = self.manifest
        own = [self.posterior_path(group).name for group in groups]
        manifest.check_folders(TABLES, FIGURES, CHECKPOINTS)
        manifest.check_files(SETTINGS, REPORT, MANIFEST, *own)
        for name in manifest.checkpoints:
            refuse_in_use(self.path / name)
        from_before = known is not None and not manifest.there  # by a version without manifests
        there = [f"{CHECKPOINTS}/{slug(group) or 'run'}" for group in groups]
        mine = {name.removesuffix(EARLIER) for name in manifest.checkpoints}
        for name in there:
            if (self.path / name).exists() and name not in mine and not (from_before and resume):
                raise SettingsError(
                    f"{self.path / name} is there already and is not of this run; move it away, or "
                    "name another directory with -o"
                )
        if overwrite or (from_before and resume):
            return
        if known is not None and not resume:
            return  # which is refused with better words
        strangers = manifest.strangers(*own, REPORT, *INSIDE)
        if strangers:
            listed = strangers[0] in manifest.files
            said = "was changed since offcut wrote it" if listed else "was not written by this run"
            do = "move it away, or name another directory with -o"
            raise SettingsError(
                f"{self.path} holds {strangers[0]} already, which {said} and might be written "
                f"over; {do}" + ("" if known else ", or say --overwrite")
            )

    def _adopt(self, groups: Collection[str]) -> None:
        """List the draws of a run from before there were manifests; it is this one."""
        names = [self.posterior_path(group).name for group in groups]
        self.manifest.list_as_is([name for name in names if (self.path / name).is_file()])

    def _retire(self) -> None:
        """Set aside what the run to be overwritten left; ``abandon`` brings it back."""
        manifest = self.manifest
        manifest.earlier = {**manifest.earlier, **manifest.files}
        manifest.files = {}
        pairs = {name.removesuffix(EARLIER) for name in manifest.checkpoints}
        manifest.checkpoints = sorted([*pairs, *(name + EARLIER for name in pairs)])
        manifest.save()  # whenever the process dies, both are known
        for name in pairs:
            if (self.path / name).is_dir():
                self._set_aside(name)
        manifest.checkpoints = [n for n in manifest.checkpoints if (self.path / n).is_dir()]
        manifest.save()

    def _set_aside(self, name: str) -> None:
        path, aside = self.path / name, self.path / (name + EARLIER)
        forget(aside)
        if aside.exists():
            raise SettingsError(
                f"{aside} holds files that are not of a checkpoint; move them away, or name "
                "another directory with -o"
            )
        with writing(aside):
            os.replace(path, aside)

    def note(self, told: dict[str, Any]) -> None:
        """Write ``settings.json``."""
        self.manifest.put(SETTINGS, json.dumps(told, indent=2, default=str) + "\n")

    def known(self) -> dict[str, Any]:
        """What ``settings.json`` says."""
        return self._known() or {}

    def posterior_path(self, group: str) -> Path:
        """The NetCDF file of a group, or of the only run."""
        return self.path / f"posterior{'-' + slug(group) if group else ''}.nc"

    def checkpoint(self, group: str) -> Path:
        """Where a run saves its progress."""
        name = f"{CHECKPOINTS}/{slug(group) or 'run'}"
        self.manifest.make_folder(CHECKPOINTS)
        self.manifest.checkpoints = sorted({*self.manifest.checkpoints, name})
        self.manifest.save()
        return self.path / name

    def save_posterior(self, group: str, posterior: xr.DataTree) -> Path:
        """Write the draws whole or not at all; what they overwrite goes now."""
        path = self.posterior_path(group)
        part = save_netcdf(posterior, path.with_suffix(".new"))
        try:
            self._forget_earlier()
            return self.manifest.put(path.name, part)
        finally:
            part.unlink(missing_ok=True)

    def _forget_earlier(self) -> None:
        for name in [name for name in self.manifest.checkpoints if name.endswith(EARLIER)]:
            self._forget_checkpoint(name)
        self.manifest.remove(
            name for name in self.manifest.earlier if name not in self.manifest.files
        )
        self._drawn = True

    def _forget_checkpoint(self, name: str) -> None:
        with writing(self.path / name):
            forget(self.path / name)
        self.manifest.checkpoints.remove(name)

    def load_posterior(self, group: str) -> xr.DataTree | None:
        """Draws that are there already."""
        path = self.posterior_path(group)
        listed = path.name in self.manifest.files or not self.manifest.there
        if not path.is_file() or not listed:
            return None
        try:
            return load_netcdf(path)
        except Exception as error:  # a damaged file can fail at any byte
            raise DataError(
                f"{path} cannot be read ({error}); start afresh with --overwrite"
            ) from error

    def save_table(self, name: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
        """A CSV file among the tables."""
        return self.manifest.put_table(f"{TABLES}/{name}.csv", head, rows)

    def save_figure(self, name: str, text: str) -> Path:
        """A picture of the report."""
        return self.manifest.put(f"{FIGURES}/{name}", text)

    def save_report(self, text: str) -> Path:
        """The page."""
        return self.manifest.put(REPORT, text)

    def finish(self, told: dict[str, Any]) -> None:
        """Note that everything is here; forget the checkpoint, and what is no longer written."""
        self.note({**told, "state": "finished"})
        manifest = self.manifest
        for name in list(manifest.checkpoints):
            self._forget_checkpoint(name)
        inside = [n for n in manifest.files if n.startswith((f"{TABLES}/", f"{FIGURES}/"))]
        manifest.remove(name for name in inside if name not in manifest.written)

    def abandon(self) -> None:
        """Undo ``open``: leave nothing behind of a run that never began."""
        manifest = self.manifest
        if self._drawn or any((self.path / name).is_file() for name in self._posteriors()):
            return
        for name in list(manifest.checkpoints):
            if name not in self._checkpoints_before:
                self._forget_checkpoint(name)
        for name in list(manifest.checkpoints):
            if name.endswith(EARLIER):
                with writing(self.path / name):
                    os.replace(self.path / name, self.path / name.removesuffix(EARLIER))
        manifest.checkpoints = [name.removesuffix(EARLIER) for name in manifest.checkpoints]
        manifest.files, manifest.earlier = {**manifest.earlier, **manifest.files}, {}
        if self._settings_before is None:
            manifest.remove([SETTINGS])
        else:
            manifest.put(SETTINGS, self._settings_before)
        manifest.remove_empty()
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def _posteriors(self) -> list[str]:
        return [name for name in self.manifest.files if name.startswith("posterior")]

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


def slug(name: str) -> str:
    """A name that every file system takes.

    >>> slug("CD4+ / low")
    'CD4_low'
    """
    return re.sub(r"[^\w.-]+", "_", name).strip("_.")


def _flat(request: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in request.items() if not isinstance(value, dict)}
    return {**flat, **request.get("sampling", {}), **request.get("options", {})}
