"""``offcut compare``: what it measures, what it prints, and what it refuses."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from scipy import stats

import offcut
from cli import refused, run, told
from offcut.app.compare import in_order, rows, verdict
from offcut.base import Model
from offcut.checks.comparison import Comparison, Contender, Measured, compare_samplers

MODELS = """
import numpy as np, numpyro.distributions as dist, offcut

heights = offcut.truncated(
    prior={"loc": dist.Normal(0, 1)},
    base=lambda theta: dist.Normal(theta["loc"], 1),
    inside=lambda x: x > 0,
)
number = 3
"""
SHORT = ["--draws", "60", "--warmup", "60", "--repeats", "2"]
SETTLED = ["--draws", "2000", "--warmup", "300", "--repeats", "2"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    np.save("x.npy", np.array([0.1, 0.5, 0.7, 1.2, 2.0]))
    return tmp_path


def made_up(name, rates, mean=0.0, error=0.1, trouble="", **facts):
    """Repeats of one second with so many effective draws each."""
    ess = np.array(rates, float)[:, None]
    return Measured(
        Contender(name, Model(), **facts),
        ["a"],
        ess,
        np.full_like(ess, mean),
        np.full_like(ess, error),
        np.ones(len(ess)),
        ess.sum(axis=0),
        np.ones(1),
        trouble,
    )


def test_intervals_are_t_intervals_of_the_logarithm():
    logs = np.array([1.0, 1.2, 0.7, 1.4])
    rate = made_up("one", np.exp(logs)).rate("a")
    low, high = stats.t.interval(0.95, 3, np.log(np.exp(logs).mean()), stats.sem(logs))
    np.testing.assert_allclose([rate.low, rate.high], np.exp([low, high]))
    assert rate.middle == pytest.approx(np.exp(logs).mean())
    assert np.isnan(made_up("one", [3.0]).rate("a").low)


def test_interval_covers_the_rate():
    """90 to 99% of 95% intervals hold the truth; a normal interval of 4 repeats would not."""
    random = np.random.default_rng(0)
    held = []
    for _ in range(1000):
        rate = made_up("one", np.exp(5 + 0.2 * random.normal(size=4))).rate("a")
        held.append(rate.low < np.exp(5 + 0.2**2 / 2) < rate.high)
    assert 0.93 < np.mean(held) < 0.97


def test_samplers_that_disagree_are_found():
    right = made_up("right", [9, 9, 9, 9], error=0.1)
    same = made_up("same", [5, 5, 5, 5], mean=0.1, error=0.1)
    wrong = made_up("wrong", [5, 5, 5, 5], mean=1.0, error=0.1)
    rough = made_up("rough", [99, 99, 99, 99], mean=1.0, error=0.01, approximate=True)
    other = made_up("other", [5, 5, 5, 5], mean=9.0, target="another posterior")
    found = Comparison([right, same, wrong, rough, other])
    assert found.reference() is right
    assert found.disagreement(same)[0] < found.limit() < found.disagreement(wrong)[0]
    assert found.disagreement(rough)[0] > found.limit()
    assert np.isnan(found.disagreement(right)[0])
    assert np.isnan(found.disagreement(other)[0])
    # Repeats that differ by more than their errors say have larger errors.
    apart = made_up("apart", [5, 5, 5, 5], error=0.1)
    apart.mean = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    assert apart.estimate("a")[1] == pytest.approx(np.std([-1, 1, -1, 1], ddof=1) / 2)


def test_own_model_from_end_to_end(folder):
    result = run(
        "compare", "models.py:heights", "x.npy", "--samplers", "hmc,conjugate,direct", *SETTLED,
        "-o", "out",
    )  # fmt: skip
    assert result.exit_code == 0, told(result)
    for word in (
        "HMC",
        "Conjugate",
        "direct",
        "loc",
        "reference",
        "does not fit",
        "offcut.regions",
    ):
        assert word in result.stdout
    with open("out/comparison.csv", newline="") as file:
        rows = {row["sampler"]: row for row in csv.DictReader(file)}
    assert float(rows["HMC"]["low_95%"]) < float(rows["HMC"]["ess_per_second"])
    assert "window" in rows["direct"]["refusal"]
    page = (folder / "out" / "report.html").read_text("utf-8")
    assert "Samplers compared: models.py:heights" in page
    assert page.count("<svg") == 1
    assert [path.name for path in (folder / "out" / "figures").iterdir()] == ["rates.svg"]


def test_what_is_refused(folder):
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "none.py").write_text("x = 1\n")
    refused(run("compare", "models.py:no", "x.npy"), "has no 'no'; its models are: heights")
    refused(run("compare", "models.py:number", "x.npy"), "is no model but int", "Models there: hei")
    refused(run("compare", "gone.py:m", "x.npy"), "there is no file gone.py", "models.py:model")
    refused(run("compare", "bad.py:m", "x.npy"), "ZeroDivisionError: division by zero")
    refused(run("compare", "none.py", "x.npy"), "which model of none.py? There are: none")
    refused(
        run("compare", "desnity", "x.npy"), "expected one of mixture, langevin, density, intens"
    )
    refused(run("compare", "models.py:heights", "gone.npy"), "gone.npy does not exist")
    refused(
        run("compare", "models.py:heights", "x.npy", "--samplers", "nuts,gibbs"),
        "there is no 'gibbs'; there are NUTS, HMC, RandomWalk",
    )
    refused(
        run("compare", "density", "x.npy", "--samplers", "sweep"),
        "there are paper's sweep, augment, collapsed",
    )
    refused(run("compare", "density", "x.npy", "--draws", "5"), "Invalid value for '--draws'")
    refused(
        run("compare", "models.py:heights", "x.npy", "--method", "collapsed"),
        "method must be one of 'auto', 'augment', 'direct', 'exchange', 'pseudo_marginal' for",
    )
    refused(
        run("compare", "models.py:heights", "x.npy", "--method", "direct", "--samplers", "nuts"),
        "there is no 'nuts'; there are direct",
    )
    refused(
        run("fit", "density", "x.npy", "--method", "exchange"),
        "'exchange' is not one of 'auto', 'augment', 'collapsed'",
    )


def test_quantities(folder):
    words = ["compare", "models.py", "x.npy", "--samplers", "conjugate", *SHORT, "-q"]
    assert run(*words, "--quantity", "loc").exit_code == 0
    refused(run(*words, "--quantity", "scale"), "no quantity 'scale'", "there are loc")


@pytest.mark.calibrate
def test_models(folder):
    random = np.random.default_rng(0)
    units = np.eye(3)[0] + 0.3 * random.normal(size=(40, 3))
    np.save("u.npy", units / np.linalg.norm(units, axis=1)[:, None])
    np.save("t.npy", random.gamma(3.0, size=40))
    frames = run("compare", "langevin", "u.npy", *SHORT)
    assert frames.exit_code == 0, told(frames)
    for name in ("augment", "collapsed", "exchange", "pseudo_marginal", "asymptotic (approximate)"):
        assert name in " ".join(frames.stdout.split())
    fixed = ["--length-scale", "2", "--variance", "1", *SHORT]
    for model in ("density", "intensity"):
        result = run("compare", model, "t.npy", "--lower", "0", *fixed)
        assert result.exit_code == 0, told(result)
        assert "paper's sweep" in result.stdout
    mixture = run("compare", "mixture", "t.npy", "--lower", "0", "--components", "3", *SHORT)
    assert mixture.exit_code == 0, told(mixture)
    assert "weights window" in mixture.stdout


# Chains that stay in different places.

TWO_MODES = """
import numpyro.distributions as dist, offcut

