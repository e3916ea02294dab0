"""From draws to populations: one partition that stands for all draws, and what is in its parts.

New points can belong to those populations that a component of some draw stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut.errors import SettingsError
from offcut.mixtures.allocation import choose
from offcut.mixtures.consensus import Consensus, consensus, match_components
from offcut.mixtures.evaluation import Draws, as_points, chunks, components_of, draws_of, log_terms
from offcut.mixtures.groups import listed, place_of_group
from offcut.mixtures.membership import probabilities
from offcut.numerics import keys
from offcut.numerics.normal import log_normals
from offcut.programs.precision import in_float64

#: Ends of the intervals.
INTERVAL = (0.05, 0.95)


@dataclass(frozen=True, eq=False)
class Labels:
    """What ``model.labels`` returns.

    Attributes
    ----------
    labels : array (event,)
        Population of each event, 0 being the largest.
    certainty : array (event,)
        Posterior probability that the event belongs there.
    expected_loss : float
        Of this partition; ``consensus`` has more.
    matches : array (draw, component)
        Population that each component of each used draw belongs to, -1 for none.
    """

    labels: np.ndarray
    certainty: np.ndarray
    expected_loss: float
    matches: np.ndarray
    consensus: Consensus
    draws: Draws
    group: np.ndarray

    @property
    def populations(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1

    @property
    def group_names(self) -> tuple[str, ...]:
        """Of the groups that the model was fitted to, in the order of all arrays by group."""
        return self.draws.names

    def __repr__(self) -> str:
        sizes = np.bincount(self.labels)
        shown = ", ".join(f"{size:,}" for size in sizes[:8]) + (", ..." if len(sizes) > 8 else "")
        return (
            f"Labels({self.populations} populations of {shown} events; mean certainty "
            f"{self.certainty.mean():.2f})"
        )


@dataclass(frozen=True, eq=False)
class Population:
    """A row of ``model.populations``; arrays by group, in the order of ``labels.group_names``.

    ``proportion`` is the share among what passes, ``lost`` the share of the population that the
    filter takes away; intervals are central 90%. ``channels`` are the names of the mean's
    coordinates, where they were given.
    """

    name: str
    events: int
    proportion: Any
    proportion_interval: Any
    mean: np.ndarray
    covariance: np.ndarray
    lost: Any
    lost_interval: Any
    certainty: float
    channels: tuple[str, ...] | None = None


@in_float64
def find_labels(
    posterior: xr.DataTree, x: Any, group: np.ndarray, loss: str, most: int, seed: int
) -> Labels:
    """Consensus over labels drawn for every event in at most ``most`` draws."""
    drawn = draws_of(posterior, most)
    points = as_points(x, drawn.means.shape[-1])
    partitions = draw_labels(drawn, points, group, seed)
    found = consensus(partitions, loss=loss, seed=seed)
    components = drawn.means.shape[1]
    matches = match_components(partitions, found.labels, components)
    return Labels(
        found.labels, found.certainty, float(found.expected_loss), matches, found, drawn, group
    )


def draw_labels(drawn: Draws, x: np.ndarray, group: np.ndarray, seed: int) -> np.ndarray:
    """A label for each event in each draw, (draw, event): p(z = k) ∝ (w_k / Z_k) N_k(x)."""
    key = keys.from_seed(seed)
    terms = log_terms(drawn)
    partitions = np.empty((len(terms), len(x)), np.int32)
    for number, part in enumerate(chunks(len(x), drawn.means.shape[1])):
        points, own = jnp.asarray(x[part].T), jnp.asarray(group[part])
        for s in range(len(terms)):
            own_key = jax.random.fold_in(jax.random.fold_in(key, s), number)
            partitions[s, part] = _labels_in_one_draw(
                own_key, terms[s], drawn.means[s], drawn.covariances[s], points, own
            )
    return partitions


@jax.jit
def _labels_in_one_draw(
    key: jax.Array,
    log_c: jax.Array,
    means: jax.Array,
    covariances: jax.Array,
    points: jax.Array,
    group: jax.Array,
) -> jax.Array:
    """Labels of events (d, m); ``log_c`` is (group, component)."""
    terms = log_normals(points, *components_of(means, covariances)) + log_c[group].T
    return choose(terms, jax.random.uniform(key, group.shape))


def shares(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """By draw, group and population: share in the window, and share lost."""
    drawn, count = labels.draws, labels.populations
    belongs = labels.matches[:, None, :] == np.arange(count)[None, :, None]  # draw, pop, comp
    within = np.einsum("sgk,spk->sgp", drawn.window_weights, belongs)
    latent = np.einsum("sgk,spk->sgp", drawn.weights, belongs)
    passing = np.einsum("sgk,spk->sgp", drawn.weights * drawn.window_mass, belongs)
    with np.errstate(invalid="ignore"):
        lost = 1.0 - passing / latent
    return within, lost


def tabulate(labels: Labels, channels: Sequence[str] | None = None) -> list[Population]:
    """A row for each population, the largest first."""
    d = labels.draws.means.shape[-1]
    if channels is not None and len(channels) != d:
        raise SettingsError(f"channels must name {d} coordinates, got {list(channels)}")
    rows = _tabulated(labels)
    if channels is None:
        return rows
    return [replace(row, channels=tuple(map(str, channels))) for row in rows]


def _tabulated(labels: Labels) -> list[Population]:
    within, lost = shares(labels)
    drawn = labels.draws
    rows = []
    for p in range(labels.populations):
        member = labels.labels == p
        weight = np.where(labels.matches == p, drawn.weights.mean(1), 0.0)
        present = weight.sum(1) > 0
        if not present.any():  # in no draw does a component stand for it
            rows.append(_unsupported(p, member, labels))
            continue
        share = weight[present] / weight[present].sum(1, keepdims=True)
        mean = np.einsum("sk,ski->si", share, drawn.means[present])
        away = drawn.means[present] - mean[:, None]
        covariance = np.einsum("sk,skij->sij", share, drawn.covariances[present]) + np.einsum(
            "sk,ski,skj->sij", share, away, away
        )
        low, high = np.quantile(within[:, :, p], INTERVAL, axis=0)
        lost_low, lost_high = np.nanquantile(lost[present][:, :, p], INTERVAL, axis=0)
        rows.append(
            Population(
                f"population {p + 1}",
                int(member.sum()),
                _alone(within[:, :, p].mean(0)),
                (_alone(low), _alone(high)),
                mean.mean(0),
                covariance.mean(0),
                _alone(np.nanmean(lost[present][:, :, p], axis=0)),
                (_alone(lost_low), _alone(lost_high)),
                float(labels.certainty[member].mean()),
            )
        )
    return rows


def _unsupported(p: int, member: np.ndarray, labels: Labels) -> Population:
    """A population that no component of any draw stands for: a few events on a border."""
    d = labels.draws.means.shape[-1]
    unknown = _alone(np.full(labels.draws.groups, np.nan))
    none = _alone(np.zeros(labels.draws.groups))
    return Population(
        f"population {p + 1}",
        int(member.sum()),
        none,
        (none, none),
        np.full(d, np.nan),
        np.full((d, d), np.nan),
        unknown,
        (unknown, unknown),
        float(labels.certainty[member].mean()),
    )


@dataclass(frozen=True, eq=False)
class Difference:
    """How a population differs between two groups.

    ``ratio`` is the posterior median of the second group's share in the window over the first's,
    with a central 90% interval; ``probability`` that it is larger in the second. ``groups`` has
    the names of the two.
    """

    number: int  # of the population, from 1
    first: float
    second: float
    ratio: float
    ratio_interval: tuple[float, float]
    probability: float
    groups: tuple[str, str]

    @property
    def name(self) -> str:
        """As in the table of populations."""
        return f"population {self.number}"

    def __repr__(self) -> str:
        low, high = self.ratio_interval
        one, other = self.groups
        return (
            f"{self.name}: {self.first:.1%} in {one} against {self.second:.1%} in {other}, ratio "
            f"{self.ratio:.2f} ({low:.2f} to {high:.2f}), larger in {other} with probability "
            f"{self.probability:.3f}"
        )


def compare(labels: Labels, first: Any = None, second: Any = None) -> list[Difference]:
    """Which populations differ between two groups, most certain first."""
    within, _ = shares(labels)
    names = labels.draws.names
    if first is None and second is None and len(names) == 2:
        first, second = names
    if first is None or second is None or str(first) == str(second):
        raise SettingsError(
            f"compare needs two different groups of {listed(names)}, got {first!r} and {second!r}"
        )
    one, other = (place_of_group(name, names) for name in (first, second))
    rows = []
    for p in range(labels.populations):
        a, b = within[:, one, p], within[:, other, p]
        ratio = np.maximum(b, 1e-12) / np.maximum(a, 1e-12)
        low, high = np.quantile(ratio, INTERVAL)
        larger = float(np.mean(b > a) + 0.5 * np.mean(b == a))
        rows.append(
            Difference(
                p + 1,
                float(a.mean()),
                float(b.mean()),
                float(np.median(ratio)),
                (float(low), float(high)),
                larger,
                (names[one], names[other]),
            )
        )
    return sorted(rows, key=lambda row: -abs(row.probability - 0.5))


def _alone(values: np.ndarray) -> Any:
    """A number where there is one group."""
    return float(values[0]) if values.size == 1 else values


def only_matched(found: Labels, x: np.ndarray) -> Labels:
    """Give events of other populations to the most probable one; ``x`` are the events.

    The consensus may set events on a border apart although no component is mostly theirs, Binder's
    loss in particular. Such a population has no mean, and ``predict`` could never name it.
    """
    kept = np.unique(found.matches[found.matches >= 0])
    if len(kept) == found.populations:
        return found
    labels = _renamed(found.labels, kept, found.populations)
    matches = _renamed(found.matches, kept, found.populations)
    certainty = found.certainty.copy()
    unmatched = labels < 0
    shares = probabilities(found.draws, matches, len(kept), x[unmatched])
    labels[unmatched], certainty[unmatched] = shares.argmax(1), shares.max(1)
    by_size = np.argsort(-np.bincount(labels), kind="stable")
    return replace(
        found,
        labels=_renamed(labels, by_size, len(kept)),
        certainty=certainty,
        matches=_renamed(matches, by_size, len(kept)),
    )


def _renamed(numbers: np.ndarray, order: np.ndarray, count: int) -> np.ndarray:
    """order[i] becomes i; -1, and of ``count`` numbers those that are not in ``order``, -1."""
    new = np.full(count + 1, -1)  # the last is that of -1
    new[order] = np.arange(len(order))
    return new[numbers]
