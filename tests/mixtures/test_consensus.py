"""One partition for many draws: against all partitions, by definition, and where it must fail."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from offcut.errors import DataError, SettingsError
from offcut.mixtures.consensus import consensus, match_components
from offcut.mixtures.contingency import Tables, blocks_of, make_loss

module = importlib.import_module("offcut.mixtures.consensus")  # by name: it holds a namesake
LOSSES = ("vi", "binder")


def entropy(probabilities: np.ndarray) -> float:
    positive = probabilities[probabilities > 0]
    return -float(np.sum(positive * np.log2(positive)))


def distance(loss: str, labels: np.ndarray, draw: np.ndarray, split_cost: float) -> float:
    """By definition: conditional entropies, or pairs of events."""
    if loss == "vi":
        joint = np.zeros((labels.max() + 1, draw.max() + 1))
        np.add.at(joint, (labels, draw), 1 / len(labels))
        splits = entropy(joint) - entropy(joint.sum(axis=0))
        merges = entropy(joint) - entropy(joint.sum(axis=1))
    else:
        pairs = np.triu_indices(len(labels), 1)
        here = (labels[:, None] == labels)[pairs]
        there = (draw[:, None] == draw)[pairs]
        splits, merges = float(np.mean(~here & there)), float(np.mean(here & ~there))
    return split_cost * splits + (2 - split_cost) * merges


def by_definition(loss: str, labels: np.ndarray, draws: np.ndarray, split_cost: float = 1) -> float:
    return float(np.mean([distance(loss, labels, draw, split_cost) for draw in draws]))


def all_partitions(n: int) -> np.ndarray:
    found = [[0]]
    for _ in range(n - 1):
        found = [[*labels, k] for labels in found for k in range(max(labels) + 2)]
    return np.array(found)


def noisy_draws(
    rng: np.random.Generator, truth: np.ndarray, draws: int, share: float
) -> np.ndarray:
    """Events leave their clusters, on average in this share of the draws; names are shuffled.

    Some do so often and most hardly ever: where all are as noisy, the best partition by variation
    of information soon is a single cluster.
    """
    K, n = truth.max() + 1, len(truth)
    away = rng.random((draws, n)) < rng.beta(0.2, 0.2 * (1 - share) / share, n)
    drawn = np.where(away, rng.integers(K, size=(draws, n)), truth)
    return np.array([rng.permutation(K)[row] for row in drawn])


def leaves(rng: np.random.Generator, draws: int, events: int, chance: float) -> np.ndarray:
    """(draw, event): every tenth event is elsewhere with this chance."""
    return (np.arange(events) % 10 == 0) & (rng.random((draws, events)) < chance)


def renamed(rng: np.random.Generator, draws: np.ndarray) -> np.ndarray:
    names = [rng.permutation(7 * (draws.max() + 1))[row] for row in draws]
    return np.array(names).astype(np.uint16)


def largest_gain(loss: str, labels: np.ndarray, draws: np.ndarray) -> float:
    """How much the best move of one event, or its own cluster, lowers the loss by definition."""
    now = by_definition(loss, labels, draws)
    best = np.inf
    for event in range(len(labels)):
        for k in range(labels.max() + 2):
            moved = labels.copy()
            moved[event] = k
            best = min(best, by_definition(loss, moved, draws))
    return now - best


@pytest.mark.parametrize("split_cost", [1.0, 0.6, 1.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_the_best_of_all_partitions(loss, split_cost):
    """None of 840 such problems was missed when this was written; here are 15 for each case."""
    rng = np.random.default_rng(int(10 * split_cost))
    for _ in range(15):
        n, S = rng.integers(2, 8), rng.integers(1, 8)
        draws = rng.integers(0, rng.integers(1, n + 1), (S, n))
        losses = [by_definition(loss, labels, draws, split_cost) for labels in all_partitions(n)]
        found = consensus(draws, loss, split_cost=split_cost)
        assert found.expected_loss == pytest.approx(min(losses), abs=1e-12)
        value = by_definition(loss, found.labels, draws, split_cost)
        assert found.expected_loss == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_are_those_of_the_definition(loss):
    rng = np.random.default_rng(1)
    draws = noisy_draws(rng, rng.integers(0, 5, 80), 12, 0.4)
    found = consensus(draws, loss)
    of_draws = [by_definition(loss, draw, draws) for draw in draws]
    assert found.expected_loss == pytest.approx(by_definition(loss, found.labels, draws))
    assert found.draw_loss == pytest.approx(min(of_draws))
    assert found.expected_loss < min(of_draws)


@pytest.mark.parametrize("loss", LOSSES)
def test_changes_are_differences_of_the_loss(loss):
    """For blocks of one and of many events, into every cluster and into a new one."""
    rng = np.random.default_rng(2)
    draws = np.repeat(rng.integers(0, 3, (6, 12)), rng.integers(1, 4, 12), axis=1)
    cells = (draws + 3 * np.arange(6)[:, None]).T.astype(np.int32)
    blocks, block = blocks_of(cells, 18)
    assert len(blocks.weights) <= 12 < len(block)
    objective = make_loss(loss, 0.7, len(block), 6)
    tables = Tables(blocks, objective, 10, rng.integers(0, 3, len(blocks.weights)))
    changes = tables.changes() / objective.scale
    now = by_definition(loss, tables.labels[block], draws, 0.7)
    assert changes.shape[1] == 4
    for one in range(len(blocks.weights)):
        for k in range(4):
            moved = tables.labels.copy()
            moved[one] = k
            difference = by_definition(loss, moved[block], draws, 0.7) - now
            assert changes[one, k] == pytest.approx(difference, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_move_of_one_event_improves_it(loss):
    """And the check can fail: the same look at a draw, or at one event moved, finds a gain."""
    rng = np.random.default_rng(3)
    draws = noisy_draws(rng, rng.integers(0, 3, 40), 8, 0.3)
    draws[:, 30:] = draws[:, rng.integers(0, 30, 10)]  # some share their labels in all draws
    labels = consensus(draws, loss).labels
    assert labels.max() >= 2
    assert largest_gain(loss, labels, draws) < 1e-10
    assert largest_gain(loss, draws[0], draws) > 1e-3
    labels[0] = (labels[0] + 1) % 3
    assert largest_gain(loss, labels, draws) > 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_no_move_improves_large_ones(loss, monkeypatch):
    """As above by the tables' own changes, after a search in two stages."""
    monkeypatch.setattr(module, "FIRST_EVENTS", 200)
    rng = np.random.default_rng(10)
    partitions = noisy_draws(rng, rng.integers(0, 10, 2500), 40, 0.3)
    labels = consensus(partitions, loss, most=20).labels
    assert labels.max() >= 9
    draws = module.read(partitions)
    blocks, block = blocks_of(draws.cells(np.arange(2500)), draws.components)
    assert len(blocks.weights) > 1000
    for_blocks = labels[np.unique(block, return_index=True)[1]]
    assert np.array_equal(for_blocks[block], labels)
    tables = Tables(blocks, make_loss(loss, 1.0, 2500, 40), 20, for_blocks)
    assert tables.changes().min() >= -1e-8
    for_blocks[7] = (for_blocks[7] + 1) % 10
    tables = Tables(blocks, make_loss(loss, 1.0, 2500, 40), 20, for_blocks)
    assert tables.changes().min() < -0.01


