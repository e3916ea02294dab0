"""The result in words, on disk, and in the hands of ArviZ."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import arviz_stats
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr

import kill_me
import offcut
from offcut.errors import TrustWarning
from offcut.result.diagnostics import r_hat
from offcut.result.summary import find_doubts
from offcut.samplers.choice import prepare


def changed(tree: Any, **attrs: Any) -> xr.DataTree:
    copy = tree.copy(deep=True)
    copy.attrs.update(attrs)
    return copy


def with_stat(tree: Any, name: str, values: Any, group: str = "sample_stats") -> xr.DataTree:
    copy = tree.copy(deep=True)
    variable = (("chain", "draw"), np.broadcast_to(values, (3, 150)))
    copy[group].dataset = copy[group].to_dataset().assign({name: variable})
    return copy


def with_loc(tree: Any, values: Any) -> xr.DataTree:
    return with_stat(tree, "loc", values, "posterior")


@pytest.fixture
def calm(short_run: Any) -> xr.DataTree:
    """A tree that gives no reason for doubt: independent draws, far from the budget."""
    rng = np.random.default_rng(0)
    tree = changed(short_run, tv_halving_limit=0.004, tv_estimate=0.0)
    # Each draw mirrors the one before, so that all 450 are effective.
    half = rng.normal(size=(3, 75, 1))
    mirrored = (half * [1.0, -1.0]).reshape(3, 150)
    tree = with_loc(tree, mirrored)
    counts = np.round(200 + 14 * mirrored).astype(int)
    return with_stat(with_stat(tree, "rejected", counts), "diverging", False)


def test_the_certificate_in_words(calm: xr.DataTree) -> None:
    said = str(offcut.summary(calm))
    assert "Certificate: sweeps were limited to 3,000 rejections." in said
    assert "Halving that limit would change the posterior by at most 0.40%" in said
    assert "an estimate, not a bound" in said
    assert "Rejected proposals |Y| a sweep: median" in said
    assert "beside 50 observations" in said
    assert "Before you trust this" not in said
    assert offcut.summary(calm).trouble == []


def test_the_table_has_the_numbers_of_the_draws(calm: xr.DataTree) -> None:
    row = offcut.summary(calm).table["loc"]
    draws = calm["posterior"]["loc"].values
    assert row["mean"] == draws.mean()
    assert row["sd"] == draws.std(ddof=1)
    assert row["5%"] == np.quantile(draws, 0.05)
    assert row["r_hat"] == pytest.approx(float(arviz_stats.rhat(calm)["loc"]))
    # Not more than there are draws, even where the chains are antithetic.
    assert row["ess"] == min(450.0, float(arviz_stats.ess(calm, method="mean")["loc"]))
    slow = with_loc(calm, np.cumsum(np.random.default_rng(1).normal(size=(3, 150)), axis=1))
    ess = float(arviz_stats.ess(slow, method="mean")["loc"])
    assert ess < 100
    assert offcut.summary(slow).table["loc"]["ess"] == pytest.approx(ess)


def test_chains_that_disagree(calm: xr.DataTree) -> None:
    apart = with_loc(calm, np.add(calm["posterior"]["loc"].values, [[0.0], [3.0], [6.0]]))
    said = offcut.summary(apart)
    assert "Before you trust this:" in said.text
    assert len(said.trouble) == 1
    assert said.trouble[0].startswith("The chains disagree: R-hat above 1.05 for loc (")
    assert [doubt.kind for doubt in find_doubts(apart)] == ["mixing"]


def test_chains_that_stand_still_disagree(calm: xr.DataTree) -> None:
    stuck = with_loc(calm, [[0.0], [1.0], [2.0]])
    assert offcut.summary(stuck).table["loc"]["r_hat"] == np.inf
    assert "R-hat above 1.05 for loc (inf)" in str(offcut.summary(stuck))
    assert r_hat(np.ones((3, 100))) == 1.0


def test_the_number_of_rejections_may_disagree_alone(calm: xr.DataTree) -> None:
    counts = np.add(calm["sample_stats"]["rejected"].values, [[0], [90], [0]])
    drifting = with_stat(calm, "rejected", counts)
    assert "R-hat above 1.05 for |Y| (" in str(offcut.summary(drifting))


@pytest.mark.parametrize(
    ("kind", "spoil", "said"),
    [
        (
            "interrupted",
            lambda t: changed(t, interrupted=1, draws=400),
            "interrupted: 150 of 400 draws of each",
        ),
        ("gave up", lambda t: with_stat(t, "gave_up", True), "100.0% of the sweeps gave up"),
        ("divergences", lambda t: with_stat(t, "diverging", True), "450 sweeps diverged"),
        (
            "budget",
            lambda t: changed(with_stat(t, "rejected", 1501), tv_halving_limit=0.3),
            "The budget may matter: halving it to 1,500 could change the posterior by up to 30%",
        ),
        (
            "budget",
            lambda t: changed(t, tv_halving_limit=0.3),
            "Too few independent draws to certify the budget",
        ),
    ],
)
def test_every_reason_for_doubt(calm: xr.DataTree, kind: str, spoil: Any, said: str) -> None:
    found = offcut.summary(spoil(calm)).doubts
    assert [said in doubt.text for doubt in found if doubt.kind == kind] == [True]


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"budget": "none"}, "Certificate: no budget was set, so nothing was restricted."),
        (
            {"tv_estimate": np.nan, "tv_note": "no attempts to average"},
            "No estimate against no limit at all: no attempts to average.",
        ),
        ({"tv_note": "void: 3.0% of the sweeps gave up"}, "void: 3.0% of the sweeps gave up."),
    ],
)
def test_certificates_of_other_kinds(calm: xr.DataTree, attrs: dict, said: str) -> None:
    assert said in str(offcut.summary(changed(calm, **attrs)))


def test_a_short_run_warns_of_what_it_is(truncated_normal: Any, observations: np.ndarray) -> None:
    with pytest.warns(TrustWarning, match="Too few independent draws to certify the budget"):
        offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "draws": 10})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "budget": None})
    assert not any("certify the budget" in str(w.message) for w in caught)


def test_one_chain_is_judged_too(calm: xr.DataTree) -> None:
    def end_to_end(tree: Any) -> xr.DataTree:
        """The three chains as one of 450 draws."""
        groups = {}
        for name in ("posterior", "sample_stats"):
            values = tree[name].to_dataset().data_vars.items()
            groups[name] = xr.Dataset(
                {k: (("chain", "draw"), v.values.reshape(1, 450)) for k, v in values}
            )
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs)), **groups})

    assert offcut.summary(end_to_end(calm)).trouble == []
    apart = with_loc(calm, np.add(calm["posterior"]["loc"].values, [[0.0], [3.0], [6.0]]))
    said = offcut.summary(end_to_end(apart)).trouble
    assert said[0].startswith("The chain has not settled: R-hat above 1.05 for loc (")
    assert r_hat(np.linspace(0, 1, 400)[None]) > 2


def test_few_effective_draws_of_the_rejections_alone(calm: xr.DataTree) -> None:
    slow = np.round(np.sin(np.arange(150) * 0.3 + np.arange(3)[:, None]) * 50 + 200).astype(int)
    said = offcut.summary(with_stat(calm, "rejected", slow)).trouble
    assert len(said) == 1
    assert "for |Y|" in said[0]
    assert "try draws=" in said[0]


def test_what_lies_beyond_is_trouble(calm: xr.DataTree) -> None:
    found = {"beyond_place": "{'loc': -9.1}", "beyond_note": ""}
    quiet = changed(calm, beyond_share=0.001, beyond_shift=0.5, **found)
    assert offcut.summary(quiet).trouble == []
    assert "A look beyond (importance sampling from the prior): about 0.10%" in str(
        offcut.summary(quiet)
    )
    for share, shift in ((0.06, 1.0), (0.001, 12.0)):
        loud = offcut.summary(changed(calm, beyond_share=share, beyond_shift=shift, **found))
        assert loud.trouble[0].startswith("The posterior goes on where the run has not been")
        assert "{'loc': -9.1}" in loud.trouble[0]
        assert "What may help:" in loud.text
        assert any("kernel=offcut.Exchange()" in line for line in loud.advice)
        assert not any("Direct" in line for line in loud.advice)
    direct = changed(calm, beyond_share=0.1, beyond_shift=9.0, direct_available=1, **found)
    assert any("kernel=offcut.Direct()" in line for line in offcut.summary(direct).advice)


def test_a_low_acceptance_rate_gets_advice(calm: xr.DataTree) -> None:
    rejected = 40 * calm["sample_stats"]["rejected"].values
    report = offcut.summary(with_stat(calm, "rejected", rejected))
    assert report.trouble == []  # it may be slow, but it is not wrong
    assert report.advice[0].startswith("Only 0.0062 of the proposals pass the filter")
    assert "rejections outnumber the data 160 to 1" in report.advice[0]
    assert "0.6% of proposals pass the filter" in report.text
    assert offcut.summary(calm).advice == []


def test_missing_information_in_words(calm: xr.DataTree) -> None:
    said = str(offcut.summary(changed(calm, missing_information=0.9)))
    assert "Fraction of missing information 90.0% in the worst direction (estimated)" in said
    assert "about 19 sweeps for one independent draw" in said
    unknown = changed(calm, missing_information=np.nan, missing_information_note="no score")
    assert "Fraction of missing information: not known (no score)." in str(offcut.summary(unknown))
    assert "Kernel: HMC(" in said


def test_the_result_keeps_what_was_made_of_the_score(short_run: Any) -> None:
    assert not {"position", "gradient"} & set(short_run["sample_stats"].data_vars)
    assert 0 < short_run.attrs["missing_information"] < 1
    own = short_run["posterior"]["loc"].attrs["missing_information"]
    assert own == pytest.approx(short_run.attrs["missing_information"], abs=0.15)
    head, row = str(offcut.summary(short_run)).splitlines()[:2]
    assert head.endswith("missing")
    assert row.endswith(f"{own:.1%}")


def test_other_kernels_say_why_it_is_not_known(
    truncated_normal: Any, observations: np.ndarray
) -> None:
    tree = offcut.sample(
        truncated_normal, observations, **{**kill_me.SHORT, "kernel": offcut.RandomWalk(0.3)}
    )
    assert np.isnan(tree.attrs["missing_information"])
    assert "does not compute the score" in str(offcut.summary(tree))


def test_saved_and_read_back(short_run: Any, tmp_path: Path) -> None:
    path = tmp_path / "posterior.nc"
    short_run.to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as file:
        back = file.load()
    assert back.attrs.keys() == short_run.attrs.keys()
    for name, value in short_run.attrs.items():
        assert back.attrs[name] == value or (value != value and np.isnan(back.attrs[name]))
    for group in ("posterior", "sample_stats", "observed_data"):
        xr.testing.assert_identical(back[group].to_dataset(), short_run[group].to_dataset())
    assert str(offcut.summary(back)) == str(offcut.summary(short_run))


def test_saved_without_a_budget(
    truncated_normal: Any, observations: np.ndarray, tmp_path: Path
) -> None:
    tree = offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "budget": None})
    tree.to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as file:
        assert "no budget was set" in str(offcut.summary(file.load()))


def test_the_result_says_what_made_it(short_run: Any, observations: np.ndarray) -> None:
    attrs = short_run.attrs
    for name in ("draws", "warmup", "chains", "seed", "budget"):
        assert attrs[name] == kill_me.SHORT[name]
    assert attrs["kernel"] == repr(kill_me.SHORT["kernel"])
    assert attrs["n_observations"] == 50
    assert attrs["version_offcut"] == offcut.__version__
    assert np.array_equal(short_run["observed_data"]["x"], observations)
    stats = short_run["sample_stats"]
    assert np.array_equal(stats["proposal_acceptance_rate"], 50 / (50 + stats["rejected"].values))


def test_arviz_takes_it(short_run: Any) -> None:
    table = arviz_stats.summary(short_run)
    assert list(table.index) == ["loc"]
    assert float(arviz_stats.ess(short_run)["loc"]) > 1


def test_a_chain_that_never_moved_is_said(calm: xr.DataTree) -> None:
    moving = calm["posterior"]["loc"].values
    assert not any("never moved" in line for line in offcut.summary(calm).trouble)
    for stuck, said in (({1}, "loc never moved in chain 1:"), ({0, 2}, "in chains 0, 2:")):
        values = np.array([moving[c] * 0 + c if c in stuck else moving[c] for c in range(3)])
        report = offcut.summary(with_loc(calm, values))
        assert said in "\n".join(report.trouble)
        assert report.table["loc"]["ess"] == 1
        assert report.table["loc"]["r_hat"] == np.inf


@pytest.mark.parametrize("chains", [1, 3])
def test_a_run_that_never_moved_is_said(calm: xr.DataTree, chains: int) -> None:
    """All chains at one place: R-hat used to be 1 and every draw effective."""
    stuck = with_stat(with_loc(calm, 0.7), "diverging", True).isel(chain=slice(chains))
    stuck["posterior"]["loc"].attrs["constant"] = np.array([0])
    report = offcut.summary(stuck)
    together = "\n".join(report.trouble)
    assert "loc never moved in any chain: one value in all 150 draws" in together
    assert "the density is zero or NaN" in together
    assert "step size" not in together
    assert report.table["loc"]["r_hat"] == np.inf


def test_what_is_fixed_or_computed_may_stand_still(calm: xr.DataTree) -> None:
    more = calm.copy(deep=True)
    group = more["posterior"].to_dataset()
    matrix = np.broadcast_to(np.eye(2), (3, 150, 2, 2)).copy()
    matrix[..., 1, 0] = group["loc"].values
    group["factor"] = (("chain", "draw", "row", "column"), matrix)
    group["fixed"] = group["loc"] * 0 + 2.0
    more["posterior"].dataset = group
    assert not any("never moved" in line for line in offcut.summary(more).trouble)
    # In one chain it could be either; a model that knows says so.
    one = more.isel(chain=slice(1))
    assert not any("never moved" in line for line in offcut.summary(one).trouble)
    one["posterior"]["factor"].attrs["constant"] = np.array([0, 1, 0, 1])
    lines = [line for line in offcut.summary(one).trouble if "never moved" in line]
    assert len(lines) == 1
    assert lines[0].startswith("factor[0, 0] never moved in any chain")
    one["posterior"]["factor"].attrs["derived"] = 1
    assert not any("never moved" in line for line in offcut.summary(one).trouble)


def test_entries_that_no_theta_changes_are_known() -> None:
    model = offcut.truncated(
        prior={"root": dist.LKJCholesky(2, 1.0), "loc": dist.Normal(0, 1), "scale": 2.0},
        base=lambda theta: dist.MultivariateNormal(theta["loc"], scale_tril=theta["root"]),
        inside=lambda x: x[0] > 0,
    )
    with jax.enable_x64(True):
        sampler, _, _ = prepare(model, np.ones((3, 2)), None, offcut.NUTS())
        marks = sampler.variables()
    assert marks["root"].constant == (True, True, False, False)
    assert marks["loc"].constant == (False,)
    assert marks["scale"].derived
