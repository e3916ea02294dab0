"""Pictures of a posterior, one function each; they need matplotlib (``offcut[plots]``).

``density`` shows what was there before the filter, ``posterior`` the parameters, ``rejections``
whether the budget left room, ``mixture`` the clusters of a truncated mixture, ``frames`` and
``concentrations`` orientations. Of Gaussian process models ``density_bands``, ``difference``,
``intensity``, ``function_band`` and ``rejected_proposals`` show what was inferred and what it
stands on. Each returns a matplotlib ``Figure``, to be saved with ``savefig``.
"""

from __future__ import annotations

from offcut.plots.gp_models import (
    density_bands,
    difference,
    function_band,
    intensity,
    rejected_proposals,
)
from offcut.plots.langevin_models import concentrations, frames
from offcut.plots.mixtures import mixture
from offcut.plots.rejection_models import density, posterior, rejections
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
    "density_bands",
    "difference",
    "frames",
    "function_band",
    "intensity",
    "mixture",
    "posterior",
    "rejected_proposals",
    "rejections",
]


def __dir__() -> list[str]:
    return sorted(__all__)
