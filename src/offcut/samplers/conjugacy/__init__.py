"""Conjugate updates: theta given X and Y from its exact conditional, where prior and base allow it.

Under truncation, and under selection that does not involve theta, the density of X and Y is that
of independent draws from the base,

    p(theta | X, Y) ∝ p(theta) prod_{z in X ∪ Y} q(z | theta),

so a prior that is conjugate to the base stays conjugate however odd the window is. ``match`` says
whether it is; what it finds needs only sums over the points (``statistic``) to draw theta.
"""

from __future__ import annotations

from offcut.samplers.conjugacy.contract import Match, NoMatch
from offcut.samplers.conjugacy.match import match

__all__ = ["Match", "NoMatch", "match"]
