"""From a request to a directory with posterior, tables and a report page."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from offcut.app.fit.folder import REPORT, SETTINGS, Folder, slug
from offcut.app.fit.recipes import RECIPES
from offcut.app.fit.request import Fit, Request, Result, Task, plural
from offcut.app.html import Page, Section
from offcut.app.html.markup import literal
from offcut.errors import DataError, ModelError, SettingsError, StartError, TrustWarning
from offcut.files import digest
from offcut.numerics.text import shortened
from offcut.tables.table import Table

#: Of a group's name in the names of files; most file systems end at 255 with all that is around it.
MOST_BYTES = 200


class Outcome(NamedTuple):
    """What a run of ``fit`` leaves."""

    result: Result
    files: list[Path]
    was_finished: bool


class InterruptedFitError(Exception):
    """Ctrl-C: what was drawn is in the checkpoint."""


def fit(
    request: Request,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    command: str = "",
    on_read: Callable[[Table], None] = lambda table: None,
    on_doubt: Callable[[str], None] = lambda text: None,
    on_group: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Read a file, sample, and write posterior, tables and report into a directory.

    ``resume`` and ``overwrite`` say what to do where it holds a run; ``command`` is for the report.
    ``on_read`` is called with the data when they are read, ``on_doubt`` with each doubt about them,
    and ``on_group`` with the name of each group before it is sampled. After Ctrl-C there is an
    ``InterruptedFitError``, and ``resume=True`` goes on.
    """
    from offcut.result.tree import versions

    with noticed() as doubts:
        task = RECIPES[request.model].prepared(request)
    check_names(task)
    on_read(task.table)
    for text in doubts:
        on_doubt(text)
    folder = Folder(output)
    settings = {
        "request": request.as_settings(),
        "data": digest(request.file)[:16],
        "versions": versions(),
    }
    finished = folder.open(settings, resume=resume, overwrite=overwrite, groups=task.data)
    made = Fit(request, task, doubts=list(doubts), command=command)
    seconds = folder.known().get("seconds", {}) if resume else {}
    for group, data in task.data.items():
        posterior = folder.load_posterior(group) if resume else None
        if posterior is None:
            on_group(group)
            started = time.perf_counter()
            posterior = _sampled(made, data, folder, group, progress)
            folder.save_posterior(group, posterior)
            seconds[group] = time.perf_counter() - started
            folder.note({**settings, "state": "unfinished", "seconds": seconds})
        made.posteriors[group] = posterior
        made.seconds[group] = float(seconds.get(group, float("nan")))
    result = task.result(made)
    files = [folder.posterior_path(group) for group in task.data]
    files += [folder.save_table(name, *sheet) for name, sheet in result.sheets().items()]
    files.append(write_report(result, folder))
    folder.finish({**settings, "command": command, "seconds": seconds, "doubts": result.doubts})
    return Outcome(result, [*files, output / SETTINGS], finished)


def _sampled(
    made: Fit, data: np.ndarray, folder: Folder, group: str, progress: bool
) -> xr.DataTree:
    """The posterior of one group; warnings that its summary will not repeat become doubts."""
    from offcut.result.overview import summary
    from offcut.sampling import sample

    settings = made.request.sampling
    try:
        with noticed() as doubts:
            posterior = sample(
                made.task.model,
                data,
                covariates=made.task.covariates,
                method=made.task.method,
                checkpoint=folder.checkpoint(group),
                progress=progress,
                **settings,
            )
    except (DataError, ModelError, SettingsError, StartError):
        folder.abandon()  # nothing was drawn, and the next try may differ
        raise
    except KeyboardInterrupt as error:
        raise InterruptedFitError("in warm-up") from error
    if posterior.attrs["interrupted"]:
        drawn = posterior["posterior"].sizes["draw"]
        raise InterruptedFitError(f"after {drawn:,} of {settings['draws']:,} draws of each chain")
    known = summary(posterior).trouble
    made.doubts += [f"{group}: {text}" if group else text for text in doubts if text not in known]
    return posterior


@contextmanager
def noticed() -> Iterator[list[str]]:
    """Collect the texts of warnings about trust; all others go their way."""
    found: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrustWarning)
            yield found
    finally:
        for one in caught:
            if issubclass(one.category, TrustWarning):
                found.append(str(one.message))
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def check_names(task: Task) -> None:
    """Each group needs a file of its own, and every name must fit into the report's pictures."""
    from offcut.plots.style import check_words

    check_words([*task.table.names, *task.table.group_names])
    names = [slug(name).lower() for name in task.data if name]
    long = [name for name in task.data if len(os.fsencode(slug(name))) > MOST_BYTES]
    if long:
        raise DataError(
            f"the group {shortened(long[0], 40)!r} has a name of {len(long[0]):,} letters, too "
            "long for the name of a file; rename it"
        )
    if len(set(names)) < len(names) or not all(names):
        raise DataError(
            f"the groups {', '.join(task.data)} cannot be told apart in names of files; rename "
            "them, in letters and digits"
        )


def write_report(result: Result, folder: Folder) -> Path:
    """One HTML file with the answer, pictures, tables, and how far to trust it.

    The folder gets the page, and its pictures as files as well.
    """
    import matplotlib

    matplotlib.use("Agg")
    source, groups = literal(result.table.path.name), result.table.group_names
    what = RECIPES[result.fit.request.model].description
    parted = f" in {len(groups)} groups ({literal(', '.join(groups))})" if groups else ""
    lead = f"{what} for {plural(len(result.table.kept), 'row')} of {source}{parted}."
    page = Page(f"{result.title}: {source}", lead=lead, figures=folder.save_figure)
    answer = page.section("The answer", "answer")
    for sentence in result.headline():
        answer.text(sentence)
    for guess in result.fit.task.guesses:
        answer.notice(guess)
    for doubt in result.doubts:
        answer.notice(f"Before you trust this: {literal(doubt)}", kind="doubt")
    result.write(page)
    _trust(result, page.section("How far to trust it", "trust"))
    _data(result, page.section("The data", "data"))
    _making(result, page.section("How this was made", "making"))
    return folder.put(REPORT, page.html())


def _trust(result: Result, section: Section) -> None:
    section.text(
        "Every number on this page is a summary of draws from the posterior. Chains that agree "
        "(R-hat near 1) and many effective draws (ESS) say that the draws can be believed; the "
        "certificate says what the limit on the number of rejected proposals can have changed."
    )
    for name, posterior in result.posteriors.items():
        title = literal(name) or result.fit.request.model
        section.run(title, posterior, seconds=result.fit.seconds.get(name))
    result.write_trust(section)


def _data(result: Result, section: Section) -> None:
    table = result.table
    facts = [
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
        names = literal("; ".join(f"{name} {why}" for name, why in table.left_out.items()))
        section.text(f"Columns that are not data: {names}. Choose others with `--columns`.")


def _making(result: Result, section: Section) -> None:
    section.text("The command; with the same versions it gives the same draws, bit for bit.")
    section.code(result.fit.command)
    section.text("The model:")
    section.code(repr(result.model))
    section.text(
        "Beside this page: `posterior.nc` (the draws, for ArviZ or xarray), `tables/` (CSV), "
        "`figures/` (SVG), `settings.json`."
    )
    section.machine()
