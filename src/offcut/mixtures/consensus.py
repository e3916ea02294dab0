r"""One partition that stands for many posterior draws of a partition, and how sure each event is.

The labels of a mixture mean nothing from one draw to the next. The consensus is the partition c
with the smallest posterior expected loss, the mean over draws of L(c, c_s), by default with the
variation of information (Wade & Ghahramani, *Bayesian Analysis* 2018). The expectation is exact
over the draws. The search moves events one by one, merges and splits clusters, from several
starts, in the manner of SALSO (Dahl, Johnson & Müller, *Journal of Computational and Graphical
Statistics* 2022), first on some events and then on all; ``contingency`` has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Integer
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError
from offcut.mixtures.contingency import (
    CHUNK,
    Blocks,
    Loss,
    Tables,
    blocks_of,
    count,
    make_loss,
    sum_own,
)

#: The starts are tried on so many events; the best of them goes on with more.
FIRST_EVENTS = 1_000
#: The search uses so many events; the others then join the cluster that raises the loss least.
MOST_EVENTS = 20_000
#: So many draws, evenly spaced, are tried as partitions.
MOST_DRAWS = 200
#: Labels beyond this are renamed, for tables are as wide as the largest.
LARGEST_LABEL = 10_000
#: No table has more entries than this (0.5 GiB, and a few copies).
MOST_ENTRIES = 2**26
LOSSES = ("vi", "binder")


class Consensus(NamedTuple):
    """A consensus partition; see :func:`consensus`."""

    labels: Int[np.ndarray, " n"]  # 0 is the largest cluster
    certainty: Float[np.ndarray, " n"]  # between 0 and 1
    expected_loss: float  # of these labels, over all events and draws
    draw_loss: float  # that of the best draw, for comparison
    clusters_in_draws: Float[np.ndarray, " 3"]  # 5%, 50% and 95% quantiles of their number
    searched: int  # events in the search; the others were assigned to its clusters
    loss: str


def consensus(
    partitions: ArrayLike,
    loss: str = "vi",
    most: int | None = None,
    seed: int = 0,
    starts: int = 4,
    split_cost: float = 1.0,
) -> Consensus:
    r"""Partition with the smallest posterior expected loss.

    Parameters
    ----------
    partitions : array of integers (draw, event)
        Labels of the events in each draw. Only who shares a label matters.
    loss : "vi" or "binder"
        Variation of information, in bits, or the share of pairs of events on which two partitions
        disagree. Binder's loss makes many small clusters out of events on borders.
    most : int, optional
        Largest number of clusters; by default ten more than in any draw.
    seed : int
        The same seed gives the same result, whatever the names of the labels.
    starts : int
        Searches that begin with events placed one by one in random order, besides the one that
        begins with the best draw.
    split_cost : float
        Cost of splitting what a draw holds together, between 0 and 2; that of merging what it
        holds apart is 2 minus this. Less than 1 gives more clusters.

    Returns
    -------
    Consensus
        With ``labels`` in order of decreasing cluster size, such that moving one event, merging
        two clusters or splitting one as some draws do does not lower the expected loss. Above
        20,000 events this holds for a random subset of that size (``searched``), and each other
        event joins the cluster in which it raises the expected loss least.

        ``certainty`` is the posterior probability that an event belongs to its cluster. In each
        draw, a component stands for the cluster that most of its events are in, and for any
        cluster that has its largest part there. The draw counts 1 for an event whose component
        stands for the event's cluster and 0 otherwise; where the component stands for several
        clusters, which this draw has merged, it counts that cluster's share of their events in
        the component. A draw that only splits a cluster counts 1: certainty says in which
        population an event is, not whether that could be divided.

    Examples
    --------
    Labels differ from draw to draw; only the last has the third event with the last two.

    >>> import numpy as np
    >>> from offcut.mixtures.consensus import consensus
    >>> draws = np.array([[0, 0, 0, 1, 1], [4, 4, 4, 2, 2], [1, 1, 1, 0, 0], [5, 5, 3, 3, 3]])
    >>> found = consensus(draws)
    >>> found.labels
    array([0, 0, 0, 1, 1])
    >>> found.certainty
    array([1.  , 1.  , 0.75, 1.  , 1.  ])
    """
    partitions = as_partitions(partitions)
    if loss not in LOSSES:
        raise SettingsError(f"loss must be one of {LOSSES}, got {loss!r}")
    if not 0 < split_cost < 2:
        raise SettingsError(f"split_cost must lie between 0 and 2, got {split_cost!r}")
    if most is not None and most < 1:
        raise SettingsError(f"most is a number of clusters, at least 1, got {most!r}")
    if starts < 0:
        raise SettingsError(f"starts is a number of searches, at least 0, got {starts!r}")
    draws = read(partitions)
    S, n = draws.partitions.shape
    largest = int(draws.numbers.max())
    most = min(n, most or largest + 10)
    if draws.components * (max(most, largest) + 1) > MOST_ENTRIES:
        raise DataError(
            f"{S} draws with up to {largest} clusters need tables of {draws.components} by {most}, "
            "too large for memory; give fewer draws, or fewer clusters as most"
        )
    objective = partial(make_loss, loss, split_cost, draws=S)
    labels, draw = search(draws, objective, most, starts, np.random.default_rng(seed))
    labels = by_size(labels)
    counts, at_draw = (draws.tables(c) for c in (labels, by_size(draws.partitions[draw])))
    return Consensus(
        labels,
        certainty(draws, counts, labels),
        expected_loss(objective(events=n), counts),
        expected_loss(objective(events=n), at_draw),
        np.quantile(draws.numbers, (0.05, 0.5, 0.95)),
        min(n, MOST_EVENTS),
        loss,
    )


def match_components(
    partitions: ArrayLike, labels: ArrayLike, components: int | None = None
) -> Int[np.ndarray, "S K"]:
    """The consensus cluster of each component of each draw: the one most of its events are in.

    Parameters
    ----------
    partitions : array of integers (draw, event)
    labels : array of integers (event,)
        The consensus.
    components : int, optional
        Number of components of the mixture; by default one more than the largest label.

    Returns
    -------
    array of integers (draw, component)
        -1 where a component holds no event; of two equal clusters the one with the lower number.

    Examples
    --------
    >>> from offcut.mixtures.consensus import match_components
    >>> match_components([[0, 0, 0, 1, 1], [3, 3, 2, 0, 0]], labels=[0, 0, 0, 1, 1])
    array([[ 0,  1, -1, -1],
           [ 1, -1,  0,  0]])
    """
    partitions = as_partitions(partitions)
    if np.shape(labels) != partitions.shape[1:]:
        raise DataError(
            f"labels has shape {np.shape(labels)}; expected one label for each of the "
            f"{partitions.shape[1]} events in partitions"
        )
    one = as_partitions(np.asarray(labels)[None], "labels")[0]
    largest = int(partitions.max())
    if max(largest, one.max()) > LARGEST_LABEL:
        raise DataError(
            f"labels go up to {max(largest, one.max())}; components and clusters are expected "
            f"to be numbered from 0, and to be no more than {LARGEST_LABEL}"
        )
    components = largest + 1 if components is None else components
    if components <= largest:
        raise DataError(
            f"components is {components}, but partitions has a label {largest}; expected at least "
            f"{largest + 1}"
        )
    draws = read(partitions)
    cluster = draws.tables(one.astype(np.intp)).argmax(axis=1)
    matched = np.full((len(partitions), components), -1)
    names = draws.names
    matched[:, : names.shape[1]] = np.where(names >= 0, cluster[names], -1)
    return matched


def certainty(
    draws: Partitions, counts: Int[np.ndarray, "J C"], labels: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Mean over draws of what each counts for an event; :func:`consensus` says how."""
    largest = np.maximum.reduceat(counts, draws.offsets, axis=0)
    home = np.repeat(largest, draws.numbers, axis=0)
    eligible = (counts == counts.max(axis=1, keepdims=True)) | (counts == home)
    credit = np.where(eligible, counts, 0)
    credit = credit / credit.sum(axis=1, keepdims=True)
    parts = draws.chunks(np.arange(len(labels)))
    sums = np.concatenate([sum_own(draws.cells(part), credit, labels[part]) for part in parts])
    return np.minimum(sums / len(draws.numbers), 1)


