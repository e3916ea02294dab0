"""What all ``offcut fit`` commands do: ask the library, and say what came of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from offcut.cli.console import DOUBTFUL, INTERRUPTED, err, marked, out, safe, show_doubt

#: Groups whose summaries are printed.
MOST_SUMMARIES = 4


def run_fit(
    world: str,
    file: Path,
    data: dict[str, Any],
    options: dict[str, Any],
    sampling: dict[str, Any],
    output: Path | None,
    resume: bool,
    overwrite: bool,
    quiet: bool,
    strict: bool,
) -> None:
    """Fit, print, and leave with the exit code that belongs to it."""
    from offcut.errors import SettingsError
    from offcut.fitting.request import Request
    from offcut.fitting.run import InterruptedFitError, fit
    from offcut.fitting.words import parse_budget

    if resume and overwrite:
        raise SettingsError("--resume goes on and --overwrite starts afresh: choose one of them")
    if not 0 < options.get("probability", 0.5) < 1:
        raise SettingsError(
            f"--probability {options['probability']:g} must lie between 0 and 1, such as 0.9"
        )
    sampling = {**sampling, "budget": parse_budget(sampling["budget"])}
    request = Request(world, file, **data, sampling=sampling, options=options)
    folder = output if output is not None else Path(f"{_stem(file)}-{world}")

    def tell(what: str, value: Any) -> None:
        if what == "warning":
            show_doubt(value)
        elif not quiet and what == "read":
            err().print(_read(value))
        elif not quiet and what == "group" and value:
            err().print(f"Group [bold]{safe(value)}[/bold]")

    try:
        found = fit(
            request,
            folder,
            resume=resume,
            overwrite=overwrite,
            progress=not quiet,
            command=command_line(),
            tell=tell,
        )
    except InterruptedFitError as stopped:
        err().print(
            f"[yellow]Interrupted {stopped}.[/yellow] The same command with [bold]--resume[/bold] "
            "goes on where it was."
        )
        raise typer.Exit(INTERRUPTED) from None
    doubts = found.result.doubts
    if not quiet:
        if found.was_finished:
            err().print(f"The run in {safe(str(folder))} is finished; its report is new.")
        _print_result(found.result, found.was_finished)
        out().print("\n[bold]Written[/bold]")
        for path in found.files:
            out().print(f"  {safe(str(path))}", soft_wrap=True)
    if strict and doubts:
        raise typer.Exit(DOUBTFUL)


def command_line() -> str:
    """The command as it could be typed again, without what only says where to go on."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["offcut", *words])


def _stem(file: Path) -> str:
    name = file.name.removesuffix(".gz")
    return Path(name).stem or name


def _read(task: Any) -> str:
    table = task.table
    told = f"[bold]{safe(table.path.name)}[/bold]: {len(table.kept):,} rows of "
    told += safe(", ".join(table.names))
    if table.group_names:
        told += f", {len(table.group_names)} groups ({safe(', '.join(table.group_names))})"
    for why, count in table.dropped.items():
        told += f"\n  {count:,} rows left out that {safe(why)}"
    if table.left_out:
        names = "; ".join(f"{name} {why}" for name, why in table.left_out.items())
        told += f"\n  columns left out: {safe(names)}"
    return told


def _print_result(result: Any, was_finished: bool) -> None:
    """Headline, summaries and doubts."""
    console = out()
    console.print()
    for sentence in result.headline():
        console.print(marked(sentence))
    # On a terminal offcut.sample has shown each summary already.
    seen = sys.stderr.isatty() and sys.stdout.isatty() and not was_finished
    if not seen:
        for name, summary in list(result.summaries.items())[:MOST_SUMMARIES]:
            console.print(f"\n[bold]{safe(name)}[/bold]" if name else "")
            text = str(summary).split("\n\nBefore you trust this:")[0]
            console.print(safe(text), soft_wrap=True)
    if seen and result.doubts and not result.fit.doubts:
        count = len(result.doubts)
        console.print(f"\n[bold yellow]Before you trust this[/bold yellow]: {count} above")
    elif result.doubts:
        console.print("\n[bold yellow]Before you trust this[/bold yellow]")
        for line in result.doubts:
            console.print(f"  [yellow]![/yellow] {safe(line)}", soft_wrap=True)
        advice = {line for summary in result.summaries.values() for line in summary.advice}
        for line in sorted(advice):
            console.print(f"  [dim]try:[/dim] {safe(line)}", soft_wrap=True)
    else:
        console.print("\n[green]Nothing speaks against this run.[/green]")
