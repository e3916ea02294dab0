r"""Maximum-likelihood estimates of the matrix Langevin distribution.

With n frames of mean X̄ = U diag(tau) Vᵀ the log-likelihood per frame, tr(Fᵀ X̄) - log Z(kappa), is
largest at G = U, H = V and the kappa with d log Z / d kappa_r = tau_r (Khatri & Mardia 1977): a
strictly convex problem in p dimensions, solved by Newton's method in log kappa.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.errors import DataError, TrustWarning
from offcut.langevin.asymptotics import approximate_log_normaliser
from offcut.langevin.frames import as_frames
from offcut.langevin.normaliser import is_exact, log_normaliser
from offcut.precision import in_float64

NEWTON_STEPS = 200
#: Below this concentration the asymptotics are worthless.
SMALL = 2.0
#: Singular values of the mean frame above 1 minus this leave no room for a finite kappa.
SPREAD = 1e-12
#: Below this a singular value of the mean frame is zero up to rounding, and so is kappa.
NOTHING = 1e-14


@dataclass(frozen=True, eq=False)
class MaximumLikelihood:
    """An estimate F = G diag(kappa) Hᵀ, kappa falling.

    Attributes
    ----------
    G, kappa, H : arrays (d, p), (p,), (p, p)
    method : "exact" or "asymptotic"
        Which normalising constant was used.
    """

    G: np.ndarray
    kappa: np.ndarray
    H: np.ndarray
    method: str

    @property
    def F(self) -> np.ndarray:  # noqa: N802 (the paper's letter)
        """The parameter (d, p)."""
        return self.G * self.kappa @ self.H.T

    def __repr__(self) -> str:
        shown = ", ".join(f"{k:.4g}" for k in self.kappa)
        d, p = self.G.shape
        return f"MaximumLikelihood(kappa=({shown}), {d} by {p}, method={self.method!r})"


@in_float64
def maximum_likelihood(X: Any) -> MaximumLikelihood:
    """See ``MatrixLangevin.mle``."""
    frames = as_frames(X)
    n, d, p = frames.shape
    U, tau, Vt = np.linalg.svd(frames.mean(0), full_matrices=False)
    if tau[-1] > 1 - SPREAD or (tau[0] > 1 - SPREAD and n == 1):
        raise DataError(
            f"the {n} frames do not differ up to rounding, so the likelihood grows without bound "
            "with kappa: a maximum-likelihood estimate needs at least two different frames"
        )
    if tau[0] > 1 - SPREAD:
        raise DataError(
            "the frames agree in at least one direction up to rounding, so the likelihood grows "
            "without bound with its concentration: there is no maximum-likelihood estimate"
        )
    exact = is_exact(d, p)
    kappa = _solve(tau, d, exact)
    if not exact and kappa.min() < SMALL:
        warnings.warn(
            f"kappa = {np.round(kappa, 3).tolist()} comes from asymptotics for large kappa, which "
            f"say nothing about values below {SMALL:g} or so: MatrixLangevinModel infers them",
            TrustWarning,
            stacklevel=4,
        )
    return MaximumLikelihood(U, kappa, Vt.T, "exact" if exact else "asymptotic")


def _solve(tau: np.ndarray, d: int, exact: bool) -> np.ndarray:
    """kappa with d log Z / d kappa = tau, by damped Newton steps in log kappa."""
    program = _program(d, len(tau), exact)
    tau = np.maximum(tau, NOTHING)
    # Exact at both ends for p = 1: kappa = d tau for small ones, (d-1)/2 / (1 - tau) for large.
    u = np.log(tau * (d - tau**2) / (1 - tau**2))
    value, slope, curve = program(u, tau)
    for _ in range(NEWTON_STEPS):
        w, V = np.linalg.eigh(np.asarray(curve))
        step = -V @ ((V.T @ np.asarray(slope)) / np.maximum(np.abs(w), 1e-12 * np.abs(w).max()))
        step *= min(1.0, 2.0 / np.abs(step).max()) if np.abs(step).max() > 0 else 1.0
        while True:
            new = program(u + step, tau)
            if np.isfinite(new[0]) and new[0] <= value + 1e-13 * abs(value):
                break
            step = 0.5 * step
            if np.abs(step).max() < 1e-14:
                return np.exp(u)
        u = u + step
        value, slope, curve = new
        if np.abs(step).max() < 1e-12:
            break
    return np.exp(u)


@cache
def _program(d: int, p: int, exact: bool) -> Any:
    """log Z(e^u) - tau e^u with gradient and Hessian in u, compiled."""
    log_z = log_normaliser if exact else approximate_log_normaliser

    def objective(u: jax.Array, tau: jax.Array) -> jax.Array:
        kappa = jnp.exp(u)
        return log_z(kappa, d) - jnp.sum(tau * kappa)

    def everything(u: jax.Array, tau: jax.Array) -> tuple:
        value, slope = jax.value_and_grad(objective)(u, tau)
        return value, slope, jax.hessian(objective)(u, tau)

    return jax.jit(everything)
