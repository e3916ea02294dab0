"""A result in words: the parameters, the rejections, and how far to trust it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import xarray as xr

from offcut.budget import effective_size
from offcut.errors import TrustWarning

R_HAT_LIMIT = 1.05
TV_LIMIT = 0.05
ENOUGH_ESS = 100
MOST_ROWS = 40


class Summary:
    """What ``offcut.summary`` returns: ``table`` (one row a parameter), ``text``, ``trouble``.

    Printing it prints everything.
    """

    def __init__(self, table: dict[str, dict[str, float]], text: str, trouble: list[str]) -> None:
        self.table, self.text, self.trouble = table, text, trouble

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
        ``print`` it; ``.table`` holds the numbers, ``.trouble`` the reasons for doubt.
    """
    table = _table(posterior["posterior"].dataset)
    trouble = find_trouble(posterior, table)
    parts = [_rows(table), _rejections(posterior), _certificate(posterior)]
    lines = [line for part in parts if part for line in [*part, ""]][:-1]
    if trouble:
        lines += ["", "Before you trust this:"] + [f"  - {line}" for line in trouble]
    return Summary(table, "\n".join(lines), trouble)


def warn_of_trouble(posterior: xr.DataTree) -> None:
    """A warning for every reason to doubt a finished run."""
    for line in find_trouble(posterior, _table(posterior["posterior"].dataset)):
        warnings.warn(line, TrustWarning, stacklevel=5)


def find_trouble(posterior: xr.DataTree, table: dict[str, dict[str, float]]) -> list[str]:
    """Reasons for doubt, in plain words, the gravest first."""
    attrs: Any = posterior.attrs
    stats: Any = posterior["sample_stats"]
    trouble = []
    if attrs["interrupted"]:
        drawn = posterior["posterior"].sizes["draw"]
        trouble.append(
            f"The run was interrupted: {drawn} of {attrs['draws']} draws of each chain are here."
        )
    chains, draws = stats["rejected"].shape
    if chains > 1 and draws >= 100:
        rejected = r_hat(stats["rejected"].values)
        disagreeing = {k: row["r_hat"] for k, row in table.items() if row["r_hat"] > R_HAT_LIMIT}
        if rejected > R_HAT_LIMIT:
            disagreeing["|Y|"] = rejected
        if disagreeing:
            worst = sorted(disagreeing.items(), key=lambda item: -item[1])
            named = ", ".join(f"{k} ({v:.2f})" for k, v in worst[:4])
            trouble.append(
                f"The chains disagree: R-hat above {R_HAT_LIMIT} for {named}. Run longer, and if "
                "it stays, tighten the prior: weakly identified parameters drift in the tail. "
                "Where few proposals pass the filter, kernel=offcut.Exchange() may mix better."
            )
        least = min(table, key=lambda name: table[name]["ess"])
        if not disagreeing and table[least]["ess"] < ENOUGH_ESS:
            trouble.append(
                f"Few effective draws: {table[least]['ess']:.0f} for {least}. Means are uncertain "
                f"by {table[least]['mcse'] / max(table[least]['sd'], 1e-300):.0%} of a standard "
                "deviation, tail quantiles by more: run longer."
            )
    if "gave_up" in stats and bool(stats["gave_up"].any()):
        share = float(stats["gave_up"].mean())
        trouble.append(
            f"{share:.1%} of the sweeps gave up and kept their previous rejections: the draws "
            "are still exact for the budgeted posterior, but they move slowly. Raise the budget."
        )
    limit = attrs["tv_halving_limit"]
    if attrs["budget"] != "none" and limit > TV_LIMIT:
        half = attrs["budget"] // 2
        if bool((stats["rejected"] > half).any()):
            trouble.append(
                f"The budget may matter: halving it to {half:,} could change the posterior by up "
                f"to {limit:.0%} in total variation. Raise it, or tighten the prior."
            )
        else:
            trouble.append(
                f"Too few independent draws to certify the budget: no draw came near it, but |Y| "
                f"mixes so slowly that the limit is only {limit:.0%}. Run longer."
            )
    if attrs["tv_lower"] > TV_LIMIT:
        trouble.append(
            f"The budget does matter: {attrs['tv_lower']:.0%} of the sweeps exceeded it and were "
            "redrawn, so the draws are those of a posterior tilted towards few rejections. Raise "
            "it, or take it as the part of the prior that it is."
        )
    if "diverging" in stats:
        diverging = int(stats["diverging"].sum())
        if diverging > 0.01 * stats["diverging"].size:
            trouble.append(
                f"{diverging} sweeps diverged: the step size is too large somewhere in the "
                "posterior. Use NUTS with a higher target_acceptance, or reparametrise."
            )
    return trouble


