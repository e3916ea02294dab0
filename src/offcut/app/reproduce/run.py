"""``reproduce``: run the parts of the paper that are asked for, and write one page.

Parts run side by side, each in a process of its own: compiling takes one core and sampling several,
so two parts at once waste less of a small machine than one after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from offcut.app.reproduce.versus_paper import FULL, QUICK, Plan
from offcut.errors import DataError, OffcutError, SettingsError
from offcut.files import made, refuse_file

#: Parts in the order of the paper, and the modules that know them.
PARTS = {
    "gvhd": "offcut.app.reproduce.section5_gvhd",
    "vcg": "offcut.app.reproduce.section6_vectorcardiograms",
    "samplers": "offcut.app.reproduce.section6_samplers",
    "approximate": "offcut.app.reproduce.section6_asymptotics",
    "parkinsons": "offcut.app.reproduce.section7_parkinsons",
}
#: Parts that measure time, and run when nothing else does.
ALONE = ("samplers",)


def reproduce(
    parts: Sequence[str] = tuple(PARTS),
    *,
    full: bool = False,
    data: Any = None,
    output: Any = "results",
    jobs: int = 2,
    tell: Callable[[str, str], None] | None = None,
    command: str = "",
) -> Path:
    """Run parts of the paper and write ``index.html``.

    What an earlier call finished with the same settings is not run again, and what it left
    unfinished goes on.

    Parameters
    ----------
    parts : sequence of str
        Of "gvhd", "vcg", "samplers", "approximate" and "parkinsons"; by default all.
    full : bool
        The paper's numbers of iterations, instead of what fits into minutes.
    data : path, optional
        The folder with ``vcg.csv``, or that file; without it simulated frames stand in.
    output : path
        Gets ``index.html``, ``figures`` and ``runs``.
    jobs : int
        Parts that run at once, each in a process of its own.
    tell : callable, optional
        Called with a part's name and a line of text as work goes on.
    command : str
        How this was asked for, for the page.

    Returns
    -------
    Path
        Of the page.
    """
    from offcut.app.reproduce.report import write_page

    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise SettingsError(
            f"there is no part {', '.join(unknown) or '(none given)'}; parts are {', '.join(PARTS)}"
        )
    if jobs < 1:
        raise SettingsError(f"jobs must be at least 1, got {jobs}")
    parts = [part for part in PARTS if part in parts]
    plan, output = (FULL if full else QUICK), Path(output)
    _check_output(output)
    data = _checked(data, parts)
    tell = tell or (lambda part, line: None)
    started = time.time()
    made(output)
    together = [part for part in parts if part not in ALONE]
    run_all(together, plan, data, output, jobs, tell)
    run_all([part for part in parts if part in ALONE], plan, data, output, 1, tell)
    return write_page(parts, plan, data, output, started, tell, command)


def _check_output(output: Path) -> None:
    """Refuse to write over pages and pictures where no reproduction was before."""
    refuse_file(output)
    there = [*output.glob("index.html"), *sorted(output.glob("figures/*.svg"))]
    if there and not any(output.glob("runs/*/*/facts.json")):
        raise SettingsError(
            f"{output} holds {there[0].relative_to(output)} already, which offcut reproduce did "
            "not write and might write over; name another directory with -o"
        )


def module_of(part: str) -> Any:
    """The module of a part: it has ``run(store, plan, data)`` and ``show(page, found, plan)``."""
    return import_module(PARTS[part])


def plan_named(name: str) -> Plan:
    """The quick or the full plan."""
    return {plan.name: plan for plan in (QUICK, FULL)}[name]


def _checked(data: Any, parts: Sequence[str]) -> Path | None:
    """The data are there and readable, before anything runs."""
    if data is None:
        return None
    data = Path(data).resolve()
    if not data.exists():
        raise DataError(
            f"--data {data} does not exist. Give the folder that holds vcg.csv, or the file "
            "itself; without --data simulated frames stand in"
        )
    if "vcg" in parts or "samplers" in parts:
        module_of("vcg").frames_from(data)
    return data


#: Exit codes of a part's process: an error that the user can do something about, an interruption.
UNUSABLE, INTERRUPTED = 2, 130
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
        command = [
            sys.executable,
            "-m",
            "offcut.app.reproduce.worker",
            part,
            plan.name,
            str(output),
        ]
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
