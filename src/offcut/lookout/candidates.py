"""Candidates for places beyond a run: from the prior, and around the run at several spreads."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy import stats
from scipy.special import logsumexp

from offcut.models.rejection import RejectionModel

CANDIDATES, PRIOR_CANDIDATES = 4096, 1638
SPREADS = (1.0, 3.0, 10.0, 30.0)  # of those around the run, in units of its covariance root
TAIL = 5.0  # degrees of freedom
#: Candidates of the second round, at the most, on either side of the edge.
SECOND_ROUND = 512
#: A weight smaller than the largest by this factor, in logs, is none.
NEGLIGIBLE = 15.0


def prior_candidates(model: RejectionModel, key: jax.Array) -> tuple[Any, np.ndarray]:
    """Draws of theta from the prior, and where they are in unconstrained space."""

    def draw(key: jax.Array) -> tuple:
        theta = model.prior.sample(key)
        return theta, model.prior.unconstrain(theta)

    program = model.compiled("lookout prior", jax.vmap(draw))
    theta, position = program(jax.random.split(key, PRIOR_CANDIDATES))
    return jax.tree.map(np.asarray, theta), np.asarray(position)


def _shape(run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the run; directions that did not move get a little."""
    size = run.shape[1]
    covariance = np.cov(run.T).reshape(size, size)
    return run.mean(axis=0), covariance + np.diag(1e-9 * np.diag(covariance) + 1e-300)


def around(run: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Candidates around the run, Student's t at several spreads."""
    mean, covariance = _shape(run)
    root = np.linalg.cholesky(covariance)
    count = (CANDIDATES - PRIOR_CANDIDATES) // len(SPREADS)
    parts = []
    for spread in SPREADS:
        heavy = np.sqrt(TAIL / rng.chisquare(TAIL, size=(count, 1)))
        parts.append(mean + spread * heavy * (rng.normal(size=(count, len(mean))) @ root.T))
    return np.concatenate(parts)


def log_density(log_prior: np.ndarray, positions: np.ndarray, run: np.ndarray) -> np.ndarray:
    """log of the density that all candidates together were drawn from."""
    mean, covariance = _shape(run)
    parts = [log_prior + np.log(PRIOR_CANDIDATES)]
    count = (CANDIDATES - PRIOR_CANDIDATES) // len(SPREADS)
    for spread in SPREADS:
        student = stats.multivariate_t(mean, spread**2 * covariance, df=TAIL, allow_singular=True)
        parts.append(student.logpdf(positions).reshape(-1) + np.log(count))
    return logsumexp(parts, axis=0)


def thinned(
    hope: np.ndarray, far: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates that may matter, at random where there are many; log of the share kept."""
    chosen, log_kept = [], []
    for side in (far, ~far):
        matters = np.flatnonzero(side & (hope > hope.max() - NEGLIGIBLE))
        kept = rng.permutation(matters)[:SECOND_ROUND]
        chosen.append(kept)
        log_kept.append(np.full(len(kept), np.log(max(len(kept), 1) / max(len(matters), 1))))
    together = np.concatenate(chosen)
    spare = 2 * SECOND_ROUND - len(together)  # one shape for every run; a weight of 0
    padded = np.concatenate([together, np.zeros(spare, int)])
    return padded, np.concatenate([*log_kept, np.full(spare, np.inf)])
