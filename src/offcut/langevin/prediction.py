"""Posterior predictive frames."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut import keys
from offcut.errors import SettingsError
from offcut.langevin import draws
from offcut.langevin.directions import draws_of
from offcut.precision import in_float64


@in_float64
def predict(posterior: xr.DataTree, size: int, seed: int = 0) -> np.ndarray:
    """``size`` frames (size, d, p), each from a draw of the posterior chosen at random."""
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not whole or size < 1:
        raise SettingsError(f"size must be a whole number of at least 1, got {size!r}")
    dataset = posterior["posterior"].dataset
    kappa, G = draws_of(dataset, "kappa"), draws_of(dataset, "G")
    F = G * kappa[:, None, :]
    if "H" in dataset:
        F = F @ draws_of(dataset, "H").transpose(0, 2, 1)
    draws.is_hopeless(np.median(kappa, axis=0), G.shape[1], stacklevel=4)
    chosen = np.random.default_rng(seed).integers(len(F), size=size)
    padded = np.resize(F[chosen], (draws.room_for(int(size)), *F.shape[1:]))
    return np.asarray(_draw(keys.from_seed(seed), jnp.asarray(padded)))[:size]


@jax.jit
def _draw(key: jax.Array, F: jax.Array) -> jax.Array:
    """One frame for each F, each with a key of its own: what is behind the last changes none."""

    def one(at: tuple) -> jax.Array:
        index, F = at
        return draws.independent(jax.random.fold_in(key, index), F, 1)[0]

    return jax.lax.map(one, (jnp.arange(F.shape[0]), F))
