"""A region: a set of points that is called like a predicate and combined with ``&``, ``|``, ``~``.

A region is written for one point and gives one boolean; ``jax.jit`` and ``jax.vmap`` apply. In a
model with covariates it is called with the point and its covariate: shapes ignore the second,
predicates receive it like every other function of the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from offcut.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: (coordinate, value); the coordinate is None where the limit holds for all, or for numbers.
Edge = tuple[int | None, float]


class Region(ABC):
    """A set of points.

    Combine regions with ``&``, ``|`` and ``~``, also with a function of a point in place of one of
    them. For many points at once use ``jax.vmap(region)(points)``.

    Attributes
    ----------
    dimension : int or None
        Length of the vectors it is about. None where any point will do: parameters that are
        numbers apply to points that are numbers, and to all coordinates of vectors.

    Examples
    --------
    >>> from offcut.regions import Ball, Box
    >>> window = Box([-2, -2], [2, 2]) & ~Ball([0, 0], 1) | (lambda y: y[0] > 3)
    >>> window
    Box([-2, -2], [2, 2]) & ~Ball([0, 0], 1) | Predicate(<lambda>)
    >>> [bool(window(point)) for point in ([0.5, 0.0], [1.5, 0.0], [4.0, 9.0])]
    [False, True, True]
    """

    dimension: int | None = None

    @abstractmethod
    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether one point lies inside."""

    def _key(self) -> Hashable:
        """What two equal regions share."""
        return id(self)

    def edges(self) -> list[Edge]:
        """Finite limits parallel to the axes, collected from all parts of the region.

        Pairs of a coordinate and a value; the coordinate is None where the limit holds for points
        that are numbers and for every coordinate of a vector. An edge of a part may lie within
        another part or outside the whole. Empty where none is known.
        """
        return []

    def draw(
        self,
        ax: Axes | None = None,
        *,
        dimension: int | None = None,
        xlim: tuple[float, float] | None = None,
        ylim: tuple[float, float] | None = None,
        color: str | None = None,
        label: str | None = None,
    ) -> Axes:
        """The region as a picture: shaded intervals in 1-D, a filled area in 2-D.

        Sides that are open look like closed ones. Needs matplotlib (``offcut[plots]``).

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; its limits stay if something is there already. By default a new figure.
        dimension : 1 or 2, optional
            Needed where the region is about points of any dimension, and not a set of intervals.
        xlim, ylim : (low, high), optional
            The part to show; by default where the region's finite limits are.
        color, label : str, optional
            As in matplotlib.

        Returns
        -------
        matplotlib.axes.Axes

        Examples
        --------
        >>> from offcut.regions import Ball, Box
        >>> axes = Ball([0, 0], 2).draw(label="seen")
        >>> type(axes.patches[0]).__name__
        'Circle'
        """
        from offcut.regions.drawing import draw

        return draw(self, ax, dimension=dimension, xlim=xlim, ylim=ylim, color=color, label=label)

    def __and__(self, other: Any) -> Region:
        from offcut.regions.sets import Intersection

        return Intersection([self, other]) if callable(other) else NotImplemented

    def __rand__(self, other: Any) -> Region:
        from offcut.regions.sets import Intersection

        return Intersection([other, self]) if callable(other) else NotImplemented

    def __or__(self, other: Any) -> Region:
        from offcut.regions.sets import Union

        return Union([self, other]) if callable(other) else NotImplemented

    def __ror__(self, other: Any) -> Region:
        from offcut.regions.sets import Union

        return Union([other, self]) if callable(other) else NotImplemented

    def __invert__(self) -> Region:
        from offcut.regions.sets import Complement

        return Complement(self)

    def __bool__(self) -> bool:
        # ``a and b`` would silently be b.
        raise ModelError("a region is neither true nor false; combine regions with & | ~")

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Region) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())
