"""The progress bar: one line for each chain, for runs at a terminal."""

from __future__ import annotations

import threading

import numpy as np


class Progress:
    """Draws per second, mean |Y| and divergences for each chain; safe to call from threads."""

    def __init__(self, chains: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._rows = [{"rejected": 0.0, "steps": 0, "divergences": 0} for _ in range(chains)]
        self._lock = threading.Lock()
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._tasks = [
            self._bar.add_task(f"chain {c}", total=1, rate="", status="compiling")
            for c in range(chains)
        ]

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def phase(self, chain: int, name: str, done: int, total: int) -> None:
        with self._lock:
            self._rows[chain] = {"rejected": 0.0, "steps": 0, "divergences": 0}
            self._bar.reset(
                self._tasks[chain],
                total=total,
                completed=done,
                description=f"chain {chain} {name}",
                rate="",
                status="",
            )

    def advance(self, chain: int, steps: int, seconds: float, stats: dict[str, np.ndarray]) -> None:
        if steps == 0:
            return
        with self._lock:
            row = self._rows[chain]
            row["steps"] += steps
            row["rejected"] += float(stats["rejected"].sum())
            status = f"|Y| {row['rejected'] / row['steps']:,.0f}"
            if "diverging" in stats:
                row["divergences"] += int(stats["diverging"].sum())
                status += f", {row['divergences']} divergences"
            self._bar.update(
                self._tasks[chain],
                advance=steps,
                rate=f"{steps / max(seconds, 1e-9):,.0f}/s",
                status=status,
            )
