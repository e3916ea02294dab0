"""Regions made of others, and of functions.

Intersection, union and complement combine the booleans of their parts; a predicate is any function
of a point; where windows differ by group, a covariate says which one applies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from offcut.errors import ModelError
from offcut.regions.line import gaps, merged
from offcut.regions.region import Edge, Intervals, Region, is_traced


def as_region(value: object) -> Region:
    """A region as it is, a function as a ``Predicate``."""
    return value if isinstance(value, Region) else Predicate(value)


class Predicate(Region):
    """Any function of a point as a region, for windows that have no shape of their own.

    Parameters
    ----------
    function : callable ``(y[, covariate]) -> bool``
        Written for one point with ``jax.numpy``; the point may also be a dict or a tuple.
    name : str, optional
        What its repr says; by default the function's own name.

    Examples
    --------
    >>> from offcut.regions import Box, Predicate
    >>> window = Box(0, 10) & Predicate(lambda y: y**2 < 50, name="weak")
    >>> window
    Box(0, 10) & Predicate(weak)
    >>> bool(window(3.0)), bool(window(8.0))
    (True, False)
    """

    def __init__(self, function: object, name: str | None = None) -> None:
        if not callable(function):
            raise ModelError(
                f"a window is a region or a function of one point, got {type(function).__name__}"
            )
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        """What the function says, as one boolean; a number must be exactly 0 or 1."""
        result = self.function(y, *covariate)
        # Numbers become booleans here: the ~ of an integer is no boolean.
        result = result if isinstance(result, jax.Array) else np.asarray(result)
        if result.shape != ():
            raise ModelError(
                f"{self!r} returned an array of shape {result.shape} for one point; it must "
                "return one boolean: use jax.numpy.all over the point's own axes"
            )
        # Of a compiled function only the type is known; whole numbers count as yes where not 0.
        traced = is_traced(result)
        vague = result.dtype.kind not in "biu" if traced else result not in (0, 1)
        if vague:
            said = f"a number ({result.dtype})" if traced else f"{result}"
            raise ModelError(
                f"{self!r} returned {said} where a region says yes or no: return a boolean, for "
                "example with a comparison. A probability of being recorded is no window: see "
                "offcut.selected"
            )
        return result.astype(bool)[()]

    def _key(self) -> Hashable:
        function = self.function if isinstance(self.function, Hashable) else id(self.function)
        return ("Predicate", function, self.name)

    def __repr__(self) -> str:
        return f"Predicate({self.name})"


def common_dimension(parts: Sequence[Region]) -> int | None:
    """The dimension of all parts that have one."""
    known = [part for part in parts if part.dimension is not None]
    for part in known[1:]:
        if part.dimension != known[0].dimension:
            raise ModelError(
                f"regions of different dimensions cannot be combined: {known[0]!r} is for points "
                f"of shape ({known[0].dimension},), {part!r} for ({part.dimension},)"
            )
    return known[0].dimension if known else None


class _Combination(Region):
    """Several regions in one; parts of the same kind are taken apart."""

    def __init__(self, parts: Sequence[object]) -> None:
        regions = [as_region(part) for part in parts]
        self.parts: tuple[Region, ...] = tuple(
            inner
            for part in regions
            for inner in (part.parts if type(part) is type(self) else (part,))
        )
        if not self.parts:
            raise ModelError(f"{type(self).__name__} needs at least one region")
        self.dimension = common_dimension(self.parts)

    def edges(self) -> list[Edge]:
        return list(dict.fromkeys(edge for part in self.parts for edge in part.edges()))

    def _key(self) -> Hashable:
        return (type(self).__name__, frozenset(self.parts))  # the order does not matter


class Intersection(_Combination):
    """Points in all of the parts; what ``a & b`` makes."""

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        return reduce(and_, [part(y, *covariate) for part in self.parts])

    def pieces(self) -> Intervals | None:
        return (~Union([~part for part in self.parts])).pieces()  # De Morgan

    def __repr__(self) -> str:
        return " & ".join(f"({p!r})" if isinstance(p, Union) else repr(p) for p in self.parts)


class Union(_Combination):
    """Points in any of the parts; what ``a | b`` makes."""

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        return reduce(or_, [part(y, *covariate) for part in self.parts])

    def pieces(self) -> Intervals | None:
        found = [part.pieces() for part in self.parts]
        known = [part for part in found if part is not None]
        if len(known) < len(found):
            return None
        return merged([pair for part in known for pair in part])

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))


class Complement(Region):
    """Points outside; what ``~a`` makes. The complement of a complement is the region itself."""

    def __init__(self, part: object) -> None:
        self.part = as_region(part)
        self.dimension = self.part.dimension

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        return ~self.part(y, *covariate)

    def __invert__(self) -> Region:
        return self.part

    def edges(self) -> list[Edge]:
        return self.part.edges()

    def pieces(self) -> Intervals | None:
        inside = self.part.pieces()
        return None if inside is None else gaps(inside)

    def _key(self) -> Hashable:
        return ("Complement", self.part)

    def __repr__(self) -> str:
        return f"~({self.part!r})" if isinstance(self.part, _Combination) else f"~{self.part!r}"


class ByGroup(Region):
    """A window for each group, in a model with covariates.

    All windows are evaluated at every point and one is chosen. Where every observation has limits
    of its own, or there are hundreds of groups, give the limits as covariates:
    ``inside=lambda y, c: Box(c["lower"], c["upper"])(y)``.

    Parameters
    ----------
    windows : dict from group to window, or sequence
        Regions or functions ``(y, covariate) -> bool``. Groups are whole numbers, or names in a
        mixture, which looks them up; for a sequence they are 0, 1, ...
    group : str or callable ``(covariate) -> integer``, optional
        The group of an observation: a function of its covariate, or the name of a part of it. By
        default the covariate itself. A group without a window accepts nothing.

    Examples
    --------
    >>> from offcut.regions import Box, ByGroup
    >>> window = ByGroup([Box(lower=165), Box(lower=161)], group="decade")
    >>> window
    ByGroup([Box(165, inf), Box(161, inf)], group='decade')
    >>> bool(window(163.0, {"decade": 0})), bool(window(163.0, {"decade": 1}))
    (False, True)
    >>> bool(window(163.0, {"decade": 2}))
    False
    """

    def __init__(
        self,
        windows: Sequence[object] | Mapping[Any, object],
        group: str | Callable[[PyTree], PyTree] | None = None,
    ) -> None:
        if not isinstance(windows, Mapping | Sequence):
            raise ModelError(f"windows must be a list or a dict, got {type(windows).__name__}")
        self.listed = not isinstance(windows, Mapping)
        given = dict(windows) if isinstance(windows, Mapping) else dict(enumerate(windows))
        if not given:
            raise ModelError("ByGroup needs at least one window")
        self.named = all(isinstance(key, str) for key in given)
        for key in given:
            if not self.named and (isinstance(key, bool) or not isinstance(key, int | np.integer)):
                raise ModelError(
                    f"groups are whole numbers, or all of them names, got the key {key!r}"
                )
        self.windows: dict[int | str, Region] = {
            key if self.named else int(key): as_region(window) for key, window in given.items()
        }
        if not (group is None or isinstance(group, str) or callable(group)):
            raise ModelError(
                "group must be the name of a covariate or a function of it, got "
                f"{type(group).__name__}"
            )
        self.group = group
        self.dimension = common_dimension(list(self.windows.values()))

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        """Whether the point lies in the window of its group."""
        index = self._index(*covariate)
        # Not windows[index]: JAX would clamp an index out of range and take the last window.
        return reduce(
            or_,
            [(index == key) & window(y, *covariate) for key, window in self.windows.items()],
        )

    def _index(self, *covariate: PyTree) -> np.ndarray | jax.Array:
        if len(covariate) != 1:
            raise ModelError("ByGroup needs to know the group: give covariates= one for each row")
        if callable(self.group):
            index = self.group(covariate[0])
        elif self.group is None:
            index = covariate[0]
        else:
            try:
                index = covariate[0][self.group]
            except (KeyError, TypeError, IndexError) as error:
                raise ModelError(f"the covariate has no part {self.group!r}") from error
        if isinstance(index, dict):
            raise ModelError(
                f"the covariate is a dict with {sorted(map(str, index))}: say which part is the "
                "group, for example group='site'"
            )
        index = index if isinstance(index, jax.Array) else np.asarray(index)
        if index.shape != ():
            raise ModelError(
                f"the group of one observation must be one integer, got shape {index.shape}; "
                "say which part of the covariate it is with group="
            )
        if self.named and str(index) not in self.windows:
            raise ModelError(
                f"the windows belong to groups named {', '.join(map(repr, self.windows))}, but the "
                f"group is {index}: only a mixture looks up names. Number the groups, in "
                "covariates= and in ByGroup({0: ..., 1: ...})"
            )
        return index

    def edges(self) -> list[Edge]:
        found = (edge for window in self.windows.values() for edge in window.edges())
        return list(dict.fromkeys(found))

    def _key(self) -> Hashable:
        return ("ByGroup", frozenset(self.windows.items()), self.group)

    def __repr__(self) -> str:
        windows = list(self.windows.values()) if self.listed else self.windows
        group = getattr(self.group, "__name__", repr(self.group))
        return f"ByGroup({windows!r}{'' if self.group is None else f', group={group}'})"
