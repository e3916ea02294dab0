r"""Theorem 1 of Rao, Lin & Dunson (2016): how fast the data augmentation chain mixes at least.

Assumes that theta is drawn exactly from p(theta | X, Y) in each sweep, and no budget. One step of
the chain then satisfies k(theta' | theta) >= delta p(theta' | X), so its rate of convergence rho is
at most 1 - delta. With R = min Z/M over theta and beta a lower bound of
min_theta q(1 - a) / max_theta q(1 - a) over all y (the theorem uses beta = r b_q / B_q):

    paper   delta = { (b_f / B_f) / (beta + 1/R) }^n
    sharp   delta = { (b_f / B_f) / ((1 - beta)/R + beta) }^n   (the proof, its sign mended)
    varying delta = { (R / R_max) / ((1 - beta)/R + beta) }^n     (M may depend on theta)
"""

from __future__ import annotations

import math

from offcut.errors import SettingsError


def mixing_rate_bound(
    n: int,
    *,
    min_acceptance: float,
    f_ratio: float | None = None,
    max_acceptance: float | None = None,
    q_ratio: float = 1.0,
    min_rejection: float = 0.0,
    beta: float | None = None,
    form: str = "sharp",
) -> float:
    r"""Upper bound of the mixing rate rho of Algorithm 2 (smaller is faster; 1 says nothing).

    Parameters
    ----------
    n : int
        Number of observations.
    min_acceptance : float
        R, the smallest Z(theta)/M over theta: the lowest acceptance rate.
    f_ratio : float, optional
        b_f / B_f, smallest over largest value of f over all x and theta. Truncation on the full
        space has b_f = 0 and is excluded. Needed for the forms "sharp" and "paper".
    max_acceptance : float, optional
        R_max, the largest Z/M; needed for the form "varying", where M may depend on theta.
    q_ratio : float
        b_q / B_q, smallest over largest value of the proposal density.
    min_rejection : float
        r, the smallest rejection probability 1 - a over all x and theta; 0 is allowed.
    beta : float, optional
        Given directly, in place of ``q_ratio * min_rejection``; the sharpest choice is the
        infimum over y of min over theta of q(1 - a) divided by max over theta of q(1 - a).
    form : {"sharp", "paper", "varying"}
        Which bound.

    Returns
    -------
    float
        rho <= this.

    Examples
    --------
    >>> import offcut
    >>> round(offcut.mixing_rate_bound(3, min_acceptance=0.5, f_ratio=0.8, beta=0.1), 4)
    0.9254
    """
    if n < 1:
        raise SettingsError(f"n must be at least 1, got {n!r}")
    for name, value in {
        "min_acceptance": min_acceptance,
        "f_ratio": f_ratio,
        "max_acceptance": max_acceptance,
        "q_ratio": q_ratio,
        "min_rejection": min_rejection,
        "beta": beta,
    }.items():
        if value is not None and not 0 <= value <= 1:
            raise SettingsError(f"{name} is a ratio or a probability, between 0 and 1, got {value}")
    if min_acceptance == 0:
        return 1.0
    if beta is None:
        beta = q_ratio * min_rejection
    inverse = (1 - beta) / min_acceptance + beta
    if form == "varying":
        if max_acceptance is None:
            raise SettingsError('form="varying" needs max_acceptance, the largest Z/M over theta')
        flatness = min_acceptance / max_acceptance
    elif form in ("sharp", "paper"):
        if f_ratio is None:
            raise SettingsError(f'form="{form}" needs f_ratio, the ratio b_f / B_f')
        flatness = f_ratio
        if form == "paper":
            inverse = beta + 1 / min_acceptance
    else:
        raise SettingsError(f'form must be "sharp", "paper" or "varying", got {form!r}')
    if flatness == 0:
        return 1.0
    return -math.expm1(n * math.log(flatness / inverse))
