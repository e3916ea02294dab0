"""Compiled programs on disk: files in the user's cache directory, each under the key of a program.

They spare the next process the compiler (``offcut.programs.stored`` makes keys and calls this). The
place is ``platformdirs``' for caches; ``OFFCUT_CACHE`` names another, or is ``off``.

A program that is loaded is executed. So, like ssh with its keys, nothing is read from a directory
or a file that belongs to somebody else or that others may write to. A file has a checksum of its
key and content: one that is torn, damaged or renamed is thrown away. Files appear whole, because
they are written under another name first; so processes need not know of each other, and one that
is killed leaves a part that a later one removes. Together they take at most ``LIMIT`` bytes; what
was not used for longest goes first.

A cache is never worth an error: whatever the file system refuses, ``read`` finds nothing and
``write`` does nothing. Nothing here needs JAX, so that ``offcut cache`` is quick.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import platformdirs

#: Names another place, or switches the cache off.
VARIABLE = "OFFCUT_CACHE"
OFF, ON = {"off", "0", "no", "none", "false"}, {"", "on", "1", "yes", "true"}
#: Bytes of all files together, at most.
LIMIT = 512 * 2**20
#: Seconds after which a file that is still a part was left by a process that was killed.
ABANDONED = 3600.0

#: What a file begins with, before the checksum and the program. They are not compressed: loading
#: takes XLA 100 to 150 ms a megabyte, reading and checking 1.5, and unpacking would take 2.
FORM = b"offcut program 1"
_HEAD = len(FORM) + hashlib.sha256().digest_size
_NAME = re.compile(r"[0-9a-f]{64}\.(program|\w+\.part)")


class Used(NamedTuple):
    """A file of the cache: where it is, its bytes, and when it was used last (seconds of Unix)."""

    path: Path
    size: int
    time: float


def place() -> Path | None:
    """The directory, whether or not it is there; ``None`` where there is no cache."""
    named = os.environ.get(VARIABLE, "").strip()
    if named.lower() in OFF:
        return None
    if named.lower() not in ON:
        named = os.path.expanduser(named)
        return None if named.startswith("~") else Path(named).absolute()
    try:
        directory = platformdirs.user_cache_path("offcut", appauthor=False) / "programs"
    except RuntimeError:  # there is no home; some versions say "~/..."
        return None
    return directory if directory.is_absolute() else None


def objection(directory: Path) -> str | None:
    """Why nothing is read from this directory; ``None`` where all is well, or nothing there yet."""
    try:
        found = directory.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    return _not_private(found)


def read(key: str) -> bytes | None:
    """The program of this key, if there is one that may be trusted; it counts as used now."""
    with contextlib.suppress(OSError):
        directory = place()
        if directory is None or objection(directory):
            return None
        path = directory / f"{key}.program"
        program = _program(path, key)
        with contextlib.suppress(OSError):
            if program is None:
                path.unlink()
            else:
                os.utime(path)
        return program
    return None


def remove(key: str) -> None:
    """Forget a program that cannot be loaded, whatever its checksum says."""
    with contextlib.suppress(OSError):
        if directory := place():
            (directory / f"{key}.program").unlink()


def write(key: str, program: bytes) -> bool:
    """Keep a program, and throw out others where it gets too much; whether that was possible."""
    with contextlib.suppress(OSError):
        directory = place()
        if directory is None or len(program) + _HEAD > LIMIT:
            return False
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if objection(directory):
            return False
        descriptor, part = tempfile.mkstemp(".part", f"{key}.", directory)  # for its owner alone
        try:
            with open(descriptor, "wb") as file:
                file.write(FORM + _checksum(key, program))
                file.write(program)
            os.replace(part, directory / f"{key}.program")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        _trim(directory)
        return True
    return False


def files(directory: Path) -> list[Used]:
    """All files of the cache, parts too; what was not used for longest comes first."""
    return sorted(_files(directory), key=lambda file: file.time)


def clear(directory: Path) -> list[Used]:
    """Remove all files of the cache, and nothing else that may be there; what was removed."""
    removed = files(directory)
    for file in removed:
        file.path.unlink(missing_ok=True)
    return removed


def _files(directory: Path) -> Iterator[Used]:
    try:
        entries = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    found = entry.stat(follow_symlinks=False)
                    yield Used(Path(entry.path), found.st_size, found.st_mtime)


def _trim(directory: Path) -> None:
    found, now = files(directory), time.time()
    total = sum(file.size for file in found)
    for file in found:
        abandoned = file.path.suffix == ".part" and now - file.time > ABANDONED
        if total > LIMIT or abandoned:
            with contextlib.suppress(OSError):
                file.path.unlink()
            total -= file.size


def _program(path: Path, key: str) -> bytes | None:
    """What a file holds; ``None`` where it is not a whole file of ours."""
    if path.is_symlink():
        return None
    with path.open("rb") as file:
        if _not_private(os.fstat(file.fileno())):
            return None
        head, program = file.read(_HEAD), file.read()
    return program if head == FORM + _checksum(key, program) else None


def _checksum(key: str, program: bytes) -> bytes:
    whole = hashlib.sha256(key.encode())
    whole.update(program)
    return whole.digest()


def _not_private(found: os.stat_result) -> str | None:
    """Why somebody else could have put something there."""
    if not hasattr(os, "geteuid"):
        return None  # Windows: what is in a user's profile is the user's
    if found.st_uid != os.geteuid():
        return "it belongs to somebody else"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it (chmod go-w)"
    return None
