"""``reproduce``: run the parts of the paper that are asked for, and write one page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from offcut.errors import DataError, SettingsError
from offcut.files import made
from offcut.reproduction.lengths import FULL, QUICK, Plan

#: Parts in the order of the paper, and the modules that know them.
PARTS = {
    "gvhd": "offcut.reproduction.gvhd",
    "vcg": "offcut.reproduction.frames",
    "samplers": "offcut.reproduction.samplers",
    "approximate": "offcut.reproduction.approximate",
    "parkinsons": "offcut.reproduction.parkinsons",
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
    from offcut.reproduction.summary_page import write_page
    from offcut.reproduction.workers import run_all

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
    if output.exists() and not output.is_dir():
        raise SettingsError(f"{output} is a file; give a directory with -o")
    there = [*output.glob("index.html"), *sorted(output.glob("figures/*.svg"))]
    if there and not any(output.glob("runs/*/*/facts.json")):
        raise SettingsError(
            f"{output} holds {there[0].relative_to(output)} already, which offcut reproduce did "
            "not write and might write over; name another directory with -o"
        )


def module_of(part: str) -> Any:
    """The module of a part: it has ``run(keeper, plan, data)`` and ``show(page, found, plan)``."""
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
