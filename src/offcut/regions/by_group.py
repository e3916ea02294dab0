"""Windows that differ by group: which one applies, a covariate says."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import jax
import numpy as np

from offcut.errors import ModelError
from offcut.regions.predicate import as_region
from offcut.regions.region import Edge, Region
from offcut.regions.sets import common_dimension


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
        windows: Sequence[Any] | Mapping[Any, Any],
        group: str | Callable[[Any], Any] | None = None,
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
        self.windows: dict[Any, Region] = {
            key if self.named else int(key): as_region(window) for key, window in given.items()
        }
        if not (group is None or isinstance(group, str) or callable(group)):
            raise ModelError(
                "group must be the name of a covariate or a function of it, got "
                f"{type(group).__name__}"
            )
        self.group = group
        self.dimension = common_dimension(list(self.windows.values()))

    def __call__(self, y: Any, *covariate: Any) -> Any:
        """Whether the point lies in the window of its group."""
        index = self._index(*covariate)
        # Not windows[index]: JAX would clamp an index out of range and take the last window.
        return reduce(
            or_,
            [(index == key) & window(y, *covariate) for key, window in self.windows.items()],
        )

    def _index(self, *covariate: Any) -> Any:
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
        """Those of all windows."""
        found = (edge for window in self.windows.values() for edge in window.edges())
        return list(dict.fromkeys(found))

    def _key(self) -> Hashable:
        return ("ByGroup", frozenset(self.windows.items()), self.group)

    def __repr__(self) -> str:
        windows: Any = list(self.windows.values()) if self.listed else self.windows
        group = getattr(self.group, "__name__", repr(self.group))
        return f"ByGroup({windows!r}{'' if self.group is None else f', group={group}'})"
