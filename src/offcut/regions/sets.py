"""Set operations: intersection, union and complement of regions, by the booleans of their parts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

from offcut.errors import ModelError
from offcut.regions.predicate import as_region
from offcut.regions.region import Edge, Region


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

    def __init__(self, parts: Sequence[Any]) -> None:
        regions = [as_region(part) for part in parts]
        self.parts: tuple[Region, ...] = tuple(
            inner
            for part in regions
            for inner in (part.parts if type(part) is type(self) else (part,))  # type: ignore[attr-defined]
        )
        if not self.parts:
            raise ModelError(f"{type(self).__name__} needs at least one region")
        self.dimension = common_dimension(self.parts)

    def _each(self, y: Any, covariate: tuple) -> list[Any]:
        return [part(y, *covariate) for part in self.parts]

    def edges(self) -> list[Edge]:
        """Those of all parts."""
        return list(dict.fromkeys(edge for part in self.parts for edge in part.edges()))

    def _key(self) -> Hashable:
        return (type(self).__name__, frozenset(self.parts))  # the order does not matter


class Intersection(_Combination):
    """Points in all of the parts; what ``a & b`` makes."""

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether the point lies in all parts."""
        return reduce(and_, self._each(y, covariate))

    def __repr__(self) -> str:
        return " & ".join(f"({p!r})" if isinstance(p, Union) else repr(p) for p in self.parts)


class Union(_Combination):
    """Points in any of the parts; what ``a | b`` makes."""

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether the point lies in any part."""
        return reduce(or_, self._each(y, covariate))

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.parts))


class Complement(Region):
    """Points outside; what ``~a`` makes. The complement of a complement is the region itself."""

    def __init__(self, part: Any) -> None:
        self.part = as_region(part)
        self.dimension = self.part.dimension

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether the point lies outside of the part."""
        return ~self.part(y, *covariate)

    def __invert__(self) -> Region:
        return self.part

    def edges(self) -> list[Edge]:
        """Those of the part."""
        return self.part.edges()

    def _key(self) -> Hashable:
        return ("Complement", self.part)

    def __repr__(self) -> str:
        return f"~({self.part!r})" if isinstance(self.part, _Combination) else f"~{self.part!r}"
