"""A region: a set of points that is called like a predicate and combined with ``&``, ``|``, ``~``.

A region is written for one point and gives one boolean; ``jax.jit`` and ``jax.vmap`` apply. In a
model with covariates it is called with the point and its covariate: shapes ignore the second,
predicates receive it like every other function of the model.

The numbers of a region are constants that NumPy checks and hashes, or traced values that JAX
carries. A constant stays in NumPy's float64 and is compared there, unless the point is a JAX array:
outside Offcut's own float64 JAX would round it to float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from offcut.errors import ModelError
from offcut.numerics.rendering import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = object  # matplotlib is imported where something is drawn

#: Numbers of a region or of a point, in an array that NumPy or JAX holds.
Numbers: TypeAlias = np.ndarray | jax.Array
#: One for each coordinate or for all; None for no limit.
Limits: TypeAlias = ArrayLike | Sequence[float | None] | None
#: (coordinate, value); the coordinate is None where the limit holds for all, or for numbers.
Edge: TypeAlias = tuple[int | None, float]
#: Sorted and disjoint.
Intervals: TypeAlias = list[tuple[float, float]]


def is_traced(*values: PyTree) -> bool:
    """Whether any value, or part of one, is known only when the compiled program runs."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def namespace(*values: object) -> ModuleType:
    """jax.numpy where any of the arrays is JAX's, else numpy."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def parameter(value: Limits, name: str, missing: float | None = None, rank: int = 1) -> Any:
    """A read-only float array of at most ``rank`` axes; ``missing`` takes the place of None."""
    if missing is not None:
        value = _filled(value, missing)
    array: Numbers
    if is_traced(value):
        array = jnp.asarray(value)
    else:
        try:
            array = checked = np.array(value, dtype=float)
        except (TypeError, ValueError) as error:
            raise ModelError(f"{name} must be a number or an array of numbers: {error}") from error
        checked.flags.writeable = False  # it is hashed
        if np.isnan(checked).any():
            raise ModelError(f"{name} has NaN: {written(array)}; use None or inf for no limit")
    if array.ndim > rank:
        expected = ("a number", "a number or a vector", "a matrix")[rank]
        raise ModelError(f"{name} must be {expected}, got an array of shape {array.shape}")
    return array


def _filled(value: Limits, missing: float) -> Any:
    if value is None:
        return missing
    if isinstance(value, list | tuple):
        return [_filled(part, missing) for part in value]
    return value


def common_length(**arrays: Numbers) -> int | None:
    """The length that all vectors among the named arrays share; None where all are numbers."""
    lengths = {name: array.shape[0] for name, array in arrays.items() if array.ndim}
    if len(set(lengths.values())) > 1:
        said = " and ".join(f"{name} {length}" for name, length in lengths.items())
        raise ModelError(f"one entry for each coordinate, or a number for all: got {said} entries")
    length = next(iter(lengths.values()), None)
    if length == 0:
        raise ModelError(f"{' and '.join(lengths)} must have at least one coordinate")
    return length


def identity(array: Numbers) -> Hashable:
    """What two parameters must share to be the same: their numbers, or being one traced value."""
    if isinstance(array, jax.core.Tracer):
        return ("traced", id(array))
    return (array.shape, tuple(array.ravel().tolist()))


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
    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
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

    def pieces(self) -> Intervals | None:
        """The intervals of a region of numbers (``regions.intervals``); None where unknown."""
        return None

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
        from offcut.plots.regions import draw

        return draw(self, ax, dimension=dimension, xlim=xlim, ylim=ylim, color=color, label=label)

    def __and__(self, other: object) -> Region:
        from offcut.regions.sets import Intersection

        return Intersection([self, other]) if callable(other) else NotImplemented

    def __rand__(self, other: object) -> Region:
        from offcut.regions.sets import Intersection

        return Intersection([other, self]) if callable(other) else NotImplemented

    def __or__(self, other: object) -> Region:
        from offcut.regions.sets import Union

        return Union([self, other]) if callable(other) else NotImplemented

    def __ror__(self, other: object) -> Region:
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


class Shape(Region):
    """A region of numbers or vectors.

    A subclass names its ``parameters``, arrays among its attributes by which it is told from others
    and printed, sets ``dimension`` where they are vectors, and defines ``contains`` for one array;
    ``ball.py`` has two short ones. It may know its ``edges`` and ``pieces``.
    """

    parameters: ClassVar[tuple[str, ...]] = ()

    def numbers(self) -> list[Numbers]:
        return [getattr(self, name) for name in self.parameters]

    def _key(self) -> Hashable:
        return (type(self).__name__, *map(identity, self.numbers()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(written, self.numbers()))})"

    def __call__(self, y: PyTree, *covariate: PyTree) -> Any:
        """Whether one point lies inside: NumPy's boolean for NumPy and Python numbers, else JAX's.

        A covariate is ignored, so that a fixed window fits into a model that has some.
        """
        return self.contains(as_point(y, self))

    @abstractmethod
    def contains(self, x: Numbers) -> Any:
        """Whether ``x`` lies inside, an array whose shape has been checked."""


def as_point(y: PyTree, region: Region) -> Any:
    """One point as an array, a NumPy one where nothing in it is JAX's."""
    if isinstance(y, dict):
        raise ModelError(
            f"{region!r} is about numbers or vectors, but the point is a dict with "
            f"{sorted(map(str, y))}; choose a part of it: inside=lambda y: region(y[name])"
        )
    try:
        x = namespace(*jax.tree.leaves(y)).asarray(y)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{region!r} is about numbers or vectors: {error}") from error
    if region.dimension is not None and x.shape != (region.dimension,):
        many = x.ndim == 2 and x.shape[1] == region.dimension
        hint = "; for many points at once use jax.vmap(region)(points)" if many else ""
        raise ModelError(
            f"{region!r} is for points of shape ({region.dimension},), got a point of shape "
            f"{x.shape}{hint}"
        )
    return x
