"""What all pictures share: colours, lines and sizes, labels, and the order of their arguments."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numpy as np

from offcut.errors import SettingsError
from offcut.numerics.text import shortened, visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.patheffects import AbstractPathEffect

Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")

# Okabe and Ito's colours: told apart by every kind of colour vision, and in grey.
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
CHAIN_COLOURS = (BLUE, ORANGE, GREEN, PINK, "#56B4E9", "#E69F00")
INK, GREY, PALE = "#222222", "#767676", "#E4E4E4"
TRUTH: dict[str, Any] = {"color": INK, "linestyle": (0, (5, 2)), "linewidth": 1.4}
NAIVE: dict[str, Any] = {"color": ORANGE, "linestyle": (0, (1, 1.2)), "linewidth": 2.0}
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
#: Letters of a name that a picture has room for, and of a legend's entries beside each other.
MOST_LETTERS, LEGEND_LETTERS = 24, 80


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


def picture(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """A function that draws: in our style, and with matplotlib or an error how to get it."""

    @wraps(draw)
    def in_style(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Drawn:
        with pyplot().rc_context(STYLE):
            return draw(*args, **kwargs)

    return in_style


def subplots(
    size: tuple[float, float], rows: int = 1, columns: int = 1, *, apart: float = 0, **settings: Any
) -> tuple[Figure, Any]:
    """A new figure of so many inches, and its axes, so many inches apart."""
    settings = {"layout": "constrained", **settings}
    figure, axes = pyplot().subplots(rows, columns, figsize=size, **settings)
    if apart:
        figure.get_layout_engine().set(w_pad=apart)
    return figure, axes


def axes_or_new(
    ax: Axes | None, size: tuple[float, float], layout: str = "constrained"
) -> tuple[Figure, Axes]:
    """The user's axes, or new ones, and their figure."""
    return subplots(size, layout=layout) if ax is None else (figure_of(ax), ax)


def figure_of(ax: Axes) -> Figure:
    """The figure that axes are on."""
    return cast("Figure", ax.figure)


def check_order(posterior: object, model: object, name: str) -> None:
    """Answer a call with the model first."""
    if isinstance(model, Mapping):  # a DataTree, or a dict of them
        raise SettingsError(
            f"plots.{name}(posterior, model, ...) takes what offcut.sample returned first and the "
            f"model second, got {type(posterior).__name__} and {type(model).__name__}"
        )


def checked_names(names: Sequence[str], count: int, what: str = "columns") -> Sequence[str]:
    """The names, one for each."""
    if isinstance(names, str) or len(names) != count:
        raise SettingsError(f"names must have one for each of the {count} {what}, got {names!r}")
    return names


def some(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, chosen at random, in their order: more only make a blot."""
    if len(rows) <= most:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(len(rows), most, replace=False))]


def interval(ax: Axes, draws: np.ndarray, height: float, gid: str | None = None) -> None:
    """A bar over the central 90% of draws, and a dot at their mean."""
    ends = np.quantile(draws, [0.05, 0.95])
    ax.plot(ends, [height] * 2, color=INK, linewidth=3, solid_capstyle="butt", gid=gid)
    ax.plot(draws.mean(), height, "o", color=INK, markersize=5.5, markeredgecolor="white")


def note(
    ax: Axes, text: str, at: Sequence[float] | np.ndarray, offset: tuple[float, float], **style: Any
) -> None:
    """Words at a place, so many points away from it."""
    style = {"fontsize": 8.5, "textcoords": "offset points", **style}
    ax.annotate(text, (at[0], at[1]), offset, **style)


def legend_above(ax: Axes, entries: Mapping[str, Artist | tuple[Artist, ...]]) -> None:
    """Above the axes, where nothing is drawn; below each other where the names are long."""
    columns = 3 if len(entries) > 2 else len(entries)
    ax.legend(
        list(entries.values()),
        list(entries),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        ncols=columns if sum(map(len, entries)) <= LEGEND_LETTERS else 1,
    )


def halo() -> list[AbstractPathEffect]:
    """A white rim that keeps words readable on points."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]


def white_to(colour: str) -> Colormap:
    """Colours from white to the given one."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("loss", ["white", colour])
