"""``offcut cache``: the compiled programs that are kept between runs."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offcut.app.cli.console import examples, out, reported, safe

if TYPE_CHECKING:
    from offcut.programs.disk import Used

EPILOG = f"""Compiled programs are kept for the next run, which need not wait for the compiler then.
OFFCUT_CACHE=DIR names another place, OFFCUT_CACHE=off switches it off.

{examples("offcut cache", "offcut cache --clear")}"""
#: Where JAX's own cache is switched on; then it has our programs as well.
JAX_VARIABLE = "JAX_COMPILATION_CACHE_DIR"


@reported
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all programs.")] = False,
) -> None:
    """Show, or empty, the cache of compiled programs."""
    from offcut.programs import disk

    directory = disk.place()
    if directory is None:
        off = os.environ.get(disk.VARIABLE, "")
        _say("place", f"none: {disk.VARIABLE} is {off!r}" if off else "none: there is no home")
        return
    files = disk.clear(directory) if clear else disk.files(directory)
    _say("place", str(directory))
    _say("removed" if clear else "programs", _amount(files, None if clear else disk.LIMIT))
    if files and not clear:
        _say("last used", f"{_day(files[0])} (oldest) to {_day(files[-1])} (newest)")
    if reason := disk.objection(directory):
        _say("not used", reason)
    elif theirs := os.environ.get(JAX_VARIABLE):
        _say("not used", f"JAX's own cache is switched on ({JAX_VARIABLE}={theirs})")
    elif not _can_be_written(directory):
        _say("read only", "nothing can be written there")


def _say(name: str, text: str) -> None:
    out().print(f"{name:10} {safe(text)}", soft_wrap=True)


def _amount(files: list[Used], limit: int | None) -> str:
    most = f" of at most {limit / 2**20:.0f}" if limit else ""
    return f"{len(files):,}, {sum(file.size for file in files) / 2**20:.1f}{most} MB"


def _day(file: Used) -> str:
    return datetime.fromtimestamp(file.time).strftime("%Y-%m-%d %H:%M")


def _can_be_written(directory: Path) -> bool:
    there = next(path for path in (directory, *directory.parents) if os.path.exists(path))
    return os.access(there, os.W_OK)
