"""Pages in a real browser: they render, say nothing to the console, turn and answer the pointer.

The page of ``make run`` is tested as well where it is there; ``.ci/run`` makes it before.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import offcut
from browser import executable, opened
from offcut.app.html import Hover, Page, Series
from offcut.langevin.evaluation import caps

mpl.use("Agg")
import matplotlib.pyplot as plt

MADE_BY_RUN = Path(__file__).parents[2] / "results" / "index.html"
SHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"
#: Pictures of the whole reproduction, by part of its page.
FIGURES = {
    "gvhd": {"gvhd-control", "gvhd-positive"},
    "vcg": {"frames-simulated-globe", "frames-simulated-maps", "frames-simulated-kappa"},
    "samplers": {"samplers-left", "samplers-right"},
    "approximate": {"approximate-errors"},
    "parkinsons": {
        "parkinsons-densities",
        "parkinsons-difference",
        "parkinsons-function",
        "parkinsons-rejections",
    },
}


@pytest.fixture(scope="module")
def small(tmp_path_factory, short_run):
    """A page with one of everything."""
    executable()
    page = Page("One of everything", lead="For a browser.")
    section = page.section("Curves", "curves")
    x = np.linspace(0, 2, 101)
    figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    ax.plot(x, x**2, color=offcut.plots.BLUE)
    series = [Series("square", x, x**2, x**2 - 0.5, x**2 + 0.5)]
    section.figure(figure, "square", "A parabola.", hover=Hover(ax, series, "x"))
    section.table(["name", "value", "a long column of words"], [["one", 1, "word " * 40]])
    section.table(["name", "value"], [["one", 1]], cards=True)
    section.run("a run", short_run)
    random = np.random.default_rng(0)
    frames = np.linalg.qr(np.eye(3, 2) + 0.3 * random.normal(size=(50, 3, 2))).Q
    second = page.section("Sphere", "sphere")
    second.globe(
        frames, caps(frames, 0.5), caps(frames, 0.9), names=("a", "b"), name="globe",
        caption="Frames.",
    )  # fmt: skip
    second.code("x " * 400)
    return page.write(tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture(scope="module")
def panels(tmp_path_factory):
    """A picture of two panels, each with a curve of three points."""
    executable()
    page = Page("Two panels")
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    x = np.array([1.0, 2.0, 4.0])
    for ax in axes:
        ax.plot(x, 10 * x)
    hovers = [
        Hover(ax, [Series("y", x, 10 * x)], name)
        for ax, name in zip(axes, ("left", "right"), strict=True)
    ]
    page.section("Panels").figure(figure, "two", "Two.", hover=hovers)
    return page.write(tmp_path_factory.mktemp("panels") / "page.html")


@pytest.fixture
def made_by_run():
    executable()
    if not MADE_BY_RUN.is_file():
        pytest.skip("make run has not been run here, so its page is not there")
    return MADE_BY_RUN


def whole_page(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def links_lead_somewhere(page):
    broken = page.evaluate(
        """() => [...document.querySelectorAll('a[href^="#"]')].map(a => a.hash.slice(1))
               .filter(name => !document.getElementById(name))"""
    )
    assert broken == []


def is_within_the_screen(page):
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, f"the page is {wide} pixels wider than the screen"


def painted(page, selector):
    """How many colours a canvas shows."""
    return page.evaluate(
        """(selector) => {
            const canvas = document.querySelector(selector);
            const pen = canvas.getContext('2d');
            const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
            const seen = new Set();
            for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 4).join());
            return seen.size;
        }""",
        selector,
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_renders_on_every_screen(small, width, dark):
    with opened(small, width=width, dark=dark) as page:
        is_within_the_screen(page)
        links_lead_somewhere(page)
        assert page.locator("figure").count() == 2
        box = page.locator("#square svg").bounding_box()
        assert box["width"] > 200
        background, ink = page.evaluate(
            "() => [getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.body).color]"
        )
        lighter = sum(map(int, background[4:-1].split(","))) > sum(map(int, ink[4:-1].split(",")))
        assert lighter != dark
        assert page.locator("nav details").evaluate("d => d.open") == (width > 600)
        whole_page(page, f"small-{width}-{'dark' if dark else 'light'}")
        assert page.said == []


def test_the_pointer_shows_values(small):
    with opened(small) as page:
        picture = page.locator("#square .hovered")
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        tip = picture.locator(".tip")
        assert not tip.is_visible()
        for share in (0.3, 0.8):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            first, second = tip.inner_text().split("\n")
            at = float(first.removeprefix("x: "))
            value = float(second.split(": ")[1].split(" ")[0])
            assert value == pytest.approx(at**2, abs=0.06)
            dot, curve = picture.locator(".dot").bounding_box(), box["y"] + box["height"] / 2
            assert dot["x"] + dot["width"] / 2 == pytest.approx(
                box["x"] + share * box["width"], abs=8
            )
            assert (dot["y"] > curve) == (value < 1.5)
        picture.press("ArrowLeft")
        assert float(tip.inner_text().split("\n")[0].removeprefix("x: ")) < at
        page.mouse.move(1, 1)
        assert not tip.is_visible()
        assert page.said == []


def test_each_panel_answers_for_itself(panels):
    with opened(panels) as page:
        picture = page.locator("#two .hovered")
        box = picture.bounding_box()
        for share, told in ((0.25, "left"), (0.8, "right")):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            (tip,) = [t for t in picture.locator(".tip").all() if t.is_visible()]
            head, value = tip.inner_text().split("\n")
            assert head.split(": ")[0] == told
            assert float(head.split(": ")[1]) in (1, 2, 4), "few points: the pointer snaps to them"
            assert float(value.split(": ")[1]) == 10 * float(head.split(": ")[1])
        picture.press("ArrowLeft")
        assert page.said == []


def test_the_sphere_turns_by_hand_and_by_key(small):
    with opened(small) as page:
        canvas = page.locator("#globe canvas")
        canvas.scroll_into_view_if_needed()
        assert painted(page, "#globe canvas") > 20
        before = canvas.get_attribute("data-azimuth"), canvas.get_attribute("data-elevation")
        picture = canvas.screenshot()
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 320, box["y"] + 240, steps=5)
        page.mouse.up()
        page.wait_for_function(
            "old => document.querySelector('#globe canvas').dataset.azimuth !== old", arg=before[0]
        )
        assert canvas.get_attribute("data-elevation") != before[1]
        assert canvas.screenshot() != picture
        turned = canvas.get_attribute("data-azimuth")
        canvas.press("ArrowRight")
        page.wait_for_function(
            "old => document.querySelector('#globe canvas').dataset.azimuth !== old", arg=turned
        )
        assert page.said == []


def test_the_theme_is_the_readers_choice(small):
    with opened(small) as page:
        paper = "() => getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(paper)
        button = page.locator("#theme")
        button.click()
        assert page.evaluate(paper) == light
        button.click()
        assert page.evaluate(paper) != light
        assert button.inner_text() == "Theme: dark"
        page.reload()
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        assert page.evaluate(paper) != light
        assert page.said == []


def test_a_broken_page_would_be_noticed(small, tmp_path):
    """Negative control of the tests above: an error in the script reaches ``said``."""
    broken = tmp_path / "broken.html"
    broken.write_text(small.read_text().replace("</main>", "</main><script>nowhere.x</script>"))
    with opened(broken) as page:
        assert any("nowhere" in line for line in page.said)
    loud = tmp_path / "loud.html"
    loud.write_text(
        small.read_text().replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>')
    )
    with opened(loud) as page:
        assert any("127.0.0.1" in line for line in page.said)


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_of_make_run(made_by_run, width):
    with opened(made_by_run, width=width, dark=width < 600) as page:
        is_within_the_screen(page)
        links_lead_somewhere(page)
        sections = set(page.evaluate("[...document.querySelectorAll('section')].map(s => s.id)"))
        assert {"summary", "made"} <= sections
        shown = set(page.evaluate("[...document.querySelectorAll('figure')].map(f => f.id)"))
        for part in FIGURES.keys() & sections:
            lacking = {name for name in FIGURES[part] - shown if "simulated" not in name}
            assert not lacking
        if "vcg" in sections:
            assert painted(page, ".globe canvas") > 20
        for figure in page.locator("figure svg").all():
            assert figure.bounding_box()["width"] > 200
        assert page.locator(".hovered").count() >= 2 or "parkinsons" not in sections
        assert "NaN" not in page.locator("main").inner_text()
        whole_page(page, f"reproduction-{width}")
        assert page.said == []
