"""``offcut fit``: one command for each world."""

from __future__ import annotations

from typing import Any

import typer

from offcut.cli import options as o
from offcut.cli.console import EXIT_CODES, reported
from offcut.cli.fitted import run_fit

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
    prior: o.Prior = o.WeightsPrior.latent,
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
        _data(components=components, prior=prior, transform=transform, compensate=compensate,
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
    kernel: o.Kernel = o.Covariance.squared_exponential,
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
        _data(base=base, kernel=kernel, length_scale=length_scale, variance=variance,
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
    kernel: o.Kernel = o.Covariance.squared_exponential,
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
        _data(kernel=kernel, length_scale=length_scale, variance=variance, method=method,
              probability=probability),
        _data(draws=draws, warmup=warmup, thin=thin, chains=chains, seed=seed, budget=budget),
        output, resume, overwrite, quiet, strict,
    )  # fmt: skip
