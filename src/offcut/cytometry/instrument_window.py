"""The window of the instrument, and what becomes of it on the scale that a mixture sees.

A transform of each channel on its own moves the faces of a box, and it stays a box. Compensation
mixes channels before that: the faces become oblique, a ``Polytope`` where all transforms are
linear, and curved otherwise, a ``Predicate`` that goes back to the instrument's scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from offcut.cytometry.transforms import Transform
from offcut.errors import DataError
from offcut.regions import Box, Polytope, Predicate, Region
from offcut.regions.region import namespace
from offcut.tables.columns import place_of
from offcut.tables.windows import meet, sided

#: Going to the compensated scale and back rounds; faces are wider by so much of the largest limit.
ROUNDING = 1e-12


def instrument_window(window: object, channels: Sequence[str], default: Box | None = None) -> Box:
    """What a user may give as ``window``, as a box with limits for each channel.

    >>> instrument_window({"CD4": (0, 1023)}, ["CD3", "CD4"])
    Box([-inf, 0], [inf, 1023])
    """
    size = len(channels)
    known = default if default is not None else Box([None] * size, [None] * size)
    if window is None:
        return known
    if isinstance(window, Box):
        if window.dimension not in (None, size):
            raise DataError(
                f"the window {window!r} is for {window.dimension} channels, but {size} were "
                f"chosen: {', '.join(channels)}"
            )
        return meet(window, Box([None] * size, [None] * size), size)
    if isinstance(window, Mapping):
        lower, upper = known.lower.copy(), known.upper.copy()
        for name, pair in window.items():
            place = place_of(name, [channels], "the window names a channel that was not chosen")
            lower[[place]], upper[[place]] = _pair(pair, f"window[{name!r}]", 1)
        return Box(lower, upper)
    return Box(*_pair(window, "window", size))


def _pair(pair: object, name: str, size: int) -> Float[np.ndarray, "2 channels"]:
    """Lower and upper limits, from a pair with None for no limit."""
    limits: list[list[float]] = []
    try:
        if not isinstance(pair, Iterable):
            raise TypeError
        for limit, missing in zip(pair, (-np.inf, np.inf), strict=True):
            many = limit if isinstance(limit, list | tuple | np.ndarray) else [limit] * size
            limits.append([missing if number is None else float(number) for number in many])
        return np.array(limits).reshape(2, size)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} must be (lower, upper), with None for no limit and a number for all channels "
            f"or one for each of {size}; got {pair!r}. A dict of such pairs by channel and a "
            "regions.Box will do, too"
        ) from error


def is_bounded(box: Box) -> bool:
    """Whether any limit is finite."""
    return bool(np.isfinite(box.lower).any() or np.isfinite(box.upper).any())


def transformed_limits(
    box: Box, transforms: Sequence[Transform]
) -> tuple[Float[np.ndarray, " channels"], Float[np.ndarray, " channels"]]:
    """Limits of the box on the transformed scale; infinite ones stay."""
    found = []
    for limits, infinity in ((box.lower, -np.inf), (box.upper, np.inf)):
        moved = np.full(len(transforms), infinity)
        for place, (transform, limit) in enumerate(zip(transforms, limits, strict=True)):
            if np.isfinite(limit):
                moved[place] = transform(limit)
        found.append(moved)
    lower, upper = found
    return np.where(np.isnan(lower), -np.inf, lower), upper  # below what a logarithm reaches


def transformed_window(
    box: Box, transforms: Sequence[Transform], spillover: Float[np.ndarray, "dyes detectors"] | None
) -> Region | None:
    """The region in which transformed, compensated events lie; None where nothing is limited.

    Parameters
    ----------
    box : Box
        On the instrument's scale.
    transforms : sequence of Transform
        One for each channel.
    spillover : matrix or None
        Between these channels.
    """
    if not is_bounded(box):
        return None
    if spillover is None or np.array_equal(spillover, np.eye(len(transforms))):
        lower, upper = transformed_limits(box, transforms)
        return Box(lower, upper, sided(box.closed_lower, box.closed_upper))
    limits = np.concatenate([box.lower, box.upper])
    slack = ROUNDING * abs(limits[np.isfinite(limits)]).max()
    if not all(transform.is_linear for transform in transforms):
        lower, upper = (box.lower - slack).tolist(), (box.upper + slack).tolist()
        window = InstrumentWindow(
            tuple(transforms), tuple(map(tuple, spillover.tolist())), tuple(lower), tuple(upper)
        )
        return Predicate(window, name="instrument's window")
    # x = slope y + shift in each channel, and lower <= x S <= upper.
    shift = np.array([float(transform.inverse(0.0)) for transform in transforms])
    slope = np.exp([-float(transform.log_derivative(0.0)) for transform in transforms])
    A = (slope[:, np.newaxis] * spillover).T
    rows = np.concatenate([A, -A])
    right = np.concatenate([box.upper - shift @ spillover, shift @ spillover - box.lower]) + slack
    limited = np.isfinite(right)
    return Polytope(rows[limited], right[limited])


@dataclass(frozen=True)
class InstrumentWindow:
    """Whether a transformed, compensated point is one that the instrument could record."""

    transforms: tuple[Transform, ...]
    spillover: tuple[tuple[float, ...], ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __call__(self, y: ArrayLike, *covariate: object) -> np.bool_ | Bool[Array, ""]:
        xp = namespace(y)
        point = xp.asarray(y)
        dyes = xp.stack([back.inverse(point[i]) for i, back in enumerate(self.transforms)])
        observed = dyes @ xp.asarray(self.spillover)
        inside = (observed >= xp.asarray(self.lower)) & (observed <= xp.asarray(self.upper))
        return inside.all()
