"""Models drawn at random, each with a likelihood written a second time in NumPy and SciPy.

A ``Spec`` is one choice of family, window or selection, covariates, censoring, noise, kernel and n.
``model_and_data`` writes it for Offcut, in NumPyro's terms; ``posterior_grid`` writes the same
posterior for quadrature, in SciPy's, and shares nothing with it but numbers: masses of windows and
zones are differences of distribution functions, selection is integrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import numpyro.distributions as dist
from hypothesis import strategies as st
from scipy import stats

import offcut
from offcut.regions import Box
from statistical.truth import Grid, panels

NOISE = 0.4
ROUNDING = 0.5
SPREAD_SD = 0.25
#: Where quadrature for a selection begins and ends: all but 1e-9 of every family it is used with.
LINE, POSITIVE, COUNTS = "line", "positive", "counts"
RANGES = {LINE: (-12.0, 12.0), POSITIVE: (1e-9, 60.0)}
MOST_COUNTED = 80


@dataclass(frozen=True)
class Family:
    """A family with a parameter t (and a spread s where it has one), moved by a covariate."""

    kind: str
    numpyro: object  # (t, s, shift) -> NumPyro distribution
    scipy: object  # (t, s, shift) -> frozen SciPy distribution
    prior: tuple  # NumPyro distribution, SciPy distribution, bounds of the grid
    has_spread: bool = False


_LOCATION = (lambda: dist.Normal(0.2, 0.5), stats.norm(0.2, 0.5), (-3.0, 3.4))
_RATE = (lambda: dist.Gamma(4.0, 4.0), stats.gamma(4.0, scale=0.25), (0.01, 5.5))
_SIZE = (lambda: dist.LogNormal(0.2, 0.3), stats.lognorm(0.3, scale=np.exp(0.2)), (0.2, 6.0))

FAMILIES = {
    "normal": Family(
        LINE,
        lambda t, s, shift: dist.Normal(t + shift, s),
        lambda t, s, shift: stats.norm(t + shift, s),
        _LOCATION,
        has_spread=True,
    ),
    "uniform": Family(
        POSITIVE,
        lambda t, s, shift: dist.Uniform(0.0, t * jax.numpy.exp(shift)),
        lambda t, s, shift: stats.uniform(0.0, t * np.exp(shift)),
        _SIZE,
    ),
    "exponential": Family(
        POSITIVE,
        lambda t, s, shift: dist.Exponential(t * jax.numpy.exp(-shift)),
        lambda t, s, shift: stats.expon(scale=np.exp(shift) / t),
        _RATE,
    ),
    "poisson": Family(
        COUNTS,
        lambda t, s, shift: dist.Poisson(t * jax.numpy.exp(shift)),
        lambda t, s, shift: stats.poisson(t * np.exp(shift)),
        (lambda: dist.Gamma(6.0, 2.0), stats.gamma(6.0, scale=0.5), (0.05, 14.0)),
    ),
    "lognormal": Family(
        POSITIVE,
        lambda t, s, shift: dist.LogNormal(t + shift, 0.6),
        lambda t, s, shift: stats.lognorm(0.6, scale=np.exp(t + shift)),
        _LOCATION,
    ),
    "gamma": Family(
        POSITIVE,
        lambda t, s, shift: dist.Gamma(2.0, t * jax.numpy.exp(-shift)),
        lambda t, s, shift: stats.gamma(2.0, scale=np.exp(shift) / t),
        _RATE,
    ),
    "weibull": Family(
        POSITIVE,
        lambda t, s, shift: dist.Weibull(t * jax.numpy.exp(shift), 1.5),
        lambda t, s, shift: stats.weibull_min(1.5, scale=t * np.exp(shift)),
        _SIZE,
    ),
    "laplace": Family(
        LINE,
        lambda t, s, shift: dist.Laplace(t + shift, s),
        lambda t, s, shift: stats.laplace(t + shift, s),
        _LOCATION,
        has_spread=True,
    ),
    "logistic": Family(
        LINE,
        lambda t, s, shift: dist.Logistic(t + shift, s),
        lambda t, s, shift: stats.logistic(t + shift, s),
        _LOCATION,
        has_spread=True,
    ),
    "student": Family(
        LINE,
        lambda t, s, shift: dist.StudentT(5.0, t + shift, s),
        lambda t, s, shift: stats.t(5.0, t + shift, s),
        _LOCATION,
        has_spread=True,
    ),
}

#: Windows as open intervals; for counts they hold the whole numbers strictly between.
WINDOWS = {
    LINE: {
        "above": [(-0.4, np.inf)],
        "between": [(-0.9, 1.6)],
        "two pieces": [(-np.inf, -0.3), (0.5, np.inf)],
        "everything": [(-np.inf, np.inf)],
    },
    POSITIVE: {
        "above": [(0.3, np.inf)],
        "between": [(0.2, 2.5)],
        "two pieces": [(-np.inf, 0.6), (1.1, np.inf)],
        "everything": [(-np.inf, np.inf)],
    },
    COUNTS: {
        "above": [(0.5, np.inf)],
        "between": [(0.5, 6.5)],
        "two pieces": [(-np.inf, 1.5), (2.5, np.inf)],
        "everything": [(-np.inf, np.inf)],
    },
}
#: Families whose tails are light enough for a selection integrated over RANGES.
LIGHT = ("normal", "exponential", "gamma", "weibull", "poisson", "uniform")


@dataclass(frozen=True)
class Spec:
    """One model with its data."""

    family: str
    window: str  # of WINDOWS, "selection" or "by covariate"
    written: str  # the window as a "function" or as a "region"
    shifted: bool  # a covariate moves the base
    censoring: str  # "none", "clamp" or "rounded rows"
    noisy: bool
    spread: str  # "constant", "number", "delta" or "inferred"
    kernel: str
    n: int
    seed: int

    @property
    def has_covariates(self) -> bool:
        return self.shifted or self.window == "by covariate" or self.censoring == "rounded rows"

    @property
    def names(self) -> list[str]:
        return ["t", "s"] if self.spread == "inferred" else ["t"]


#: Method and kernel, by a name for both.
KERNELS: dict[str, dict] = {
    "default": {},
    "NUTS": {"kernel": offcut.NUTS()},
    "HMC": {"kernel": offcut.HMC(num_steps=6)},
    "RandomWalk": {"kernel": offcut.RandomWalk()},
    "Exchange": {"method": "exchange"},
    "PseudoMarginal": {"method": offcut.PseudoMarginal(acceptances=20)},
    "Direct": {"method": "direct"},
}
#: The pseudo-marginal sampler sticks where n is large (and draws twenty times as many counts, which
#: take JAX their time): that is slow, not wrong.
MOST_PSEUDO_MARGINAL = 10
#: Families whose window's mass method="direct" knows.
DIRECT = ("normal", "exponential", "lognormal", "weibull", "laplace", "logistic")


@st.composite
def specs(draw, family=None, kernel=None, n=None) -> Spec:
    """Any model; those arguments that are given are fixed."""
    family = family or draw(st.sampled_from(list(FAMILIES)))
    kind = FAMILIES[family].kind
    noisy = family == "normal" and draw(st.sampled_from([False, False, True]))
    windows = [*WINDOWS[kind], "by covariate"] + (["selection"] if family in LIGHT else [])
    window = draw(st.sampled_from(windows))
    selection = window == "selection"
    written = "function"
    if window in WINDOWS[kind]:
        written = draw(st.sampled_from(["function", "region"]))
    censorings = ["none", "clamp"] + (["rounded rows"] if kind != COUNTS and not noisy else [])
    censoring = "none" if noisy else draw(st.sampled_from(censorings))
    spreads = ["constant", "number", "delta", "inferred"]
    spread = draw(st.sampled_from(spreads)) if FAMILIES[family].has_spread else "constant"
    shifted = draw(st.booleans())
    unfit = ("Direct", "PseudoMarginal") if kind == COUNTS else ("Direct",)
    fitting = [name for name in KERNELS if name not in unfit]
    if family in DIRECT and written == "region" and not noisy and not selection:
        fitting.append("Direct")
    kernel = kernel or draw(st.sampled_from(fitting))
    most = MOST_PSEUDO_MARGINAL if kernel == "PseudoMarginal" else 40
    n = n or draw(st.one_of(st.sampled_from([1, 2]), st.integers(1, most)))
    seed = draw(st.integers(0, 2**16))
    return Spec(family, window, written, shifted, censoring, noisy, spread, kernel, n, seed)


def accept(kind, y, numpy=np):
    """The probability of being recorded, in a selection."""
    if kind == LINE:
        return 1.0 / (1.0 + numpy.exp(-0.5 - 1.5 * y))
    return numpy.exp(-0.3 * y) if kind == POSITIVE else 1.0 - 0.8 ** (y + 1.0)


CLAMP = {LINE: 1.1, POSITIVE: 1.3, COUNTS: 4}


@dataclass(frozen=True)
class Data:
    """Recorded values with all that is known of each."""

    recorded: np.ndarray
    shift: np.ndarray
    limit: np.ndarray  # lower end of the window, where it is a covariate
    low: np.ndarray  # the zone of a censored value; NaN where the value is known
    high: np.ndarray


def simulate(spec: Spec) -> Data:
    """Values from a theta of the prior that lets enough of them pass, recorded as the spec says."""
    family, random = FAMILIES[spec.family], np.random.default_rng(spec.seed)
    n, kind = spec.n, family.kind
    shift = random.choice([-0.4, 0.0, 0.3], n) if spec.shifted else np.zeros(n)
    limit = random.choice(
        {LINE: [-0.6, 0.2], POSITIVE: [0.1, 0.5], COUNTS: [0.5, 1.5]}[kind], n
    ).astype(float)
    values = np.full(n, np.nan)
    while np.isnan(values).any():
        t = family.prior[1].rvs(random_state=random)
        values = np.full(n, np.nan)
        for _ in range(60):
            y = family.scipy(t, 1.0, shift).rvs(size=n, random_state=random).astype(float)
            if spec.noisy:
                y = y + NOISE * random.standard_normal(n)
            kept = np.isnan(values) & passes(spec, y, limit, random)
            values[kept] = y[kept]
    low = high = np.full(n, np.nan)
    if spec.censoring == "clamp":
        clamp = CLAMP[kind]
        beyond = values >= clamp
        values = np.minimum(values, clamp)
        low = np.where(beyond, clamp - 0.5 if kind == COUNTS else clamp, np.nan)
        high = np.where(beyond, np.inf, np.nan)
    if spec.censoring == "rounded rows":
        rounded = random.random(n) < 0.7
        low = np.where(rounded, np.floor(values / ROUNDING) * ROUNDING, np.nan)
        high = low + ROUNDING
        # The recorded value is any one of the cell that the window lets pass: the value itself.
    return Data(values, shift, limit, low, high)


def passes(spec, y, limit, random):
    if spec.window == "by covariate":
        return y > limit
    kind = FAMILIES[spec.family].kind
    if spec.window == "selection":
        return random.random(len(y)) < accept(kind, y)
    return np.any([(y > a) & (y < b) for a, b in WINDOWS[kind][spec.window]], axis=0)


def model_and_data(spec: Spec):
    """What a user would write: the model, its data and its covariates."""
    family, data = FAMILIES[spec.family], simulate(spec)
    kind = family.kind
    prior = {"t": family.prior[0]()}
    if spec.spread == "number":
        prior["s"] = 1.0
    elif spec.spread == "delta":
        prior["s"] = dist.Delta(1.0)
    elif spec.spread == "inferred":
        prior["s"] = dist.LogNormal(0.0, SPREAD_SD)

    def base(theta, *c):
        shift = c[0]["shift"] if spec.shifted else 0.0
        return family.numpyro(theta["t"], theta.get("s", 1.0), shift)

    options = {}
    if spec.censoring == "clamp":
        options["censored"] = offcut.Clamped(upper=CLAMP[kind])
    elif spec.censoring == "rounded rows":
        options["censored"] = lambda y, c: (y >= c["low"]) & (y < c["high"])
    if spec.noisy:
        options["noise"] = lambda theta, true, *c: dist.Normal(true, NOISE)
    if spec.window == "selection":

        def log_accept(theta, y, *c):
            return jax.numpy.log(accept(kind, y, jax.numpy))

        model = offcut.selected(prior, base, log_accept, **options)
    else:
        model = offcut.truncated(prior, base, window(spec), **options)
    recorded = data.recorded.astype(int) if kind == COUNTS else data.recorded
    covariates = None
    if spec.has_covariates:
        # A row whose value is known has an empty zone.
        low, high = (np.nan_to_num(end, nan=1e9) for end in (data.low, data.high))
        covariates = {"shift": data.shift, "limit": data.limit, "low": low, "high": high}
    return model, recorded, covariates


def window(spec: Spec):
    if spec.window == "by covariate":
        return lambda y, c: y > c["limit"]
    pieces = WINDOWS[FAMILIES[spec.family].kind][spec.window]
    if spec.written == "region":
        region = Box(*pieces[0])
        for piece in pieces[1:]:
            region = region | Box(*piece)
        return region

    def inside(y, *c):
        found = False
        for low, high in pieces:
            found = found | ((y > low) & (y < high))
        return found

    return inside


def posterior_grid(spec: Spec, nodes=400) -> Grid:
    """The posterior by quadrature, from SciPy's densities and distribution functions."""
    family, data = FAMILIES[spec.family], simulate(spec)
    noise = NOISE if spec.noisy else 0.0

    def log_density(t, s=1.0):
        total = family.prior[1].logpdf(t)
        if spec.spread == "inferred":
            total = total + stats.lognorm.logpdf(s, SPREAD_SD)
        seen = np.sqrt(s**2 + noise**2)  # noise is added to normals only
        bases = {shift: family.scipy(t, seen, shift) for shift in np.unique(data.shift)}
        masses = {}  # many rows share theirs

        def mass(row, pieces):
            key = (data.shift[row], tuple(pieces))
            if key not in masses:
                masses[key] = sum(_mass(spec, bases[key[0]], *piece) for piece in pieces)
            return np.log(masses[key])

        with np.errstate(divide="ignore"):
            for row in range(spec.n):
                pieces = _pieces(spec, data, row)
                if np.isnan(data.low[row]):
                    base, x = bases[data.shift[row]], data.recorded[row]
                    total = total + (base.logpmf(x) if family.kind == COUNTS else base.logpdf(x))
                else:
                    cut = [(max(a, data.low[row]), min(b, data.high[row])) for a, b in pieces]
                    total = total + mass(row, [(a, b) for a, b in cut if a < b])
                total = total - mass(row, pieces)
        return total

    low, high = family.prior[2]
    if spec.family == "uniform":  # the posterior jumps where the largest value is
        least = np.where(np.isnan(data.low), data.recorded, np.maximum(data.low, 0.0))
        low = max(low, float(np.max(least * np.exp(-data.shift))))
        if spec.window == "by covariate":
            low = max(low, float(np.max(data.limit * np.exp(-data.shift))))
    bounds = {"t": (low, high, nodes)}
    if spec.spread == "inferred":
        bounds = {"t": (low, high, 120), "s": (0.3, 3.2, 120)}
    return Grid(log_density, **bounds)


