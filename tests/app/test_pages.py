"""Pages hold everything that they show, and say what is true of their runs."""

from __future__ import annotations

import json
import re

import matplotlib as mpl
import numpy as np
import pytest

import offcut
from offcut.app.html import Hover, Page, Series
from offcut.app.html.figures import MOST_PLACES, sphere_data
from offcut.app.html.runs import diagnose
from offcut.langevin.evaluation import caps

mpl.use("Agg")
import matplotlib.pyplot as plt


def curve():
    figure, ax = plt.subplots()
    ax.plot([0, 1, 2], [3, 5, 4], color=offcut.plots.BLUE)
    return figure, ax


def test_nothing_is_fetched_and_text_cannot_become_markup(tmp_path, short_run):
    page = Page("A <b>title</b>", lead="x < y & z", figures=tmp_path / "figures")
    section = page.section("Numbers")
    section.text("5 < 6, `a<b>`, [here](#numbers), <script>alert(1)</script>")
    section.table(["name", "value"], [["</table><script>", 1.5]])
    figure, _ = curve()
    section.figure(figure, "curve", "A </figure> curve")
    section.run("a run", short_run, 1.0)
    text = page.write(tmp_path / "page.html").read_text()
    outside = re.sub(r"<svg.*?</svg>", "", text, flags=re.S)  # namespaces look like addresses
    assert not re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|@import|url\((?!#)', outside)
    assert "<script>alert" not in text
    assert "</table><script>" not in text
    assert "<title>A &lt;b&gt;title&lt;/b&gt;</title>" in text
    assert (tmp_path / "figures" / "curve.svg").read_text().startswith("<?xml")
    assert not list(tmp_path.glob("*.part"))


def test_names_on_a_page_are_its_own():
    page = Page("Two of each")
    for _ in range(2):
        section = page.section("Same title")
        figure, _ = curve()
        section.figure(figure, "same", "A curve")
    names = re.findall(r'\sid="([^"]+)"', page.html())
    assert len(names) == len(set(names))
    assert {"same-title", "same-title-2", "same", "same-2"} <= set(names)
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page.html())
    assert {a or b for a, b in used} <= set(names)


def test_pictures_take_the_colours_of_the_theme():
    page = Page("Colours")
    figure, _ = curve()
    page.section("Curve").figure(figure, "curve", "A curve")
    svg = re.search(r"<svg.*?</svg>", page.html(), re.S).group(0)
    assert "var(--blue)" in svg
    assert "#0072b2" not in svg.lower()
    assert 'aria-label="A curve"' in svg


def test_hover_carries_the_axes_and_few_enough_places():
    figure, ax = plt.subplots()
    x = np.linspace(0, 1, 1001)
    ax.plot(x, x**2)
    ax.set_yscale("log")
    data = Hover(ax, [Series("square", x, x**2, x**2 - 1, np.full(1001, np.nan))], "x").data()
    plt.close(figure)
    json.dumps(data, allow_nan=False)
    (series,) = data["series"]
    assert len(series["x"]) == len(series["y"]) <= MOST_PLACES
    assert series["high"][0] is None
    assert data["log"] == [False, True]
    left, top, width, height = data["box"]
    assert 0 < left < left + width <= 1
    assert 0 < top < top + height <= 1
    assert data["x"] == pytest.approx(ax.get_xlim(), rel=1e-4)


def test_the_standing_of_a_run_is_its_worst_parameter(short_run):
    found, table = diagnose(short_run), offcut.summary(short_run).table
    rejected = offcut.result.diagnostics.rejection_numbers(short_run)
    assert found.ess == min([rejected["ess"], *(row["ess"] for row in table.values())])
    assert found.r_hat == max([rejected["r_hat"], *(row["r_hat"] for row in table.values())])
    assert f"budget {short_run.attrs['budget']:,}" in found.certificate
    assert found.trouble, "so short a run must be doubted"


def test_a_page_says_that_a_run_is_doubtful(short_run):
    page = Page("Runs")
    section = page.section("Runs")
    section.runs([("one", short_run, 2.0)])
    section.run("two", short_run)
    text = page.html()
    assert text.count("doubtful") >= 2
    assert "Worst R-hat" in text
    assert "Certificate" in text


def test_a_sphere_carries_its_circles():
    random = np.random.default_rng(0)
    x = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(3000, 3, 2))).Q
    modes, ahead = caps(x, 0.5), caps(x, 0.9)
    data = sphere_data(x, modes, ahead, ("first", "second"))
    json.dumps(data, allow_nan=False)
    first = data["columns"][0]
    assert len(first["points"]) == 2000
    assert first["credible"] < first["predictive"]
    assert np.linalg.norm(first["mode"]) == pytest.approx(1, abs=1e-3)
    alone = sphere_data(x, modes, None, ("first", "second"))
    assert alone["columns"][1]["predictive"] is None


def test_an_unknown_notice_is_refused():
    with pytest.raises(ValueError, match="note, doubt, simulated"):
        Page("x").section("y").notice("z", "loud")
