"""From the start of Python to the first answer, in CPU-seconds, each run in a process of its own.

A script's first call compiles, its second does not: their difference is what a user waits for
besides sampling. Measured without any cache, and with one that another process has filled; NumPyro
beside it where it has the same posterior (with JAX's own cache, which its users would have to
switch on). The figures that were promised stand beside those measured. Each process has one core:
on several, threads that wait for each other count as work, and the more the busier the machine is
(a second call of GPDensity took from 2.6 to 10 CPU-seconds on two cores, from 2.0 to 2.2 on one).

``python -m benchmarks.answer CASE LIBRARY CALLS`` is one such process; it prints JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import CASES, CHAINS, DRAWS, WARMUP, Case, in_numpyro

#: Programs that a first call may compile, of any model.
MOST_PROGRAMS = 8
#: CPU-seconds of modules imported in the first call that are worth a word.
WORTH_A_WORD = 0.05
OFFCUT, NUMPYRO = "offcut", "numpyro"
LIBRARIES = {OFFCUT: "Offcut", NUMPYRO: "NumPyro"}


class Call(NamedTuple):
    """CPU-seconds of a call, those of importing modules in it, and programs compiled for it."""

    seconds: float
    imports: float
    programs: int


class Imports:
    """CPU-seconds spent on importing modules, from now on, in all threads together."""

    def __init__(self) -> None:
        self.seconds = 0.0
        inside = threading.local()
        bootstrap: Any = importlib._bootstrap  # type: ignore[attr-defined]
        load = bootstrap._find_and_load  # what "import" calls for a module that is not there yet

        def timed(*arguments: Any) -> Any:
            if getattr(inside, "yes", False):
                return load(*arguments)
            inside.yes, started = True, time.thread_time()
            try:
                return load(*arguments)
            finally:
                inside.yes = False
                self.seconds += time.thread_time() - started

        bootstrap._find_and_load = timed


class Compilations:
    """Programs that XLA has compiled from now on: all it was asked for, but those from a cache."""

    ASKED = "/jax/core/compile/backend_compile_duration"
    FOUND = ("/jax/compilation_cache/cache_hits", "/offcut/programs/loaded")

    def __init__(self) -> None:
        import jax

        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._asked)
        jax.monitoring.register_event_listener(self._found)

    def _asked(self, event: str, seconds: float, **_: Any) -> None:
        self.count += event == self.ASKED

    def _found(self, event: str, **_: Any) -> None:
        self.count -= event in self.FOUND


def child(case: Case, library: str, calls: list[str]) -> dict[str, Any]:
    """The calls one after the other, each with the data of ``n`` or of another size."""
    call = _imported(case, library)
    imported = time.process_time()  # since the process began: Python's own start too
    data = {"n": case.data(case.n), "other": case.data(case.other)}
    imports, compilations = Imports(), Compilations()
    measured = []
    for size in calls:
        before = imports.seconds, compilations.count
        started = time.process_time()
        call(data[size])
        seconds = time.process_time() - started
        late = imports.seconds - before[0]
        measured.append(Call(seconds, late, compilations.count - before[1]))
    return {"import": imported, "calls": measured}


def _imported(case: Case, library: str) -> Callable[[dict], Any]:
    """What a script imports at its top, and what it calls then."""
    if library == OFFCUT:
        importlib.import_module("numpyro.distributions")
        import offcut

        _ = offcut.sample, getattr(offcut, case.constructor)  # imported on first use
        return case.sample
    run = in_numpyro(case.numpyro)
    return lambda data: run(0, *data.values())


def fresh(case: Case, library: str, cache: Path | None, calls: list[str]) -> dict[str, Any]:
    """A process of its own, with this cache or none."""
    ours = ("JAX_", "XLA_", "OFFCUT_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment["OFFCUT_CACHE"] = "off"
    if cache is not None and library == OFFCUT:
        environment["OFFCUT_CACHE"] = str(cache)
    elif cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        environment["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    command = [sys.executable, "-m", "benchmarks.answer", case.name, library, *calls]
    run = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(run.stdout.splitlines()[-1])
    return {"import": told["import"], "calls": [Call(*call) for call in told["calls"]]}


class Row:
    """All that is measured of one case in one library: the best of the repeats."""

    def __init__(self, case: Case, library: str, caches: Path) -> None:
        self.case, self.library = case, library
        self.cache = caches / f"{case.name}-{library}"
        self.imports: list[float] = []
        self.first: list[Call] = []
        self.second: list[Call] = []
        self.warm: list[Call] = []
        self.other: list[Call] = []
        self.other_warm: list[Call] = []

    def measure(self) -> None:
        """One repeat; the first also fills the cache, and looks at the other size."""
        once = not self.other
        cold = fresh(self.case, self.library, None, ["n", "n", "other"] if once else ["n", "n"])
        self.imports.append(cold["import"])
        self.first.append(cold["calls"][0])
        self.second.append(cold["calls"][1])
        if once:
            self.other.append(cold["calls"][2])
            fresh(self.case, self.library, self.cache, ["n"])  # fills it
            self.other_warm += fresh(self.case, self.library, self.cache, ["other"])["calls"]
        self.warm += fresh(self.case, self.library, self.cache, ["n"])["calls"]

    @property
    def sampling(self) -> float:
        return min(call.seconds for call in self.second)

    def waiting(self, calls: list[Call], with_imports: bool = False) -> float:
        """The best first call beyond the best second one; modules imported in it are apart."""
        return min(c.seconds - (0 if with_imports else c.imports) for c in calls) - self.sampling

    @property
    def late(self) -> float:
        return min(call.imports for call in self.first)


#: Titles of columns in two lines, and their widths.
COLUMNS = (
    ("", "", 32),
    ("", "n", 5),
    ("", "import", 6),
    ("", "first", 6),
    ("late", "imports", 7),
    ("", "second", 6),
    ("first - second,", "no cache", 20),
    ("first - second,", "warm cache", 20),
    ("programs", "in the first", 15),
    ("programs", "in the second", 15),
    ("another n, same process", "programs        seconds", 23),
    ("another n, new", "process, warm", 15),
)


class Table:
    """Rows as text, and how many of the figures that were promised are there."""

    def __init__(self) -> None:
        self.met = self.judged = 0

    def header(self) -> str:
        return "\n".join(_cells([column[line] for column in COLUMNS]) for line in (0, 1))

    def line(self, row: Row) -> str:
        targets, judged = row.case.targets, row.library == OFFCUT
        return _cells([
            _words(row.case) if judged else "  the same in NumPyro",
            f"{row.case.n:,}",
            f"{min(row.imports):.2f}",
            f"{min(call.seconds for call in row.first):.2f}",
            f"{row.late:.2f}" if row.late > WORTH_A_WORD else "-",
            f"{row.sampling:.2f}",
            self.seconds(row, row.first, targets.cold if judged else None),
            self.seconds(row, row.warm, targets.warm if judged else None),
            self.count(row.first[0], MOST_PROGRAMS if judged else None),
            self.count(row.second[0], 0 if judged else None),
            f"{self.count(row.other[0], 0 if judged else None)} {row.other[0].seconds:6.2f}",
            self.count(row.other_warm[0], 0 if judged else None),
        ])  # fmt: skip

    def seconds(self, row: Row, calls: list[Call], most: float | None) -> str:
        """Waiting, its target, and a star where late imports would make it too much."""
        value = row.waiting(calls)
        if most is None:
            return f"{value:5.2f} {'':14}"
        verdict = self.judge(value, most)
        starred = value <= most < row.waiting(calls, with_imports=True)
        return f"{value:5.2f} <= {most:<3g} {verdict + '*' * starred:7}"

    def count(self, call: Call, most: int | None) -> str:
        told = "" if most is None else f"<= {most} {self.judge(call.programs, most)}"
        return f"{call.programs:3d} {told:11}"

    def judge(self, value: float, most: float) -> str:
        self.judged += 1
        self.met += value <= most
        return "met" if value <= most else "missed"


def _words(case: Case) -> str:
    """Its name, and the number of sweeps where it is not that of a default call."""
    given = case.settings
    return case.words + (f", {given['warmup']} + {given['draws']}" if "draws" in given else "")


def _cells(texts: list[str]) -> str:
    (name, *others), (first, *widths) = texts, (width for *_, width in COLUMNS)
    cells = [f"{text:>{width}}" for text, width in zip(others, widths, strict=True)]
    return "  ".join([f"{name:{first}}", *cells])


def table(names: list[str] | None, repeats: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        rows = []
        for name in names or CASES:
            case = CASES[name]
            rows.append(Row(case, OFFCUT, Path(directory)))
            if case.numpyro is not None:
                rows.append(Row(case, NUMPYRO, Path(directory)))
        started, cores = time.monotonic(), os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # before children start: BLAS counts cores at once
        try:
            for repeat in range(repeats):
                for row in rows:
                    row.measure()
                    _progress(row, repeat, repeats, time.monotonic() - started)
        finally:
            os.sched_setaffinity(0, cores)
    _print(rows, repeats)


def _progress(row: Row, repeat: int, repeats: int, seconds: float) -> None:
    print(
        f"{seconds:5.0f} s  repeat {repeat + 1} of {repeats}: {row.case.name}, "
        f"{LIBRARIES[row.library]}: first {row.first[-1].seconds:.2f}, "
        f"second {row.second[-1].seconds:.2f}, warm {row.warm[-1].seconds:.2f}",
        file=sys.stderr,
        flush=True,
    )


def _print(rows: list[Row], repeats: int) -> None:
    print(f"""
