"""Colours, lines and sizes that all pictures share."""

from __future__ import annotations

from typing import Any

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
