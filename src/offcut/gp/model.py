"""``offcut.GPDensity``, a density with bands, and ``offcut.GPIntensity``, a Cox process."""

from __future__ import annotations

from inspect import signature
from typing import Any

import jax
import numpy as np
import xarray as xr

from offcut import base as contracts
from offcut.base import Doubt, Kernel, Model
from offcut.errors import DataError, ModelError, SettingsError
from offcut.gp import approximation, evaluation
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.base_density import FamilyBase
from offcut.gp.birth_death import BirthDeath, BirthDeathSampler
from offcut.gp.covariance import covariance_named
from offcut.gp.evaluation import Bands, Comparison
from offcut.gp.exact import ExactSampler
from offcut.gp.plan import FRESH, PROCESSES, GPSettings, Prepared, prepare
from offcut.gp.quadrature import Grid
from offcut.gp.sampler import CollapsedSampler, GPSampler
from offcut.gp.settings import as_region, check_family, checked_nugget, ties
from offcut.gp.updates import EllipticalSlice, PolyaGamma
from offcut.kernels.hmc import HMC
from offcut.kernels.nuts import NUTS
from offcut.mixtures.data import as_events
from offcut.models.prior import Prior
from offcut.numerics.normal import NormalInverseWishart
from offcut.numerics.rendering import call
from offcut.numerics.text import renamed
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import digest, skeleton, traced
from offcut.regions.box import Box
from offcut.regions.region import Region

MOST_PREPARED = 8
METHODS = ("augment", "collapsed")
#: The kernel of method="collapsed", where none is given.
COLLAPSED = HMC(num_steps=8, jitter=0.5)


