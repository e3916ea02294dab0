"""Reasons to doubt a run, and what may help, in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from offcut.augmentation.impute import LONG_WAIT
from offcut.base import Doubt
from offcut.result.diagnostics import Table, parameter_table, rejection_numbers, standing_still

R_HAT_LIMIT = 1.05
TV_LIMIT = 0.05
#: Below this an error bar is itself uncertain and quantiles are worse (Vehtari et al. 2021 ask for
#: 400). In a study of weak priors, runs with 100 to 400 were off by up to 19 of their error bars.
ENOUGH_ESS = 400
#: Fewer draws in a chain are judged by the certificate alone. R-hat of a single chain compares its
#: quarters, which must be as long.
ENOUGH_DRAWS = 100
#: What lies beyond the run is worth a word from this share of the posterior on, or where it would
#: move a mean by so many of its error bars. (The estimates are good to a factor of two or so.)
BEYOND_SHARE, BEYOND_SHIFT = 0.005, 3.0
#: Below this acceptance rate rejections outnumber data a hundred to one.
LOW_ACCEPTANCE = 0.01
#: Exchange walks at random: beyond so many parameters it takes small steps.
FEW_PARAMETERS = 5


def find_doubts(posterior: xr.DataTree, table: Table | None = None) -> list[Doubt]:
    """Reasons to doubt a finished run, the gravest first; ``table`` where it is there already."""
    table = parameter_table(posterior) if table is None else table
    found = [
        Doubt("interrupted", _interrupted(posterior)),
        Doubt("approximate", _approximate(posterior)),
        Doubt("stood still", _stood_still(posterior)),
        Doubt("undrawn", _undrawn(posterior)),
        Doubt("beyond", _beyond(posterior)),
        Doubt("mixing", _mixing(posterior, table)),
        Doubt("gave up", _gave_up(posterior)),
        Doubt("budget", _near_budget(posterior)),
        Doubt("budget", _over_budget(posterior)),
        Doubt("divergences", _divergences(posterior)),
    ]
    return [doubt for doubt in found if doubt.text]


def _interrupted(posterior: xr.DataTree) -> str:
    if not posterior.attrs["interrupted"]:
        return ""
    drawn, asked = posterior["posterior"].sizes["draw"], posterior.attrs["draws"]
    return f"The run was interrupted: {drawn} of {asked} draws of each chain are here."


def _approximate(posterior: xr.DataTree) -> str:
    named = posterior.attrs.get("approximation", "")
    return f"Approximate: {named}." if named else ""


def _undrawn(posterior: xr.DataTree) -> str:
    """Hidden values that did not change for long in the second half of the draws."""
    stats: Any = posterior["sample_stats"]
    if "undrawn" not in stats:
        return ""
    late = stats["undrawn"].values[:, stats.sizes["draw"] // 2 :]
    if not late.any():
        return ""
    return (
        f"{late.max()} of the observations of which something is hidden were not drawn for "
        f"{LONG_WAIT} sweeps or never: no proposal fell into their zone, and they did not move in "
        "it. They count as if what stands for them were known, and the posterior is not to be "
        "trusted. Is there room for them in zone and window wherever the parameters go?"
    )


def _beyond(posterior: xr.DataTree) -> str:
    attrs = posterior.attrs
    share, shift = attrs.get("beyond_share", np.nan), attrs.get("beyond_shift", np.nan)
    if not (share > BEYOND_SHARE or shift > BEYOND_SHIFT):
        return ""
    return (
        f"The posterior goes on where the run has not been: about {share:.1%} of it lies where "
        "more than twice as many proposals would be rejected as in any sweep here, for example "
        f"at {attrs['beyond_place']}. That would move a posterior mean by about {shift:.0f} of "
        "its error bars. The data do not exclude that nearly everything is missing; only the "
        "prior can."
    )


def _stood_still(posterior: xr.DataTree) -> str:
    """Chains that never moved, all of them or some of their parameters."""
    stuck = standing_still(posterior)
    if not stuck:
        return ""
    chains, draws = posterior["sample_stats"]["rejected"].shape
    by_chains: dict[tuple[int, ...], list[str]] = {}
    for name, where in stuck.items():
        by_chains.setdefault(where, []).append(name)
    parts = []
    for where, names in by_chains.items():
        named = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        which = "any chain" if len(where) == chains else _chains(where)
        parts.append(f"{named} never moved in {which}")
    stats: Any = posterior["sample_stats"]
    concerned = sorted({chain for where in stuck.values() for chain in where})
    hint = "the kernel refuses every step there"
    if "diverging" in stats and bool(stats["diverging"].values[concerned].all()):
        hint = "every step there ends where the density is zero or NaN"
    return (
        f"{'; '.join(parts)}: one value in all {draws:,} draws. These draws say nothing about the "
        f"posterior, whatever R-hat of other parameters says: {hint}. Look at sample_stats "
        "(acceptance_rate, diverging), try offcut.check(model) and another kernel or scale; a "
        "parameter that is meant to be fixed has a number or a Delta as its prior."
    )


def _chains(numbers: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"chain {listed}" if len(numbers) == 1 else f"chains {listed}"


def _mixing(posterior: xr.DataTree, table: Table) -> str:
    chains, draws = posterior["sample_stats"]["rejected"].shape
    if draws < ENOUGH_DRAWS or not table:
        return ""
    r_hats = {name: row["r_hat"] for name, row in table.items()}
    sizes = {name: row["ess"] for name, row in table.items()}
    if posterior.attrs["draws_rejections"]:
        numbers = rejection_numbers(posterior)
        r_hats["|Y|"], sizes["|Y|"] = numbers["r_hat"], numbers["ess"]
    if chains == 1 and draws < 4 * ENOUGH_DRAWS:
        r_hats = {}
    sizes = {name: value for name, value in sizes.items() if not np.isnan(value)}
    high = {name: value for name, value in r_hats.items() if value > R_HAT_LIMIT}
    worst = sorted(high.items(), key=lambda item: -item[1])
    named = ", ".join(f"{k} ({v:.2f})" for k, v in worst[:4])
    if named:
        what = "The chains disagree" if chains > 1 else "The chain has not settled"
        return (
            f"{what}: R-hat above {R_HAT_LIMIT} for {named}. Run longer, and if it stays, tighten "
            "the prior: weakly identified parameters drift in the tail."
        )
    least = min(sizes, key=lambda name: sizes[name], default="")
    if not least or sizes[least] >= ENOUGH_ESS:
        return ""
    wanted = float(f"{1.2 * draws * ENOUGH_ESS / sizes[least]:.1g}")
    return (
        f"Few effective draws: {sizes[least]:.0f} for {least}. Means are uncertain by about "
        f"{1 / np.sqrt(sizes[least]):.0%} of a standard deviation, tail quantiles by more, and "
        f"below {ENOUGH_ESS} the error bars are not reliable themselves: try draws={wanted:,.0f}."
    )


def _gave_up(posterior: xr.DataTree) -> str:
    stats: Any = posterior["sample_stats"]
    if "gave_up" not in stats or not bool(stats["gave_up"].any()):
        return ""
    return (
        f"{float(stats['gave_up'].mean()):.1%} of the sweeps gave up and kept their previous "
        "rejections: the draws are still exact for the budgeted posterior, but they move slowly. "
        "Raise the budget."
    )


def _near_budget(posterior: xr.DataTree) -> str:
    attrs = posterior.attrs
    limit = attrs["tv_halving_limit"]
    if attrs["budget"] == "none" or not limit > TV_LIMIT:
        return ""
    half = attrs["budget"] // 2
    if bool((posterior["sample_stats"]["rejected"] > half).any()):
        return (
            f"The budget may matter: halving it to {half:,} could change the posterior by up "
            f"to {limit:.0%} in total variation. Raise it, or tighten the prior."
        )
    return (
        f"Too few independent draws to certify the budget: no draw came near it, but |Y| "
        f"mixes so slowly that the limit is only {limit:.0%}. Run longer."
    )


def _over_budget(posterior: xr.DataTree) -> str:
    lower = posterior.attrs["tv_lower"]
    if not lower > TV_LIMIT:
        return ""
    return (
        f"The budget does matter: {lower:.0%} of the sweeps exceeded it and were redrawn, so the "
        "draws are those of a posterior tilted towards few rejections. Raise it, or take it as "
        "the part of the prior that it is."
    )


def _divergences(posterior: xr.DataTree) -> str:
    stats: Any = posterior["sample_stats"]
    if "diverging" not in stats:
        return ""
    # In a chain that never moved it is not the step size; that is said elsewhere.
    stuck = {chain for where in standing_still(posterior).values() for chain in where}
    moving = [chain for chain in range(stats["diverging"].shape[0]) if chain not in stuck]
    diverging = int(stats["diverging"].values[moving].sum())
    if diverging <= 0.01 * stats["rejected"].size:
        return ""
    return (
        f"{diverging} sweeps diverged: the step size is too large somewhere in the posterior. Use "
        "NUTS with a higher target_acceptance, or reparametrise."
    )


def _kernel_is_slow(posterior: xr.DataTree, ess: float) -> bool:
    """Whether far fewer draws are effective than exact ones given Y would be."""
    fraction = posterior.attrs.get("missing_information", np.nan)
    possible = posterior["sample_stats"]["rejected"].size * (1 - fraction) / (1 + fraction)
    return bool(posterior.attrs.get("fixed_length", 0)) and ess < 0.3 * possible


def what_may_help(posterior: xr.DataTree, table: Table, doubts: list[Doubt]) -> list[str]:
    """What to try, where mixing, the tail or the acceptance rate is the trouble."""
    attrs = posterior.attrs
    if not attrs["draws_rejections"]:
        return []
    numbers, kinds = rejection_numbers(posterior), {doubt.kind for doubt in doubts}
    rare = numbers["acceptance"] < LOW_ACCEPTANCE
    slow = "mixing" in kinds and attrs.get("missing_information", 1.0) > 0.5
    if not (rare or slow or "beyond" in kinds):
        return []
    advice = []
    if rare:
        advice.append(
            f"Only {numbers['acceptance']:.2g} of the proposals pass the filter, and rejections "
            f"outnumber the data {1 / numbers['acceptance'] - 1:,.0f} to 1: sweeps are slow, and "
            "each moves the parameters by little."
        )
    if slow and numbers["growth"] > 1.5 and numbers["r_hat"] > R_HAT_LIMIT:
        advice.append(
            f"|Y| still grows (its median is {numbers['growth']:.1f} times what it was): the "
            "chains drift into the tail that the prior leaves open."
        )
    if slow and _kernel_is_slow(posterior, numbers["ess"]):
        advice.append(
            f"{attrs['kernel']} moves less than the rejections allow; offcut.NUTS() chooses the "
            "length of its moves itself."
        )
    if attrs.get("direct_available") == 1:
        advice.append(
            'This window\'s probability has a closed form: method="direct" uses it and needs no '
            "rejections at all."
        )
    n = attrs["n_observations"]
    if "beyond" in kinds or n / (n + numbers["most"]) < 0.1:
        advice.append(
            "A prior that excludes places where nearly everything is rejected: if you know that "
            "at least a tenth of the population passes, say so in the prior. "
            "offcut.prior_acceptance(model) shows what a prior implies."
        )
    else:
        advice.append(
            "A tighter prior on parameters that the missing part informs most (the column "
            '"missing"), if you know something about them.'
        )
    another = attrs.get("exchange_available", 0) and attrs["method"] != "exchange"
    if another and len(table) <= FEW_PARAMETERS:
        advice.append(
            'method="exchange", which holds no rejections and so is not held by them (for few '
            "parameters)."
        )
    return advice