model = offcut.truncated(
    prior={"loc": dist.Normal(0, 3)},
    base=lambda theta: dist.Normal(theta["loc"] ** 2, 2),
    inside=lambda x: x > 0,
)
"""
FOUR = np.array([1.0, 2.5, 3.0, 3.5, 4.5, 5.0, 5.5, 7.0])


def test_samplers_whose_chains_stick_in_different_modes_come_last_and_are_no_reference(folder):
    """The sign of ``loc`` is not known: short trajectories never change it, wide steps do."""
    namespace = {}
    exec(TWO_MODES, namespace)
    kernels = {"stuck": offcut.HMC(0.1, 3), "wide": offcut.RandomWalk(2.5)}
    both = [Contender(name, namespace["model"], kernel) for name, kernel in kernels.items()]
    found = compare_samplers(both, FOUR, draws=2000, warmup=100, repeats=4, seed=1)
    stuck, wide = found.measured
    assert len(set(np.sign(stuck.mean[:, 0]))) == 2, "a void test: all in one mode"
    # Each chain alone seems to mix well: the rates within chains would put the stuck one first.
    within = {one.contender.name: (one.ess[:, 0] / one.seconds).min() for one in found.ran}
    assert within["stuck"] > within["wide"]
    assert stuck.pooled[0] < 10 < 100 < wide.pooled[0]
    assert found.ranked == [wide, stuck]
    assert found.reference() is wide
    assert not wide.trouble
    assert verdict(found, stuck).startswith("CHAINS DISAGREE, R-hat 1.")
    assert np.isnan(found.disagreement(stuck)[0])
    assert np.isnan(stuck.rate("loc").low)


def test_a_chain_that_never_moved_is_marked(folder):
    namespace = {}
    exec(TWO_MODES, namespace)
    kernels = {"still": offcut.RandomWalk(1e6), "wide": offcut.RandomWalk(2.5)}
    both = [Contender(name, namespace["model"], kernel) for name, kernel in kernels.items()]
    found = compare_samplers(both, FOUR, draws=300, warmup=10, repeats=2)
    still = found.measured[0]
    assert still.pooled[0] <= 2
    assert verdict(found, still) == "A CHAIN NEVER MOVED"
    assert found.reference() is not still
    assert found.ranked[-1] is still


@pytest.mark.calibrate
def test_where_all_samplers_are_stuck_there_is_no_reference_and_it_says_so(folder):
    (folder / "two.py").write_text(TWO_MODES)
    np.save("four.npy", FOUR)
    run_of = ["--draws", "300", "--warmup", "100", "--repeats", "4", "--seed", "1"]
    result = run(
        "compare", "two.py", "four.npy", "--samplers", "hmc,randomwalk", *run_of, "-o", "out"
    )
    assert result.exit_code == 0, told(result)
    text = " ".join(result.stdout.split())
    assert "there is no reference" in text
    assert "reference" not in text.replace("there is no reference", "").replace("the reference", "")
    assert text.count("CHAINS DISAGREE") == 2 or text.count("DISAGREE") == 2
    page = (folder / "out" / "report.html").read_text("utf-8")
    assert "there is no reference" in page
    assert page.count("CHAINS DISAGREE") == 2
    with open("out/comparison.csv", newline="") as file:
        for row in csv.DictReader(file):
            assert row["trouble"].startswith("CHAINS DISAGREE")
            assert float(row["r_hat"]) > 1.05


def test_ranks():
    slow, quick = made_up("slow", [5, 5]), made_up("quick", [50, 50])
    stuck = made_up("stuck", [500, 500], trouble="CHAINS DISAGREE, R-hat 2.00 (a)")
    refused = Measured(Contender("refused", Model()), refusal="does not fit")
    found = Comparison([refused, stuck, slow, quick])
    assert in_order(found) == [quick, slow, stuck, refused]
    assert [row[0] for row in rows(found)] == ["quick", "slow", "stuck", "refused"]
    assert found.reference() is quick
    assert not found.without_reference()
    assert verdict(found, stuck) == stuck.trouble
    assert Comparison(
        [stuck, made_up("also", [5, 5], trouble="A CHAIN NEVER MOVED")]
    ).without_reference() == [""]
    assert not Comparison([stuck]).without_reference(), "nothing to compare with anyway"
