"""Options of the command line, each in one place."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from offcut import methods

PANELS = DATA, MODEL, SAMPLING, OUTPUT = "Data", "Model", "Sampling", "Output"


class OnTrouble(StrEnum):
    """What to do with rows that cannot be data."""

    refuse = "refuse"
    drop = "drop"


class ProcessOn(StrEnum):
    """On which weights of a mixture the Dirichlet process is."""

    latent = "latent"
    window = "window"


class AtLimits(StrEnum):
    """What to do with values exactly on a limit."""

    keep = "keep"
    drop = "drop"


class Order(StrEnum):
    """How the entries of a frame are written."""

    columns = "columns"
    rows = "rows"


class Covariance(StrEnum):
    """Covariance functions."""

    squared_exponential = "squared_exponential"
    matern32 = "matern32"
    matern52 = "matern52"


class Base(StrEnum):
    """Base densities."""

    normal = "normal"
    uniform = "uniform"


def option(
    *names: str, help: str, panel: str, metavar: str | None = None, least: int | None = None
) -> typer.models.OptionInfo:
    """An option for ``Annotated``; ``panel`` is where the help shows it, one of ``PANELS``."""
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, min=least)


def method_option(offered: tuple[methods.Method, ...]) -> typer.models.OptionInfo:
    """``--method`` of a model with these routes."""
    names = [methods.AUTO, *(one.name for one in offered)]

    def known(given: str) -> str:
        if given not in names:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(map(repr, names))}.")
        return given

    return typer.Option(
        "--method",
        help=f"Route to the posterior: {'; '.join(f'{one.name} {one.words}' for one in offered)}.",
        rich_help_panel=MODEL,
        metavar="METHOD",
        parser=known,
        autocompletion=lambda: names,
    )


File = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, Parquet, NPY, FCS or H5AD file (CSV and TSV also as .gz).",
        metavar="FILE",
    ),
]
Columns = Annotated[
    str | None,
    option("--columns", help="Names or numbers (from 0) with commas; default: all of numbers.",
            panel=DATA, metavar="A,B,..."),
]  # fmt: skip
Lower = Annotated[
    str | None,
    option("--lower", help="Lower limit of what could be recorded: one for all columns, or one "
            "for each (0,none,0).", panel=DATA, metavar="LIMITS"),
]  # fmt: skip
Upper = Annotated[
    str | None,
    option("--upper", help="Upper limit, in the same way.", panel=DATA, metavar="LIMITS"),
]
Region = Annotated[
    str | None,
    option("--region", help="A window of any shape, as regions print themselves: "
            "'Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)'.", panel=DATA, metavar="EXPR"),
]  # fmt: skip
Group = Annotated[
    str | None,
    option("--group", help="Column with the group of each row.", panel=DATA, metavar="COLUMN"),
]
Outside = Annotated[
    OnTrouble,
    option("--outside", help="Rows outside of the window: an error, or left out.", panel=DATA),
]
Missing = Annotated[
    OnTrouble,
    option("--missing", help="Rows with a missing value: an error, or left out.", panel=DATA),
]
Draws = Annotated[int, option("--draws", help="Kept draws of each chain.", panel=SAMPLING, least=1)]
Warmup = Annotated[int, option("--warmup", help="Sweeps before them.", panel=SAMPLING, least=0)]
Thin = Annotated[int, option("--thin", help="Sweeps for each kept draw.", panel=SAMPLING, least=1)]
Chains = Annotated[int, option("--chains", help="Chains.", panel=SAMPLING, least=1)]
Seed = Annotated[int, option("--seed", help="The same seed gives the same draws.", panel=SAMPLING)]
Budget = Annotated[
    str,
    option("--budget", help="Largest number of rejections in a sweep: auto, none or a number.",
            panel=SAMPLING, metavar="auto|none|N"),
]  # fmt: skip
Output = Annotated[
    Path | None,
    option("-o", "--output", help="Directory for posterior, tables and report; default: "
            "FILE-MODEL here.", panel=OUTPUT, metavar="DIR"),
]  # fmt: skip
Resume = Annotated[
    bool, option("--resume", help="Go on with a run that was interrupted.", panel=OUTPUT)
]
Overwrite = Annotated[
    bool, option("--overwrite", help="Start afresh where a run is already.", panel=OUTPUT)
]
Quiet = Annotated[
    bool, option("--quiet", "-q", help="No progress and no summary; errors still.", panel=OUTPUT)
]
Strict = Annotated[
    bool, option("--strict", help="Exit with 3 where the result is doubtful.", panel=OUTPUT)
]
Components = Annotated[
    int, option("--components", help="Most clusters that there can be.", panel=MODEL, least=1)
]
Weights = Annotated[
    ProcessOn,
    option("--weights", help="Dirichlet process on weights before the window, or on shares in it "
           "(for gating).",
            panel=MODEL),
]  # fmt: skip
Transform = Annotated[
    str,
    option("--transform", help="Scale of all columns: none, asinh[:COFACTOR], logicle, log or "
            "linear:SCALE.", panel=MODEL, metavar="SCALE"),
]  # fmt: skip
Compensate = Annotated[
    bool, option("--compensate", help="Undo spillover with the FCS file's matrix.", panel=MODEL)
]
Limits = Annotated[
    AtLimits,
    option("--at-limits", help="Values exactly on a limit: keep them, or leave them out (they "
            "are usually clamped).", panel=DATA),
]  # fmt: skip
Frame = Annotated[
    str | None,
    option("--frame", help="Rows and columns of a frame, 3x2; default from the number of columns "
            "(3: 3x1, 6: 3x2, 9: 3x3).", panel=DATA, metavar="DxP"),
]  # fmt: skip
Entries = Annotated[
    Order,
    option("--order", help="Entries of a frame, column by column or row by row.", panel=DATA),
]
PriorMean = Annotated[
    float,
    option("--prior-mean", help="Mean of the exponential prior of concentrations.", panel=MODEL),
]
LengthScale = Annotated[
    str | None,
    option("--length-scale", help="In units of the data; default: inferred.", panel=MODEL,
            metavar="NUMBER|infer"),
]  # fmt: skip
Variance = Annotated[
    str | None,
    option("--variance", help="Of the Gaussian process; default: inferred.", panel=MODEL,
            metavar="NUMBER|infer"),
]  # fmt: skip
CovarianceOf = Annotated[
    Covariance, option("--covariance", help="Covariance function.", panel=MODEL)
]
MixtureMethod = Annotated[str, method_option(methods.MIXTURE)]
FramesMethod = Annotated[str, method_option(methods.FRAMES)]
CurveMethod = Annotated[str, method_option(methods.CURVES)]
BaseDensity = Annotated[Base, option("--base", help="What the process bends.", panel=MODEL)]
Probability = Annotated[float, option("--probability", help="Of bands and circles.", panel=OUTPUT)]
