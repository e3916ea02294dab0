"""Algorithm 2 where theta given X and Y is drawn exactly, from sums over the points.

Given the rejections, truncated data are complete data: p(theta | X, Y) is the posterior of an
ordinary, untruncated sample, and where the prior is conjugate to the base all parameters are drawn
from it directly, from sums over the points. ``offcut.samplers.conjugacy`` recognises such models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from offcut.augmentation.joint import sum_statistics
from offcut.augmentation.rejections import Layout, Rejected
from offcut.base import Kernel, Stage, Stats
from offcut.errors import SettingsError
from offcut.models.data import HostPoints, Observed
from offcut.models.prior import Position, Theta
from offcut.models.rejection import RejectionModel
from offcut.numerics.types import KeyArray, Point
from offcut.samplers.algorithm2 import AugmentedSampler, State
from offcut.samplers.conjugacy import Centre, NoMatch
from offcut.samplers.conjugacy.match import find_conjugate


@dataclass(frozen=True)
class Conjugate(Kernel):
    """Draw all parameters from their exact conditionals given the data and the rejections.

    Chosen by ``offcut.sample`` where prior and base match: ``offcut.kernel_for(model)`` says
    whether they do. Asking for it with a model that does not match is an error that says why.

    ========================================  ==================================================
    base                                      prior
    ========================================  ==================================================
    ``Normal``, ``LogNormal``                 ``Normal`` on the mean; ``InverseGamma`` on the
                                              variance or ``Gamma`` on the precision; dependent
                                              (normal-inverse-gamma) or not; either known
    ``MultivariateNormal``                    ``MultivariateNormal`` on the mean;
                                              ``InverseWishart`` on the covariance or ``Wishart``
                                              on the precision; dependent or not; either known
    ``Exponential``, ``Gamma``, ``Poisson``,  ``Gamma`` on the rate, other parameters known
    ``Weibull``, ``Pareto``, ...
    ``Bernoulli``, ``Binomial``,              ``Beta`` on the probability
    ``Geometric``
    ========================================  ==================================================
    """

    kind: ClassVar[str] = "conjugate"


class ConjugateSampler(AugmentedSampler):
    """Algorithm 2 with an exact draw of theta given X and Y.

    The ``tuning`` of its states is the point from which sums of squares are measured.
    """

    draws_exactly = True
    unsound = "a sum over data and rejections, or the draw of theta given it,"

    def __init__(
        self, model: RejectionModel, layout: Layout, kernel: Kernel, covariates: tuple
    ) -> None:
        found = find_conjugate(model, covariates)
        if isinstance(found, NoMatch):
            raise SettingsError(
                f"Conjugate() does not fit this model: {found.reason}. Leave kernel out, and "
                "NUTS is used"
            )
        super().__init__(model, layout, kernel)
        self.match = found
        self.kernel_name = f"Conjugate({found.description})"

    def start(self, key: KeyArray, data: Observed, budget: int) -> State:
        """As in Algorithm 2, and the centre of the data."""
        state = super().start(key, data, budget)
        points = jax.tree.map(lambda a: np.asarray(a)[: int(data.n)], self._true(data.points))
        return state._replace(tuning=np.asarray(self.match.centre(points), float))

    def stationary(self, key: KeyArray, theta: Theta, data: Observed, rejected: Rejected) -> State:
        """The state at theta with a Y drawn from the model (for the invariance test)."""
        state = super().stationary(key, theta, data, rejected)
        shape = jax.eval_shape(lambda: jnp.asarray(self.match.centre(self._example(data)), float))
        return state._replace(tuning=jnp.zeros(shape.shape))

    def move(
        self, key: KeyArray, drawn: State, stage: Stage, data: Observed
    ) -> tuple[Position, Centre, Stats, Bool[Array, ""]]:
        """Sums over X and Y, and a draw; both must be finite."""
        centre = drawn.tuning
        sums = sum_statistics(
            lambda point: self.match.statistic(self._true(point), centre),
            data,
            drawn.rejected,
            self.layout,
        )
        count = data.n + drawn.rejected.count
        theta = self.model.prior.constrain(drawn.position, drawn.exact)
        new = self.match.draw(key, theta, sums, count, centre)
        position = self.model.prior.unconstrain({**theta, **new})
        finite = [jnp.all(jnp.isfinite(part)) for part in jax.tree.leaves((sums, position))]
        return position, centre, {}, jnp.all(jnp.stack(finite))

    def _true(self, points: Point) -> Point:
        """What the base has drawn: true values where there is measurement error."""
        assert self.model.source is not None  # or there would be no match
        return self.model.source.true(points)

    def _example(self, data: Observed) -> HostPoints:
        return jax.tree.map(lambda a: np.ones(a.shape), self._true(data.points))
