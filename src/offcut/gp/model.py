"""``offcut.GPDensity``, a density with bands, and ``offcut.GPIntensity``, a Cox process."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from inspect import signature
from typing import Any, ClassVar, TypeVar

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike

from offcut import base as contracts
from offcut.base import Doubt, Kernel, Model, Request
from offcut.errors import DataError, ModelError, SettingsError
from offcut.gp import approximation, evaluation
from offcut.gp import types as t
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.base_density import program_of
from offcut.gp.basis import Grid
from offcut.gp.covariance import covariance_named
from offcut.gp.data import as_region, ties
from offcut.gp.evaluation import Bands, Comparison, Draws
from offcut.gp.exact import ExactSampler
from offcut.gp.plan import Prepared, Settings, prepare
from offcut.gp.process import PROCESSES
from offcut.gp.sampler import CollapsedSampler, GPSampler
from offcut.gp.updates import EllipticalSlice, PolyaGamma
from offcut.kernels.hmc import HMC
from offcut.methods import CURVES
from offcut.models.data import as_events, numbers_of
from offcut.models.prior import PriorLike
from offcut.numerics.normal import NormalInverseWishart
from offcut.numerics.rendering import call
from offcut.numerics.text import moved, renamed
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import digest, skeleton
from offcut.regions.box import Box
from offcut.regions.region import Region

MOST_PREPARED = 8
#: The kernel of method="collapsed", where none is given.
COLLAPSED = HMC(num_steps=8, jitter=0.5)

Kind = TypeVar("Kind", bound=type)


@dataclass(eq=False, repr=False, kw_only=True)
class GPModel(Settings, Model):
    """What densities and intensities share. They are dataclasses: what the user gave are fields."""

    __no_type_check__: ClassVar[bool] = True  # of the fields: users give what they like
    process: ClassVar[str]
    methods = CURVES
    additive: bool | None = None
    joint_moves: bool = True
    nugget: float = 1e-8

    def __post_init__(self) -> None:
        covariance_named(self.covariance)
        number = isinstance(self.nugget, int | float | np.number)
        if not number or isinstance(self.nugget, bool) or not 0 < float(self.nugget) < 1:
            raise ModelError(
                "nugget must be a number above 0 (matrices lose their digits at 0) and below 1, "
                f"got {self.nugget!r}"
            )
        self._prepared: dict[tuple, Prepared] = {}

    def prepare(self, request: Request) -> contracts.Prepared:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if request.covariates is not None:
            raise ModelError(f"{type(self).__name__} takes no covariates")
        x, scalar = self.read(request.data)
        prepared = self._prepared_from(x, scalar)
        sampler = self._sampler(prepared, request.method.name, request.kernel)
        # Models that are the same share a sampler, compiled code and all.
        sampler = kept_sampler(digest(type(sampler), sampler.key), "", lambda: sampler)
        return contracts.Prepared(sampler, prepared.data, {"x": x[:, 0] if scalar else x})

    def before(self, prepared: contracts.Prepared) -> list[Doubt]:
        """Ties, where the length-scale may shrink to them."""
        own = self._prepared_of(prepared.observed["x"])
        learned = any(name == "length_scale" for name, _ in own.plan.hyper.key)
        return ties(prepared.observed["x"]) if learned else []

    def read(self, data: Any) -> tuple[t.HostRows, bool]:
        """Observations, and whether they are single numbers."""
        return as_events(data, type(self).__name__)

    def _prepared_from(self, x: t.HostRows, scalar: bool) -> Prepared:
        """Everything for data; the last few are kept."""
        key = (self.identity(), x.tobytes(), x.shape, scalar)
        if key not in self._prepared:
            while len(self._prepared) >= MOST_PREPARED:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = prepare(self, x, PROCESSES[self.process], scalar)
        return self._prepared[key]

    def _sampler(self, prepared: Prepared, method: str, kernel: Kernel | None) -> GPSampler:
        """The sampler of the method, with the kernel."""
        if isinstance(prepared.plan.basis, Grid):
            return self._exact(prepared, method, kernel)
        if method == "collapsed":
            if not prepared.plan.summed:
                raise ModelError(
                    'method="collapsed" needs the normalising constant by quadrature, which is to '
                    'be had in one and two dimensions; use method="augment"'
                )
            return CollapsedSampler(prepared.plan, COLLAPSED if kernel is None else kernel)
        return AugmentedSampler(prepared.plan, PolyaGamma() if kernel is None else kernel)

    def _exact(self, prepared: Prepared, method: str, kernel: Kernel | None) -> GPSampler:
        """The sampler of the exact process."""
        if method != "augment":
            raise ModelError('the exact process (basis=None) has method="augment" only')
        if kernel is not None and kernel.kind != PolyaGamma.kind:
            raise SettingsError(
                "f of the exact process moves by offcut.PolyaGamma() (default) or "
                f"offcut.EllipticalSlice(), got {kernel!r}"
            )
        if isinstance(kernel, EllipticalSlice) and prepared.plan.hyper.size:
            raise SettingsError(
                "offcut.EllipticalSlice() with the exact process needs a fixed length_scale and "
                "variance; offcut.PolyaGamma() infers them"
            )
        update = PolyaGamma() if kernel is None else kernel
        return ExactSampler(prepared.plan, update, float(self.nugget))

    def prepared_for(self, posterior: xr.DataTree) -> Prepared:
        """Box, basis and priors of a posterior, made again from its data where needed."""
        return self._prepared_of(np.asarray(posterior["observed_data"].dataset["x"].values, float))

    def _prepared_of(self, x: Float[np.ndarray, " n *d"]) -> Prepared:
        """The same of observed data, as they are in the result."""
        return self._prepared_from(x[:, None] if x.ndim == 1 else x, x.ndim == 1)

    def _draws(self, posterior: xr.DataTree) -> Draws:
        return Draws.of(posterior, self.prepared_for(posterior))

    def facts(self, prepared: contracts.Prepared) -> dict[str, Any]:
        """What else the result should say."""
        own = self._prepared_of(prepared.observed["x"])
        slower = prepared.sampler.method == "augment" and own.plan.joint and own.plan.hyper.size
        note = " (method='collapsed' would be faster here, and exact too)" if slower else ""
        return {"method_note": note, **approximation.facts(own, repr(self))}

    def identity(self) -> str:
        """What tells models apart, at this moment: all settings, and what a family computes."""
        family = None
        if callable(self.base) and not isinstance(self.base, Region) and self.prior is not None:
            family = program_of(self.prior, self.base)
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "prior"}
        return digest(skeleton(type(self), given), family)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: what was prepared can be prepared again."""
        return {**self.__dict__, "_prepared": {}}

    def after(self, posterior: xr.DataTree, prepared: contracts.Prepared) -> None:
        """Check box, basis and quadrature against the draws, and say so in the attrs."""
        approximation.measure(posterior, self.prepared_for(posterior))

    def function(
        self, posterior: xr.DataTree, points: ArrayLike
    ) -> Float[np.ndarray, "chain draw point"]:
        """f at points in each draw, (chain, draw, point)."""
        return self._draws(posterior).function(points)

    def rejections(
        self, posterior: xr.DataTree, draws: int = 100, *, seed: int = 0
    ) -> list[Float[np.ndarray, "_ d"]]:
        """Rejected proposals Y for some of the draws: their law given each draw, afresh."""
        return self._draws(posterior).rejections(draws, seed)

    def __repr__(self) -> str:
        """Arguments that are not those by default."""
        given = {
            name: getattr(self, name)
            for name, parameter in signature(type(self)).parameters.items()
            if not _same(getattr(self, name), parameter.default)
        }
        return call(type(self).__name__, **given)


