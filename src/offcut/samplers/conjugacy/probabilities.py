r"""Probabilities with a beta prior: each point multiplies the likelihood by p^s (1 - p)^f.

p ~ Beta(a, b),    p | X, Y ~ Beta(a + sum s, b + sum f).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.models.prior import Theta
from offcut.models.rejection import Point
from offcut.samplers.conjugacy.contract import Match, Unmatched
from offcut.samplers.conjugacy.priors import beta_prior, constant, site_of
from offcut.samplers.conjugacy.reading import Family, Reading

#: One point's successes and failures.
Share = Callable[[jax.Array], tuple[Any, Any]]


def _binomial(base: Family) -> Share:
    total = constant(base, "total_count", "the base")
    return lambda x: (x, total - x)


_FORMS: dict[str, Callable[[Family], Share]] = {
    "BernoulliProbs": lambda base: lambda x: (x, 1 - x),
    "BinomialProbs": _binomial,
    "GeometricProbs": lambda base: lambda x: (1.0, x),
}
KINDS = frozenset(_FORMS)


@dataclass(frozen=True, eq=False)
class ProbabilityMatch(Match):
    """The site is the probability itself."""

    share: Share
    prior: tuple[np.ndarray, np.ndarray]

    def statistic(self, point: Point, centre: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Successes and failures of one point."""
        s, f = self.share(jnp.asarray(point, float))
        shape = self.prior[0].shape
        return jnp.broadcast_to(s, shape), jnp.broadcast_to(f, shape)

    def draw(
        self, key: jax.Array, theta: Theta, statistics: Any, count: jax.Array, centre: jax.Array
    ) -> Theta:
        """The probability; what rounds to 1 is the float before it.

        That is right to within rounding. What rounds to 0 is not: see ``rates.draw_gamma``.
        """
        (a, b), (s, f) = self.prior, statistics
        p = jax.random.beta(key, a + s, b + f)
        return {self.sites[0]: jnp.minimum(p, 1 - np.finfo(float).epsneg)}


def find(reading: Reading) -> Match:
    """The update of a probability."""
    share = _FORMS[reading.base.kind](reading.base)
    power = site_of(reading, reading.base.parameters["probs"], "probs")
    if power.exponent != 1 or (power.coefficient != 1).any():
        raise Unmatched(f"probs of the base is not {power.site!r} itself")
    kind = reading.base.kind.removesuffix("Probs")
    return ProbabilityMatch(
        f"{kind}: {power.site} beta", (power.site,), share, beta_prior(reading, power.site)
    )
