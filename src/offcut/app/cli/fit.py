"""``offcut fit``: a command from each recipe; it asks the library, and says what came of it."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from offcut.app.cli.console import (
    DOUBTFUL,
    EXIT_CODES,
    INTERRUPTED,
    err,
    marked,
    out,
    reported,
    safe,
    show_doubt,
)
from offcut.app.fit import options as o
from offcut.app.fit.recipes import (
    RECIPES,
    Option,
    Recipe,
    Sampling,
    made_from,
    options_of,
)

#: Groups whose summaries are printed.
MOST_SUMMARIES = 4


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go, and what is said of them."""

    output: o.Output = None
    resume: o.Resume = False
    overwrite: o.Overwrite = False
    quiet: o.Quiet = False
    strict: o.Strict = False


def run_fit(recipe: Recipe, file: Path, **given: Any) -> None:
    """Fit, print, and leave with the exit code that belongs to it."""
    from offcut.app.fit.parse import parse_budget
    from offcut.app.fit.request import Request
    from offcut.app.fit.run import InterruptedFitError, fit
    from offcut.errors import SettingsError

    where = made_from(Output, given)
    if where.resume and where.overwrite:
        raise SettingsError("--resume goes on and --overwrite starts afresh: choose one of them")
    if not 0 < given.get("probability", 0.5) < 1:
        raise SettingsError(
            f"--probability {given['probability']:g} must lie between 0 and 1, such as 0.9"
        )
    sampling = asdict(made_from(Sampling, given))
    request = Request(
        recipe.name,
        file,
        **asdict(made_from(recipe.rows, given)),
        sampling={**sampling, "budget": parse_budget(sampling["budget"])},
        options=made_from(recipe.options, given),
    )
    folder = where.output or Path(f"{_stem(file)}-{recipe.name}")
    quiet = where.quiet

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
            resume=where.resume,
            overwrite=where.overwrite,
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
    if where.strict and doubts:
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
            console.print(safe(summary.figures), soft_wrap=True)
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


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Fit a model to a file: posterior (NetCDF), tables (CSV) and a report page (HTML).",
    epilog=EXIT_CODES,
)


def _examples(*lines: str) -> str:
    shown = "\n\n".join(f"  [cyan]{line}[/cyan]" for line in lines)
    return f"[bold]Examples[/bold]\n\n{shown}\n\n{EXIT_CODES}"


def with_options(
    command: Callable[..., None],
    name: str,
    help: str,
    arguments: Mapping[str, Any],
    options: Iterable[Option],
) -> Callable[..., None]:
    """The command with a signature that Typer reads: arguments, then options."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(one, kind, annotation=annotation) for one, annotation in arguments.items()
    ]
    parameters += [
        inspect.Parameter(one.name, kind, default=one.default, annotation=one.annotation)
        for one in options
    ]
    command.__name__, command.__doc__ = name, help
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _command(recipe: Recipe) -> Callable[..., None]:
    """The command of a model, its options in the order of their panels."""

    def command(file: Path, **given: Any) -> None:
        run_fit(recipe, file, **given)

    kinds = (recipe.rows, recipe.options, Sampling, Output)
    found = [one for kind in kinds for one in options_of(kind)]
    found.sort(key=lambda one: o.PANELS.index(one.panel))
    return with_options(command, recipe.name, recipe.help, {"file": o.File}, found)


def add_command(app: typer.Typer, recipe: Recipe) -> None:
    """``offcut fit NAME``."""
    app.command(epilog=_examples(*recipe.examples))(reported(_command(recipe)))


for _recipe in RECIPES.values():
    add_command(app, _recipe)
