"""What passes the filter: a region, a probability, or both; the same for all or by group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from offcut.errors import DataError, ModelError
from offcut.mixtures.groups import as_numbers, listed
from offcut.mixtures.window_mass import (
    BOX_POINTS,
    OTHER_POINTS,
    Masses,
    any_mass,
    as_masses,
    box_mass,
    importance_mass,
    log_masses,
)
from offcut.numerics import keys
from offcut.numerics.normal import Components
from offcut.numerics.rendering import written
from offcut.numerics.types import KeyArray
from offcut.regions import Box, ByGroup, Region
from offcut.regions.sets import Predicate, as_region


class Window:
    """A region and a log acceptance probability, each for one point as measured.

    Parameters
    ----------
    region : Region, callable or None
        Which points can be recorded at all.
    log_accept : callable or None
        ``log_accept(y)``, or ``log_accept(y, group)``: log probability of being recorded.
    """

    def __init__(self, region: object, log_accept: Callable | None) -> None:
        self.region = None if region is None else as_region(region)
        self.log_accept = log_accept
        self.numbers: Int[np.ndarray, " G"] | None = None
        takes_group = log_accept is not None and _arguments(log_accept) == 2
        self.region_by_group = isinstance(self.region, ByGroup) or _predicate_takes_two(region)
        self.accept_by_group = takes_group

    @property
    def by_group(self) -> bool:
        """Whether groups have windows of their own."""
        return self.region_by_group or self.accept_by_group

    def for_groups(self, names: Sequence[str]) -> Window:
        """The same for groups that are known by their places in ``names``.

        Windows are looked up by name. A function of the group gets the number that names it.
        """
        if not self.by_group:
            return self
        placed = copy(self)
        placed.numbers = as_numbers(names)
        if placed.numbers is None and (self.accept_by_group or not self._looked_up):
            raise DataError(
                "a function of the group gets its number, but the groups are named "
                f"{listed(names)}: number them, or give offcut.regions.ByGroup with their names"
            )
        if self._looked_up:
            assert isinstance(self.region, ByGroup)
            placed.region = _placed(self.region, names, placed.numbers)
        return placed

    @property
    def _looked_up(self) -> bool:
        """Whether the group itself chooses among windows."""
        return isinstance(self.region, ByGroup) and self.region.group is None

    def _covariate(self, group: Int[Array, " m"]) -> Int[Array, " m"]:
        """What functions of the group are given, for places of groups."""
        return group if self.numbers is None else jnp.asarray(self.numbers)[group]

    def probability(
        self, points: Float[Array, "m ..."], group: Int[Array, " m"]
    ) -> Float[Array, " m"]:
        """Acceptance probability of points, vectors or numbers.

        ``group`` has the places of their groups, once ``for_groups`` has named them.
        """
        if self.by_group:
            group = self._covariate(group)
        inside = jnp.ones(points.shape[0])
        if self.region is not None:
            if self.region_by_group:
                inside = jax.vmap(self.region)(points, group)
            else:
                inside = jax.vmap(self.region)(points)
        if self.log_accept is None:
            return inside * 1.0
        values = (points, group) if self.accept_by_group else (points,)
        return inside * jnp.exp(jax.vmap(self.log_accept)(*values))

    def passes(
        self, key: KeyArray, points: Float[Array, "m ..."], group: Int[Array, " m"]
    ) -> Bool[Array, " m"]:
        """Which proposals are accepted; a uniform for each only where a probability needs one."""
        probability = self.probability(points, group)
        if self.log_accept is None:
            return probability > 0.5
        return jax.random.uniform(key, probability.shape) < probability

    def region_of(self, group: int) -> Region | None:
        """Which points can be recorded in one group, by its place."""
        if not self._looked_up:
            return self.region
        assert isinstance(self.region, ByGroup)
        key = group if self.numbers is None else int(self.numbers[group])
        return self.region.windows.get(key)

    def __repr__(self) -> str:
        parts = [] if self.region is None else [repr(self.region)]
        parts += [] if self.log_accept is None else [f"log_accept={written(self.log_accept)}"]
        return ", ".join(parts)


class ScaledWindow(NamedTuple):
    """The window of one group, for points and components on the scale (x - shift) / scale."""

    window: Window
    group: int
    shift: Float[Array, " d"]
    scale: Float[Array, " d"]
    scalar: bool

    def probability(self, points: Float[Array, "m d"]) -> Float[Array, " m"]:
        measured = points * self.scale[None, :] + self.shift[None, :]
        measured = measured[:, 0] if self.scalar else measured
        return self.window.probability(measured, jnp.full(points.shape[0], self.group))

    def log_masses(
        self,
        key: KeyArray,
        components: Components,
        log_weights: Float[Array, " K"],
        events: Float[Array, "m d"],
    ) -> Masses:
        """Z_k; ``events`` are some that are inside."""
        known, points = self._known_mass()

        def mass(key: KeyArray, part: Components, number: int) -> Masses:
            if known is None:
                return importance_mass(key, part, number, self.probability, events)
            return as_masses(known(key, part, number))

        return log_masses(key, components, log_weights, mass, points)

    def rough_masses(self, components: Components) -> Float[Array, " K"]:
        """log Z_k from a few points that are always the same, and never less than they can tell."""
        known, (_, few) = self._known_mass()
        if known is None:
            z = any_mass(keys.from_seed(0), components, few, self.probability)
        else:
            z = known(keys.from_seed(0), components, few)
        return jnp.log(jnp.maximum(z, 0.5 / few))

    def _known_mass(
        self,
    ) -> tuple[Callable[[KeyArray, Components, int], Float[Array, " K"]] | None, tuple[int, int]]:
        """How masses are known to many digits (None: they are not), and from how many points."""
        if self.window.log_accept is not None:
            return None, OTHER_POINTS
        if self.window.region is None:
            return lambda key, part, points: jnp.ones(part.means.shape[0]), BOX_POINTS
        region = self.window.region_of(self.group)
        if not isinstance(region, Box):
            return None, OTHER_POINTS
        lower, upper = (
            (jnp.asarray(np.broadcast_to(limit, self.shift.shape), float) - self.shift) / self.scale
            for limit in (region.lower, region.upper)
        )
        return (lambda key, part, points: box_mass(key, part, points, lower, upper)), BOX_POINTS


def _placed(
    region: ByGroup, names: Sequence[str], numbers: Int[np.ndarray, " G"] | None
) -> ByGroup:
    """Windows of these groups by number, or by place where the names are no numbers."""
    windows = {str(key): window for key, window in region.windows.items()}
    lacking = [name for name in names if name not in windows]
    if lacking and region.listed:
        raise DataError(
            f"ByGroup([...]) has windows for the groups 0 to {len(windows) - 1}, but the groups "
            f"are {listed(names)}: say which window is whose, ByGroup({{{lacking[0]!r}: ..., ...}})"
        )
    if lacking:
        raise DataError(
            f"there is no window for {listed(lacking)}; ByGroup has windows for "
            f"{listed(list(windows))}"
        )
    keys = range(len(names)) if numbers is None else numbers.tolist()
    if numbers is None:
        for name in names:
            own = windows[name]
            if isinstance(own, Predicate) and _predicate_takes_two(own.function):
                raise DataError(
                    f"the window of the group {name!r} is a function of the group, which gets its "
                    "number; write it as a function of the point alone, or number the groups"
                )
    return ByGroup({key: windows[name] for key, name in zip(keys, names, strict=True)})


def _predicate_takes_two(region: object) -> bool:
    """Whether a plain function given as region asks for the group."""
    return inspect.isfunction(region) and _arguments(region) == 2


def _arguments(function: Callable) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise ModelError(f"{function!r} has no readable signature: {error}") from error
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return int(
        np.sum([p.kind in positional and p.default is inspect.Parameter.empty for p in parameters])
    )
