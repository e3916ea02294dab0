"""The page: what the paper has, what was found here, and how far to trust it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from offcut.app.html import Page, Section
from offcut.app.reproduce.run import PARTS
from offcut.app.reproduce.versus_paper import (
    NOT_RUN,
    OTHER,
    SIMULATED,
    Claim,
    Length,
    PartReport,
    Plan,
)

TITLE = "Data augmentation for models based on rejection sampling, reproduced"


def write_page(
    parts: Sequence[str],
    plan: Plan,
    data: Path | None,
    output: Path,
    started: float,
    tell: Callable[[str, str], None],
    command: str = "",
) -> Path:
    """Put together what the parts show."""
    page = Page(
        TITLE,
        lead="The applications and comparisons of Rao, Lin & Dunson (Biometrika 2016), run again "
        "with Offcut: each figure and number of the paper beside what was found here.",
        figures=output / "figures",
    )
    top = page.section("In short", "summary")
    rows: dict[str, list[Claim]] = {}
    again: list[str] = []
    for part in parts:
        found = PartReport.load(output / "runs" / plan.name, part)
        found.add_to(page)
        rows[part] = found.rows
        again += found.again
    _summary(top, rows, plan, data)
    _made(page.section("How this page was made", "made"), plan, again, started, command)
    path = page.write(output / "index.html")
    tell("page", f"{path} is written")
    return path


def _summary(section: Section, rows: dict[str, list[Claim]], plan: Plan, data: Path | None) -> None:
    everything = [row for part in rows.values() for row in part]
    judged = [row for row in everything if row.verdict not in (SIMULATED, NOT_RUN)]
    differ = sum(row.verdict == OTHER for row in judged)
    section.text(
        f"{len(judged)} numbers and claims of the paper are compared; **{differ}** differ, and "
        "the sections say why, as far as it is known. Everything in the columns headed Here was "
        "computed from runs on this machine; the paper's values are as printed there."
    )
    if plan.name == "quick":
        told = "This is the quick version."
        if "gvhd" in rows:
            told += (
                " The mixtures ran for a fraction of the paper's iterations, too few for chains "
                "that start apart to agree: see their R-hat before you believe their numbers. The "
                "one that ignores the window was not run."
            )
        if "approximate" in rows:
            told += (
                " The comparison with the approximate sampler has fewer dimensions, and no "
                "exchange sampler."
            )
        section.notice(f"{told} `--full` runs the paper's numbers of iterations.")
    if data is None and ("vcg" in rows or "samplers" in rows):
        section.notice(
            "SIMULATED: without --data, simulated frames stand in for the vectorcardiograms.",
            "simulated",
        )
    section.table(
        ["Section", "Quantity", "Paper", "Here", "Verdict"],
        [
            [f"[{part}](#{part})", row.quantity, row.paper, row.here, row.verdict]
            for part, found in rows.items()
            for row in found
        ],
        cards=True,
    )


def _made(section: Section, plan: Plan, again: list[str], started: float, command: str) -> None:
    if command:
        section.code(command)
    when = time.strftime("%d %B %Y, %H:%M", time.localtime(started))
    section.text(f"Started {when}; written {time.time() - started:,.0f} seconds later.")
    if again:
        section.notice(
            f"{len(again)} runs were finished by an earlier call with the same settings and "
            f"versions, and not run again: {', '.join(again)}."
        )
    section.table(
        ["Runs", "Chains", "Draws of each", "Warm-up", "Sweeps for a draw"],
        [
            [name.replace("_", " "), length.chains, length.draws, length.warmup, length.thin]
            for name, length in plan._asdict().items()
            if isinstance(length, Length)
        ],
        f"Lengths of the {plan.name} version",
    )
    section.text(
        f"`{', '.join(PARTS)}` are the parts; posteriors are in `runs` (NetCDF, for ArviZ), "
        "pictures in `figures` (SVG). Data: GvHD (Brinkman et al. 2007) and Parkinsons (Little et "
        "al. 2007) come with Offcut; the vectorcardiograms (Downs, Liebman & Mackay 1972) do not."
    )
    section.machine()
