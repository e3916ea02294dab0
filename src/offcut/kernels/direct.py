"""NUTS on the exact likelihood, for windows whose mass is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from offcut.kernels.nuts import NUTS


@dataclass(frozen=True)
class Direct(NUTS):
    """No-U-Turn sampler on the exact likelihood; no rejections are drawn.

    Where the mass of the window, Z(theta), has a closed form, the honest thing is to use it:

        log p(X | theta) = sum_i log q(x_i | theta) - n log Z(theta).

    That is so for models made by ``offcut.truncated`` with single numbers as observations, a
    window made of ``offcut.regions`` (intervals, their unions and complements) and a base among
    ``Normal``, ``LogNormal``, ``Exponential``, ``Weibull``, ``Logistic``, ``Laplace`` and
    ``Pareto``. Never chosen by itself; the summary of a slow run recommends it where it applies.

    Parameters
    ----------
    step_size, target_acceptance, max_doublings
        As in ``NUTS``.
    """

    given_rejections: ClassVar[bool] = False
