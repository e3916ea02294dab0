"""The models of the command line, a recipe each; ``offcut fit`` and ``compare`` are made from them.

Options are the fields of dataclasses. A new model is a dataclass with its options and a recipe
here, and a module with the function that the recipe names: it makes a ``Task`` of a request. That
module is imported when it is needed, so that ``offcut --help`` stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from inspect import Parameter
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import typer

from offcut.methods import AUTO, CURVES, FRAMES, MIXTURE, Method

if TYPE_CHECKING:
    from offcut.app.fit.request import Request, Task

PANELS = DATA, MODEL, SAMPLING, OUTPUT = "Data", "Model", "Sampling", "Output"
Made = TypeVar("Made")


def option(
    panel: str | None,
    default: object,
    help: str,
    *,
    names: tuple[str, ...] = (),
    metavar: str | None = None,
    least: int | None = None,
    **more: object,
) -> Any:
    """A field of a dataclass that is an option of the command line.

    ``panel`` is where the help shows it, one of ``PANELS``; ``names`` are those on the command
    line, by default the field's; ``more`` goes to ``typer.Option`` (a parser, autocompletion).
    """
    about = {"help": help, "rich_help_panel": panel, "metavar": metavar, "min": least, **more}
    return field(default=default, metadata={"names": names, "option": about})


def method_option(offered: tuple[Method, ...], default: str = AUTO) -> Any:
    """``--method`` of a model with these routes."""
    names = [AUTO, *(one.name for one in offered)]

    def known(given: str) -> str:
        if given not in names:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(map(repr, names))}.")
        return given

    return option(
        MODEL,
        default,
        f"Route to the posterior: {'; '.join(f'{one.name} {one.words}' for one in offered)}.",
        metavar="METHOD",
        parser=known,
        autocompletion=lambda: names,
    )


def options_of(kind: type, without: Iterable[str] = ()) -> list[Parameter]:
    """The options among the fields of a dataclass, as parameters that Typer reads."""
    hints = get_type_hints(kind)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=one.default,
            annotation=Annotated[
                hints[one.name],
                typer.Option(
                    *(one.metadata["names"] or (f"--{one.name.replace('_', '-')}",)),
                    **one.metadata["option"],
                ),
            ],
        )
        for one in fields(kind)
        if "option" in one.metadata and one.name not in without
    ]


def former(name: str, now: str) -> Parameter:
    """An option as it was called once; it is answered with what to say now."""

    def answer(value: str | None) -> None:
        if value is not None:
            raise typer.BadParameter(now)

    about = typer.Option(f"--{name}", hidden=True, callback=answer, expose_value=False)
    return Parameter(
        f"former_{name}",
        Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, about],
    )


def panel_of(parameter: Parameter) -> int:
    """The place of an option's panel in the help."""
    return PANELS.index(get_args(parameter.annotation)[1].rich_help_panel or PANELS[-1])


def made_from(kind: type[Made], given: Mapping[str, object]) -> Made:
    """A dataclass from those of its fields that are given."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given[name] for name in names if name in given})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows and columns of a file, and limits of what could be recorded."""

    columns: str | None = option(
        DATA,
        None,
        "Names or numbers (from 0) with commas; default: all of numbers.",
        metavar="A,B,...",
    )
    lower: str | None = option(
        DATA,
        None,
        "Lower limit of what could be recorded: one for all columns, or one for each (0,none,0).",
        metavar="LIMITS",
    )
    upper: str | None = option(DATA, None, "Upper limit, in the same way.", metavar="LIMITS")
    region: str | None = option(
        DATA,
        None,
        "A window of any shape, as regions print themselves: "
        "'Box([0, 0], [4, 3]) & ~Ball([1, 1], 0.5)'.",
        metavar="EXPR",
    )
    group: str | None = option(DATA, None, "Column with the group of each row.", metavar="COLUMN")
    outside: Literal["refuse", "drop"] = option(
        DATA, "refuse", "Rows outside of the window: an error, or left out."
    )
    missing: Literal["refuse", "drop"] = option(
        DATA, "refuse", "Rows with a missing value: an error, or left out."
    )


