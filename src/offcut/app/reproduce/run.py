"""``reproduce``: run the parts of the paper that are asked for, and write one page.

Parts run side by side, each in a process of its own: compiling takes one core and sampling several,
so two parts at once waste less of a small machine than one after the other. A process sends lines
of text while it works, and an exception if it fails.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol, cast

from offcut.app.html import Page, Section
from offcut.app.reproduce.finished import RunStore
from offcut.app.reproduce.versus_paper import FULL, QUICK, Claim, Length, PartReport, Plan, Verdict
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
#: Seconds that a part gets to save its state after Ctrl-C.
GRACE = 60.0
#: Lines that are shown of an unexpected error in a part.
LAST_LINES = 12
#: Called with a part's name and a line of text as work goes on.
Log = Callable[[str, str], None]


def reproduce(
    parts: Sequence[str] = tuple(PARTS),
    *,
    full: bool = False,
    data: Path | str | None = None,
    output: Path | str = "results",
    jobs: int = 2,
    log: Log = lambda part, line: None,
    command: str = "",
) -> Path:
    """Run parts of the paper and write ``index.html``.

    What an earlier call finished with the same settings is not run again, and what it left
    unfinished goes on. A script that calls this needs ``if __name__ == "__main__":`` around it,
    because parts run in processes of their own.

    Parameters
    ----------
    parts : sequence of str
        Of ``PARTS``; by default all.
    full : bool
        The paper's numbers of iterations, instead of what fits into minutes.
    data : path, optional
        The folder with ``vcg.csv``, or that file; without it simulated frames stand in.
    output : path
        Gets ``index.html``, ``figures`` and ``runs``.
    jobs : int
        Parts that run at once.
    log : callable
        Called with a part's name and a line of text as work goes on.
    command : str
        How this was asked for, for the page.
    """
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
    data = None if data is None else _checked(Path(data).resolve(), parts)
    started = time.time()
    made(output)
    run_all([part for part in parts if part not in ALONE], plan, data, output, jobs, log)
    run_all([part for part in parts if part in ALONE], plan, data, output, 1, log)
    page = write_page(parts, plan, data, output, started, command)
    log("page", f"{page} is written")
    return page


def _check_output(output: Path) -> None:
    """Refuse to write over pages and pictures where no reproduction was before."""
    refuse_file(output)
    there = [*output.glob("index.html"), *sorted(output.glob("figures/*.svg"))]
    if there and not any(output.glob("runs/*/*/facts.json")):
        raise SettingsError(
            f"{output} holds {there[0].relative_to(output)} already, which offcut reproduce did "
            "not write and might write over; name another directory with -o"
        )


def _checked(data: Path, parts: Sequence[str]) -> Path:
    """The data are there and readable, before anything runs."""
    if not data.exists():
        raise DataError(
            f"--data {data} does not exist. Give the folder that holds vcg.csv, or the file "
            "itself; without --data simulated frames stand in"
        )
    if "vcg" in parts or "samplers" in parts:
        from offcut.app.reproduce.section6_vectorcardiograms import frames_from

        frames_from(data)
    return data


class Part(Protocol):
    """The module of a part: its title, its runs, and what its section shows of them."""

    TITLE: str

    def run(self, store: RunStore, plan: Plan, data: Path | None) -> object: ...

    def show(self, section: Section, found: object, plan: Plan) -> list[Claim]: ...


def module_of(part: str) -> Part:
    """The module of a part."""
    return cast(Part, import_module(PARTS[part]))


class PartError(OffcutError, RuntimeError):
    """A part of the reproduction failed."""


def run_all(
    parts: Iterable[str], plan: Plan, data: Path | None, output: Path, jobs: int, log: Log
) -> None:
    """Run parts, at most ``jobs`` at once; the first error stops the others."""
    waiting = list(parts)
    running: dict[Connection, tuple[str, BaseProcess]] = {}
    context = get_context("spawn")
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                part = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=run_part, args=(theirs, part, plan, data, output), name=part
                )
                running[ours] = part, process
                process.start()
                theirs.close()
            for pipe in cast(list[Connection], wait(running)):
                part, ended = running[pipe]
                try:
                    message: str | BaseException = pipe.recv()
                except EOFError:
                    ended.join()
                    del running[pipe]
                    if ended.exitcode:
                        raise PartError(f"{part} ended with code {ended.exitcode}") from None
                    continue
                if isinstance(message, BaseException):
                    raise message
                log(part, message)
    except BaseException:
        _stop([process for _, process in running.values() if process.pid is not None])
        raise


def run_part(pipe: Connection, part: str, plan: Plan, data: Path | None, output: Path) -> None:
    """A process: runs go to OUTPUT/runs/PLAN, what the page shows of them to PART.json there."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as kind as Ctrl-C
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C reaches it once, through _stop
    folder = output / "runs" / plan.name
    store = RunStore(folder, pipe.send)
    try:
        import matplotlib

        matplotlib.use("Agg")
        module = module_of(part)
        found = module.run(store, plan, data)
        pipe.send("pictures and tables ...")
        section = Page(part, figures=output / "figures").section(module.TITLE, part)
        rows = module.show(section, found, plan)
        if store.runs:
            section.runs(store.runs)
        PartReport(module.TITLE, section.parts, rows, store.again).save(folder, part)
        pipe.send("done")
    except KeyboardInterrupt:
        pipe.send(KeyboardInterrupt(part))
    except (OffcutError, ImportError) as error:  # extras that are not installed say how to
        pipe.send(PartError(str(error)))
    except Exception:
        last = traceback.format_exc().splitlines()[-LAST_LINES:]
        pipe.send(PartError("\n".join(last)))


