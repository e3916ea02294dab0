"""``offcut reproduce``: the paper in one command."""

from __future__ import annotations

import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer

from offcut.app.cli.console import EXIT_CODES, INTERRUPTED, err, out, reported, safe

EPILOG = f"""[bold]Examples[/bold]

  [cyan]offcut reproduce all --quick -o results[/cyan]   (about 5 minutes on two cores)

  [cyan]offcut reproduce gvhd parkinsons --full[/cyan]   (the paper's numbers of iterations)

  [cyan]offcut reproduce vcg samplers --data ~/hearts[/cyan]   (the folder with vcg.csv)

The same command goes on where an earlier one was interrupted; what is finished is not run again.

{EXIT_CODES}"""


class Part(StrEnum):
    """What there is to reproduce."""

    gvhd = "gvhd"
    vcg = "vcg"
    samplers = "samplers"
    approximate = "approximate"
    parkinsons = "parkinsons"
    all = "all"


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
    asked = list(parts or [Part.all])
    names = list(PARTS) if Part.all in asked else [part.value for part in asked]
    started = time.monotonic()
    with _Teller() as tell:
        try:
            page = run(
                names, full=full, data=data, output=output, jobs=jobs, tell=tell,
                command=_command(names, full, data, output),
            )  # fmt: skip
        except KeyboardInterrupt:
            tell.stop()
            err().print("Interrupted; what was done is kept. The same command goes on from there.")
            raise typer.Exit(INTERRUPTED) from None
    out().print(f"{safe(str(page))}   ({time.monotonic() - started:.0f} s)", soft_wrap=True)


def _command(names: list[str], full: bool, data: Path | None, output: Path) -> str:
    """The command as somebody else would type it; where data lie on this machine is left out."""
    told = ["offcut reproduce", *names, "--full" if full else "--quick"]
    return " ".join(told + (["--data DIR"] if data else []) + ["-o", output.name])


class _Teller:
    """What goes on: a line for each part on a terminal, else a line for each piece of news."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._rows: dict[str, Any] = {}
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(finished_text="[green]✓[/green]"),
                TextColumn("[bold]{task.description}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[line]}"),
                console=err(),
            )

    def __enter__(self) -> _Teller:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the terminal as it is."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, part: str, line: str) -> None:
        """A part says something; it may come from another thread."""
        if self._bar is None:
            seconds = time.monotonic() - self._started
            err().print(f"{seconds:5.0f} s  {part:12} {safe(line)}", soft_wrap=True)
            return
        if part not in self._rows:
            self._rows[part] = self._bar.add_task(part, total=None, line="")
        self._bar.update(self._rows[part], line=safe(line))
