"""How many independent draws a series is worth."""

from __future__ import annotations

import numpy as np
from jaxtyping import Real


def effective_size(series: Real[np.ndarray, "chain draw"], method: str = "mean") -> float:
    """Effective sample size of (chain, draw); all draws where the series is constant.

    ``method`` as of arviz_stats: "mean", or "bulk" for ranks in place of values.
    """
    from arviz_stats.base import array_stats

    if series.shape[1] < 4:
        return 1.0
    if np.all(series == series.flat[0]):
        return float(series.size)
    value = float(array_stats.ess(series, chain_axis=0, draw_axis=1, method=method))
    return min(max(value, 1.0), float(series.size)) if np.isfinite(value) else 1.0
