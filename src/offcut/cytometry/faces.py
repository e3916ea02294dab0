"""Events that pile up: on a face of the window, or at another value where a channel ends.

An instrument that saturates writes its limit for everything beyond: such events are censored. A
window says that they were never recorded: truncated. A pile on a face calls for a decision.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from offcut.errors import TrustWarning
from offcut.regions import Box

#: Share of all events above which those at one value are a pile.
PILE = 0.005


def ask_about_piles(observed: np.ndarray, box: Box, channels: Sequence[str]) -> None:
    """A warning for each face with a pile, and for each pile at a channel's own end."""
    from offcut.pile_ups import piles  # brings the models with it

    n = len(observed)
    for name, column, low, high in zip(channels, observed.T, box.lower, box.upper, strict=True):
        for side, limit in (("lower", low), ("upper", high)):
            count = int((column == limit).sum())
            if count > PILE * n:
                _warn(
                    f"{count:,} of {n:,} events ({count / n:.1%}) sit exactly on the {side} face "
                    f"of the window in {name}, at {limit:g}. If the instrument writes {limit:g} "
                    "for everything beyond, they are censored, and a model of truncation takes "
                    "them for true values: at_limits='drop' removes them, and what is left is "
                    "truncated there, as the model says"
                )
        for value, count in piles(column, []):
            if value not in (low, high) and count > PILE * n:
                side, pair = (
                    ("largest", f"({low:g}, {value:g})")
                    if value == column.max()
                    else ("smallest", f"({value:g}, {high:g})")
                )
                _warn(
                    f"{count:,} of {n:,} events ({count / n:.1%}) in {name} are exactly "
                    f"{value:g}, the {side} value there is, within the window from {low:g} to "
                    f"{high:g}. If that is where the instrument saturates, say so: "
                    f"window={{{name!r}: {pair}}} and at_limits='drop'"
                )


def _warn(message: str) -> None:
    # read -> assemble -> ask_about_piles -> here
    warnings.warn(message, TrustWarning, stacklevel=5)
