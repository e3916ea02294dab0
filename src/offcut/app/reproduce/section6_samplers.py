"""Section 6.4 of the paper: effective draws per second of exact samplers, by step size."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TypedDict

import numpy as np

import offcut
from offcut.app.html import Hover, Section, Series
from offcut.app.html.markup import number
from offcut.app.reproduce.finished import RunStore
from offcut.app.reproduce.section6_vectorcardiograms import WARNING, frames_from, model_of_the_paper
from offcut.app.reproduce.versus_paper import Claim, Plan, Verdict, graded, tabulate
from offcut.base import Kernel
from offcut.checks.comparison import Rate, rate_of
from offcut.driver.timed import Chain, Stretch
from offcut.numerics.ess import effective_size
from offcut.plots.style import CHAIN_COLOURS, STYLE, pyplot

TITLE = "Exact samplers compared (section 6.4)"
#: Standard deviations of random-walk steps and leapfrog step sizes, on log kappa.
WALK_SCALES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.45)
STEP_SIZES = (0.02, 0.04, 0.07, 0.1, 0.14, 0.18)
LEAPFROGS = (1, 3, 5, 10)
#: Sweeps from the start, unrecorded.
SETTLING = 200
#: What the paper reports: the best variances of a walk on kappa, the best step sizes and numbers.
PAPER_VARIANCE, PAPER_STEP, PAPER_LEAPFROGS = (1.0, 1.5), (0.3, 0.5), (3, 5)
PAPER_GAIN, PAPER_SPEED = 10.0, 40.0
COLOURS = ("blue", "orange", "green", "pink")
WALK, EXCHANGE, APPROXIMATE = "random walk, augmented", "exchange", "asymptotic"


class Line(TypedDict):
    """A sampler at several scales: rates of every round, seconds a sweep, posterior means."""

    scales: list[float]
    rates: list[list[float]]
    seconds: list[float]
    mean: list[list[float]]


class Found(TypedDict):
    """Lines of figure 3, walks by name and trajectories by number of steps; the approximation."""

    frames: str
    walks: dict[str, Line]
    trajectories: dict[int, Line]
    asymptotic: Line


def run(store: RunStore, plan: Plan, data: Path | None = None) -> Found:
    """All lines, and the time of a sweep of the approximate sampler."""
    name, x = next(iter(frames_from(data).items()))
    made_of = {
        "frames": name,
        "sum": x.sum(0).tolist(),
        "settling": SETTLING,
        "sweeps": plan.curve_sweeps,
        "rounds": plan.rounds,
    }

    def line(title: str, method: str, kernel: Kernel, scales: tuple[float, ...]) -> Line:
        return store.measure(
            f"samplers-{title.replace(',', '').replace(' ', '-')}",
            {**made_of, "scales": list(scales), "method": method, "kernel": repr(kernel)},
            partial(_line, x, method, kernel, scales, plan),
        )

    return {
        "frames": name,
        "walks": {
            WALK: line(WALK, "augment", offcut.RandomWalk(0.1), WALK_SCALES),
            EXCHANGE: line(EXCHANGE, "exchange", offcut.RandomWalk(0.1), WALK_SCALES),
        },
        "trajectories": {
            steps: line(_title(steps), "augment", offcut.HMC(0.1, steps), STEP_SIZES)
            for steps in LEAPFROGS
        },
        "asymptotic": line(APPROXIMATE, "asymptotic", offcut.RandomWalk(0.1), (0.15,)),
    }


def _title(steps: int) -> str:
    return f"HMC, {steps} leapfrog step{'s' if steps > 1 else ''}"


def _line(
    x: np.ndarray, method: str, kernel: Kernel, scales: tuple[float, ...], plan: Plan
) -> Line:
    """A sampler at each scale, several rounds of it."""
    chain = Chain(model_of_the_paper(), x, "kappa", kernel, method=method)
    start = np.array([7.0, 11.0])
    found: Line = {"scales": list(scales), "rates": [], "seconds": [], "mean": []}
    for scale in scales:
        chain.start(start, scale)
        chain.run(SETTLING)
        rounds = [chain.run(plan.curve_sweeps) for _ in range(plan.rounds)]
        found["rates"].append([_rate(one) for one in rounds])
        found["seconds"].append(
            float(np.median([one.seconds for one in rounds])) / plan.curve_sweeps
        )
        found["mean"].append(np.concatenate([one.draws for one in rounds]).mean(0).tolist())
    return found


def _rate(stretch: Stretch) -> float:
    """Median over the concentrations of effective draws per CPU-second, as in the paper."""
    columns = [stretch.draws[:, r] for r in range(stretch.draws.shape[1])]
    sizes = [effective_size(one[None]) if np.ptp(one) else 1.0 for one in columns]
    return float(np.median(sizes) / stretch.seconds)


def show(section: Section, found: Found, plan: Plan) -> list[Claim]:
    """Figure 3 and what the paper reads off it."""
    section.text(
        "Effective draws of κ per CPU-second on the frames of the section before (median of both "
        "concentrations, as in the paper): random walks by the size of their steps, with rejected "
        "proposals or by exchange; and Hamiltonian Monte Carlo given the rejections, by step size "
        f"and number of leapfrog steps. Each point is {plan.rounds} stretches of "
        f"{plan.curve_sweeps:,} sweeps, compiled before, one chain on one thread of work."
    )
    if found["frames"] == "simulated":
        section.notice(WARNING, "simulated")
    section.text(
        "Steps here are on log κ; the paper's are on κ, about κ times as large. `offcut compare` "
        "makes the same comparison on data of yours."
    )
    trajectories = {_title(steps): line for steps, line in found["trajectories"].items()}
    _picture(section, "left", found["walks"], "standard deviation of a step of log κ")
    _picture(section, "right", trajectories, "leapfrog step of log κ")
    rows = _rows(found["walks"], found["trajectories"], found["asymptotic"])
    if found["frames"] == "simulated":
        rows = [row._replace(verdict=Verdict.SIMULATED) for row in rows]
    tabulate(section, rows)
    section.table(
        ["Sampler", "Best step", "Effective draws per CPU-second (95%)", "µs a sweep"],
        [
            [name, line["scales"][k], _interval(line), 1e6 * line["seconds"][k]]
            for name, line in {**found["walks"], **trajectories}.items()
            for k in [_best(line)]
        ],
        "Each sampler at its best step. Intervals are over stretches of one chain.",
    )
    return rows


def _best(line: Line) -> int:
    return int(np.argmax([rate_of(rates).middle for rates in line["rates"]]))


def _best_rate(line: Line) -> Rate:
    return rate_of(line["rates"][_best(line)])


def _interval(line: Line) -> str:
    rate = _best_rate(line)
    return f"{number(rate.middle)} ({number(rate.low)} to {number(rate.high)})"


def _picture(section: Section, side: str, lines: dict[str, Line], label: str) -> None:
    plt = pyplot()
    rates = {
        name: np.array([[r.middle, r.low, r.high] for r in map(rate_of, line["rates"])]).T
        for name, line in lines.items()
    }
    series = []
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        for k, (name, (middle, low, high)) in enumerate(rates.items()):
            scales = lines[name]["scales"]
            ax.errorbar(
                scales, middle, [middle - low, high - middle], marker="o", markersize=4,
                linewidth=1.5, elinewidth=0.8, color=CHAIN_COLOURS[k], label=name,
            )  # fmt: skip
            series.append(Series(name, scales, middle, low, high, COLOURS[k]))
        top, highest = (max(one[row].max() for one in rates.values()) for row in (0, 2))
        ax.set_ylim(0, 1.3 * min(highest, 2 * top))
        ax.set(xlabel=label, ylabel="effective draws per CPU-second")
        ax.legend(ncols=2)
    best = "; ".join(f"{name} at {line['scales'][_best(line)]:g}" for name, line in lines.items())
    section.figure(
        figure,
        f"samplers-{side}",
        f"**Figure 3, {side}.** Effective draws per CPU-second by the size of a step, with 95% "
        f"intervals. The best: {best}.",
        alt=f"Effective draws per second by step size, {' and '.join(lines)}",
        hover=Hover(ax, series, "step"),
    )


def _nearness(ours: np.ndarray, theirs: tuple[float, float]) -> Verdict:
    """One of our values within the paper's range, within a factor of two of it, or neither."""
    low, high = theirs
    within = any(low <= value <= high for value in ours)
    return graded(within, any(low / 2 <= value <= 2 * high for value in ours))


