"""Removing a checkpoint: its own files and nothing else, and never while a process uses it."""

from __future__ import annotations

import re
from pathlib import Path

from offcut.driver.store import _SEGMENT, fcntl
from offcut.errors import CheckpointError

#: Every file of a checkpoint.
_OWN = re.compile(rf"lock|(manifest\.json|budget-\d+\.json|{_SEGMENT.pattern})(\.tmp)?")


def check_free(path: Path) -> None:
    """Refuse a checkpoint that a process uses."""
    if fcntl is None or not (path / "lock").is_file():
        return
    with open(path / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {path} is in use by another process; wait for it, or give another path"
            ) from error


def forget(path: Path) -> None:
    """Remove the files of a checkpoint that nobody uses, and its directory if that empties it."""
    if path.is_symlink() or not path.is_dir():
        return
    check_free(path)
    for file in path.iterdir():
        if _OWN.fullmatch(file.name) and not file.is_dir():
            file.unlink()
    if not any(path.iterdir()):
        path.rmdir()
