"""``offcut reproduce``: the paper in one command."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from offcut.app.cli.console import EXIT_CODES, INTERRUPTED, err, out, reported, safe

EPILOG = f"""[bold]Examples[/bold]

  [cyan]offcut reproduce all --quick -o results[/cyan]   (about 5 minutes on two cores)

  [cyan]offcut reproduce gvhd parkinsons --full[/cyan]   (the paper's numbers of iterations)

  [cyan]offcut reproduce vcg samplers --data ~/hearts[/cyan]   (the folder with vcg.csv)

The same command goes on where an earlier one was interrupted; what is finished is not run again.

{EXIT_CODES}"""
Part = StrEnum("Part", ["gvhd", "vcg", "samplers", "approximate", "parkinsons", "all"])


@reported
def reproduce(
    parts: Annotated[
        list[Part] | None,
        typer.Argument(
            help="gvhd: flow cytometry; vcg: orientations; samplers: speed of exact samplers; "
            "approximate: an approximate one measured; parkinsons: densities; all (default).",
            show_default=False,
            metavar="PART",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="The paper's numbers of iterations, or what fits into minutes."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder with vcg.csv, or that file; without it simulated frames stand in.",
            metavar="DIR",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where index.html goes.", metavar="DIR")
    ] = Path("results"),
    jobs: Annotated[
        int, typer.Option("--jobs", help="Parts at once; those that measure time run alone.", min=1)
    ] = 2,
) -> None:
    """Run the applications and comparisons of Rao, Lin & Dunson (2016); write one page."""
    from offcut.app.reproduce import PARTS
    from offcut.app.reproduce import reproduce as run

    for name in ("SIGTERM", "SIGHUP"):  # as kind as Ctrl-C: the parts must not go on alone
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.default_int_handler)
    names = list(PARTS) if not parts or "all" in parts else [str(part) for part in parts]
    # As somebody else would type it; where data lie on this machine is left out.
    words = ["offcut reproduce", *names, "--full" if full else "--quick"]
    command = " ".join([*words, *(["--data DIR"] if data else []), "-o", output.name])
    started = time.monotonic()
    try:
        with _news(started) as log:
            page = run(
                names, full=full, data=data, output=output, jobs=jobs, log=log, command=command
            )
    except KeyboardInterrupt:
        err().print("Interrupted; what was done is kept. The same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    out().print(f"{safe(str(page))}   ({time.monotonic() - started:.0f} s)", soft_wrap=True)


@contextmanager
def _news(started: float) -> Iterator[Callable[[str, str], None]]:
    """What goes on: a line for each part on a terminal, else a line for each piece of news."""

    def print_line(part: str, line: str) -> None:
        seconds = time.monotonic() - started
        err().print(f"{seconds:5.0f} s  {part:12} {safe(line)}", soft_wrap=True)

    if not sys.stderr.isatty():
        yield print_line
        return
    bar = Progress(
        SpinnerColumn(finished_text="[green]✓[/green]"),
        TextColumn("[bold]{task.description}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[line]}"),
        console=err(),
    )
    rows: dict[str, TaskID] = {}

    def show_line(part: str, line: str) -> None:
        if part not in rows:
            rows[part] = bar.add_task(part, total=None, line="")
        bar.update(rows[part], line=safe(line))

    with bar:
        yield show_line
