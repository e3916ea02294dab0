"""The plan of a model for given data: box, basis, base, priors, quadrature, arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float
from scipy.special import ndtri

from offcut.errors import ModelError
from offcut.gp import types as t
from offcut.gp.base_density import BaseDensity, FamilyBase, NormalBase, UniformBase
from offcut.gp.basis import Basis, Box, Grid, box_around, sizes_for
from offcut.gp.covariance import Covariance, Hyperparameters, covariance_named
from offcut.gp.data import GPData, limits_of, probes_of, spread_of, varies
from offcut.gp.process import DensityProcess
from offcut.gp.proposals import Layout
from offcut.gp.quadrature import Quadrature, panels, rule
from offcut.models.prior import Prior, PriorLike, is_positive
from offcut.numerics import keys
from offcut.numerics.normal import NormalInverseWishart, data_covariance
from offcut.numerics.normal import features as quadratic
from offcut.numerics.normal import size as number_of_features
from offcut.programs.cache import Programs
from offcut.programs.compiled import Program
from offcut.programs.identity import digest
from offcut.programs.precision import in_float64
from offcut.regions.box import Box as BoxRegion

#: Median and spread of log length-scale, in standard deviations of the data, where not given.
LENGTH_SCALE = (0.6, 0.8)
#: Median and spread of the log variance of f, where not given.
VARIANCE = (2.0, 0.5)
#: Of the prior of the length-scale: what the basis must resolve, and what the margin is made for.
SHORT, MIDDLE = 0.02, 0.5
#: More numbers than this are not kept at the data, but computed again in every sweep.
MOST_FEATURES = 5e7
#: Shape of the Gamma prior of the upper rate; its mean is twice the mean intensity.
RATE = 2.0
#: Most proposals lie within so many standard deviations of the base.
MOST_PROPOSALS = 2.5
#: Of the exact process: observations at most, nodes of the grid along each axis.
MOST_EXACT, NODES = 1000, {1: 80, 2: 16}
#: Draws of a family's prior in which limits of its support are compared.
COMPARED = 64
#: By default the base's expected covariance is that of the data.
DEGREES, STRENGTH = 8.0, 1.0


class Settings:
    """What the user gave, as it came."""

    base: str | NormalInverseWishart | BoxRegion | t.Family
    prior: PriorLike | None
    covariance: str
    basis: str | int | tuple[int, ...] | None
    length_scale: t.Positive | None
    variance: t.Positive | None
    support: t.BoxLike | None
    additive: bool | None
    joint_moves: bool
    rate: tuple[float, float] | None


class Plan(NamedTuple):
    """What a program is compiled for."""

    layout: Layout
    basis: Basis  # or the Grid of the exact process
    covariance: Covariance
    base: BaseDensity
    hyper: Hyperparameters
    process: DensityProcess
    summed: bool  # Z is known by quadrature
    supported: str  # "all" of the base, "box" (none of it beyond the box), "side" or "tails"
    joint: bool  # moves with Y summed out
    moving: bool  # limits of g0's own support depend on its parameters

    @property
    def key(self) -> tuple:
        """Identity: plans with one key have one program."""
        base = (type(self.base), self.base.key)
        return (*self[:3], base, self.hyper.key, self.process.name, *self[6:])


class Prepared(NamedTuple):
    """The plan, its arrays, the box, and how it came about."""

    plan: Plan
    data: GPData
    box: Box
    region: t.Limits  # where data and most proposals lie
    base_prior: NormalInverseWishart | Prior | None
    limits: t.Limits  # of the box, where the density may be positive


@in_float64
def prepare(given: Settings, x: t.HostRows, process: DensityProcess, scalar: bool) -> Prepared:
    """Everything for data; ``scalar`` where they are single numbers."""
    n, d = x.shape
    spread = spread_of(x)
    support = (np.full(d, -np.inf), np.full(d, np.inf))
    if given.support is not None:
        name = "window" if process.rated else "support"
        support = limits_of(f"the {name}", given.support, x)
    elif process.rated:  # a mean gap beyond the first and the last event
        gap = np.where(np.ptp(x, axis=0) > 0, np.ptp(x, axis=0), spread) / max(n - 1, 1)
        support = (x.min(0) - gap, x.max(0) + gap)
    base, base_prior, support = _base(given, x, support, scalar)
    own, moving = _own_limits(base)
    uniform = isinstance(base, UniformBase)
    if uniform:
        low, high = support
        # Events that do not differ say nothing about their scale; the window does.
        spread = np.where(varies(x), np.minimum(spread, high - low), (high - low) / np.sqrt(12.0))
    else:
        low, high = x.min(0), x.max(0)
    unit = spread if given.length_scale is None else np.ones(d)
    scale, scale_prior = _positive("length_scale", given.length_scale, d)
    variance, variance_prior = _positive("variance", given.variance, d)
    shortest = middle = np.broadcast_to(scale, (d,))
    if scale_prior is not None:
        shortest, middle = unit * _quantiles(scale_prior, (SHORT, MIDDLE), d)
    if isinstance(base_prior, NormalInverseWishart):
        low, high = _with_proposals(base_prior, x, low, high)
        low, high = np.maximum(low, support[0]), np.minimum(high, support[1])
    box = box_around(low, high, np.zeros(d) if uniform else spread, middle)
    edges = (
        np.maximum(np.maximum(box.lower, support[0]), own[0]),
        np.minimum(np.minimum(box.upper, support[1]), own[1]),
    )
    covariance = covariance_named(given.covariance)
    basis = _basis(given, covariance, box, shortest, n)
    if isinstance(basis, Grid):
        # f is recorded where the density is, all the way to its limits, and nowhere else.
        box = Box(0.5 * (edges[0] + edges[1]), 0.5 * (edges[1] - edges[0]))
    supported = _supported(base, support, own, moving, box)
    summed = d <= 2 and supported != ""
    priors = {"length_scale": scale_prior, "variance": variance_prior}
    plan = Plan(
        Layout.of(n),
        basis,
        covariance,
        base,
        Hyperparameters({name: one for name, one in priors.items() if one is not None}, d),
        process,
        summed,
        supported,
        summed and bool(given.joint_moves) and not isinstance(basis, Grid),
        moving,
    )
    u = box.inside(x)
    features, fit = _at_the_data(plan, u)
    probes = probes_of(x)
    lower, upper = (box.inside(edge) for edge in support)
    inner_low, inner_high = (box.inside(edge) for edge in edges)
    volume = np.prod(high - low) if uniform else 1.0
    rate = given.rate or (RATE, RATE * volume / (2.0 * max(n, 1)))
    normal = base_prior if isinstance(base_prior, NormalInverseWishart) else None
    # NumPy's, which cost nothing to make; compiled code sees them as JAX's.
    arrays = dict[str, Any](
        n=np.int32(n),
        x=_padded(u.T, plan.layout.rows),
        total=quadratic(u.T).sum(1),
        features=features,
        centre=box.centre,
        half=box.half,
        support=(lower, upper),
        limits=(inner_low, inner_high),
        lower=lower if uniform else np.zeros(d),
        upper=upper if uniform else np.zeros(d),
        base=normal.on_scale(box.centre, box.half) if normal else None,
        length_scale=np.broadcast_to(scale, (d,)).copy(),
        variance=np.asarray(variance, float),
        unit=np.asarray(unit, float),
        volume=np.asarray(volume, float),
        rate=(np.asarray(rate[0], float), np.asarray(rate[1], float)),
        quadrature=quadrature_of(plan, inner_low, inner_high),
        grid=basis.nodes() if isinstance(basis, Grid) else np.zeros((d, 0)),
        fit=fit,
        probes=probes,
        at_probes=_at_probes(basis, u[probes].T),
    )
    return Prepared(plan, GPData(**arrays), box, (low, high), base_prior, edges)


def _base(
    given: Settings, x: t.HostRows, support: t.Limits, scalar: bool
) -> tuple[BaseDensity, NormalInverseWishart | Prior | None, t.Limits]:
    """The base density, its prior, and the support, that of a uniform base included."""
    d, base = x.shape[1], given.base
    if isinstance(base, str) and base == "normal":
        base = NormalInverseWishart(strength=STRENGTH)
    if isinstance(base, NormalInverseWishart):
        return NormalBase(d), _filled(base, x), support
    if isinstance(base, str):
        if not np.isfinite(support).all():
            raise ModelError(
                'base="uniform" needs a bounded support: give support=(lower, upper), one number '
                "each or one for each coordinate"
            )
        return UniformBase(d), None, support
    if isinstance(base, BoxRegion):
        box = limits_of("the base's box", base, x)
        if not np.isfinite(box).all():
            raise ModelError(f"a uniform base needs a bounded box, got {base!r}")
        # Cut to the support a uniform density is uniform.
        cut = (np.maximum(box[0], support[0]), np.minimum(box[1], support[1]))
        if not (cut[0] < cut[1]).all():
            raise ModelError(
                f"the base's box {base!r} and the support {given.support!r} have nothing in common"
            )
        return UniformBase(d), None, cut
    assert given.prior is not None  # the model has refused a family without
    prior = Prior(given.prior)
    return FamilyBase(d, prior, base, scalar), prior, support


def _with_proposals(
    prior: NormalInverseWishart, x: t.HostRows, low: t.HostVector, high: t.HostVector
) -> t.Limits:
    """Where the data are, and most draws of a base fitted to them as if nothing was rejected."""
    n, d = x.shape
    away = x - x.mean(0)
    total = np.diagonal(np.asarray(prior.scale)) + (away**2).sum(0)
    deviation = np.sqrt(total / max(float(prior.degrees or 0) + n - d - 1, 1.0))
    middle = (prior.strength * np.asarray(prior.mean) + x.sum(0)) / (prior.strength + n)
    reach = MOST_PROPOSALS * deviation
    return np.minimum(low, middle - reach), np.maximum(high, middle + reach)


def _filled(base: NormalInverseWishart, x: t.HostRows) -> NormalInverseWishart:
    """A prior scaled to the data: expected covariance that of the data."""
    d = x.shape[1]
    degrees = d + DEGREES if base.degrees is None else base.degrees
    scale = base.scale
    if scale is None:
        scale = max(degrees - d - 1, 1.0) * data_covariance(x)
    else:
        scale = np.reshape(np.asarray(scale, float), (d, d)) if np.size(scale) == d * d else scale
    mean = base.mean if base.mean is None else np.reshape(np.asarray(base.mean, float), -1)
    if mean is not None and mean.size == 1:
        mean = np.broadcast_to(mean, (d,))
    return NormalInverseWishart(mean, base.strength, degrees, scale).for_data(x)


def _own_limits(base: BaseDensity) -> tuple[t.Limits, bool]:
    """Limits of g0's own support as far as they are fixed; whether some are not."""
    everywhere = (np.full(base.d, -np.inf), np.full(base.d, np.inf))
    if not isinstance(base, FamilyBase):
        return everywhere, False
    found = base.limits_before(COMPARED)
    fixed = [(side == side[0]).all(0) for side in found]
    low, high = (
        np.where(one, side[0], endless)
        for one, side, endless in zip(fixed, found, everywhere, strict=True)
    )
    return (low, high), not (fixed[0].all() and fixed[1].all())


