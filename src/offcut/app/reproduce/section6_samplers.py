"""Section 6.4 of the paper: effective draws per second of exact samplers, by step size."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import offcut
from offcut.app.html import Hover, Page, Section, Series
from offcut.app.html.markup import number
from offcut.app.reproduce.finished import RunStore
from offcut.app.reproduce.section6_vectorcardiograms import WARNING, frames_from, model_of_the_paper
from offcut.app.reproduce.versus_paper import (
    CLOSE,
    OTHER,
    SAME,
    SIMULATED,
    UNKNOWN,
    Claim,
    Plan,
    tabulate,
)
from offcut.checks.comparison import rate_of
from offcut.driver.timed import Chain
from offcut.numerics.ess import effective_size
from offcut.plots.style import CHAIN_COLOURS, STYLE, pyplot

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


def curves() -> dict[str, tuple[str, Any, tuple[float, ...]]]:
    """Method, kernel and abscissas of every line of figure 3."""
    found: dict[str, tuple[str, Any, tuple[float, ...]]] = {
        WALK: ("augment", offcut.RandomWalk(0.1), WALK_SCALES),
        EXCHANGE: ("exchange", offcut.RandomWalk(0.1), WALK_SCALES),
    }
    for steps in LEAPFROGS:
        name = f"HMC, {steps} leapfrog step{'s' if steps > 1 else ''}"
        found[name] = ("augment", offcut.HMC(0.1, steps), STEP_SIZES)
    return found


def run(store: RunStore, plan: Plan, data: Any = None) -> dict[str, Any]:
    """All lines, and the time of a sweep of the approximate sampler."""
    name, x = next(iter(frames_from(data).items()))
    made_of = {
        "frames": name,
        "sum": x.sum(0).tolist(),
        "settling": SETTLING,
        "sweeps": plan.curve_sweeps,
        "rounds": plan.rounds,
    }
    wanted = {**curves(), APPROXIMATE: ("asymptotic", offcut.RandomWalk(0.1), (0.15,))}
    lines = {
        line: store.measure(
            f"samplers-{line.replace(',', '').replace(' ', '-')}",
            {**made_of, "scales": list(scales), "method": method, "kernel": repr(kernel)},
            partial(_line, x, method, kernel, scales, plan),
        )
        for line, (method, kernel, scales) in wanted.items()
    }
    return {"frames": name, "asymptotic": lines.pop(APPROXIMATE), "lines": lines}


def _line(
    x: np.ndarray, method: str, kernel: Any, scales: tuple[float, ...], plan: Plan
) -> dict[str, Any]:
    """For each scale: effective draws per CPU-second of every round, seconds a sweep, the mean."""
    chain = Chain(model_of_the_paper(), x, "kappa", kernel, method=method)
    start = np.array([7.0, 11.0])
    found: dict[str, Any] = {"scales": list(scales), "rates": [], "seconds": [], "mean": []}
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


def _rate(stretch: Any) -> float:
    """Median over the concentrations of effective draws per CPU-second, as in the paper."""
    columns = [stretch.draws[:, r] for r in range(stretch.draws.shape[1])]
    sizes = [effective_size(one[None]) if np.ptp(one) else 1.0 for one in columns]
    return float(np.median(sizes) / stretch.seconds)


def show(page: Page, found: dict[str, Any], plan: Plan) -> list[Claim]:
    """Figure 3 and what the paper reads off it."""
    section = page.section("Exact samplers compared (section 6.4)", "samplers")
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
    lines = found["lines"]
    walks = {name: line for name, line in lines.items() if not name.startswith("HMC")}
    trajectories = {name: line for name, line in lines.items() if name.startswith("HMC")}
    _picture(section, "left", walks, "standard deviation of a step of log κ")
    _picture(section, "right", trajectories, "leapfrog step of log κ")
    rows = _rows(walks, trajectories, found["asymptotic"], found["frames"] == "simulated")
    tabulate(section, rows)
    section.table(
        ["Sampler", "Best step", "Effective draws per CPU-second (95%)", "µs a sweep"],
        [
            [name, line["scales"][k], _told(line, k), 1e6 * line["seconds"][k]]
            for name, line in lines.items()
            for k in [_best(line)]
        ],
        "Each sampler at its best step. Intervals are over stretches of one chain.",
    )
    return rows


def _told(line: dict[str, Any], k: int) -> str:
    rate = rate_of(line["rates"][k])
    return f"{number(rate.middle)} ({number(rate.low)} to {number(rate.high)})"


def _best(line: dict[str, Any]) -> int:
    return int(np.argmax([rate_of(rates).middle for rates in line["rates"]]))


def _picture(section: Section, side: str, lines: dict[str, Any], label: str) -> None:
    plt = pyplot()
    series = []
    with plt.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
        for k, (name, line) in enumerate(lines.items()):
            rates = [rate_of(repeats) for repeats in line["rates"]]
            middle, low, high = np.array([[r.middle, r.low, r.high] for r in rates]).T
            bars = np.stack([middle - low, high - middle])
            ax.errorbar(
                line["scales"], middle, bars, marker="o", markersize=4, linewidth=1.5,
                elinewidth=0.8, color=CHAIN_COLOURS[k], label=name,
            )  # fmt: skip
            series.append(Series(name, line["scales"], middle, low, high, COLOURS[k]))
        top = max(np.max(one.y) for one in series)
        ax.set_ylim(0, 1.3 * min(max(np.max(one.high) for one in series), 2 * top))
        ax.set(xlabel=label, ylabel="effective draws per CPU-second")
        ax.legend(ncols=2)
    section.figure(
        figure,
        f"samplers-{side}",
        f"**Figure 3, {side}.** Effective draws per CPU-second by the size of a step, with 95% "
        f"intervals. The best: {_summits(lines)}.",
        alt=f"Effective draws per second by step size, {' and '.join(lines)}",
        hover=Hover(ax, series, "step"),
    )


def _summits(lines: dict[str, Any]) -> str:
    """Each line's best step, in words."""
    return "; ".join(f"{name} at {line['scales'][_best(line)]:g}" for name, line in lines.items())


