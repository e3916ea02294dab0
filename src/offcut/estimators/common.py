"""What the estimators share: seeds, and the warning of a run that has not settled."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from offcut.errors import TrustWarning


class UnsettledWarning(ConvergenceWarning, TrustWarning):
    """What scikit-learn calls a lack of convergence and Offcut a reason for doubt."""


def seed_from(random_state: Any) -> int:
    """An int as it is, otherwise one that the generator gives."""
    generator = check_random_state(random_state)
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))
