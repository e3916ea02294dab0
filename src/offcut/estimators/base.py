"""What the estimators share: how a posterior is drawn in ``fit``, and how far to trust the run."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import TypeVar

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from offcut.base import Model
from offcut.errors import TrustWarning
from offcut.methods import AUTO
from offcut.result.diagnostics import rejection_numbers
from offcut.result.overview import R_HAT_LIMIT, summary
from offcut.sampling import sample

#: What scikit-learn takes for a source of random numbers.
RandomState = int | np.random.RandomState | None
Fitted = TypeVar("Fitted", bound="SampledDensity")


class UnsettledWarning(ConvergenceWarning, TrustWarning):
    """What scikit-learn calls a lack of convergence and Offcut a reason for doubt."""


@dataclass(eq=False, repr=False)
class SampledDensity(DensityMixin, BaseEstimator):
    """A density with a posterior that ``offcut.sample`` draws; a subclass says of which model.

    A dataclass: scikit-learn's parameters are its fields. As there, they take whatever they are
    given, and ``fit`` checks it.
    """

    model_: Model = field(init=False)
    posterior_: xr.DataTree = field(init=False)
    _: KW_ONLY
    n_draws: int = 500
    n_warmup: int = 500
    n_chains: int = 2
    thin: int = 1
    budget: int | str | None = "auto"
    random_state: RandomState = None
    verbose: bool = False

    def fit(self: Fitted, X: ArrayLike, y: object = None) -> Fitted:
        """Sample the posterior.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            All of it inside the window or the support.
        y : ignored

        Returns
        -------
        self
        """
        for name in ("n_draws", "n_chains", "thin"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.n_warmup, "n_warmup", Integral, min_val=0)
        x = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        model, seed = self._model(x.shape[1]), self._seed()
        self.model_, self.posterior_ = model, self._draw(model, x, seed)
        self._look(x, seed)
        if self.trouble_:
            warnings.warn(" ".join(self.trouble_), UnsettledWarning, stacklevel=2)
        return self

    def _model(self, d: int) -> Model:
        """The model that the parameters describe, for d features."""
        raise NotImplementedError

    def _look(self, x: Float[np.ndarray, "n d"], seed: int) -> None:
        """What else is made of the posterior."""

    def _draw(
        self, model: Model, x: Float[np.ndarray, "n ..."], seed: int, method: str = AUTO
    ) -> xr.DataTree:
        """The posterior; ``trouble_`` and ``converged_`` say how far to trust it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrustWarning)  # ``fit`` gives one for all of them
            posterior = sample(
                model,
                x,
                method=method,
                draws=self.n_draws,
                warmup=self.n_warmup,
                chains=self.n_chains,
                thin=self.thin,
                budget=self.budget,
                seed=seed,
                progress=bool(self.verbose),
            )
        doubts = [one for one in caught if issubclass(one.category, TrustWarning)]
        self.trouble_ = [str(one.message) for one in doubts]
        for other in caught:
            if other not in doubts:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        rows = summary(posterior).table.items()
        r_hats = [row["r_hat"] for name, row in rows if name.startswith("log_density")]
        r_hats = r_hats or [row["r_hat"] for _, row in rows]
        if posterior.attrs["draws_rejections"]:
            r_hats.append(rejection_numbers(posterior)["r_hat"])
        self.converged_ = all(value < R_HAT_LIMIT for value in r_hats)
        return posterior

    def _checked(self, X: ArrayLike) -> Float[np.ndarray, "n d"]:
        """New points, for a fitted estimator."""
        check_is_fitted(self, "posterior_")
        return validate_data(self, X, dtype=np.float64, reset=False)

    def _seed(self, random_state: RandomState = None) -> int:
        """An int as it is, otherwise one that the generator gives; by default the estimator's."""
        random_state = self.random_state if random_state is None else random_state
        generator = check_random_state(random_state)
        if isinstance(random_state, Integral):
            return int(random_state)
        return int(generator.randint(np.iinfo(np.int32).max))
