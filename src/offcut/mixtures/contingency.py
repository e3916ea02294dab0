r"""A partition, its contingency tables with many draws, and the moves that lower its expected loss.

Let c be a partition of n events into clusters of sizes a_k, let draw s have components of sizes
b_sj, and let n_skj count the events in both. Variation of information (Meilă, *Journal of
Multivariate Analysis* 2007) and Binder's loss (*Biometrika* 1978) are both

    L(c, c_s) = u sum_j phi(b_sj) + v sum_k phi(a_k) - (u + v) sum_kj phi(n_skj),

with phi(x) = x log2(x) over n for the first, phi(x) = x^2 / 2 over the number of pairs for the
second; u is the cost of splitting what belongs together, v that of merging what does not (Dahl,
Johnson & Müller, *Journal of Computational and Graphical Statistics* 2022). Averaged over S draws,
every cluster of c contributes on its own:

    E L = constant + sum_k V_k,   V_k = v phi(a_k) - (u + v) / S sum_sj phi(n_skj).

So adding w events that all have components j_s to cluster k changes the loss by

    v [phi(a_k + w) - phi(a_k)] - (u + v) / S sum_s [phi(n_skj_s + w) - phi(n_skj_s)],

S operations for each cluster; no pair of events is ever looked at. *Blocks* are events that share
their components in all draws. Nothing is lost by moving them whole: with x of a block's events in
one cluster and the others in another, the loss is strictly concave in x, since phi'' does not rise
and n_skj <= a_k,

    v phi''(a_k + x) - (u + v) / S sum_s phi''(n_skj_s + x) <= -u phi''(a_k + x) < 0,

and likewise for the other cluster. The minimum over x has the block whole, and where moving one
event out of a whole block lowers the loss, moving the block lowers it more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real
from scipy.sparse import csr_array

#: Changes below this many units of phi are rounding.
TOLERANCE = 1e-8
#: So many entries of a temporary array at a time.
CHUNK = 1_000_000
#: A sweep visits at least this share of the blocks before all are looked at again, and visits
#: them once more if more than this share of them moved.
SHARE, MANY = 0.02, 0.1
#: So many components are tried as one half of a cluster, each improved so many times.
SPLITS, PASSES = 8, 4


class Blocks(NamedTuple):
    """Events that share their components in all draws, as one."""

    cells: Int[np.ndarray, "blocks S"]  # its component, numbered throughout all draws
    weights: Real[np.ndarray, " blocks"]  # events in it
    components: int  # of all draws together


class Loss(NamedTuple):
    """Expected loss of partitions of n events, in units of ``phi``."""

    phi: Float[np.ndarray, " n+1"]  # at 0, ..., n
    split: float  # u
    merge: float  # v
    draws: int  # S
    scale: float  # n, or the number of pairs

    def clusters(
        self, counts: Int[np.ndarray, "J C"], sizes: Int[np.ndarray, " C"]
    ) -> Float[np.ndarray, " C"]:
        """V_k of clusters with these counts by component and cluster."""
        return self.combine(self.phi[sizes], self.phi[counts].sum(axis=0))

    def combine(
        self, sizes: Float[np.ndarray, " C"], joint: Float[np.ndarray, "... C"]
    ) -> Float[np.ndarray, "... C"]:
        """The two terms of V_k, or of a change of it."""
        return self.merge * sizes - (self.split + self.merge) / self.draws * joint


def make_loss(name: str, split_cost: float, events: int, draws: int) -> Loss:
    """``name`` is "vi" or "binder"; the costs of splitting and merging add up to 2."""
    x = np.arange(events + 1.0)
    if name == "vi":
        phi, scale = x * np.log2(np.maximum(x, 1)), float(events)
    else:
        phi, scale = x**2 / 2, max(events * (events - 1) / 2, 1.0)
    return Loss(phi, split_cost, 2 - split_cost, draws, scale)


def blocks_of(
    cells: Int[np.ndarray, "n S"], components: int
) -> tuple[Blocks, Int[np.ndarray, " n"]]:
    """The blocks of events with these components, and the block of each event."""
    rows = np.ascontiguousarray(cells)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).reshape(-1)
    _, first, block, weights = np.unique(
        whole, return_index=True, return_inverse=True, return_counts=True
    )
    return Blocks(rows[first], weights, components), block


def count(
    blocks: Blocks, labels: Int[np.ndarray, " blocks"], clusters: int
) -> Int[np.ndarray, "J clusters"]:
    """Events by component and cluster."""
    table = np.zeros(blocks.components * clusters)
    for part in chunks(blocks.cells):
        place = blocks.cells[part].astype(np.intp) * clusters + labels[part, None]
        weights = np.repeat(blocks.weights[part].astype(float), place.shape[1])
        table += np.bincount(place.reshape(-1), weights, len(table))
    return table.reshape(-1, clusters).astype(np.intp)


def chunks(cells: Int[np.ndarray, "rows S"]) -> list[slice]:
    """Slices of the rows that hold about ``CHUNK`` entries each."""
    step = max(1, CHUNK // cells.shape[1])
    return [slice(start, start + step) for start in range(0, len(cells), step)]


def sum_everywhere(
    cells: Int[np.ndarray, "rows S"], values: Float[np.ndarray, "J C"]
) -> Float[np.ndarray, "rows C"]:
    """Sum over draws of the values by component and cluster at the row's cells."""
    sums = np.empty((len(cells), values.shape[1]))
    for part in chunks(cells):
        some = cells[part]
        ends = np.arange(0, some.size + 1, some.shape[1], dtype=cells.dtype)
        one_hot = csr_array((np.ones(some.size), some.reshape(-1), ends), (len(some), len(values)))
        sums[part] = one_hot @ values
    return sums


