r"""The yardstick: frames in plain NumPy and SciPy.

Density etr(Fᵀ X) / Z on V_{p,d}, the d by p matrices with orthonormal columns, F = G diag(kappa);
h_m(y) = 0F1(m/2; y²/4).

``sample``: Hoff's rejection sampler (2009, J. Comput. Graph. Stat. 18, section 2). No loop over
draws; and the product in Hoff's acceptance is taken factor by factor, each before its column is
drawn, so that nothing is drawn for proposals already lost.

``exact_hmc``: the posterior of kappa for p = 2, where Z is a one-dimensional integral: the rival
that needs no rejected proposals.
"""

from __future__ import annotations

import numpy as np
from scipy import special

LARGEST_BLOCK = 1 << 15
NODES, WEIGHTS = np.polynomial.legendre.leggauss(96)


def sample(rng: np.random.Generator, G: np.ndarray, kappa: np.ndarray, count: int) -> np.ndarray:
    r"""Independent draws of etr(diag(kappa) Gᵀ X), (count, d, p).

    Column r is proposed from a von Mises-Fisher distribution in the m = d - r + 1 dimensions that
    the columns before it leave, along the part of G_r in them; u_r is the length of that part. The
    whole is accepted with probability

        a(X) = prod_r h_m(kappa_r u_r) / h_m(kappa_r).

    Columns are taken in the order of decreasing kappa, which is accepted most often.
    """
    d, p = G.shape
    order = np.argsort(-kappa, kind="stable")
    descending = kappa[order]
    parts: list[np.ndarray] = []
    missing, rate = count, _expected_acceptance(descending)
    while missing:
        size = min(int(1.02 * missing / rate) + 16, LARGEST_BLOCK)
        accepted = _propose(rng, d, descending, size)
        parts.append(accepted[:, :, :missing])
        rate = max(accepted.shape[2] / size, 1e-3)
        missing -= parts[-1].shape[2]
    canonical = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)  # (p, d, count)
    basis, triangle = np.linalg.qr(G[:, order], mode="complete")
    basis[:, :p] *= np.sign(np.diagonal(triangle))  # G itself, then what completes it
    drawn = np.empty((count, d, p))
    for column, place in zip(canonical, order, strict=True):
        drawn[:, :, place] = (basis @ column).T
    return drawn


def _expected_acceptance(kappa: np.ndarray) -> float:
    """The limit for large kappa, prod_{i<j} sqrt(kappa_i / (kappa_i + kappa_j))."""
    k = np.maximum(kappa, 1e-300)
    i, j = np.triu_indices(len(k), 1)
    return max(float(np.prod(np.sqrt(k[i] / (k[i] + k[j])))), 1e-3)


def _propose(rng: np.random.Generator, d: int, kappa: np.ndarray, size: int) -> np.ndarray:
    """Proposals for G = the first unit vectors; the accepted ones, (p, d, accepted)."""
    columns = np.empty((len(kappa), d, size))
    t = _cosines(rng, d, np.full(size, kappa[0]))
    columns[0, 0] = t
    if d > 1:
        columns[0, 1:] = np.sqrt(1 - t * t) * _unit(rng.standard_normal((d - 1, size)))
    for r in range(1, len(kappa)):
        m, earlier = d - r, columns[:r]
        # G_r = e_r without its part along earlier columns: |N_rᵀ G_r|² = 1 - c.
        along = earlier[:, r]
        u = np.sqrt(np.maximum(1 - (along * along).sum(0), 0))
        log_accept = log_h(m, kappa[r] * u) - log_h(m, kappa[r])
        alive = np.flatnonzero(rng.standard_exponential(len(u)) > -log_accept)
        columns = columns[:, :, alive]
        earlier, u = columns[:r], u[alive]
        towards = -_combine(earlier[:, r], earlier)
        towards[r] += 1
        towards = _unit(towards)
        t = _cosines(rng, m, kappa[r] * u)
        columns[r] = t * towards
        if m > 1:
            columns[r] += np.sqrt(1 - t * t) * _around(rng, earlier, towards)
    return columns


def _cosines(rng: np.random.Generator, m: int, kappa: np.ndarray) -> np.ndarray:
    """x . mu for x von Mises-Fisher in m dimensions: density ∝ e^{kappa t} (1 - t²)^{(m-3)/2}."""
    size = len(kappa)
    if m == 1:
        return np.where(rng.random(size) < special.expit(2 * kappa), 1.0, -1.0)
    if m == 2:
        return np.cos(rng.vonmises(0.0, kappa))
    if m == 3:  # by inversion
        few = np.maximum(kappa, 1e-12)
        return np.maximum(1 + np.log1p(rng.random(size) * np.expm1(-2 * few)) / few, -1.0)
    return _wood(rng, m, kappa)


