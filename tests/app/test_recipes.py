"""The models of the command line: their recipes hold together, and a new one takes two parts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pkgutil import resolve_name

import numpy as np
import numpyro.distributions as dist
import pytest
import typer
from typer.testing import CliRunner

import offcut
from cli import TINY
from offcut.app.cli.fit import add_command
from offcut.app.fit.recipes import MODEL, RECIPES, Recipe, Rows, option, options_of
from offcut.app.fit.request import Result, Task, by_group, read_boxed
from offcut.app.html.page import Page


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_recipes_name_what_there_is(recipe):
    assert callable(resolve_name(recipe.prepare))
    known = {one.name for one in fields(recipe.options)}
    asked = {one.name for one in options_of(recipe.options)}
    assert set(recipe.compared) <= asked <= known
    assert all(set(chosen) <= known for chosen in recipe.samplers.values())
    assert set(recipe.approximate) <= set(recipe.samplers)
    assert set(recipe.without) <= {one.name for one in fields(Rows)}
    assert asked.isdisjoint(recipe.former)
    assert all(f"offcut fit {recipe.name} " in example for example in recipe.examples)


# A model of one's own on the command line: its options, what makes a task of a request, and what is
# said of the result.
@dataclass(frozen=True, kw_only=True)
class HeightOptions:
    scale: float = option(MODEL, 10.0, "Of the prior.")


def prepare(request):
    table, _ = read_boxed(request)
    model = offcut.truncated(
        {"mean": dist.Normal(0, request.options.scale)},
        lambda theta: dist.Normal(theta["mean"], 1),
        offcut.regions.Box(0, np.inf),
    )
    return Task(model, by_group(table, table.values[:, 0]), table, HeightResult)


class HeightResult(Result):
    title = "Heights"

    def headline(self):
        return [f"The mean is **{self.summaries[''].table['mean']['mean']:.2f}**."]

    def write(self, page: Page) -> None:
        page.section("Mean").text("See above.")


HEIGHT = Recipe(
    name="heights",
    help="How tall they were.",
    description="A truncated normal distribution",
    options=HeightOptions,
    prepare="test_recipes:prepare",
)


@pytest.mark.filterwarnings("ignore::offcut.errors.TrustWarning")
def test_a_new_model_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECIPES, HEIGHT.name, HEIGHT)
    np.save("t.npy", np.random.default_rng(0).normal(1.0, 1.0, size=40).clip(0.01))
    app = typer.Typer()
    app.callback()(lambda: None)
    add_command(app, HEIGHT)
    words = ["heights", "t.npy", "--lower", "0", "--scale", "3", *TINY]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert "The mean is" in result.stdout
    page = (tmp_path / "t-heights" / "report.html").read_text("utf-8")
    assert "A truncated normal distribution for 40 rows of t.npy." in page
    assert "--scale" in CliRunner().invoke(app, ["heights", "--help"]).stdout
