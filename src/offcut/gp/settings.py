"""From what the user gives to what a plan needs: priors, bases, supports, all checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro.distributions as dist

from offcut.base import Doubt
from offcut.errors import DataError, ModelError
from offcut.models.prior import is_positive
from offcut.numerics.normal import data_covariance
from offcut.regions.box import Box as BoxRegion

#: Median and spread of log length-scale, in standard deviations of the data, where not given.
LENGTH_SCALE = (0.6, 0.8)
#: Median and spread of the log variance of f, where not given.
VARIANCE = (2.0, 0.5)
#: A range of so many units in the last place of the largest value is rounding.
ROUNDING = 16
#: From so many observations on, a larger share of repeated ones is worth a word.
MANY, TIED = 20, 0.2


def positive(name: str, value: Any, d: int) -> tuple[np.ndarray | None, Any]:
    """(fixed value, None) of a number or vector, or (None, prior)."""
    if isinstance(value, dist.Distribution):
        if not is_positive(value):
            raise ModelError(
                f"{name} must be positive, and so must its prior; {type(value).__name__} has "
                f"support {value.support}. Use for example numpyro.distributions.LogNormal(0, 0.5)"
            )
        shape = value.batch_shape + value.event_shape
        if shape not in ((), (d,)) or (name == "variance" and shape != ()):
            raise ModelError(
                f"the prior of {name} has shape {shape}; the data have {d} "
                f"{'coordinate' if d == 1 else 'coordinates'}"
            )
        return None, value
    try:
        fixed = np.asarray(value, float)
        wrong = fixed.shape not in ((), (d,)) or not (np.isfinite(fixed) & (fixed > 0)).all()
    except (TypeError, ValueError):
        wrong = True
    if wrong or (name == "variance" and np.ndim(value)):
        each = "" if name == "variance" else ", or one for each coordinate"
        raise ModelError(
            f"{name} must be a positive number{each}, or a NumPyro distribution as its prior, got "
            f"{value!r}"
        )
    return fixed, None


def varies(x: np.ndarray) -> np.ndarray:
    """Whether observations (n, d) differ by more than rounding, in each coordinate by itself."""
    if len(x) < 2:
        return np.zeros(x.shape[1], bool)
    return np.ptp(x, axis=0) > ROUNDING * np.finfo(float).eps * np.abs(x).max(0)


def spread_of(x: np.ndarray) -> np.ndarray:
    """A standard deviation of each coordinate of (n, d) that outliers do not stretch."""
    if not len(x):
        return np.ones(x.shape[1])
    deviation = np.sqrt(np.diagonal(data_covariance(x)))
    quartiles = np.quantile(x, [0.25, 0.75], axis=0)
    robust = (quartiles[1] - quartiles[0]) / 1.349
    return np.where(varies(x) & (robust > 0), np.minimum(robust, deviation), deviation)


def ties(x: np.ndarray) -> list[Doubt]:
    """A doubt where many observations (rows) are repeated."""
    repeated = len(x) - len(np.unique(x, axis=0))
    if len(x) < MANY or repeated <= TIED * len(x):
        return []
    return [
        Doubt(
            "ties",
            f"{repeated:,} of {len(x):,} observations repeat others: have they been rounded? A "
            "density with an inferred length-scale makes spikes of repeated values. Add uniform "
            "noise of the size of the rounding, or fix length_scale",
        )
    ]


def default_length_scale(d: int) -> Any:
    """The prior where none is given, in units of the data's spread."""
    middle, width = LENGTH_SCALE
    return dist.LogNormal(np.log(middle), width).expand(() if d == 1 else (d,))


def default_variance() -> Any:
    """The prior where none is given."""
    middle, width = VARIANCE
    return dist.LogNormal(np.log(middle), width)


def quantiles(prior: Any, levels: tuple[float, ...], d: int) -> np.ndarray:
    """Quantiles of a prior from a fixed sample of it, (levels, d)."""
    import jax

    drawn = np.asarray(prior.sample(jax.random.key(0), (2000,)), float)
    values = np.quantile(drawn, levels, axis=0).reshape(len(levels), -1)
    return np.broadcast_to(values, (len(levels), d))


def as_region(name: str, region: Any) -> BoxRegion:
    """A Box, or a pair of limits as one."""
    if isinstance(region, BoxRegion):
        return region
    try:
        lower, upper = region
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{name} must be an offcut.regions.Box or a pair (lower, upper), got {region!r}"
        ) from error
    return BoxRegion(lower, upper)


def limits(name: str, region: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper limits (d,) of a Box, or of a pair of them."""
    region = as_region(name, region)
    if region.dimension not in (None, d):
        raise ModelError(f"{name} has {region.dimension} coordinates, the data have {d}")
    low = np.broadcast_to(np.asarray(region.lower, float), (d,))
    high = np.broadcast_to(np.asarray(region.upper, float), (d,))
    if not (low < high).all():
        raise ModelError(f"{name} is empty in some coordinate: from {low} to {high}")
    return low, high


def check_inside(name: str, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Refuse data (n, d) outside of limits."""
    outside = ~((x >= low) & (x <= high)).all(1)
    if outside.any():
        rows = np.flatnonzero(outside)
        examples = ", ".join(f"row {row}: {x[row].tolist()}" for row in rows[:3])
        raise DataError(
            f"{len(rows):,} of {len(x):,} observations lie outside {name} (from {low.tolist()} to "
            f"{high.tolist()}): {examples}. Remove them, or widen {name}"
        )


def check_family(prior: Any, family: Callable[[dict], Any]) -> None:
    """Refuse a base that is no function from parameters to a distribution."""
    if prior is None:
        raise ModelError(
            "a base given as a function of theta needs prior=, a dict of NumPyro distributions "
            'such as {"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)}'
        )
    if not callable(family):
        raise ModelError(
            'base must be "normal", "uniform", an offcut.NormalInverseWishart, an '
            "offcut.regions.Box, or a function from theta to a NumPyro distribution, got "
            f"{family!r}"
        )


def checked_nugget(nugget: Any) -> float:
    """A small positive number."""
    number = isinstance(nugget, int | float | np.number) and not isinstance(nugget, bool)
    if not number or not 0 < float(nugget) < 1:
        raise ModelError(
            f"nugget must be a number above 0 (matrices lose their digits at 0) and below 1, got "
            f"{nugget!r}"
        )
    return float(nugget)
