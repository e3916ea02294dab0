"""``offcut compare``: the samplers of a model of the command line or of a user's own model.

What came of it, as rows, as a CSV file and as a page.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offcut.app.fit.folder import MANIFEST, OwnedFolder
from offcut.app.fit.recipes import RECIPES, Recipe
from offcut.app.fit.request import Request, read_rows
from offcut.app.html.markup import literal
from offcut.base import Model
from offcut.checks.comparison import Comparison, Contender, Measured
from offcut.errors import SettingsError
from offcut.methods import KERNELS
from offcut.samplers.choice import method_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE, PAGE, FIGURES, RATES = "comparison.csv", "report.html", "figures", "rates"
HEAD = ["sampler", "approximate", "quantity", "ess_per_second", "low_95%", "high_95%", "mean"]
HEAD += ["mcse", "repeats", "r_hat", "trouble", "refusal"]
NO_REFERENCE = (
    "No exact sampler has chains that agree, so there is no reference: nothing here says what is "
    "right. Run longer (--draws, --warmup), or with a tighter prior."
)


def verdict(found: Comparison, one: Measured) -> str:
    """Whether a contender agrees with itself and with the best exact one, in a few words."""
    if one.refusal or one.trouble:
        return one.trouble
    reference = found.reference(one.contender.target)
    if reference is one:
        others = sum(other.contender.target == one.contender.target for other in found.ran) > 1
        return "reference" if others else ""
    largest, quantity = found.disagreement(one)
    if np.isnan(largest):
        return ""
    word = "DISAGREES" if disagrees(found, one) else "agrees"
    return f"{word}, |z| {largest:.1f} ({quantity})"


def disagrees(found: Comparison, one: Measured) -> bool:
    """Whether a contender has other posterior means than the reference; False if none is known."""
    return bool(found.disagreement(one)[0] >= found.limit())


def in_order(found: Comparison) -> list[Measured]:
    """By rank; what was refused comes last."""
    return [*found.ranked, *(one for one in found.measured if one.refusal)]


def rows(found: Comparison) -> list[list[Any]]:
    """Every contender and quantity."""
    table: list[list[Any]] = []
    for one in in_order(found):
        approximate = "yes" if one.contender.approximate else "no"
        if one.refusal:
            table.append([one.contender.name, approximate, *[""] * 9, one.refusal])
        for quantity, r_hat in zip(one.quantities, one.r_hat, strict=True):
            rate = one.rate(quantity)
            table.append(
                [
                    *(one.contender.name, approximate, quantity),
                    *(rate.middle, rate.low, rate.high, *one.estimate(quantity)),
                    *(len(one.seconds), r_hat, one.trouble, ""),
                ]
            )
    return table


def comparison_folder(folder: Path) -> OwnedFolder:
    """Where a comparison goes, refused where it would write over what it did not write."""
    owned = OwnedFolder(folder, "offcut compare")
    owned.check_folders(FIGURES)
    owned.check_files(TABLE, PAGE, MANIFEST)
    strangers = owned.strangers(TABLE, PAGE, f"{FIGURES}/{RATES}.svg")
    if strangers:
        raise SettingsError(
            f"{folder} holds {strangers[0]} already, which offcut compare did not write or which "
            "was changed since; move it away, or name another directory with -o"
        )
    return owned


def write_comparison(found: Comparison, folder: OwnedFolder, what: str, command: str) -> list[Path]:
    """``comparison.csv`` and a page."""
    import matplotlib

    matplotlib.use("Agg")
    from offcut.app.html import Page

    table = folder.put_table(TABLE, HEAD, rows(found))
    page = Page(
        f"Samplers compared: {literal(what)}",
        lead="Effective draws per CPU-second of the quantity that mixes most slowly, with 95% "
        "intervals over repeated runs.",
        figures=lambda name, svg: folder.put(f"{FIGURES}/{name}", svg),
    )
    section = page.section("Which is fastest", "fastest")
    ran = found.ranked
    if ran:
        section.figure(
            _figure(ran),
            RATES,
            "Each line is a 95% interval over repeated runs on this machine; further right is "
            "faster. The scale is logarithmic. Hollow: the chains disagree, so that the rate means "
            "nothing.",
        )
    section.table(
        ["sampler", "ESS per second (95%)", "slowest quantity", "mean ± error", "agreement"],
        [
            [
                literal(one.contender.name)
                + (" (approximate)" if one.contender.approximate else ""),
                *map(literal, rate_and_mean(one)),
                literal(verdict(found, one)),
            ]
            for one in ran
        ],
        "Effective draws are those of all repeats together. Agreement is with the exact sampler "
        "that has the most of them: the largest |z| of all posterior means. Below "
        f"{found.limit():.1f} is what samplers of one posterior show. Samplers whose own chains "
        "disagree come last and are compared with nothing.",
    )
    if found.without_reference():
        section.notice(NO_REFERENCE)
    for one in found.measured:
        if one.refusal:
            section.notice(literal(f"{one.contender.name} does not fit: {one.refusal}"))
    making = page.section("How this was made", "making")
    making.code(command)
    making.machine()
    return [table, folder.put(PAGE, page.html())]


def rate_and_mean(one: Measured) -> tuple[str, str, str]:
    """Rate, slowest quantity and its mean, in words."""
    rate = one.rate(one.worst)
    mean, error = one.estimate(one.worst)
    interval = "" if np.isnan(rate.low) else f" ({_short(rate.low)} to {_short(rate.high)})"
    return f"{_short(rate.middle)}{interval}", one.worst, f"{mean:.4g} ± {error:.2g}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _figure(ran: list[Measured]) -> Figure:
    from offcut.plots.style import BLUE, INK, ORANGE, STYLE, pyplot, words

    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.6, 0.8 + 0.45 * len(ran)), layout="constrained")
        for row, one in enumerate(ran):
            rate = one.rate(one.worst)
            colour = ORANGE if one.contender.approximate else BLUE
            if not np.isnan(rate.low):
                ax.plot([rate.low, rate.high], [-row] * 2, color=colour, linewidth=2.5)
            face = "white" if one.trouble else colour
            ax.plot([rate.middle], [-row], "o", color=colour, markerfacecolor=face)
        ax.set_yticks([-row for row in range(len(ran))], [words(one.contender.name) for one in ran])
        ax.tick_params(axis="y", labelcolor=INK, length=0)
        ax.set_xscale("log")
        ax.set_ylim(-len(ran) + 0.4, 0.6)
        ax.set_xlabel("effective draws per CPU-second")
    return figure


EXAMPLE = "offcut compare models.py:model heights.csv"


def contenders(request: Request) -> tuple[list[Contender], np.ndarray]:
    """Samplers and the data; ``request.model`` may be ``path.py:NAME``."""
    if request.model in RECIPES:
        return _of_recipe(RECIPES[request.model], request)
    if ".py" not in request.model:
        raise SettingsError(
            f"{request.model!r} is nothing to compare: expected one of {', '.join(RECIPES)}, or a "
            f"Python file and the name of a model in it ({EXAMPLE})"
        )
    model = load_model(request.model)
    values = read_rows(request).values
    return _of_model(model), values[:, 0] if values.shape[1] == 1 else values


def _of_recipe(recipe: Recipe, request: Request) -> tuple[list[Contender], np.ndarray]:
    tasks = {
        name: recipe.prepared(replace(request, options=replace(request.options, **chosen)))
        for name, chosen in recipe.samplers.items()
    }
    found = [
        Contender(
            name,
            task.model,
            approximate=name in recipe.approximate,
            target=name if recipe.own_targets else "",
            method=task.method,
        )
        for name, task in tasks.items()
    ]
    return found, next(iter(next(iter(tasks.values())).data.values()))


def _of_model(model: Model) -> list[Contender]:
    """Every kernel that a rejection model takes on its first route, and its other routes; other
    models by each of theirs.
    """
    import offcut

    first, others = model.methods[0], model.methods
    kernels = []
    if model.rejection_model() is not None:
        names = [name for kind in first.kernels for name in KERNELS[kind]]
        made = {name: getattr(offcut, name)() for name in names}
        kernels = [Contender(name, model, one, method=first.name) for name, one in made.items()]
        others = others[1:]
    return kernels + [Contender(o.name, model, None, not o.exact, method=o.name) for o in others]


def load_model(text: str) -> Model:
    """The model that ``path/to/file.py:NAME`` means; without a name the only one in the file."""
    path_text, colon, name = text.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        path_text, name = text, ""
    path = Path(path_text)
    if not path.is_file():
        raise SettingsError(
            f"there is no file {path} (from {Path.cwd()}); expected a Python file and the name of "
            f"a model in it ({EXAMPLE})"
        )
    spec = importlib.util.spec_from_file_location(f"_offcut_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingsError(
            f"{path} cannot be run: {type(error).__name__}: {error}. Does `python {path}` work?"
        ) from error
    finally:
        sys.path.pop(0)
    models = {key: value for key, value in vars(module).items() if isinstance(value, Model)}
    known = ", ".join(models) or "none"
    if not name and len(models) == 1:
        return next(iter(models.values()))
    if not name:
        raise SettingsError(f"which model of {path}? There are: {known}. Say {path}:NAME")
    if name not in vars(module):
        raise SettingsError(f"{path} has no {name!r}; its models are: {known}")
    if name not in models:
        kind = type(vars(module)[name]).__name__
        raise SettingsError(
            f"{name} in {path} is no model but {kind}; expected what offcut.truncated, "
            f"offcut.selected or another model of this library makes. Models there: {known}"
        )
    return models[name]


def chosen_among(found: list[Contender], wanted: str | None) -> list[Contender]:
    """Those named, with commas between them, in any case."""
    if wanted is None:
        return found
    by_name = {_plain(one.name): one for one in found}
    words = [_plain(word) for word in wanted.split(",")]
    unknown = [word for word in words if word not in by_name]
    if unknown:
        raise SettingsError(
            f"--samplers {wanted}: there is no {unknown[0]!r}; there are "
            f"{', '.join(one.name for one in found)}"
        )
    return [by_name[word] for word in dict.fromkeys(words)]


def of_method(found: list[Contender], wanted: str | None) -> list[Contender]:
    """Those that go one route, where one is asked for."""
    if wanted is None:
        return found
    return [
        one
        for one in found
        if method_named(one.model, one.method) == method_named(one.model, wanted)
    ]


def _plain(name: str) -> str:
    plain = name.strip().lower().removeprefix("weights ")
    return plain.replace("_", "").replace("-", "")