def _wood(rng: np.random.Generator, m: int, kappa: np.ndarray) -> np.ndarray:
    """Algorithm VM* of Wood (1994), after Ulrich (1984): an envelope made of beta variables."""
    b = (m - 1) / (2 * kappa + np.sqrt(4 * kappa * kappa + (m - 1) ** 2))
    x0 = (1 - b) / (1 + b)
    c = kappa * x0 + (m - 1) * np.log1p(-x0 * x0)
    t = np.empty(len(kappa))
    left = np.arange(len(kappa))
    while len(left):
        z = rng.beta(0.5 * (m - 1), 0.5 * (m - 1), len(left))
        w = (1 - (1 + b[left]) * z) / (1 - (1 - b[left]) * z)
        log_accept = kappa[left] * w + (m - 1) * np.log1p(-x0[left] * w) - c[left]
        accepted = rng.standard_exponential(len(left)) > -log_accept
        t[left[accepted]] = w[accepted]
        left = left[~accepted]
    return t


def _around(rng: np.random.Generator, earlier: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """Unit vectors, uniform among those orthogonal to ``earlier`` and ``towards``."""
    d, size = towards.shape
    if d == 3:  # all but the sign is given: it is theirs or the opposite
        (x, y, z), (a, b, c) = earlier[0], towards
        sign = 1.0 - 2.0 * (rng.random(size) < 0.5)
        return sign * np.stack([y * c - z * b, z * a - x * c, x * b - y * a])
    normal = rng.standard_normal((d, size))
    normal -= (normal * towards).sum(0) * towards
    normal -= _combine((earlier * normal).sum(1), earlier)
    return _unit(normal)


def _combine(weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """sum_j w_j X_j for weights (r, size) and columns (r, d, size)."""
    return (weights[:, None] * columns).sum(0)


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.sqrt((v * v).sum(0))


def log_h(m: int, y: np.ndarray | float) -> np.ndarray:
    """log 0F1(m/2; y²/4) = log Gamma(m/2) - nu log(y/2) + log I_nu(y), nu = m/2 - 1; m <= 100."""
    y = np.asarray(y, float)
    if m == 1:
        return y + np.log1p(np.exp(-2 * y)) - np.log(2)
    if m == 2:
        return y + np.log(special.i0e(y))
    nu = m / 2 - 1
    large = np.maximum(y, 1e-2)
    if m == 3:
        value = large + np.log(-np.expm1(-2 * large) / (2 * large))
    else:
        value = large + np.log(special.ive(nu, large)) - nu * np.log(large / 2)
        value += special.gammaln(m / 2)
    series = y * y / (2 * m) - y**4 / (4 * m * m * (m + 2))
    return np.where(y < 1e-2, series, value)


def slope_h(m: int, y: np.ndarray | float) -> np.ndarray:
    """The derivative of log h_m: I_{nu+1}(y) / I_nu(y), nu = m/2 - 1."""
    y = np.asarray(y, float)
    if m == 1:
        return np.tanh(y)
    if m == 2:
        return special.i1e(y) / special.i0e(y)
    large = np.maximum(y, 1e-2)
    value = special.ive(m / 2, large) / special.ive(m / 2 - 1, large)
    return np.where(y < 1e-2, y / m - y**3 / (m * m * (m + 2)), value)


def log_normaliser(d: int, kappa: np.ndarray) -> np.ndarray:
    r"""log Z for p = 2, kappa (..., 2): exact to rounding.

        Z = B(1/2, (d-1)/2)⁻¹ ∫ cos(phi)^{d-2} h_{d-1}(k1 cos phi) h_{d-1}(k2 cos phi) d phi

    over (-pi/2, pi/2). The integrand is even, and negligible beyond 10 / sqrt(c), c = k1 A(k1) +
    k2 A(k2) + d - 2, A = (log h_{d-1})': Gauss-Legendre with 96 nodes on what is left.
    """
    log_terms, _ = _terms(d, np.asarray(kappa, float))
    return special.logsumexp(log_terms, axis=-1) - special.betaln(0.5, 0.5 * (d - 1))


def log_normaliser_and_gradient(d: int, kappa: np.ndarray) -> tuple[float, np.ndarray]:
    """log Z at one kappa (2,), and its gradient: u A(kappa u) averaged over the integrand."""
    log_terms, u = _terms(d, kappa)
    top = log_terms.max()
    terms = np.exp(log_terms - top)
    total = terms.sum()
    gradient = slope_h(d - 1, kappa[:, None] * u) @ (u * terms) / total
    return float(top + np.log(total) - special.betaln(0.5, 0.5 * (d - 1))), gradient


def _terms(d: int, kappa: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logs of the terms of the quadrature, (..., 96), and cos phi at its nodes."""
    c = (kappa * slope_h(d - 1, kappa)).sum(-1) + d - 2
    half = 0.5 * np.minimum(0.5 * np.pi, 10 / np.sqrt(np.maximum(c, 1e-300)))[..., None]
    u = np.cos(half * (1 + NODES))
    logs = log_h(d - 1, kappa[..., None] * u[..., None, :]).sum(-2)
    return logs + np.log(2 * half * WEIGHTS * u ** (d - 2)), u


def exact_hmc(
    rng: np.random.Generator,
    frames: np.ndarray,
    prior_shape: float | np.ndarray,
    prior_rate: float | np.ndarray,
    draws: int,
    step_size: float | np.ndarray | None = None,
    num_steps: int = 2,
) -> np.ndarray:
    r"""Draws of kappa (draws, 2) given frames (n, d, 2): Gibbs on (G, kappa) with the exact Z.

    X_i ~ etr(diag(kappa) Gᵀ X) / Z(kappa), G uniform, kappa_r ~ Gamma(shape, rate). A sweep:

    - G | kappa ∝ etr((S diag(kappa))ᵀ G), S = sum_i X_i: an independent draw by ``sample``;
    - kappa | G by HMC in log kappa on kappa . diag(Gᵀ S) - n log Z(kappa) + log prior + log
      Jacobian, ``num_steps`` leapfrog steps; ``step_size`` is one number, or one for each column,
      by default 1 / sqrt(n), about the best at n = 98, kappa = (12, 6).

    The chain starts at the moments of the data; how much is warm-up is for the caller to say.
    """
    n, d, _ = frames.shape
    S = frames.sum(0)
    step = 1 / np.sqrt(n) if step_size is None else step_size

    def log_density(position: np.ndarray, s: np.ndarray, log_z: float) -> float:
        # shape * log(kappa): (shape - 1) of the prior, one of the Jacobian.
        kappa = np.exp(position)
        return float((kappa * (s - prior_rate) + prior_shape * position).sum()) - n * log_z

    def slope_at(position: np.ndarray, s: np.ndarray, slope: np.ndarray) -> np.ndarray:
        return np.exp(position) * (s - n * slope - prior_rate) + prior_shape

    position = np.log(moment_start(frames))
    # Does not depend on G, so that it is kept between sweeps.
    now = log_normaliser_and_gradient(d, np.exp(position))
    drawn = np.empty((draws, 2))
    for sweep in range(draws):
        U, singular, Vt = np.linalg.svd(S * np.exp(position), full_matrices=False)
        G = sample(rng, U, singular, 1)[0] @ Vt
        s = (G * S).sum(0)
        momentum = rng.standard_normal(2)
        energy = log_density(position, s, now[0]) - 0.5 * momentum @ momentum
        proposal, then = position, now
        slope = slope_at(position, s, now[1])
        for _ in range(num_steps):
            momentum = momentum + 0.5 * step * slope
            proposal = proposal + step * momentum
            then = log_normaliser_and_gradient(d, np.exp(proposal))
            slope = slope_at(proposal, s, then[1])
            momentum = momentum + 0.5 * step * slope
        proposed = log_density(proposal, s, then[0]) - 0.5 * momentum @ momentum
        if rng.standard_exponential() > energy - proposed:
            position, now = proposal, then
        drawn[sweep] = np.exp(position)
    return drawn


def moment_start(frames: np.ndarray) -> np.ndarray:
    """A rough kappa (2,): column r deviates by 1 - x . G_r, about (d-1) / (2 kappa_r)."""
    n, d, _ = frames.shape
    S = frames.sum(0)
    U, _, Vt = np.linalg.svd(S, full_matrices=False)
    return 0.5 * (d - 1) / np.maximum(1 - ((U @ Vt) * S).sum(0) / n, 1e-8)
