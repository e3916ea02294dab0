"""What passes the filter: a region, a probability, or both; the same for all or by group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.errors import DataError, ModelError
from offcut.mixtures.groups import as_numbers, listed
from offcut.mixtures.window_mass import (
    BOX_POINTS,
    OTHER_POINTS,
    Masses,
    any_mass,
    as_box,
    as_masses,
    box_mass,
    importance_mass,
    log_masses,
)
from offcut.numerics import keys
from offcut.numerics.normal import Components
from offcut.numerics.rendering import written
from offcut.regions import ByGroup
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

    def __init__(self, region: Any, log_accept: Callable | None) -> None:
        self.region = None if region is None else as_region(region)
        self.log_accept = log_accept
        self.numbers: np.ndarray | None = None
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

    def _covariate(self, group: jax.Array) -> jax.Array:
        """What functions of the group are given, for places of groups."""
        return group if self.numbers is None else jnp.asarray(self.numbers)[group]

    def probability(self, points: jax.Array, group: jax.Array) -> jax.Array:
        """Acceptance probability of points (m, d), or (m,) for numbers.

        ``group`` (m,) has the places of their groups, once ``for_groups`` has named them.
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

    def passes(self, key: jax.Array, points: jax.Array, group: jax.Array) -> jax.Array:
        """Which proposals are accepted; a uniform for each only where a probability needs one."""
        probability = self.probability(points, group)
        if self.log_accept is None:
            return probability > 0.5
        return jax.random.uniform(key, probability.shape) < probability

    def log_masses(
        self,
        key: jax.Array,
        components: Components,
        log_weights: jax.Array,
        group: int,
        shift: jax.Array,
        scale: jax.Array,
        scalar: bool,
        events: jax.Array,
    ) -> Masses:
        """Z_k of components on the scale (x - shift) / scale, in the window of a group.

        ``events`` (m, d) are on that scale too, and inside.
        """
        mass, points = self._mass(components.means.shape[1], group, shift, scale)
        if mass is not None:
            known = mass
            return log_masses(
                key, components, log_weights, lambda *of: as_masses(known(*of)), points
            )
        passes = self._probability(group, shift, scale, scalar)
        return log_masses(
            key,
            components,
            log_weights,
            lambda key, part, number: importance_mass(key, part, number, passes, events),
            points,
        )

    def rough_masses(
        self,
        components: Components,
        group: int,
        shift: jax.Array,
        scale: jax.Array,
        scalar: bool,
    ) -> jax.Array:
        """log Z_k from a few points that are always the same, and never less than they can tell."""
        mass, points = self._mass(components.means.shape[1], group, shift, scale)
        if mass is None:
            passes = self._probability(group, shift, scale, scalar)
            z = any_mass(keys.from_seed(0), components, points[1], passes)
        else:
            z = mass(keys.from_seed(0), components, points[1])
        return jnp.log(jnp.maximum(z, 0.5 / points[1]))

    def _mass(
        self, d: int, group: int, shift: jax.Array, scale: jax.Array
    ) -> tuple[Callable[[jax.Array, Components, int], jax.Array] | None, tuple[int, int]]:
        """How masses in the window of a group are known to many digits (None: they are not), and
        from how many points.
        """
        region = self.region
        if self._looked_up:
            assert isinstance(region, ByGroup)
            region = region.windows.get(group if self.numbers is None else int(self.numbers[group]))
        if self.region is None and self.log_accept is None:
            return lambda key, part, points: jnp.ones(part.means.shape[0]), BOX_POINTS
        limits = as_box(region, d)
        if limits is not None and self.log_accept is None:
            lower, upper = ((jnp.asarray(limit) - shift) / scale for limit in limits)
            return (lambda key, part, points: box_mass(key, part, points, lower, upper)), BOX_POINTS
        return None, OTHER_POINTS

    def _probability(
        self, group: int, shift: jax.Array, scale: jax.Array, scalar: bool
    ) -> Callable[[jax.Array], jax.Array]:
        """What passes of points (m, d) on the scale (x - shift) / scale."""

        def probability(points: jax.Array) -> jax.Array:
            measured = points * scale[None, :] + shift[None, :]
            measured = measured[:, 0] if scalar else measured
            return self.probability(measured, jnp.full(points.shape[0], group))

        return probability

    def __repr__(self) -> str:
        parts = [] if self.region is None else [repr(self.region)]
        parts += [] if self.log_accept is None else [f"log_accept={written(self.log_accept)}"]
        return ", ".join(parts)


def _placed(region: ByGroup, names: Sequence[str], numbers: np.ndarray | None) -> ByGroup:
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


def _predicate_takes_two(region: Any) -> bool:
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
