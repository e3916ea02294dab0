r"""Exact draws of all parameters given X and Y, where prior and base are conjugate.

Given the rejections, truncated data are complete data: p(theta | X, Y) is the posterior of an
ordinary, untruncated sample, and where the prior is conjugate to the base it is drawn from
directly, from sums over the points. ``offcut.conjugate`` recognises such models;
``offcut.conjugate_sweep`` is the sampler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Conjugate:
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

    given_rejections: ClassVar[bool] = True
    adapts: ClassVar[bool] = False

    def first_tuning(self, points: int, size: int) -> None:
        """There is nothing to tune."""
        return