def _positive(
    name: str, value: object, d: int
) -> tuple[Float[np.ndarray, "*d"], dist.Distribution | None]:
    """A number or vector, and no prior; or 1, and a prior (ours, where there is no value)."""
    if value is None and name == "variance":
        value = dist.LogNormal(np.log(VARIANCE[0]), VARIANCE[1])
    elif value is None:
        own = dist.LogNormal(np.log(LENGTH_SCALE[0]), LENGTH_SCALE[1])
        value = own.expand(() if d == 1 else (d,))
    if isinstance(value, dist.Distribution):
        if not is_positive(value):
            raise ModelError(
                f"{name} must be positive, and so must its prior; {type(value).__name__} has "
                f"support {value.support}. Use for example numpyro.distributions.LogNormal(0, 0.5)"
            )
        shape = value.batch_shape + value.event_shape
        if shape not in ((), (d,)) or (name == "variance" and shape != ()):
            raise ModelError(
                f"the prior of {name} has shape {shape}; the data have {d} "
                f"{'coordinate' if d == 1 else 'coordinates'}"
            )
        return np.ones(()), value
    try:
        fixed = np.asarray(value, float)
        wrong = fixed.shape not in ((), (d,)) or not (np.isfinite(fixed) & (fixed > 0)).all()
    except (TypeError, ValueError):
        wrong = True
    if wrong or (name == "variance" and fixed.ndim):
        each = "" if name == "variance" else ", or one for each coordinate"
        raise ModelError(
            f"{name} must be a positive number{each}, or a NumPyro distribution as its prior, got "
            f"{value!r}"
        )
    return fixed, None


