"""``GaussianProcessDensity``: the Gaussian process density as an estimator of scikit-learn."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from offcut.errors import TrustWarning
from offcut.estimators.common import UnsettledWarning, seed_from
from offcut.gp.evaluation import Bands
from offcut.gp.model import GPDensity
from offcut.numerics.text import renamed
from offcut.result.diagnostics import rejection_numbers
from offcut.result.overview import R_HAT_LIMIT, summary
from offcut.sampling import sample


class GaussianProcessDensity(DensityMixin, BaseEstimator):
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
        method: str = "augment",
        prior: Any = None,
        n_draws: int = 500,
        n_warmup: int = 500,
        n_chains: int = 2,
        thin: int = 1,
        budget: Any = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.base = base
        self.covariance = covariance
        self.basis = basis
        self.length_scale = length_scale
        self.variance = variance
        self.support = support
        self.method = method
        self.prior = prior
        self.n_draws = n_draws
        self.n_warmup = n_warmup
        self.n_chains = n_chains
        self.thin = thin
        self.budget = budget
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            All of it inside the support.
        y : ignored

        Returns
        -------
        self
        """
        for name in ("n_draws", "n_chains", "thin"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.n_warmup, "n_warmup", Integral, min_val=0)
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        model = GPDensity(
            self.base,
            self.covariance,
            self.basis,
            self.length_scale,
            self.variance,
            self.support,
            prior=self.prior,
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TrustWarning)  # said once, below
            posterior = sample(
                model,
                X[:, 0] if X.shape[1] == 1 else X,
                method=self.method,
                draws=self.n_draws,
                warmup=self.n_warmup,
                chains=self.n_chains,
                thin=self.thin,
                budget=self.budget,
                seed=seed_from(self.random_state),
                progress=bool(self.verbose),
            )
        self.model_, self.posterior_ = model, posterior
        self._warn(said)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Log of the posterior-mean density, (n_samples,); -inf outside the support."""
        X = self._checked(X)
        return self.model_.score_samples(self.posterior_, X)

    def score(self, X: Any, y: Any = None) -> float:
        """Sum of ``score_samples``: total log-likelihood, as of ``KernelDensity``."""
        return float(np.sum(self.score_samples(X)))

    def bands(self, X: Any, probability: float = 0.9) -> Bands:
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
        X = self._checked(X)
        return self.model_.bands(self.posterior_, X, probability)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
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
        seed = seed_from(self.random_state if random_state is None else random_state)
        found = self.model_.predict(self.posterior_, int(n_samples), seed=seed)
        return found.reshape(int(n_samples), self.n_features_in_)

    def _warn(self, said: list[warnings.WarningMessage]) -> None:
        """How far to trust the run; one warning for all doubts."""
        rows = summary(self.posterior_).table.items()
        r_hats = [row["r_hat"] for name, row in rows if name.startswith("log_density")]
        r_hats = r_hats or [row["r_hat"] for _, row in rows]
        if self.posterior_.attrs["draws_rejections"]:
            r_hats.append(rejection_numbers(self.posterior_)["r_hat"])
        self.converged_ = all(value < R_HAT_LIMIT for value in r_hats)
        doubts = [one for one in said if issubclass(one.category, TrustWarning)]
        self.trouble_ = [str(one.message) for one in doubts]
        for other in said:
            if other not in doubts:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if self.trouble_:
            warnings.warn(" ".join(self.trouble_), UnsettledWarning, stacklevel=3)

    def _checked(self, X: Any) -> np.ndarray:
        """New points, for a fitted estimator."""
        check_is_fitted(self, "posterior_")
        return validate_data(self, X, dtype=np.float64, reset=False)