@pytest.mark.parametrize("loss", LOSSES)
def test_bad_starts_end_where_good_ones_do(loss):
    """One cluster, and a cluster for each block: splits and merges are needed."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 4, 400)
    draws = module.read(np.where(leaves(rng, 20, 400, 0.3), (truth + 1) % 4, truth))
    blocks, block = blocks_of(draws.cells(np.arange(400)), draws.components)
    number = len(blocks.weights)
    assert number > 20
    for labels in (np.zeros(number, int), np.arange(number)):
        tables = Tables(blocks, make_loss(loss, 1.0, 400, 20), number, labels)
        module.improve(tables, rng)
        end = tables.labels[block]
        assert np.mean(match_components(truth[None], end)[0][truth] == end) > 0.98
        assert tables.sizes[tables.sizes > 0].max() < 150


@pytest.mark.parametrize("loss", LOSSES)
def test_identical_draws_come_back(loss):
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 6, 300)
    found = consensus(renamed(rng, np.tile(truth, (9, 1))), loss)
    assert np.array_equal(found.labels, module.by_size(truth))
    assert np.array_equal(found.certainty, np.ones(300))
    assert found.expected_loss == pytest.approx(0, abs=1e-12)
    assert np.array_equal(found.clusters_in_draws, [6, 6, 6])


def test_a_planted_partition_is_found():
    """Every tenth event wavers between its cluster and the next one, at 60 to 40."""
    rng = np.random.default_rng(6)
    truth = rng.choice(8, 5000, p=np.arange(1, 9) / 36)
    wavers = np.arange(5000) % 10 == 0
    away = leaves(rng, 100, 5000, 0.4)
    draws = np.where(away, (truth + 1) % 8, truth)
    found = consensus(draws)
    matched = match_components(truth[None], found.labels)[0]
    assert np.mean(matched[truth] == found.labels) > 0.99
    assert found.expected_loss < found.draw_loss
    assert found.certainty[~wavers].min() == 1
    right = wavers & (matched[truth] == found.labels)
    np.testing.assert_allclose(found.certainty[right], 1 - away.mean(axis=0)[right], atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_names_of_labels_do_not_matter(loss):
    rng = np.random.default_rng(7)
    draws = noisy_draws(rng, rng.integers(0, 5, 200), 15, 0.3)
    first, second = consensus(draws, loss), consensus(renamed(rng, draws), loss)
    far = consensus(draws.astype(np.int64) + 2**40, loss)
    for other in (second, far):
        assert np.array_equal(first.labels, other.labels)
        assert np.array_equal(first.certainty, other.certainty)
        assert first.expected_loss == other.expected_loss


def test_clusters_are_numbered_by_size():
    found = consensus(np.array([[5, 1, 1, 9, 9, 9]] * 3))
    assert found.labels.tolist() == [2, 1, 1, 0, 0, 0]


def test_many_events_are_searched_in_part(monkeypatch):
    rng = np.random.default_rng(8)
    truth = rng.integers(0, 6, 3000)
    draws = noisy_draws(rng, truth, 30, 0.3)
    whole = consensus(draws)
    assert whole.searched == 3000
    monkeypatch.setattr(module, "FIRST_EVENTS", 200)
    monkeypatch.setattr(module, "MOST_EVENTS", 500)
    monkeypatch.setattr(module, "CHUNK", 10_000)
    part = consensus(draws)
    assert part.searched == 500
    assert whole.labels.max() == part.labels.max() == 5
    assert np.mean(part.labels == whole.labels) > 0.97
    assert part.expected_loss == pytest.approx(by_definition("vi", part.labels, draws))
    assert whole.expected_loss <= part.expected_loss < 1.02 * whole.expected_loss


def test_certainty_of_splits_merges_and_borders():
    agreeing = np.repeat([0, 1], [6, 4])
    splitting = np.array([0, 0, 0, 2, 2, 2, 1, 1, 1, 1])
    merging = np.zeros(10, int)
    on_the_border = np.repeat([0, 1], [5, 5])  # event 5 is with the second cluster
    draws = np.array([agreeing] * 5 + [splitting, merging, on_the_border])
    found = consensus(draws)
    assert np.array_equal(found.labels, agreeing)
    expected = np.array([7.6] * 5 + [6.6] + [7.4] * 4) / 8
    np.testing.assert_allclose(found.certainty, expected, atol=1e-12)


def test_most_bounds_the_number_of_clusters():
    rng = np.random.default_rng(9)
    draws = noisy_draws(rng, np.repeat(np.arange(6), 50), 10, 0.1)
    losses = []
    for most in (1, 3, 6):
        found = consensus(draws, most=most)
        assert len(np.unique(found.labels)) == most
        losses.append(found.expected_loss)
    assert losses[0] > losses[1] > losses[2]


def test_match_components():
    draws = [[0, 0, 0, 1, 1], [3, 3, 2, 0, 0], [4, 4, 4, 4, 4], [0, 1, 1, 1, 0]]
    matched = match_components(draws, [0, 0, 0, 1, 1], components=6)
    expected = [
        [0, 1, -1, -1, -1, -1],
        [1, -1, 0, 0, -1, -1],
        [-1, -1, -1, -1, 0, -1],
        [0, 0, -1, -1, -1, -1],  # its first component is a tie
    ]
    assert np.array_equal(matched, expected)
    assert match_components(np.array(draws, np.uint8), [0, 0, 0, 1, 1]).shape == (4, 5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "draws",
    [
        np.array([[3]]),
        np.zeros((5, 1), np.int8),
        np.full((4, 6), 2**63, np.uint64),
        np.array([[0, 1, 1, 4, 0]]),
        np.array([np.roll(np.arange(12), s) for s in range(5)]),
    ],
    ids=["one event", "one event often", "one cluster", "one draw", "all alone"],
)
def test_small_and_odd_input(draws, loss):
    found = consensus(draws, loss)
    _, first = np.unique(draws[0], return_inverse=True)
    assert np.array_equal(found.labels, module.by_size(first))
    assert np.array_equal(found.certainty, np.ones(draws.shape[1]))
    assert found.expected_loss == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        ([[0.0, 1.0]], "must be integers.*float64"),
        ([["a", "b"]], "must be integers"),
        ([0, 1, 1], r"row for each draw.*shape \(3,\)"),
        (np.zeros((2, 3, 4), int), r"shape \(2, 3, 4\).*reshape"),
        (np.zeros((0, 4), int), r"shape \(0, 4\)"),
        ([[0, -1]], "from 0 on, got -1"),
        (np.arange(100_000).reshape(1, -1), "too large for memory; give fewer draws"),
    ],
)
def test_bad_draws(draws, message):
    with pytest.raises(DataError, match=message):
        consensus(draws)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "rand"}, "'vi', 'binder'.*got 'rand'"),
        ({"most": 0}, "at least 1, got 0"),
        ({"starts": -1}, "at least 0, got -1"),
        ({"split_cost": 2.0}, "between 0 and 2, got 2.0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(SettingsError, match=message):
        consensus([[0, 1]], **settings)


@pytest.mark.parametrize(
    ("labels", "components", "message"),
    [
        ([0], None, r"shape \(1,\); expected one label for each of the 2 events"),
        ([0, -1], None, "labels must be labels from 0 on, got -1"),
        ([0.0, 1.0], None, "labels must be integers"),
        ([0, 10**6], None, "up to 1000000"),
        ([0, 1], 2, "components is 2, but partitions has a label 3; expected at least 4"),
    ],
)
def test_bad_matches(labels, components, message):
    with pytest.raises(DataError, match=message):
        match_components([[0, 3]], labels, components)
