"""A result in words: the parameters, the rejections, and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from offcut.base import Doubt
from offcut.result.advice import find_doubts, what_may_help
from offcut.result.diagnostics import Table, parameter_table, rejection_numbers

MOST_ROWS = 40


class Summary:
    """What ``offcut.summary`` returns: ``table``, ``text``, ``trouble`` and ``advice``.

    ``table`` has a row for each parameter, ``trouble`` the reasons for doubt, ``advice`` what may
    help. Printing a summary prints everything: ``figures``, which is the table and what is known
    of rejections and budget, then trouble and advice. ``doubts`` has the trouble with its kinds.
    """

    def __init__(self, table: Table, figures: str, doubts: list[Doubt], advice: list[str]) -> None:
        self.table, self.figures, self.doubts, self.advice = table, figures, doubts, advice

    @property
    def trouble(self) -> list[str]:
        """The reasons for doubt, in words."""
        return [doubt.text for doubt in self.doubts]

    @property
    def text(self) -> str:
        """All of it."""
        lines = [self.figures]
        if self.doubts:
            lines += ["", "Before you trust this:"] + [f"  - {line}" for line in self.trouble]
        if self.advice:
            lines += ["", "What may help:"] + [f"  - {line}" for line in self.advice]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def summary(posterior: xr.DataTree) -> Summary:
    """The posterior in words.

    Parameters
    ----------
    posterior : xarray.DataTree
        What ``offcut.sample`` returned.

    Returns
    -------
    Summary
        ``print`` it; ``.table`` holds the numbers, ``.trouble`` the reasons for doubt, ``.advice``
        what may help.

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     inside=lambda x: x > 0,
    ... )
    >>> x = np.array([0.1, 0.5, 0.7, 1.2, 2.0])
    >>> posterior = offcut.sample(
    ...     model, x, draws=50, warmup=50, chains=2, kernel=offcut.HMC(0.3, 5)
    ... )
    >>> report = offcut.summary(posterior)
    >>> sorted(report.table["loc"])
    ['5%', '95%', 'ess', 'mcse', 'mean', 'missing', 'r_hat', 'sd']
    """
    table = parameter_table(posterior)
    doubts = find_doubts(posterior, table)
    advice = what_may_help(posterior, table, doubts)
    parts = [_rows(table), _rejections(posterior), _certificate(posterior)]
    lines = [line for part in parts if part for line in [*part, ""]][:-1]
    return Summary(table, "\n".join(lines), doubts, advice)


def _rows(table: Table) -> list[str]:
    width = max([9, *map(len, table)])
    known = any(np.isfinite(row["missing"]) for row in table.values())
    head = f"{'':{width}}  {'mean':>9} {'sd':>9} {'5%':>9} {'95%':>9} {'ESS':>7} {'R-hat':>6}"
    lines = [head + (f" {'missing':>8}" if known else "")]
    for label, row in list(table.items())[:MOST_ROWS]:
        lines.append(
            f"{label:{width}}  {row['mean']:9.4g} {row['sd']:9.3g} {row['5%']:9.4g} "
            f"{row['95%']:9.4g} {_or_fixed(row['ess'], '7,.0f')} {_or_fixed(row['r_hat'], '6.2f')}"
            + (f" {row['missing']:8.1%}" if np.isfinite(row["missing"]) else "")
        )
    if len(table) > MOST_ROWS:
        lines.append(f"... and {len(table) - MOST_ROWS} more")
    return lines


def _or_fixed(number: float, form: str) -> str:
    """A number, or a dash where there is none: a fixed parameter needs no estimate."""
    return f"{'-':>{form[0]}}" if np.isnan(number) else f"{number:{form}}"


def _rejections(posterior: xr.DataTree) -> list[str]:
    attrs = posterior.attrs
    if not attrs["draws_rejections"]:
        return [f"{_method(attrs)} Kernel: {attrs['kernel']}.", *_frames(posterior)]
    numbers = rejection_numbers(posterior)
    return [
        f"Rejected proposals |Y| a sweep: median {numbers['median']:,.0f} (90% from "
        f"{numbers['5%']:,.0f} to {numbers['95%']:,.0f}, most {numbers['most']:,.0f}) beside "
        f"{attrs['n_observations']:,} observations{_passing(numbers['acceptance'])}.",
        f"ESS of |Y| {numbers['ess']:,.0f}, R-hat {numbers['r_hat']:.2f}.",
        f"{_method(attrs)} Kernel: {attrs['kernel']}.",
        *_frames(posterior),
        _missing(posterior),
    ]


def _passing(acceptance: float) -> str:
    """Of no observations no proposal passed, whatever the filter."""
    return (
        "" if np.isnan(acceptance) else f", so {_percent(acceptance)} of proposals pass the filter"
    )


def _frames(posterior: xr.DataTree) -> list[str]:
    """Where exact draws of orientations were out of reach."""
    stats: Any = posterior["sample_stats"]
    if "exact_frames" not in stats or bool(stats["exact_frames"].all()):
        return []
    share = 1 - float(stats["exact_frames"].mean())
    return [
        f"In {share:.0%} of the sweeps orientations moved by Gibbs steps, column by column, "
        "because exact draws would hardly ever be accepted: exact in the long run, but slower."
    ]


def _method(attrs: Mapping[Any, Any]) -> str:
    """Which of a model's methods ran, and what is to be said about it."""
    return f"Method: {attrs['method']}{attrs['method_note']}."


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.2g}" if share < 1e-3 else f"{share:.1%}"


def _missing(posterior: xr.DataTree) -> str:
    fraction = posterior.attrs.get("missing_information", np.nan)
    if np.isnan(fraction):
        why = posterior.attrs.get("missing_information_note", "")
        return f"Fraction of missing information: not known ({why or 'not recorded'})."
    digits = 1 if fraction < 0.99 else 2
    sweeps = (1 + fraction) / max(1 - fraction, 1e-9)
    return (
        f"Fraction of missing information {fraction:.{digits}%} in the worst direction "
        "(estimated): so much of what a sweep knows comes from rejections, not data. Expect about "
        f"{sweeps:,.0f} sweeps for one independent draw."
    )


def _certificate(posterior: xr.DataTree) -> list[str]:
    attrs = posterior.attrs
    if not attrs["draws_rejections"]:
        return ["Certificate: this sampler draws no rejections, so nothing was restricted."]
    if attrs["budget"] == "none":
        return ["Certificate: no budget was set, so nothing was restricted.", *_looked(posterior)]
    budget = attrs["budget"]
    lines = [
        f"Certificate: sweeps were limited to {budget:,} rejections. Halving that limit would "
        f"change the posterior by at most {attrs['tv_halving_limit']:.2%} (total variation, 95% "
        "confidence)."
    ]
    estimate = attrs["tv_estimate"]
    if np.isnan(estimate):
        lines.append(f"  No estimate against no limit at all: {attrs['tv_note']}.")
    else:
        lines.append(
            f"  Against no limit at all the change is estimated at {estimate:.2%} (an estimate, "
            "not a bound: what the run never visited it cannot know)."
        )
        if attrs["tv_note"]:
            lines.append(f"  {attrs['tv_note']}.")
    return [*lines, *_looked(posterior)]


def _looked(posterior: xr.DataTree) -> list[str]:
    """What was found beyond the run, where somebody looked."""
    share = posterior.attrs.get("beyond_share", np.nan)
    if np.isnan(share):
        return []
    return [
        f"  A look beyond (importance sampling from the prior): about {share:.2%} of the posterior "
        "lies where more than twice as many proposals would be rejected as in any sweep here."
    ]
