"""``offcut compare``: which sampler is fastest on a model, and do they agree?"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from offcut.app.cli.console import err, examples, out, safe
from offcut.app.cli.fit import File, command_line, with_options
from offcut.app.fit.recipes import (
    BUDGET_HELP,
    OUTPUT,
    RECIPES,
    SAMPLING,
    Rows,
    former,
    made_from,
    option,
    options_of,
)

if TYPE_CHECKING:
    from offcut.checks.comparison import Comparison

Model = Annotated[
    str,
    typer.Argument(
        help=f"{', '.join(list(RECIPES)[:-1])} or {list(RECIPES)[-1]}; or path/to/file.py:NAME, a "
        "model in a Python file (which is run).",
        metavar="MODEL",
        autocompletion=lambda: list(RECIPES),
    ),
]
EPILOG = examples(
    "offcut compare langevin frames.npy",
    "offcut compare density voices.csv --columns shimmer --samplers augment,collapsed",
    "offcut compare models.py:heights heights.csv --columns cm -o heights-compared",
)


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """How samplers are measured."""

    samplers: str | None = option(None, None, "Only these, with commas.", metavar="A,B,...")
    method: str | None = option(None, None, "Only samplers of this route.", metavar="METHOD")
    quantity: str | None = option(None, None, "Only this parameter; default: the slowest one.")
    draws: int = option(None, 1000, "Draws of each repeat.", least=20)
    warmup: int = option(None, 500, "Sweeps before them.", least=0)
    repeats: int = option(None, 5, "Chains of each sampler, each with a seed of its own.", least=1)
    seed: int = option(None, 0, "Of the first repeat.")
    budget: str = option(SAMPLING, "auto", BUDGET_HELP, metavar="auto|none|N")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the comparison goes."""

    output: Path | None = option(  # noqa: RUF009 - a field
        None,
        None,
        "Directory for comparison.csv and a page.",
        names=("-o", "--output"),
        metavar="DIR",
    )
    quiet: bool = option(
        OUTPUT, False, "No progress and no summary; errors still.", names=("--quiet", "-q")
    )


def _compare(model: str, file: Path, **given: object) -> None:
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
    taken = {} if recipe is None else {name: given[name] for name in recipe.compared}
    options = None if recipe is None else made_from(recipe.options, taken)
    with noticed():
        found, data = contenders(Request(model, file, made_from(Rows, given), options))
    chosen = chosen_among(of_method(found, how.method), how.samplers)
    budget = parse_budget(how.budget)
    folder = None if where.output is None else comparison_folder(where.output)
    with nullcontext() if where.quiet else err().status("reading") as status:

        def tell(name: str, repeat: int) -> None:
            if status is not None:
                doing = "compiling" if repeat < 0 else f"repeat {repeat + 1} of {how.repeats}"
                status.update(f"{safe(name)}: {doing}")

        result = compare_samplers(
            chosen,
            data,
            draws=how.draws,
            warmup=how.warmup,
            repeats=how.repeats,
            seed=how.seed,
            quantity=how.quantity,
            budget=budget,
            tell=tell,
        )
    _print(result, file, len(data), where.quiet)
    if folder is not None:
        for path in write_comparison(result, folder, f"{model} on {file.name}", command_line()):
            out().print(f"  {safe(str(path))}", soft_wrap=True)


#: The options of all models that this command takes, each once.
_OF_MODELS = {
    one.name: one
    for recipe in RECIPES.values()
    for one in options_of(recipe.options)
    if one.name in recipe.compared
}
compare = with_options(
    _compare,
    "compare",
    "Run the samplers of a model and print effective draws per second, with intervals.",
    {"model": Model, "file": File},
    [
        *options_of(Comparing),
        *options_of(Rows, without=("group",)),  # a sampler is timed on one posterior
        *_OF_MODELS.values(),
        *options_of(Output),
        former("kernel", "the covariance function is chosen with --covariance"),
    ],
)


def _print(result: Comparison, file: Path, count: int, quiet: bool) -> None:
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
        colour = "red" if one.trouble or disagrees(result, one) else "green"
        style = "bold" if one is ranked[0] and not one.trouble else None
        agreement = f"[{colour}]{safe(verdict(result, one))}[/{colour}]"
        table.add_row(name, *cells, agreement, style=style)
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
