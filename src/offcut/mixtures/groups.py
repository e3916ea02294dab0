"""Groups by name: whoever names one later means the one that was fitted under that name.

A name is what ``str`` makes of what the user gave: a text, or a whole number. Inside, groups are
known by their places in the list of names: whole numbers in their order, texts in the alphabet's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Int, Shaped
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError

#: Names that a message lists.
MOST_LISTED = 8


def as_names(groups: ArrayLike, n: int, what: str = "covariates") -> Shaped[np.ndarray, " n"]:
    """The group of each of ``n`` events as it was given: whole numbers or texts."""
    array = np.asarray(groups)
    if array.shape != (n,):
        raise DataError(
            f"{what} must name the group of each of the {n} events, got shape {array.shape}"
        )
    if array.dtype == object:
        array = _from_objects(array, what)
    if array.dtype.kind in "fc":
        raise DataError(f"{what} must be group numbers or names, got real numbers")
    return array if array.dtype.kind in "iu" else array.astype(str)


def _from_objects(array: Shaped[np.ndarray, " n"], what: str) -> Shaped[np.ndarray, " n"]:
    """Texts and whole numbers; anything else is no name, and most likely a missing one."""
    whole = [isinstance(one, int | np.integer) and not isinstance(one, bool) for one in array]
    if all(whole):
        return array.astype(np.int64)
    strange = [
        row
        for row, (one, number) in enumerate(zip(array, whole, strict=True))
        if not number and not isinstance(one, str | bool | np.bool_)
    ]
    if strange:
        raise DataError(
            f"{len(strange):,} of {len(array):,} events have no group in {what}, the first in row "
            f"{strange[0]} (from 0): {array[strange[0]]!r}. Name their groups or leave them out"
        )
    return array.astype(str)


def find_groups(groups: ArrayLike | None, n: int) -> tuple[Int[np.ndarray, " n"], tuple[str, ...]]:
    """Place of each event's group in the list of names, and the names; None for one group."""
    if groups is None:
        return np.zeros(n, np.int32), ("0",)
    names, places = np.unique(as_names(groups, n), return_inverse=True)
    return places.astype(np.int32), tuple(map(str, names.tolist()))


def fitted_names(posterior: xr.DataTree) -> tuple[str, ...]:
    """Names of the groups that a mixture was fitted to; empty where it had none."""
    observed = posterior["observed_data"].dataset
    if "group" not in observed:
        return ()
    return find_groups(observed["group"].values, observed.sizes["observation"])[1]


def look_up(groups: ArrayLike | None, names: Sequence[str], n: int) -> Int[np.ndarray, " n"]:
    """Places of new events' groups among those of the fit; ``names`` is empty where it had none."""
    if groups is None:
        if len(names) > 1:
            raise DataError(
                f"the fit has {len(names)} groups, {listed(names)}: give groups= with one of these "
                "names for each event"
            )
        return np.zeros(n, np.int32)
    if not names:
        raise DataError("the fit had no groups (covariates=), so leave groups= out")
    given = as_names(groups, n, "groups").astype(str)
    places = {name: place for place, name in enumerate(names)}
    unknown = sorted(set(given.tolist()) - set(names))
    if unknown:
        raise DataError(f"the fit knows the groups {listed(names)}, not {listed(unknown)}")
    return np.array([places[name] for name in given.tolist()], np.int32)


def place_of_group(name: object, names: Sequence[str]) -> int:
    """The place of one group; it may be left out (None) where there is one."""
    if name is None and len(names) > 1:
        raise SettingsError(
            f"the posterior has {len(names)} groups: say which with group=, one of {listed(names)}"
        )
    if name is None:
        return 0
    if isinstance(name, float | bool) or str(name) not in names:
        raise SettingsError(f"there is no group {name!r}; the fit knows {listed(names)}")
    return names.index(str(name))


def as_numbers(names: Sequence[str]) -> Int[np.ndarray, " names"] | None:
    """The names as whole numbers, or None where one is none."""
    try:
        numbers = [int(name) for name in names]
    except ValueError:
        return None
    if [str(number) for number in numbers] != list(names):
        return None
    small = all(abs(number) < 2**31 for number in numbers)
    return np.array(numbers, np.int32 if small else np.int64)


def listed(names: Sequence[str]) -> str:
    """Names for a message, numbers bare and texts in quotes."""
    shown = [name if as_numbers([name]) is not None else repr(name) for name in names]
    more = len(shown) - MOST_LISTED
    return ", ".join(shown[:MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
