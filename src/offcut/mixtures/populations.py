r"""From draws to populations: one partition that stands for all draws, and what is in its parts.

New points can belong to those populations that a component of some draw stands for. With weights
w_k in the window and masses Z_k there, a draw s has t_sk(x) = log(w_k / Z_k) + log N_k(x), and the
probability of population p is the mean over draws of

    r_sp(x) = sum_{k matched to p} exp t_sk(x) / sum_k exp t_sk(x),

divided by its sum over populations: components without an event of their own belong to none.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int

from offcut.errors import SettingsError
from offcut.mixtures.allocation import choose
from offcut.mixtures.consensus import Consensus, consensus, match_components
from offcut.mixtures.evaluation import (
    Draws,
    Weighted,
    as_points,
    draws_of,
    in_each_draw,
    log_summands,
    log_terms,
    over_draws,
    weighted,
)
from offcut.mixtures.groups import listed, place_of_group
from offcut.numerics import keys
from offcut.numerics.types import KeyArray
from offcut.programs.precision import in_float64

#: A number for each group; one number where there is one group.
ByGroup = float | Float[np.ndarray, " G"]
#: Ends of the intervals.
INTERVAL = (0.05, 0.95)
#: Events are labelled in pieces with so many log densities.
ROOM = 2**22
#: Points further out count as this far out in the same direction: their squares would overflow.
FAR = 1e120


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

    labels: Int[np.ndarray, " n"]
    certainty: Float[np.ndarray, " n"]
    expected_loss: float
    matches: Int[np.ndarray, "S K"]
    consensus: Consensus
    draws: Draws
    group: Int[np.ndarray, " n"]

    @property
    def populations(self) -> int:
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
    proportion: ByGroup
    proportion_interval: tuple[ByGroup, ByGroup]
    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    lost: ByGroup
    lost_interval: tuple[ByGroup, ByGroup]
    certainty: float
    channels: tuple[str, ...] | None = None


@in_float64
def find_labels(
    posterior: xr.DataTree,
    x: Float[np.ndarray, "n d"],
    group: Int[np.ndarray, " n"],
    loss: str,
    most: int,
    seed: int,
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


def draw_labels(
    drawn: Draws, x: Float[np.ndarray, "n d"], group: Int[np.ndarray, " n"], seed: int
) -> Int[np.ndarray, "S n"]:
    """A label for each event in each draw: p(z = k) ∝ (w_k / Z_k) N_k(x)."""
    key = keys.from_seed(seed)
    parts, centre = weighted(log_terms(drawn), drawn.means, drawn.covariances)
    by_draw = (parts, jnp.arange(len(drawn.means)))
    found = []
    step = max(1, ROOM // drawn.means.shape[1])
    for number, start in enumerate(range(0, len(x), step)):
        part = slice(start, start + step)
        some = (key, jnp.int32(number), jnp.asarray((x[part] - centre).T), jnp.asarray(group[part]))
        found.append(np.asarray(in_each_draw(_labels, by_draw, *some)))
    return np.concatenate(found, axis=1)


def _labels(
    one: Weighted,
    draw: Int[Array, ""],
    key: KeyArray,
    chunk: Int[Array, ""],
    points: Float[Array, "d m"],
    group: Int[Array, " m"],
) -> Int[Array, " m"]:
    """Labels of a chunk of events in one draw."""
    key = jax.random.fold_in(jax.random.fold_in(key, draw), chunk)
    return choose(log_summands(one, points, group), jax.random.uniform(key, group.shape))


@in_float64
def probabilities(
    drawn: Draws, matches: Int[np.ndarray, "S K"], count: int, x: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m count"]:
    """Of each of ``count`` populations."""
    x = x * (FAR / np.abs(x).max(1, keepdims=True, initial=FAR))
    belongs = matches[:, None, :] == np.arange(count)[:, None]
    parts, centre = weighted(log_terms(drawn)[:, 0], drawn.means, drawn.covariances)
    by_draw = (parts, jnp.asarray(belongs))
    log_shares = over_draws(_log_shares, by_draw, x - centre, 4 * belongs.shape[2])
    shares = np.exp(log_shares - log_shares.max(0))
    return (shares / shares.sum(0)).T


def _log_shares(
    one: Weighted, belongs: Bool[Array, "count K"], points: Float[Array, "d m"]
) -> Float[Array, "count m"]:
    """log r_p at points in one draw."""
    terms = log_summands(one, points)
    own = jnp.where(jnp.any(belongs, axis=0)[:, None], terms, -jnp.inf)
    most = jnp.max(own, axis=0)
    inside = belongs.astype(float) @ jnp.exp(own - most[None, :])
    return most[None, :] + jnp.log(inside) - jax.nn.logsumexp(terms, axis=0)[None, :]


def shares(
    labels: Labels,
) -> tuple[Float[np.ndarray, "S G count"], Float[np.ndarray, "S G count"]]:
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
    within, lost = shares(labels)
    drawn = labels.draws
    rows = []
    for p in range(labels.populations):
        member = labels.labels == p
        weight = np.where(labels.matches == p, drawn.weights.mean(1), 0.0)
        present = weight.sum(1) > 0
        if not present.any():  # a few events on a border: all of this is NaN
            present[0] = True
        with np.errstate(invalid="ignore"):
            share = weight[present] / weight[present].sum(1, keepdims=True)
        mean = np.einsum("sk,ski->si", share, drawn.means[present])
        away = drawn.means[present] - mean[:, None]
        covariance = np.einsum("sk,skij->sij", share, drawn.covariances[present]) + np.einsum(
            "sk,ski,skj->sij", share, away, away
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no number
            lost_mean = np.nanmean(lost[present][:, :, p], axis=0)
            lost_ends = np.nanquantile(lost[present][:, :, p], INTERVAL, axis=0)
        low, high = np.quantile(within[:, :, p], INTERVAL, axis=0)
        rows.append(
            Population(
                f"population {p + 1}",
                int(member.sum()),
                _alone(within[:, :, p].mean(0)),
                (_alone(low), _alone(high)),
                mean.mean(0),
                covariance.mean(0),
                _alone(lost_mean),
                (_alone(lost_ends[0]), _alone(lost_ends[1])),
                float(labels.certainty[member].mean()),
                None if channels is None else tuple(map(str, channels)),
            )
        )
    return rows


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


def compare(labels: Labels, first: object = None, second: object = None) -> list[Difference]:
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


def _alone(values: Float[np.ndarray, " G"]) -> ByGroup:
    """A number where there is one group."""
    return float(values[0]) if values.size == 1 else values


def only_matched(found: Labels, x: Float[np.ndarray, "n d"]) -> Labels:
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


def _renamed(
    numbers: Int[np.ndarray, " ..."], order: Int[np.ndarray, " kept"], count: int
) -> Int[np.ndarray, " ..."]:
    """order[i] becomes i; -1, and of ``count`` numbers those that are not in ``order``, -1."""
    new = np.full(count + 1, -1)  # the last is that of -1
    new[order] = np.arange(len(order))
    return new[numbers]
