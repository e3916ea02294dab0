"""What a page says of a run: whether chains agree, how much they are worth, its certificate."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from offcut.app.html.markup import number, percent

#: Of a table of runs.
COLUMNS = ("Run", "Draws", "Worst R-hat", "Smallest ESS", "Certificate", "Took", "Standing")


class RunDiagnostics(NamedTuple):
    """The diagnostics of one run.

    Attributes
    ----------
    r_hat, ess : float
        The worst over all parameters, |Y| included where rejections are drawn.
    r_hat_of, ess_of : str
        Of which parameter.
    certificate : str
        What the budget changed, in a few words.
    trouble : tuple of str
        Reasons for doubt; empty where there are none.
    text : str
        ``offcut.summary`` as it is printed.
    """

    r_hat: float
    r_hat_of: str
    ess: float
    ess_of: str
    certificate: str
    trouble: tuple[str, ...]
    text: str

    def facts(self) -> dict[str, str]:
        """What matters most, in words."""
        return {
            "Worst R-hat": f"{self.r_hat:.3f} ({self.r_hat_of})",
            "Smallest ESS": f"{number(self.ess)} ({self.ess_of})",
            "Certificate": self.certificate,
        }


def diagnose(posterior: xr.DataTree) -> RunDiagnostics:
    """Read a run's diagnostics from its result."""
    from offcut.result.diagnostics import rejection_numbers
    from offcut.result.overview import summary

    found = summary(posterior)
    numbers = dict(found.table)
    if posterior.attrs["draws_rejections"]:
        numbers["|Y|"] = rejection_numbers(posterior)
    r_hat = {name: np.nan_to_num(row["r_hat"], nan=np.inf) for name, row in numbers.items()}
    ess = {name: np.nan_to_num(row["ess"], nan=-np.inf) for name, row in numbers.items()}
    r_hat_of, ess_of = max(r_hat, key=r_hat.__getitem__), min(ess, key=ess.__getitem__)
    return RunDiagnostics(
        numbers[r_hat_of]["r_hat"],
        r_hat_of,
        numbers[ess_of]["ess"],
        ess_of,
        certificate(posterior.attrs),
        tuple(found.trouble),
        str(found),
    )


def certificate(attrs: Mapping[Any, Any]) -> str:
    """The budget's certificate in a few words."""
    if not attrs["draws_rejections"]:
        return "draws no rejections: nothing restricted"
    if attrs["budget"] == "none":
        return "no budget: nothing restricted"
    limit = (
        f"budget {attrs['budget']:,}; half of it would change the posterior by at most "
        f"{percent(attrs['tv_halving_limit'])}"
    )
    if math.isnan(attrs["tv_estimate"]):
        return limit
    return f"{limit}, none at all by about {percent(attrs['tv_estimate'])} (an estimate)"


def describe(posterior: xr.DataTree, seconds: float | None) -> dict[str, object]:
    """What matters of a run as (term, text), the reasons for doubt, and the whole summary."""
    attrs, found = posterior.attrs, diagnose(posterior)
    thin = f", every {attrs['thin']}th sweep kept" if attrs["thin"] > 1 else ""
    facts = {
        "Chains": f"{attrs['chains']} × {attrs['draws']:,} draws after {attrs['warmup']:,}{thin}",
        **found.facts(),
        "Method": str(attrs["method"]),
        "Kernel": str(attrs["kernel"]),
        "Seed": str(attrs["seed"]),
    }
    if seconds is not None:
        facts["Took"] = f"{number(seconds)} s, compiling included"
    return {"facts": list(facts.items()), "doubts": found.trouble, "summary": found.text}


def tabulate(
    found: Iterable[tuple[str, xr.DataTree, float | None]],
) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """A row of ``COLUMNS`` for each run, and its name and whole summary."""
    rows, summaries = [], []
    for name, posterior, seconds in found:
        attrs, one = posterior.attrs, diagnose(posterior)
        thinned = f" (of {attrs['draws'] * attrs['thin']:,})" if attrs["thin"] > 1 else ""
        draws = f"{attrs['chains']} × {attrs['draws']:,}{thinned}"
        took = "" if seconds is None else f"{number(seconds)} s"
        standing = f"**doubtful**: {' '.join(one.trouble)}" if one.trouble else "sound"
        rows.append([name, draws, *one.facts().values(), took, standing])
        summaries.append((name, one.text))
    return rows, summaries


def machine() -> list[tuple[str, str]]:
    """This machine and the versions that results may depend on."""
    from offcut.result.tree import versions

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        ("Processor", processor()),
        ("Cores", str(cores)),
        ("System", f"{platform.system()} {platform.machine()}"),
        ("Python", platform.python_version()),
        *versions().items(),
    ]


def processor() -> str:
    """Its name where Linux tells, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
