"""Parts side by side, each in a process of its own.

Compiling takes one core and sampling several, so two parts at once waste less of a small machine
than one after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from offcut.errors import OffcutError
from offcut.reproduction.lengths import Plan
from offcut.reproduction.worker import INTERRUPTED

#: Seconds that a part gets to save its state after Ctrl-C.
GRACE = 60.0
#: Lines that are shown of a part that died.
LAST_LINES = 12


class PartError(OffcutError, RuntimeError):
    """A part of the reproduction failed."""


def run_all(
    parts: Sequence[str],
    plan: Plan,
    data: Path | None,
    output: Path,
    jobs: int,
    tell: Callable[[str, str], None],
) -> None:
    """Run parts, at most ``jobs`` at once; the first error stops the others."""
    waiting: list[str] = list(parts)
    running: dict[str, _Worker] = {}
    lock = threading.Condition()
    ended: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                part = waiting.pop(0)
                running[part] = _Worker(part, plan, data, output, tell, lock, ended)
            with lock:
                while not ended:
                    lock.wait(timeout=0.5)
                part = ended.pop(0)
            worker = running.pop(part)
            code = worker.process.wait()
            if code == INTERRUPTED or code == -signal.SIGINT:
                raise KeyboardInterrupt
            if code:
                raise PartError(worker.last_words() or f"{part} ended with code {code}")
    except BaseException:
        _stop(running)
        raise


class _Worker:
    """A process and the thread that reads what it says."""

    def __init__(self, part, plan, data, output, tell, lock, ended) -> None:  # type: ignore[no-untyped-def]
        command = [sys.executable, "-m", "offcut.reproduction.worker", part, plan.name, str(output)]
        command += [] if data is None else [str(data)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "MPLBACKEND": "Agg"}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,  # Ctrl-C reaches it once, through _stop
        )

        def listen() -> None:
            try:
                with self.process.stdout as stream:  # type: ignore[union-attr]
                    for line in stream:
                        self.lines.append(line.rstrip())
                        if not line.startswith(("error:", " ", "Traceback")):
                            tell(part, line.rstrip())
            finally:
                with lock:
                    ended.append(part)
                    lock.notify_all()

        threading.Thread(target=listen, daemon=True).start()

    def last_words(self) -> str:
        """Its error, or else the end of what it said."""
        for place, line in enumerate(self.lines):
            if line.startswith("error: "):
                return "\n".join(self.lines[place:]).removeprefix("error: ")
        return "\n".join(self.lines[-LAST_LINES:])


def _stop(running: dict[str, _Worker]) -> None:
    """Ask kindly, wait, then insist."""
    for worker in running.values():
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE
    try:
        for worker in running.values():
            worker.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for worker in running.values():
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
