"""How long are the fish in the sea? A trawl survey whose net lets the small ones through.

A codend of wide mesh keeps a fish of length L with a probability that rises with L, a logistic
curve: half of the fish of length L50 are kept, and from 25% to 75% the curve needs the selection
range. Haul after haul, the lengths on deck are those of the fish that did not escape.

The trap: the mean length on deck is that of the catch, not that of the stock, and a stock that
looks long looks healthy.

The answer: ``offcut.selected``, with the detection curve as part of the model and its two
parameters inferred along with those of the stock. But how much can be inferred? Where few fish
are kept the logistic is an exponential, and a normal stock times an exponential is a normal
again, shifted: exp(b L) times Normal(mean, sd^2) is Normal(mean + b sd^2, sd^2). So a steeper net
and a stock of shorter fish give the same catch, and width and slope trade off through the same
term. The lengths on deck alone cannot tell; what can is knowledge of the net. Gear trials provide
it: a cover of fine mesh around the codend catches what escapes, and the trial reports L50 and
selection range with standard errors. We run the same model twice, with the trial in the prior and
without.

Run it with  python docs/examples/survey.py  and look at results/survey.png.
"""

import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
from scipy import special, stats

import offcut
from offcut.plots import BLUE, GREY, INK, NAIVE, ORANGE, STYLE, TRUTH

TRUE = {"mean": 36.0, "sd": 6.0, "L50": 32.0, "range": 7.0}  # cm
TRIAL_ERRORS = {"L50": 0.6, "range": 0.5}  # cm: standard errors that the gear trial reports
STEEPNESS = 2 * np.log(3)  # from 25% to 75% a logistic of slope 1 takes so long
STOCK = {"mean": dist.Normal(35, 10), "sd": dist.LogNormal(np.log(6), 0.25)}
VAGUE = {"L50": dist.Normal(33, 5), "range": dist.LogNormal(np.log(7), 0.3)}


def retention(theta, length):
    """The log-odds that a fish is kept."""
    return STEEPNESS * (length - theta["L50"]) / theta["range"]


def simulate(fish: int, seed: int) -> tuple[dict[str, float], np.ndarray]:
    """What the gear trial estimates, and the lengths on deck."""
    rng = np.random.default_rng(seed)
    trial = {name: round(rng.normal(TRUE[name], se), 1) for name, se in TRIAL_ERRORS.items()}
    length = rng.normal(TRUE["mean"], TRUE["sd"], size=fish)
    kept = rng.uniform(size=fish) < special.expit(retention(TRUE, length))
    return trial, length[kept]


def survey(net: dict[str, dist.Distribution]) -> offcut.RejectionModel:
    """A normal stock and a logistic net, with what is known of the net."""
    return offcut.selected(
        prior=STOCK | net,
        base=lambda theta: dist.Normal(theta["mean"], theta["sd"]),
        log_accept=lambda theta, length: jax.nn.log_sigmoid(retention(theta, length)),
        log_reject=lambda theta, length: jax.nn.log_sigmoid(-retention(theta, length)),
    )