def sum_own(
    cells: Int[np.ndarray, "rows S"],
    values: Float[np.ndarray, "J C"],
    labels: Int[np.ndarray, " rows"],
) -> Float[np.ndarray, " rows"]:
    """The same at each row's own cluster only."""
    parts = chunks(cells)
    return np.concatenate([values[cells[p], labels[p, None]].sum(axis=1) for p in parts])


class Tables:
    """A partition of blocks with its tables, changed in place.

    One cluster more than are in use is kept empty, unless there are ``most`` already. Without
    labels no block has been placed yet.
    """

    def __init__(
        self, blocks: Blocks, loss: Loss, most: int, labels: Int[np.ndarray, " blocks"] | None
    ) -> None:
        self.blocks, self.loss, self.most = blocks, loss, most
        if labels is None:
            self.labels = np.full(len(blocks.weights), -1)
            self.counts = np.zeros((blocks.components, 0), np.intp)
        else:
            used, self.labels = np.unique(labels, return_inverse=True)
            self.counts = count(blocks, self.labels, len(used))
        clusters = self.counts.shape[1]
        placed = self.labels >= 0
        weights = blocks.weights[placed]
        self.sizes = np.bincount(self.labels[placed], weights, clusters).astype(np.intp)
        self.widen()

    def widen(self) -> None:
        """Add an empty cluster, if one more is allowed."""
        if len(self.sizes) < self.most:
            self.counts = np.pad(self.counts, ((0, 0), (0, 1)))
            self.sizes = np.pad(self.sizes, (0, 1))

    def tidy(self) -> None:
        """Forget clusters that all events have left."""
        kept = self.sizes > 0
        self.labels = (np.cumsum(kept) - 1)[self.labels]
        self.counts, self.sizes = self.counts[:, kept], self.sizes[kept]
        self.widen()

    def value(self) -> float:
        """The expected loss without its constant."""
        return float(self.loss.clusters(self.counts, self.sizes).sum())

    def place(self, block: int | np.integer) -> bool:
        """Put one block where the expected loss is lowest; whether it moved."""
        phi, own, weight = self.loss.phi, self.labels[block], self.blocks.weights[block]
        cells = self.blocks.cells[block]
        counts, sizes = self.counts[cells], self.sizes.copy()
        if own >= 0:
            counts[:, own] -= weight
            sizes[own] -= weight
        joint = (phi[counts + weight] - phi[counts]).sum(axis=0)
        change = self.loss.combine(phi[sizes + weight] - phi[sizes], joint)
        best = int(np.argmin(change))
        if own >= 0:
            if change[best] >= change[own] - TOLERANCE:
                return False
            self.counts[cells, own] -= weight
            self.sizes[own] -= weight
        self.counts[cells, best] += weight
        self.sizes[best] += weight
        self.labels[block] = best
        if self.sizes[-1] > 0:
            self.widen()
        return True

    def joining(
        self, cells: Int[np.ndarray, "rows S"], weight: int | np.integer
    ) -> Float[np.ndarray, "rows C"]:
        """Change of the loss by adding rows of this weight, that are in none, to each cluster."""
        counts, sizes = (
            self.loss.phi.take(x + weight, mode="clip") - self.loss.phi[x]
            for x in (self.counts, self.sizes)
        )
        return self.loss.combine(sizes, sum_everywhere(cells, counts))

    def changes(self) -> Float[np.ndarray, "blocks C"]:
        """Change of the loss by moving one block to a cluster, all else as it is."""
        changes = np.empty((len(self.labels), len(self.sizes)))
        for weight in np.unique(self.blocks.weights):
            some = np.flatnonzero(self.blocks.weights == weight)
            cells, own = self.blocks.cells[some], self.labels[some]
            counts, sizes = (
                self.loss.phi[x] - self.loss.phi[np.maximum(x - weight, 0)]
                for x in (self.counts, self.sizes)
            )
            leaving = self.loss.combine(sizes[own], sum_own(cells, counts, own))
            changes[some] = self.joining(cells, weight) - leaving[:, None]
        changes[np.arange(len(changes)), self.labels] = 0
        return changes

    def sweep(self, rng: np.random.Generator) -> None:
        """Move blocks one at a time until no move of one block lowers the loss.

        All are looked at together, which is fast; those that want to move, or nearly so, are then
        placed one after the other, again and again while many of them move.
        """
        while True:
            change = self.changes().min(axis=1)
            wanting = int(np.sum(change < -TOLERANCE))
            if not wanting:
                return
            number = max(wanting, int(SHARE * len(change)))
            some = np.argpartition(change, number - 1)[:number]
            while sum([self.place(block) for block in rng.permutation(some)]) > MANY * number:
                pass
            self.tidy()

    def merge(self) -> bool:
        """Merge pairs of clusters while that lowers the loss, or while there are too many."""
        change = np.full((len(self.sizes), len(self.sizes)), np.inf)
        fresh = left = np.flatnonzero(self.sizes)
        before = len(left)
        while len(left) > 1:
            for k in map(int, fresh):
                others = left[left != k]
                change[k, others] = change[others, k] = self._merging(k, others)
            k, other = divmod(int(np.argmin(change)), len(change))
            if change[k, other] >= -TOLERANCE and len(left) <= self.most:
                break
            self.labels[self.labels == other] = k
            for table in (self.counts, self.sizes):
                table[..., k] += table[..., other]
                table[..., other] = 0
            change[other] = change[:, other] = np.inf
            fresh, left = np.array([k]), left[left != other]
        self.tidy()
        return len(left) < before

    def _merging(self, k: int, others: Int[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
        """Change of the loss by merging k with each other; components without k do not matter."""
        rows = np.flatnonzero(self.counts[:, k])
        counts, sizes = self.counts[np.ix_(rows, others)], self.sizes[others]
        joint, alone = (
            self.loss.phi[own + theirs] - self.loss.phi[own] - self.loss.phi[theirs]
            for own, theirs in ((self.counts[rows, k, None], counts), (self.sizes[k], sizes))
        )
        return self.loss.combine(alone, joint.sum(axis=0))

    def split(self, rng: np.random.Generator) -> bool:
        """Split clusters in two where that lowers the loss."""
        totals = np.maximum(self.counts.sum(axis=1), 1)
        done = False
        for k in range(len(self.sizes)):
            if self.sizes[-1] > 0:
                break  # no room for one more
            members = np.flatnonzero(self.labels == k)
            # A component of a draw makes a good first half if it lies inside the cluster.
            inside = np.where(self.counts[:, k] < self.sizes[k], self.counts[:, k], 0)
            chances = (inside / totals) ** 2
            halves = self._best_halves(members, chances, rng)
            old = self.loss.clusters(self.counts[:, [k]], self.sizes[[k]])
            if halves is not None and halves.value() < old[0] - TOLERANCE:
                self.labels[members[halves.labels == 1]] = len(self.sizes) - 1
                self.counts[:, [k, -1]] = halves.counts
                self.sizes[[k, -1]] = halves.sizes
                self.widen()
                done = True
        return done

    def _best_halves(
        self,
        members: Int[np.ndarray, " m"],
        chances: Float[np.ndarray, " J"],
        rng: np.random.Generator,
    ) -> Tables | None:
        """The best of ``SPLITS`` components as one half, after up to ``PASSES`` improvements."""
        cells = self.blocks.cells[members]
        blocks = Blocks(cells, self.blocks.weights[members], self.blocks.components)
        cumulative = np.cumsum(chances)
        found = []
        for point in cumulative[-1] * rng.random(SPLITS if cumulative[-1] > 0 else 0):
            component = int(np.searchsorted(cumulative, point, side="right"))
            labels = np.any(cells == component, axis=1).astype(np.intp)
            for _ in range(PASSES):
                if labels.min() == labels.max():
                    break
                found.append(Tables(blocks, self.loss, 2, labels))
                labels = found[-1].changes().argmin(axis=1)
        return min(found, key=Tables.value, default=None)
