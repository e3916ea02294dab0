"""The plan of a model for given data: box, basis, base, priors, quadrature, arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from offcut.errors import ModelError
from offcut.gp.base_density import BaseDensity, FamilyBase, NormalBase, UniformBase
from offcut.gp.basis import Basis, Box, box_around, sizes_for
from offcut.gp.covariance import Covariance
from offcut.gp.hyperparameters import Hyperparameters
from offcut.gp.process import DensityProcess, IntensityProcess
from offcut.gp.proposals import Layout
from offcut.gp.quadrature import Grid, panels, rule
from offcut.gp.sampler import GPData, Plan
from offcut.gp.settings import (
    check_inside,
    default_length_scale,
    default_variance,
    limits,
    positive,
    quantiles,
    spread_of,
    varies,
)
from offcut.models.prior import Prior
from offcut.numerics.normal import NormalInverseWishart, data_covariance
from offcut.numerics.normal import features as quadratic
from offcut.numerics.normal import size as number_of_features
from offcut.programs.precision import in_float64

#: Observations at which the log density is followed, at these quantiles of the first coordinate.
PROBES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: Of the prior of the length-scale: what the basis must resolve, and what the margin is made for.
SHORT, MIDDLE = 0.02, 0.5
#: More numbers than this are not kept at the data, but computed again in every sweep.
MOST_FEATURES = 5e7
#: Shape of the Gamma prior of the upper rate; its mean is twice the mean intensity.
RATE = 2.0
#: Most proposals lie within so many standard deviations of the base.
MOST_PROPOSALS = 2.5
#: How Y is renewed by default: all of it, in every sweep.
FRESH = "fresh"
#: Of the exact process: observations at most, nodes of the grid along each axis.
MOST_EXACT, NODES = 1000, {1: 80, 2: 16}
#: Draws of a family's prior in which limits of its support are compared.
COMPARED = 64
#: By default the base's expected covariance is that of the data.
DEGREES, STRENGTH = 8.0, 1.0


class GPSettings(NamedTuple):
    """What the user gave, as it came."""

    base: Any
    prior: Any
    covariance: Covariance
    basis: Any
    length_scale: Any
    variance: Any
    support: Any
    additive: bool | None
    joint_moves: bool
    nugget: float
    rejections: Any
    rate: tuple[float, float] | None


class Prepared(NamedTuple):
    """The plan, its arrays, the box, and how it came about."""

    plan: Plan
    data: GPData
    box: Box
    region: tuple[np.ndarray, np.ndarray]  # where data and most proposals lie
    base_prior: Any
    limits: tuple[np.ndarray, np.ndarray]  # of the box, where the density may be positive


@in_float64
def prepare(settings: GPSettings, x: np.ndarray, process: Any, scalar: bool) -> Prepared:
    """Everything for data (n, d)."""
    n, d = x.shape
    spread = spread_of(x)
    support = (np.full(d, -np.inf), np.full(d, np.inf))
    if settings.support is not None:
        name = "support" if process.name == "density" else "window"
        support = limits(name, settings.support, d)
        check_inside(f"the {name}", x, *support)
    elif process.rated:  # a mean gap beyond the first and the last event
        gap = np.where(np.ptp(x, axis=0) > 0, np.ptp(x, axis=0), spread) / max(n - 1, 1)
        support = (x.min(0) - gap, x.max(0) + gap)
    base, base_prior, support = _base(settings, x, support, scalar)
    own, moving = _own_limits(base, d)
    if isinstance(base, UniformBase):
        low, high = support
        # Events that do not differ say nothing about their scale; the window does.
        spread = np.where(varies(x), np.minimum(spread, high - low), (high - low) / np.sqrt(12.0))
    else:
        low, high = x.min(0), x.max(0)
    ours = settings.length_scale is None
    unit = spread if ours else np.ones(d)
    length_scale = default_length_scale(d) if ours else settings.length_scale
    variance = default_variance() if settings.variance is None else settings.variance
    fixed_scale, scale_prior = positive("length_scale", length_scale, d)
    fixed_variance, variance_prior = positive("variance", variance, d)
    if scale_prior is None:
        shortest = middle = np.broadcast_to(np.asarray(fixed_scale), (d,))
    else:
        shortest, middle = unit * quantiles(scale_prior, (SHORT, MIDDLE), d)
    beyond = np.zeros(d) if isinstance(base, UniformBase) else spread
    if isinstance(base, NormalBase):
        low, high = _with_proposals(base_prior, x, low, high)
        low, high = np.maximum(low, support[0]), np.minimum(high, support[1])
    box = box_around(low, high, beyond, middle)
    edges = tuple(
        cut(cut(of_box, of_support), of_base)
        for cut, of_box, of_support, of_base in zip(
            (np.maximum, np.minimum), (box.lower, box.upper), support, own, strict=True
        )
    )
    exact = settings.basis is None
    basis: Basis | Grid
    if exact:
        _check_exact(n, d)
        basis = Grid((NODES[d],) * d)
        # f is recorded where the density is, all the way to its limits, and nowhere else.
        box = Box(0.5 * (edges[0] + edges[1]), 0.5 * (edges[1] - edges[0]))
    else:
        additive = d > 2 if settings.additive is None else bool(settings.additive)
        sizes = _sizes(settings.basis, settings.covariance, box, shortest, additive, d)
        basis = Basis(sizes, additive)
    supported = _supported(base, support, own, moving, box)
    summed = d <= 2 and supported != ""
    hyper = Hyperparameters(
        {
            name: prior
            for name, prior in (("length_scale", scale_prior), ("variance", variance_prior))
            if prior is not None
        },
        d,
    )
    plan = Plan(
        Layout.of(n),
        basis,
        settings.covariance,
        base,
        hyper,
        process,
        summed,
        supported,
        summed and settings.joint_moves and not exact and settings.rejections == FRESH,
        moving,
    )
    u = box.inside(x)
    stored, fit = ((), ()) if isinstance(basis, Grid) else _at_the_data(basis, u)
    within = tuple(jnp.asarray(box.inside(edge)) for edge in support)
    uniform = isinstance(base, UniformBase)
    volume = np.prod(high - low) if uniform else 1.0
    data = GPData(
        x=jnp.asarray(u.T),
        features=stored,
        centre=jnp.asarray(box.centre),
        half=jnp.asarray(box.half),
        support=(within[0], within[1]),
        limits=(jnp.asarray(box.inside(edges[0])), jnp.asarray(box.inside(edges[1]))),
        lower=within[0] if uniform else jnp.zeros(d),
        upper=within[1] if uniform else jnp.zeros(d),
        base=base_prior.on_scale(box.centre, box.half) if isinstance(base, NormalBase) else (),
        length_scale=jnp.asarray(
            np.broadcast_to(1.0 if fixed_scale is None else fixed_scale, (d,))
        ),
        variance=jnp.asarray(1.0 if fixed_variance is None else fixed_variance),
        unit=jnp.asarray(unit),
        volume=jnp.asarray(volume),
        rate=tuple(map(jnp.asarray, settings.rate or (RATE, RATE * volume / (2.0 * max(n, 1))))),  # type: ignore[arg-type]
        quadrature=quadrature_of(plan, box.inside(edges[0]), box.inside(edges[1])),
        grid=jnp.asarray(basis.nodes()) if isinstance(basis, Grid) else (),
        fit=fit if summed else (),
        probes=jnp.asarray(_probes(x)),
    )
    return Prepared(plan, data, box, (low, high), base_prior, edges)


def _base(
    settings: GPSettings, x: np.ndarray, support: tuple, scalar: bool
) -> tuple[BaseDensity, Any, tuple]:
    """The base density, its prior, and the support, that of a uniform base included."""
    d, base = x.shape[1], settings.base
    if isinstance(base, str) and base == "normal":
        base = NormalInverseWishart(strength=STRENGTH)
    if isinstance(base, NormalInverseWishart):
        return NormalBase(d), _filled(base, x), support
    if isinstance(base, str) and base.startswith("uniform"):
        if not np.isfinite(support).all():
            raise ModelError(
                'base="uniform" needs a bounded support: give support=(lower, upper), one number '
                "each or one for each coordinate"
            )
        return UniformBase(d), None, support
    if hasattr(base, "lower") and hasattr(base, "upper") and not callable(settings.prior):
        box = limits("base", base, d)
        check_inside("the base's box", x, *box)
        if not np.isfinite(box).all():
            raise ModelError(f"a uniform base needs a bounded box, got {base!r}")
        # Cut to the support a uniform density is uniform.
        cut = (np.maximum(box[0], support[0]), np.minimum(box[1], support[1]))
        if not (cut[0] < cut[1]).all():
            raise ModelError(
                f"the base's box {base!r} and the support {settings.support!r} have nothing "
                "in common"
            )
        return UniformBase(d), None, cut
    prior = Prior(settings.prior)
    return FamilyBase(d, prior, base, scalar), prior, support


def _with_proposals(
    prior: NormalInverseWishart, x: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the data are, and most draws of a base fitted to them as if nothing was rejected."""
    n, d = x.shape
    away = x - x.mean(0)
    total = np.diagonal(np.asarray(prior.scale)) + (away**2).sum(0)
    deviation = np.sqrt(total / max(float(prior.degrees or 0) + n - d - 1, 1.0))
    middle = (prior.strength * np.asarray(prior.mean) + x.sum(0)) / (prior.strength + n)
    reach = MOST_PROPOSALS * deviation
    return np.minimum(low, middle - reach), np.maximum(high, middle + reach)


