"""Data of a mixture: events and probes from what the user has, their static sizes, and arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from offcut.augmentation.rejections import Layout
from offcut.numerics.arrays import bucket
from offcut.numerics.normal import Base, size


class MixtureLayout(NamedTuple):
    """``rows`` places for events with d coordinates in G groups, K components.

    The number of events is data, in each group as well: data of about the same size share compiled
    code. ``rows`` are whole chunks, a quarter more than are needed at the most.
    ``buffer`` has the sizes of the buffer of rejections: chunk, the points handled at a time, and
    block, the proposals drawn at a time. ``names`` are those of the groups, where windows are
    looked up by them.
    """

    rows: int
    d: int
    groups: int
    components: int
    buffer: Layout
    names: tuple[str, ...] = ()

    @property
    def group_names(self) -> tuple[str, ...]:
        """What windows are looked up by: names, or the numbers of groups that have none."""
        return self.names or tuple(map(str, range(self.groups)))

    @classmethod
    def of(
        cls, n: int, d: int, groups: int, components: int, names: tuple[str, ...] = ()
    ) -> MixtureLayout:
        """Chunks whose features and log densities stay in the second level of cache."""
        row = max(size(d), components)
        roomy = int(np.clip(2 ** int(math.log2(2**16 / row)), 128, 1024))
        chunk = int(np.clip(2 ** math.ceil(math.log2(max(n, 2))), 128, roomy))
        rows = bucket(math.ceil(n / chunk)) * chunk
        return cls(rows, d, groups, components, Layout(rows, chunk, chunk, True, 2), names)

    @property
    def chunk(self) -> int:
        return self.buffer.chunk

    def chunks(self, count: Int[Array, ""]) -> Int[Array, ""]:
        """How many chunks so many points fill."""
        return -(-count // self.chunk)


class MixtureData(NamedTuple):
    """Events on the sampler's scale, (x - shift) / scale, and padding behind them.

    group : 0 to G - 1. counts : events in each group. probes : indices of events at which log
    densities are followed.
    """

    x: Float[Array, "d rows"]
    group: Int[Array, " rows"]
    counts: Int[Array, " G"]
    shift: Float[Array, " d"]
    scale: Float[Array, " d"]
    base: Base
    probes: Int[Array, " probes"]

    @property
    def n(self) -> Int[Array, ""]:
        return self.counts.sum()


def padded(values: Shaped[np.ndarray, "n ..."], rows: int) -> Shaped[np.ndarray, "rows ..."]:
    """So many rows, the last repeated behind the n that there are."""
    return values[np.minimum(np.arange(rows), len(values) - 1)]


#: Events at which the log density is followed, for R-hat.
PROBES = 12


def probes(n: int) -> Int[np.ndarray, " probes"]:
    """Events at which the log density is followed: a fixed random choice."""
    chosen = np.sort(np.random.default_rng(n).choice(n, min(n, PROBES), replace=False))
    return np.resize(chosen, PROBES)  # always as many, for compiled code depends on it
