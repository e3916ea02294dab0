"""``offcut.GPDensity``: a density with bands, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from offcut.gp import evaluation
from offcut.gp.covariance import covariance_named
from offcut.gp.evaluation import Bands, Comparison
from offcut.gp.model import GPModel
from offcut.gp.planning import FRESH, Wishes
from offcut.gp.settings import check_family, checked_nugget
from offcut.mixtures.base import NormalInverseWishart
from offcut.regions.box import Box


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
    kernel : "squared_exponential", "matern32" or "matern52"
        The covariance of f.
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

    def __init__(
        self,
        base: Any = "normal",
        kernel: str = "squared_exponential",
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
        wishes = Wishes(
            base,
            prior,
            covariance_named(kernel),
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
        super().__init__(wishes, method)

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
