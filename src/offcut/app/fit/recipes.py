"""The models of the command line, a recipe each; ``offcut fit`` and ``compare`` are made from them.

A new model is a recipe here with its options, and a module with what the recipe names: ``prepare``
makes a model and its data of a request, and a ``Result`` has the words, tables and pictures. That
module is imported when it is needed, so that ``offcut --help`` stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import typer

from offcut.app.fit import options as o
from offcut.methods import AUTO, FRAMES

if TYPE_CHECKING:
    from offcut.app.fit.request import Fit, Request, Result, Task


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows and columns of a file."""

    columns: o.Columns = None
    group: o.Group = None
    missing: o.Missing = o.OnTrouble.refuse


@dataclass(frozen=True, kw_only=True)
class WindowedRows:
    """The same, with limits of what could be recorded."""

    columns: o.Columns = None
    lower: o.Lower = None
    upper: o.Upper = None
    region: o.Region = None
    group: o.Group = None
    outside: o.Outside = o.OnTrouble.refuse
    missing: o.Missing = o.OnTrouble.refuse


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What goes to ``offcut.sample``."""

    draws: o.Draws = 1000
    warmup: o.Warmup = 1000
    thin: o.Thin = 1
    chains: o.Chains = 4
    seed: o.Seed = 0
    budget: o.Budget = "auto"


@dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """Of ``TruncatedMixture``."""

    at_limits: o.Limits = o.AtLimits.keep
    components: o.Components = 50
    weights: o.Weights = o.ProcessOn.latent
    method: o.MixtureMethod = AUTO
    transform: o.Transform = "none"
    compensate: o.Compensate = False


@dataclass(frozen=True, kw_only=True)
class LangevinOptions:
    """Of ``MatrixLangevinModel``."""

    frame: o.Frame = None
    order: o.Entries = o.Order.columns
    method: o.FramesMethod = "fastest"
    prior_mean: o.PriorMean = 10.0
    probability: o.Probability = 0.9


@dataclass(frozen=True, kw_only=True)
class IntensityOptions:
    """Of ``GPIntensity``; ``joint_moves`` only ``offcut compare`` turns off."""

    covariance: o.CovarianceOf = o.Covariance.squared_exponential
    length_scale: o.LengthScale = None
    variance: o.Variance = None
    method: o.CurveMethod = AUTO
    probability: o.Probability = 0.9
    joint_moves: bool = True


@dataclass(frozen=True, kw_only=True)
class DensityOptions:
    """Of ``GPDensity``; ``joint_moves`` only ``offcut compare`` turns off."""

    base: o.BaseDensity = o.Base.normal
    covariance: o.CovarianceOf = o.Covariance.squared_exponential
    length_scale: o.LengthScale = None
    variance: o.Variance = None
    method: o.CurveMethod = AUTO
    probability: o.Probability = 0.9
    joint_moves: bool = True


class Option(NamedTuple):
    """A field of a dataclass that is an option of the command line."""

    name: str
    annotation: Any
    default: Any
    panel: str


def options_of(kind: type) -> list[Option]:
    """The fields of a dataclass that Typer knows how to ask for."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for one in fields(kind):
        for about in get_args(hints[one.name])[1:]:
            if isinstance(about, typer.models.OptionInfo):
                panel = about.rich_help_panel
                found.append(Option(one.name, hints[one.name], one.default, str(panel)))
    return found


def made_from(kind: type, given: Mapping[str, Any]) -> Any:
    """A dataclass from those of its fields that are given; enums as the words they stand for."""
    values = {one.name: given.get(one.name, one.default) for one in fields(kind)}
    return kind(**{name: getattr(value, "value", value) for name, value in values.items()})


@dataclass(frozen=True)
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
        A dataclass: its annotated fields are options of the command.
    prepare, result : str
        ``module:name`` of the function and of the subclass of ``Result``.
    samplers : dict from name to options
        What ``offcut compare`` sets against each other: options that differ.
    compared : tuple of str
        Options that ``offcut compare`` takes.
    rows : type
        A dataclass of the options for data.
    approximate : tuple of str
        Those of ``samplers`` that are not exact.
    own_targets : bool
        Whether each of ``samplers`` has a posterior of its own.
    examples : tuple of str
        Commands.
    """

    name: str
    help: str
    description: str
    options: type
    prepare: str
    result: str
    samplers: Mapping[str, Mapping[str, Any]]
    compared: tuple[str, ...]
    rows: type = WindowedRows
    approximate: tuple[str, ...] = ()
    own_targets: bool = False
    examples: tuple[str, ...] = field(default=(), repr=False)

    def prepared(self, request: Request) -> Task:
        """The model and the data of a request."""
        return resolve_name(self.prepare)(request)

    def read(self, fit: Fit) -> Result:
        """A finished fit in words, tables and pictures."""
        return resolve_name(self.result)(fit)


def compared_options(recipes: Iterable[Recipe]) -> list[Option]:
    """The options of models that ``offcut compare`` takes, each once."""
    found: dict[str, Option] = {}
    for recipe in recipes:
        found |= {
            one.name: one for one in options_of(recipe.options) if one.name in recipe.compared
        }
    return list(found.values())


_CURVES = {
    "paper's sweep": {"method": "augment", "joint_moves": False},
    "augment": {"method": "augment", "joint_moves": True},
    "collapsed": {"method": "collapsed", "joint_moves": True},
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
            result="offcut.app.fit.mixture:MixtureResult",
            samplers={f"weights {name}": {"weights": name} for name in ("latent", "window")},
            compared=("components", "transform"),
            own_targets=True,
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
            result="offcut.app.fit.langevin:LangevinResult",
            samplers={one.name: {"method": one.name} for one in FRAMES if one.name != "fastest"},
            compared=("frame", "order", "prior_mean"),
            rows=Rows,
            approximate=tuple(one.name for one in FRAMES if not one.exact),
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
            result="offcut.app.fit.curves:DensityResult",
            samplers=_CURVES,
            compared=("base", "covariance", "length_scale", "variance"),
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
            result="offcut.app.fit.curves:IntensityResult",
            samplers=_CURVES,
            compared=("covariance", "length_scale", "variance"),
            examples=(
                "offcut fit intensity mines.csv --columns year --lower 1851 --upper 1962",
                "offcut fit intensity trees.csv --columns x,y --region "
                "'Box(\\[0, 0], \\[200, 100])'",
            ),
        ),
    )
}