def _filled(base: NormalInverseWishart, x: np.ndarray) -> NormalInverseWishart:
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


def _own_limits(base: BaseDensity, d: int) -> tuple[tuple[np.ndarray, np.ndarray], bool]:
    """Limits (d,) of g0's own support as far as they are fixed; whether some are not."""
    everywhere = (np.full(d, -np.inf), np.full(d, np.inf))
    if not isinstance(base, FamilyBase):
        return everywhere, False
    found = base.limits_before(COMPARED)
    fixed = [(side == side[0]).all(0) for side in found]
    own = [
        np.where(one, side[0], endless)
        for one, side, endless in zip(fixed, found, everywhere, strict=True)
    ]
    return (own[0], own[1]), not (fixed[0].all() and fixed[1].all())


def _sizes(
    basis: Any, covariance: Covariance, box: Box, shortest: np.ndarray, additive: bool, d: int
) -> tuple[int, ...]:
    if isinstance(basis, str) and basis == "auto":
        return sizes_for(covariance, box, shortest, additive)
    sizes = np.atleast_1d(np.asarray(basis))
    fine = sizes.dtype.kind in "iu" and sizes.shape in ((1,), (d,)) and (sizes >= 2).all()
    if not fine:
        raise ModelError(
            'basis must be "auto", None for the exact process, or a whole number of functions '
            f"from 2 on, or one for each coordinate; got {basis!r}"
        )
    return tuple(int(m) for m in np.broadcast_to(sizes, (d,)))


