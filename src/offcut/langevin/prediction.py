"""Posterior predictive frames."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut import keys
from offcut.errors import SettingsError
from offcut.langevin import draws
from offcut.langevin.directions import modal_frames
from offcut.precision import in_float64

#: Gibbs sweeps where rejection sampling is hopeless.
SWEEPS = 50


@in_float64
def predict(posterior: xr.DataTree, size: int, seed: int = 0) -> np.ndarray:
    """``size`` frames (size, d, p), each from a draw of the posterior chosen at random."""
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not whole or size < 1:
        raise SettingsError(f"size must be a whole number of at least 1, got {size!r}")
    group: Any = posterior["posterior"]
    kappa = group["kappa"].values
    kappa = kappa.reshape(-1, kappa.shape[-1])
    G = group["G"].values.reshape(len(kappa), *group["G"].shape[2:])
    F = G * kappa[:, None, :]
    if "H" in group:
        H = group["H"].values.reshape(len(kappa), *group["H"].shape[2:])
        F = F @ H.transpose(0, 2, 1)
    chosen = np.random.default_rng(seed).integers(len(F), size=size)
    start = modal_frames(posterior)[chosen]
    room = 1 << (int(size) - 1).bit_length()  # few different programs
    padded = np.resize(F[chosen], (room, *F.shape[1:]))
    start = np.resize(start, padded.shape)
    drawn = _draw(keys.from_seed(seed), jnp.asarray(padded), jnp.asarray(start))
    return np.asarray(drawn)[:size]


@jax.jit
def _draw(key: jax.Array, F: jax.Array, start: jax.Array) -> jax.Array:
    def one(at: tuple) -> jax.Array:
        index, F, frame = at
        own_key = jax.random.fold_in(key, index)
        if F.shape[1] <= draws.ALWAYS_FEASIBLE:
            return draws.update(own_key, F, frame)[0]
        step = partial(_again, own_key, F)
        return jax.lax.fori_loop(0, SWEEPS, step, frame)

    return jax.lax.map(one, (jnp.arange(F.shape[0]), F, start))


def _again(key: jax.Array, F: jax.Array, index: jax.Array, frame: jax.Array) -> jax.Array:
    return draws.update(jax.random.fold_in(key, index), F, frame)[0]
