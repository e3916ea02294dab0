"""What draws of f and of the base amount to: densities, intensities, bands, new points, Y."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.special import expit, logsumexp

from offcut.base import MOST_REJECTED
from offcut.errors import DataError, SettingsError
from offcut.gp import types as t
from offcut.gp.plan import Prepared
from offcut.programs.precision import in_float64

#: Numbers in one piece of a table of draws by points.
PIECE = 4_000_000
#: Proposals for each draw where the normaliser is not known by quadrature.
MONTE_CARLO = 4096
MOST_ROUNDS = 10_000

#: Of one value for each draw and point.
EachDraw = Float[np.ndarray, "chain draw point"]


class Bands(NamedTuple):
    """Pointwise summaries of a curve or surface over the draws, each of shape (point,)."""

    points: np.ndarray
    mean: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability: float


class Comparison(NamedTuple):
    """The difference of two densities (first less second) at points."""

    points: np.ndarray
    mean: np.ndarray
    median: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability_greater: np.ndarray  # that the first exceeds the second


def bands(points: ArrayLike, values: EachDraw, probability: float) -> Bands:
    """Bands of values at points."""
    if not 0 < probability < 1:
        raise SettingsError(f"probability must lie between 0 and 1, got {probability!r}")
    flat = values.reshape(-1, values.shape[-1])
    tail = 0.5 * (1 - probability)
    low, middle, high = np.quantile(flat, [tail, 0.5, 1 - tail], axis=0)
    return Bands(np.asarray(points, float), flat.mean(0), middle, low, high, float(probability))


def comparison(
    points: ArrayLike,
    first: EachDraw,
    second: Float[np.ndarray, "other_chain other_draw point"],
    probability: float,
) -> Comparison:
    """Of densities of two independent posteriors."""
    a, b = (values.reshape(-1, values.shape[-1]) for values in (first, second))
    number = min(len(a), len(b))
    # Chains are thinned to one length and paired at random: the posteriors are independent.
    order = np.random.default_rng(0).permutation(number)
    a = a[np.linspace(0, len(a) - 1, number).astype(int)]
    b = b[np.linspace(0, len(b) - 1, number).astype(int)][order]
    difference = a - b
    return Comparison(*bands(points, difference[None], probability)[:5], (difference > 0).mean(0))


class Draws(NamedTuple):
    """All draws in a row, and what they were prepared with.

    shape : chains and draws of each. budget : of |Y|, where the run had one.
    """

    prepared: Prepared
    w: Float[np.ndarray, "draws m"]
    p: Float[np.ndarray, "draws k"]
    log_normaliser: Float[np.ndarray, " draws"]
    rate: Float[np.ndarray, " draws"]
    shape: tuple[int, int]
    budget: int

    @classmethod
    @in_float64
    def of(cls, posterior: xr.DataTree, prepared: Prepared) -> Draws:
        """The draws of a posterior."""
        variables = posterior["posterior"].dataset.items()
        flat = {str(name): v.values.reshape(-1, *v.shape[2:]) for name, v in variables}
        w, p = flat["weights"], np.asarray(prepared.plan.base.positions(flat, prepared.box))
        stats = posterior["sample_stats"].dataset
        if "log_normaliser" in stats:
            log_Z = stats["log_normaliser"].values.reshape(-1)
        else:
            log_Z = _estimated(prepared, w, p)
        # A sampler without rejections names a budget, but its draws are not restricted by it.
        named = posterior.attrs.get("budget", "none")
        free = isinstance(named, str) or not posterior.attrs.get("draws_rejections", 1)
        chains, draws = posterior["posterior"].dataset["weights"].shape[:2]
        budget = MOST_REJECTED if free else int(named)
        rate = flat.get("rate", np.ones(len(p)))
        return cls(prepared, w, p, log_Z, rate, (chains, draws), budget)

    def function(self, points: ArrayLike) -> EachDraw:
        """f at points."""
        return (self.w @ self._features(self.at(points))).reshape(*self.shape, -1)

    def log_density(self, points: ArrayLike) -> EachDraw:
        """log g at points."""
        pieces = [self._log_density(u) for u in self._pieces(points)]
        return np.concatenate(pieces, axis=1).reshape(*self.shape, -1)

    def log_mean_density(self, points: ArrayLike) -> Float[np.ndarray, " point"]:
        """log of the posterior mean of the density."""
        with np.errstate(divide="ignore"):
            sums = [logsumexp(self._log_density(u), axis=0) for u in self._pieces(points)]
        return np.concatenate(sums) - np.log(len(self.w))

    def intensity(self, points: ArrayLike) -> EachDraw:
        """lambda sigma(f); zero outside the window."""
        u = self.at(points)
        values = self.rate[:, None] * expit(self.w @ self._features(u))
        return (values * supported(self.prepared, u)).reshape(*self.shape, -1)

    @in_float64
    def predict(self, size: int | np.integer, seed: int) -> Float[np.ndarray, "size d"]:
        """New points, each from a draw chosen at random: g0, accepted with sigma(f)."""
        if not isinstance(size, int | np.integer) or size < 1:
            raise SettingsError(f"size must be a whole number from 1 on, got {size!r}")
        rng = np.random.default_rng(seed)
        rows = rng.integers(len(self.w), size=size)
        result = np.empty((size, self.prepared.plan.basis.d))
        pending = np.arange(size)
        for attempt in range(MOST_ROUNDS):
            u = proposed(self.prepared, self.p[rows[pending]], seed, attempt)
            f = np.einsum("sm,ms->s", self.w[rows[pending]], self._features(u))
            accepted = (rng.random(len(pending)) < expit(f)) & supported(self.prepared, u)
            result[pending[accepted]] = u.T[accepted]
            pending = pending[~accepted]
            if not len(pending):
                return self.prepared.box.outside(result)
        raise SettingsError(
            f"{len(pending)} of {size} points found no accepted proposal in {MOST_ROUNDS:,} rounds"
        )

    @in_float64
    def rejections(self, number: int, seed: int) -> list[Float[np.ndarray, "_ d"]]:
        """Y for ``number`` draws, evenly spaced, from its conditional distribution."""
        rng = np.random.default_rng(seed)
        chosen = np.unique(np.linspace(0, len(self.w) - 1, number).astype(int))
        counts = self._counts(rng, chosen)
        sets = []
        for place, (row, count) in enumerate(zip(chosen, counts, strict=True)):
            found = [np.empty((0, self.prepared.plan.basis.d))]
            have, attempt = 0, 0
            while have < count:
                size = int(np.clip(2 * (count - have), 256, 65_536))
                many = np.broadcast_to(self.p[row], (size, self.p.shape[1]))
                u = proposed(self.prepared, many, seed + 1 + place, attempt)
                f = self.w[row] @ self._features(u)
                kept = ~((rng.random(size) < expit(f)) & supported(self.prepared, u))
                found.append(u.T[kept])
                have, attempt = have + int(kept.sum()), attempt + 1
            sets.append(self.prepared.box.outside(np.concatenate(found)[:count]))
        return sets

    def at(self, points: ArrayLike) -> t.HostColumns:
        """Points as the user gave them, in coordinates of the box."""
        d = self.prepared.plan.basis.d
        given = np.asarray(points, float)
        if given.ndim == 0 or (given.ndim == 1 and d > 1):
            given = given.reshape(1, -1)
        x = given.reshape(-1, 1) if given.ndim == 1 else given
        if x.ndim != 2 or x.shape[1] != d:
            raise DataError(
                f"points must be (number, {d})" + (" or a vector" if d == 1 else "") + f", got "
                f"shape {given.shape}"
            )
        if np.isnan(x).any():
            raise DataError("points must not be NaN")
        return self.prepared.box.inside(x).T

    def _pieces(self, points: ArrayLike) -> list[Float[np.ndarray, "d _"]]:
        """Few enough points at a time for tables of draws by points."""
        u, step = self.at(points), max(1, PIECE // len(self.w))
        return [u[:, start : start + step] for start in range(0, u.shape[1], step)]

    def _features(self, u: t.HostColumns) -> t.HostFeatures:
        return self.prepared.plan.basis.features(u)

    @in_float64
    def _log_density(self, u: t.HostColumns) -> Float[np.ndarray, "draws point"]:
        plan, data = self.prepared.plan, self.prepared.data
        f = self.w @ self._features(u)
        log_g0 = plan.base.log_density_each(self.p, u, data)
        values = log_g0 - np.logaddexp(0.0, -f) - self.log_normaliser[:, None]
        values = values - np.log(self.prepared.box.half).sum()
        return np.where(supported(self.prepared, u)[None, :], values, -np.inf)

    def _counts(
        self, rng: np.random.Generator, rows: Int[np.ndarray, " r"]
    ) -> Int[np.ndarray, " r"]:
        """|Y| given each draw: negative binomial or Poisson, and within the budget of the run."""
        Z, plan = np.exp(self.log_normaliser[rows]), self.prepared.plan

        def draw(which: Int[np.ndarray, " w"]) -> Int[np.ndarray, " w"]:
            if plan.process.rated:
                volume = float(self.prepared.data.volume)
                return rng.poisson(self.rate[rows[which]] * volume * (1 - Z[which]))
            return rng.negative_binomial(int(self.prepared.data.n), Z[which])

        counts = draw(np.arange(len(rows)))
        for _ in range(MOST_ROUNDS):
            over = np.flatnonzero(counts > self.budget)
            if not len(over):
                break
            counts[over] = draw(over)
        return np.minimum(counts, self.budget)


def supported(prepared: Prepared, u: t.HostColumns) -> Bool[np.ndarray, " point"]:
    """Whether points are in the support."""
    low, high = (np.asarray(edge)[:, None] for edge in prepared.data.support)
    return np.asarray(((u >= low) & (u <= high)).all(0))


def proposed(
    prepared: Prepared, p: Float[np.ndarray, "r k"], seed: int, attempt: int
) -> Float[np.ndarray, "d r"]:
    """One proposal of each row of parameters."""
    rng = np.random.default_rng([abs(seed), int(seed < 0), attempt])
    return prepared.plan.base.propose_each(rng, p, prepared.data)


@in_float64
def _estimated(
    prepared: Prepared, w: Float[np.ndarray, "draws m"], p: Float[np.ndarray, "draws k"]
) -> Float[np.ndarray, " draws"]:
    """log Z by Monte Carlo, where there are too many dimensions for quadrature."""
    result = np.empty(len(w))
    for row in range(len(w)):
        u = proposed(prepared, np.broadcast_to(p[row], (MONTE_CARLO, p.shape[1])), 0, 0)
        accepted = expit(w[row] @ prepared.plan.basis.features(u)) * supported(prepared, u)
        result[row] = np.log(accepted.mean())
    return result
