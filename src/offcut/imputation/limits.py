"""Which values a recorder has clamped: those that equal a limit, as far as they were written down.

A limit of 0.1 in data of single precision is 0.10000000149: neither equal to 0.1 nor below it. So
values and limits are compared in the precision in which the data came, or the limits if theirs is
lower.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from offcut.errors import DataError, ModelError
from offcut.models.recording import Clamped

#: Numbers that look like single precision are taken for it where rounding changes them by no more
#: than this share of the data's standard deviation.
NEGLIGIBLE = 1e-6


class Limits(NamedTuple):
    """The limits of every recorded value, and which values stand for what lies beyond."""

    lower: np.ndarray
    upper: np.ndarray
    at_lower: np.ndarray
    at_upper: np.ndarray

    def exactly(self, values: np.ndarray) -> np.ndarray:
        """The values, those at a limit being the limit itself in full precision."""
        if values.dtype.kind != "f":
            return values
        values = np.where(self.at_lower, self.lower, values)
        return np.where(self.at_upper, self.upper, values)


def find_clamped(clamp: Clamped, covariates: tuple, values: np.ndarray, came: np.ndarray) -> Limits:
    """Limits and clamped values; values beyond the limits are refused.

    Parameters
    ----------
    values : array with n rows
        The data as proposals have them.
    came : array with n rows
        The same in the precision in which they came.
    """
    lower, upper = _limits(clamp, covariates, values)
    at_lower, at_upper = (_is_at(limit, values, came) for limit in (lower, upper))
    _refuse_beyond(values, lower, upper, ~at_lower & ~at_upper)
    return Limits(lower, upper, at_lower, at_upper & ~at_lower)


def _is_at(limit: np.ndarray, values: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Which values are the limit as it was written down."""
    same = values == limit
    if values.dtype.kind != "f" or came.dtype.kind != "f":
        return same
    with np.errstate(over="ignore"):
        if came.dtype.itemsize < 8:
            return same | (values == limit.astype(came.dtype))
        # In double precision, but perhaps only since somebody joined single columns with others.
        near = values.astype(np.float32) == limit.astype(np.float32)
        near &= np.abs(values - limit) <= NEGLIGIBLE * values.std(axis=0)
    return same | (near & (_looks_single(values) | _looks_single(limit)))


def _looks_single(numbers: np.ndarray) -> np.ndarray:
    """Which columns hold nothing but numbers of single precision, not all of them short ones."""
    with np.errstate(over="ignore"):
        single = np.all(numbers == numbers.astype(np.float32), axis=0)
        return single & np.any(numbers != numbers.astype(np.float16), axis=0)


def _limits(clamp: Clamped, covariates: tuple, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if covariates:
        low, high = jax.vmap(clamp.limits)(*covariates)
        low, high = (
            np.asarray(limit, float).reshape(*limit.shape, *[1] * (values.ndim - limit.ndim))
            for limit in (low, high)
        )
    else:
        low, high = clamp.limits()
    try:
        low, high = np.broadcast_to(low, values.shape), np.broadcast_to(high, values.shape)
    except ValueError as error:
        raise ModelError(
            f"{clamp} does not fit observations of shape {values.shape[1:]}: give one limit for "
            "all coordinates or one for each"
        ) from error
    wrong = np.argwhere(~(low < high))
    if wrong.size:
        place = tuple(int(i) for i in wrong[0])
        raise ModelError(
            f"Clamped needs lower < upper for every value, got {low[place]} and {high[place]} at "
            f"index {place}"
        )
    return low, high


def _refuse_beyond(
    values: np.ndarray, lower: np.ndarray, upper: np.ndarray, known: np.ndarray
) -> None:
    beyond = known & ((values < lower) | (values > upper))
    if beyond.any():
        place = tuple(int(i) for i in np.argwhere(beyond)[0])
        raise DataError(
            f"{int(beyond.sum())} values lie beyond the limits at which the recorder clamps, the "
            f"first at index {place}: {values[place]} outside [{lower[place]}, {upper[place]}]. "
            "A clamped value is recorded as the limit itself: write the limit in its place "
            "(numpy.clip does), or, where something else stands for what lies beyond (0 for "
            "non-detects), give a zone for the whole observation, such as "
            f"censored=lambda y: {_zone_of(values[place] < lower[place], lower, upper, place)}"
        )


def _zone_of(below: bool, lower: np.ndarray, upper: np.ndarray, place: tuple[int, ...]) -> str:
    return f"y < {lower[place]}" if below else f"y > {upper[place]}"
