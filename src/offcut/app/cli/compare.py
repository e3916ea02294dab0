"""``offcut compare``: which sampler is fastest on a model, and do they agree?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offcut.app.cli.console import EXIT_CODES, err, out, reported, safe
from offcut.app.cli.fit import command_line, with_options
from offcut.app.fit import options as o
from offcut.app.fit.recipes import (
    RECIPES,
    WindowedRows,
    compared_options,
    made_from,
    options_of,
)

Model = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(list(RECIPES)[:-1])} or {list(RECIPES)[-1]}; or path/to/file.py:NAME, a "
        "model in a Python file (which is run).",
        metavar="MODEL",
        autocompletion=lambda: list(RECIPES),
    ),
]


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """How samplers are measured."""

    samplers: Annotated[
        str | None, typer.Option("--samplers", help="Only these, with commas.", metavar="A,B,...")
    ] = None
    method: Annotated[
        str | None,
        typer.Option("--method", help="Only samplers of this route.", metavar="METHOD"),
    ] = None
    quantity: Annotated[
        str | None,
        typer.Option("--quantity", help="Only this parameter; default: the slowest one."),
    ] = None
    draws: Annotated[int, typer.Option("--draws", help="Draws of each repeat.", min=20)] = 1000
    warmup: Annotated[int, typer.Option("--warmup", help="Sweeps before them.", min=0)] = 500
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", help="Chains of each sampler, each with a seed of its own.", min=1
        ),
    ] = 5
    seed: Annotated[int, typer.Option("--seed", help="Of the first repeat.")] = 0
    budget: o.Budget = "auto"


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the comparison goes."""

    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Directory for comparison.csv and a page.", metavar="DIR"
        ),
    ] = None
    quiet: o.Quiet = False


#: Of data, all but groups: a sampler is timed on one posterior.
_ROWS = [one for one in options_of(WindowedRows) if one.name != "group"]
EPILOG = f"""[bold]Examples[/bold]

  [cyan]offcut compare langevin frames.npy[/cyan]

  [cyan]offcut compare density voices.csv --columns shimmer --samplers augment,collapsed[/cyan]

  [cyan]offcut compare models.py:heights heights.csv --columns cm -o heights-compared[/cyan]

{EXIT_CODES}"""


def _compare(model: str, file: Path, **given: Any) -> None:
    from offcut.app.compare import (
        chosen_among,
        comparison_folder,
        contenders,
        of_method,
        write_comparison,
    )
    from offcut.app.fit.parse import parse_budget
    from offcut.app.fit.request import Request
    from offcut.app.fit.run import noticed
    from offcut.checks.comparison import compare_samplers

    how, where = made_from(Comparing, given), made_from(Output, given)
    recipe = RECIPES.get(model)
    chosen_options = None
    if recipe is not None:
        taken = {name: given[name] for name in recipe.compared}
        chosen_options = made_from(recipe.options, taken)
    rows = asdict(made_from(WindowedRows, given))
    request = Request(model, file, **rows, options=chosen_options)
    with noticed():
        found, data, _ = contenders(request)
    chosen = chosen_among(of_method(found, how.method), how.samplers)
    largest = parse_budget(how.budget)
    folder = None if where.output is None else comparison_folder(where.output)
    status = err().status("reading") if not where.quiet else None

    def tell(name: str, repeat: int) -> None:
        if status is not None:
            doing = "compiling" if repeat < 0 else f"repeat {repeat + 1} of {how.repeats}"
            status.update(f"{safe(name)}: {doing}")

    if status is not None:
        status.start()
    try:
        result = compare_samplers(
            chosen, data, draws=how.draws, warmup=how.warmup, repeats=how.repeats, seed=how.seed,
            quantity=how.quantity, budget=largest, tell=tell,
        )  # fmt: skip
    finally:
        if status is not None:
            status.stop()
    _print(result, file, len(data), where.quiet)
    if folder is not None:
        for path in write_comparison(result, folder, f"{model} on {file.name}", command_line()):
            out().print(f"  {safe(str(path))}", soft_wrap=True)


compare = reported(
    with_options(
        _compare,
        "compare",
        "Run the samplers of a model and print effective draws per second, with intervals.",
        {"model": Model, "file": o.File},
        [
            *options_of(Comparing),
            *_ROWS,
            *compared_options(RECIPES.values()),
            *options_of(Output),
        ],
    )
)


def _print(result: Any, file: Path, count: int, quiet: bool) -> None:
    from offcut.app.compare import NO_REFERENCE, disagrees, in_order, rate_and_mean, verdict

    table = Table(title=f"Effective draws per CPU-second, {safe(file.name)} ({count:,} rows)")
    table.add_column("sampler", no_wrap=True)
    table.add_column("ESS/s (95%)", justify="right")
    for name in ("slowest quantity", "mean ± error", "agreement"):
        table.add_column(name)
    ranked = in_order(result)
    for one in ranked:
        name = safe(one.contender.name)
        if one.contender.approximate:
            name += " [yellow](approximate)[/yellow]"
        if one.refusal:
            table.add_row(name, "[dim]–[/dim]", "[dim]does not fit[/dim]")
            continue
        cells = [safe(cell) for cell in rate_and_mean(one)]
        told = verdict(result, one)
        colour = "red" if one.trouble or disagrees(result, one) else "green"
        style = "bold" if one is ranked[0] and not one.trouble else None
        table.add_row(name, *cells, f"[{colour}]{safe(told)}[/{colour}]", style=style)
    out().print(table)
    if result.without_reference():
        out().print(f"[red]{NO_REFERENCE}[/red]")
    for one in result.measured:
        if one.refusal:
            out().print(f"[yellow]{safe(one.contender.name)}[/yellow]: {safe(one.refusal)}")
    if not quiet and result.ran:
        out().print(
            "[dim]One chain a repeat; warm-up and compiling are not counted. ESS: of all repeats "
            "together. Intervals: 95%, over repeats. |z| compares posterior means with those of "
            "the reference.[/dim]"
        )