def _nearness(ours: np.ndarray, theirs: tuple[float, float]) -> str:
    """One of our values within the paper's range, within a factor of two of it, or neither."""
    low, high = theirs
    if any(low <= value <= high for value in ours):
        return SAME
    return CLOSE if any(low / 2 <= value <= 2 * high for value in ours) else OTHER


def _between(first: dict[str, Any], second: dict[str, Any]) -> tuple[float, float, float]:
    """How many times as fast the first line is as the second, each at its best, with 95% limits."""
    one, other = (rate_of(line["rates"][_best(line)]) for line in (first, second))
    middle = one.middle / other.middle
    wide = np.hypot(np.log(one.high / one.middle), np.log(other.high / other.middle))
    return middle, float(middle * np.exp(-wide)), float(middle * np.exp(wide))


def _rows(
    walks: dict[str, Any], trajectories: dict[str, Any], asymptotic: dict[str, Any], simulated: bool
) -> list[Claim]:
    """What the paper reads off figure 3, and the speed of the approximate sampler."""
    order = sorted(
        trajectories,
        key=lambda name: rate_of(trajectories[name]["rates"][_best(trajectories[name])]).middle,
    )
    line, walk = trajectories[order[-1]], walks[WALK]
    k = _best(walk)
    fastest = max(walks.values(), key=lambda one: rate_of(one["rates"][_best(one)]).middle)
    variances = (walk["scales"][k] * np.array(walk["mean"][k])) ** 2
    steps = line["scales"][_best(line)] * np.array(line["mean"][_best(line)])
    numbers = [int(name.split()[1]) for name in order]
    ratio, gain = _between(walks[EXCHANGE], walk), _between(line, fastest)
    exact = np.mean([one["seconds"][_best(one)] for one in walks.values()])
    speed = float(exact / asymptotic["seconds"][0])
    edge = " The best step is the end of the range that was tried." if _at_the_end(line) else ""
    low, high = PAPER_VARIANCE
    rows = [
        Claim(
            "Best variance of a random walk on κ", f"{low:g} to {high:g}",
            ", ".join(f"{v:.2g}" for v in variances) + " (in the units of either κ)", "",
            _nearness(variances, PAPER_VARIANCE),
            "Steps on log κ are larger on the larger κ.",
        ),
        Claim(
            "Exchange against random walk", "slightly better", _times(ratio), "",
            UNKNOWN if ratio[1] < 1 < ratio[2] else SAME if 1 < ratio[0] < 2 else OTHER,
            "It depends on what a simulated frame costs beside a rejected one: here rejected "
            "frames are cut short where their first columns decide.",
        ),
        Claim(
            "Hamiltonian against the best walk", "an order of magnitude better", _times(gain), "",
            SAME if gain[1] < PAPER_GAIN < gain[2] or 7 < gain[0] < 15 else
            CLOSE if 3 < gain[0] < 30 else OTHER,
            "What a gradient costs beside drawing the rejections differs from the paper's R.",
        ),
        Claim(
            "Best leapfrog steps", f"{PAPER_LEAPFROGS[0]} to {PAPER_LEAPFROGS[1]} of size "
            f"{PAPER_STEP[0]} to {PAPER_STEP[1]} (of κ)",
            f"{numbers[-1]} of size " + ", ".join(f"{s:.2g}" for s in steps)
            + " (in the units of either κ)", "",
            _nearness(steps, PAPER_STEP)
            if PAPER_LEAPFROGS[0] <= numbers[-1] <= PAPER_LEAPFROGS[1] else OTHER,
            f"Steps on log κ again.{edge}",
        ),
        Claim(
            "Numbers of leapfrog steps, worst to best", "1, 10, 5, 3 (at a step of 0.5)",
            f"{', '.join(map(str, numbers))} (each at its best step)", "",
            SAME if numbers == [1, 10, 5, 3]
            else CLOSE if numbers[-1] in PAPER_LEAPFROGS else OTHER,
            "" if numbers == [1, 10, 5, 3] else "Neighbours in this order may differ by less than "
            "their intervals.",
        ),
        Claim(
            "Approximate sampler against the exact ones, a sweep", f"about {PAPER_SPEED:g} times "
            "as fast", f"{speed:.2g} times", f"{speed / PAPER_SPEED:.2g} of the paper's factor",
            SAME if 0.5 < speed / PAPER_SPEED < 2 else OTHER,
            "Compiled, a rejection sampler and a formula are not as far apart as in R, or further: "
            "it is a matter of the code.",
        ),
    ]  # fmt: skip
    return [row._replace(verdict=SIMULATED) for row in rows] if simulated else rows


def _times(found: tuple[float, float, float]) -> str:
    middle, low, high = found
    return f"{middle:.2g} times (95% from {low:.2g} to {high:.2g})"


def _at_the_end(line: dict[str, Any]) -> bool:
    """Whether the best step is the first or the last of those that were tried."""
    return _best(line) in (0, len(line["scales"]) - 1)