def _stop(processes: list[BaseProcess]) -> None:
    """Ask kindly, wait, then insist."""
    for process in processes:
        if process.pid is not None and process.is_alive():
            os.kill(process.pid, signal.SIGINT)
    deadline = time.monotonic() + GRACE
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


TITLE = "Data augmentation for models based on rejection sampling, reproduced"


def write_page(
    parts: Sequence[str],
    plan: Plan,
    data: Path | None,
    output: Path,
    started: float,
    command: str = "",
) -> Path:
    """Put together what the parts show."""
    page = Page(
        TITLE,
        lead="The applications and comparisons of Rao, Lin & Dunson (Biometrika 2016), run again "
        "with Offcut: each figure and number of the paper beside what was found here.",
        figures=output / "figures",
    )
    top = page.section("In short", "summary")
    reports = {part: PartReport.load(output / "runs" / plan.name, part) for part in parts}
    for part, report in reports.items():
        page.section(report.title, part).parts += report.parts
    _summary(top, {part: report.rows for part, report in reports.items()}, plan, data)
    again = [name for report in reports.values() for name in report.again]
    _made(page.section("How this page was made", "made"), plan, again, started, command)
    return page.write(output / "index.html")


def _summary(section: Section, rows: dict[str, list[Claim]], plan: Plan, data: Path | None) -> None:
    everything = [row for part in rows.values() for row in part]
    compared = [
        row for row in everything if row.verdict not in (Verdict.SIMULATED, Verdict.NOT_RUN)
    ]
    differ = sum(row.verdict == Verdict.OTHER for row in compared)
    section.text(
        f"{len(compared)} numbers and claims of the paper are compared; **{differ}** differ, and "
        "the sections say why, as far as it is known. Everything in the columns headed Here was "
        "computed from runs on this machine; the paper's values are as printed there."
    )
    if plan.name == "quick":
        text = "This is the quick version."
        if "gvhd" in rows:
            text += (
                " The mixtures ran for a fraction of the paper's iterations, too few for chains "
                "that start apart to agree: see their R-hat before you believe their numbers. The "
                "one that ignores the window was not run."
            )
        if "approximate" in rows:
            text += (
                " The comparison with the approximate sampler has fewer dimensions, and no "
                "exchange sampler."
            )
        section.notice(f"{text} `--full` runs the paper's numbers of iterations.")
    if data is None and ("vcg" in rows or "samplers" in rows):
        section.notice(
            "SIMULATED: without --data, simulated frames stand in for the vectorcardiograms.",
            "simulated",
        )
    section.table(
        ["Section", "Quantity", "Paper", "Here", "Verdict"],
        [
            [f"[{part}](#{part})", row.quantity, row.paper, row.here, row.verdict]
            for part, found in rows.items()
            for row in found
        ],
        cards=True,
    )


def _made(section: Section, plan: Plan, again: list[str], started: float, command: str) -> None:
    if command:
        section.code(command)
    when = time.strftime("%d %B %Y, %H:%M", time.localtime(started))
    section.text(f"Started {when}; written {time.time() - started:,.0f} seconds later.")
    if again:
        section.notice(
            f"{len(again)} runs were finished by an earlier call with the same settings and "
            f"versions, and not run again: {', '.join(again)}."
        )
    section.table(
        ["Runs", "Chains", "Draws of each", "Warm-up", "Sweeps for a draw"],
        [
            [name.replace("_", " "), length.chains, length.draws, length.warmup, length.thin]
            for name, length in plan._asdict().items()
            if isinstance(length, Length)
        ],
        f"Lengths of the {plan.name} version",
    )
    section.text(
        f"`{', '.join(PARTS)}` are the parts; posteriors are in `runs` (NetCDF, for ArviZ), "
        "pictures in `figures` (SVG). Data: GvHD (Brinkman et al. 2007) and Parkinsons (Little et "
        "al. 2007) come with Offcut; the vectorcardiograms (Downs, Liebman & Mackay 1972) do not."
    )
    section.machine()
