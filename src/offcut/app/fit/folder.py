"""The directory that results go to, and what is there already.

What Offcut wrote into it is listed in a manifest; it removes nothing else, and knows what it may
replace. A file is Offcut's as long as it is listed and its content is what was written; one that
somebody has changed since is theirs. An entry is listed before its file is put in place, so that a
process may die at any moment.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import xarray as xr

from offcut.driver.checkpoints import forget, refuse_in_use
from offcut.errors import DataError, SettingsError
from offcut.files import digest, load_netcdf, made, refuse_file, save_netcdf, write, writing

MANIFEST, SETTINGS, REPORT = "offcut-manifest.json", "settings.json", "report.html"
#: Of the manifest.
FORMAT = 1
#: The directory of checkpoints, each a directory in it.
CHECKPOINTS = "checkpoint"
#: Behind the name of a checkpoint whose run is being overwritten.
EARLIER = ".earlier"
#: Directories that a fit may write into, and what it may write there.
TABLES, FIGURES = "tables", "figures"
INSIDE = (f"{TABLES}/*.csv", f"{FIGURES}/*.svg")
#: At the end of messages.
ELSEWHERE = "name another directory with -o"


class OwnedFolder:
    """A directory, and which of its files a command of Offcut wrote.

    Parameters
    ----------
    path : Path
        The directory; it need not exist.
    command : str
        Such as "offcut fit"; another command's directory is refused.

    Attributes
    ----------
    has_manifest : bool
        Whether the directory had a manifest.
    files : dict from name to digests
        Names are relative, with slashes; a file has one of the digests.
    earlier : dict from name to digests
        Files of a run that is being overwritten, until there is something to replace them.
    folders : list of str
        Directories that were made for files.
    checkpoints : list of str
        Directories of checkpoints.
    """

    def __init__(self, path: Path, command: str) -> None:
        refuse_file(path)
        self.path, self.command = path, command
        self.files: dict[str, list[str]] = {}
        self.earlier: dict[str, list[str]] = {}
        self.folders: list[str] = []
        self.checkpoints: list[str] = []
        self.written: set[str] = set()
        self.has_manifest = os.path.lexists(path / MANIFEST)
        if self.has_manifest:
            self._read()

    def owns(self, name: str) -> bool:
        """Whether a file is here as it was written."""
        path = self.path / name
        if path.is_symlink() or not path.is_file() or not self._is_inside(path):
            return False
        digests = self.files.get(name, []) + self.earlier.get(name, [])
        return bool(digests) and digest(path) in digests

    def strangers(self, *patterns: str) -> list[str]:
        """Names of what is here and was not written by this command, or was changed since."""
        found = [path for pattern in patterns for path in sorted(self.path.glob(pattern))]
        names = [path.relative_to(self.path).as_posix() for path in found]
        return [name for name in names if not self.owns(name)]

    def check_folders(self, *names: str) -> None:
        """Refuse a directory's name that a file has, and a link: it may lead anywhere."""
        for path in (self.path / name for name in names):
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                kind = "a link" if path.is_symlink() else "a file"
                raise SettingsError(
                    f"{path} is {kind}, but files go into a directory of that name; move it away, "
                    f"or {ELSEWHERE}"
                )

    def check_files(self, *names: str) -> None:
        """Refuse a file's name that a directory has."""
        for path in (self.path / name for name in names):
            if path.is_dir():
                raise SettingsError(
                    f"{path} is a directory, but a file of that name is to be written; move it "
                    f"away, or {ELSEWHERE}"
                )

    def put(self, name: str, content: str | bytes | Path) -> Path:
        """Write a file, or move one here; listed before and after."""
        path = self.path / name
        self.make_folder(str(PurePosixPath(name).parent))
        if isinstance(content, Path):
            written = digest(content)
        else:
            content = content.encode() if isinstance(content, str) else content
            written = hashlib.sha256(content).hexdigest()
        before = self.files.get(name, []) + self.earlier.get(name, [])
        self.files[name] = [*before, written]
        self.save()
        if isinstance(content, Path):
            with writing(path):
                os.replace(content, path)
        else:
            write(path, content)
        self.files[name] = [written]
        self.earlier.pop(name, None)
        self.written.add(name)
        self.save()
        return path

    def put_table(self, name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
        """Write a CSV file; numbers have all their digits, without NumPy's names."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(head)
        for row in rows:
            writer.writerow([cell.item() if isinstance(cell, np.generic) else cell for cell in row])
        return self.put(name, text.getvalue())

    def make_folder(self, name: str) -> None:
        """A directory for files, remembered if it is new."""
        made(self.path)
        if name != "." and not (self.path / name).exists():
            self.folders = sorted({*self.folders, name})
            self.save()
            made(self.path / name)

    def remove(self, names: Iterable[str]) -> None:
        """Files that are here as they were written, then directories that this empties."""
        for name in list(names):
            if self.owns(name):
                with writing(self.path / name):
                    (self.path / name).unlink()
            self.files.pop(name, None)
            self.earlier.pop(name, None)
        for name in sorted(self.folders, reverse=True):  # those inside first
            path = self.path / name
            if path.is_dir() and self._is_inside(path):
                with suppress(OSError):  # it is not empty
                    path.rmdir()
            if not path.exists():
                self.folders.remove(name)
        self.save()

    def save(self) -> None:
        """Write the manifest, or remove it where there is nothing to list."""
        path = self.path / MANIFEST
        listed = {
            "files": self.files,
            "earlier": self.earlier,
            "folders": self.folders,
            "checkpoints": self.checkpoints,
        }
        if any(listed.values()):
            made(self.path)
            whole = {"format": FORMAT, "command": self.command, **listed}
            write(path, json.dumps(whole, indent=1, sort_keys=True) + "\n")
        else:
            with writing(path):
                path.unlink(missing_ok=True)

    def _read(self) -> None:
        path = self.path / MANIFEST
        try:
            if path.is_symlink():
                raise ValueError("it is a link")
            found = json.loads(path.read_text("utf-8"))
            command = found["command"]
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, not {FORMAT}")
            self.files, self.earlier = _digests(found["files"]), _digests(found["earlier"])
            self.folders, self.checkpoints = _names(found["folders"]), _names(found["checkpoints"])
            for name in self.checkpoints:
                if PurePosixPath(name).parent != PurePosixPath(CHECKPOINTS):
                    raise ValueError(f"{name!r} is no place for a checkpoint")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SettingsError(
                f"{path} is damaged ({error}), so it is not known which files are Offcut's; "
                f"nothing was changed: {ELSEWHERE}"
            ) from error
        if command != self.command:
            raise SettingsError(f"{self.path} holds what {command!s:.40} wrote; {ELSEWHERE}")

    def _is_inside(self, path: Path) -> bool:
        """Whether no link on the way leads out of the directory."""
        root = self.path.resolve()
        return path.parent.resolve().is_relative_to(root) and not path.is_symlink()


def _names(found: Iterable[str]) -> list[str]:
    for name in found:
        parts = name.split("/")
        absolute = PurePosixPath(name).is_absolute()
        if absolute or not set(parts).isdisjoint(("", ".", "..")) or "\\" in name:
            raise ValueError(f"{name!r} is no name inside of the directory")
    return list(found)


def _digests(found: Mapping[str, Iterable[object]]) -> dict[str, list[str]]:
    return {name: [str(one) for one in found[name]] for name in _names(found)}


class Folder(OwnedFolder):
    """Where a fit puts its posterior, tables and report.

    Files of an earlier run that is overwritten stay until the new one has drawn.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "offcut fit")
        self._settings_before: bytes | None = None
        self._checkpoints_before: list[str] = []
        self._drawn = False

    def open(
        self,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        overwrite: bool,
        groups: Collection[str] = ("",),
    ) -> bool:
        """Make it ready for a fit; whether a run with these settings is finished already.

        Everything is checked before anything is changed.
        """
        known = self._known()
        finished = known is not None and known["state"] == "finished"
        self._check_room(known, resume, overwrite, groups)
        if known is not None and not resume and not overwrite:
            state = "a finished" if finished else "an unfinished"
            go_on = "writes its report again" if finished else "goes on with it"
            raise SettingsError(
                f"{self.path} holds {state} run already: --resume {go_on}, --overwrite starts "
                "afresh, and -o names another directory"
            )
        if known is not None and not overwrite:
            self._compare(known, settings)
        self._settings_before = (self.path / SETTINGS).read_bytes() if known is not None else None
        if overwrite:
            self._retire()
        elif known is not None and not self.has_manifest:  # of a version without manifests
            names = [self.posterior_path(group).name for group in groups]
            there = [name for name in names if (self.path / name).is_file()]
            self.files |= {name: [digest(self.path / name)] for name in there}
            self.save()
        self._checkpoints_before = list(self.checkpoints)
        if overwrite or not finished:
            self.note({**settings, "state": "unfinished"})
        return finished and not overwrite

    def _check_room(
        self, known: dict[str, Any] | None, resume: bool, overwrite: bool, groups: Collection[str]
    ) -> None:
        """Refuse to write over what this command did not write, or what was changed since."""
        own = [self.posterior_path(group).name for group in groups]
        self.check_folders(TABLES, FIGURES, CHECKPOINTS)
        self.check_files(SETTINGS, REPORT, MANIFEST, *own)
        for name in self.checkpoints:
            refuse_in_use(self.path / name)
        without_manifest = known is not None and not self.has_manifest and resume
        mine = {name.removesuffix(EARLIER) for name in self.checkpoints}
        for name in (f"{CHECKPOINTS}/{slug(group) or 'run'}" for group in groups):
            if (self.path / name).exists() and name not in mine and not without_manifest:
                raise SettingsError(
                    f"{self.path / name} is there already and is not of this run; move it away, or "
                    f"{ELSEWHERE}"
                )
        if overwrite or without_manifest:
            return
        if known is not None and not resume:
            return  # which is refused with better words
        strangers = self.strangers(*own, REPORT, *INSIDE)
        if strangers:
            listed = strangers[0] in self.files
            said = "was changed since offcut wrote it" if listed else "was not written by this run"
            raise SettingsError(
                f"{self.path} holds {strangers[0]} already, which {said} and might be written "
                f"over; move it away, or {ELSEWHERE}" + ("" if known else ", or say --overwrite")
            )

    def _retire(self) -> None:
        """Set aside what the run to be overwritten left; ``abandon`` brings it back."""
        self.earlier, self.files = {**self.earlier, **self.files}, {}
        pairs = {name.removesuffix(EARLIER) for name in self.checkpoints}
        self.checkpoints = sorted([*pairs, *(name + EARLIER for name in pairs)])
        self.save()  # whenever the process dies, both are known
        for path in (self.path / name for name in pairs):
            if path.is_dir():
                aside = path.with_name(path.name + EARLIER)
                forget(aside)
                if aside.exists():
                    raise SettingsError(
                        f"{aside} holds files that are not of a checkpoint; move them away, or "
                        f"{ELSEWHERE}"
                    )
                with writing(aside):
                    os.replace(path, aside)
        self.checkpoints = [name for name in self.checkpoints if (self.path / name).is_dir()]
        self.save()

    def note(self, settings: Mapping[str, Any]) -> None:
        self.put(SETTINGS, json.dumps(settings, indent=2, default=str) + "\n")

    def known(self) -> dict[str, Any]:
        """What ``settings.json`` says."""
        return self._known() or {}

    def posterior_path(self, group: str) -> Path:
        """The NetCDF file of a group, or of the only run."""
        return self.path / f"posterior{'-' + slug(group) if group else ''}.nc"

    def checkpoint(self, group: str) -> Path:
        name = f"{CHECKPOINTS}/{slug(group) or 'run'}"
        self.make_folder(CHECKPOINTS)
        self.checkpoints = sorted({*self.checkpoints, name})
        self.save()
        return self.path / name

    def save_posterior(self, group: str, posterior: xr.DataTree) -> Path:
        """Write the draws whole or not at all; what they overwrite goes now."""
        path = self.posterior_path(group)
        part = save_netcdf(posterior, path.with_suffix(".new"))
        try:
            for name in [name for name in self.checkpoints if name.endswith(EARLIER)]:
                self._forget_checkpoint(name)
            self.remove(name for name in self.earlier if name not in self.files)
            self._drawn = True
            return self.put(path.name, part)
        finally:
            part.unlink(missing_ok=True)

    def _forget_checkpoint(self, name: str) -> None:
        with writing(self.path / name):
            forget(self.path / name)
        self.checkpoints.remove(name)

    def load_posterior(self, group: str) -> xr.DataTree | None:
        path = self.posterior_path(group)
        listed = path.name in self.files or not self.has_manifest
        if not path.is_file() or not listed:
            return None
        try:
            return load_netcdf(path)
        except Exception as error:  # a damaged file can fail at any byte
            raise DataError(
                f"{path} cannot be read ({error}); start afresh with --overwrite"
            ) from error

    def save_table(self, name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
        return self.put_table(f"{TABLES}/{name}.csv", head, rows)

    def save_figure(self, name: str, text: str) -> Path:
        return self.put(f"{FIGURES}/{name}", text)

    def finish(self, settings: Mapping[str, Any]) -> None:
        """Note that everything is here; forget the checkpoint, and what is no longer written."""
        self.note({**settings, "state": "finished"})
        for name in list(self.checkpoints):
            self._forget_checkpoint(name)
        inside = [name for name in self.files if name.startswith((f"{TABLES}/", f"{FIGURES}/"))]
        self.remove(name for name in inside if name not in self.written)

    def abandon(self) -> None:
        """Undo ``open``: leave nothing behind of a run that never began."""
        posteriors = [name for name in self.files if name.startswith("posterior")]
        if self._drawn or any((self.path / name).is_file() for name in posteriors):
            return
        for name in list(self.checkpoints):
            if name not in self._checkpoints_before:
                self._forget_checkpoint(name)
        for name in self.checkpoints:
            if name.endswith(EARLIER):
                with writing(self.path / name):
                    os.replace(self.path / name, self.path / name.removesuffix(EARLIER))
        self.checkpoints = [name.removesuffix(EARLIER) for name in self.checkpoints]
        self.files, self.earlier = {**self.earlier, **self.files}, {}
        if self._settings_before is None:
            self.remove([SETTINGS])
        else:
            self.put(SETTINGS, self._settings_before)
            self.remove([])
        if not any(self.path.iterdir()):
            self.path.rmdir()

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
            raise SettingsError(f"{path} was not written by offcut fit, or is damaged: {ELSEWHERE}")
        return known

    def _compare(self, known: dict[str, Any], settings: Mapping[str, Any]) -> None:
        """Refuse to go on with other settings."""
        before, now = _flat(known["request"]), _flat(json.loads(json.dumps(settings["request"])))
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        differing = [name for name in differing if name != "file"]  # its content is compared
        if known.get("data") != settings["data"]:
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
