"""What a mixture compiles: few programs, and none for other numbers of events, draws or chains."""

from __future__ import annotations

import numpy as np
import pytest

import offcut
from compiling import compiled_programs
from offcut.mixtures import data as mixture_data
from offcut.regions import Box, ByGroup, Orthant

RUN = {"draws": 4, "warmup": 6, "chains": 1, "progress": False}
RNG = np.random.default_rng(0)
#: More than a chunk of events, so that there are rows behind their last chunk.
EVENTS = np.abs(RNG.normal(0.5, 1.0, (1200, 2)))
GROUPS = RNG.integers(0, 2, len(EVENTS))
WINDOWS = ByGroup([Orthant([1, 1]), Box([0, 0], [9, 9])])
MODELS = {
    "latent": lambda: offcut.TruncatedMixture(Orthant([1, 1]), 4),
    "window": lambda: offcut.TruncatedMixture(Orthant([1, 1]), 4, weights="window"),
    "groups": lambda: offcut.TruncatedMixture(WINDOWS, 4, hierarchical=True),
}
#: The window at the events, the start, the block of sweeps; and two that are not the mixture's:
#: a look whether XLA knows our options, once in a process, and the schedule of warm-up.
MOST = 5


def sampled(kind: str, n: int, **settings: object):
    covariates = GROUPS[:n] if kind == "groups" else None
    return offcut.sample(MODELS[kind](), EVENTS[:n], covariates=covariates, **{**RUN, **settings})


@pytest.mark.filterwarnings("ignore::offcut.errors.TrustWarning")
@pytest.mark.parametrize("kind", MODELS)
def test_a_first_run_compiles_few_programs_and_another_number_of_events_none(kind, monkeypatch):
    with compiled_programs() as programs:
        sampled(kind, 1100)
    assert 2 <= len(programs) <= MOST
    with compiled_programs() as programs:
        other = sampled(kind, 1043, draws=7, chains=2)  # groups of other sizes, too
    assert programs == []

    # More rows for the same events: other programs, the same draws.
    monkeypatch.setattr(mixture_data, "bucket", lambda count: 3 + count)
    with compiled_programs() as programs:
        padded = sampled(kind, 1043, draws=7, chains=2)
    assert len(programs) >= 2
    for name, values in other["posterior"].dataset.items():
        np.testing.assert_array_equal(values.values, padded["posterior"].dataset[name].values)


def test_the_next_bucket_is_compiled_anew():
    """Of compile counts: they can fail."""
    rows = [mixture_data.MixtureLayout.of(n, 2, 1, 4).rows for n in (1043, 1100, 2048, 2049)]
    assert rows == [2048, 2048, 2048, 3072]
    sampler = {n: sampler_of(n) for n in (1043, 1100, 2049)}
    assert sampler[1043] is sampler[1100]
    assert sampler[2049] is not sampler[1100]


def sampler_of(n: int) -> object:
    layout = mixture_data.MixtureLayout.of(n, 2, 1, 4)
    return MODELS["latent"]()._sampler(layout, False)
