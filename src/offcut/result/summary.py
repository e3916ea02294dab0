"""A result in words: the parameters, the rejections, reasons to doubt them, and what may help."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from offcut.augmentation.impute import LONG_WAIT
from offcut.base import Doubt
from offcut.result.diagnostics import Run, Table

MOST_ROWS = 40
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


@dataclass(frozen=True)
class Summary:
    """What ``offcut.summary`` returns; printing it prints everything.

    Attributes
    ----------
    table : dict
        A row for each parameter.
    figures : str
        The table, and what is known of rejections and budget.
    doubts : list of Doubt
        The reasons for doubt, with their kinds; ``trouble`` has their words.
    advice : list of str
        What may help.
    """

    table: Table
    figures: str
    doubts: list[Doubt]
    advice: list[str]

    @property
    def trouble(self) -> list[str]:
        return [doubt.text for doubt in self.doubts]

    @property
    def text(self) -> str:
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
    run = Run(posterior)
    doubts = _doubts(run)
    parts = [_rows(run.table), _rejections(run), _certificate(run)]
    lines = [line for part in parts if part for line in [*part, ""]][:-1]
    return Summary(run.table, "\n".join(lines), doubts, what_may_help(run, doubts))


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


def _rejections(run: Run) -> list[str]:
    attrs = run.attrs
    if not attrs["draws_rejections"]:
        return [f"Kernel: {attrs['kernel']}.", *_method(attrs), *_frames(run)]
    numbers = run.rejections
    return [
        f"Rejected proposals |Y| a sweep: median {numbers['median']:,.0f} (90% from "
        f"{numbers['5%']:,.0f} to {numbers['95%']:,.0f}, most {numbers['most']:,.0f}) beside "
        f"{attrs['n_observations']:,} observations{_passing(numbers['acceptance'])}.",
        f"ESS of |Y| {numbers['ess']:,.0f}, R-hat {numbers['r_hat']:.2f}. Kernel: "
        f"{attrs['kernel']}.",
        *_method(attrs),
        *_frames(run),
        _missing(run),
    ]


def _passing(acceptance: float) -> str:
    """Of no observations no proposal passed, whatever the filter."""
    return (
        "" if np.isnan(acceptance) else f", so {_percent(acceptance)} of proposals pass the filter"
    )


def _frames(run: Run) -> list[str]:
    """Where exact draws of orientations were out of reach."""
    stats = run.stats
    if "exact_frames" not in stats or bool(stats["exact_frames"].all()):
        return []
    share = 1 - float(stats["exact_frames"].mean())
    return [
        f"In {share:.0%} of the sweeps orientations moved by Gibbs steps, column by column, "
        "because exact draws would hardly ever be accepted: exact in the long run, but slower."
    ]


def _method(attrs: Mapping[Hashable, Any]) -> list[str]:
    """Which of a model's methods ran, and why, where it has several."""
    return [f"Method: {attrs['method']}{attrs['method_note']}."] if "method" in attrs else []


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.2g}" if share < 1e-3 else f"{share:.1%}"


def _missing(run: Run) -> str:
    fraction = run.attrs.get("missing_information", np.nan)
    if np.isnan(fraction):
        why = run.attrs.get("missing_information_note", "")
        return f"Fraction of missing information: not known ({why or 'not recorded'})."
    digits = 1 if fraction < 0.99 else 2
    sweeps = (1 + fraction) / max(1 - fraction, 1e-9)
    return (
        f"Fraction of missing information {fraction:.{digits}%} in the worst direction "
        "(estimated): so much of what a sweep knows comes from rejections, not data. Expect about "
        f"{sweeps:,.0f} sweeps for one independent draw."
    )


def _certificate(run: Run) -> list[str]:
    attrs = run.attrs
    if not attrs["draws_rejections"]:
        return ["Certificate: this sampler draws no rejections, so nothing was restricted."]
    if attrs["budget"] == "none":
        return ["Certificate: no budget was set, so nothing was restricted.", *_looked(run)]
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
    return [*lines, *_looked(run)]


def _looked(run: Run) -> list[str]:
    """The share of the posterior beyond the run, where it was estimated."""
    share = run.attrs.get("beyond_share", np.nan)
    if np.isnan(share):
        return []
    return [
        f"  A look beyond (importance sampling from the prior): about {share:.2%} of the posterior "
        "lies where more than twice as many proposals would be rejected as in any sweep here."
    ]


def find_doubts(posterior: xr.DataTree) -> list[Doubt]:
    """Reasons to doubt a finished run, the gravest first."""
    return _doubts(Run(posterior))


def _doubts(run: Run) -> list[Doubt]:
    found = [
        Doubt("interrupted", _interrupted(run)),
        Doubt("approximate", _approximate(run)),
        Doubt("stood still", _stood_still(run)),
        Doubt("undrawn", _undrawn(run)),
        Doubt("beyond", _beyond(run)),
        Doubt("mixing", _mixing(run)),
        Doubt("gave up", _gave_up(run)),
        Doubt("budget", _near_budget(run)),
        Doubt("budget", _over_budget(run)),
        Doubt("divergences", _divergences(run)),
    ]
    return [doubt for doubt in found if doubt.text]