def r_hat(series: np.ndarray) -> float:
    """Rank-normalised split R-hat of (chain, draw); 1 where it is constant, inf where stuck."""
    from arviz_stats.base import array_stats

    if np.all(series == series.flat[0]):
        return 1.0
    if series.shape[0] < 2 or series.shape[1] < 4:
        return float("nan")
    if np.all(series == series[:, :1]):
        return float("inf")  # every chain stands still, and not at the same place
    return float(array_stats.rhat(series.astype(float), chain_axis=0, draw_axis=1))


def _table(dataset: xr.Dataset) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for name, variable in dataset.data_vars.items():
        values = variable.values.astype(float)
        for index in np.ndindex(values.shape[2:]):
            series = values[(slice(None), slice(None), *index)]
            label = f"{name}[{', '.join(map(str, index))}]" if index else str(name)
            ess = effective_size(series)
            table[label] = {
                "mean": float(series.mean()),
                "sd": float(series.std(ddof=1)) if series.size > 1 else 0.0,
                "5%": float(np.quantile(series, 0.05)),
                "95%": float(np.quantile(series, 0.95)),
                "mcse": float(series.std() / np.sqrt(ess)),
                "ess": ess,
                "r_hat": r_hat(series),
            }
            if len(table) >= 1000:
                return table
    return table


def _rows(table: dict[str, dict[str, float]]) -> list[str]:
    width = max([9, *map(len, table)])
    lines = [f"{'':{width}}  {'mean':>9} {'sd':>9} {'5%':>9} {'95%':>9} {'ESS':>7} {'R-hat':>6}"]
    for label, row in list(table.items())[:MOST_ROWS]:
        lines.append(
            f"{label:{width}}  {row['mean']:9.4g} {row['sd']:9.3g} {row['5%']:9.4g} "
            f"{row['95%']:9.4g} {row['ess']:7,.0f} {row['r_hat']:6.2f}"
        )
    if len(table) > MOST_ROWS:
        lines.append(f"... and {len(table) - MOST_ROWS} more")
    return lines


def _rejections(posterior: xr.DataTree) -> list[str]:
    if not posterior.attrs["draws_rejections"]:
        return []
    stats: Any = posterior["sample_stats"]
    rejected = stats["rejected"].values
    n = posterior.attrs["n_observations"]
    low, middle, high = np.quantile(rejected, [0.05, 0.5, 0.95])
    return [
        f"Rejected proposals |Y| a sweep: median {middle:,.0f} (90% from {low:,.0f} to "
        f"{high:,.0f}, most {rejected.max():,}) beside {n:,} observations, so "
        f"{n / (n + rejected.mean()):.0%} of proposals pass the filter.",
        f"ESS of |Y| {effective_size(rejected.astype(float)):,.0f}, R-hat {r_hat(rejected):.2f}.",
    ]


def _certificate(posterior: xr.DataTree) -> list[str]:
    attrs = posterior.attrs
    if not attrs["draws_rejections"]:
        return ["Certificate: this sampler draws no rejections, so nothing was restricted."]
    if attrs["budget"] == "none":
        return ["Certificate: no budget was set, so nothing was restricted."]
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
    return lines
