"""What Offcut wrote into a directory: it removes nothing else, and knows what it may replace.

A file is Offcut's as long as it is listed and its content is what was written; one that somebody
has changed since is theirs. An entry is listed before its file is put in place, so that a process
may die at any moment.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from offcut.errors import SettingsError
from offcut.files import digest, made, refuse_file, write, writing

MANIFEST = "offcut-manifest.json"
FORMAT = 1
#: The directory of checkpoints, each a directory in it.
CHECKPOINTS = "checkpoint"


class Manifest:
    """The files of a directory that a command of Offcut wrote.

    Parameters
    ----------
    root : Path
        The directory; it need not exist.
    command : str
        Such as "offcut fit"; another command's directory is refused.

    Attributes
    ----------
    there : bool
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

    def __init__(self, root: Path, command: str) -> None:
        refuse_file(root)
        self.root, self.command = root, command
        self.files: dict[str, list[str]] = {}
        self.earlier: dict[str, list[str]] = {}
        self.folders: list[str] = []
        self.checkpoints: list[str] = []
        self.written: set[str] = set()
        self.there = os.path.lexists(root / MANIFEST)
        if self.there:
            self._read()

    def owns(self, name: str) -> bool:
        """Whether a file is here as it was written."""
        path = self.root / name
        if path.is_symlink() or not path.is_file() or not self._is_inside(path):
            return False
        digests = self.files.get(name, []) + self.earlier.get(name, [])
        return bool(digests) and digest(path) in digests

    def strangers(self, *patterns: str) -> list[str]:
        """Names of what is here and was not written by this command, or was changed since."""
        found = [path for pattern in patterns for path in sorted(self.root.glob(pattern))]
        names = [path.relative_to(self.root).as_posix() for path in found]
        return [name for name in names if not self.owns(name)]

    def check_folders(self, *names: str) -> None:
        """Refuse a directory's name that a file has, and a link: it may lead anywhere."""
        for name in names:
            path = self.root / name
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                kind = "a link" if path.is_symlink() else "a file"
                raise SettingsError(
                    f"{path} is {kind}, but files go into a directory of that name; move it away, "
                    "or name another directory with -o"
                )

    def check_files(self, *names: str) -> None:
        """Refuse a file's name that a directory has."""
        for name in names:
            if (self.root / name).is_dir():
                raise SettingsError(
                    f"{self.root / name} is a directory, but a file of that name is to be written; "
                    "move it away, or name another directory with -o"
                )

    def put(self, name: str, content: str | bytes | Path) -> Path:
        """Write a file, or move one here; listed before and after."""
        path = self.root / name
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
            writer.writerow([cell.item() if hasattr(cell, "item") else cell for cell in row])
        return self.put(name, text.getvalue())

    def list_as_is(self, names: Iterable[str]) -> None:
        """Take files that are here already for written by this command."""
        self.files |= {name: [digest(self.root / name)] for name in names}
        self.save()

    def make_folder(self, name: str) -> None:
        """A directory for files, remembered if it is new."""
        made(self.root)
        if name != "." and not (self.root / name).exists():
            self.folders = sorted({*self.folders, name})
            self.save()
            made(self.root / name)

    def remove(self, names: Iterable[str]) -> None:
        """Files that are here as they were written, then directories that this empties."""
        for name in list(names):
            if self.owns(name):
                with writing(self.root / name):
                    (self.root / name).unlink()
            self.files.pop(name, None)
            self.earlier.pop(name, None)
        self.remove_empty()

    def remove_empty(self) -> None:
        """Directories that were made here and hold nothing."""
        for name in sorted(self.folders, reverse=True):  # those inside first
            path = self.root / name
            if path.is_dir() and self._is_inside(path):
                with suppress(OSError):  # it is not empty
                    path.rmdir()
            if not path.exists():
                self.folders.remove(name)
        self.save()

    def save(self) -> None:
        """Write the manifest, or remove it where there is nothing to list."""
        path = self.root / MANIFEST
        kept = {"files": self.files, "earlier": self.earlier, "folders": self.folders}
        kept = {**kept, "checkpoints": self.checkpoints}
        if any(kept.values()):
            made(self.root)
            text = json.dumps(
                {"format": FORMAT, "command": self.command, **kept}, indent=1, sort_keys=True
            )
            write(path, text + "\n")
        else:
            with writing(path):
                path.unlink(missing_ok=True)

    def _read(self) -> None:
        path = self.root / MANIFEST
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
                "nothing was changed: name another directory with -o"
            ) from error
        if command != self.command:
            raise SettingsError(
                f"{self.root} holds what {command!s:.40} wrote; name another directory with -o"
            )

    def _is_inside(self, path: Path) -> bool:
        """Whether no link on the way leads out of the directory."""
        root = self.root.resolve()
        return path.parent.resolve().is_relative_to(root) and not path.is_symlink()


def _names(found: Any) -> list[str]:
    for name in found:
        pure = PurePosixPath(name)
        parts = name.split("/")
        if pure.is_absolute() or not set(parts).isdisjoint(("", ".", "..")) or "\\" in name:
            raise ValueError(f"{name!r} is no name inside of the directory")
    return list(found)


def _digests(found: Any) -> dict[str, list[str]]:
    _names(found)
    return {name: [str(one) for one in digests] for name, digests in found.items()}
