"""What the estimators share: how a posterior is drawn in ``fit``, and what is said of the run."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data

from offcut.base import Model
from offcut.errors import TrustWarning
from offcut.result.diagnostics import rejection_numbers
from offcut.result.summary import R_HAT_LIMIT, summary
from offcut.sampling import sample

#: What scikit-learn takes for a source of random numbers.
RandomState = int | np.random.RandomState | None


class UnsettledWarning(ConvergenceWarning, TrustWarning):
    """What scikit-learn calls a lack of convergence and Offcut a reason for doubt."""


@dataclass(eq=False, repr=False)
class SampledDensity(DensityMixin, BaseEstimator):
    """A density with a posterior that ``offcut.sample`` draws; a subclass says of which model.

    A dataclass: scikit-learn's parameters are its fields. As there, they take whatever they are
    given, and ``fit`` checks it.
    """

    __no_type_check__: ClassVar[bool] = True  # of the fields
    _: KW_ONLY
    n_draws: int = 500
    n_warmup: int = 500
    n_chains: int = 2
    thin: int = 1
    budget: int | str | None = "auto"
    random_state: RandomState = None
    verbose: bool = False

    def _begun(self, X: ArrayLike) -> np.ndarray:
        """The points to fit, once the settings are checked."""
        for name in ("n_draws", "n_chains", "thin"):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        check_scalar(self.n_warmup, "n_warmup", Integral, min_val=0)
        return validate_data(self, X, dtype=np.float64, ensure_min_samples=2)

    def _draw(self, model: Model, data: np.ndarray, seed: int) -> xr.DataTree:
        """The posterior; ``trouble_`` and ``converged_`` say how far to trust it."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TrustWarning)  # said once, by ``_warn``
            posterior = sample(
                model,
                data,
                draws=self.n_draws,
                warmup=self.n_warmup,
                chains=self.n_chains,
                thin=self.thin,
                budget=self.budget,
                seed=seed,
                progress=bool(self.verbose),
            )
        doubts = [one for one in said if issubclass(one.category, TrustWarning)]
        self.trouble_ = [str(one.message) for one in doubts]
        for other in said:
            if other not in doubts:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        rows = summary(posterior).table.items()
        r_hats = [row["r_hat"] for name, row in rows if name.startswith("log_density")]
        r_hats = r_hats or [row["r_hat"] for _, row in rows]
        if posterior.attrs["draws_rejections"]:
            r_hats.append(rejection_numbers(posterior)["r_hat"])
        self.converged_ = all(value < R_HAT_LIMIT for value in r_hats)
        return posterior

    def _warn(self) -> None:
        """One warning for all doubts, where ``fit`` was called."""
        if self.trouble_:
            warnings.warn(" ".join(self.trouble_), UnsettledWarning, stacklevel=3)

    def _checked(self, X: ArrayLike) -> np.ndarray:
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
