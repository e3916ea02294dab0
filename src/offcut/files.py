"""Files that are written whole or not at all, and errors that name them and say what to do."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offcut.errors import OutputError, SettingsError

if TYPE_CHECKING:
    from xarray import DataTree
else:
    DataTree = object  # xarray is imported where draws are read

#: What to do about what an operating system says.
_ADVICE = {
    errno.ENOSPC: "the disk is full; make room, or name a place on another disk",
    errno.EDQUOT: "your share of the disk is used up; make room, or name a place on another disk",
    errno.EFBIG: "the file system takes no files of this size; name a place on another disk",
    errno.EACCES: "permission is missing; change it, or name another place",
    errno.EPERM: "permission is missing; change it, or name another place",
    errno.EROFS: "nothing can be written there; name another place",
    errno.EISDIR: "a directory stands where a file should; move it away, or name another place",
    errno.ENOTDIR: "a file stands where a directory should; name another place",
    errno.EEXIST: "a file stands where a directory should; name another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.ENOENT: "it is not there; was it removed while it was in use?",
}


def advice(error: OSError) -> str:
    """What to do about an error of the file system, in a line.

    >>> advice(OSError(errno.EROFS, "Read-only file system"))
    'nothing can be written there; name another place'
    """
    known = _ADVICE.get(error.errno or 0)
    return known or "is there room on the disk, and are you allowed to write there?"


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its name where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What fails in here fails for this file: an error that names it and says what to do."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        said = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"{path} cannot be written ({said}): {advice(error)}") from error


def refuse_file(path: Path) -> None:
    """Refuse a file's path where results are to go into a directory."""
    if path.exists() and not path.is_dir():
        raise SettingsError(f"{path} is a file; give a directory with -o")


def digest(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def made(path: Path) -> Path:
    """The directory, made where it was not there."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A place to write to that becomes ``path`` at the end; where writing fails, it goes away."""
    part = path.with_name(path.name + ".part")
    with writing(path):
        try:
            yield part
            os.replace(part, path)
        except (OSError, RuntimeError) as error:  # HDF5 has its own words for a full disk
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise error if isinstance(error, OSError) else OSError(str(error)) from error


def write(path: Path, content: str | bytes) -> Path:
    """A file with this content; where writing fails, what was there before stays."""
    with _replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def save_netcdf(tree: DataTree, path: Path) -> Path:
    """The same for draws."""
    with _replacing(path) as part:
        tree.to_netcdf(part, engine="h5netcdf")
    return path


def load_netcdf(path: Path) -> DataTree:
    """Draws as they were saved; a damaged file can fail at any byte, with any error."""
    import xarray as xr

    with xr.open_datatree(path, engine="h5netcdf") as stored:
        return stored.load()
