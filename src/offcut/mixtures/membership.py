r"""Where new points belong, and how dense the posterior is there.

With weights w_k in the window and masses Z_k there, a draw s has t_sk(x) = log(w_k / Z_k) +
log N_k(x). The density in the window is a(x) sum_k exp t_sk(x), and the probability of population p
is the mean over draws of

    r_sp(x) = sum_{k matched to p} exp t_sk(x) / sum_k exp t_sk(x),

divided by its sum over populations: components without an event of their own belong to none.
Everything stays on the log scale, so that points far from all data have a finite density, and a
population.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offcut.mixtures.evaluation import Draws, log_terms

#: Numbers in one temporary array: few enough for a cache.
ROOM = 2**17
#: Points further out count as this far out in the same direction: their squares would overflow.
FAR = 1e120


def probabilities(drawn: Draws, matches: np.ndarray, count: int, x: np.ndarray) -> np.ndarray:
    """Of each of ``count`` populations, (point, population); ``matches`` is (draw, component)."""
    belongs = (matches[:, None, :] == np.arange(count)[:, None]).astype(float)
    matched = matches >= 0
    shares = np.empty((len(x), count))
    for part, terms in _in_parts(drawn, x):
        total, peak = np.zeros((count, part.stop - part.start)), -np.inf
        for s, t in enumerate(terms):
            own = t[matched[s]]
            most = own.max(0)
            height = most - _log_sum(t)
            higher = np.maximum(peak, height)
            inside = belongs[s][:, matched[s]] @ np.exp(own - most)
            total = total * np.exp(peak - higher) + inside * np.exp(height - higher)
            peak = higher
        shares[part] = (total / total.sum(0)).T
    return shares


def log_density(drawn: Draws, x: np.ndarray) -> np.ndarray:
    """log of the mean over draws of sum_k exp t_sk(x), (point,)."""
    result = np.empty(len(x))
    for part, terms in _in_parts(drawn, x):
        total = np.full(part.stop - part.start, -np.inf)
        for t in terms:
            total = np.logaddexp(total, _log_sum(t))
        result[part] = total - np.log(len(drawn.means))
    return result


def _log_sum(t: np.ndarray) -> np.ndarray:
    """log sum exp over components, the first axis."""
    most = t.max(0)
    return most + np.log(np.exp(t - most).sum(0))


def _in_parts(drawn: Draws, x: np.ndarray) -> Iterator[tuple[slice, Iterator[np.ndarray]]]:
    """For some points at a time: t_s, (component, point), of one draw after the other."""
    draws, K, d = drawn.means.shape
    roots = np.linalg.cholesky(drawn.covariances)
    constants = log_terms(drawn)[:, 0] - 0.5 * d * np.log(2 * np.pi)
    constants -= np.log(np.diagonal(roots, axis1=2, axis2=3)).sum(2)
    # R⁻¹(x - mu) of all components one below the other: one product of matrices in each draw.
    inverse = np.linalg.inv(roots)
    centre = drawn.means.reshape(-1, d).mean(0)
    offsets = np.einsum("skij,skj->ski", inverse, drawn.means - centre).reshape(draws, K * d, 1)
    maps = inverse.reshape(draws, K * d, d)

    def terms(points: np.ndarray) -> Iterator[np.ndarray]:
        for s in range(draws):
            away = maps[s] @ points - offsets[s]
            yield constants[s][:, None] - 0.5 * (away**2).reshape(K, d, -1).sum(1)

    furthest = np.abs(x).max(1, keepdims=True, initial=FAR)
    x = x * (FAR / furthest)
    step = max(1, ROOM // (K * d))
    for start in range(0, len(x), step):
        part = slice(start, min(start + step, len(x)))
        yield part, terms((x[part] - centre).T)