From the start to the first answer: CPU-seconds in fresh processes on one core, the best of
{repeats} repeats in turn; {CHAINS} chains of {WARMUP:,} + {DRAWS:,} sweeps, or as it says.
first - second: without what the first call spends on importing modules, which stands beside it;
a star says that with these the target would be missed. NumPyro: a chain is one compiled function
of key and data, called four times; its warm cache is JAX's own.
""")
    lines = Table()
    print(lines.header())
    for row in rows:
        print(lines.line(row))
    print()
    for ours in rows:
        most = ours.case.targets.numpyro
        theirs = [r for r in rows if r.case is ours.case and r.library == NUMPYRO]
        if ours.library == OFFCUT and most is not None and theirs:
            ratio = ours.waiting(ours.first) / theirs[0].waiting(theirs[0].first)
            verdict = lines.judge(ratio, most)
            print(
                f"{ours.case.words}, compilation against NumPyro's: {ratio:.2f} times, "
                f"<= {most} {verdict}"
            )
    print(f"{lines.met} of {lines.judged} targets met.")


def main() -> None:
    """One process of the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answer")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("calls", nargs="+", choices=("n", "other"))
    options = parser.parse_args()
    print(json.dumps(child(CASES[options.case], options.library, options.calls)))


if __name__ == "__main__":
    main()
