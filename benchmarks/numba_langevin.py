r"""The yardstick: the paper's sampler for frames in V_{2,3} as hand-written Numba loops.

X_i ~ etr(diag(kappa) Gᵀ X) / Z(kappa), G uniform, kappa_r ~ Gamma. Hoff's proposals (2009), written
in what kappa sees of them. With w = y_1 . G_1, c = (y_1 . G_2)², u = sqrt(1 - c) and psi the angle
of y_2 from G_2's direction in the plane left by y_1,

    w ∝ e^{kappa_1 w} on (-1, 1),   c = (1 - w²) cos² phi, phi uniform,
    accept with probability a = I_0(kappa_2 u) / I_0(kappa_2),
    psi ~ von Mises(kappa_2 u),     diag(Gᵀ y) = (w, u cos psi).

A sweep, after Rao, Lin & Dunson (2016, section 5): rejected proposals Y on the way to n
acceptances; HMC in log kappa on the joint density of X and Y; G given X and kappa by an independent
draw. With N = n + |Y|, s the sum of diag(Gᵀ y) over X and Y, h_3(k) = sinh(k) / k and h_2 = I_0,
the log of that joint density is

    kappa . s - N log h_3(kappa_1) - N log h_2(kappa_2) + sum_{y in Y} log((1 - a(y)) / a(y)).

Two loops, one chain in law. ``plain`` is what the paper says, written down: proposals are frames,
each is drawn whole, judged by its Bessel functions and, if rejected, kept; G is a frame drawn by
Hoff's sampler. ``augmented`` is tuned: it draws no more of a proposal than (w, u, psi), and psi
only where it is rejected, bounds a before computing it, sums series and logarithms of all
rejections together, and draws diag(Gᵀ S) through a quaternion.

Floating point is strict. Random numbers come from NumPy's Generator.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from benchmarks.numpy_langevin import moment_start

#: From here on the asymptotic series of I_0 and I_1 is exact to rounding; before it, power series.
ASYMPTOTIC = 20.0
# q^k / k!² and q^k / (k! (k+1)!), q = x²/4: I_0, and I_1 over x/2 (Abramowitz & Stegun 9.6.10).
POWER_0 = np.array([1 / math.factorial(k) ** 2 for k in range(56)])
POWER_1 = np.array([1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(56)])
# x^-k prod_{j<=k} ((2j-1)² - 4 nu²) / (k! 8^k): I_nu over e^x / sqrt(2 pi x) (9.7.1).
_ODD = (2 * np.arange(1.0, 30) - 1) ** 2
_EIGHTS = 8 * np.arange(1.0, 30)
INVERSE_0 = np.append(1.0, np.cumprod(_ODD / _EIGHTS))
INVERSE_1 = np.append(1.0, np.cumprod((_ODD - 4) / _EIGHTS))


@numba.njit(error_model="numpy")
def bessel(x):
    """log I_0(x) and I_1(x) / I_0(x) for x >= 0."""
    first, second = 0.0, 0.0
    if x < ASYMPTOTIC:
        q = 0.25 * x * x
        for k in range(int(12 + 1.9 * x), -1, -1):
            first = first * q + POWER_0[k]
            second = second * q + POWER_1[k]
        return math.log(first), 0.5 * x * second / first
    q = 1 / x
    for k in range(len(INVERSE_0) - 1, -1, -1):
        first = first * q + INVERSE_0[k]
        second = second * q + INVERSE_1[k]
    return x + math.log(first) - 0.5 * math.log(2 * math.pi * x), second / first


@numba.njit(error_model="numpy")
def langevin(k):
    """log(sinh(k) / k) and its derivative coth(k) - 1/k."""
    if k < 1e-2:
        return k * k / 6 - k**4 / 180, k / 3 - k**3 / 45
    e = math.exp(-2 * k)
    return k + math.log((1 - e) / (2 * k)), (1 + e) / (1 - e) - 1 / k


@numba.njit(error_model="numpy")
def von_mises_cosine(rng, k):
    """cos psi for psi ~ von Mises(k): Best & Fisher (1979)."""
    if k < 1e-8:
        return math.cos(math.pi * rng.random())
    tau = 1 + math.sqrt(1 + 4 * k * k)
    rho = 0.5 * (tau - math.sqrt(2 * tau)) / k
    r = 0.5 * (1 + rho * rho) / rho
    while True:
        z = math.cos(math.pi * rng.random())
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        v = 1 - rng.random()
        if c * (2 - c) > v or math.log(c / v) + 1 >= c:
            return f


@numba.njit(error_model="numpy")
def rejected_proposals(rng, k1, k2, n, u):
    """Hoff's proposals until n are accepted: |Y|, sums of diag(Gᵀ y) over Y; u of each into ``u``.

    log a is concave in c, so that a chord and a tangent bound it, - c log I_0(k2) <= log a <=
    - c k2 A(k2) / 2, and few proposals need a Bessel function. As c <= 1 - w², most need no phi.
    """
    log_i0, A = bessel(k2)
    tangent = 0.5 * k2 * A
    lost = -math.expm1(-2 * k1)
    accepted, m = 0, 0
    s1, s2 = 0.0, 0.0
    while accepted < n:
        if k1 > 0.5:
            below = rng.standard_exponential()
            while below > 2 * k1:
                below = rng.standard_exponential()
            w = 1 - below / k1
        else:
            w = 1 + math.log(1 - lost * rng.random()) / k1
        level = rng.standard_exponential()  # accept if log a > -level
        c = 1 - w * w
        if level > c * log_i0:
            accepted += 1
            continue
        cosine = math.cos(math.pi * rng.random())
        c *= cosine * cosine
        if level > c * log_i0:
            accepted += 1
            continue
        length = math.sqrt(1 - c)
        if level > c * tangent and level > log_i0 - bessel(k2 * length)[0]:
            accepted += 1
            continue
        if m == len(u):
            u = np.concatenate((u, np.empty_like(u)))
        u[m] = length
        m += 1
        s1 += w
        s2 += length * von_mises_cosine(rng, k2 * length)
    return m, s1, s2, u


@numba.njit(error_model="numpy")
def acceptances(k2, log_i0, u, a, inner):
    """a = I_0(k2 u) / I_0(k2) and I_1(k2 u) / I_0(k2 u) of each y; power series four at a time."""
    m = len(u)
    if k2 >= ASYMPTOTIC:
        for i in range(m):
            part, inner[i] = bessel(k2 * u[i])
            a[i] = math.exp(part - log_i0)
        return
    a[:] = 0.0
    inner[:] = 0.0
    quarter = 0.25 * k2 * k2
    for k in range(int(12 + 1.9 * k2), -1, -1):
        first, second = POWER_0[k], POWER_1[k]
        for i in range(m):
            q = quarter * u[i] * u[i]
            a[i] = a[i] * q + first
            inner[i] = inner[i] * q + second
    scale = math.exp(-log_i0)
    for i in range(m):
        inner[i] *= 0.5 * k2 * u[i] / a[i]
        a[i] *= scale


@numba.njit(error_model="numpy")
def log_joint(q1, q2, s1, s2, n, u, a, inner, shape, rate):
    """The joint density at log kappa = (q1, q2), prior and Jacobian included, and its gradient.

    d/dk2 log((1 - a) / a) = (A(k2) - u A(k2 u)) / (1 - a), A = I_1 / I_0.
    """
    k1, k2 = math.exp(q1), math.exp(q2)
    N = n + len(u)
    log_h3, A3 = langevin(k1)
    log_i0, A = bessel(k2)
    acceptances(k2, log_i0, u, a, inner)
    value, product, slope = 0.0, 1.0, 0.0
    for i in range(len(u)):
        slope += (A - u[i] * inner[i]) / (1 - a[i])
        product *= (1 - a[i]) / a[i]
        if not 1e-100 < product < 1e100:  # few logarithms
            value += math.log(product)
            product = 1.0
    value += math.log(product) - N * (log_h3 + log_i0)
    value += k1 * (s1 - rate[0]) + k2 * (s2 - rate[1]) + shape[0] * q1 + shape[1] * q2
    g1 = k1 * (s1 - N * A3 - rate[0]) + shape[0]
    g2 = k2 * (s2 - N * A + slope - rate[1]) + shape[1]
    return value, g1, g2


@numba.njit(error_model="numpy")
def orientation(rng, gram, k1, k2):
    r"""diag(Gᵀ S) for a draw of G ∝ etr((S diag(kappa))ᵀ G), given gram = Sᵀ S.

    With S diag(kappa) = U L Vᵀ and U completed to a rotation, [G, G_1 x G_2] = U Q diag(V, ±1)ᵀ, Q
    in SO(3) with density ∝ exp(l_1 Q_11 + l_2 Q_22). Its unit quaternion (a, x, y, z) is Bingham,
    ∝ exp(-2 l_2 x² - 2 l_1 y² - 2 (l_1 + l_2) z²), and is drawn under an angular central Gaussian
    envelope (Kent, Ganeiber & Mardia 2018), which is right for every b in (0, 4].
    """
    # L² and V from diag(kappa) Sᵀ S diag(kappa), by one Jacobi rotation.
    A, B, C = k1 * k1 * gram[0, 0], k1 * k2 * gram[0, 1], k2 * k2 * gram[1, 1]
    angle = 0.5 * math.atan2(2 * B, A - C)
    middle, spread = 0.5 * (A + C), math.hypot(0.5 * (A - C), B)
    l1, l2 = math.sqrt(middle + spread), math.sqrt(max(middle - spread, 0.0))
    co, si = math.cos(angle), math.sin(angle)
    # b: sum of 1 / (b + 2 lambda) = 1, by Newton's method from below.
    b = 1.0
    e1, e2, e3 = 4 * l2, 4 * l1, 4 * (l1 + l2)
    for _ in range(5):
        f0, f1, f2, f3 = 1 / b, 1 / (b + e1), 1 / (b + e2), 1 / (b + e3)
        b += (f0 + f1 + f2 + f3 - 1) / (f0 * f0 + f1 * f1 + f2 * f2 + f3 * f3)
    r1, r2, r3 = math.sqrt(1 + e1 / b), math.sqrt(1 + e2 / b), math.sqrt(1 + e3 / b)
    while True:
        a = rng.standard_normal()
        x = rng.standard_normal() / r1
        y = rng.standard_normal() / r2
        z = rng.standard_normal() / r3
        scale = 1 / (a * a + x * x + y * y + z * z)
        t = 0.5 * scale * (e1 * x * x + e2 * y * y + e3 * z * z)
        root = 0.25 * (b + 2 * t)
        if rng.random() < root * root * math.exp(0.5 * (4 - b) - t):
            break
    q11, q22 = 1 - 2 * scale * (y * y + z * z), 1 - 2 * scale * (x * x + z * z)
    q12, q21 = 2 * scale * (x * y - a * z), 2 * scale * (x * y + a * z)
    # diag(Gᵀ S) = diag(V Q'ᵀ L Vᵀ) / kappa, Q' the upper left of Q, V = [[co, -si], [si, co]].
    off = co * si * (l2 * q21 + l1 * q12)
    s1 = (co * co * l1 * q11 + si * si * l2 * q22 - off) / k1
    s2 = (si * si * l1 * q11 + co * co * l2 * q22 + off) / k2
    return s1, s2


@numba.njit(error_model="numpy")
def run(rng, n, gram, shape, rate, start, draws, step, leapfrogs):
    kappa, counts = np.empty((draws, 2)), np.empty(draws, np.int64)
    lengths = np.empty(4 * n + 64)
    a, inner = np.empty_like(lengths), np.empty_like(lengths)
    q1, q2 = math.log(start[0]), math.log(start[1])
    h1, h2 = step[0], step[1]
    for sweep in range(draws):
        k1, k2 = math.exp(q1), math.exp(q2)
        x1, x2 = orientation(rng, gram, k1, k2)
        m, s1, s2, lengths = rejected_proposals(rng, k1, k2, n, lengths)
        if len(lengths) > len(a):
            a, inner = np.empty_like(lengths), np.empty_like(lengths)
        rest = (s1 + x1, s2 + x2, n, lengths[:m], a[:m], inner[:m], shape, rate)
        p1, p2 = rng.standard_normal(), rng.standard_normal()
        t1, t2 = q1, q2
        value, g1, g2 = log_joint(t1, t2, *rest)
        energy = value - 0.5 * (p1 * p1 + p2 * p2)
        for _ in range(leapfrogs):
            p1 += 0.5 * h1 * g1
            p2 += 0.5 * h2 * g2
            t1 += h1 * p1
            t2 += h2 * p2
            value, g1, g2 = log_joint(t1, t2, *rest)
            p1 += 0.5 * h1 * g1
            p2 += 0.5 * h2 * g2
        if -rng.standard_exponential() < value - 0.5 * (p1 * p1 + p2 * p2) - energy:
            q1, q2 = t1, t2
        kappa[sweep, 0], kappa[sweep, 1] = math.exp(q1), math.exp(q2)
        counts[sweep] = m
    return kappa, counts


def augmented(
    seed: int,
    frames: np.ndarray,
    prior_shape: float | np.ndarray,
    prior_rate: float | np.ndarray,
    draws: int,
    step_size: float | np.ndarray | None = None,
    num_steps: int = 3,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of kappa (draws, 2) given frames (n, 3, 2), and |Y| of each sweep.

    Columns are proposed in the order given, for the whole run: the more concentrated one should
    come first. ``step_size`` is one number or one for each column; by default 0.8 / sqrt(n), which
    with three steps is about the best at n = 98, kappa = (12, 6) (effective draws per second). The
    chain starts at the moments of the data; how much is warm-up is for the caller to say.
    """
    S = frames.sum(0)
    shape, rate, step = _pairs(frames, prior_shape, prior_rate, step_size)
    rng, start = np.random.default_rng(seed), moment_start(frames)
    return run(rng, len(frames), S.T @ S, shape, rate, start, draws, step, num_steps)


