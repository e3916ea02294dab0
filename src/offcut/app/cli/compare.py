"""``offcut compare``: which sampler is fastest on a model, and do they agree?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offcut.app.cli import options as o
from offcut.app.cli.console import EXIT_CODES, err, out, reported, safe
from offcut.app.cli.fit import command_line

Model = Annotated[
    str,
    typer.Argument(
        help="mixture, langevin, density or intensity; or path/to/file.py:NAME, a model in a "
        "Python file (which is run).",
        metavar="MODEL",
        autocompletion=lambda: ["mixture", "langevin", "density", "intensity"],
    ),
]
Samplers = Annotated[
    str | None,
    typer.Option("--samplers", help="Only these, with commas.", metavar="A,B,..."),
]
Repeats = Annotated[
    int,
    typer.Option("--repeats", help="Chains of each sampler, each with a seed of its own.", min=1),
]
Quantity = Annotated[
    str | None,
    typer.Option("--quantity", help="Only this parameter; default: the slowest one."),
]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="Directory for comparison.csv and a page.", metavar="DIR"),
]
EPILOG = f"""[bold]Examples[/bold]

  [cyan]offcut compare langevin frames.npy[/cyan]

  [cyan]offcut compare density voices.csv --columns shimmer --samplers augment,collapsed[/cyan]

  [cyan]offcut compare models.py:heights heights.csv --columns cm -o heights-compared[/cyan]

{EXIT_CODES}"""


@reported
def compare(
    model: Model,
    file: o.File,
    samplers: Samplers = None,
    quantity: Quantity = None,
    draws: Annotated[int, typer.Option("--draws", help="Draws of each repeat.", min=20)] = 1000,
    warmup: Annotated[int, typer.Option("--warmup", help="Sweeps before them.", min=0)] = 500,
    repeats: Repeats = 5,
    seed: Annotated[int, typer.Option("--seed", help="Of the first repeat.")] = 0,
    budget: o.Budget = "auto",
    columns: o.Columns = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    region: o.Region = None,
    outside: o.Outside = o.OnTrouble.refuse,
    missing: o.Missing = o.OnTrouble.refuse,
    components: o.Components = 50,
    transform: o.Transform = "none",
    frame: o.Frame = None,
    order: o.Entries = o.Order.columns,
    prior_mean: o.PriorMean = 10.0,
    base: o.BaseDensity = o.Base.normal,
    covariance: o.CovarianceOf = o.Covariance.squared_exponential,
    length_scale: o.LengthScale = None,
    variance: o.Variance = None,
    output: Folder = None,
    quiet: o.Quiet = False,
) -> None:
    """Run the samplers of a model and print effective draws per second, with intervals."""
    from offcut.app.compare import chosen_among, comparison_folder, contenders, write_comparison
    from offcut.app.fit.parse import parse_budget
    from offcut.app.fit.recipe import Request
    from offcut.app.fit.run import noticed
    from offcut.checks.comparison import compare_samplers

    request = Request(
        model, file, columns, lower, upper, region,
        outside=outside.value, missing=missing.value,
        options={
            "components": components, "transform": transform, "weights": "latent",
            "compensate": False, "at_limits": "keep", "frame": frame, "order": order.value,
            "prior_mean": prior_mean, "base": base.value, "covariance": covariance.value,
            "length_scale": length_scale, "variance": variance, "method": "augment",
        },
    )  # fmt: skip
    with noticed():
        found, data, _ = contenders(request)
    chosen = chosen_among(found, samplers)
    largest = parse_budget(budget)
    folder = None if output is None else comparison_folder(output)
    status = err().status("reading") if not quiet else None

    def tell(name: str, repeat: int) -> None:
        if status is not None:
            doing = "compiling" if repeat < 0 else f"repeat {repeat + 1} of {repeats}"
            status.update(f"{safe(name)}: {doing}")

    if status is not None:
        status.start()
    try:
        result = compare_samplers(
            chosen, data, draws=draws, warmup=warmup, repeats=repeats, seed=seed,
            quantity=quantity, budget=largest, tell=tell,
        )  # fmt: skip
    finally:
        if status is not None:
            status.stop()
    _print(result, file, len(data), quiet)
    if folder is not None:
        for path in write_comparison(result, folder, f"{model} on {file.name}", command_line()):
            out().print(f"  {safe(str(path))}", soft_wrap=True)


def _print(result: Any, file: Path, count: int, quiet: bool) -> None:
    from offcut.app.compare import NO_REFERENCE, disagrees, in_order, shown, verdict

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
        cells = [safe(cell) for cell in shown(one)]
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
