"""Posterior predictive frames."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut import keys
from offcut.errors import SettingsError, TrustWarning
from offcut.langevin import draws
from offcut.langevin.directions import modal_frames
from offcut.precision import in_float64

#: Gibbs sweeps for one frame where rejection sampling is hopeless.
SWEEPS = 200


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
    typical = float(draws.expected_acceptance(jnp.asarray(np.median(kappa, axis=0)), G.shape[1]))
    if kappa.shape[1] > draws.ALWAYS_FEASIBLE and typical < draws.HOPELESS:
        warnings.warn(
            f"exact draws would accept about {typical:.0e} of their proposals: predictive frames "
            f"are the ends of {SWEEPS} Gibbs sweeps from the mode instead, which is not exact",
            TrustWarning,
            stacklevel=4,
        )
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
        kappa = jnp.linalg.svd(F, compute_uv=False)
        return jax.lax.cond(
            draws.expected_acceptance(kappa, F.shape[0]) > draws.HOPELESS,
            lambda: draws.by_rejection(own_key, F, jnp.int32(1), 1)[0],
            lambda: draws.by_gibbs(own_key, F, 1, SWEEPS)[0],
        )

    return jax.lax.map(one, (jnp.arange(F.shape[0]), F, start))