BUDGET_HELP = "Largest number of rejections in a sweep: auto, none or a number."


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What goes to ``offcut.sample``."""

    draws: int = option(SAMPLING, 1000, "Kept draws of each chain.", least=1)
    warmup: int = option(SAMPLING, 1000, "Sweeps before them.", least=0)
    thin: int = option(SAMPLING, 1, "Sweeps for each kept draw.", least=1)
    chains: int = option(SAMPLING, 4, "Chains.", least=1)
    seed: int = option(SAMPLING, 0, "The same seed gives the same draws.")
    budget: str = option(SAMPLING, "auto", BUDGET_HELP, metavar="auto|none|N")


@dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """Of ``TruncatedMixture``."""

    at_limits: Literal["keep", "drop"] = option(
        DATA,
        "keep",
        "Values exactly on a limit: keep them, or leave them out (they are usually clamped).",
    )
    components: int = option(MODEL, 50, "Most clusters that there can be.", least=1)
    weights: Literal["latent", "window"] = option(
        MODEL,
        "latent",
        "Dirichlet process on weights before the window, or on shares in it (for gating).",
    )
    method: str = method_option(MIXTURE)
    transform: str = option(
        MODEL,
        "none",
        "Scale of all columns: none, asinh[:COFACTOR], logicle, log or linear:SCALE.",
        metavar="SCALE",
    )
    compensate: bool = option(MODEL, False, "Undo spillover with the FCS file's matrix.")


@dataclass(frozen=True, kw_only=True)
class LangevinOptions:
    """Of ``MatrixLangevinModel``."""

    frame: str | None = option(
        DATA,
        None,
        "Rows and columns of a frame, 3x2; default from the number of columns (3: 3x1, 6: 3x2, "
        "9: 3x3).",
        metavar="DxP",
    )
    order: Literal["columns", "rows"] = option(
        DATA, "columns", "Entries of a frame, column by column or row by row."
    )
    method: str = method_option(FRAMES, "fastest")
    prior_mean: float = option(MODEL, 10.0, "Mean of the exponential prior of concentrations.")
    probability: float = option(OUTPUT, 0.9, "Of bands and circles.")


@dataclass(frozen=True, kw_only=True)
class IntensityOptions:
    """Of ``GPIntensity``; ``joint_moves`` only ``offcut compare`` turns off."""

    covariance: Literal["squared_exponential", "matern32", "matern52"] = option(
        MODEL, "squared_exponential", "Covariance function."
    )
    length_scale: str | None = option(
        MODEL, None, "In units of the data; default: inferred.", metavar="NUMBER|infer"
    )
    variance: str | None = option(
        MODEL, None, "Of the Gaussian process; default: inferred.", metavar="NUMBER|infer"
    )
    method: str = method_option(CURVES)
    probability: float = option(OUTPUT, 0.9, "Of bands and circles.")
    joint_moves: bool = True


@dataclass(frozen=True, kw_only=True)
class DensityOptions(IntensityOptions):
    """Of ``GPDensity``."""

    base: Literal["normal", "uniform"] = option(MODEL, "normal", "What the process bends.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model of the command line.

    Attributes
    ----------
    name : str
        As in ``offcut fit NAME``.
    help : str
        What it is for, in a line.
    description : str
        What the report calls it.
    options : type
        A dataclass: fields made by ``option`` are options of the command.
    prepare : str
        ``module:name`` of a function that makes a ``Task`` of a ``Request``.
    samplers : dict from name to options
        What ``offcut compare`` sets against each other: options that differ.
    compared : tuple of str
        Options that ``offcut compare`` takes.
    without : tuple of str
        Of the options for data (``Rows``), those that the model has no use for.
    approximate : tuple of str
        Those of ``samplers`` that are not exact.
    own_targets : bool
        Whether each of ``samplers`` has a posterior of its own.
    former : dict from name to text
        Options that are called otherwise now, and what to say.
    examples : tuple of str
        Commands.
    """

    name: str
    help: str
    description: str
    options: type
    prepare: str
    samplers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    compared: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()
    own_targets: bool = False
    former: Mapping[str, str] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    def prepared(self, request: Request) -> Task:
        return resolve_name(self.prepare)(request)


_CURVES = {
    "paper's sweep": {"method": "augment", "joint_moves": False},
    "augment": {"method": "augment", "joint_moves": True},
    "collapsed": {"method": "collapsed", "joint_moves": True},
}
_COVARIANCE = {
    "kernel": "the covariance function is chosen with --covariance, the sampler with --method"
}
#: All models, by name.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="mixture",
            help="Populations (clusters) in data that a window cuts: a Dirichlet process mixture.",
            description="A truncated Dirichlet process mixture",
            options=MixtureOptions,
            prepare="offcut.app.fit.mixture:prepare",
            samplers={f"weights {name}": {"weights": name} for name in ("latent", "window")},
            compared=("components", "transform"),
            own_targets=True,
            former={"prior": "whose weights the Dirichlet process has is chosen with --weights"},
            examples=(
                "offcut fit mixture sample.fcs --columns CD4,CD8 --transform asinh:150",
                "offcut fit mixture cells.csv --lower 0 --upper 1 --group patient -o cells",
                "offcut fit mixture sky.parquet --region "
                "'Ball(\\[0, 0], 2) & Box(\\[0, 0], \\[2, 2])'",
            ),
        ),
        Recipe(
            name="langevin",
            help="Directions and frames of orthonormal columns: where they point, how closely they "
            "agree.",
            description="A matrix Langevin model",
            options=LangevinOptions,
            prepare="offcut.app.fit.langevin:prepare",
            samplers={one.name: {"method": one.name} for one in FRAMES if one.name != "fastest"},
            compared=("frame", "order", "prior_mean"),
            without=("lower", "upper", "region", "outside"),
            approximate=tuple(one.name for one in FRAMES if not one.exact),
            former={"kernel": "how concentrations move is chosen with --method"},
            examples=(
                "offcut fit langevin orbits.csv --columns x1,x2,x3,y1,y2,y3 --frame 3x2",
                "offcut fit langevin frames.npy --method collapsed",
                "offcut fit langevin winds.csv --columns u,v,w --group season",
            ),
        ),
        Recipe(
            name="density",
            help="A density with bands; limits are its support, groups are compared.",
            description="A Gaussian process density",
            options=DensityOptions,
            prepare="offcut.app.fit.curves:prepare_density",
            samplers=_CURVES,
            compared=("base", "covariance", "length_scale", "variance"),
            former=_COVARIANCE,
            examples=(
                "offcut fit density voices.csv --columns shimmer --group status",
                "offcut fit density times.npy --lower 0 --length-scale 1 --variance 1",
                "offcut fit density map.parquet --columns x,y --lower 0 --upper 10",
            ),
        ),
        Recipe(
            name="intensity",
            help="How frequent events are, in time or in a plane; limits are the window of "
            "recording.",
            description="A Gaussian process intensity",
            options=IntensityOptions,
            prepare="offcut.app.fit.curves:prepare_intensity",
            samplers=_CURVES,
            compared=("covariance", "length_scale", "variance"),
            former=_COVARIANCE,
            examples=(
                "offcut fit intensity mines.csv --columns year --lower 1851 --upper 1962",
                "offcut fit intensity trees.csv --columns x,y --region "
                "'Box(\\[0, 0], \\[200, 100])'",
            ),
        ),
    )
}
