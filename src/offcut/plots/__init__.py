"""Pictures of a posterior, one function each; they need matplotlib (``offcut[plots]``).

``density`` shows what was there before the filter, ``posterior`` the parameters, ``rejections``
whether the budget left room, ``mixture`` the clusters of a truncated mixture, ``frames`` and
``concentrations`` orientations. Each returns a matplotlib ``Figure``, to be saved with ``savefig``.
"""

from offcut.plots.kappa import concentrations
from offcut.plots.mixtures import mixture
from offcut.plots.models import density, posterior, rejections
from offcut.plots.orientation import frames
from offcut.plots.style import (
    BLUE,
    CHAIN_COLOURS,
    GREEN,
    GREY,
    INK,
    NAIVE,
    ORANGE,
    PALE,
    PINK,
    STYLE,
    TRUTH,
)

__all__ = [
    "BLUE",
    "CHAIN_COLOURS",
    "GREEN",
    "GREY",
    "INK",
    "NAIVE",
    "ORANGE",
    "PALE",
    "PINK",
    "STYLE",
    "TRUTH",
    "concentrations",
    "density",
    "frames",
    "mixture",
    "posterior",
    "rejections",
]