def _between(first: Line, second: Line) -> tuple[float, float, float]:
    """How many times as fast the first line is as the second, each at its best, with 95% limits."""
    one, other = _best_rate(first), _best_rate(second)
    middle = one.middle / other.middle
    wide = np.hypot(np.log(one.high / one.middle), np.log(other.high / other.middle))
    return middle, float(middle * np.exp(-wide)), float(middle * np.exp(wide))


def _rows(walks: dict[str, Line], trajectories: dict[int, Line], asymptotic: Line) -> list[Claim]:
    """What the paper reads off figure 3, and the speed of the approximate sampler."""
    numbers = sorted(trajectories, key=lambda steps: _best_rate(trajectories[steps]).middle)
    line, walk = trajectories[numbers[-1]], walks[WALK]
    k = _best(walk)
    fastest = max(walks.values(), key=lambda one: _best_rate(one).middle)
    variances = (walk["scales"][k] * np.array(walk["mean"][k])) ** 2
    steps = line["scales"][_best(line)] * np.array(line["mean"][_best(line)])
    ratio, gain = _between(walks[EXCHANGE], walk), _between(line, fastest)
    exact = np.mean([one["seconds"][_best(one)] for one in walks.values()])
    speed = float(exact / asymptotic["seconds"][0])
    at_the_end = _best(line) in (0, len(line["scales"]) - 1)
    edge = " The best step is the end of the range that was tried." if at_the_end else ""
    low, high = PAPER_VARIANCE
    return [
        Claim(
            "Best variance of a random walk on κ", f"{low:g} to {high:g}",
            ", ".join(f"{v:.2g}" for v in variances) + " (in the units of either κ)", "",
            _nearness(variances, PAPER_VARIANCE),
            "Steps on log κ are larger on the larger κ.",
        ),
        Claim(
            "Exchange against random walk", "slightly better", _times(ratio), "",
            graded(1 < ratio[0] < 2, unclear=ratio[1] < 1 < ratio[2]),
            "It depends on what a simulated frame costs beside a rejected one: here rejected "
            "frames are cut short where their first columns decide.",
        ),
        Claim(
            "Hamiltonian against the best walk", "an order of magnitude better", _times(gain), "",
            graded(gain[1] < PAPER_GAIN < gain[2] or 7 < gain[0] < 15, 3 < gain[0] < 30),
            "What a gradient costs beside drawing the rejections differs from the paper's R.",
        ),
        Claim(
            "Best leapfrog steps", f"{PAPER_LEAPFROGS[0]} to {PAPER_LEAPFROGS[1]} of size "
            f"{PAPER_STEP[0]} to {PAPER_STEP[1]} (of κ)",
            f"{numbers[-1]} of size " + ", ".join(f"{s:.2g}" for s in steps)
            + " (in the units of either κ)", "",
            _nearness(steps, PAPER_STEP)
            if PAPER_LEAPFROGS[0] <= numbers[-1] <= PAPER_LEAPFROGS[1] else Verdict.OTHER,
            f"Steps on log κ again.{edge}",
        ),
        Claim(
            "Numbers of leapfrog steps, worst to best", "1, 10, 5, 3 (at a step of 0.5)",
            f"{', '.join(map(str, numbers))} (each at its best step)", "",
            graded(numbers == [1, 10, 5, 3], numbers[-1] in PAPER_LEAPFROGS),
            "" if numbers == [1, 10, 5, 3] else "Neighbours in this order may differ by less than "
            "their intervals.",
        ),
        Claim(
            "Approximate sampler against the exact ones, a sweep", f"about {PAPER_SPEED:g} times "
            "as fast", f"{speed:.2g} times", f"{speed / PAPER_SPEED:.2g} of the paper's factor",
            graded(0.5 < speed / PAPER_SPEED < 2),
            "Compiled, a rejection sampler and a formula are not as far apart as in R, or further: "
            "it is a matter of the code.",
        ),
    ]  # fmt: skip


def _times(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return f"{middle:.2g} times (95% from {low:.2g} to {high:.2g})"
