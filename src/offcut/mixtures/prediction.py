"""Posterior predictive events: draws of draws, by rejection where the filter applies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut import keys
from offcut.errors import SettingsError
from offcut.mixtures.draws import draws_of
from offcut.mixtures.groups import place_of_group
from offcut.mixtures.window import Window
from offcut.precision import in_float64

#: Rounds of proposals before an event is given up, and the least number of proposals in each.
MOST_ROUNDS = 1000
PROPOSALS = 4096


@in_float64
def predict(
    posterior: xr.DataTree,
    window: Window,
    size: int,
    *,
    truncated: bool,
    group: Any,
    seed: int,
) -> np.ndarray:
    """(size, d): components by their weights (before the filter or in the window), then points.

    Within the window a component is drawn by its weight there, and then a point from it until one
    passes.
    """
    drawn = draws_of(posterior, None)
    number = place_of_group(group, drawn.names)
    window = window.for_groups(drawn.names)
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(drawn.means), size=size)
    weights = (drawn.window_weights if truncated else drawn.weights)[rows, number]
    cumulative = np.cumsum(weights, axis=1)
    uniform = rng.random((size, 1)) * cumulative[:, -1:]
    label = np.minimum((cumulative <= uniform).sum(1), weights.shape[1] - 1)
    means = drawn.means[rows, label]
    roots = np.linalg.cholesky(drawn.covariances[rows, label])
    scalar = posterior["observed_data"].dataset["x"].ndim == 1

    key = keys.from_seed(seed)
    result = np.empty_like(means)
    pending = np.arange(size)
    for turn in range(MOST_ROUNDS):
        # Always as many, for JAX compiles for each number; the fewer events, the more for each.
        own = np.resize(pending, max(size, PROPOSALS))
        y = means[own] + np.einsum("nij,nj->ni", roots[own], rng.standard_normal(means[own].shape))
        passed = np.ones(len(own), bool)
        if truncated:
            points = jnp.asarray(y[:, 0] if scalar else y)
            group_of = jnp.full(len(own), number)
            passed = np.asarray(window.passes(jax.random.fold_in(key, turn), points, group_of))
        found, first = np.unique(own[passed], return_index=True)
        result[found] = y[passed][first]
        pending = np.setdiff1d(pending, found)
        if not len(pending):
            return result[:, 0] if scalar else result
    raise SettingsError(
        f"{len(pending)} of {size} events did not pass the filter in {MOST_ROUNDS} rounds of "
        "proposals: some draws have components with next to no mass in the window. Use "
        "truncated=False, or a tighter base"
    )
