"""How much is compiled for frames: little at first, and nothing for another number of them."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pytest

import offcut
from compiling import compiled_programs
from conftest import assert_same_draws
from offcut.langevin.rejections import Layout
from offcut.programs.cache import CACHE

SHORT = {"draws": 20, "warmup": 20, "chains": 2, "progress": False}
LONGER = {"draws": 30, "warmup": 25, "chains": 3, "progress": False}
#: The start and the sweeps; and once in a process, a look at which options the compiler knows.
PROGRAMS = {"augment": 3, "collapsed": 3, "asymptotic": 3, "exchange": 3, "pseudo_marginal": 4}


def frames(n, d=3, p=2):
    noise = np.random.default_rng(n).normal(size=(n, d, p))
    U, _, Vt = np.linalg.svd(noise + 2.5 * np.eye(d, p), full_matrices=False)
    return U @ Vt


def model():
    return offcut.MatrixLangevinModel(dist.Gamma(2.0, 0.2))


@pytest.mark.parametrize("method", PROGRAMS)
def test_few_programs_and_none_for_another_n(method):
    CACHE.clear()
    with compiled_programs() as first:
        offcut.sample(model(), frames(30), method=method, **SHORT)
    assert 2 <= len(first) <= PROGRAMS[method], first
    with compiled_programs() as again:
        offcut.sample(model(), frames(41), method=method, **LONGER)
    assert again == []


def test_the_program_of_another_n_gives_the_same_draws():
    CACHE.clear()
    alone = offcut.sample(model(), frames(41), **SHORT)
    CACHE.clear()
    offcut.sample(model(), frames(30), **SHORT)
    assert_same_draws(offcut.sample(model(), frames(41), **SHORT), alone)


def test_the_exact_normaliser_needs_one_program_for_every_n():
    assert Layout.of(0, 3, 2) == Layout.of(1, 3, 2)
    CACHE.clear()
    offcut.sample(model(), frames(2, 4, 1), method="collapsed", **SHORT)
    with compiled_programs() as again:
        offcut.sample(model(), frames(3000, 4, 1), method="collapsed", **SHORT)
    assert again == []


def test_sizes_are_few_and_at_most_a_quarter_larger_than_they_need_be():
    layouts = [Layout.of(n, 3, 2) for n in range(1, 3001)]
    assert len(set(layouts)) < 35
    for n, layout in enumerate(layouts, start=1):
        assert 1.3 * n <= layout.rows.block <= 1.25 * max(1.3 * n + 32, 32)
