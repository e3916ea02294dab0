"""``TruncatedGaussianMixture``: the truncated mixture as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from offcut.estimators.base import RandomState, SampledDensity
from offcut.mixtures.consensus import LOSSES
from offcut.mixtures.evaluation import log_density
from offcut.mixtures.model import TruncatedMixture
from offcut.mixtures.populations import only_matched, probabilities
from offcut.numerics.normal import NormalInverseWishart
from offcut.numerics.text import renamed
from offcut.regions import Box, Region


@renamed(prior="weights")
@dataclass(eq=False, repr=False)
class TruncatedGaussianMixture(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, SampledDensity
):
    """Bayesian mixture of normals for data that were only recorded inside a window.

    A Dirichlet process mixture whose components may reach beyond the window; what was cut off is
    inferred with the rest, so that neither clusters nor densities bend at the edge. Sampled by
    ``offcut.sample`` with an ``offcut.TruncatedMixture``; populations are those of the partition
    that stands for all draws.

    Parameters
    ----------
    lower, upper : float or array of shape (n_features,), optional
        Limits of the window, which belong to it; None or an infinity for none.
    region : Region or callable, optional
        A window that is no box, in place of ``lower`` and ``upper``: any of ``offcut.regions``,
        or a function of one point, a vector of n_features, written with ``jax.numpy``.
    n_components : int
        An upper limit of the number of components.
    alpha : float or NumPyro distribution
        Concentration of the Dirichlet process, or a prior on it.
    base : NormalInverseWishart, optional
        Where means and covariances come from; by default scaled to the data.
    weights : "latent" or "window"
        Whether the Dirichlet process is on the weights before the filter, or on the shares among
        what passes.
    log_accept : callable, optional
        ``log_accept(x)``: log probability that a point (inside the window) is recorded.
    n_draws, n_warmup, n_chains : int
        Kept draws and warm-up sweeps of each chain; number of chains.
    thin : int
        Sweeps for each kept draw.
    budget : "auto", int or None
        Largest number of rejections in a sweep, as in ``offcut.sample``.
    random_state : int, RandomState or None
        An int is the ``seed`` of ``offcut.sample``.
    loss : "vi" or "binder"
        Which expected loss the consensus partition minimises.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    labels_ : array of shape (n_samples,)
        Consensus population of each sample, 0 being the largest; populations that no component
        of any draw stands for are dissolved. At borders ``predict``, which sees a point and not
        its neighbours, may say otherwise.
    certainty_ : array of shape (n_samples,)
        Posterior probability that the sample belongs there.
    n_clusters_ : int
        Number of populations.
    populations_ : list of Population
        Table of the populations with intervals, and what share of each was lost.
    weights_ : array of shape (n_clusters_,)
        Share of each population in the window. What is missing to 1 belongs to components that
        hold no sample.
    means_, covariances_ : arrays of shape (n_clusters_, n_features[, n_features])
        Of the populations before the filter.
    posterior_ : xarray.DataTree
        All draws, as ``offcut.sample`` returns them.
    model_ : TruncatedMixture
        For what else can be asked of ``posterior_``: marginals, predictions, other labels.
    converged_ : bool
        Whether R-hat of the log densities and of the number of rejections is below 1.05.
    trouble_ : list of str
        Reasons to doubt the run; where there are any, ``fit`` gives a ``ConvergenceWarning``.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from offcut.estimators import TruncatedGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0.5, 0.5, (90, 2)), rng.normal(4, 0.5, (40, 2))])
    >>> X = X[(X > 0).all(1)]
    >>> mixture = TruncatedGaussianMixture(
    ...     lower=[0, 0], n_components=5, n_draws=200, n_warmup=200, n_chains=1, random_state=0
    ... ).fit(X)
    >>> mixture.n_clusters_
    2
    >>> mixture.predict([[0.1, 0.2], [3.5, 4.0]])
    array([0, 1])
    >>> mixture.score_samples([[-0.1, 0.2]])
    array([-inf])
    """

    model_: TruncatedMixture = field(init=False)
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None
    _: KW_ONLY
    region: Region | Callable | None = None
    n_components: int = 20
    alpha: float | Distribution = 1.0
    base: NormalInverseWishart | None = None
    weights: str = "latent"
    log_accept: Callable | None = None
    loss: str = "vi"

    def predict(self, X: ArrayLike) -> Int[np.ndarray, " n"]:
        """Population of the largest posterior probability."""
        return self.predict_proba(X).argmax(1)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "n clusters"]:
        """Posterior probability of each population, (n_samples, n_clusters_).

        Averaged over at most 200 draws. Points outside the window have them too: there they say
        where a point would belong, had it been recorded.
        """
        return self._probabilities(self._checked(X))

    def transform(self, X: ArrayLike) -> Float[np.ndarray, "n clusters"]:
        """The same as ``predict_proba``: memberships as features for a pipeline."""
        return self.predict_proba(X)

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " n"]:
        """Log of the posterior-mean density in the window; -inf outside."""
        x = self._checked(X)
        return log_density(self.posterior_, self.model_.window, x)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of ``score_samples``."""
        return float(np.mean(self.score_samples(X)))

    def sample(
        self, n_samples: int = 1, random_state: RandomState = None
    ) -> tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]:
        """New points in the window from the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState or None
            None for the estimator's own.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            A population for each, drawn with the probabilities of ``predict_proba``.
        """
        check_is_fitted(self, "labels_")
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        seed = self._seed(random_state)
        X = self.model_.predict(self.posterior_, int(n_samples), seed=seed)
        below = np.cumsum(self._probabilities(X), axis=1)
        uniform = np.random.default_rng([seed, 1]).random((len(X), 1))
        return X, (below[:, :-1] <= uniform).sum(1)

    def _model(self, d: int) -> TruncatedMixture:
        check_scalar(self.n_components, "n_components", Integral, min_val=1)
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {LOSSES}, got {self.loss!r}")
        limits = self.lower is not None or self.upper is not None
        if limits and self.region is not None:
            raise ValueError(
                "give the window as lower and upper or as region, not both; for their intersection "
                "use region=offcut.regions.Box(lower, upper) & region"
            )
        region = Box(self.lower, self.upper) if limits else self.region
        if isinstance(region, Box) and region.dimension not in (None, d):
            raise ValueError(
                f"the window {region!r} has {region.dimension} limits, but X has {d} features: "
                "give one limit for each, or a number for all"
            )
        return TruncatedMixture(
            region,
            components=self.n_components,
            alpha=self.alpha,
            base=self.base,
            weights=self.weights,
            log_accept=self.log_accept,
            # Moves with rejections: without a window there are none, and less is to be compiled.
            reshape=region is not None or self.log_accept is not None,
        )

    def _look(self, x: Float[np.ndarray, "n d"], seed: int) -> None:
        """The consensus partition and the table of its parts."""
        found = self.model_.labels(self.posterior_, loss=self.loss, seed=seed)
        self._found = only_matched(found, x)
        self.labels_, self.certainty_ = self._found.labels, self._found.certainty
        self.n_clusters_ = self._n_features_out = self._found.populations
        self.populations_ = self.model_.populations(self._found)
        self.weights_ = np.array([row.proportion for row in self.populations_])
        self.means_ = np.array([row.mean for row in self.populations_])
        self.covariances_ = np.array([row.covariance for row in self.populations_])

    def _probabilities(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n clusters"]:
        found = self._found
        return probabilities(found.draws, found.matches, self.n_clusters_, X)