class GPModel(Model):
    """What densities and intensities share."""

    process = ""

    def __init__(self, settings: GPSettings, method: str) -> None:
        if method not in METHODS:
            raise ModelError(
                f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}"
            )
        local = isinstance(settings.rejections, BirthDeath)
        if not local and settings.rejections != FRESH:
            raise ModelError(
                f'rejections must be "fresh" or an offcut.BirthDeath, got {settings.rejections!r}'
            )
        if local and (method != "augment" or settings.basis is None):
            raise ModelError('offcut.BirthDeath needs method="augment" and a basis')
        self.settings, self.method = settings, method
        self._prepared: dict[Any, Prepared] = {}

    def prepare(self, data: Any, covariates: Any, kernel: Kernel | None) -> contracts.Prepared:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if covariates is not None:
            raise ModelError(f"{type(self).__name__} takes no covariates")
        x, scalar = self.read(data)
        prepared = self._prepared_from(x, scalar)
        sampler = self._shared(prepared, kernel)
        return contracts.Prepared(sampler, prepared.data, {"x": x[:, 0] if scalar else x})

    def before(self, prepared: contracts.Prepared) -> list[Doubt]:
        """Ties, where the length-scale may shrink to them."""
        own = self._prepared_of(prepared.observed["x"])
        learned = any(name == "length_scale" for name, _ in own.plan.hyper.key)
        return ties(prepared.observed["x"]) if learned else []

    def read(self, data: Any) -> tuple[np.ndarray, bool]:
        """Observations (n, d), and whether they are single numbers."""
        return as_events(data, type(self).__name__)

    def _prepared_from(self, x: np.ndarray, scalar: bool) -> Prepared:
        """Everything for data (n, d); the last few are kept."""
        key = (self.identity(), x.tobytes(), x.shape, scalar)
        if key not in self._prepared:
            while len(self._prepared) >= MOST_PREPARED:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = prepare(self.settings, x, PROCESSES[self.process], scalar)
        return self._prepared[key]

    def _shared(self, prepared: Prepared, kernel: Kernel | None) -> GPSampler:
        """The sampler; models that are the same share it, compiled code and all."""
        plan = prepared.plan
        family = self._family() if isinstance(plan.base, FamilyBase) else None
        base = (type(plan.base), family, plan.hyper.key)
        identity = digest(base, self.method, self.settings.nugget, self.settings.rejections)
        name = (plan[:3], plan[5:], kernel)
        return kept_sampler(identity, name, lambda: self._sampler(prepared, kernel))

    def _family(self) -> Any:
        """What a base given as a function computes, traced, with its prior."""
        given = self.settings
        if isinstance(given.base, Region) or not callable(given.base) or given.prior is None:
            return None
        kinds: list[type] = []

        def everything(key: jax.Array, position: jax.Array) -> Any:
            prior = Prior(given.prior)
            theta = prior.sample(key)
            base = given.base(theta)
            kinds.append(type(base))
            x = base.sample(key)
            constrained = prior.constrain(position, {})
            return theta, x, base.log_prob(x), prior.log_density(position, {}), constrained

        with jax.enable_x64(True):
            size = Prior(given.prior).size
            return traced(everything, jax.random.key(0), np.zeros(size)), kinds

    def _sampler(self, prepared: Prepared, kernel: Kernel | None) -> GPSampler:
        """The sampler of the method, with the kernel."""
        if isinstance(prepared.plan.basis, Grid):
            return self._exact(prepared, kernel)
        if self.method == "collapsed":
            if not prepared.plan.summed:
                raise ModelError(
                    'method="collapsed" needs the normalising constant by quadrature, which is to '
                    'be had in one and two dimensions; use method="augment"'
                )
            if kernel is not None and not isinstance(kernel, HMC | NUTS):
                raise SettingsError(
                    f'method="collapsed" takes offcut.HMC() or offcut.NUTS(), got {kernel!r}'
                )
            return CollapsedSampler(prepared.plan, COLLAPSED if kernel is None else kernel)
        if kernel is not None and not isinstance(kernel, PolyaGamma | EllipticalSlice | HMC | NUTS):
            raise SettingsError(
                "f given the rejections moves by offcut.PolyaGamma() (default), "
                f"offcut.EllipticalSlice(), offcut.HMC() or offcut.NUTS(), got {kernel!r}"
            )
        update = PolyaGamma() if kernel is None else kernel
        if isinstance(self.settings.rejections, BirthDeath):
            return BirthDeathSampler(prepared.plan, update, self.settings.rejections)
        return AugmentedSampler(prepared.plan, update)

    def _exact(self, prepared: Prepared, kernel: Kernel | None) -> GPSampler:
        """The sampler of the exact process."""
        if self.method != "augment":
            raise ModelError('the exact process (basis=None) has method="augment" only')
        if kernel is not None and not isinstance(kernel, PolyaGamma | EllipticalSlice):
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
        return ExactSampler(prepared.plan, update, self.settings.nugget)

    def prepared_for(self, posterior: xr.DataTree) -> Prepared:
        """Box, basis and priors of a posterior, made again from its data where needed."""
        return self._prepared_of(np.asarray(posterior["observed_data"].dataset["x"].values, float))

    def _prepared_of(self, x: np.ndarray) -> Prepared:
        """The same of observed data, (n,) or (n, d)."""
        return self._prepared_from(x[:, None] if x.ndim == 1 else x, x.ndim == 1)

    def facts(self, prepared: contracts.Prepared) -> dict[str, Any]:
        """What else the result should say."""
        own = self._prepared_of(prepared.observed["x"])
        slower = self.method == "augment" and own.plan.joint and own.plan.hyper.size
        note = " (method='collapsed' would be faster here, and exact too)" if slower else ""
        return {"method": self.method, "method_note": note, **approximation.facts(own, repr(self))}

    def identity(self) -> str:
        """What tells models apart, at this moment: all settings, and what a family computes."""
        settings = skeleton(type(self), self.method, self.settings._replace(prior=None))
        return digest(settings, self._family())

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: what was prepared can be prepared again."""
        return {**self.__dict__, "_prepared": {}}

    def after(self, posterior: xr.DataTree, prepared: contracts.Prepared) -> None:
        """Check box, basis and quadrature against the draws, and say so in the attrs."""
        approximation.measure(posterior, self.prepared_for(posterior))

    def function(self, posterior: xr.DataTree, points: Any) -> np.ndarray:
        """f at points in each draw, (chain, draw, point)."""
        return evaluation.function(posterior, self.prepared_for(posterior), points)

    def rejections(
        self, posterior: xr.DataTree, draws: int = 100, *, seed: int = 0
    ) -> list[np.ndarray]:
        """Rejected proposals Y for some of the draws: their law given each draw, afresh."""
        return evaluation.rejections(posterior, self.prepared_for(posterior), draws, seed)

    def __repr__(self) -> str:
        """Arguments that are not those by default."""
        covariance, window = self.settings.covariance.name, self.settings.support
        own = {"covariance": covariance, "window": window, "method": self.method}
        values = {**self.settings._asdict(), **own}
        given = {
            name: values[name]
            for name, parameter in signature(type(self)).parameters.items()
            if not _same(values[name], parameter.default)
        }
        return call(type(self).__name__, **given)


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str | bool | float) and value == default)


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
    method : "augment" or "collapsed"
        "augment" keeps rejected proposals (the paper's). "collapsed" has no rejections: Z by
        quadrature, in one and two dimensions.
    joint_moves : bool
        With "augment": also moves with the rejections summed out, where Z is known by quadrature.
        They cure the slow mixing of |Y| and Z.
    nugget : float
        Of the exact process: a share of the variance that is white noise, part of the model.
    rejections : "fresh" or BirthDeath
        All rejections anew in every sweep (the paper's), or local changes of them by
        ``offcut.BirthDeath`` (Adams et al. 2009), for comparison: it mixes more slowly.

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

    @renamed(kernel="covariance")
    def __init__(
        self,
        base: Any = "normal",
        covariance: str = "squared_exponential",
        basis: Any = "auto",
        length_scale: Any = None,
        variance: Any = None,
        support: Any = None,
        *,
        prior: Any = None,
        additive: bool | None = None,
        method: str = "augment",
        joint_moves: bool = True,
        nugget: float = 1e-8,
        rejections: Any = FRESH,
    ) -> None:
        known = isinstance(base, NormalInverseWishart | Box) or (
            isinstance(base, str) and (base == "normal" or base.startswith("uniform"))
        )
        if not known:
            check_family(prior, base)
        settings = GPSettings(
            base,
            prior,
            covariance_named(covariance),
            basis,
            length_scale,
            variance,
            support,
            additive,
            bool(joint_moves),
            checked_nugget(nugget),
            rejections,
            None,
        )
        super().__init__(settings, method)

    def density(self, posterior: xr.DataTree, points: Any, draws: bool = False) -> np.ndarray:
        """Posterior mean of the density at points, or one for each draw (chain, draw, point)."""
        prepared = self.prepared_for(posterior)
        if draws:
            return np.exp(evaluation.log_density(posterior, prepared, points))
        return np.exp(evaluation.log_mean_density(posterior, prepared, points))

    def bands(self, posterior: xr.DataTree, points: Any, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the density."""
        return evaluation.bands(points, self.density(posterior, points, draws=True), probability)

    def score_samples(self, posterior: xr.DataTree, points: Any) -> np.ndarray:
        """log of the posterior mean density."""
        return evaluation.log_mean_density(posterior, self.prepared_for(posterior), points)

    def predict(self, posterior: xr.DataTree, size: int, *, seed: int = 0) -> np.ndarray:
        """New points from the posterior predictive distribution, (size,) or (size, d)."""
        found = evaluation.predict(posterior, self.prepared_for(posterior), size, seed)
        scalar = posterior["observed_data"].dataset["x"].ndim == 1
        return found[:, 0] if scalar else found

    def compare(
        self,
        posterior: xr.DataTree,
        other: xr.DataTree,
        points: Any,
        *,
        probability: float = 0.9,
        other_model: GPDensity | None = None,
    ) -> Comparison:
        """Difference of the densities of two groups, each with a posterior of its own."""
        theirs = (other_model or self).density(other, points, draws=True)
        ours = self.density(posterior, points, draws=True)
        return evaluation.comparison(points, ours, theirs, probability)


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
    covariance, basis, length_scale, variance, additive, method, joint_moves, nugget, rejections
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

    @renamed(kernel="covariance")
    def __init__(
        self,
        window: Any = None,
        covariance: str = "squared_exponential",
        basis: Any = "auto",
        length_scale: Any = None,
        variance: Any = None,
        rate: tuple[float, float] | None = None,
        *,
        additive: bool | None = None,
        method: str = "augment",
        joint_moves: bool = True,
        nugget: float = 1e-8,
        rejections: Any = FRESH,
    ) -> None:
        if rate is not None:
            try:
                a, b = (float(value) for value in rate)
                wrong = not (0 < a < np.inf and 0 < b < np.inf)
            except (TypeError, ValueError):
                wrong = True
            if wrong:
                raise ModelError(
                    "rate must be two positive numbers, shape and rate of a Gamma prior, got "
                    f"{rate!r}"
                )
        settings = GPSettings(
            "uniform",
            None,
            covariance_named(covariance),
            basis,
            length_scale,
            variance,
            window,
            additive,
            bool(joint_moves),
            checked_nugget(nugget),
            rejections,
            rate,
        )
        super().__init__(settings, method)

    def read(self, data: Any) -> tuple[np.ndarray, bool]:
        """Events (n, d), and whether they are single numbers; there may be none."""
        carries = hasattr(data, "columns") or hasattr(data, "channels")
        values = data.values if carries else data
        rows = isinstance(values, list | tuple) or getattr(values, "ndim", 0) > 0
        if not rows or len(values):
            return super().read(data)
        if self.settings.support is None:
            raise DataError(
                "there are no events, and no window= in which they were recorded: give it, for "
                "none at all says that the intensity is low there"
            )
        flat = np.ndim(values) < 2
        d = as_region("window", self.settings.support).dimension or 1
        return np.zeros((0, d if flat else np.shape(values)[1])), flat and d == 1

    def intensity(self, posterior: xr.DataTree, points: Any, draws: bool = False) -> np.ndarray:
        """Posterior mean of the intensity at points, or one for each draw (chain, draw, point)."""
        values = evaluation.intensity(posterior, self.prepared_for(posterior), points)
        return values if draws else values.mean((0, 1))

    def bands(self, posterior: xr.DataTree, points: Any, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the intensity."""
        return evaluation.bands(points, self.intensity(posterior, points, draws=True), probability)