def _pieces(spec, data, i):
    if spec.window == "by covariate":
        return [(data.limit[i], np.inf)]
    if spec.window == "selection":
        return [(-np.inf, np.inf)]
    return WINDOWS[FAMILIES[spec.family].kind][spec.window]


def _mass(spec, base, low, high):
    """P(low < y < high and recorded), by SciPy."""
    kind = FAMILIES[spec.family].kind
    if spec.window != "selection":
        return base.cdf(high) - base.cdf(low)
    if kind == COUNTS:
        counts = np.arange(MOST_COUNTED)
        counts = counts[(counts > low) & (counts < high)]
        return sum(base.pmf(k) * accept(kind, k) for k in counts)
    first, last = RANGES[kind]
    low, high = max(low, first), min(high, last)
    if spec.family == "uniform":  # up to its own end, which is part of theta
        end = base.args[1]
        bottom, top = np.minimum(low, end), np.minimum(high, end)
        node, weight = panels(0.0, 1.0, 40)
        y = bottom + (top - bottom) * node[:, None]
        return np.sum(accept(kind, y) * weight[:, None], axis=0) * (top - bottom) / end
    node, weight = panels(low, high, 160)
    density = base.pdf(node.reshape(-1, *[1] * np.ndim(base.mean())))
    return np.tensordot(weight * accept(kind, node), density, axes=1)
