"""Two limits of one detector: what it loses, and what it writes down as 10.

A digitiser has a range from 0 to 10 volts. A pulse below 0 does not trigger it: nothing is
written, and nobody knows how many there were. A pulse above 10 saturates it: 10 is written. The
first are *truncated*, the second *censored*. What were mean and spread of the pulses?

The traps: taken at face value the tens pull the mean down and the spread with it. Taken as
measurements in a model that knows the lower limit, they still do. Thrown away, with a window from
0 to 10, nothing is wrong, but the number of pulses above 10 is thrown away with them, and the
interval is wide.

The answer: say which is which. The window is what gets recorded at all, ``inside=lambda v: v >
0``, and ``censored=offcut.Clamped(upper=10)`` says that 10 stands for everything above. If you
forget the second, ``offcut.sample`` sees the pile of tens and asks.

Run it with  python docs/examples/censored.py  and look at results/censored.png.
"""

import sys
import textwrap
import warnings
from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

import offcut
from offcut.plots import BLUE, GREEN, INK, NAIVE, ORANGE, PALE, PINK, STYLE, TRUTH

TRUE = {"mean": 8.0, "sd": 5.0}  # volts
COLOURS = {
    "at face value": ORANGE,
    "10 as a value": PINK,
    "10s thrown away": GREEN,
    "10s censored": BLUE,
}


def simulate(pulses: int, seed: int) -> np.ndarray:
    """What the digitiser has written down."""
    volts = np.random.default_rng(seed).normal(TRUE["mean"], TRUE["sd"], size=pulses)
    return np.minimum(volts[volts > 0], 10.0)


def prior() -> None:
    """A mean somewhere in the range or beyond; a spread of 2.5 to 9 volts (90%)."""
    numpyro.sample("mean", dist.Normal(5.0, 5.0))
    variance = numpyro.sample("variance", dist.InverseGamma(2.0, 30.0))
    numpyro.deterministic("sd", jnp.sqrt(variance))


def pulse_model(inside, **options) -> offcut.RejectionModel:
    """Normal pulses seen inside a window."""
    return offcut.truncated(
        prior,
        base=lambda theta: dist.Normal(theta["mean"], jnp.sqrt(theta["variance"])),
        inside=inside,
        **options,
    )


def picture(volts, kept, answers):
    """The record with its pile, and four answers."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, 3, figsize=(10.0, 3.7), width_ratios=(1.9, 1, 1), layout="constrained"
        )
        record, *panels = axes
        record.axvspan(-12, 0, color=PALE, linewidth=0)
        exact = volts[volts < 10]
        counts, edges = np.histogram(exact, bins=np.arange(0, 10.5, 1.0))
        heights = counts * kept / len(volts)
        record.stairs(heights, edges, fill=True, color="#A9C6DD")
        pile = kept * (volts == 10).mean()
        top = 0.15
        record.bar(10.25, top, width=0.5, color="#A9C6DD", hatch="////", edgecolor="white")
        record.annotate(
            f"{(volts == 10).sum()} tens\n({pile:.0%} of pulses)",
            (10.5, 0.93 * top),
            (11.3, 0.88 * top),
            color=INK,
        )
        record.annotate("lost", (-6, 0.88 * top), color=INK, ha="center")
        grid = np.linspace(-9, 25, 400)
        for name, answer in answers.items():
            curve = stats.norm.pdf(grid, answer["mean"]["mean"], answer["sd"]["mean"])
            line = NAIVE if name == "at face value" else {"color": COLOURS[name], "linewidth": 1.8}
            record.plot(grid, curve, **line)
        record.plot(grid, stats.norm.pdf(grid, *TRUE.values()), **TRUTH)
        record.set(xlim=(-9, 25), ylim=(0, top))
        record.set_xlabel("pulse height (V)")
        record.set_ylabel("density (per V)")
        for panel, parameter in zip(panels, TRUE, strict=True):
            for row, (name, answer) in enumerate(answers.items()):
                values = answer[parameter]
                panel.plot([values["low"], values["high"]], [row] * 2, color=COLOURS[name], lw=3)
                panel.plot(values["mean"], row, "o", color=COLOURS[name], mec="white", ms=8)
            panel.axvline(TRUE[parameter], **TRUTH)
            panel.set(ylim=(len(answers) - 0.5, -0.5), yticks=[])
            panel.spines["left"].set_visible(False)
            panel.set_xlabel(f"{parameter} of all pulses (V)")
        panels[0].set_title("four answers, with 90%")
        handles = [plt.Line2D([], [], color=c, linewidth=3, label=n) for n, c in COLOURS.items()]
        handles[0].set_linestyle(NAIVE["linestyle"])
        handles.append(plt.Line2D([], [], label="truth", **TRUTH))
        figure.legend(handles=handles, loc="outside upper left", ncols=5)
    return figure


def main(directory: Path, draws: int = 4000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample in three ways, print and draw; each parameter's truth and all answers."""
    volts = simulate(600, seed=1)
    settings["draws"] = draws
    print(f"{len(volts)} pulses, {(volts == 10).sum()} of them recorded as 10.")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", offcut.errors.TrustWarning)
        as_values = offcut.sample(pulse_model(lambda v: v > 0), volts, **settings)
    print("\n10 taken for a value; offcut.sample asks:")
    for warning in caught:
        print(textwrap.indent(textwrap.fill(str(warning.message), 90), "    "))

    # Little of the shape is left to see between limits so close, and sweeps would move slowly. But
    # the share of a normal between two limits is known, and method="direct" uses it.
    window = pulse_model(offcut.regions.Box(0, 10))
    exact = volts[volts < 10]
    thrown_away = offcut.sample(window, exact, **settings | {"method": "direct"})

    model = pulse_model(lambda v: v > 0, censored=offcut.Clamped(upper=10))
    print(f"\nThe answer. Kernel: {offcut.kernel_for(model)}.\n")
    posterior = offcut.sample(model, volts, **settings)
    print(offcut.summary(posterior))

    face = stats.norm.fit(volts)
    error = face[1] / np.sqrt(len(volts)) * np.array([1, np.sqrt(0.5)])
    answers = {
        "at face value": {
            name: {"mean": at, "low": at - 1.645 * se, "high": at + 1.645 * se}
            for name, at, se in zip(TRUE, face, error, strict=True)
        }
    }
    runs = (as_values, thrown_away, posterior)
    for name, run in zip(list(COLOURS)[1:], runs, strict=True):
        answers[name] = {}
        for parameter in TRUE:
            values = run["posterior"][parameter].values
            low, high = np.quantile(values, [0.05, 0.95])
            answers[name][parameter] = {"mean": values.mean(), "low": low, "high": high}

    line = "{mean:6.2f} ({low:.2f} to {high:.2f})"
    results = {}
    for parameter, truth in TRUE.items():
        print(f"\n{parameter}, in truth {truth} V:")
        for name, answer in answers.items():
            print(f"  {name:16}" + line.format(**answer[parameter]))
        results[parameter] = {"truth": truth, **answers["10s censored"][parameter]}
        results[parameter] |= {name: answer[parameter] for name, answer in answers.items()}

    directory.mkdir(parents=True, exist_ok=True)
    kept = float(posterior["sample_stats"]["proposal_acceptance_rate"].mean())
    figure = picture(volts, kept, answers)
    figure.savefig(directory / "censored.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
