"""``offcut fit``: a command from each recipe; it asks the library, and says what came of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offcut.app.cli.console import (
    DOUBTFUL,
    INTERRUPTED,
    err,
    examples,
    marked,
    out,
    reported,
    safe,
    show_doubt,
)
from offcut.app.fit.recipes import (
    OUTPUT,
    RECIPES,
    Recipe,
    Rows,
    Sampling,
    former,
    made_from,
    option,
    options_of,
    panel_of,
)

if TYPE_CHECKING:
    from offcut.app.fit.request import Result
    from offcut.tables.table import Table

#: Groups whose summaries are printed.
MOST_SUMMARIES = 4
File = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, Parquet, NPY, FCS or H5AD file (CSV and TSV also as .gz).", metavar="FILE"
    ),
]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go, and what is said of them."""

    output: Path | None = option(  # noqa: RUF009 - a field
        OUTPUT,
        None,
        "Directory for posterior, tables and report; default: FILE-MODEL here.",
        names=("-o", "--output"),
        metavar="DIR",
    )
    resume: bool = option(OUTPUT, False, "Go on with a run that was interrupted.")
    overwrite: bool = option(OUTPUT, False, "Start afresh where a run is already.")
    quiet: bool = option(
        OUTPUT, False, "No progress and no summary; errors still.", names=("--quiet", "-q")
    )
    strict: bool = option(OUTPUT, False, "Exit with 3 where the result is doubtful.")


app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Fit a model to a file: posterior (NetCDF), tables (CSV) and a report page (HTML).",
    epilog=examples(),
)


def with_options(
    command: Callable[..., None],
    name: str,
    help: str,
    arguments: dict[str, Any],
    options: Iterable[Parameter],
) -> Callable[..., None]:
    """The command with a signature that Typer reads: arguments, then options."""
    parameters = [
        Parameter(one, Parameter.KEYWORD_ONLY, annotation=annotation)
        for one, annotation in arguments.items()
    ]
    parameters += options
    command.__name__, command.__doc__ = name, help
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return reported(command)


def add_command(app: typer.Typer, recipe: Recipe) -> None:
    """``offcut fit NAME``, its options in the order of their panels."""

    def command(file: Path, **given: object) -> None:
        run_fit(recipe, file, given)

    options = options_of(Rows, without=recipe.without)
    options += [one for kind in (recipe.options, Sampling, Output) for one in options_of(kind)]
    options.sort(key=panel_of)
    options += [former(*one) for one in recipe.former.items()]
    made = with_options(command, recipe.name, recipe.help, {"file": File}, options)
    app.command(epilog=examples(*recipe.examples))(made)


for _recipe in RECIPES.values():
    add_command(app, _recipe)


def run_fit(recipe: Recipe, file: Path, given: dict[str, Any]) -> None:
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
        made_from(Rows, given),
        made_from(recipe.options, given),
        {**sampling, "budget": parse_budget(sampling["budget"])},
    )
    folder = where.output or Path(f"{_stem(file)}-{recipe.name}")

    def show_group(name: str) -> None:
        if name and not where.quiet:
            err().print(f"Group [bold]{safe(name)}[/bold]")

    try:
        found = fit(
            request,
            folder,
            resume=where.resume,
            overwrite=where.overwrite,
            progress=not where.quiet,
            command=command_line(),
            on_read=lambda table: None if where.quiet else err().print(_read(table)),
            on_doubt=show_doubt,
            on_group=show_group,
        )
    except InterruptedFitError as stopped:
        err().print(
            f"[yellow]Interrupted {stopped}.[/yellow] The same command with [bold]--resume[/bold] "
            "goes on where it was."
        )
        raise typer.Exit(INTERRUPTED) from None
    if not where.quiet:
        if found.was_finished:
            err().print(f"The run in {safe(str(folder))} is finished; its report is new.")
        _print_result(found.result, found.was_finished)
        out().print("\n[bold]Written[/bold]")
        for path in found.files:
            out().print(f"  {safe(str(path))}", soft_wrap=True)
    if where.strict and found.result.doubts:
        raise typer.Exit(DOUBTFUL)


def command_line() -> str:
    """The command as it could be typed again, without what only says where to go on."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["offcut", *words])


def _stem(file: Path) -> str:
    name = file.name.removesuffix(".gz")
    return Path(name).stem or name


def _read(table: Table) -> str:
    text = f"[bold]{safe(table.path.name)}[/bold]: {len(table.kept):,} rows of "
    text += safe(", ".join(table.names))
    if table.group_names:
        text += f", {len(table.group_names)} groups ({safe(', '.join(table.group_names))})"
    for why, count in table.dropped.items():
        text += f"\n  {count:,} rows left out that {safe(why)}"
    if table.left_out:
        names = "; ".join(f"{name} {why}" for name, why in table.left_out.items())
        text += f"\n  columns left out: {safe(names)}"
    return text


def _print_result(result: Result, was_finished: bool) -> None:
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