def _pairs(
    frames: np.ndarray,
    prior_shape: float | np.ndarray,
    prior_rate: float | np.ndarray,
    step_size: float | np.ndarray | None,
) -> tuple[np.ndarray, ...]:
    """Shape, rate and step size, one for each column."""
    step = 0.8 / np.sqrt(len(frames)) if step_size is None else step_size
    given = (prior_shape, prior_rate, step)
    return tuple(np.broadcast_to(np.asarray(value, float), 2).copy() for value in given)


@numba.njit(error_model="numpy")
def propose(rng, G, k1, k2, lost, y):
    """Hoff's proposal as a frame, into ``y`` (3, 2); returns its u. ``lost`` is exp(-2 k1) - 1.

    y_1 is von Mises-Fisher(k1 G_1) on the sphere. N = [e f] is an orthonormal basis of the plane
    that y_1 leaves, u e the part of G_2 in it; y_2 = N z, z von Mises(k2 Nᵀ G_2) on the circle.
    """
    w = max(1 + math.log1p(lost * rng.random()) / k1, -1.0)
    t1, t2, t3 = rng.standard_normal(), rng.standard_normal(), rng.standard_normal()
    along = t1 * G[0, 0] + t2 * G[1, 0] + t3 * G[2, 0]
    t1, t2, t3 = t1 - along * G[0, 0], t2 - along * G[1, 0], t3 - along * G[2, 0]
    r = math.sqrt((1 - w * w) / (t1 * t1 + t2 * t2 + t3 * t3))
    y1, y2, y3 = w * G[0, 0] + r * t1, w * G[1, 0] + r * t2, w * G[2, 0] + r * t3

    along = y1 * G[0, 1] + y2 * G[1, 1] + y3 * G[2, 1]
    e1, e2, e3 = G[0, 1] - along * y1, G[1, 1] - along * y2, G[2, 1] - along * y3
    u = math.sqrt(e1 * e1 + e2 * e2 + e3 * e3)
    e1, e2, e3 = e1 / u, e2 / u, e3 / u
    f1, f2, f3 = y2 * e3 - y3 * e2, y3 * e1 - y1 * e3, y1 * e2 - y2 * e1
    z1 = von_mises_cosine(rng, k2 * u)
    z2 = math.sqrt(max(1 - z1 * z1, 0.0))
    if rng.random() < 0.5:
        z2 = -z2
    y[0, 0], y[1, 0], y[2, 0] = y1, y2, y3
    y[0, 1], y[1, 1], y[2, 1] = z1 * e1 + z2 * f1, z1 * e2 + z2 * f2, z1 * e3 + z2 * f3
    return u


