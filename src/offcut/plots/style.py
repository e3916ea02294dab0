"""What all pictures share: colours, lines and sizes, labels, and the order of their arguments."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from offcut.errors import SettingsError
from offcut.numerics.text import shortened, visible

# Okabe and Ito's colours: told apart by every kind of colour vision, and in grey.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
CHAIN_COLOURS = (BLUE, ORANGE, GREEN, PINK, "#56B4E9", "#E69F00")
INK, GREY, PALE = "#222222", "#767676", "#E4E4E4"
TRUTH = {"color": INK, "linestyle": (0, (5, 2)), "linewidth": 1.4}
NAIVE = {"color": ORANGE, "linestyle": (0, (1, 1.2)), "linewidth": 2.0}
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 110,
    "font.size": 9.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}
#: Letters of a name that a picture has room for.
MOST_LETTERS = 24


def words(name: object) -> str:
    """A name from a file as a label: no formula, nothing hidden, not too long.

    Matplotlib sets what stands between two dollar signs as a formula, and leaves labels that begin
    with an underscore out of legends.

    >>> print(words("$x^$"), words("_a"))
    \\$x^\\$  _a
    """
    text = shortened(visible(name), MOST_LETTERS).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def distinct_words(names: Iterable[str]) -> list[str]:
    """The same for several names, which stay different where they are shortened.

    >>> distinct_words(["a" * 50, "a" * 60])[1][-5:]
    '… (2)'
    """
    found: list[str] = []
    for name in names:
        label, count = words(name), 1
        while label in found:
            count += 1
            label = f"{words(name)} ({count})"
        found.append(label)
    return found


def check_words(names: Iterable[str]) -> None:
    """See that pictures of these names can be drawn, before hours are spent on what they show."""
    pyplot()  # or it says how to get it
    from matplotlib.figure import Figure

    figure = Figure()
    for name in names:
        figure.text(0.5, 0.5, words(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that a font has not are drawn as boxes
        figure.savefig(io.StringIO(), format="svg")


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "offcut.plots needs matplotlib; install it with  pip install 'offcut[plots]'"
        ) from error
    # The backend is loaded now: within a style's context its settings would be undone with it, and
    # notebooks would show the first picture only.
    plt.draw_if_interactive()
    return plt


def check_order(posterior: Any, model: Any, name: str) -> None:
    """Answer a call with the model first."""
    if isinstance(model, Mapping):  # a DataTree, or a dict of them
        raise SettingsError(
            f"plots.{name}(posterior, model, ...) takes what offcut.sample returned first and the "
            f"model second, got {type(posterior).__name__} and {type(model).__name__}"
        )


SMALL: dict[str, Any] = {"fontsize": 8.5}


def checked_names(names: Sequence[str], p: int) -> Sequence[str]:
    """The names, one for each column."""
    if isinstance(names, str) or len(names) != p:
        raise SettingsError(f"names must have one for each of the {p} columns, got {names!r}")
    return names


def halo() -> list[Any]:
    """A white rim that keeps words readable on points."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]
