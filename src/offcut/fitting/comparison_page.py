"""A comparison of samplers as rows, as a CSV file and as a page."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from offcut.comparing import Comparison, Measured

HEAD = ["sampler", "approximate", "quantity", "ess_per_second", "low_95%", "high_95%", "mean"]
HEAD += ["mcse", "repeats", "r_hat", "trouble", "refusal"]
NO_REFERENCE = (
    "No exact sampler has chains that agree, so there is no reference: nothing here says what is "
    "right. Run longer (--draws, --warmup), or with a tighter prior."
)


def verdict(found: Comparison, one: Measured) -> str:
    """Whether a contender agrees with itself and with the best exact one, in a few words."""
    if one.refusal or one.trouble:
        return one.trouble
    reference = found.reference(one.contender.target)
    if reference is one:
        others = sum(other.contender.target == one.contender.target for other in found.ran) > 1
        return "reference" if others else ""
    largest, quantity = found.disagreement(one)
    if np.isnan(largest):
        return ""
    return f"{'agrees' if largest < found.limit() else 'DISAGREES'}, |z| {largest:.1f} ({quantity})"


def in_order(found: Comparison) -> list[Measured]:
    """By rank; what was refused comes last."""
    return [*found.ranked, *(one for one in found.measured if one.refusal)]


def rows(found: Comparison) -> list[list[Any]]:
    """Every contender and quantity."""
    told: list[list[Any]] = []
    for one in in_order(found):
        approximate = "yes" if one.contender.approximate else "no"
        if one.refusal:
            told.append([one.contender.name, approximate, *[""] * 9, one.refusal])
        for quantity, r_hat in zip(one.quantities, one.r_hat, strict=True):
            rate = one.rate(quantity)
            told.append(
                [
                    *(one.contender.name, approximate, quantity),
                    *(rate.middle, rate.low, rate.high, *one.estimate(quantity)),
                    *(len(one.seconds), r_hat, one.trouble, ""),
                ]
            )
    return told


def write_comparison(found: Comparison, folder: Path, what: str, command: str) -> list[Path]:
    """``comparison.csv`` and a page."""
    import matplotlib

    matplotlib.use("Agg")
    from offcut.pages import Page

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "comparison.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        writer.writerows(rows(found))
    page = Page(
        f"Samplers compared: {what}",
        lead="Effective draws per CPU-second of the quantity that mixes most slowly, with 95% "
        "intervals over repeated runs.",
        figures=folder / "figures",
    )
    section = page.section("Which is fastest", "rates")
    ran = found.ranked
    if ran:
        section.figure(
            _figure(ran),
            "rates",
            "Each line is a 95% interval over repeated runs on this machine; further right is "
            "faster. The scale is logarithmic. Hollow: the chains disagree, so that the rate means "
            "nothing.",
        )
    section.table(
        ["sampler", "ESS per second (95%)", "slowest quantity", "mean ± error", "agreement"],
        [
            [
                one.contender.name + (" (approximate)" if one.contender.approximate else ""),
                *shown(one),
                verdict(found, one),
            ]
            for one in ran
        ],
        "Effective draws are those of all repeats together. Agreement is with the exact sampler "
        "that has the most of them: the largest |z| of all posterior means. Below "
        f"{found.limit():.1f} is what samplers of one posterior show. Samplers whose own chains "
        "disagree come last and are compared with nothing.",
    )
    if found.without_reference():
        section.notice(NO_REFERENCE)
    refused = [one for one in found.measured if one.refusal]
    for one in refused:
        section.notice(f"{one.contender.name} does not fit: {one.refusal}")
    making = page.section("How this was made", "making")
    making.code(command)
    making.machine()
    path = folder / "report.html"
    page.write(path)
    return [table, path]


def shown(one: Measured) -> tuple[str, str, str]:
    """Rate, slowest quantity and its mean, in words."""
    rate = one.rate(one.worst)
    mean, error = one.estimate(one.worst)
    interval = "" if np.isnan(rate.low) else f" ({_short(rate.low)} to {_short(rate.high)})"
    return f"{_short(rate.middle)}{interval}", one.worst, f"{mean:.4g} ± {error:.2g}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _figure(ran: list[Measured]) -> Any:
    from offcut.plots.style import BLUE, INK, ORANGE, STYLE, pyplot

    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.6, 0.8 + 0.45 * len(ran)), layout="constrained")
        for row, one in enumerate(ran):
            rate = one.rate(one.worst)
            colour = ORANGE if one.contender.approximate else BLUE
            if not np.isnan(rate.low):
                ax.plot([rate.low, rate.high], [-row] * 2, color=colour, linewidth=2.5)
            face = "white" if one.trouble else colour
            ax.plot([rate.middle], [-row], "o", color=colour, markerfacecolor=face)
        ax.set_yticks([-row for row in range(len(ran))], [one.contender.name for one in ran])
        ax.tick_params(axis="y", labelcolor=INK, length=0)
        ax.set_xscale("log")
        ax.set_ylim(-len(ran) + 0.4, 0.6)
        ax.set_xlabel("effective draws per CPU-second")
    return figure