@numba.njit(error_model="numpy")
def rejected_frames(rng, G, k1, k2, n, Y, u):
    """Proposals until n are accepted: |Y|, the rejected frames and their u."""
    log_i0, lost = bessel(k2)[0], math.expm1(-2 * k1)
    accepted, m = 0, 0
    while accepted < n:
        if m == len(Y):
            Y, u = np.concatenate((Y, np.empty_like(Y))), np.concatenate((u, np.empty_like(u)))
        u[m] = propose(rng, G, k1, k2, lost, Y[m])
        if rng.random() < math.exp(bessel(k2 * u[m])[0] - log_i0):
            accepted += 1
        else:
            m += 1
    return m, Y, u


@numba.njit(error_model="numpy")
def draw_orientation(rng, S, k1, k2, U, Q, G):
    """G ∝ etr((S diag(kappa))ᵀ G) by Hoff's sampler, into ``G``; ``U`` and ``Q`` are room.

    With S diag(kappa) = U L Vᵀ, Q ∝ etr(L Uᵀ Q) and G = Q Vᵀ.
    """
    A, B, C = 0.0, 0.0, 0.0
    for i in range(3):
        A += k1 * k1 * S[i, 0] * S[i, 0]
        B += k1 * k2 * S[i, 0] * S[i, 1]
        C += k2 * k2 * S[i, 1] * S[i, 1]
    angle = 0.5 * math.atan2(2 * B, A - C)  # V = [[co, -si], [si, co]]
    co, si = math.cos(angle), math.sin(angle)
    middle, spread = 0.5 * (A + C), math.hypot(0.5 * (A - C), B)
    l1, l2 = math.sqrt(middle + spread), math.sqrt(middle - spread)
    for i in range(3):
        U[i, 0] = (k1 * S[i, 0] * co + k2 * S[i, 1] * si) / l1
        U[i, 1] = (k2 * S[i, 1] * co - k1 * S[i, 0] * si) / l2
    log_i0, lost = bessel(l2)[0], math.expm1(-2 * l1)
    while True:
        u = propose(rng, U, l1, l2, lost, Q)
        if rng.random() < math.exp(bessel(l2 * u)[0] - log_i0):
            break
    for i in range(3):
        G[i, 0] = Q[i, 0] * co - Q[i, 1] * si
        G[i, 1] = Q[i, 0] * si + Q[i, 1] * co