def _interrupted(run: Run) -> str:
    if not run.attrs["interrupted"]:
        return ""
    drawn, asked = run.shape[1], run.attrs["draws"]
    return f"The run was interrupted: {drawn} of {asked} draws of each chain are here."


def _approximate(run: Run) -> str:
    named = run.attrs.get("approximation", "")
    return f"Approximate: {named}." if named else ""


def _undrawn(run: Run) -> str:
    """Hidden values that did not change for long in the second half of the draws."""
    stats = run.stats
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


def _beyond(run: Run) -> str:
    attrs = run.attrs
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


def _stood_still(run: Run) -> str:
    """Chains that never moved, all of them or some of their parameters."""
    stuck = run.stuck
    if not stuck:
        return ""
    chains, draws = run.shape
    by_chains: dict[tuple[int, ...], list[str]] = {}
    for name, where in stuck.items():
        by_chains.setdefault(where, []).append(name)
    parts = []
    for where, names in by_chains.items():
        named = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        which = "any chain" if len(where) == chains else _chains(where)
        parts.append(f"{named} never moved in {which}")
    stats = run.stats
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


def _mixing(run: Run) -> str:
    chains, draws = run.shape
    if draws < ENOUGH_DRAWS or not run.table:
        return ""
    r_hats = {name: row["r_hat"] for name, row in run.table.items()}
    sizes = {name: row["ess"] for name, row in run.table.items()}
    if run.attrs["draws_rejections"]:
        numbers = run.rejections
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


def _gave_up(run: Run) -> str:
    stats = run.stats
    if "gave_up" not in stats or not bool(stats["gave_up"].any()):
        return ""
    return (
        f"{float(stats['gave_up'].mean()):.1%} of the sweeps gave up and kept their previous "
        "rejections: the draws are still exact for the budgeted posterior, but they move slowly. "
        "Raise the budget."
    )


def _near_budget(run: Run) -> str:
    attrs = run.attrs
    limit = attrs["tv_halving_limit"]
    if attrs["budget"] == "none" or not limit > TV_LIMIT:
        return ""
    half = attrs["budget"] // 2
    if bool((run.stats["rejected"] > half).any()):
        return (
            f"The budget may matter: halving it to {half:,} could change the posterior by up "
            f"to {limit:.0%} in total variation. Raise it, or tighten the prior."
        )
    return (
        f"Too few independent draws to certify the budget: no draw came near it, but |Y| "
        f"mixes so slowly that the limit is only {limit:.0%}. Run longer."
    )


def _over_budget(run: Run) -> str:
    lower = run.attrs["tv_lower"]
    if not lower > TV_LIMIT:
        return ""
    return (
        f"The budget does matter: {lower:.0%} of the sweeps exceeded it and were redrawn, so the "
        "draws are those of a posterior tilted towards few rejections. Raise it, or take it as "
        "the part of the prior that it is."
    )


def _divergences(run: Run) -> str:
    stats = run.stats
    if "diverging" not in stats:
        return ""
    # In a chain that never moved it is not the step size; that is said elsewhere.
    stuck = {chain for where in run.stuck.values() for chain in where}
    moving = [chain for chain in range(stats["diverging"].shape[0]) if chain not in stuck]
    diverging = int(stats["diverging"].values[moving].sum())
    if diverging <= 0.01 * stats["rejected"].size:
        return ""
    return (
        f"{diverging} sweeps diverged: the step size is too large somewhere in the posterior. Use "
        "NUTS with a higher target_acceptance, or reparametrise."
    )


def _kernel_is_slow(run: Run, ess: float) -> bool:
    """Whether far fewer draws are effective than exact ones given Y would be."""
    fraction = run.attrs.get("missing_information", np.nan)
    possible = run.stats["rejected"].size * (1 - fraction) / (1 + fraction)
    return bool(run.attrs.get("fixed_length", 0)) and ess < 0.3 * possible


def what_may_help(run: Run, doubts: list[Doubt]) -> list[str]:
    """What to try, where mixing, the tail or the acceptance rate is the trouble."""
    attrs = run.attrs
    if not attrs["draws_rejections"]:
        return []
    numbers, kinds = run.rejections, {doubt.kind for doubt in doubts}
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
    if slow and _kernel_is_slow(run, numbers["ess"]):
        advice.append(
            f"{attrs['kernel']} moves less than the rejections allow; offcut.NUTS() chooses the "
            "length of its moves itself."
        )
    if attrs.get("direct_available") == 1:
        advice.append(
            "This window's probability has a closed form: kernel=offcut.Direct() uses it and "
            "needs no rejections at all."
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
    if len(run.table) <= FEW_PARAMETERS and attrs.get("kernel_kind") != "Exchange":
        advice.append(
            "kernel=offcut.Exchange(), which holds no rejections and so is not held by them (for "
            "few parameters)."
        )
    return advice
