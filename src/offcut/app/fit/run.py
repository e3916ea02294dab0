"""From a request to a directory with posterior, tables and report."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offcut.app.fit.folder import SETTINGS, Folder, slug
from offcut.app.fit.recipes import RECIPES
from offcut.app.fit.request import Fit, Request, Result, Task
from offcut.errors import DataError, ModelError, SettingsError, StartError, TrustWarning
from offcut.files import digest
from offcut.numerics.text import shortened

#: Of a group's name in the names of files; most file systems end at 255 with all that is around it.
MOST_BYTES = 200


@dataclass
class Outcome:
    """What a run of ``fit`` leaves."""

    result: Result
    files: list[Path] = field(default_factory=list)
    was_finished: bool = False


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
    tell: Callable[[str, Any], None] = lambda what, value: None,
) -> Outcome:
    """Read a file, sample, and write posterior, tables and report.

    Parameters
    ----------
    request : Request
    output : Path
        A directory.
    resume, overwrite : bool
        What to do where the directory holds a run.
    progress : bool
        Show the bar of ``offcut.sample``.
    command : str
        For the report.
    tell : callable
        Called with "read" and the task, "warning" and a text, "group" and its name.

    Returns
    -------
    Outcome

    Raises
    ------
    InterruptedFitError
        After Ctrl-C; ``resume=True`` goes on.
    """
    recipe = RECIPES[request.model]
    with noticed() as heard:
        task = recipe.prepared(request)
    check_names(task)
    tell("read", task)
    for text in heard:
        tell("warning", text)
    folder = Folder(output)
    told = {"request": request.told(), "data": digest(request.file)[:16], "versions": _versions()}
    finished = folder.open(told, resume=resume, overwrite=overwrite, groups=task.data)
    made = Fit(request, task, {}, {}, list(heard), command)
    seconds = folder.known().get("seconds", {}) if resume else {}
    files = []
    for group, data in task.data.items():
        posterior = folder.load_posterior(group) if resume else None
        if posterior is None:
            tell("group", group)
            posterior, seconds[group] = _sampled(
                task, data, folder, group, request, progress, made.doubts
            )
            folder.note({**told, "state": "unfinished", "seconds": seconds})
        made.posteriors[group] = posterior
        made.seconds[group] = float(seconds.get(group, float("nan")))
        files.append(folder.posterior_path(group))
    result = recipe.read(made)
    files += [folder.save_table(name, *sheet) for name, sheet in result.sheets().items()]
    from offcut.app.fit.report import write_report

    files.append(write_report(result, folder))
    folder.finish({**told, "command": command, "seconds": seconds, "doubts": result.doubts})
    return Outcome(result, [*files, output / SETTINGS], finished)


def _sampled(
    task: Task,
    data: Any,
    folder: Folder,
    group: str,
    request: Request,
    progress: bool,
    doubts: list[str],
) -> tuple[Any, float]:
    """One posterior, saved."""
    from offcut.result.overview import summary
    from offcut.sampling import sample

    started = time.perf_counter()
    try:
        with noticed() as heard:
            posterior = sample(
                task.model,
                data,
                covariates=task.covariates,
                method=task.method,
                checkpoint=folder.checkpoint(group),
                progress=progress,
                **request.sampling,
            )
    except (DataError, ModelError, SettingsError, StartError):
        folder.abandon()  # nothing was drawn, and the next try may differ
        raise
    except KeyboardInterrupt as error:
        raise InterruptedFitError("in warm-up") from error
    if posterior.attrs["interrupted"]:
        drawn = posterior["posterior"].sizes["draw"]
        raise InterruptedFitError(
            f"after {drawn:,} of {request.sampling['draws']:,} draws of each chain"
        )
    known = summary(posterior).trouble
    doubts += [f"{group}: {text}" if group else text for text in heard if text not in known]
    folder.save_posterior(group, posterior)
    return posterior, time.perf_counter() - started


@contextmanager
def noticed() -> Iterator[list[str]]:
    """Collect the texts of warnings about trust; all others go their way."""
    heard: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", TrustWarning)
        show = warnings.showwarning

        def collect(message: Any, category: Any, *rest: Any, **named: Any) -> None:
            if issubclass(category, TrustWarning):
                heard.append(str(message))
            else:
                show(message, category, *rest, **named)

        warnings.showwarning = collect
        yield heard


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


def _versions() -> dict[str, str]:
    from offcut.result.tree import versions

    return versions()
