"""Words on the pictures of orientations: names of the columns, and small print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offcut.errors import SettingsError

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