def _quantiles(
    prior: dist.Distribution, levels: tuple[float, ...], d: int
) -> Float[np.ndarray, "levels d"]:
    """Quantiles of a prior: of a LogNormal by its formula, of others from a fixed sample."""
    core = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if type(core) is dist.LogNormal:
        loc, scale = (np.atleast_1d(np.asarray(part, float)) for part in (core.loc, core.scale))
        values = np.exp(loc + scale * ndtri(np.array(levels))[:, None])
    else:
        many = Program(lambda key: prior.sample(key, (2000,)), "quantiles")
        program = Programs(digest(prior)).kept("quantiles", lambda: many)
        drawn = np.asarray(program(keys.from_seed(0)), float)
        values = np.quantile(drawn, levels, axis=0).reshape(len(levels), -1)
    return np.broadcast_to(values, (len(levels), d))


def _basis(
    given: Settings, covariance: Covariance, box: Box, shortest: t.HostVector, n: int
) -> Basis:
    """As many functions as were asked for, or as the length-scale asks for; or the grid."""
    d = len(shortest)
    if given.basis is None:
        if n > MOST_EXACT or d > 2:
            raise ModelError(
                f"the exact process (basis=None) is for up to {MOST_EXACT:,} observations in one "
                f'or two dimensions, got {n:,} in {d}: leave basis at "auto"'
            )
        return Grid((NODES[d],) * d)
    additive = d > 2 if given.additive is None else bool(given.additive)
    if isinstance(given.basis, str) and given.basis == "auto":
        return Basis(sizes_for(covariance, box, shortest, additive), additive)
    sizes = np.atleast_1d(np.asarray(given.basis))
    fine = sizes.dtype.kind in "iu" and sizes.shape in ((1,), (d,)) and (sizes >= 2).all()
    if not fine:
        raise ModelError(
            'basis must be "auto", None for the exact process, or a whole number of functions '
            f"from 2 on, or one for each coordinate; got {given.basis!r}"
        )
    return Basis(tuple(int(m) for m in np.broadcast_to(sizes, (d,))), additive)


