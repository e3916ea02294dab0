"""The certificate: how far a budget may have moved the posterior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcut.driver.budget import halving_limit


class Certificate(NamedTuple):
    """How far the budget may matter. Shares of total variation distance, between 0 and 1."""

    tv_halving_limit: float  # upper limit of what halving the budget would change
    tv_estimate: float  # estimate of 1 - c; nan where the sampler has no attempts
    tv_lower: float  # share of sweeps redrawn, on average at most 1 - c; nan likewise
    tv_note: str  # why an entry is nan or void, or ""


def certify(
    stats: dict[str, np.ndarray], budget: int | None, draws_rejections: bool, redraws: bool
) -> Certificate:
    """The certificate of a run, from its statistics."""
    if not draws_rejections:
        return Certificate(0.0, 0.0, 0.0, "this sampler draws no rejections")
    if budget is None:
        return Certificate(0.0, 0.0, 0.0, "no budget: nothing is restricted")
    limit = halving_limit(stats["rejected"], budget)
    if not redraws:
        note = "this kernel refuses instead of redrawing, so there are no attempts to average"
        return Certificate(limit, float("nan"), float("nan"), note)
    attempts = stats["attempts"]
    estimate = 1.0 - 1.0 / float(attempts.mean())
    lower = float(np.mean(attempts > 1))
    gave_up = float(np.mean(stats["gave_up"]))
    note = ""
    if gave_up > 0:
        note = (
            f"void: {gave_up:.1%} of the sweeps gave up, so the mean number of attempts is cut "
            "short and the estimate is too low"
        )
    return Certificate(limit, estimate, lower, note)
