"""What is a year of school worth? An income experiment that enrolled the poor only.

The negative income tax experiments of around 1970 enrolled families with an income below one and
a half times the poverty line, which depends on the size of the family. Their records are
detailed, so they were used to study earnings: regress the logarithm of earnings on years of
school.

The trap, which Hausman and Wise described in 1977: whoever went to school for long and earned
accordingly was not enrolled. Among those with much school only the unlucky are left, and the line
through the records is too flat. More data do not help.

The answer: the regression holds for everybody; the data are what lies below each family's own
limit. Offcut imagines, for every family in the records, those with the same schooling and the
same limit that were not enrolled.

Run it with  python docs/examples/regression.py  and look at results/regression.png.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist

import offcut
from offcut.plots import BLUE, GREEN, INK, NAIVE, PALE, PINK, STYLE, TRUTH

#: log earnings = level + slope (school - 10 years) + Normal(0, sd); earnings in 1000 dollars.
TRUE = {"level": np.log(7.0), "slope": 0.09, "sd": 0.4}
LIMITS = {2: 5.0, 4: 7.5, 6: 10.0}  # persons in the family -> highest income, 1000 dollars


def simulate(families: int, seed: int) -> dict[str, np.ndarray]:
    """The families that were enrolled."""
    rng = np.random.default_rng(seed)
    school = np.clip(np.round(rng.normal(10.5, 2.5, size=families)), 4, 17)
    persons = rng.choice(list(LIMITS), size=families)
    limit = np.array([LIMITS[size] for size in persons])
    earnings = np.exp(rng.normal(TRUE["level"] + TRUE["slope"] * (school - 10), TRUE["sd"]))
    families = {"school": school, "persons": persons, "limit": limit, "earnings": earnings}
    return {name: values[earnings < limit] for name, values in families.items()}


def least_squares(data: dict[str, np.ndarray]) -> dict[str, float]:
    """The line through the records."""
    slope, level = np.polyfit(data["school"] - 10, np.log(data["earnings"]), 1)
    residuals = np.log(data["earnings"]) - level - slope * (data["school"] - 10)
    return {"level": level, "slope": slope, "sd": residuals.std(ddof=2)}


def picture(data, draws, naive):
    """Records with the limit of each family size, and the lines."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(6.8, 4.4), layout="constrained")
        school = np.linspace(3.2, 17.8, 50)
        axes.axhspan(max(LIMITS.values()), 40, color=PALE, linewidth=0)
        axes.annotate("above all limits: nobody was enrolled", (3.5, 10.6), color=INK)
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, size=len(data["school"]))
        styles = zip(LIMITS.items(), ((GREEN, "s"), (PINK, "^"), ("#56B4E9", "o")), strict=True)
        marks = []
        for (persons, limit), (colour, mark) in styles:
            here = data["persons"] == persons
            marks += axes.plot(
                (data["school"] + jitter)[here],
                data["earnings"][here],
                mark,
                color=colour,
                markersize=3,
                alpha=0.75,
                markeredgewidth=0,
            )
            axes.axhline(limit, color=colour, linewidth=1.1)

        def line(theta):
            return np.exp(theta["level"] + theta["slope"] * (school - 10))

        lines = line({name: values[:, None] for name, values in draws.items()})
        low, high = np.quantile(lines, [0.05, 0.95], axis=0)
        band = axes.fill_between(school, low, high, color=BLUE, alpha=0.35, linewidth=0)
        (mean,) = axes.plot(school, np.median(lines, axis=0), color=BLUE, linewidth=1.8)
        (truth,) = axes.plot(school, line(TRUE), **TRUTH)
        (wrong,) = axes.plot(school, line(naive), **NAIVE)
        axes.set(yscale="log", xlim=(school[0], school[-1]), ylim=(1.3, 20))
        axes.set_yticks([2, 5, 7.5, 10, 20], ["2", "5", "7.5", "10", "20"])
        axes.minorticks_off()
        axes.set_xlabel("school (years; points are spread to be seen)")
        axes.set_ylabel("earnings (1,000 dollars a year)")
        labels = ["all families, 90% band", "truth", "limits ignored"]
        figure.legend(
            [*marks, (band, mean), truth, wrong],
            [f"{size} persons, and limit" for size in LIMITS] + labels,
            loc="outside upper left",
            ncols=3,
            markerscale=1.6,
        )
    return figure


def main(directory: Path, draws: int = 5000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample, print and draw; each coefficient's truth, naive value and posterior."""
    data = simulate(1000, seed=1)
    # A doubling of earnings in seven years of school is a slope of 0.1: the prior allows any sign
    # and twice as much. Earnings of equals differ by a factor of 1.3 to 1.9 (sd 0.25 to 0.65).
    model = offcut.truncated(
        prior={
            "level": dist.Normal(np.log(6), 0.5),
            "slope": dist.Normal(0.0, 0.2),
            "sd": dist.LogNormal(np.log(0.4), 0.3),
        },
        base=lambda theta, c: dist.Normal(
            theta["level"] + theta["slope"] * (c["school"] - 10), theta["sd"]
        ),
        inside=lambda log_earnings, c: log_earnings < c["log_limit"],
    )
    covariates = {"school": data["school"], "log_limit": np.log(data["limit"])}
    posterior = offcut.sample(
        model, np.log(data["earnings"]), covariates=covariates, draws=draws, **settings
    )
    print(f"{len(data['school'])} families were enrolled.\n\n{offcut.summary(posterior)}")

    naive = least_squares(data)
    drawn = {name: posterior["posterior"][name].values.ravel() for name in TRUE}
    results = {}
    print(f"\n{'':8}{'truth':>8}{'naive':>8}   posterior mean and 90%")
    for name, values in drawn.items():
        low, high = np.quantile(values, [0.05, 0.95])
        results[name] = {
            "truth": float(TRUE[name]),
            "naive": float(naive[name]),
            "mean": float(values.mean()),
            "low": float(low),
            "high": float(high),
        }
        line = "{truth:8.3f}{naive:8.3f}   {mean:.3f} ({low:.3f} to {high:.3f})"
        print(f"{name:8}" + line.format(**results[name]))

    directory.mkdir(parents=True, exist_ok=True)
    few = {name: values[:: max(1, len(values) // 1000)] for name, values in drawn.items()}
    figure = picture(data, few, naive)
    figure.savefig(directory / "regression.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