def quadrature_of(plan: Plan, low: np.ndarray, high: np.ndarray, finer: int = 1) -> Any:
    """Nodes between limits in coordinates u; of the exact process for the spline it is read off."""
    basis, d = plan.basis, len(low)
    if not plan.summed:
        return ()
    if plan.moving:  # along with parameters of the base: these are of [-1, 1]^d
        return rule(lambda axes: (), basis.sizes, -np.ones(d), np.ones(d), finer)
    if isinstance(basis, Grid):
        ends = [np.concatenate([[-1.0], axis, [1.0]]) for axis in basis.axes()]
        return panels(basis.tables, ends, finer)
    return rule(basis.tables, basis.sizes, low, high, finer)


def _check_exact(n: int, d: int) -> None:
    """Refuse what the exact process cannot do."""
    if n > MOST_EXACT or d > 2:
        raise ModelError(
            f"the exact process (basis=None) is for up to {MOST_EXACT:,} observations in one or "
            f'two dimensions, got {n:,} in {d}: leave basis at "auto"'
        )


def _supported(base: BaseDensity, support: tuple, own: tuple, moving: bool, box: Box) -> str:
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


def _at_the_data(basis: Basis, u: np.ndarray) -> tuple[Any, Any]:
    """phi at the data where that fits into memory, and the two matrices of the joint move."""
    n, M = len(u), basis.number
    keep = n * M <= MOST_FEATURES
    parts = [np.zeros((M, 0))]
    gram, fitted = np.zeros((M, M)), np.zeros((M, number_of_features(u.shape[1])))
    for start in range(0, n, 16384):
        piece = u[start : start + 16384].T
        rows = basis.features(piece)
        gram = gram + rows @ rows.T
        fitted = fitted + rows @ np.asarray(quadratic(jnp.asarray(piece))).T
        if keep:
            parts.append(rows)
    stored = jnp.asarray(np.concatenate(parts, axis=1)) if keep else ()
    return stored, (jnp.asarray(gram), jnp.asarray(fitted))


def _probes(x: np.ndarray) -> np.ndarray:
    """Observations at which the log density is followed."""
    order = np.argsort(x[:, 0], kind="stable")
    if not len(x):
        return order.astype(np.int32)
    places = np.round(np.array(PROBES) * (len(x) - 1)).astype(int)
    return order[places].astype(np.int32)


PROCESSES = {"density": DensityProcess(), "intensity": IntensityProcess()}