def expected_loss(loss: Loss, counts: Int[np.ndarray, "J C"]) -> float:
    """Posterior expected loss of the partition with these tables."""
    constant = loss.split * loss.phi[counts.sum(axis=1)].sum() / loss.draws
    clusters = loss.clusters(counts, counts.sum(axis=0) // loss.draws)
    return max(float(constant + clusters.sum()) / loss.scale, 0.0)


def search(
    draws: Partitions,
    objective: Callable[..., Loss],
    most: int,
    starts: int,
    rng: np.random.Generator,
) -> tuple[Int[np.ndarray, " n"], int]:
    """Labels of all events, and the best draw."""
    order = rng.permutation(draws.partitions.shape[1])
    events = np.sort(order[:FIRST_EVENTS])
    blocks, block = blocks_of(draws.cells(events), draws.components)
    loss = objective(events=len(events))

    draw = best_draw(blocks, loss)
    begun = [Tables(blocks, loss, most, blocks.cells[:, draw])]
    begun += [allocated(blocks, loss, most, rng) for _ in range(starts)]
    for tables in begun:
        improve(tables, rng)
    tables = min(begun, key=Tables.value)

    if len(order) > FIRST_EVENTS:
        events = np.sort(order[:MOST_EVENTS])
        blocks, block = blocks_of(draws.cells(events), draws.components)
        loss = objective(events=len(events))
        begun = [
            Tables(blocks, loss, most, labels)
            for labels in (joined(tables, blocks.cells), blocks.cells[:, draw])
        ]
        for tables in begun:
            tables.merge()
        tables = min(begun, key=Tables.value)
        improve(tables, rng)

    labels = np.empty(len(order), np.intp)
    labels[events] = tables.labels[block]
    for part in draws.chunks(order[MOST_EVENTS:]):
        labels[part] = joined(tables, draws.cells(part))
    return labels, draw


def best_draw(blocks: Blocks, loss: Loss) -> int:
    """The draw with the smallest expected loss, of at most ``MOST_DRAWS``."""
    S = blocks.cells.shape[1]
    tried = np.unique(np.linspace(0, S - 1, min(S, MOST_DRAWS)).astype(int))
    values = [Tables(blocks, loss, 0, blocks.cells[:, draw]).value() for draw in tried]
    return int(tried[np.argmin(values)])


def allocated(blocks: Blocks, loss: Loss, most: int, rng: np.random.Generator) -> Tables:
    """Blocks placed one by one, in random order, each where it fits best with those before."""
    tables = Tables(blocks, loss, most, None)
    for block in rng.permutation(len(blocks.weights)):
        tables.place(block)
    return tables


def improve(tables: Tables, rng: np.random.Generator) -> None:
    """Move, merge and split until nothing lowers the loss."""
    tables.merge()
    changed = True
    while changed:
        tables.sweep(rng)
        changed = tables.merge() or tables.split(rng)


def joined(tables: Tables, cells: Int[np.ndarray, "rows S"]) -> Int[np.ndarray, " rows"]:
    """For each row of cells, the cluster that it joins at the smallest expected loss."""
    return tables.joining(cells, 1)[:, tables.sizes > 0].argmin(axis=1)


class Partitions(NamedTuple):
    """Partitions with their components numbered throughout, in order of their first events."""

    partitions: Integer[np.ndarray, "S n"]
    names: Int[np.ndarray, "S labels"]  # number of the component, -1 where there is none
    numbers: Int[np.ndarray, " S"]  # components in each draw

    @property
    def components(self) -> int:
        return int(self.numbers.sum())

    @property
    def offsets(self) -> Int[np.ndarray, " S"]:
        """Number of the first component of each draw."""
        return np.cumsum(self.numbers) - self.numbers

    def cells(self, events: Int[np.ndarray, " m"]) -> Int[np.ndarray, "m S"]:
        """The number of the component that holds the event, in each draw."""
        rows = np.arange(len(self.partitions))[:, None]
        return np.ascontiguousarray(self.names[rows, self.partitions[:, events]].T)

    def chunks(self, events: Int[np.ndarray, " m"]) -> Iterator[Int[np.ndarray, " _"]]:
        """So many events at a time that their cells take little memory."""
        step = max(1, CHUNK // len(self.partitions))
        return (events[start : start + step] for start in range(0, len(events), step))

    def tables(self, labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, "J C"]:
        """Events by component and cluster."""
        counts = np.zeros((self.components, int(labels.max()) + 1), np.intp)
        for part in self.chunks(np.arange(len(labels))):
            blocks = Blocks(self.cells(part), np.ones(len(part)), self.components)
            counts += count(blocks, labels[part], counts.shape[1])
        return counts


def read(partitions: Integer[np.ndarray, "S n"]) -> Partitions:
    """Number the components, so that nothing depends on the names of labels."""
    S, n = partitions.shape
    if partitions.max() > LARGEST_LABEL:
        renamed = [np.unique(row, return_inverse=True)[1] for row in partitions]
        partitions = np.array(renamed, np.int32)
    width = int(partitions.max()) + 1
    names = np.full((S, width), -1, np.int32)
    numbers = np.empty(S, np.intp)
    total = 0
    for draw, row in enumerate(partitions):
        first = np.full(width, n)
        first[row[::-1]] = np.arange(n)[::-1]  # the last that is written stays
        numbers[draw] = used = int(np.sum(first < n))
        names[draw, np.argsort(first)[:used]] = total + np.arange(used)
        total += used
    return Partitions(partitions, names, numbers)


def as_partitions(partitions: ArrayLike, what: str = "partitions") -> Integer[np.ndarray, "S n"]:
    """Check that these are labels of events in draws."""
    partitions = np.asarray(partitions)
    if not np.issubdtype(partitions.dtype, np.integer):
        raise DataError(f"{what} must be integers, the labels of events, got {partitions.dtype}")
    if partitions.ndim != 2 or not partitions.size:
        raise DataError(
            f"{what} must have a row for each draw and a column for each event, got shape "
            f"{partitions.shape}; chains are joined by partitions.reshape(-1, events)"
        )
    if partitions.min() < 0:
        raise DataError(
            f"{what} must be labels from 0 on, got {partitions.min()}; leave out events without "
            "a label"
        )
    return partitions


def by_size(labels: Integer[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Clusters renamed by decreasing size; equal ones in order of their first events."""
    _, first, own, sizes = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(np.lexsort((first, -sizes)))[own]
