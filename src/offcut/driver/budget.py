r"""The budget on rejections, and the certificate: what a run can honestly say about it.

The number of rejections |Y| is unbounded and its expectation under the posterior can be infinite.
With a budget B the sampler targets the joint restricted to |Y| <= B. Write P(theta) =
P(|Y| <= B | theta) and c for its mean under the unrestricted posterior p(theta | X). Then

- the draws come from p(theta | X) P(theta) / c exactly;
- at stationarity E[attempts] = 1/c;
- the total variation distance to the unrestricted posterior is at most 1 - c.

What can be estimated from the run: 1 - 1/mean(attempts) is consistent for 1 - c but typically too
low (attempts are heavy-tailed), so it is an estimate and no bound; P(attempts > 1) is at most
1 - c, a lower limit; and P(|Y| > B/2) bounds exactly how much *halving* the budget would change
the posterior. No restricted run can bound what it never visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import stats

from offcut.base import MOST_REJECTED
from offcut.errors import SettingsError
from offcut.numerics.ess import effective_size

#: With budget="auto" warm-up may use this many rejections, or 200 for each observation.
WARMUP_ROOM = 100_000
SMALLEST_AUTO_BUDGET = 1_000
#: "auto" grows the budget where more than this would change by halving it.
TOLERATED = 0.02
CONFIDENCE = 0.95


def checked_budget(budget: object) -> int | str | None:
    """ "auto", None or a whole number >= 0."""
    if budget is None or budget == "auto":
        return budget
    whole = isinstance(budget, int | np.integer) and not isinstance(budget, bool)
    if not whole or not 0 <= int(budget) <= MOST_REJECTED:  # type: ignore[call-overload]
        raise SettingsError(
            f'budget must be "auto", None (no limit) or a whole number from 0 to '
            f"{MOST_REJECTED:,}, got {budget!r}"
        )
    return int(budget)  # type: ignore[call-overload]


def warmup_budget(budget: int | str | None, n: int, most: int = MOST_REJECTED) -> int | None:
    """The budget in force during warm-up; "auto" stays within the ``most`` that fit in memory."""
    if budget == "auto":
        return min(max(WARMUP_ROOM, 200 * n), most)
    return budget  # type: ignore[return-value]


def budget_after_warmup(
    rejected: Int[np.ndarray, "chain draw"], held: int, n: int, largest: int = MOST_REJECTED
) -> int:
    """Ample room above what the second half of warm-up needed; never below what is held."""
    late = rejected[:, rejected.shape[1] // 2 :]
    most = max(int(late.max()) if late.size else 0, held)
    return int(max(min(max(4 * most, n, SMALLEST_AUTO_BUDGET), largest), held))


def grown_budget(
    rejected: Int[np.ndarray, "chain draw"], budget: int, largest: int = MOST_REJECTED
) -> int | None:
    """A larger budget where draws came near the present one, else None."""
    exceeded = bool(np.any(rejected > budget // 2))
    if exceeded and halving_limit(rejected, budget) > TOLERATED and budget < largest:
        return int(min(4 * budget, largest))
    return None


def halving_limit(rejected: Int[np.ndarray, "chain draw"], budget: int) -> float:
    r"""Upper confidence limit of P(|Y| > B/2), which bounds TV(pi_{B/2}, pi_B).

    For b < B, pi_b is pi_B given |Y| <= b, so TV(pi_b, pi_B) <= P_B(|Y| > b). The limit is the
    Clopper-Pearson one at the effective sample size (3/ESS where no draw exceeded B/2).

    Parameters
    ----------
    rejected : array (chain, draw)
        |Y| of every draw.
    budget : int
        B.
    """
    if budget == 0:
        return 1.0  # half of nothing is no smaller budget
    over = rejected > budget // 2
    effective = effective_size(rejected.astype(float))
    if 0 < over.mean() < 1:
        effective = min(effective, effective_size(over.astype(float)))
    hits = float(over.mean()) * effective
    return float(stats.beta.ppf(CONFIDENCE, hits + 1, max(effective - hits, 1e-9)))


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
