"""The report page of a fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcut.app.fit.folder import Folder
from offcut.app.fit.recipes import RECIPES
from offcut.app.fit.request import Result, plural
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal


def write_report(result: Result, folder: Folder) -> Path:
    """One HTML file with the answer, pictures, tables, and how far to trust it.

    Parameters
    ----------
    result : Result
    folder : Folder
        Gets the page, and its pictures as files as well.

    Returns
    -------
    Path
        Of the page.
    """
    import matplotlib

    matplotlib.use("Agg")
    fit = result.fit
    source = fit.table.path.name
    page = Page(
        f"{result.title}: {literal(source)}", lead=_lead(result), figures=folder.save_figure
    )
    answer = page.section("The answer", "answer")
    for sentence in result.headline():
        answer.text(sentence)
    for guess in fit.task.guesses:
        answer.notice(guess)
    for doubt in result.doubts:
        answer.notice(f"Before you trust this: {literal(doubt)}", kind="doubt")
    result.write(page)
    _trust(result, page.section("How far to trust it", "trust"))
    _data(result, page.section("The data", "data"))
    _making(result, page.section("How this was made", "making"))
    return folder.save_report(page.html())


def _lead(result: Result) -> str:
    count = len(result.fit.table.kept)
    what = RECIPES[result.fit.request.model].description
    groups = result.fit.table.group_names
    told = f" in {len(groups)} groups ({literal(', '.join(groups))})" if groups else ""
    return f"{what} for {plural(count, 'row')} of {literal(result.fit.table.path.name)}{told}."


def _trust(result: Result, section: Section) -> None:
    section.text(
        "Every number on this page is a summary of draws from the posterior. Chains that agree "
        "(R-hat near 1) and many effective draws (ESS) say that the draws can be believed; the "
        "certificate says what the limit on the number of rejected proposals can have changed."
    )
    fit = result.fit
    for name, posterior in fit.posteriors.items():
        section.run(literal(name) or fit.request.model, posterior, seconds=fit.seconds.get(name))
    result.write_trust(section)


def _data(result: Result, section: Section) -> None:
    table = result.fit.table
    facts: list[list[Any]] = [
        ["File", literal(table.path)],
        ["Rows used", f"{len(table.kept):,} of {table.rows_read:,}"],
        ["Columns", literal(", ".join(table.names))],
    ]
    if table.group is not None:
        sizes = [
            f"{name} ({int((table.group == code).sum()):,})"
            for code, name in enumerate(table.group_names)
        ]
        facts.append([f"Groups ({literal(table.group_name)})", literal(", ".join(sizes))])
    section.table(["", ""], facts)
    for note in result.fit.task.notes:
        section.text(note)
    for why, count in table.dropped.items():
        section.notice(
            f"{plural(count, 'row')} that {literal(why)} were left out, as asked.", kind="note"
        )
    if table.left_out:
        told = literal("; ".join(f"{name} {why}" for name, why in table.left_out.items()))
        section.text(f"Columns that are not data: {told}. Choose others with `--columns`.")


def _making(result: Result, section: Section) -> None:
    fit = result.fit
    section.text("The command; with the same versions it gives the same draws, bit for bit.")
    section.code(fit.command)
    section.text("The model:")
    section.code(repr(fit.model))
    section.text(
        "Beside this page: `posterior.nc` (the draws, for ArviZ or xarray), `tables/` (CSV), "
        "`figures/` (SVG), `settings.json`."
    )
    section.machine()
