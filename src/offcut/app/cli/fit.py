"""``offcut fit``: one command for each world.

What all ``offcut fit`` commands do: ask the library, and say what came of it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from offcut.app.cli import options as o
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
    from offcut.app.fit.parse import parse_budget
    from offcut.app.fit.recipe import Request
    from offcut.app.fit.run import InterruptedFitError, fit
    from offcut.errors import SettingsError

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


def _data(**given: Any) -> dict[str, Any]:
    """Enums as the words they stand for."""
    return {name: getattr(value, "value", value) for name, value in given.items()}


@app.command(
    epilog=_examples(
        "offcut fit mixture sample.fcs --columns CD4,CD8 --transform asinh:150",
        "offcut fit mixture cells.csv --lower 0 --upper 1 --group patient -o cells",
        "offcut fit mixture sky.parquet --region 'Ball(\\[0, 0], 2) & Box(\\[0, 0], \\[2, 2])'",
    )
)
@reported
def mixture(
    file: o.File,
    columns: o.Columns = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    region: o.Region = None,
    group: o.Group = None,
    outside: o.Outside = o.OnTrouble.refuse,
    missing: o.Missing = o.OnTrouble.refuse,
    at_limits: o.Limits = o.AtLimits.keep,
    components: o.Components = 50,
    weights: o.Weights = o.ProcessOn.latent,
    transform: o.Transform = "none",
    compensate: o.Compensate = False,
    draws: o.Draws = 1000,
    warmup: o.Warmup = 1000,
    thin: o.Thin = 1,
    chains: o.Chains = 4,
    seed: o.Seed = 0,
    budget: o.Budget = "auto",
    output: o.Output = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    strict: o.Strict = False,
) -> None:
    """Populations (clusters) in data that a window cuts: a Dirichlet process mixture."""
    run_fit(
        "mixture",
        file,
        _data(columns=columns, lower=lower, upper=upper, region=region, group=group,
              outside=outside, missing=missing),
        _data(components=components, weights=weights, transform=transform, compensate=compensate,
              at_limits=at_limits),
        _data(draws=draws, warmup=warmup, thin=thin, chains=chains, seed=seed, budget=budget),
        output, resume, overwrite, quiet, strict,
    )  # fmt: skip


@app.command(
    epilog=_examples(
        "offcut fit langevin orbits.csv --columns x1,x2,x3,y1,y2,y3 --frame 3x2",
        "offcut fit langevin frames.npy --method collapsed",
        "offcut fit langevin winds.csv --columns u,v,w --group season",
    )
)
@reported
def langevin(
    file: o.File,
    columns: o.Columns = None,
    group: o.Group = None,
    frame: o.Frame = None,
    order: o.Entries = o.Order.columns,
    missing: o.Missing = o.OnTrouble.refuse,
    method: o.Concentrations = o.LangevinMethod.auto,
    prior_mean: o.PriorMean = 10.0,
    draws: o.Draws = 1000,
    warmup: o.Warmup = 1000,
    thin: o.Thin = 1,
    chains: o.Chains = 4,
    seed: o.Seed = 0,
    budget: o.Budget = "auto",
    probability: o.Probability = 0.9,
    output: o.Output = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    strict: o.Strict = False,
) -> None:
    """Directions and frames of orthonormal columns: where they point, how closely they agree."""
    run_fit(
        "langevin",
        file,
        _data(columns=columns, group=group, missing=missing),
        _data(frame=frame, order=order, method=method, prior_mean=prior_mean,
              probability=probability),
        _data(draws=draws, warmup=warmup, thin=thin, chains=chains, seed=seed, budget=budget),
        output, resume, overwrite, quiet, strict,
    )  # fmt: skip


@app.command(
    epilog=_examples(
        "offcut fit density voices.csv --columns shimmer --group status",
        "offcut fit density times.npy --lower 0 --length-scale 1 --variance 1",
        "offcut fit density map.parquet --columns x,y --lower 0 --upper 10",
    )
)
@reported
def density(
    file: o.File,
    columns: o.Columns = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    region: o.Region = None,
    group: o.Group = None,
    outside: o.Outside = o.OnTrouble.refuse,
    missing: o.Missing = o.OnTrouble.refuse,
    base: o.BaseDensity = o.Base.normal,
    covariance: o.CovarianceOf = o.Covariance.squared_exponential,
    length_scale: o.LengthScale = None,
    variance: o.Variance = None,
    method: o.Method = o.CurveMethod.augment,
    draws: o.Draws = 1000,
    warmup: o.Warmup = 1000,
    thin: o.Thin = 1,
    chains: o.Chains = 4,
    seed: o.Seed = 0,
    budget: o.Budget = "auto",
    probability: o.Probability = 0.9,
    output: o.Output = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    strict: o.Strict = False,
) -> None:
    """A density with bands; limits are its support, groups are compared."""
    run_fit(
        "density",
        file,
        _data(columns=columns, lower=lower, upper=upper, region=region, group=group,
              outside=outside, missing=missing),
        _data(base=base, covariance=covariance, length_scale=length_scale, variance=variance,
              method=method, probability=probability),
        _data(draws=draws, warmup=warmup, thin=thin, chains=chains, seed=seed, budget=budget),
        output, resume, overwrite, quiet, strict,
    )  # fmt: skip


@app.command(
    epilog=_examples(
        "offcut fit intensity mines.csv --columns year --lower 1851 --upper 1962",
        "offcut fit intensity trees.csv --columns x,y --region 'Box(\\[0, 0], \\[200, 100])'",
    )
)
@reported
def intensity(
    file: o.File,
    columns: o.Columns = None,
    lower: o.Lower = None,
    upper: o.Upper = None,
    region: o.Region = None,
    group: o.Group = None,
    outside: o.Outside = o.OnTrouble.refuse,
    missing: o.Missing = o.OnTrouble.refuse,
    covariance: o.CovarianceOf = o.Covariance.squared_exponential,
    length_scale: o.LengthScale = None,
    variance: o.Variance = None,
    method: o.Method = o.CurveMethod.augment,
    draws: o.Draws = 1000,
    warmup: o.Warmup = 1000,
    thin: o.Thin = 1,
    chains: o.Chains = 4,
    seed: o.Seed = 0,
    budget: o.Budget = "auto",
    probability: o.Probability = 0.9,
    output: o.Output = None,
    resume: o.Resume = False,
    overwrite: o.Overwrite = False,
    quiet: o.Quiet = False,
    strict: o.Strict = False,
) -> None:
    """How frequent events are, in time or in a plane; limits are the window of recording."""
    run_fit(
        "intensity",
        file,
        _data(columns=columns, lower=lower, upper=upper, region=region, group=group,
              outside=outside, missing=missing),
        _data(covariance=covariance, length_scale=length_scale, variance=variance, method=method,
              probability=probability),
        _data(draws=draws, warmup=warmup, thin=thin, chains=chains, seed=seed, budget=budget),
        output, resume, overwrite, quiet, strict,
    )  # fmt: skip