def quadrature_of(plan: Plan, low: t.HostVector, high: t.HostVector, finer: int = 1) -> Quadrature:
    """Nodes between limits in coordinates u; of the exact process for the spline it is read off."""
    basis, d = plan.basis, len(low)
    if not plan.summed:
        return Quadrature.of(np.zeros((d, 0)), np.zeros(0), ())
    if plan.moving:  # along with parameters of the base: these are of [-1, 1]^d
        return rule(lambda axes: (), basis.sizes, -np.ones(d), np.ones(d), finer)
    if isinstance(basis, Grid):
        ends = [np.concatenate([[-1.0], axis, [1.0]]) for axis in basis.axes()]
        return panels(basis.tables, ends, finer)
    return rule(basis.tables, basis.sizes, low, high, finer)


def _supported(base: BaseDensity, support: t.Limits, own: t.Limits, moving: bool, box: Box) -> str:
    """How P0(support) is known.

    "all" of the base is in it, nothing of it is beyond the "box", or it takes a "side" of a normal
    base or the "tails" of a family; "" where it is not known, from three dimensions on.
    """
    if isinstance(base, UniformBase) or not np.isfinite(support).any():
        return "all"
    if not moving and (support[0] <= own[0]).all() and (support[1] >= own[1]).all():
        return "all"
    low, high = np.maximum(support[0], own[0]), np.minimum(support[1], own[1])
    if (low >= box.lower).all() and (high <= box.upper).all():
        return "box"
    if base.d > 2:
        return ""
    return "side" if isinstance(base, NormalBase) else "tails"


def _at_the_data(
    plan: Plan, u: t.HostRows
) -> tuple[Float[np.ndarray, "m rows"] | None, tuple[t.Table, t.Table]]:
    """phi at the data where that fits into memory, and the two matrices of the joint move."""
    n, d = u.shape
    basis, empty = plan.basis, np.zeros((0, 0))
    if isinstance(basis, Grid):
        return None, (empty, empty)
    m, rows_ = basis.number, plan.layout.rows
    keep = rows_ * m <= MOST_FEATURES
    parts = [np.zeros((m, 0))]
    gram, fitted = np.zeros((m, m)), np.zeros((m, number_of_features(d)))
    for start in range(0, n, 16384):
        piece = u[start : start + 16384].T
        rows = basis.features(piece)
        gram = gram + rows @ rows.T
        fitted = fitted + rows @ quadratic(piece).T
        if keep:
            parts.append(rows)
    stored = _padded(np.concatenate(parts, axis=1), rows_) if keep else None
    return stored, (gram, fitted) if plan.summed else (empty, empty)


def _at_probes(basis: Basis, u: t.HostColumns) -> t.HostFeatures:
    """phi at some observations; those of the grid, and where there are none, are not needed."""
    known = u.shape[1] and not isinstance(basis, Grid)
    return basis.features(u) if known else np.zeros((basis.number, u.shape[1]))


def _padded(columns: Float[np.ndarray, "k n"], rows: int) -> Float[np.ndarray, "k rows"]:
    """So many columns: the first is repeated behind the last; zeros where there is none."""
    padded = np.zeros((len(columns), rows))
    padded[:, : columns.shape[1]] = columns
    padded[:, columns.shape[1] :] = columns[:, :1] if columns.shape[1] else 0.0
    return padded