def picture(lengths, trial, kept, draws, naive):
    """The stock and the net; and why the trial is needed."""
    known, unknown = draws
    with plt.rc_context(STYLE):
        figure, (stock, trade) = plt.subplots(
            1, 2, figsize=(9.6, 3.9), width_ratios=(1.3, 1), layout="constrained"
        )
        length = np.linspace(14, 58, 300)
        counts, edges = np.histogram(lengths, bins=np.arange(14, 60, 1.5))
        bars = stock.stairs(
            counts * kept / (len(lengths) * 1.5), edges, fill=True, color="#A9C6DD", zorder=0
        )
        curves = stats.norm.pdf(length, known["mean"][:, None], known["sd"][:, None])
        low, high = np.quantile(curves, [0.05, 0.95], axis=0)
        band = stock.fill_between(length, low, high, color=BLUE, alpha=0.35, linewidth=0)
        (mean,) = stock.plot(length, curves.mean(axis=0), color=BLUE, linewidth=1.8)
        (truth,) = stock.plot(length, stats.norm.pdf(length, TRUE["mean"], TRUE["sd"]), **TRUTH)
        (wrong,) = stock.plot(length, stats.norm.pdf(length, naive["mean"], naive["sd"]), **NAIVE)
        stock.set(xlim=(14, 58), ylim=(0, None))
        stock.set_xlabel("length (cm)")
        stock.set_ylabel("density (per cm)")
        net = stock.twinx()
        (curve,) = net.plot(
            length, special.expit(retention(trial, length)), color=GREY, linewidth=1.2
        )
        net.set(ylim=(0, 1.05))
        net.spines["right"].set_visible(True)
        net.set_ylabel("probability of being kept", color=GREY)

        for cloud, colour in ((unknown, ORANGE), (known, BLUE)):
            trade.plot(
                cloud["L50"], cloud["mean"], "o", color=colour, markersize=2.2, alpha=0.4, mew=0
            )
        trade.plot(TRUE["L50"], TRUE["mean"], "*", color=INK, markersize=13, mec="white")
        trade.set_xlabel("L50 of the net (cm)")
        trade.set_ylabel("mean length of the stock (cm)")
        handles = [
            plt.Line2D([], [], color=colour, marker=mark, markersize=size, linestyle="")
            for colour, mark, size in ((BLUE, "o", 4), (ORANGE, "o", 4), (INK, "*", 9))
        ]
        labels = ["with the gear trial", "without it", "truth"]
        trade.legend(handles, labels, loc="lower left")
        figure.legend(
            [bars, (band, mean), truth, wrong, curve],
            [f"{len(lengths)} on deck", "stock, 90% band", "truth", "net ignored", "net, by trial"],
            loc="outside upper left",
            ncols=5,
        )
    return figure


def main(directory: Path, draws: int = 4000, **settings) -> dict[str, dict[str, float]]:
    """Simulate, sample twice, print and draw; truth, naive value, and both posteriors."""
    trial, lengths = simulate(1000, seed=1)
    naive = {"mean": float(lengths.mean()), "sd": float(lengths.std(ddof=1))}
    print(f"{len(lengths)} fish on deck, {naive['mean']:.1f} cm long on average.")
    known = {
        name: dist.TruncatedNormal(trial[name], se, low=0.0) for name, se in TRIAL_ERRORS.items()
    }
    posteriors = []
    for title, net in (("With the gear trial", known), ("Without it", VAGUE)):
        posteriors.append(offcut.sample(survey(net), lengths, draws=draws, **settings))
        print(f"\n{title}:\n\n{offcut.summary(posteriors[-1])}")

    drawn = [{name: p["posterior"][name].values.ravel() for name in TRUE} for p in posteriors]
    results = {}
    print(f"\n{'':8}{'truth':>8}{'naive':>8}   {'with the trial: mean, 90%':30}without: 90%")
    for name, truth in TRUE.items():
        values, vague = (draws[name] for draws in drawn)
        low, high = np.quantile(values, [0.05, 0.95])
        vague_low, vague_high = np.quantile(vague, [0.05, 0.95])
        results[name] = {
            "truth": truth,
            "naive": naive.get(name),
            "mean": float(values.mean()),
            "low": float(low),
            "high": float(high),
            "vague_low": float(vague_low),
            "vague_high": float(vague_high),
        }
        face = f"{naive[name]:8.1f}" if name in naive else f"{'':8}"
        ours = f"{values.mean():.1f} ({low:.1f} to {high:.1f})"
        print(f"{name:8}{truth:8.1f}{face}   {ours:30}{vague_low:.1f} to {vague_high:.1f}")

    directory.mkdir(parents=True, exist_ok=True)
    few = [{k: v[:: max(1, len(v) // 1200)] for k, v in draws.items()} for draws in drawn]
    kept = float(posteriors[0]["sample_stats"]["proposal_acceptance_rate"].mean())
    figure = picture(lengths, trial, kept, few, naive)
    figure.savefig(directory / "survey.png", dpi=160)
    plt.close(figure)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