def _same(value: object, default: object) -> bool:
    return value is default or (isinstance(value, str | bool | float) and value == default)


_moved = moved(
    method=lambda given: f"give it to offcut.sample(model, data, method={given!r})",
    rejections=lambda given: (
        "all of them are drawn anew in every sweep; local changes of them (BirthDeath), which mix "
        "more slowly, are benchmarks/birth_death.py in the repository"
    ),
)


@_moved
@renamed(kernel="covariance")
@dataclass(eq=False, repr=False)
class GPDensity(GPModel):
    r"""A density g(x) ∝ g0(x) sigma(f(x)), f a Gaussian process, sigma the logistic function.

    The prior of Adams, Murray & MacKay (2009): a parametric base g0, bent where the data ask for
    it. With all arguments left out, base, length-scale and variance are inferred, on priors scaled
    to the data.

    Parameters
    ----------
    base : "normal", "uniform", NormalInverseWishart, Box or callable
        g0. "normal": mean and covariance inferred, with an ``offcut.NormalInverseWishart`` prior
        (scaled to the data, or the one given). "uniform": on a bounded ``support``, or on the
        ``offcut.regions.Box`` given. A function from theta to a NumPyro distribution, with
        ``prior``: any family.
    covariance : "squared_exponential", "matern32" or "matern52"
        The covariance function of f.
    basis : "auto", int, tuple of int or None
        How many functions stand for the process (along each axis), by default as many as the
        length-scale asks for. None for the process itself, for up to about 500 observations.
    length_scale : number, vector or NumPyro distribution, optional
        In the units of the data; fixed, or a prior. One for all axes or one for each.
    variance : number or NumPyro distribution, optional
        Of f; fixed, or a prior.
    support : Box or pair, optional
        Where the density lives: g is zero elsewhere, whatever the base has there.
    prior : dict of NumPyro distributions, optional
        Of theta, for a base that is a function of it.
    additive : bool, optional
        f is a sum of functions of single coordinates; by default in three dimensions and more.
    joint_moves : bool
        With ``method="augment"``: also moves with the rejections summed out, where Z is known by
        quadrature. They cure the slow mixing of |Y| and Z.
    nugget : float
        Of the exact process: a share of the variance that is white noise, part of the model.

    Notes
    -----
    ``method=`` of ``offcut.sample`` is "augment", which keeps rejected proposals (the paper's, and
    the default), or "collapsed", which has no rejections: Z by quadrature, in one and two
    dimensions.

    Examples
    --------
    >>> import numpy as np, offcut
    >>> x = np.random.default_rng(0).gamma(3.0, size=100)
    >>> model = offcut.GPDensity(length_scale=1.0, variance=1.0)
    >>> posterior = offcut.sample(model, x, draws=200, warmup=200, chains=2)
    >>> bands = model.bands(posterior, [1.0, 2.0, 8.0], probability=0.8)
    >>> bool(np.all(bands.lower < bands.upper)), bool(bands.median[1] > bands.median[2])
    (True, True)
    """

    process = "density"
    rate = None

    base: str | NormalInverseWishart | Box | t.Family = "normal"
    covariance: str = "squared_exponential"
    basis: str | int | tuple[int, ...] | None = "auto"
    length_scale: t.Positive | None = None
    variance: t.Positive | None = None
    support: t.BoxLike | None = None
    _: KW_ONLY
    prior: PriorLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.base, NormalInverseWishart | Box) or (
            isinstance(self.base, str) and self.base in ("normal", "uniform")
        ):
            return
        if self.prior is None:
            raise ModelError(
                "a base given as a function of theta needs prior=, a dict of NumPyro distributions "
                'such as {"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)}'
            )
        if not callable(self.base):
            raise ModelError(
                'base must be "normal", "uniform", an offcut.NormalInverseWishart, an '
                "offcut.regions.Box, or a function from theta to a NumPyro distribution, got "
                f"{self.base!r}"
            )

    def density(
        self, posterior: xr.DataTree, points: ArrayLike, draws: bool = False
    ) -> Float[np.ndarray, "*draws point"]:
        """Posterior mean of the density at points, or one for each draw (chain, draw, point)."""
        drawn = self._draws(posterior)
        return np.exp(drawn.log_density(points) if draws else drawn.log_mean_density(points))

    def bands(self, posterior: xr.DataTree, points: ArrayLike, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the density."""
        return evaluation.bands(points, self.density(posterior, points, draws=True), probability)

    def score_samples(
        self, posterior: xr.DataTree, points: ArrayLike
    ) -> Float[np.ndarray, " point"]:
        """log of the posterior mean density."""
        return self._draws(posterior).log_mean_density(points)

    def predict(
        self, posterior: xr.DataTree, size: int | np.integer, *, seed: int = 0
    ) -> Float[np.ndarray, " size *d"]:
        """New points from the posterior predictive distribution, (size,) or (size, d)."""
        found = self._draws(posterior).predict(size, seed)
        scalar = posterior["observed_data"].dataset["x"].ndim == 1
        return found[:, 0] if scalar else found

    def compare(
        self,
        posterior: xr.DataTree,
        other: xr.DataTree,
        points: ArrayLike,
        *,
        probability: float = 0.9,
        other_model: GPDensity | None = None,
    ) -> Comparison:
        """Difference of the densities of two groups, each with a posterior of its own."""
        theirs = (other_model or self).density(other, points, draws=True)
        ours = self.density(posterior, points, draws=True)
        return evaluation.comparison(points, ours, theirs, probability)


@_moved
@renamed(kernel="covariance")
@dataclass(eq=False, repr=False)
class GPIntensity(GPModel):
    r"""Events of a Poisson process with intensity lambda sigma(f(x)) on a window.

    The sigmoidal Gaussian Cox process (Adams, Murray & MacKay 2009), in one and two dimensions.
    Thinned points are the rejections: a Poisson number of proposals, none of which stops at n.

    Parameters
    ----------
    window : Box or pair
        Where events were recorded, (lower, upper) or an ``offcut.regions.Box``; by default the
        range of the data, each end moved out by a mean gap. With a window, no events at all are
        data too: an empty array.
    covariance, basis, length_scale, variance, additive, joint_moves, nugget
        As of ``offcut.GPDensity``.
    rate : pair, optional
        Shape a and rate b of the Gamma prior of lambda, the upper limit of the intensity. By
        default a = 2 and a mean of twice the mean intensity (that of one event, where there are
        none).

    Examples
    --------
    >>> import numpy as np, offcut
    >>> times = np.sort(np.random.default_rng(0).beta(2, 5, size=80)) * 10
    >>> model = offcut.GPIntensity((0, 10), length_scale=2.0, variance=2.0)
    >>> posterior = offcut.sample(model, times, draws=200, warmup=200, chains=2)
    >>> model.intensity(posterior, [2.0, 9.0]).round(0).argmax()
    np.int64(0)
    """

    process = "intensity"
    base = "uniform"
    prior = None

    window: t.BoxLike | None = None
    covariance: str = "squared_exponential"
    basis: str | int | tuple[int, ...] | None = "auto"
    length_scale: t.Positive | None = None
    variance: t.Positive | None = None
    rate: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.support = self.window
        if self.rate is None:
            return
        try:
            a, b = (float(value) for value in self.rate)
            wrong = not (0 < a < np.inf and 0 < b < np.inf)
        except (TypeError, ValueError):
            wrong = True
        if wrong:
            raise ModelError(
                "rate must be two positive numbers, shape and rate of a Gamma prior, got "
                f"{self.rate!r}"
            )

    def read(self, data: Any) -> tuple[t.HostRows, bool]:
        """Events, and whether they are single numbers; there may be none."""
        values = numbers_of(data)
        rows = isinstance(values, list | tuple) or getattr(values, "ndim", 0) > 0
        if not rows or len(values):
            return super().read(data)
        if self.window is None:
            raise DataError(
                "there are no events, and no window= in which they were recorded: give it, for "
                "none at all says that the intensity is low there"
            )
        flat = np.ndim(values) < 2
        d = as_region("window", self.window).dimension or 1
        return np.zeros((0, d if flat else np.shape(values)[1])), flat and d == 1

    def intensity(
        self, posterior: xr.DataTree, points: ArrayLike, draws: bool = False
    ) -> Float[np.ndarray, "*draws point"]:
        """Posterior mean of the intensity at points, or one for each draw (chain, draw, point)."""
        values = self._draws(posterior).intensity(points)
        return values if draws else values.mean((0, 1))

    def bands(self, posterior: xr.DataTree, points: ArrayLike, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the intensity."""
        return evaluation.bands(points, self.intensity(posterior, points, draws=True), probability)
