"""Names from files are text everywhere: in pages, on terminals, in pictures and in errors."""

from __future__ import annotations

import csv
import html
import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from cli import CURVE, TINY, refused, run, told
from offcut.app.cli.console import marked, safe
from offcut.app.html import Page
from offcut.app.html.markup import literal, plain
from offcut.app.html.page import TEMPLATES
from offcut.numerics.text import visible
from offcut.plots.style import check_words, words

N = 16
X = np.random.default_rng(0).gamma(3.0, size=N)
NASTY = (
    "[CD4](javascript:alert(1))",
    "[x](https://example.org/)",
    "<script>alert(1)</script>",
    '" onload="alert(1)',
    "**bold** `code` \\ \\* &amp; ]](#x)",
    "\x1b[31mred\x1b]0;title\x07",
    "[red]x[/red] [/bold] [link=file:///etc/passwd]y[/link] :bomb:",
    "$x^$",
    r"$\frac{1}$ and \$",
    "$",
    "_hidden",
    "\u202egnp.exe",
    "two\nlines\r\x00",
    "=1+1",
    "長" * 90,
    "x" * 3000,
    "../../up",
    "\ud800",
)


class Tags(HTMLParser):
    """Tags and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.words += data


def nothing_runs(page: str) -> Tags:
    """No script but the page's own, no handler, no address that is not a place of the page."""
    found = Tags(page)
    own = Tags(Page("x").html())
    data = len(re.findall(r'<script type="application/json">', page))
    assert found.tags.count("script") == own.tags.count("script") + data
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    links = [value for name, value in found.attributes if name in ("href", "src", "xlink:href")]
    assert all(link.startswith("#") or link == "data:," or link.startswith("data:image/png")
               for link in links), links  # fmt: skip
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page)
    return found


def quiet_terminal(*texts: str) -> None:
    """Nothing that a terminal would obey."""
    for text in texts:
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text), repr(text)
        text.encode()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A directory of its own, and small pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("offcut.app.fit.mixture.GRID", 8)
    monkeypatch.setattr("offcut.app.fit.mixture.MOST_DRAWS", 4)
    return tmp_path


@pytest.mark.parametrize("name", NASTY, ids=range(len(NASTY)))
def test_one_function_for_each_medium(name):
    shown = TEMPLATES.get_template("parts.html").module.inline(literal(name))
    assert "<" not in shown
    assert html.unescape(shown) == visible(name)
    assert plain(literal(name)) == visible(name)
    page = Page(literal(name), lead=literal(name))
    section = page.section(literal(name))
    section.text(f"The density of {literal(name)} is **{literal(name)}**.")
    section.table([literal(name)], [[literal(name)]], literal(name))
    section.code(name)
    found = nothing_runs(page.html())
    assert found.words.count(visible(name)) >= 7
    quiet_terminal(safe(name), marked(literal(name)))
    check_words([name])
    label = words(name)
    assert not label.startswith("_")
    assert len(label) < 90


@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")
def test_a_fit_of_columns_and_groups_with_nasty_names(folder):
    """Read, sampled, reported and printed; with text columns and a file name to match.

    The file's name has a byte that is no UTF-8, and so has that of the directory made from it.
    """
    writable = [name for name in NASTY if "\ud800" not in name and "\x00" not in name]
    groups = ["[g](javascript:1) $x^$ \x1b[31m [red]", "<b>h</b> $ _ **i** `j`"]
    file = os.fsdecode(b"[t](javascript:1) \xff\x1b[31m$x^$ <i>[red].csv")
    frame = {"which\x1b[1m[bold]": np.repeat(groups, N // 2), writable[0] + writable[7]: X}
    frame |= {name: ["text"] * N for name in writable}
    pd.DataFrame(frame).to_csv(file, index=False)
    result = run("fit", "density", file, "--group", "0", "--lower", "0", *CURVE)
    assert result.exit_code == 0, told(result)
    out = folder / file.replace(".csv", "-density")
    quiet_terminal(result.stdout, result.stderr)
    for shown in ("[red]", "[CD4](javascript:alert(1))$x^$", r"\x1b[31m"):
        assert shown in re.sub(r"\s+", "", result.stdout), shown
    found = nothing_runs((out / "report.html").read_text("utf-8"))
    for name in (*groups, *writable, file):
        assert visible(name) in found.words, name
    with (out / "tables" / "density.csv").open(newline="") as sheet:
        head = next(csv.reader(sheet))
    assert head[1] == writable[0] + writable[7]  # files have the names as they are
    assert json.loads((out / "settings.json").read_text())["state"] == "finished"
    missing = os.fsdecode(b"no\xff.csv")
    refused(run("fit", "density", missing), r"no\udcff.csv does not exist")


@pytest.mark.calibrate
@pytest.mark.filterwarnings("ignore:Glyph:UserWarning")
@pytest.mark.filterwarnings("ignore::offcut.errors.TrustWarning")
def test_a_mixture_of_nasty_columns(folder):
    table = np.random.default_rng(0).normal(size=(N, 2))
    pd.DataFrame(table, columns=[NASTY[0], "$x^$\x1b[31m"]).to_csv("t.csv", index=False)
    result = run("fit", "mixture", "t.csv", "--components", "3", *TINY, "-o", "out")
    assert result.exit_code == 0, told(result)
    quiet_terminal(result.stdout, result.stderr)
    found = nothing_runs((folder / "out" / "report.html").read_text("utf-8"))
    assert NASTY[0] in found.words


@pytest.mark.parametrize("name", [n for n in NASTY if "\ud800" not in n and "\x00" not in n])
def test_errors_show_names_as_they_are(folder, name):
    pd.DataFrame({name: ["1", "x", "2", "3"], "b": 1.0}).to_csv("t.csv", index=False)
    for options in ([], ["--columns", "nothing"], ["--columns", "0"], ["--group", "b"]):
        result = run("fit", "density", "t.csv", *options, "-o", "out")
        refused(result)
        quiet_terminal(result.stdout, result.stderr)
    assert not (folder / "out").exists()


def test_names_are_checked_before_sampling(folder, monkeypatch):
    monkeypatch.setattr("offcut.sampling.sample", lambda *_, **__: pytest.fail("it ran"))
    pd.DataFrame({"x": X, "g": ["a" * 300] * 8 + ["b"] * 8}).to_csv("t.csv", index=False)
    words = ["fit", "density", "t.csv", "--columns", "x", "--group", "g", "-o", "out"]
    refused(run(*words), "has a name of 300 letters", "rename it")

    def broken(*_, **__):
        raise ValueError("no such font")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", broken)
    refused(run("fit", "density", "t.csv", "--columns", "x", "-o", "out"), "no such font", code=1)
    assert not (folder / "out").exists()
