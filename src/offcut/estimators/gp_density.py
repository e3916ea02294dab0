"""``GaussianProcessDensity``: the Gaussian process density as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from offcut.base import Model
from offcut.estimators.base import RandomState, SampledDensity
from offcut.gp.evaluation import Bands
from offcut.gp.model import GPDensity
from offcut.methods import AUTO
from offcut.numerics.normal import NormalInverseWishart
from offcut.numerics.text import renamed
from offcut.regions import Box


@renamed(kernel="covariance")
@dataclass(eq=False, repr=False)
class GaussianProcessDensity(SampledDensity):
    """Bayesian density estimate with credible bands: a parametric density, bent by the data.

    The density is g(x) ∝ g0(x) sigma(f(x)) with f a Gaussian process, sampled by ``offcut.sample``
    with an ``offcut.GPDensity``. Beside ``sklearn.neighbors.KernelDensity`` it has no bandwidth to
    choose, says how uncertain it is, and reverts to g0 away from the data.

    Parameters
    ----------
    base : "normal", "uniform", NormalInverseWishart, Box or callable
        g0, as of ``offcut.GPDensity``. With one feature a callable returns a distribution of single
        numbers, otherwise one of vectors.
    covariance : "squared_exponential", "matern32" or "matern52"
        The covariance function of f.
    basis : "auto", int, tuple of int or None
        How many functions stand for the process (along each feature); None for the process itself.
    length_scale : number, vector or NumPyro distribution, optional
        In the units of X; fixed, or a prior.
    variance : number or NumPyro distribution, optional
        Of f; fixed, or a prior.
    support : Box or pair, optional
        Where the density lives: it is zero elsewhere.
    method : "augment" or "collapsed"
        With rejected proposals, or without (one and two features).
    prior : dict of NumPyro distributions, optional
        Of theta, for a base that is a function of it.
    n_draws, n_warmup, n_chains : int
        Kept draws and warm-up sweeps of each chain; number of chains.
    thin : int
        Sweeps for each kept draw.
    budget : "auto", int or None
        Largest number of rejections in a sweep, as in ``offcut.sample``.
    random_state : int, RandomState or None
        An int is the ``seed`` of ``offcut.sample``.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    posterior_ : xarray.DataTree
        All draws, as ``offcut.sample`` returns them.
    model_ : GPDensity
        For what else can be asked of ``posterior_``: f itself, rejections, comparisons.
    converged_ : bool
        Whether R-hat of the log densities and of the number of rejections is below 1.05; from
        three features on, where log densities are not followed, that of all parameters instead.
    trouble_ : list of str
        Reasons to doubt the run; where there are any, ``fit`` gives a ``ConvergenceWarning``.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from offcut.estimators import GaussianProcessDensity
    >>> X = np.random.default_rng(0).gamma(3.0, size=(100, 1))
    >>> estimate = GaussianProcessDensity(
    ...     length_scale=1.0, variance=1.0, method="collapsed", n_draws=200, random_state=0
    ... ).fit(X)
    >>> at_two, at_nine = estimate.score_samples([[2.0], [9.0]])
    >>> bool(at_two > at_nine)
    True
    >>> bands = estimate.bands([[2.0], [9.0]], probability=0.8)
    >>> bool(np.all(bands.lower < bands.upper))
    True
    >>> estimate.sample(5).shape
    (5, 1)
    """

    model_: GPDensity = field(init=False)
    base: str | NormalInverseWishart | Box | Callable[..., Distribution] = "normal"
    covariance: str = "squared_exponential"
    basis: int | tuple[int, ...] | str | None = "auto"
    length_scale: ArrayLike | Distribution | None = None
    variance: float | Distribution | None = None
    support: Box | tuple[ArrayLike, ArrayLike] | None = None
    _: KW_ONLY
    method: str = "augment"
    prior: dict[str, Distribution] | None = None

    def _model(self, d: int) -> GPDensity:
        return GPDensity(
            self.base,
            self.covariance,
            self.basis,
            self.length_scale,
            self.variance,
            self.support,
            prior=self.prior,
        )

    def _draw(
        self, model: Model, x: Float[np.ndarray, "n d"], seed: int, method: str = AUTO
    ) -> xr.DataTree:
        return super()._draw(model, x[:, 0] if x.shape[1] == 1 else x, seed, self.method)

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " n"]:
        """Log of the posterior-mean density; -inf outside the support."""
        x = self._checked(X)
        return self.model_.score_samples(self.posterior_, x)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Sum of ``score_samples``: total log-likelihood, as of ``KernelDensity``."""
        return float(np.sum(self.score_samples(X)))

    def bands(self, X: ArrayLike, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the density.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        probability : float
            Of each band.

        Returns
        -------
        Bands
            With ``mean``, ``median``, ``lower`` and ``upper`` of shape (n_samples,).
        """
        x = self._checked(X)
        return self.model_.bands(self.posterior_, x, probability)

    def sample(
        self, n_samples: int = 1, random_state: RandomState = None
    ) -> Float[np.ndarray, "n d"]:
        """New points from the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState or None
            None for the estimator's own.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        """
        check_is_fitted(self, "posterior_")
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        seed = self._seed(random_state)
        found = self.model_.predict(self.posterior_, int(n_samples), seed=seed)
        return found.reshape(int(n_samples), self.n_features_in_)
