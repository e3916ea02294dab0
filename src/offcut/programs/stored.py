"""Compiled, or loaded where an earlier process compiled the same: between JAX and the disk.

The key of a program is that of JAX's own persistent cache (the lowered module without locations in
the source, options and flags of XLA, its version, the kind of device), and what that may leave out:
the processor's model and features, since different machines may share a home, and the number of
cores that XLA divides work for.

JAX's cache itself is not used: it is switched on for a whole process, the user's own functions
included, warns of what goes wrong, and a process that is killed leaves torn files in it. Where the
user has switched it on, it has our programs as all others, and ours is not needed; where the user
has forbidden it (``jax_enable_compilation_cache``), there is none.

JAX compiles on a *backend*, which a lowered program holds. For the time of its compilation ours
holds one that looks on the disk before it compiles; nothing else of JAX is touched. These are
private parts (``tests/programs/test_jax_parts.py`` names them): where a version lacks one, programs
are compiled and not kept.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.stages import Compiled, Lowered

from offcut.programs import disk

#: Events for listeners of ``jax.monitoring``: a program was loaded, or compiled and kept.
LOADED, KEPT = "/offcut/programs/loaded", "/offcut/programs/kept"
#: Lines of /proc/cpuinfo that tell processors apart, and those of them that list features.
MODEL = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "cpu"),
    *("cpu implementer", "cpu architecture", "cpu variant", "cpu part", "cpu revision"),
}
FEATURES = {"flags", "features", "isa"}


def compiled(lowered: Lowered, options: dict[str, Any]) -> Compiled:
    """``lowered.compile(options)``, and kept for other processes where that is possible."""
    arguments = getattr(getattr(lowered, "_lowering", None), "compile_args", None)
    if isinstance(arguments, dict) and _can_be_kept(arguments):
        backend = arguments["backend"]
        try:
            arguments["backend"] = _Backend(backend)
            return lowered.compile(options)
        except Exception:  # JAX is not as we know it; or the compiler's own, which it raises again
            pass
        finally:
            arguments["backend"] = backend
    return lowered.compile(options)


def _can_be_kept(arguments: dict[str, Any]) -> bool:
    """Whether a cache is wanted, and another process could run this program."""
    theirs = getattr(jax.config, "jax_compilation_cache_dir", None)
    allowed = getattr(jax.config, "jax_enable_compilation_cache", True)
    if theirs or not allowed:
        return False
    # What runs on the host in between is a function of this process.
    if any(arguments.get(name, True) for name in ("host_callbacks", "keepalive")):
        return False
    return getattr(arguments.get("backend"), "platform", None) == "cpu"


class _Backend:
    """A backend of JAX that looks on the disk before it compiles.

    On anything but a CPU it does not: nobody has tried.
    """

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile_and_load(self, module: Any, **named: Any) -> Any:
        key = self._key(module, **named)
        if key is None:
            return self._backend.compile_and_load(module, **named)
        found = disk.read(key)
        if found is not None:
            try:
                program = self._backend.deserialize_executable(
                    found, named["executable_devices"], named["compile_options"]
                )
            except Exception:  # whatever XLA says of what it cannot read
                disk.remove(key)
            else:
                jax.monitoring.record_event(LOADED)
                return program
        program = self._backend.compile_and_load(module, **named)
        try:
            if disk.write(key, program.serialize()):
                jax.monitoring.record_event(KEPT)
        except Exception:  # not every program can be serialised
            pass
        return program

    def _key(self, module: Any, **named: Any) -> str | None:
        try:
            from jax._src.cache_key import get

            devices, options = named["executable_devices"], named["compile_options"]
            if disk.place() is None or len(named) != 2:  # callbacks, or what we do not know of
                return None
            jax_key = get(module, np.array(list(devices)), options, self._backend)
        except Exception:
            return None
        return hashlib.sha256("\n".join((jax_key, processor(), cores())).encode()).hexdigest()


@cache
def processor() -> str:
    """Model and features of the processor; where they are not to be had, the machine's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    lines = {tuple(part.strip() for part in line.partition(":")) for line in text.splitlines()}
    told = sorted(" ".join(line) for line in lines if line[0].lower() in MODEL | FEATURES)
    if not any(line[0].lower() in FEATURES for line in lines):
        told += [platform.system(), platform.node(), platform.processor()]
    return "\n".join([platform.machine(), *told])


def cores() -> str:
    """For how many threads XLA divides work: cores that this process may use, or NPROC."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} {os.environ.get('NPROC', '')}"
