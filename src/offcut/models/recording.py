"""How a value that passed the filter was written down: as it is, or clamped at a limit.

*Truncated* values were never recorded: nobody knows how many there are. *Censored* ones were
recorded, but not their size: a detector that saturates at 10 writes 10 for everything above. A
censored observation says only that the value lies in a known zone; its value is drawn anew in
every sweep, from the model restricted to that zone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Shaped

from offcut.errors import ModelError
from offcut.numerics.rendering import call
from offcut.numerics.types import Point

#: A limit, or limits of all coordinates; or a function of the covariate that gives one.
Limit = ArrayLike | Sequence[float] | Callable[..., ArrayLike]


class Clamped:
    """Coordinates that lie beyond a limit are recorded as that limit.

    Parameters
    ----------
    lower, upper : number, array, or function of the covariate
        The limits of the recorder, one for all coordinates of a point or one for each; infinite
        where it has none. A coordinate recorded *at* a limit is known only to lie beyond it;
        recorded values beyond a limit are refused (a zone takes those, whatever was written down).
        Values and limits are compared in the precision in which the data came: 0.1 in single
        precision is at a limit of 0.1.

    Examples
    --------
    A detector that loses what is below 0 and saturates at 10:

    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(5, 5)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 4.0),
    ...     inside=lambda x: x > 0,
    ...     censored=offcut.Clamped(upper=10),
    ... )
    """

    def __init__(self, lower: Limit = -np.inf, upper: Limit = np.inf) -> None:
        self.lower, self.upper = lower, upper
        if not callable(lower) and not callable(upper):
            low, high = np.broadcast_arrays(*self.limits())
            if np.isnan(low).any() or np.isnan(high).any() or (low >= high).any():
                raise ModelError(
                    f"Clamped needs lower < upper in every coordinate, got {lower} and {upper}"
                )
            if np.isinf(low).all() and np.isinf(high).all():
                raise ModelError("Clamped needs a finite limit: give lower=, upper= or both")

    def limits(self, *covariate: Point) -> tuple[ArrayLike, ArrayLike]:
        """Both limits, for one observation."""

        def at(limit: Limit) -> ArrayLike:
            return limit(*covariate) if callable(limit) else np.asarray(limit, float)

        return at(self.lower), at(self.upper)

    def __repr__(self) -> str:
        return call("Clamped", lower=self.lower, upper=self.upper)


#: ``(y[, covariate]) -> bool``: a region or a function.
Zone = Callable[..., ArrayLike]
Censoring = Clamped | tuple[Zone, ...] | None
#: What users may give as ``censored=``.
CensoringLike = Clamped | Zone | Sequence[Zone] | None


def checked_censoring(censored: CensoringLike) -> Censoring:
    """What the user gave as ``censored``: a Clamped, one zone, or several."""
    if censored is None or isinstance(censored, Clamped):
        return censored
    zones = tuple(censored) if isinstance(censored, list | tuple) else (censored,)
    for zone in zones:
        if not callable(zone):
            raise ModelError(
                f"censored must be offcut.Clamped(...), a region or function of one point, or a "
                f"list of these, got {type(zone).__name__}"
            )
    return zones


def refuse_vague_zones(said: list[Shaped[np.ndarray, " rows"]]) -> None:
    """Raise where a zone says neither yes nor no of one of the values, by its answers."""
    for answers in said:
        vague = (answers != 0) & (answers != 1)
        if vague.any():
            raise ModelError(
                f"a zone of censored= returned {answers[vague][0]} for a value: a zone says yes or "
                "no, so return a boolean, for example with a comparison"
            )


def in_zones(zones: tuple[Zone, ...], recorded: Point, *covariate: Point) -> Bool[Array, " zones"]:
    """Which of the zones one value lies in: a flag for each."""
    return jnp.stack([jnp.asarray(zone(recorded, *covariate)).astype(bool) for zone in zones])
