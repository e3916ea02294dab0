r"""The fraction of missing information: how much of what a sweep knows comes from rejections.

Let u be the unconstrained parameters, Sigma = Cov(u | X), and s = grad_u log p(u, Y | X) the
score of the augmented density, prior and Jacobian included, at a stationary pair (u, Y). Given Y,
integration by parts gives E[s | Y] = 0, E[u s' | Y] = -I and E[s s' | Y] = E[-grad^2 log
p(u | X, Y)]. So J = E[s s'] is the information that a sweep has, on average, once it has drawn Y,
and by Cauchy-Schwarz no linear combination a'u has a conditional variance below a'J^-1 a:

    E[Var(a'u | Y)] >= a' J^-1 a,   hence   Var(E[a'u | Y]) / Var(a'u) <= 1 - a'J^-1 a / a'Sigma a.

The left side is the fraction of missing information, and the lag-1 autocorrelation of a'u in a
sampler that draws u exactly given Y (Liu 1994). The right side is what is reported; the two are
equal where p(u | X, Y) is normal with the same variance for every Y. Its maximum over a is
1 - 1/lambda, lambda the largest eigenvalue of Sigma J. For a parameter h(u) the same argument has
c = Cov(h, s): the fraction is 1 - c'J^-1 c / Var(h), one minus the R^2 of h regressed on the score.
Restricting the joint to |Y| <= budget changes nothing: given Y it is the same density.

Moments are those of the run, so the figures are estimates, too low where the run has not been
everywhere. Kernels that draw u exactly given Y need no score: there the autocorrelation itself is
measured.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from offcut.driver.chain import MOST_ENTRIES as MOST_COLUMNS

#: Statistics that kernels hand over for this computation and that the result does not keep.
HELPERS = ("position", "gradient")
#: Below so many draws for each dimension the largest eigenvalue is mostly noise.
DRAWS_FOR_EACH_DIMENSION = 20


class Missing(NamedTuple):
    """``worst``: the largest over linear combinations; nan where ``note`` says why."""

    worst: float
    parameters: dict[str, np.ndarray]  # in the shape of one draw
    note: str


def missing_information(
    stats: dict[str, np.ndarray],
    draws: dict[str, np.ndarray],
    draws_exactly: bool,
    before: dict[str, np.ndarray] | None = None,
) -> Missing:
    """The fractions of a run, from its statistics and draws (chain, draw, ...).

    ``draws_exactly`` says that its sampler draws exactly from p(theta | X, Y); ``before``, where
    draws are thinned, what variables were before the sweep of each draw.
    """
    pairs = {
        name: _around_sweeps(values, (before or {}).get(name))
        for name, values in draws.items()
        if values[0, 0].size <= MOST_COLUMNS
    }
    if draws_exactly:
        return _from_autocorrelation(pairs)
    if "gradient" not in stats:
        return Missing(float("nan"), {}, "this kernel does not compute the score")
    return _from_score(stats["position"], stats["gradient"], pairs)


class Pairs(NamedTuple):
    """A variable before and after sweeps, and in all draws; (chain, draw, ...) each.

    Both are of the same sweep: where draws are thinned, the one kept before it is many sweeps back.
    """

    before: np.ndarray
    after: np.ndarray
    every: np.ndarray


def _around_sweeps(values: np.ndarray, before: np.ndarray | None) -> Pairs:
    """Without thinning a sweep starts at the draw before it."""
    if before is None:
        return Pairs(values[:, :-1], values[:, 1:], values)
    return Pairs(before, values, values)


def _from_score(
    position: Float[np.ndarray, "chain draw d"],
    gradient: Float[np.ndarray, "chain draw d"],
    draws: dict[str, Pairs],
) -> Missing:
    size = position.shape[-1]
    u, s = position.reshape(-1, size), gradient.reshape(-1, size)
    if len(u) < DRAWS_FOR_EACH_DIMENSION * size:
        return Missing(float("nan"), {}, f"too few draws for {size} dimensions")
    if not (np.isfinite(u).all() and np.isfinite(s).all()):
        return Missing(float("nan"), {}, "the score was not finite everywhere")
    # Units in which J is 1 on its diagonal; parameters differ by orders of magnitude.
    scale = np.sqrt(np.mean(s**2, axis=0))
    if not np.all(scale > 0):
        return Missing(float("nan"), {}, "the density does not depend on all parameters")
    information = (s / scale).T @ (s / scale) / len(s)
    covariance = np.cov((u * scale).T, ddof=0).reshape(size, size)
    root = np.linalg.cholesky(information + 1e-12 * np.eye(size))
    largest = float(np.linalg.eigvalsh(root.T @ covariance @ root)[-1])
    worst = float(np.clip(1 - 1 / largest, 0, 1)) if largest > 0 else float("nan")

    parameters = {}
    for name, (before, *_) in draws.items():
        sweeps = before.shape[1]
        if sweeps:
            own = (gradient[:, -sweeps:] / scale).reshape(-1, size)
            h = before.reshape(len(own), -1).astype(float)
            parameters[name] = _unexplained(h, own, root).reshape(before.shape[2:])
    return Missing(worst, parameters, "")


def _unexplained(
    h: Float[np.ndarray, "draws parameters"],
    s: Float[np.ndarray, "draws d"],
    root: Float[np.ndarray, "d d"],
) -> Float[np.ndarray, " parameters"]:
    """1 - c'J^-1 c / Var(h) of each column, with what noise adds to c'J^-1 c taken off."""
    from scipy.linalg import solve_triangular

    variance = h.var(axis=0)
    c = s.T @ (h - h.mean(axis=0)) / len(h)
    explained = np.sum(solve_triangular(root, c, lower=True) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = explained / variance
    noise = s.shape[1] / len(s)
    return np.clip(1 - (share - noise) / (1 - noise), 0, 1)  # as in the adjusted R^2


def _from_autocorrelation(draws: dict[str, Pairs]) -> Missing:
    """Lag-1 autocorrelations, each parameter's and that of the worst linear combination."""
    parameters, columns = {}, []
    for name, pairs in draws.items():
        if not pairs.before.shape[1]:
            continue
        flat = Pairs(*(a.reshape(*a.shape[:2], -1).astype(float) for a in pairs))
        mean = flat.every.mean(axis=(0, 1))
        centred = Pairs(*(a - mean for a in flat))
        variance = np.mean(centred.every**2, axis=(0, 1))
        with np.errstate(invalid="ignore", divide="ignore"):
            lag = np.mean(centred.after * centred.before, axis=(0, 1)) / variance
        parameters[name] = np.clip(lag, 0, 1).reshape(pairs.every.shape[2:])
        scale = np.sqrt(np.where(variance > 0, variance, 1))
        columns.append(Pairs(*((a / scale)[..., variance > 0] for a in centred)))
    if not columns:
        return Missing(float("nan"), parameters, "0 varying parameters")
    joined = Pairs(*(np.concatenate(parts, axis=-1) for parts in zip(*columns, strict=True)))
    size = joined.every.shape[-1]
    if not 0 < size <= MOST_COLUMNS:
        return Missing(float("nan"), parameters, f"{size} varying parameters")
    if joined.every.shape[0] * joined.every.shape[1] < DRAWS_FOR_EACH_DIMENSION * size:
        return Missing(float("nan"), parameters, f"too few draws for {size} dimensions")
    before, after, everything = (a.reshape(-1, size) for a in joined)
    lagged = after.T @ before / len(after)
    values, vectors = np.linalg.eigh(everything.T @ everything / len(everything))
    kept = values > 1e-9 * values[-1]  # deterministic sites repeat what others say
    whitened = vectors[:, kept] / np.sqrt(values[kept])
    matrix = whitened.T @ (lagged + lagged.T) @ whitened / 2
    return Missing(float(np.clip(np.linalg.eigvalsh(matrix)[-1], 0, 1)), parameters, "")
