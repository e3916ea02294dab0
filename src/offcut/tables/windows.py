"""The window of a table: limits and regions put together, and rows that lie outside."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from offcut.errors import DataError, SettingsError
from offcut.regions import Box, Region
from offcut.regions.box import SIDES
from offcut.tables.table import Table, Values

#: What to do about rows outside of the window, at the command line.
DROP_OUTSIDE = (
    "with --lower, --upper or --region, or leave these rows out with --outside drop if they were "
    "to be cut off"
)


def settle_outside(
    table: Table,
    window: Region | None,
    what: str = "refuse",
    *,
    note: str = "",
    advice: str = DROP_OUTSIDE,
) -> Table:
    """Refuse rows outside of the window, or leave them out (``what`` is "drop")."""
    if window is None:
        return table
    values = table.values
    rows = np.flatnonzero(~is_inside(window, values))
    if not len(rows):
        return table
    if what == "drop":
        return table.without(rows, f"lie outside the window {window!r}")
    first, sides = values[rows[0]], _sides(window, table.names, values)
    by_column = f"By column: {'; '.join(sides)}. " if sides else ""
    shown = ", ".join(f"{name} {value:.6g}" for name, value in zip(table.names, first, strict=True))
    raise DataError(
        f"{len(rows):,} of {len(values):,} rows of {table.called} lie outside the window "
        f"{window!r}: {table.describe(rows)}; the first is {shown}. {by_column}{note}The window "
        "is what could be recorded, so nothing lies outside of it: give the true limits "
        f"{advice}"
    )


def without_faces(table: Table, box: Box) -> tuple[Table, Box]:
    """Without rows that sit exactly on a limit, in the open box."""
    values = table.values
    rows = np.flatnonzero(((values == box.lower) | (values == box.upper)).any(axis=1))
    if len(rows):
        table = table.without(rows, "sit exactly on a limit of the window")
    return table, Box(box.lower, box.upper, "neither")


def is_inside(window: Region, values: Values) -> Bool[np.ndarray, " rows"]:
    """Whether each row lies in the window."""
    if isinstance(window, Box):
        low, high, at_low, at_high = _of_columns(window, values.shape[1])
        above = np.where(at_low, values >= low, values > low)
        below = np.where(at_high, values <= high, values < high)
        return np.asarray((above & below).all(axis=1))
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(window)(jnp.asarray(values)))


def _sides(window: Region, names: Sequence[str], values: Values) -> list[str]:
    """For boxes: how many below and above, column by column where there are any."""
    if not isinstance(window, Box):
        return []
    found = []
    for name, column, low, high, at_low, at_high in zip(
        names, values.T, *_of_columns(window, len(names)), strict=True
    ):
        under = int((column < low if at_low else column <= low).sum())
        over = int((column > high if at_high else column >= high).sum())
        if under or over:
            found.append(
                f"{name}: {under:,} below {low:g}, {over:,} above {high:g} (data from "
                f"{column.min():g} to {column.max():g})"
            )
    return found


def _of_columns(box: Box, size: int) -> list[np.ndarray]:
    """Lower and upper limit of each column, and whether they belong to the box."""
    parts = (box.lower, box.upper, box.closed_lower, box.closed_upper)
    return [np.broadcast_to(part, (size,)) for part in parts]


def box_of(lower: list[float | None], upper: list[float | None]) -> Box | None:
    """The window of limits for each column; None where there is no limit."""
    if all(limit is None for limit in lower + upper):
        return None
    for low, high in zip(lower, upper, strict=True):
        if low is not None and high is not None and low >= high:
            raise SettingsError(
                f"--lower {low:g} is not below --upper {high:g}: nothing lies between them"
            )
    return Box(lower, upper)


def combined(box: Box | None, region: Region | None, size: int) -> Region | None:
    """Limits and region together: what lies in both."""
    if region is not None and region.dimension not in (None, size):
        raise SettingsError(
            f"--region {region!r} is about {region.dimension} coordinates, but there are {size} "
            "columns; choose columns with --columns"
        )
    if box is None or region is None:
        return box if region is None else region
    if type(region) is Box:
        return meet(box, region, size)
    return box & region


def meet(first: Box, second: Box, size: int) -> Box:
    """The box of points in both."""
    sides = [_of_columns(one, size) for one in (first, second)]
    (low_a, high_a, left_a, right_a), (low_b, high_b, left_b, right_b) = sides
    low, high = np.maximum(low_a, low_b), np.minimum(high_a, high_b)
    left = (left_a | (low_a < low)) & (left_b | (low_b < low))
    right = (right_a | (high_a > high)) & (right_b | (high_b > high))
    if (low > high).any():
        raise SettingsError(f"nothing lies both in {first!r} and in {second!r}")
    return Box(low, high, sided(left, right))


def sided(
    closed_lower: Bool[np.ndarray, " columns"], closed_upper: Bool[np.ndarray, " columns"]
) -> list[str]:
    """The words of ``Box`` for limits that belong to it."""
    words = {sides: word for word, sides in SIDES.items()}
    pairs = zip(closed_lower.tolist(), closed_upper.tolist(), strict=True)
    return [words[left, right] for left, right in pairs]
