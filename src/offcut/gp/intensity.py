"""``offcut.GPIntensity``: the sigmoidal Gaussian Cox process, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from offcut.errors import DataError, ModelError
from offcut.gp import evaluation
from offcut.gp.covariance import covariance_named
from offcut.gp.evaluation import Bands
from offcut.gp.model import GPModel
from offcut.gp.planning import FRESH, Wishes
from offcut.gp.settings import as_region, checked_nugget


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
    kernel, basis, length_scale, variance, additive, method, joint_moves, nugget,
    rejections
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

    def __init__(
        self,
        window: Any = None,
        kernel: str = "squared_exponential",
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
        wishes = Wishes(
            "uniform",
            None,
            covariance_named(kernel),
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
        super().__init__(wishes, method)

    def read(self, data: Any) -> tuple[np.ndarray, bool]:
        """Events (n, d), and whether they are single numbers; there may be none."""
        carries = hasattr(data, "columns") or hasattr(data, "channels")
        values = data.values if carries else data
        rows = isinstance(values, list | tuple) or getattr(values, "ndim", 0) > 0
        if not rows or len(values):
            return super().read(data)
        if self.wishes.support is None:
            raise DataError(
                "there are no events, and no window= in which they were recorded: give it, for "
                "none at all says that the intensity is low there"
            )
        flat = np.ndim(values) < 2
        d = as_region("window", self.wishes.support).dimension or 1
        return np.zeros((0, d if flat else np.shape(values)[1])), flat and d == 1

    def intensity(self, posterior: xr.DataTree, points: Any, draws: bool = False) -> np.ndarray:
        """Posterior mean of the intensity at points, or one for each draw (chain, draw, point)."""
        values = evaluation.intensity(posterior, self.prepared_for(posterior), points)
        return values if draws else values.mean((0, 1))

    def bands(self, posterior: xr.DataTree, points: Any, probability: float = 0.9) -> Bands:
        """Pointwise credible bands of the intensity."""
        return evaluation.bands(points, self.intensity(posterior, points, draws=True), probability)