@numba.njit(error_model="numpy")
def log_joint_of_frames(q1, q2, s1, s2, n, u, shape, rate):
    """``log_joint`` with Bessel functions and logarithms of one rejection after another."""
    k1, k2 = math.exp(q1), math.exp(q2)
    N = n + len(u)
    log_h3, A3 = langevin(k1)
    log_i0, A = bessel(k2)
    value = k1 * (s1 - rate[0]) + k2 * (s2 - rate[1]) + shape[0] * q1 + shape[1] * q2
    value -= N * (log_h3 + log_i0)
    slope = 0.0
    for i in range(len(u)):
        part, inner = bessel(k2 * u[i])
        a = math.exp(part - log_i0)
        value += math.log((1 - a) / a)
        slope += (A - u[i] * inner) / (1 - a)
    g1 = k1 * (s1 - N * A3 - rate[0]) + shape[0]
    g2 = k2 * (s2 - N * A + slope - rate[1]) + shape[1]
    return value, g1, g2


@numba.njit(error_model="numpy")
def run_plain(rng, n, S, shape, rate, start, draws, step, leapfrogs):
    kappa, counts = np.empty((draws, 2)), np.empty(draws, np.int64)
    Y, u = np.empty((4 * n + 64, 3, 2)), np.empty(4 * n + 64)
    U, Q, G = np.empty((3, 2)), np.empty((3, 2)), np.empty((3, 2))
    q1, q2 = math.log(start[0]), math.log(start[1])
    h1, h2 = step[0], step[1]
    for sweep in range(draws):
        k1, k2 = math.exp(q1), math.exp(q2)
        draw_orientation(rng, S, k1, k2, U, Q, G)
        m, Y, u = rejected_frames(rng, G, k1, k2, n, Y, u)
        s1, s2 = 0.0, 0.0  # diag(Gᵀ (S + sum of Y))
        for i in range(3):
            t1, t2 = S[i, 0], S[i, 1]
            for j in range(m):
                t1 += Y[j, i, 0]
                t2 += Y[j, i, 1]
            s1 += G[i, 0] * t1
            s2 += G[i, 1] * t2
        p1, p2 = rng.standard_normal(), rng.standard_normal()
        t1, t2 = q1, q2
        value, g1, g2 = log_joint_of_frames(t1, t2, s1, s2, n, u[:m], shape, rate)
        energy = value - 0.5 * (p1 * p1 + p2 * p2)
        for _ in range(leapfrogs):
            p1 += 0.5 * h1 * g1
            p2 += 0.5 * h2 * g2
            t1 += h1 * p1
            t2 += h2 * p2
            value, g1, g2 = log_joint_of_frames(t1, t2, s1, s2, n, u[:m], shape, rate)
            p1 += 0.5 * h1 * g1
            p2 += 0.5 * h2 * g2
        if -rng.standard_exponential() < value - 0.5 * (p1 * p1 + p2 * p2) - energy:
            q1, q2 = t1, t2
        kappa[sweep, 0], kappa[sweep, 1] = math.exp(q1), math.exp(q2)
        counts[sweep] = m
    return kappa, counts


def plain(
    seed: int,
    frames: np.ndarray,
    prior_shape: float | np.ndarray,
    prior_rate: float | np.ndarray,
    draws: int,
    step_size: float | np.ndarray | None = None,
    num_steps: int = 3,
) -> tuple[np.ndarray, np.ndarray]:
    """The same as ``augmented``, by the loop without its devices."""
    shape, rate, step = _pairs(frames, prior_shape, prior_rate, step_size)
    rng, start = np.random.default_rng(seed), moment_start(frames)
    S = frames.sum(0)
    return run_plain(rng, len(frames), S, shape, rate, start, draws, step, num_steps)
