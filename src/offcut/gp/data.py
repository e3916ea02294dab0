"""The data of a process: the arrays that samplers take, and what is asked of data beforehand."""

from __future__ import annotations

from typing import NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.augmentation.joint import in_chunks, with_gradient
from offcut.base import Doubt
from offcut.errors import DataError, ModelError
from offcut.gp import types as t
from offcut.gp.quadrature import Quadrature
from offcut.numerics.normal import Base, data_covariance
from offcut.regions.box import Box as BoxRegion

#: A range of so many units in the last place of the largest value is rounding.
ROUNDING = 16
#: Observations that are summed at a time.
SUMMED = 256
#: From so many observations on, a larger share of repeated ones is worth a word.
MANY, TIED = 20, 0.2
#: Observations at which the log density is followed, at these quantiles of the first coordinate.
PROBES = (0.05, 0.25, 0.5, 0.75, 0.95)


class GPData(NamedTuple):
    """Arrays: the data in coordinates u, and all numbers that a program should not have baked in.

    m basis functions, Q nodes of the quadrature, G of the grid, F quadratic features; arrays that
    a plan does not use have no elements. Data have more ``rows`` than observations: those behind
    the n-th repeat the first, and nothing depends on them.
    """

    n: t.Count
    x: Float[Array, "d rows"]
    total: t.Features  # quadratic features of the data, summed
    features: Float[Array, "m rows"] | None  # phi at the data, where that fits into memory
    centre: t.Vector
    half: t.Vector  # half the box, in the units of the data
    support: t.Ends  # in coordinates u
    limits: t.Ends  # of support, box, g0 where it is fixed
    lower: t.Vector  # of a uniform base, in coordinates u
    upper: t.Vector
    base: Base | None  # the prior of a normal base
    length_scale: t.Vector  # where fixed, in the units of the data
    variance: t.Number  # where fixed
    unit: t.Vector  # of the prior of the length-scale, in the units of the data
    volume: t.Number  # |T|
    rate: tuple[t.Number, t.Number]  # a and b of the prior of the upper rate
    quadrature: Quadrature
    grid: Float[Array, "d G"]  # where f of the exact process is recorded
    fit: tuple[Float[Array, "m m"], Float[Array, "m F"]]  # Phi Phiᵀ, Phi times quadratic features
    probes: Int[Array, " k"]  # observations at which the log density is followed
    at_probes: Float[Array, "m k"]  # phi there

    def without_rows(self) -> GPData:
        """Less what has a row for each observation but the first, for what needs no more."""
        return self._replace(x=self.x[:, :1], features=None)


def over_data(values: Float[Array, " rows"], data: GPData) -> t.Number:
    """The sum over observations; its bits do not depend on the rows behind them.

    XLA adds in an order that depends on how many rows there are, so that pieces of one size are
    added in a loop.
    """
    return with_gradient(_sum_and_slope)(values, data.n)


def _sum_and_slope(
    values: Float[Array, " rows"], n: t.Count
) -> tuple[t.Number, Float[Array, " rows"]]:
    rows = values.shape[0]
    there = jnp.arange(rows) < n
    padded = jnp.pad(jnp.where(there, values, 0.0), (0, -rows % SUMMED))

    def add(total: t.Number, start: t.Count) -> t.Number:
        return total + jnp.sum(lax.dynamic_slice_in_dim(padded, start, SUMMED))

    return in_chunks(add, jnp.zeros(()), n, SUMMED), there.astype(float)


def varies(x: t.HostRows) -> Bool[np.ndarray, " d"]:
    """Whether observations differ by more than rounding, in each coordinate by itself."""
    if len(x) < 2:
        return np.zeros(x.shape[1], bool)
    return np.ptp(x, axis=0) > ROUNDING * np.finfo(float).eps * np.abs(x).max(0)


def spread_of(x: t.HostRows) -> t.HostVector:
    """A standard deviation of each coordinate that outliers do not stretch."""
    if not len(x):
        return np.ones(x.shape[1])
    deviation = np.sqrt(np.diagonal(data_covariance(x)))
    quartiles = np.quantile(x, [0.25, 0.75], axis=0)
    robust = (quartiles[1] - quartiles[0]) / 1.349
    return np.where(varies(x) & (robust > 0), np.minimum(robust, deviation), deviation)


def ties(x: Float[np.ndarray, " n *d"]) -> list[Doubt]:
    """A doubt where many observations are repeated."""
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


def probes_of(x: t.HostRows) -> Int[np.ndarray, " k"]:
    """Observations at which the log density is followed."""
    order = np.argsort(x[:, 0], kind="stable")
    places = np.round(np.array(PROBES if len(x) else ()) * (len(x) - 1)).astype(int)
    return order[places].astype(np.int32)


def as_region(name: str, region: object) -> BoxRegion:
    """A Box, or a pair of limits as one."""
    if isinstance(region, BoxRegion):
        return region
    try:
        lower, upper = cast("tuple", region)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{name} must be an offcut.regions.Box or a pair (lower, upper), got {region!r}"
        ) from error
    return BoxRegion(lower, upper)


def limits_of(name: str, region: object, x: t.HostRows) -> t.Limits:
    """Lower and upper limits of a Box, or of a pair of them, which has the data in it."""
    d, box = x.shape[1], as_region(name, region)
    if box.dimension not in (None, d):
        raise ModelError(f"{name} has {box.dimension} coordinates, the data have {d}")
    low = np.broadcast_to(np.asarray(box.lower, float), (d,))
    high = np.broadcast_to(np.asarray(box.upper, float), (d,))
    if not (low < high).all():
        raise ModelError(f"{name} is empty in some coordinate: from {low} to {high}")
    outside = ~((x >= low) & (x <= high)).all(1)
    if outside.any():
        rows = np.flatnonzero(outside)
        examples = ", ".join(f"row {row}: {x[row].tolist()}" for row in rows[:3])
        raise DataError(
            f"{len(rows):,} of {len(x):,} observations lie outside {name} (from {low.tolist()} to "
            f"{high.tolist()}): {examples}. Remove them, or widen {name}"
        )
    return low, high
